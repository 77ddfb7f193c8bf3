//! The table of what the sink takes from the machine beside its own settings: credentials and
//! proxies, under the names that AWS's tools and HTTP clients share.
//!
//! Owns: the names. Leaves to others: their use (`queen_sink::settings`, the HTTP library).

use super::Setting;

/// What the page of the reference says before them.
pub const ABOUT: &str = "";

/// All of them, in the order of the reference.
pub const ALL: &[&Setting] = &[];
