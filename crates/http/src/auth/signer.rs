//! Signs tokens for the tests, with the cryptography library itself and not with the one under test.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair, RsaKeyPair};
use aws_lc_rs::{hmac, signature};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};

/// What stands before an RSA key of 2048 bits and the usual exponent: the kind of the key.
const RSA_2048_HEAD: &[u8] = &[
    0x30, 0x82, 0x01, 0x22, 0x30, 0x0d, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01,
    0x01, 0x05, 0x00, 0x03, 0x82, 0x01, 0x0f, 0x00,
];
/// The same before an Ed25519 key.
const ED25519_HEAD: &[u8] =
    &[0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/// A key of one kind.
pub(super) enum Signer {
    Hmac(&'static [u8]),
    Rsa(RsaKeyPair),
    Ed25519(Ed25519KeyPair),
}

fn b64(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

impl Signer {
    pub(super) fn rsa() -> Signer {
        Signer::Rsa(RsaKeyPair::generate(KeySize::Rsa2048).unwrap())
    }

    pub(super) fn ed25519() -> Signer {
        Signer::Ed25519(Ed25519KeyPair::generate().unwrap())
    }

    /// A token that says it is signed with `name`, and is where the key can.
    pub(super) fn token(&self, name: &str, kid: Option<&str>, claims: &Value) -> String {
        let mut header = json!({"alg": name, "typ": "JWT"});
        if let Some(kid) = kid {
            header["kid"] = kid.into();
        }
        let message = format!("{}.{}", b64(header.to_string()), b64(claims.to_string()));
        let signature = self.sign(name, message.as_bytes());
        format!("{message}.{}", b64(signature))
    }

    fn sign(&self, name: &str, message: &[u8]) -> Vec<u8> {
        match self {
            Signer::Hmac(secret) => {
                let algorithm = match name {
                    "HS384" => hmac::HMAC_SHA384,
                    "HS512" => hmac::HMAC_SHA512,
                    _ => hmac::HMAC_SHA256,
                };
                hmac::sign(&hmac::Key::new(algorithm, secret), message).as_ref().to_vec()
            }
            Signer::Rsa(pair) => {
                let padding: &'static dyn signature::RsaEncoding = match name {
                    "RS384" => &signature::RSA_PKCS1_SHA384,
                    "RS512" => &signature::RSA_PKCS1_SHA512,
                    _ => &signature::RSA_PKCS1_SHA256,
                };
                let mut signed = vec![0; pair.public_modulus_len()];
                pair.sign(padding, &SystemRandom::new(), message, &mut signed).unwrap();
                signed
            }
            Signer::Ed25519(pair) => pair.sign(message).as_ref().to_vec(),
        }
    }

    /// Its public key in PEM.
    pub(super) fn pem(&self) -> String {
        let (head, key) = match self {
            Signer::Hmac(_) => panic!("a secret has no public key"),
            Signer::Rsa(pair) => (RSA_2048_HEAD, pair.public_key().as_ref()),
            Signer::Ed25519(pair) => (ED25519_HEAD, pair.public_key().as_ref()),
        };
        let text = STANDARD.encode([head, key].concat());
        let lines: Vec<&str> =
            text.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap()).collect();
        format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n", lines.join("\n"))
    }

    /// Its public key as a member of a published set.
    pub(super) fn jwk(&self, kid: &str) -> Value {
        match self {
            Signer::Hmac(secret) => json!({"kty": "oct", "kid": kid, "k": b64(secret)}),
            Signer::Rsa(pair) => {
                // SEQUENCE of two INTEGERs; the first has a zero in front of it.
                let key = pair.public_key().as_ref();
                let (n, e) = (&key[9..265], &key[267..]);
                assert_eq!((key.len(), e), (270, &[1, 0, 1][..]));
                json!({"kty": "RSA", "kid": kid, "use": "sig", "n": b64(n), "e": b64(e)})
            }
            Signer::Ed25519(pair) => {
                json!({"kty": "OKP", "crv": "Ed25519", "kid": kid, "alg": "EdDSA", "x": b64(pair.public_key())})
            }
        }
    }
}
