//! A row of the matrix: a program's act, and its outcome.

use crate::scene::{Kind, Scene};
use crate::{IN_CHILD, child, rows, watch};
use std::os::fd::BorrowedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;

/// The outcome for a program that makes the row's call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// All bytes are right afterwards, and pages go and come as before.
    Right,
    /// As above, but the call itself is refused, with the errno that the kernel's own memory
    /// would get or with one that `then` names.
    Refused,
    /// Some touches end in an error, a signal or a value, and none shows wrong bytes;
    /// everything else is right.
    Error,
    /// Not guaranteed, since the addresses are softfault's: `then` states the outcome.
    /// There is no abort and no hang, and memory that the call is not about stays right.
    Documented,
    /// The process ends by this signal, as it would without softfault or as is
    /// documented.
    Dies(i32),
}

/// A row.
pub struct Row {
    /// Unique; for the command line.
    pub name: &'static str,
    /// The program's act, for the table.
    pub does: &'static str,
    /// Memory for which it is tried.
    pub kinds: &'static [Kind],
    pub verdict: Verdict,
    /// The outcome, in words; for the table.
    pub then: &'static str,
    /// Does it. The returned scene is checked to its last byte.
    pub play: fn(Kind) -> Scene,
}

/// Printed by a child when all was checked.
const CHECKED: &str = "CHECKED";
/// Printed by a child when the machine does not allow the act.
const SKIPPED: &str = "SKIPPED ";

/// In the child: plays a row.
pub fn play(name: &str) {
    let (row, kind) = name.split_once('/').expect("a row and a kind");
    let row = rows::all().find(|each| each.name == row);
    let row = row.expect("a row of this name");
    let kind = row.kinds.iter().find(|each| each.name() == kind);
    let scene = (row.play)(*kind.expect("a kind of this row"));
    scene.check_all();
    scene.check_goes_on();
    println!("{CHECKED} {} pages", scene.pages());
}

/// Ends a row's process where the machine lacks something that the row needs.
pub fn skip(need: &str, why: &str) -> ! {
    println!("{SKIPPED}{need}: {why}");
    std::process::exit(0);
}

/// Plays a row in a process of its own.
pub fn run(row: &Row, name: &str, file: BorrowedFd) -> Result<(), String> {
    let mut command = child::command(IN_CHILD, name);
    let file = file.try_clone_to_owned().map_err(|e| e.to_string())?;
    let ended = watch::run(command.stdin(Stdio::from(file)));
    let said = &ended.said;
    let fails = |why: String| Err(format!("{name}: {why}\n{said}"));
    let Some(status) = ended.status else {
        return fails("hangs".into());
    };
    if let Some((_, rest)) = said.split_once(SKIPPED) {
        let line = rest.lines().next().unwrap_or_default();
        let (need, why) = line.split_once(": ").expect("a need and why");
        softfault_skip::skipped(need, format_args!("{name}: {why}"));
        return Ok(());
    }
    match row.verdict {
        Verdict::Dies(signal) if status.signal() == Some(signal) => Ok(()),
        Verdict::Dies(signal) => fails(format!("{status}, and not signal {signal}")),
        _ if !status.success() => fails(status.to_string()),
        _ if !said.contains(CHECKED) => fails("checked nothing".into()),
        _ => Ok(()),
    }
}
