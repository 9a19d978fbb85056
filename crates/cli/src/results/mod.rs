//! Result files: a row (`row`) and the engine it was measured on (`on`, `names`), groups of like rows (`group`),
//! figures over a group's runs (`stats`).
//! The lab and the simulator write rows, `lab compare` and `lab report` read them.

pub mod group;
pub mod names;
pub mod on;
pub mod row;
pub mod stats;

use crate::error::Error;
use row::Row;
use serde_json::Value;
use std::io::Read;
use std::path::Path;

/// More bytes than any result file has: a device would give them without end.
const LARGEST: u64 = 256 << 20;

/// The rows of a result file; `-` is stdin. The errors name the file and the mistake in it.
pub fn read(path: &Path) -> Result<Vec<Row>, Error> {
    let wrong = |why: &dyn std::fmt::Display| {
        Error::input(format_args!("cannot read {}: {why}", path.display()))
    };
    let mut text = String::new();
    let mut read = |from: &mut dyn Read| from.take(LARGEST + 1).read_to_string(&mut text);
    match path == Path::new("-") {
        true => read(&mut std::io::stdin().lock()),
        false => std::fs::File::open(path).and_then(|mut file| read(&mut file)),
    }
    .map_err(|e| wrong(&e))?;
    if text.len() as u64 > LARGEST {
        return Err(wrong(&"no result of the lab is so large"));
    }
    parse(&text).map_err(|why| wrong(&why))
}

/// The files' names without `.json`, with their folders where they are alike otherwise.
pub fn file_names<const N: usize>(paths: [&Path; N]) -> [String; N] {
    std::array::from_fn(|at| file_name(at, &paths))
}

/// The name of one of several files.
pub fn file_name(at: usize, paths: &[&Path]) -> String {
    let path = paths[at];
    let alike = |other: &&Path| other.file_stem() == path.file_stem();
    match path.file_stem() {
        Some(stem) if paths.iter().filter(|other| alike(other)).count() == 1 => {
            stem.display().to_string()
        }
        _ => path.display().to_string(),
    }
}

/// The rows as a result file holds them.
pub fn json(rows: &[Row]) -> String {
    let mut text = serde_json::to_string_pretty(rows).expect("rows are plain data");
    text.push('\n');
    text
}

/// The rows that `text` holds, or why it is no result of the lab.
fn parse(text: &str) -> Result<Vec<Row>, String> {
    let value: Value = serde_json::from_str(text).map_err(|e| format!("not JSON: {e}"))?;
    let Value::Array(values) = value else {
        return Err("not a result of `lab run`: not an array of rows".into());
    };
    if values.is_empty() {
        return Err("it holds no rows".into());
    }
    let row = |(at, value): (usize, Value)| {
        let why = |why: &dyn std::fmt::Display| {
            format!("not a result of `lab run`: row {}: {why}", at + 1)
        };
        let row: Row = serde_json::from_value(printable(value)).map_err(|e| why(&e))?;
        match row.senseless() {
            Some(name) => Err(why(&format_args!("{name} is below zero"))),
            None => Ok(row),
        }
    };
    values.into_iter().enumerate().map(row).collect()
}

/// The same without characters that a terminal obeys: names are printed. Lines may end.
fn printable(value: Value) -> Value {
    let text = |text: String| match text.contains(is_obeyed) {
        false => text,
        true => (text.chars())
            .flat_map(|c| match is_obeyed(c) {
                true => c.escape_default().collect(),
                false => vec![c],
            })
            .collect(),
    };
    match value {
        Value::String(string) => Value::String(text(string)),
        Value::Array(values) => values.into_iter().map(printable).collect(),
        Value::Object(fields) => (fields.into_iter())
            .map(|(name, value)| (text(name), printable(value)))
            .collect(),
        value => value,
    }
}

fn is_obeyed(c: char) -> bool {
    c.is_control() && c != '\n'
}

#[cfg(test)]
mod tests {
    use super::row::{Lock, Simulated};
    use super::*;

    const LEAST: &str = r#"[{"workload":"w","pattern":"p","on":"kernel","threads":1,
        "accesses":0,"elapsed_s":0,"from_the_future":{}}]"#;

    #[test]
    fn a_row_of_the_least_fields_is_read_and_divides_by_nothing() {
        let row = &parse(LEAST).unwrap()[0];
        let figures = [
            row.speed(),
            row.read_per_used(),
            row.cpu_per_access_us(),
            row.miss_per_drop(),
        ];
        assert_eq!(figures, [None; 4]);
    }

    #[test]
    fn files_with_one_name_are_told_apart_by_their_folders() {
        let paths = ["a/results.json", "b/results.json", "b/other.json"].map(Path::new);
        let names = ["a/results.json", "b/results.json", "other"];
        assert_eq!(file_names(paths), names);
    }

    #[test]
    fn written_bytes_are_read() {
        let mut row = parse(LEAST).unwrap().remove(0);
        let again = |row: &Row| parse(&json(std::slice::from_ref(row))).unwrap().remove(0);
        assert!(again(&row).simulated.is_none());
        row.locks = Some([("vma_lock".to_owned(), Lock::of(2, 3000, 2000, [1; 8]))].into());
        row.simulated = Some(Simulated {
            policy: "default".into(),
            digest: "00ff".into(),
            ..Simulated::default()
        });
        let read = again(&row);
        assert_eq!(read.locks.unwrap()["vma_lock"].wait_avg_us, 1.5);
        assert_eq!(read.simulated.unwrap().digest, "00ff");
    }

    #[test]
    fn invalid_results_are_refused_with_the_reason() {
        for (text, why) in [
            ("", "not JSON"),
            ("[1", "not JSON"),
            ("{}", "not an array"),
            ("[]", "no rows"),
            ("[7]", "row 1"),
            (&LEAST.replace("\"on\"", "\"off\""), "missing field `on`"),
            (&LEAST.replace("\"threads\":1", "\"threads\":-1"), "row 1"),
            (
                &LEAST.replace("\"elapsed_s\":0", "\"elapsed_s\":-1"),
                "elapsed_s is below zero",
            ),
            (
                &LEAST.replace("\"elapsed_s\":0", "\"elapsed_s\":1e999"),
                "not JSON",
            ),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
