//! Checkers of the lake and the log, and the harness of the fault tests.
