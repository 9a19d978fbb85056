//! Every option of every command that takes a number or a size, with rubbish: one line, and exit code 2.

use super::{directory, softfault, words};
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The commands that take options, each as small as it can be.
const COMMANDS: &[&str] = &[
    "tour --no-report --memory 8M --seconds 0.01",
    "lab run sparse --on softfault --memory 8M --file-size 1M",
    "lab run random --on softfault --memory 8M --file-size 1M --seconds 0.01",
    "lab run thrash --on softfault --memory 8M --file-size 64K --threads 2 --seconds 0.01",
    "lab run anon --on softfault --memory 8M --file-size 1M --seconds 0.01",
    "lab make made",
    "lab compare none.json",
    "lab report none.json",
    "sim pft --cores 1 --seconds 0.0001 --seeds 1 --region 64K",
    "sim thrash --cores 1 --seconds 0.0001 --seeds 1",
    "sim anon --cores 1 --seconds 0.0001 --seeds 1 --size 1M",
    "sim hugetlb --cores 1 --seconds 0.0001 --size 4M",
    "sim calibrate",
    "sum small",
    "doctor",
];

/// Values that no option of a number or a size can mean.
const RUBBISH: &[&str] = &[
    "",
    " ",
    "-1",
    "abc",
    "1x",
    "0x10",
    "1,,2",
    "\u{663}",
    "18446744073709551616",
    "nan",
    "-0.5",
    "inf",
    "T",
    "1.5.5",
    "64M;",
];

/// How long a run may go on before it counts as one that was taken: a refused one ends by itself, on a busy machine
/// after seconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// The options of a command that take a number or a size, as its help has them.
fn options(command: &[&str]) -> Vec<String> {
    let words = command.iter().take_while(|word| !word.starts_with('-'));
    let mut help = softfault(&[]);
    help.args(words).arg("--help");
    let output = help.output().unwrap();
    assert!(output.status.success(), "{command:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let numbers = [
        "<N>",
        "<S>",
        "<SIZE>",
        "<PERCENT>",
        "<SECONDS>",
        "<LIST>",
        "<THETA>",
        "<PER_MILLION>",
    ];
    let options = text.lines().filter_map(|line| {
        let line = line.trim_start().trim_start_matches("-o, ");
        let (option, value) = line.strip_prefix("--")?.split_once(' ')?;
        let value = value.split_whitespace().next()?;
        (numbers.contains(&value) && option != "policies").then(|| format!("--{option}"))
    });
    options.collect()
}

/// Runs the command in `dir`; its exit code and its words, or none where it was still at work.
fn run(dir: &Path, command: &[&str], option: &str, value: &str) -> Option<(i32, String)> {
    // An option that is there already is replaced.
    let mut words = Vec::new();
    let mut given = command.iter();
    while let Some(&word) = given.next() {
        match word == option {
            true => drop(given.next()),
            false => words.push(word),
        }
    }
    let child = Command::new(env!("CARGO_BIN_EXE_softfault"))
        .args(&words)
        .arg(format!("{option}={value}"))
        .current_dir(dir)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    end(child)
}

fn end(mut child: Child) -> Option<(i32, String)> {
    let mut err = child.stderr.take().unwrap();
    let words = std::thread::spawn(move || {
        let mut words = Vec::new();
        let _ = err.read_to_end(&mut words);
        String::from_utf8_lossy(&words).into_owned()
    });
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break Some(status);
        }
        if begun.elapsed() > PATIENCE {
            // As a user ends it: it takes its files and groups with it.
            // SAFETY: a child of ours that was not waited for.
            unsafe { libc::kill(child.id() as i32, libc::SIGINT) };
            child.wait().unwrap();
            break None;
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    let words = words.join().unwrap();
    let code = status.map(|status| status.code().unwrap_or(-1));
    assert!(!words.contains("panicked"), "{words}");
    Some((code?, words))
}

fn check(of: &str, (code, words): (i32, String)) -> i32 {
    assert!([0, 1, 2].contains(&code), "{of}: code {code}: {words}");
    if code == 2 {
        assert_eq!(words.lines().count(), 1, "{of}: {words}");
        assert!(words.starts_with("error: "), "{of}: {words}");
    }
    code
}

#[test]
fn rubbish_is_refused_by_every_option() {
    let dir = directory();
    std::fs::write(dir.path().join("small"), "small").unwrap();
    let mut tried = 0;
    for command in COMMANDS {
        let command = &words(command);
        for option in options(command) {
            for value in RUBBISH {
                let of = format!("{command:?} {option}={value:?}");
                let ended = run(dir.path(), command, &option, value);
                let code = check(&of, ended.unwrap_or_else(|| panic!("{of}: was taken")));
                assert_eq!(code, 2, "{of}: was taken");
                tried += 1;
            }
        }
    }
    println!("{tried} values were refused");
    assert!(tried > 400, "{tried}");
}

#[test]
fn every_command_has_help() {
    for command in COMMANDS {
        let command = &words(command);
        let words = command.iter().take_while(|word| !word.starts_with('-'));
        for help in ["--help", "-h"] {
            let output = softfault(&[])
                .args(words.clone())
                .arg(help)
                .output()
                .unwrap();
            assert!(
                output.status.success() && output.stderr.is_empty(),
                "{command:?}"
            );
            assert!(String::from_utf8(output.stdout).unwrap().contains("Usage:"));
        }
    }
}
