//! The tables of help and the manual page: those of `docs/run.md` and `docs/environment.md`, so that each is written once.

const RUN: &str = include_str!("../../../../docs/run.md");
const ENVIRONMENT: &str = include_str!("../../../../docs/environment.md");

/// A section of the manual page.
pub struct Section {
    pub title: &'static str,
    /// A name, and its description.
    pub rows: Vec<(String, String)>,
}

/// Sections of the manual page.
pub fn sections() -> Vec<Section> {
    let sections = [
        ("EXIT STATUS", rows(RUN, "Exit status")),
        ("ENVIRONMENT", environment()),
        ("DECLINED MAPPINGS", rows(RUN, "Declined mappings")),
        ("STATISTICS", rows(RUN, "The report of `--stats`")),
        ("EXAMPLES", rows(RUN, "Examples")),
    ];
    let section = |(title, rows)| Section { title, rows };
    sections.into_iter().map(section).collect()
}

/// The variables that `softfault run` uses.
fn environment() -> Vec<(String, String)> {
    let mut all = rows(ENVIRONMENT, "The library and softfault run");
    all.extend(rows(ENVIRONMENT, "softfault run alone"));
    all
}

/// The text after the options in the help.
pub fn after_help() -> String {
    let mut text = String::from("Exit status:\n");
    for (code, means) in rows(RUN, "Exit status") {
        text += &format!("  {code:<13}  {means}\n");
    }
    text += "\nEnvironment, which the program's children inherit:\n";
    for (name, says) in environment() {
        text += &format!("  {name:<30}  {says}\n");
    }
    text + "\nThe kernel serves mappings that cannot be taken, as without softfault; --stats names each reason, and the manual page explains it."
}

/// The first and the last column of the first table below a heading.
fn rows(document: &str, heading: &str) -> Vec<(String, String)> {
    let heading = format!("## {heading}");
    let below = document.lines().skip_while(|line| *line != heading).skip(1);
    let table = below.take_while(|line| !line.starts_with("## "));
    let table = table.skip_while(|line| !line.starts_with("| "));
    let table = table.take_while(|line| line.starts_with('|'));
    // The first two are names of columns, and a rule.
    table.skip(2).filter_map(cells).collect()
}

fn cells(row: &str) -> Option<(String, String)> {
    let mut cells = row
        .split('|')
        .map(str::trim)
        .filter(|cell| !cell.is_empty());
    let first = cells.next()?;
    Some((plain(first), plain(cells.next_back()?)))
}

/// A text without marks, and with no links.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, link)) = rest.split_once('[') {
        let Some((shown, (_, behind))) = link
            .split_once("](")
            .and_then(|(shown, to)| Some((shown, to.split_once(')')?)))
        else {
            break;
        };
        plain += before;
        plain += shown;
        rest = behind;
    }
    (plain + rest).replace(['`', '*'], "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_has_every_table() {
        for section in sections() {
            assert!(section.rows.len() > 3, "{}", section.title);
        }
        let codes: Vec<_> = rows(RUN, "Exit status")
            .into_iter()
            .map(|(code, _)| code)
            .collect();
        assert_eq!(codes, ["2", "125", "126", "127", "any other"]);
    }

    #[test]
    fn marks_and_links_are_left_out() {
        assert_eq!(plain("`a` of [the **b**](c.md#d), [e"), "a of the b, [e");
        for row in ["| `a` | `b` | c |", "| | `a` | c |"] {
            assert_eq!(cells(row), Some(("a".to_owned(), "c".to_owned())));
        }
    }

    #[test]
    fn every_variable_is_in_it() {
        let named: Vec<_> = environment().into_iter().map(|(name, _)| name).collect();
        for name in crate::run::variables::names() {
            assert!(named.iter().any(|named| named == name), "{name}");
        }
    }
}
