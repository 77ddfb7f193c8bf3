//! The table of what the sink takes from the machine beside its own settings: credentials and
//! proxies, under the names that AWS's tools and HTTP clients share.
//!
//! Owns: the names. Leaves to others: their use (`queen_sink::settings`; the HTTP library reads the
//! proxies).

use super::{Default, Kind, Setting};

/// What the page of the reference says before them.
pub const ABOUT: &str = "
Credentials are looked for in this order, and the first that is set is used: QUEEN_S3_ACCESS_KEY; QUEEN_S3_PROFILE;
AWS_ACCESS_KEY_ID; AWS_WEB_IDENTITY_TOKEN_FILE; a profile; the container's; the instance's. One that is set and fails is
an error: the next would act as somebody else. QUEEN_S3_ROLE_ARN is then taken on with them. What ends is renewed after
four fifths of its life, and at once when the bucket says that it has ended; files are read again each time. Only for
endpoints of amazonaws.com are profiles, containers and instances asked without one of these variables being set.

Proxies are those of HTTPS_PROXY, HTTP_PROXY and NO_PROXY, also in small letters. The addresses of containers and
instances are asked without a proxy.
";

/// `AWS_ACCESS_KEY_ID`.
pub const ACCESS_KEY_ID: Setting = Setting::new(
    "AWS_ACCESS_KEY_ID",
    Kind::Text("a key id"),
    Default::Words("the next in the order is looked for"),
    "AKIAEXAMPLE",
    "the id of the access key",
);
/// `AWS_SECRET_ACCESS_KEY`.
pub const SECRET_ACCESS_KEY: Setting = Setting::new(
    "AWS_SECRET_ACCESS_KEY",
    Kind::Text("a secret; beside AWS_ACCESS_KEY_ID"),
    Default::Words("the next in the order is looked for"),
    "the-secret",
    "the secret of the access key",
)
.secret();
/// `AWS_SESSION_TOKEN`.
pub const SESSION_TOKEN: Setting = Setting::new(
    "AWS_SESSION_TOKEN",
    Kind::Text("a token; beside both"),
    Default::Words("the access key is a lasting one"),
    "the-token",
    "the token of a temporary access key",
)
.secret();
/// `AWS_WEB_IDENTITY_TOKEN_FILE`.
pub const WEB_IDENTITY_TOKEN_FILE: Setting = Setting::new(
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    Kind::Text("a file, read again at each renewal; beside AWS_ROLE_ARN"),
    Default::Words("the next in the order is looked for"),
    "/var/run/secrets/eks.amazonaws.com/serviceaccount/token",
    "the token with which AWS_ROLE_ARN is taken on",
);
/// `AWS_ROLE_ARN`.
pub const ROLE_ARN: Setting = Setting::new(
    "AWS_ROLE_ARN",
    Kind::Text("a role's ARN"),
    Default::Words("the next in the order is looked for"),
    "arn:aws:iam::123456789012:role/queen",
    "the role of AWS_WEB_IDENTITY_TOKEN_FILE",
);
/// `AWS_ROLE_SESSION_NAME`.
pub const ROLE_SESSION_NAME: Setting = Setting::new(
    "AWS_ROLE_SESSION_NAME",
    Kind::Text("2 to 64 letters, digits and = , . @ _ -"),
    Default::Value("queen"),
    "queen",
    "the name of the session of a role",
);
/// `AWS_PROFILE`.
pub const PROFILE: Setting = Setting::new(
    "AWS_PROFILE",
    Kind::Text("a profile of the two files below"),
    Default::Words("default, where it is there"),
    "lake",
    "the profile that is looked for",
);
/// `AWS_SHARED_CREDENTIALS_FILE`.
pub const SHARED_CREDENTIALS_FILE: Setting = Setting::new(
    "AWS_SHARED_CREDENTIALS_FILE",
    Kind::Text("a file"),
    Default::Words("~/.aws/credentials"),
    "/etc/aws/credentials",
    "the first file of profiles, read again at each renewal",
);
/// `AWS_CONFIG_FILE`.
pub const CONFIG_FILE: Setting = Setting::new(
    "AWS_CONFIG_FILE",
    Kind::Text("a file"),
    Default::Words("~/.aws/config"),
    "/etc/aws/config",
    "the second file of profiles",
);
/// `AWS_CONTAINER_CREDENTIALS_RELATIVE_URI`.
pub const CONTAINER_CREDENTIALS_RELATIVE_URI: Setting = Setting::new(
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    Kind::Text("a path of http://169.254.170.2"),
    Default::Words("the next in the order is looked for"),
    "/v2/credentials/1",
    "where a container asks for its credentials",
);
/// `AWS_CONTAINER_CREDENTIALS_FULL_URI`.
pub const CONTAINER_CREDENTIALS_FULL_URI: Setting = Setting::new(
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    Kind::Text("https, or http to this machine, 169.254.170.2, 169.254.170.23 or [fd00:ec2::23]"),
    Default::Words("the next in the order is looked for"),
    "http://169.254.170.23/v1/credentials",
    "where a container asks for its credentials",
);
/// `AWS_CONTAINER_AUTHORIZATION_TOKEN`.
pub const CONTAINER_AUTHORIZATION_TOKEN: Setting = Setting::new(
    "AWS_CONTAINER_AUTHORIZATION_TOKEN",
    Kind::Text("a token"),
    Default::Words("no token is sent"),
    "the-token",
    "what the container shows there",
)
.secret();
/// `AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE`.
pub const CONTAINER_AUTHORIZATION_TOKEN_FILE: Setting = Setting::new(
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
    Kind::Text("a file, read again at each renewal; wins over the token"),
    Default::Words("no token is sent"),
    "/var/run/secrets/pods.eks.amazonaws.com/serviceaccount/eks-pod-identity-token",
    "what the container shows there",
);
/// `AWS_EC2_METADATA_DISABLED`.
pub const EC2_METADATA_DISABLED: Setting = Setting::switch(
    "AWS_EC2_METADATA_DISABLED",
    "false",
    "the instance's metadata service is not asked",
);
/// `AWS_EC2_METADATA_SERVICE_ENDPOINT`.
pub const EC2_METADATA_SERVICE_ENDPOINT: Setting = Setting::new(
    "AWS_EC2_METADATA_SERVICE_ENDPOINT",
    Kind::Text("a URL"),
    Default::Value("http://169.254.169.254"),
    "http://169.254.169.254",
    "where the instance's metadata service answers",
);
/// `AWS_ENDPOINT_URL_STS`.
pub const ENDPOINT_URL_STS: Setting = Setting::new(
    "AWS_ENDPOINT_URL_STS",
    Kind::Text("a URL"),
    Default::Words("https://sts.<region>.amazonaws.com"),
    "http://minio:9000",
    "where roles are taken on",
);
/// `HTTPS_PROXY`.
pub const HTTPS_PROXY: Setting = Setting::new(
    "HTTPS_PROXY",
    Kind::Text("a URL, with user:password@ where it asks for them"),
    Default::Words("no proxy"),
    "http://proxy:3128",
    "the proxy for https endpoints",
)
.secret();
/// `HTTP_PROXY`.
pub const HTTP_PROXY: Setting = Setting::new(
    "HTTP_PROXY",
    Kind::Text("a URL, with user:password@ where it asks for them"),
    Default::Words("no proxy"),
    "http://proxy:3128",
    "the proxy for http endpoints",
)
.secret();
/// `NO_PROXY`.
pub const NO_PROXY: Setting = Setting::new(
    "NO_PROXY",
    Kind::Text("hosts, domains and networks, separated by commas"),
    Default::Words("all go through the proxy"),
    "s3.internal,10.0.0.0/8",
    "the hosts that are asked without the proxy",
);
/// `HOME`.
pub const HOME: Setting = Setting::new(
    "HOME",
    Kind::Text("a folder"),
    Default::Words("the two files of profiles are not looked for"),
    "/root",
    "where ~ is",
);

/// All of them, in the order of the reference.
pub const ALL: &[&Setting] = &[
    &ACCESS_KEY_ID,
    &SECRET_ACCESS_KEY,
    &SESSION_TOKEN,
    &WEB_IDENTITY_TOKEN_FILE,
    &ROLE_ARN,
    &ROLE_SESSION_NAME,
    &PROFILE,
    &SHARED_CREDENTIALS_FILE,
    &CONFIG_FILE,
    &CONTAINER_CREDENTIALS_RELATIVE_URI,
    &CONTAINER_CREDENTIALS_FULL_URI,
    &CONTAINER_AUTHORIZATION_TOKEN,
    &CONTAINER_AUTHORIZATION_TOKEN_FILE,
    &EC2_METADATA_DISABLED,
    &EC2_METADATA_SERVICE_ENDPOINT,
    &ENDPOINT_URL_STS,
    &HTTPS_PROXY,
    &HTTP_PROXY,
    &NO_PROXY,
    &HOME,
];
