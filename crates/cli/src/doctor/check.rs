//! Checks, and their answers.

use super::place::Place;
use serde::{Deserialize, Serialize};

/// One thing that is tried. All fields immutable.
pub struct Check {
    /// Its name in the table and in the JSON; stable.
    pub name: &'static str,
    /// The cost of the lack, unless the answer has another.
    pub costs: &'static str,
    /// Tries it.
    pub run: fn(&Place) -> Tried,
    /// Where it runs.
    pub whereabouts: Whereabouts,
}

/// Where a check runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Whereabouts {
    /// In a child process: a signal that kills it is an answer, and all that it made is gone with it.
    Child,
    /// In the command's own process.
    Here,
}

/// How a thing is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// As softfault wants it.
    Ok,
    /// It can be done without, slower or with less of it.
    Slower,
    /// Not there.
    Missing,
}

impl State {
    /// As the table and the JSON have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Slower => "slower",
            Self::Missing => "missing",
        }
    }
}

/// The result of a check.
#[derive(Debug, Serialize, Deserialize)]
pub struct Tried {
    pub state: State,
    /// The observation, in a clause.
    pub found: String,
    /// Its cost, where that is not the text of the check.
    pub costs: Option<String>,
    /// The command, option or kernel that changes it.
    pub mend: Option<String>,
}

impl Tried {
    /// It is as it should be.
    pub fn ok(found: impl Into<String>) -> Self {
        Self {
            state: State::Ok,
            found: found.into(),
            costs: None,
            mend: None,
        }
    }

    /// It can be done without.
    pub fn slower(found: impl Into<String>, mend: impl Into<String>) -> Self {
        Self {
            state: State::Slower,
            mend: Some(mend.into()),
            ..Self::ok(found)
        }
    }

    /// It is not there.
    pub fn missing(found: impl Into<String>, mend: impl Into<String>) -> Self {
        Self {
            state: State::Missing,
            ..Self::slower(found, mend)
        }
    }

    /// Sets a cost other than the check's.
    pub fn costing(mut self, costs: impl Into<String>) -> Self {
        self.costs = Some(costs.into());
        self
    }
}

/// A row of the answer.
#[derive(Debug, Serialize)]
pub struct Finding {
    pub name: &'static str,
    pub state: State,
    /// The observation, in a clause.
    pub found: String,
    /// The cost of the lack; `None` where nothing lacks.
    pub costs: Option<String>,
    /// How to change it; `None` where nothing lacks.
    pub mend: Option<String>,
}

impl Finding {
    /// The row of the result of `check`.
    pub fn new(check: &Check, tried: Tried) -> Self {
        let lacks = tried.state != State::Ok;
        Self {
            name: check.name,
            state: tried.state,
            found: tried.found,
            costs: lacks.then(|| tried.costs.unwrap_or_else(|| check.costs.to_owned())),
            mend: tried.mend.filter(|_| lacks),
        }
    }
}
