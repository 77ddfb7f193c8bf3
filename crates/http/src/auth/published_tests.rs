//! Published keys: fetched, changed, gone, and asked for no more often than is good.

use super::super::signer::Signer;
use super::*;
use serde_json::json;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// An issuer on a free port that answers whatever it is told to, and counts how often it is asked.
struct Issuer {
    url: String,
    asked: Arc<AtomicUsize>,
    answer: Arc<Mutex<String>>,
}

impl Issuer {
    async fn start(answer: String) -> Issuer {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/keys", listener.local_addr().unwrap());
        let (asked, answer) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(answer)));
        let issuer = Issuer { url, asked: Arc::clone(&asked), answer: Arc::clone(&answer) };
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut request = [0; 4096];
                let _ = stream.read(&mut request).await;
                asked.fetch_add(1, Ordering::SeqCst);
                let text = answer.lock().unwrap().clone();
                let _ = stream.write_all(text.as_bytes()).await;
            }
        });
        issuer
    }

    fn say(&self, answer: String) {
        *self.answer.lock().unwrap() = answer;
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

fn answer(status: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn set(keys: &[Value]) -> String {
    answer("200 OK", &json!({ "keys": keys }).to_string())
}

fn header(name: &str, kid: Option<&str>) -> Header {
    let mut header = Header::new(name.parse().unwrap());
    header.kid = kid.map(str::to_owned);
    header
}

const QUICK: Pauses = Pauses {
    refresh: Duration::from_secs(3600),
    again: Duration::ZERO,
    first: Duration::from_millis(5),
};
const SLOW: Pauses = Pauses { again: Duration::from_secs(3600), ..QUICK };

fn fetching(issuer: &Issuer, pauses: Pauses) -> Arc<Published> {
    let published = Arc::new(Published::with(&issuer.url, pauses).unwrap());
    let kept = Arc::clone(&published);
    tokio::spawn(async move { kept.keep_fresh().await });
    published
}

/// Waits until keys were fetched.
async fn there(published: &Published) {
    let mut changes = published.known.subscribe();
    let there = changes.wait_for(|known| known.keys.is_ok());
    drop(tokio::time::timeout(Duration::from_secs(20), there).await.unwrap().unwrap());
}

#[tokio::test]
async fn a_key_is_found_by_its_id_its_kind_and_what_it_is_for() {
    let (rsa, ed25519, secret) = (Signer::rsa(), Signer::ed25519(), Signer::Hmac(b"secret"));
    let mut only_512 = rsa.jwk("only-512");
    only_512["alg"] = "RS512".into();
    let mut sealing = rsa.jwk("sealing");
    sealing["use"] = "enc".into();
    let odd = [json!({"kty": "future", "kid": "odd"}), json!(7), json!({"kty": "RSA", "n": "?"})];
    let mut keys = vec![rsa.jwk("r"), only_512, sealing, ed25519.jwk("e"), secret.jwk("s")];
    keys.extend(odd);
    let issuer = Issuer::start(set(&keys)).await;
    let published = fetching(&issuer, SLOW);
    there(&published).await;
    let found =
        async |kind, name, kid| published.find(kind, &header(name, kid)).await.unwrap().len();
    assert_eq!(found(Kind::Rsa, "RS256", Some("r")).await, 1);
    assert_eq!(found(Kind::Rsa, "RS256", Some("only-512")).await, 0);
    assert_eq!(found(Kind::Rsa, "RS512", Some("only-512")).await, 1);
    assert_eq!(found(Kind::Rsa, "RS512", None).await, 2);
    assert_eq!(found(Kind::Rsa, "RS256", Some("sealing")).await, 0);
    assert_eq!(found(Kind::Rsa, "RS256", Some("e")).await, 0, "of another kind");
    assert_eq!(found(Kind::Ed25519, "EdDSA", Some("e")).await, 1);
    assert_eq!(found(Kind::Hmac, "HS256", Some("s")).await, 0, "a secret is never published");
    assert_eq!(issuer.asked(), 1);
}

#[tokio::test]
async fn a_new_key_is_fetched_when_a_token_names_it() {
    let issuer = Issuer::start(set(&[Signer::ed25519().jwk("old")])).await;
    let published = fetching(&issuer, QUICK);
    there(&published).await;
    let header = |kid| header("EdDSA", Some(kid));
    assert_eq!(published.find(Kind::Ed25519, &header("old")).await.unwrap().len(), 1);
    issuer.say(set(&[Signer::ed25519().jwk("new")]));
    assert_eq!(published.find(Kind::Ed25519, &header("new")).await.unwrap().len(), 1);
    assert_eq!(issuer.asked(), 2);
    assert_eq!(published.find(Kind::Ed25519, &header("new")).await.unwrap().len(), 1);
    assert_eq!(issuer.asked(), 2, "what is known asks nobody");
}

#[tokio::test]
async fn made_up_key_ids_do_not_reach_the_issuer_again_and_again() {
    let issuer = Issuer::start(set(&[Signer::ed25519().jwk("k")])).await;
    let published = fetching(&issuer, SLOW);
    there(&published).await;
    for kid in 0..50 {
        let header = header("EdDSA", Some(&kid.to_string()));
        assert!(published.find(Kind::Ed25519, &header).await.unwrap().is_empty());
    }
    assert_eq!(issuer.asked(), 1);
}

#[tokio::test]
async fn a_set_that_cannot_be_fetched_again_stays_in_use() {
    let issuer = Issuer::start(set(&[Signer::ed25519().jwk("k")])).await;
    let published = fetching(&issuer, QUICK);
    there(&published).await;
    for bad in [answer("500 Oops", ""), set(&[]), answer("200 OK", "[]"), "no HTTP".to_owned()] {
        issuer.say(bad);
        assert!(
            published.find(Kind::Ed25519, &header("EdDSA", Some("x"))).await.unwrap().is_empty()
        );
        let known = published.find(Kind::Ed25519, &header("EdDSA", Some("k"))).await;
        assert_eq!(known.unwrap().len(), 1);
    }
    assert!(issuer.asked() >= 5, "each was fetched");
}

#[tokio::test]
async fn without_any_keys_it_says_why_and_goes_on_trying() {
    let issuer = Issuer::start(answer("404 Not Found", "")).await;
    let published = fetching(&issuer, QUICK);
    let mut changes = published.known.subscribe();
    drop(changes.wait_for(|known| known.at.is_some()).await.unwrap());
    let text = published.find(Kind::Ed25519, &header("EdDSA", None)).await.err().unwrap();
    assert!(text.contains(&issuer.url) && text.contains("404"), "{text}");
    issuer.say(set(&[Signer::ed25519().jwk("k")]));
    there(&published).await;
    assert_eq!(published.find(Kind::Ed25519, &header("EdDSA", None)).await.unwrap().len(), 1);
}
