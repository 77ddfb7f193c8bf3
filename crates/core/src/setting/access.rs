//! The table of the settings of access: who may call the broker.
//!
//! Owns: the names. Leaves to others: their use (`queen::settings`, `queen_http::auth`).

use super::{Default, Kind, Setting};

/// `JWT_ENABLED`.
pub const JWT_ENABLED: Setting = Setting::switch(
    "JWT_ENABLED",
    "false",
    "every request but those of JWT_SKIP_PATHS needs a bearer token",
);
/// `JWT_ALGORITHM`.
pub const JWT_ALGORITHM: Setting = Setting::word(
    "JWT_ALGORITHM",
    &[
        &["HS256"],
        &["HS384"],
        &["HS512"],
        &["RS256"],
        &["RS384"],
        &["RS512"],
        &["EdDSA"],
        &["auto"],
    ],
    "HS256",
    "the only signature that is taken; `auto` takes each that there is a key for",
);
/// `JWT_SECRET`.
pub const JWT_SECRET: Setting = Setting::new(
    "JWT_SECRET",
    Kind::Text("any text; 32 bytes or more are safe"),
    Default::Words("none"),
    "$(openssl rand -hex 32)",
    "the secret that HS256, HS384 and HS512 are checked with",
)
.secret();
/// `JWT_PUBLIC_KEY`.
pub const JWT_PUBLIC_KEY: Setting = Setting::new(
    "JWT_PUBLIC_KEY",
    Kind::Text(
        "an RSA or Ed25519 public key in PEM, line breaks also as \\n, or the path of a file that holds one",
    ),
    Default::Words("none"),
    "/run/secrets/issuer.pem",
    "the key that RS256, RS384 and RS512, or EdDSA are checked with",
);
/// `JWT_JWKS_URL`.
pub const JWT_JWKS_URL: Setting = Setting::new(
    "JWT_JWKS_URL",
    Kind::Text("an address of https:// or http://"),
    Default::Words("none"),
    "https://login.example.com/.well-known/jwks.json",
    "where the issuer publishes such keys; fetched each hour, and when a token names one that is new",
);
/// `JWT_ISSUER`.
pub const JWT_ISSUER: Setting = Setting::new(
    "JWT_ISSUER",
    Kind::Text("any text"),
    Default::Words("none: any, or none"),
    "https://login.example.com/",
    "what the claim `iss` of a token has to be",
);
/// `JWT_AUDIENCE`.
pub const JWT_AUDIENCE: Setting = Setting::new(
    "JWT_AUDIENCE",
    Kind::Text("any text"),
    Default::Words("none: any, or none"),
    "queen",
    "what the claim `aud` of a token has to be or hold",
);
/// `JWT_CLOCK_SKEW`.
pub const JWT_CLOCK_SKEW: Setting = Setting::number(
    "JWT_CLOCK_SKEW",
    (0, 3600, "seconds"),
    "30",
    "how far the issuer's clock may be off when `exp` and `nbf` are judged",
);
/// `JWT_ALLOW_WITHOUT_EXP`.
pub const JWT_ALLOW_WITHOUT_EXP: Setting = Setting::switch(
    "JWT_ALLOW_WITHOUT_EXP",
    "false",
    "a token without the claim `exp`, which never ends, is taken too",
);
/// `JWT_SKIP_PATHS`.
pub const JWT_SKIP_PATHS: Setting = Setting::new(
    "JWT_SKIP_PATHS",
    Kind::Text("paths, separated by commas; each is that path alone and nothing below it"),
    Default::Value("/health,/metrics,/metrics/prometheus,/"),
    "/health",
    "what needs no token",
);
/// `JWT_ROLES_CLAIM`.
pub const JWT_ROLES_CLAIM: Setting = Setting::new(
    "JWT_ROLES_CLAIM",
    Kind::Text("the name of a claim"),
    Default::Value("role"),
    "role",
    "the claim that holds one role, as a text",
);
/// `JWT_ROLES_ARRAY_CLAIM`.
pub const JWT_ROLES_ARRAY_CLAIM: Setting = Setting::new(
    "JWT_ROLES_ARRAY_CLAIM",
    Kind::Text("the name of a claim"),
    Default::Value("roles"),
    "roles",
    "the claim that holds a list of roles",
);
/// `JWT_ROLE_ADMIN`.
pub const JWT_ROLE_ADMIN: Setting = Setting::new(
    "JWT_ROLE_ADMIN",
    Kind::Text("the name of a role"),
    Default::Value("admin"),
    "admin",
    "the role that may do everything",
);
/// `JWT_ROLE_READ_WRITE`.
pub const JWT_ROLE_READ_WRITE: Setting = Setting::new(
    "JWT_ROLE_READ_WRITE",
    Kind::Text("the name of a role"),
    Default::Value("read-write"),
    "read-write",
    "the role that may push, pop, settle, configure and read",
);
/// `JWT_ROLE_READ_ONLY`.
pub const JWT_ROLE_READ_ONLY: Setting = Setting::new(
    "JWT_ROLE_READ_ONLY",
    Kind::Text("the name of a role"),
    Default::Value("read-only"),
    "read-only",
    "the role that may look and change nothing",
);
/// `JWT_ROLE_WRITE_ONLY`.
pub const JWT_ROLE_WRITE_ONLY: Setting = Setting::new(
    "JWT_ROLE_WRITE_ONLY",
    Kind::Text("the name of a role"),
    Default::Value("write-only"),
    "write-only",
    "the role that may push and nothing else",
);

/// `QUEEN_TLS_CERT`.
pub const TLS_CERT: Setting = Setting::new(
    "QUEEN_TLS_CERT",
    Kind::Text("a PEM file of this machine"),
    Default::Words("none: HTTP is answered in the clear"),
    "/run/secrets/queen.pem",
    "the certificate that clients are shown and its chain; turns TLS on; read again when it changes",
);
/// `QUEEN_TLS_KEY`.
pub const TLS_KEY: Setting = Setting::new(
    "QUEEN_TLS_KEY",
    Kind::Text("a PEM file of this machine"),
    Default::Words("none; needed with QUEEN_TLS_CERT"),
    "/run/secrets/queen.key",
    "the key of that certificate",
);

/// `QUEEN_CLIENT_TOKEN`.
pub const CLIENT_TOKEN: Setting = Setting::new(
    "QUEEN_CLIENT_TOKEN",
    Kind::Text("a token, as it stands behind `Bearer`"),
    Default::Words("none"),
    "$ADMIN_TOKEN",
    "the token of an admin that `queen cluster status` sends",
)
.secret();

/// What the reference says above the table.
pub const ABOUT: &str = "
Off unless `JWT_ENABLED` is true: then whoever reaches the port may do everything, and a token that is sent is not looked
at. On, a request needs `Authorization: Bearer <token>`, a signed JWT; without a good one it gets 401, and 403 when the roles in
it do not allow the route. The token's `sub` is stored with what it pushes and delivered as `producerSub`. The start is
refused when there is nothing to check tokens with, and when a name that begins with `JWT_` is not here.
";

/// All of them, in the order of the reference.
pub const ALL: &[&Setting] = &[
    &JWT_ENABLED,
    &JWT_ALGORITHM,
    &JWT_SECRET,
    &JWT_PUBLIC_KEY,
    &JWT_JWKS_URL,
    &JWT_ISSUER,
    &JWT_AUDIENCE,
    &JWT_CLOCK_SKEW,
    &JWT_ALLOW_WITHOUT_EXP,
    &JWT_SKIP_PATHS,
    &JWT_ROLES_CLAIM,
    &JWT_ROLES_ARRAY_CLAIM,
    &JWT_ROLE_ADMIN,
    &JWT_ROLE_READ_WRITE,
    &JWT_ROLE_READ_ONLY,
    &JWT_ROLE_WRITE_ONLY,
    &TLS_CERT,
    &TLS_KEY,
    &CLIENT_TOKEN,
];
