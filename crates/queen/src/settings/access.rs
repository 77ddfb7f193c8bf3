//! The settings of access, read from the environment.
//!
//! Owns: what must be set together, and the refusal of misspelt names. Leaves to others: names and
//! defaults (`queen_core::setting::access`), keys and tokens (`queen_http::auth`).
//! Upholds: no secret is in a refusal.

use crate::environment::Environment;
use queen_core::setting::{Setting, access, nearest};
use queen_http::auth::{Auth, AuthOptions, Secret};
use queen_http::tls::Tls;
use std::sync::Arc;
use std::time::Duration;

/// What begins a key that is given as a text.
const PEM_BEGINS: &str = "-----BEGIN";

/// How tokens are checked; `None` when they are not asked for, or when something is wrong.
pub fn read(environment: &Environment) -> Option<Arc<Auth>> {
    let on = environment.switch(&access::JWT_ENABLED);
    // All are looked at, so that what is wrong is known before it is turned on.
    let signature = environment.word(&access::JWT_ALGORITHM);
    let clock_skew = environment.number(&access::JWT_CLOCK_SKEW).unwrap_or_default();
    let allow_endless = environment.switch(&access::JWT_ALLOW_WITHOUT_EXP);
    if !on {
        return None;
    }
    let misspelt = refuse_misspelt(environment);
    let text = |setting| environment.text(setting).unwrap_or_default().to_owned();
    let given = |setting| environment.text(setting).map(str::to_owned);
    let paths = text(&access::JWT_SKIP_PATHS);
    let paths = paths.split(',').map(str::trim).filter(|path| !path.is_empty());
    let public_key = given(&access::JWT_PUBLIC_KEY).map(|key| public_key(environment, key));
    if misspelt || matches!(public_key, Some(None)) {
        return None;
    }
    let options = AuthOptions {
        signature: signature.filter(|name| *name != "auto"),
        secret: given(&access::JWT_SECRET).map(Secret),
        public_key: public_key.flatten(),
        published_at: given(&access::JWT_JWKS_URL),
        issuer: given(&access::JWT_ISSUER),
        audience: given(&access::JWT_AUDIENCE),
        clock_skew: Duration::from_secs(clock_skew),
        allow_endless,
        open_paths: paths.map(str::to_owned).collect(),
        role_claim: text(&access::JWT_ROLES_CLAIM),
        roles_claim: text(&access::JWT_ROLES_ARRAY_CLAIM),
        admin: text(&access::JWT_ROLE_ADMIN),
        read_write: text(&access::JWT_ROLE_READ_WRITE),
        read_only: text(&access::JWT_ROLE_READ_ONLY),
        write_only: text(&access::JWT_ROLE_WRITE_ONLY),
    };
    Auth::new(options).map_err(|problem| environment.complain(problem)).ok()
}

/// What clients are shown; `None` when HTTP is answered in the clear, or when something is wrong.
pub fn tls(environment: &Environment) -> Option<Arc<Tls>> {
    let [cert, key] = environment.together([&access::TLS_CERT, &access::TLS_KEY]).flatten()?;
    let tls = Tls::new(cert.into(), key.into());
    tls.map_err(|problem| environment.complain(problem)).ok().map(Arc::new)
}

/// The PEM text of a key that is given as such, or as the file that holds it.
fn public_key(environment: &Environment, given: String) -> Option<String> {
    if given.contains(PEM_BEGINS) {
        return Some(given);
    }
    let setting = &access::JWT_PUBLIC_KEY;
    let problem = match std::fs::read_to_string(&given) {
        Ok(text) if text.contains(PEM_BEGINS) => return Some(text),
        Ok(_) => "the file holds no PEM text".to_owned(),
        Err(error) => format!("it is no PEM text, and no file that can be read: {error}"),
    };
    environment.complain(setting.refusal(Some(&given), &problem));
    None
}

/// A misspelt name would leave a check out that somebody counts on.
fn refuse_misspelt(environment: &Environment) -> bool {
    let table: Vec<&Setting> =
        access::ALL.iter().copied().filter(|known| known.name.starts_with("JWT_")).collect();
    let names = environment.variables().keys().filter(|name| name.starts_with("JWT_"));
    let unknown: Vec<&String> =
        names.filter(|name| table.iter().all(|known| known.name != name.as_str())).collect();
    for name in &unknown {
        let near = nearest(name, &table).map_or("", |known| known.name);
        environment.complain(format!("{name}: is no setting; the nearest is {near}"));
    }
    !unknown.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> (bool, Vec<String>) {
        let owned = pairs.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned()));
        let environment = Environment::from_pairs(owned);
        let auth = super::read(&environment);
        (auth.is_some(), environment.take_problems())
    }

    const ON: (&str, &str) = ("JWT_ENABLED", "true");
    const SECRET: (&str, &str) = ("JWT_SECRET", "0123456789abcdef0123456789abcdef");

    fn refused(pairs: &[(&str, &str)], parts: &[&str]) {
        let (on, problems) = read(pairs);
        assert!(!on);
        assert_eq!(problems.len(), 1, "{problems:?}");
        for part in parts {
            assert!(problems[0].contains(part), "{part:?} is not in {:?}", problems[0]);
        }
        assert!(!problems[0].contains(SECRET.1), "{problems:?}");
    }

    #[test]
    fn tokens_are_asked_for_when_they_are_turned_on() {
        assert_eq!(read(&[]), (false, vec![]));
        assert_eq!(read(&[SECRET]), (false, vec![]));
        assert_eq!(read(&[ON, SECRET]), (true, vec![]));
        assert_eq!(read(&[("JWT_ENABLED", "off"), SECRET]), (false, vec![]));
    }

    #[test]
    fn a_start_with_nothing_to_check_tokens_with_is_refused() {
        let parts = ["JWT_ENABLED", "JWT_SECRET", "JWT_PUBLIC_KEY", "JWT_JWKS_URL"];
        refused(&[ON], &parts[..2]);
        refused(&[ON, ("JWT_ALGORITHM", "auto")], &parts);
        refused(
            &[ON, SECRET, ("JWT_ALGORITHM", "RS256")],
            &["JWT_ALGORITHM=RS256", "JWT_PUBLIC_KEY"],
        );
        let url = ("JWT_JWKS_URL", "https://login.example.com/keys");
        refused(&[ON, url], &["JWT_ALGORITHM=HS256", "JWT_SECRET", "JWT_ALGORITHM=auto"]);
        assert!(read(&[ON, url, ("JWT_ALGORITHM", "eddsa")]).0);
    }

    #[test]
    fn tls_needs_both_of_its_files() {
        let tls = |pairs: &[(&str, &str)]| {
            let owned = pairs.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned()));
            let environment = Environment::from_pairs(owned);
            let tls = super::tls(&environment);
            (tls.is_some(), environment.take_problems().join("; "))
        };
        assert_eq!(tls(&[]), (false, String::new()));
        let (_, problem) = tls(&[("QUEEN_TLS_CERT", "a.pem")]);
        assert!(problem.starts_with("QUEEN_TLS_KEY: not set, and needed"), "{problem}");
        let (_, problem) = tls(&[("QUEEN_TLS_CERT", "/nowhere.pem"), ("QUEEN_TLS_KEY", "b.key")]);
        assert!(problem.contains("/nowhere.pem") && problem.contains("No such file"), "{problem}");
        let folder = tempfile::tempdir().unwrap();
        let [empty, key] = ["empty.pem", "a.key"].map(|name| folder.path().join(name));
        std::fs::write(&empty, "").unwrap();
        let [empty, key] = [empty, key].map(|path| path.display().to_string());
        let (_, problem) = tls(&[("QUEEN_TLS_CERT", &empty), ("QUEEN_TLS_KEY", &key)]);
        assert!(problem.contains(&empty) && problem.contains("no certificate"), "{problem}");
    }

    #[test]
    fn what_is_wrong_is_named_with_the_way_out() {
        refused(&[ON, SECRET, ("JWT_SECERT", "x")], &["JWT_SECERT: is no setting", "JWT_SECRET"]);
        let auto = ("JWT_ALGORITHM", "auto");
        refused(&[ON, auto, ("JWT_PUBLIC_KEY", "/nowhere/key.pem")], &["JWT_PUBLIC_KEY=/nowhere"]);
        let pem = "-----BEGIN PUBLIC KEY-----\\nAAAA\\n-----END PUBLIC KEY-----";
        refused(&[ON, auto, ("JWT_PUBLIC_KEY", pem)], &["JWT_PUBLIC_KEY: it is no RSA or Ed25519"]);
        refused(&[ON, auto, ("JWT_JWKS_URL", "ftp://x/")], &["JWT_JWKS_URL=ftp://x/", "https://"]);
        refused(
            &[ON, auto, ("JWT_JWKS_URL", "https://u:p@x/")],
            &["JWT_JWKS_URL", "a user or a pass"],
        );
        refused(&[ON, SECRET, ("JWT_SKIP_PATHS", "/health,status")], &["JWT_SKIP_PATHS", "status"]);
        refused(&[ON, SECRET, ("JWT_ROLE_ADMIN", "read-only")], &["JWT_ROLE_ADMIN", "two things"]);
        refused(&[("JWT_ENABLED", "perhaps")], &["JWT_ENABLED=perhaps"]);
    }
}
