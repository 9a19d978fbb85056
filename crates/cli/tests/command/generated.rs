//! Manual pages and completions: each is made from the command and has all of it.

use super::{directory, finish, refused, softfault};
use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

/// Help of the command that these words name.
fn help(words: &[String]) -> String {
    let mut command = softfault(&[]);
    let (code, out, err) = finish(command.args(words).arg("--help"));
    assert_eq!((code, &err[..]), (0, ""), "{words:?}");
    out
}

/// All commands, as words behind `softfault`; the first has none. From the lists of help.
fn commands() -> Vec<Vec<String>> {
    let mut all = vec![Vec::new()];
    let mut next = 0;
    while next < all.len() {
        let words = all[next].clone();
        let help = help(&words);
        let listed = help.split("\nCommands:\n").nth(1).unwrap_or("");
        for line in listed.lines().take_while(|line| line.starts_with("  ")) {
            let name = line
                .strip_prefix("  ")
                .filter(|line| !line.starts_with(' '));
            let name = name.and_then(|line| line.split_whitespace().next());
            if let Some(name) = name.filter(|&name| name != "help") {
                all.push([&words[..], &[name.to_owned()]].concat());
            }
        }
        next += 1;
    }
    all
}

/// Long options that a text names.
fn options(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'));
    words
        .filter(|word| word.len() > 3 && word.starts_with("--") && !word[2..].starts_with('-'))
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_command_has_a_page_with_all_of_its_options() {
    let dir = directory();
    let pages = dir.path().join("made/man1");
    let (code, out, err) = finish(softfault(&["man"]).arg(&pages));
    assert_eq!((code, &out[..], &err[..]), (0, "", ""));
    let commands = commands();
    for known in [&["lab", "run"][..], &["sim", "pft"], &["run"], &["man"]] {
        assert!(commands.iter().any(|words| words == known), "{commands:?}");
    }
    let mut expected = BTreeSet::new();
    for words in &commands {
        let name = [&["softfault".to_owned()], &words[..]].concat().join("-");
        let page = fs::read_to_string(pages.join(format!("{name}.1"))).expect(&name);
        // roff has a backslash before each -, and changes fonts by another.
        let page = ["\\fB", "\\fI", "\\fR"]
            .iter()
            .fold(page.replace("\\-", "-"), |page, font| {
                page.replace(font, " ")
            });
        let title = format!(".TH {name} 1");
        assert!(page.contains(&title), "{name}: {page}");
        if name == "softfault-run" {
            for title in [
                "EXIT STATUS",
                "ENVIRONMENT",
                "DECLINED MAPPINGS",
                "STATISTICS",
                "EXAMPLES",
            ] {
                assert!(
                    page.contains(&format!(".SH \"{title}\""))
                        || page.contains(&format!(".SH {title}\n")),
                    "{title}"
                );
            }
            for row in [
                "127",
                "SOFTFAULT_RUN_STRICT",
                "file_may_change",
                "taken, taken_bytes",
            ] {
                assert!(page.contains(row), "{row}");
            }
        }
        let missing: Vec<_> = options(&help(words))
            .difference(&options(&page))
            .cloned()
            .collect();
        assert!(missing.is_empty(), "{name}: {missing:?}");
        expected.insert(format!("{name}.1"));
    }
    let made = fs::read_dir(&pages).unwrap();
    let made: BTreeSet<_> = made
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(made, expected);
    // A file where the directory would be.
    refused(
        softfault(&["man"]).arg(pages.join("softfault.1")),
        "cannot make",
    );
}

#[test]
fn completions_know_every_command() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let (code, script, err) = finish(&mut softfault(&["completions", shell]));
        assert_eq!((code, &err[..]), (0, ""), "{shell}");
        for name in commands().iter().filter_map(|words| words.last()) {
            assert!(script.contains(&name[..]), "{shell}: {name}");
        }
        assert!(!script.contains("lab-child"), "{shell}");
    }
    refused(
        &mut softfault(&["completions", "command.com"]),
        "command.com",
    );
}

#[test]
fn bash_completes_by_the_script() {
    let (_, script, _) = finish(&mut softfault(&["completions", "bash"]));
    let bash = Command::new("bash")
        .args(["--norc", "-s"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let Ok(mut bash) = bash else {
        return softfault_skip::skipped("program", "no bash reads the completions here");
    };
    let ask = "COMP_WORDS=(softfault lab r) COMP_CWORD=2\n_softfault softfault r lab\necho \"${COMPREPLY[@]}\"\n";
    let mut stdin = bash.stdin.take().unwrap();
    stdin
        .write_all(format!("{script}\n{ask}").as_bytes())
        .unwrap();
    drop(stdin);
    let output = bash.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "run report");
}
