//! The matrix as `docs/process.md` has it: generated here, and compared.

use crate::row::{Row, Verdict};
use crate::rows;
use std::fmt::Write;
use std::path::Path;

const BEGIN: &str = "<!-- The rows below are generated: just process-table -->\n";
const END: &str = "<!-- Until here. -->\n";
/// Set to write the table instead of comparing it.
const WRITE: &str = "SOFTFAULT_WRITE_TABLE";

fn verdict(row: &Row) -> String {
    match row.verdict {
        Verdict::Right => "right".into(),
        Verdict::Refused => "refused; right".into(),
        Verdict::Error => "error".into(),
        Verdict::Documented => "not guaranteed".into(),
        Verdict::Dies(libc::SIGBUS) => "SIGBUS".into(),
        Verdict::Dies(signal) => format!("signal {signal}"),
    }
}

fn table() -> String {
    let mut text =
        String::from("| the program does | with | gets | that is |\n|---|---|---|---|\n");
    for row in rows::all() {
        let kinds: Vec<_> = row.kinds.iter().map(|kind| kind.name()).collect();
        let kinds = kinds.join(", ");
        let _ = writeln!(
            text,
            "| {} | {kinds} | {} | {} |",
            row.does,
            verdict(row),
            row.then
        );
    }
    text
}

#[test]
fn the_documented_matrix_is_the_one_that_is_tested() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/process.md");
    let text = std::fs::read_to_string(&path).expect("docs/process.md");
    let (before, rest) = text.split_once(BEGIN).expect("where the table begins");
    let (found, after) = rest.split_once(END).expect("where the table ends");
    let table = table();
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(&path, [before, BEGIN, &table, END, after].concat()).expect("written");
        return;
    }
    assert_eq!(found, table, "`just process-table` writes it");
}

#[test]
fn names_of_rows_are_unique() {
    let mut names: Vec<_> = rows::all().map(|row| row.name).collect();
    names.sort_unstable();
    assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
}
