//! The results: a row a mutation, a cell a world.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::world::World;

/// The result of a world's tests on a mutation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum Cell {
    /// A test failed.
    Caught {
        /// Its binary and name.
        test: String,
        /// Its output.
        why: String,
        /// Building and running, in seconds.
        seconds: f32,
    },
    /// A test did not come to its end, or was killed, which right afterwards passed without it.
    Hung {
        /// Its binary.
        test: String,
    },
    /// All tests passed that were tried, in the time there was.
    Missed {
        /// True if the time was up before all had been run.
        in_part: bool,
    },
    /// The world cannot see the change: an ordering.
    Blind,
    /// The world has no test of the broken rule.
    None,
    /// The compiler rejects it.
    Broken {
        /// Its first error.
        why: String,
    },
}

impl Cell {
    /// True if the world has noticed.
    pub fn is_caught(&self) -> bool {
        matches!(self, Cell::Caught { .. } | Cell::Hung { .. })
    }

    fn mark(&self) -> &'static str {
        match self {
            Cell::Caught { .. } => "caught",
            Cell::Hung { .. } => "hangs",
            Cell::Missed { in_part: false } => "–",
            Cell::Missed { in_part: true } => "– …",
            Cell::Blind => "·",
            Cell::None => "",
            Cell::Broken { .. } => "broken",
        }
    }
}

/// A mutation and its results in the worlds.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Row {
    /// Its name.
    pub mutation: String,
    /// The broken rule.
    pub what: String,
    /// The file that it changes.
    pub path: String,
    /// By world.
    pub worlds: BTreeMap<String, Cell>,
}

impl Row {
    /// True if any world has noticed.
    pub fn is_caught(&self) -> bool {
        self.worlds.values().any(Cell::is_caught)
    }
}

/// The table as markdown, with a legend and the sums.
pub fn markdown(rows: &[Row], worlds: &[World]) -> String {
    let mut text = String::from("| mutation | broken rule |");
    worlds
        .iter()
        .for_each(|world| write!(text, " {world} |").expect("a string takes it"));
    text.push_str("\n|---|---|");
    worlds.iter().for_each(|_| text.push_str("---|"));
    text.push('\n');
    for row in rows {
        write!(text, "| `{}` | {} |", row.mutation, row.what).expect("a string takes it");
        for world in worlds {
            let mark = row.worlds.get(world.name()).map_or("", Cell::mark);
            write!(text, " {mark} |").expect("a string takes it");
        }
        text.push('\n');
    }
    write!(text, "| **{}** | |", rows.len()).expect("a string takes it");
    for world in worlds {
        let cells = rows.iter().filter_map(|row| row.worlds.get(world.name()));
        let caught = cells.filter(|cell| cell.is_caught()).count();
        write!(text, " **{caught}** |").expect("a string takes it");
    }
    text.push_str(
        "\n\n`–` its tests pass (`…`: those for which there was time), `·` only an \
         ordering is weaker, and it cannot see that, empty: it has no test of that.\n",
    );
    text
}
