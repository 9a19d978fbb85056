//! Statistics that processes have written at their exit.

use serde_json::Value;
use std::path::Path;

/// The statistics of one process.
pub struct ProcessStats(Value);

/// All whole lines of a file: the last one may be written just now.
pub fn read(path: &Path) -> Vec<ProcessStats> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let whole = text
        .split_inclusive('\n')
        .filter(|line| line.ends_with('\n'));
    let parse = |line| ProcessStats(serde_json::from_str(line).expect("a line of JSON"));
    whole.map(parse).collect()
}

impl ProcessStats {
    pub fn number(&self, path: &[&str]) -> u64 {
        let value = path.iter().fold(&self.0, |value, name| &value[*name]);
        value.as_u64().unwrap_or(0)
    }

    /// Seconds since 1970.
    pub fn time(&self) -> f64 {
        self.0["time"].as_f64().expect("a number")
    }

    /// True of the last report.
    pub fn has_ended(&self) -> bool {
        self.0["ended"].as_bool().expect("a bool")
    }

    pub fn taken(&self) -> u64 {
        self.number(&["taken", "mappings"])
    }

    pub fn handed_back(&self) -> u64 {
        self.number(&["handed_back", "mappings"])
    }

    #[track_caller]
    pub fn stays_in_budget(&self, what: &str) {
        let [peak, budget] = ["peak_bytes", "budget_bytes"].map(|name| self.number(&[name]));
        assert!(0 < peak && peak <= budget, "{what}: {peak} of {budget}");
    }

    /// The reasons for which mappings were declined, and how many for each.
    pub fn declined(&self) -> Vec<(String, u64)> {
        let declined = self.0["declined"].as_object().expect("an object");
        let count = |value: &Value| value["mappings"].as_u64().expect("a number");
        declined
            .iter()
            .map(|(name, value)| (name.clone(), count(value)))
            .collect()
    }
}
