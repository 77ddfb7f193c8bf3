//! The broker binary: settings, wiring and subcommands.

fn main() {}
