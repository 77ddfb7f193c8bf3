//! What is let in, and what is not.

use super::keys::SIGNATURES;
use super::signer::Signer;
use super::*;
use std::time::{SystemTime, UNIX_EPOCH};

const SECRET: &str = "0123456789abcdef0123456789abcdef";
const HMAC: Signer = Signer::Hmac(SECRET.as_bytes());

fn options() -> AuthOptions {
    AuthOptions {
        signature: None,
        secret: Some(Secret(SECRET.to_owned())),
        public_key: None,
        published_at: None,
        issuer: None,
        audience: None,
        clock_skew: Duration::from_secs(30),
        allow_endless: false,
        open_paths: vec!["/health".to_owned()],
        role_claim: "role".to_owned(),
        roles_claim: "roles".to_owned(),
        admin: "admin".to_owned(),
        read_write: "read-write".to_owned(),
        read_only: "read-only".to_owned(),
        write_only: "write-only".to_owned(),
    }
}

/// Seconds since 1970, so many from now.
fn seconds(from_now: i64) -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64 + from_now
}

fn claims(more: Value) -> Value {
    let mut claims = json!({"sub": "alice", "role": "read-write", "exp": seconds(600)});
    for (name, value) in more.as_object().unwrap() {
        claims[name] = value.clone();
    }
    claims
}

async fn send(auth: &Auth, level: Level, token: &str) -> Result<Option<Identity>, Denied> {
    let mut headers = HeaderMap::new();
    headers.insert(AUTHORIZATION, format!("Bearer {token}").parse().unwrap());
    auth.admit(level, "/api/v1/push", &headers).await
}

/// Why a token of these claims is not taken; "" when it is.
async fn refusal(auth: &Auth, claims: Value) -> String {
    match send(auth, Level::ReadWrite, &HMAC.token("HS256", None, &claims)).await {
        Ok(_) => String::new(),
        Err(Denied::Unknown(text)) => text,
        Err(other) => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn each_role_reaches_its_own_levels_and_no_others() {
    let auth = Auth::new(options()).unwrap();
    let levels = [Level::Public, Level::Read, Level::Write, Level::ReadWrite, Level::Admin];
    let cases = [
        (json!({"role": "admin"}), [true; 5]),
        (json!({"role": "read-write"}), [true, true, true, true, false]),
        (json!({"role": "read-only"}), [true, true, false, false, false]),
        (json!({"role": "write-only"}), [false, false, true, false, false]),
        (json!({"role": "Admin"}), [false; 5]),
        (json!({"role": null}), [false; 5]),
        (json!({"role": ["admin"]}), [false; 5]),
        (json!({"role": null, "roles": "admin"}), [false; 5]),
        (
            json!({"role": null, "roles": ["guest", "read-only", 7]}),
            [true, true, false, false, false],
        ),
        (json!({"role": "read-only", "roles": ["write-only"]}), [true, true, true, false, false]),
    ];
    for (role, want) in cases {
        let token = HMAC.token("HS256", None, &claims(role.clone()));
        for (level, may) in levels.into_iter().zip(want) {
            let got = send(&auth, level, &token).await;
            match may {
                true => assert_eq!(got.unwrap().unwrap().subject.as_deref(), Some("alice")),
                false => assert_eq!(got, Err(Denied::Forbidden), "{role} at {level:?}"),
            }
        }
    }
}

#[tokio::test]
async fn roles_go_by_the_names_and_claims_that_are_set() {
    let auth = Auth::new(AuthOptions {
        role_claim: "https://queen/role".to_owned(),
        roles_claim: "groups".to_owned(),
        admin: "ops".to_owned(),
        ..options()
    })
    .unwrap();
    for good in [json!({"https://queen/role": "ops"}), json!({"groups": ["ops"]})] {
        let token = HMAC.token("HS256", None, &claims(good));
        assert!(send(&auth, Level::Admin, &token).await.is_ok());
    }
    let token = HMAC.token("HS256", None, &claims(json!({"role": "admin", "groups": ["admin"]})));
    assert_eq!(send(&auth, Level::Read, &token).await, Err(Denied::Forbidden));
}

#[tokio::test]
async fn an_open_path_needs_no_token_and_what_lies_below_it_does() {
    let auth = Auth::new(options()).unwrap();
    let none = HeaderMap::new();
    assert_eq!(auth.admit(Level::Public, "/health", &none).await, Ok(None));
    for path in ["/health/", "/health/x", "/metrics", "/", "/healthy"] {
        let denied = auth.admit(Level::Public, path, &none).await.unwrap_err();
        assert!(matches!(denied, Denied::Unknown(_)), "{path}: {denied:?}");
    }
}

#[tokio::test]
async fn every_signature_is_taken_from_its_own_key_only() {
    let [rsa, ed25519] = [Signer::rsa(), Signer::ed25519()];
    let with = |public: &Signer| {
        Auth::new(AuthOptions { public_key: Some(public.pem()), ..options() }).unwrap()
    };
    let (with_rsa, with_ed25519) = (with(&rsa), with(&ed25519));
    let claims = claims(json!({}));
    for name in SIGNATURES {
        let (auth, signer, other) = match &name[..2] {
            "RS" => (&with_rsa, &rsa, Signer::rsa()),
            "Ed" => (&with_ed25519, &ed25519, Signer::ed25519()),
            _ => (&with_rsa, &HMAC, Signer::Hmac(b"another secret of enough bytes!!")),
        };
        let got = send(auth, Level::Write, &signer.token(name, None, &claims)).await;
        assert!(got.is_ok(), "{name}: {got:?}");
        let forged = send(auth, Level::Write, &other.token(name, None, &claims)).await;
        let Err(Denied::Unknown(text)) = forged else { panic!("{name}: {forged:?}") };
        assert_eq!(text, "the token's signature does not match", "{name}");
    }
}

#[tokio::test]
async fn a_public_key_is_no_secret_and_no_signature_is_none() {
    let rsa = Signer::rsa();
    let pem: &'static str = rsa.pem().leak();
    let auth =
        Auth::new(AuthOptions { secret: None, public_key: Some(pem.to_owned()), ..options() })
            .unwrap();
    let claims = claims(json!({"role": "admin"}));
    let confused = Signer::Hmac(pem.as_bytes()).token("HS256", None, &claims);
    assert!(matches!(send(&auth, Level::Read, &confused).await, Err(Denied::Unknown(_))));
    let both = Auth::new(AuthOptions { public_key: Some(pem.to_owned()), ..options() }).unwrap();
    assert!(matches!(send(&both, Level::Read, &confused).await, Err(Denied::Unknown(_))));
    for name in ["none", "None", "NONE", "ES256", "PS256", "HS1"] {
        let token = HMAC.token(name, None, &claims);
        let got = send(&both, Level::Read, &token).await;
        assert!(matches!(got, Err(Denied::Unknown(_))), "{name}: {got:?}");
        let unsigned = format!("{}.", token.rsplit_once('.').unwrap().0);
        assert!(send(&both, Level::Read, &unsigned).await.is_err(), "{name}");
    }
}

#[tokio::test]
async fn only_the_signature_that_is_asked_for_is_taken() {
    let auth = Auth::new(AuthOptions { signature: Some("HS384"), ..options() }).unwrap();
    let claims = claims(json!({}));
    assert!(send(&auth, Level::Read, &HMAC.token("HS384", None, &claims)).await.is_ok());
    let got = send(&auth, Level::Read, &HMAC.token("HS256", None, &claims)).await;
    let want = "the token is signed with HS256, JWT_ALGORITHM takes HS384 only";
    assert_eq!(got, Err(Denied::Unknown(want.to_owned())));
}

#[tokio::test]
async fn a_token_is_good_from_nbf_to_exp_give_or_take_the_skew() {
    let auth = Auth::new(options()).unwrap();
    let exp = |from_now| claims(json!({"exp": seconds(from_now)}));
    let nbf = |from_now| claims(json!({"nbf": seconds(from_now)}));
    assert_eq!(refusal(&auth, exp(-20)).await, "");
    assert_eq!(refusal(&auth, exp(-40)).await, "the token has expired");
    assert_eq!(refusal(&auth, nbf(20)).await, "");
    assert_eq!(refusal(&auth, nbf(60)).await, "the token is not valid yet (nbf)");
}

#[tokio::test]
async fn a_token_that_never_ends_is_taken_only_where_it_is_allowed() {
    let strict = Auth::new(options()).unwrap();
    let mild = Auth::new(AuthOptions { allow_endless: true, ..options() }).unwrap();
    let endless = json!({"sub": "alice", "role": "read-write"});
    let text = refusal(&strict, endless.clone()).await;
    assert!(text.contains("no exp") && text.contains("JWT_ALLOW_WITHOUT_EXP"), "{text}");
    assert_eq!(refusal(&mild, endless).await, "");
    assert_eq!(
        refusal(&mild, claims(json!({"exp": seconds(-600)}))).await,
        "the token has expired"
    );
    for bad in [json!("tomorrow"), json!({}), json!(-1), json!([seconds(600)]), json!(true)] {
        for auth in [&strict, &mild] {
            assert_ne!(refusal(auth, claims(json!({"exp": bad}))).await, "", "exp {bad}");
        }
    }
}

#[tokio::test]
async fn issuer_and_audience_are_held_against_the_settings() {
    let auth = Auth::new(AuthOptions {
        issuer: Some("https://login/".to_owned()),
        audience: Some("queen".to_owned()),
        ..options()
    })
    .unwrap();
    let with = |iss: Value, aud: Value| claims(json!({"iss": iss, "aud": aud}));
    let (iss, aud) = (json!("https://login/"), json!("queen"));
    assert_eq!(refusal(&auth, with(iss.clone(), aud.clone())).await, "");
    assert_eq!(refusal(&auth, with(iss.clone(), json!(["x", "queen"]))).await, "");
    for (bad_iss, bad_aud) in [
        (json!("https://login"), aud.clone()),
        (json!(null), aud.clone()),
        (json!({"x": "https://login/"}), aud.clone()),
        (iss.clone(), json!("other")),
        (iss.clone(), json!(["x"])),
        (iss.clone(), json!([])),
        (iss.clone(), json!(7)),
    ] {
        let text = refusal(&auth, with(bad_iss, bad_aud)).await;
        assert!(
            text.contains("iss") || text.contains("aud") || text.contains("malformed"),
            "{text}"
        );
    }
    let mut without = with(iss.clone(), aud);
    without.as_object_mut().unwrap().remove("aud");
    assert_eq!(refusal(&auth, without).await, "the token has no aud");
    let open = Auth::new(options()).unwrap();
    assert_eq!(refusal(&open, with(iss, json!("other"))).await, "");
}

#[tokio::test]
async fn what_is_no_token_is_refused_with_words() {
    let auth = Auth::new(options()).unwrap();
    let good = HMAC.token("HS256", None, &claims(json!({})));
    let (body, signature) = good.rsplit_once('.').unwrap();
    let changed = format!("{}.{signature}", body.replace('.', ".e30"));
    for bad in ["x", "a.b.c", "..", &good[1..], &good[..good.len() - 4], body, &changed] {
        let got = send(&auth, Level::Read, bad).await;
        assert!(matches!(got, Err(Denied::Unknown(_))), "{bad}: {got:?}");
    }
    let long = "x".repeat(TOKEN_BYTES_MAX + 1);
    let got = send(&auth, Level::Read, &long).await;
    assert!(matches!(&got, Err(Denied::Unknown(text)) if text.contains("16384")), "{got:?}");
    for header in ["Basic YTpi", "Bearer", "Bearer ", &good] {
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, header.parse().unwrap());
        let got = auth.admit(Level::Read, "/status", &headers).await;
        assert!(matches!(got, Err(Denied::Unknown(_))), "{header}: {got:?}");
    }
    let mut headers = HeaderMap::new();
    headers.insert(AUTHORIZATION, format!("bearer  {good}").parse().unwrap());
    assert!(auth.admit(Level::Read, "/status", &headers).await.is_ok(), "any case, any blanks");
}

#[tokio::test]
async fn a_subject_is_a_text_of_bounded_length_or_none() {
    let auth = Auth::new(options()).unwrap();
    let subject = async |sub: Value| {
        let token = HMAC.token("HS256", None, &claims(json!({"sub": sub})));
        send(&auth, Level::Read, &token).await.map(|who| who.unwrap().subject)
    };
    assert_eq!(subject(json!("bob ✓")).await, Ok(Some("bob ✓".to_owned())));
    assert_eq!(subject(json!(null)).await, Ok(None));
    assert_eq!(subject(json!("")).await, Ok(None));
    assert!(subject(json!("x".repeat(1024))).await.is_ok());
    assert!(subject(json!("x".repeat(1025))).await.is_err());
    assert!(subject(json!(7)).await.is_err());
}

#[test]
fn no_text_of_the_keys_shows_them() {
    let rsa = Signer::rsa();
    let auth = Auth::new(AuthOptions { public_key: Some(rsa.pem()), ..options() }).unwrap();
    assert!(!format!("{auth:?}").contains(SECRET));
}
