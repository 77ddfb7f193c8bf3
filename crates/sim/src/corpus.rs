//! Payloads that sinks and readers of lakes are known to trip over.
//!
//! Owns: those that more than one kind of test tries. Leaves to others: pushing them, and what must
//! come of it.

/// What is easily taken for nothing, or for each other.
pub const LIKE_NOTHING: [&str; 8] = ["null", "\"\"", "\"null\"", "{}", "[]", "0", "false", "true"];

/// Numbers that lose digits, or change their look, on their way through a double.
pub const NUMBERS: [&str; 9] = [
    "9007199254740993",
    "9223372036854775808",
    "18446744073709551616",
    "123456789012345678901234567890123456789",
    "1e400",
    "-0",
    "42.00",
    "50000.0000000000000001",
    "1e-400",
];

/// Arrays inside one another.
pub fn arrays(depth: usize) -> String {
    format!("{}{}", "[".repeat(depth), "]".repeat(depth))
}

/// Objects inside one another.
pub fn objects(depth: usize) -> String {
    format!("{}1{}", "{\"a\":".repeat(depth), "}".repeat(depth))
}
