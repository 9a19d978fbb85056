//! The environment: its effect, the values it may have, and that a program is told of a value that cannot be used.

mod child;
mod files;

use child::{command, forked, scenario};
use softfault::{Coherence, Engine, Mmap, MmapMut};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::process::Output;

const PAGE: usize = 4096;
const FILE: usize = 64 * PAGE;

/// Runs `test` again with these variables, and no others of ours.
fn with(test: &str, name: &str, variables: &[(&str, &OsStr)]) -> Output {
    let mut command = command(test, name);
    for ours in [
        "SOFTFAULT_MEMORY",
        "SOFTFAULT_SWAP",
        "SOFTFAULT_STATS",
        "SOFTFAULT_FAULTS",
        "SOFTFAULT_READS",
        "SOFTFAULT_ALLOW_KERNEL_MAPS",
        "SOFTFAULT_SMALL_MAPS",
        "SOFTFAULT_COHERENCE",
    ] {
        command.env_remove(ours);
    }
    let output = command.envs(variables.iter().copied()).output().unwrap();
    assert!(output.status.success(), "{variables:?}: {output:?}");
    output
}

/// The library's lines on the standard error.
fn said(output: &Output) -> Vec<String> {
    let text = String::from_utf8_lossy(&output.stderr);
    let ours = text.lines().filter(|line| line.starts_with("softfault"));
    ours.map(str::to_owned).collect()
}

/// Prints why the default engine cannot be had, twice, and that other engines can.
fn map_twice() {
    let file = file();
    for _ in 0..2 {
        // SAFETY: nobody writes to it.
        match unsafe { Mmap::map(&file) } {
            Ok(map) => println!("mapped {}", map[FILE - 1]),
            Err(error) => println!("refused {error}"),
        }
    }
    match MmapMut::map_anon(PAGE) {
        Ok(mut map) => map[1] = 1,
        Err(error) => println!("refused {error}"),
    }
    let engine = Engine::builder()
        .allow_kernel_maps(false)
        .small_maps(0)
        .memory(16 << 20)
        .build()
        .unwrap();
    // SAFETY: nobody writes to it.
    assert_eq!(unsafe { engine.map(&file) }.unwrap()[0], 1);
}

fn file() -> File {
    let bytes: Vec<u8> = (0..FILE).map(|at| (at / PAGE) as u8 + 1).collect();
    files::scratch(&bytes)
}

/// A variable that cannot be used: one line on the standard error, and the same words each time as the error.
#[test]
fn a_setting_that_cannot_be_is_told_once_and_is_the_error() {
    const TEST: &str = "a_setting_that_cannot_be_is_told_once_and_is_the_error";
    if scenario().is_some() {
        return map_twice();
    }
    let long = "9".repeat(5000);
    let bad: &[(&str, &[u8], &str)] = &[
        (
            "SOFTFAULT_MEMORY",
            b"abc",
            "SOFTFAULT_MEMORY=abc: a size is",
        ),
        ("SOFTFAULT_MEMORY", b"", "SOFTFAULT_MEMORY=\"\": a size is"),
        ("SOFTFAULT_MEMORY", b"   ", "a size is"),
        ("SOFTFAULT_MEMORY", b"64M\xff", "\\xFF\": a size is"),
        ("SOFTFAULT_MEMORY", b"64M\nx", "a size is"),
        (
            "SOFTFAULT_MEMORY",
            b"-64M",
            "SOFTFAULT_MEMORY=-64M: a size is",
        ),
        ("SOFTFAULT_MEMORY", b"+64M", "a size is"),
        ("SOFTFAULT_MEMORY", b"64MiB", "a size is"),
        ("SOFTFAULT_MEMORY", b"6.4G", "a size is"),
        ("SOFTFAULT_MEMORY", b"64M,", "a size is"),
        ("SOFTFAULT_MEMORY", b"G", "a size is"),
        ("SOFTFAULT_MEMORY", b"99999999999999999999", "a size is"),
        ("SOFTFAULT_MEMORY", b"18446744073709551615T", "a size is"),
        ("SOFTFAULT_MEMORY", long.as_bytes(), "a size is"),
        (
            "SOFTFAULT_MEMORY",
            b"0",
            "SOFTFAULT_MEMORY=0: a memory budget is at least 8 MiB",
        ),
        ("SOFTFAULT_MEMORY", b"8388607", "at least 8 MiB"),
        (
            "SOFTFAULT_ALLOW_KERNEL_MAPS",
            b"no",
            "SOFTFAULT_ALLOW_KERNEL_MAPS=no: the value must be 0 or 1",
        ),
        (
            "SOFTFAULT_SMALL_MAPS",
            b"some",
            "SOFTFAULT_SMALL_MAPS=some: a size is",
        ),
        (
            "SOFTFAULT_SWAP",
            b"",
            "SOFTFAULT_SWAP=\"\": the value names no directory",
        ),
        ("SOFTFAULT_SWAP", b":", "the value names no directory"),
        ("SOFTFAULT_SWAP", b":64M", "the value names no directory"),
        ("SOFTFAULT_SWAP", b"/tmp:", "the last colon is no size"),
        ("SOFTFAULT_SWAP", b"/tmp:lots", "the last colon is no size"),
        ("SOFTFAULT_SWAP", b"/tmp:-1", "the last colon is no size"),
        ("SOFTFAULT_SWAP", b"/tmp:1\xff", "the last colon is no size"),
        (
            "SOFTFAULT_SWAP",
            b"/tmp:0",
            "less than a page (SOFTFAULT_SWAP=/tmp:0)",
        ),
        ("SOFTFAULT_SWAP", b"/tmp:16777215T", "above 4 TiB"),
        ("SOFTFAULT_SWAP", b"/nowhere/at/all", "No such file"),
        ("SOFTFAULT_SWAP", b"/no\nwhere\xfe", "No such file"),
        ("SOFTFAULT_SWAP", b"/dev/null", "Not a directory"),
        ("SOFTFAULT_SWAP", b"   ", "No such file"),
    ];
    for &(name, value, words) in bad {
        let output = with(TEST, "bad", &[(name, OsStr::from_bytes(value))]);
        let lines = said(&output);
        assert_eq!(lines.len(), 1, "{name} {value:?}: {lines:?}");
        assert!(
            lines[0].contains(words) && lines[0].contains(name),
            "{lines:?}"
        );
        let words = lines[0].strip_prefix("softfault: ").unwrap();
        let out = String::from_utf8_lossy(&output.stdout);
        let refused = out.matches(&format!("refused {words}\n")).count();
        assert_eq!(refused, 3, "{name} {value:?}: {out}");
    }
}

#[test]
fn a_setting_that_can_be_is_taken_and_nothing_is_said() {
    const TEST: &str = "a_setting_that_can_be_is_taken_and_nothing_is_said";
    if scenario().is_some() {
        map_twice();
        let engine = Engine::process_default().unwrap();
        println!("memory {}", engine.stats().budget_bytes);
        return println!(
            "slots {}",
            engine.stats().swap.map_or(0, |swap| swap.slots_total)
        );
    }
    let mut dir = std::env::temp_dir().into_os_string().into_vec();
    dir.extend(format!("/softfault-{}-\u{e9}:", std::process::id()).bytes());
    dir.push(0xFF);
    let dir = OsString::from_vec(dir);
    std::fs::create_dir(&dir).unwrap();
    let mut sized = dir.clone();
    sized.push(":1M");
    let good: &[(&str, &OsStr, &str)] = &[
        ("SOFTFAULT_MEMORY", OsStr::new("8M"), "memory 8388608"),
        ("SOFTFAULT_MEMORY", OsStr::new(" 16m\t"), "memory 16777216"),
        ("SOFTFAULT_MEMORY", OsStr::new("8388608"), "memory 8388608"),
        ("SOFTFAULT_SWAP", &sized, "slots 256"),
        ("SOFTFAULT_STATS", OsStr::new("0"), "memory "),
        ("SOFTFAULT_STATS", OsStr::new(""), "memory "),
    ];
    for &(name, value, words) in good {
        let output = with(TEST, "good", &[(name, value)]);
        assert_eq!(said(&output), [""; 0], "{value:?}");
        let out = String::from_utf8_lossy(&output.stdout);
        assert!(
            out.contains(words) && out.contains("mapped 64"),
            "{value:?}: {out}"
        );
    }
    // Other values of it are told, and mean nothing.
    for value in ["yes", "2", " ", "1 ", "-1", "\u{1}", "t\nrue"] {
        let output = with(TEST, "stats", &[("SOFTFAULT_STATS", OsStr::new(value))]);
        let lines = said(&output);
        assert_eq!(lines.len(), 1, "{value:?}: {lines:?}");
        assert!(
            lines[0].contains("SOFTFAULT_STATS") && lines[0].ends_with("the value must be 0 or 1")
        );
    }
    std::fs::remove_dir(dir).unwrap();
}

/// The number of a field in the block, of the process that printed it first or second.
fn field(block: &str, name: &str) -> u64 {
    let start = format!(" {name}=");
    let found = block
        .split_once(&start)
        .unwrap_or_else(|| panic!("{name}: {block}"));
    let digits = found.1.split(|c: char| !c.is_ascii_digit()).next().unwrap();
    digits.parse().unwrap()
}

fn blocks(output: &Output) -> Vec<String> {
    let lines = said(output);
    assert!(lines.len().is_multiple_of(6), "{lines:?}");
    lines.chunks(6).map(|block| block.join("\n")).collect()
}

/// Once at the end of the process, however many engines it had: of main's return and of `exit` alike, and in
/// a child of fork only if it served something.
#[test]
fn statistics_are_printed_at_exit() {
    const TEST: &str = "statistics_are_printed_at_exit";
    if let Some(scenario) = scenario() {
        return served(&scenario);
    }
    let one = [("SOFTFAULT_STATS", OsStr::new("1"))];
    for end in ["return", "exit", "two engines", "soft"] {
        let output = with(TEST, end, &one);
        let blocks = blocks(&output);
        assert_eq!(blocks.len(), 1, "{end}: {blocks:?}");
        let block = &blocks[0];
        assert!(field(block, "faults") >= 1, "{block}");
        assert_eq!(field(block, "failed_touches"), 0, "{block}");
        let engines = if end == "two engines" { 2 } else { 1 };
        assert_eq!(field(block, "engines"), engines, "{block}");
        // 64 pages, each read once.
        let bytes = engines * FILE as u64;
        assert_eq!(field(block, "bytes_read"), bytes, "{block}");
        let ways = field(block, "read_direct_bytes") + field(block, "read_cached_bytes");
        assert_eq!(ways, bytes, "{block}");
        assert_eq!(field(block, "small_maps"), 0, "{block}");
        assert!(field(block, "peak_bytes") >= FILE as u64, "{block}");
        assert_eq!(field(block, "writable_maps"), 0, "{block}");
    }
    // Also pages that are written back at exit.
    let written = blocks(&with(TEST, "written", &one));
    let block = &written[0];
    assert_eq!(field(block, "writable_maps"), 1, "{block}");
    assert_eq!(field(block, "writable_bytes"), FILE as u64, "{block}");
    assert_eq!(field(block, "shared_maps"), 0, "{block}");
    assert_eq!(field(block, "written_back_bytes"), PAGE as u64, "{block}");
    assert_eq!(field(block, "write_errors"), 0, "{block}");
    let idle = blocks(&with(TEST, "idle child", &one));
    assert_eq!(idle.len(), 1, "{idle:?}");
    let busy = blocks(&with(TEST, "busy child", &one));
    assert_eq!(busy.len(), 2, "{busy:?}");
    assert_ne!(field(&busy[0], "pid"), field(&busy[1], "pid"));
    // The reads of each of them: the child's are of two pages.
    assert_eq!(field(&busy[0], "engines"), 1, "{busy:?}");
    assert_eq!(field(&busy[0], "bytes_read"), 0, "{busy:?}");
    assert!(field(&busy[1], "bytes_read") > 0, "{busy:?}");
    // The number of the standard error is another file's by then.
    let elsewhere = with(TEST, "another file", &one);
    let out = String::from_utf8_lossy(&elsewhere.stdout);
    assert!(!out.contains("softfault-stats"), "{out}");
    assert_eq!(said(&with(TEST, "nothing", &one)), [""; 0]);
    assert_eq!(said(&with(TEST, "return", &[])), [""; 0]);
}

fn served(scenario: &str) {
    if scenario == "nothing" {
        return;
    }
    let file = file();
    let build = || Engine::builder().allow_kernel_maps(false).memory(16 << 20);
    let touch = |engine: &Engine| {
        // SAFETY: nobody writes to it.
        let map = unsafe { engine.map(&file) }.unwrap();
        let sum: u64 = map.iter().step_by(PAGE).map(|&byte| u64::from(byte)).sum();
        assert_eq!(sum, 64 * 65 / 2);
    };
    if scenario == "written" {
        let engine = build().coherence(Coherence::Engine).build().unwrap();
        // SAFETY: nobody else has it.
        let mut map = unsafe { engine.map_mut(&file) }.unwrap();
        map[PAGE] = 1;
        core::mem::forget((map, engine));
        return;
    }
    if scenario == "soft" {
        let engine = build().build_soft().unwrap();
        let mut all = vec![0; FILE];
        assert_eq!(engine.map(&file).unwrap().read_at(&mut all, 0), Ok(FILE));
        return;
    }
    let engine = build().build().unwrap();
    let mut memory = engine.map_anon(16 * PAGE).unwrap();
    memory[0] = 1;
    touch(&engine);
    match scenario {
        "two engines" => {
            drop((memory, engine));
            touch(&build().build().unwrap());
        }
        "idle child" | "busy child" => {
            let busy = scenario == "busy child";
            let status = forked(|| {
                if busy {
                    memory[2 * PAGE] = 1;
                    memory[3 * PAGE] = 1;
                }
                // SAFETY: ends the child, as `main` returning would.
                unsafe { libc::exit(0) }
            });
            assert_eq!(status, 0);
        }
        "exit" => std::process::exit(0),
        "another file" => {
            // SAFETY: both are open.
            assert_eq!(unsafe { libc::dup2(1, 2) }, 2);
        }
        _ => {}
    }
}
