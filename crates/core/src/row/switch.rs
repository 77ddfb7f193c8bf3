//! The row of the kill switches.

use super::Row;
use crate::switch::Switches;
use crate::table::Table;
use serde::{Deserialize, Serialize};

/// Key in `Meta`. Without the row all is on.
pub const META_KEY: &[u8] = b"switches";

/// What is on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchesRow(pub Switches);

impl Row for SwitchesRow {
    const TABLE: Table = Table::Meta;
}

#[cfg(test)]
mod tests {
    use super::super::assert_golden;
    use super::*;

    #[test]
    fn the_bytes_of_the_switches_are_fixed() {
        let switches = Switches { timers_fire: false, ..Switches::default() };
        assert_golden(&SwitchesRow(switches), "0101010001");
    }
}
