//! `sum` prints the same lines as sha256sum.

use super::{directory, finish, refused, softfault};
use sha2::{Digest, Sha256};
use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Stdio};

fn sum(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn a_sum_is_the_files_at_any_length() {
    let dir = directory();
    let path = dir.path().join("file");
    // Empty, a byte, a page but one, a partial last page, and one larger than the budget.
    for length in [0, 1, 4095, 3 * 4096 + 17, 48 << 20] {
        let mut state = length as u64 + 1;
        let bytes: Vec<u8> = std::iter::repeat_with(|| {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (state >> 56) as u8
        })
        .take(length)
        .collect();
        std::fs::write(&path, &bytes).unwrap();
        let (code, out, err) = finish(softfault(&["sum", "--memory", "32M"]).arg(&path));
        assert_eq!(code, 0, "{err}");
        assert_eq!(out, format!("{}  {}\n", sum(&bytes), path.display()));
        assert_eq!(err.lines().count(), 1, "{err}");
    }
}

#[test]
fn a_budget_below_the_minimum_is_refused() {
    let dir = directory();
    let path = dir.path().join("file");
    std::fs::write(&path, "x").unwrap();
    refused(softfault(&["sum", "--memory", "4K"]).arg(&path), "budget");
    let run = ["lab", "run", "scan", "--on", "softfault", "--memory", "4M"];
    refused(softfault(&run).arg("--file").arg(&path), "budget");
}

/// Failed before: the sum of nothing, or refused.
#[test]
fn unmappable_files_are_read() {
    let expected = sum(&std::fs::read("/proc/version").unwrap());
    let (code, out, err) = finish(&mut softfault(&["sum", "/proc/version"]));
    assert_eq!((code, out), (0, format!("{expected}  /proc/version\n")));
    assert!(err.contains("read plainly"), "{err}");

    let dir = directory();
    let pipe = dir.path().join("pipe");
    let name = std::ffi::CString::new(pipe.to_str().unwrap()).unwrap();
    // SAFETY: a string that ends in zero.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    let bytes: Vec<u8> = (0..300_000u32).map(|at| (at / 7) as u8).collect();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut writer = File::options().write(true).open(&pipe).unwrap();
            writer.write_all(&bytes).unwrap();
        });
        let (code, out, err) = finish(softfault(&["sum"]).arg(&pipe));
        assert_eq!(code, 0, "{err}");
        assert_eq!(out, format!("{}  {}\n", sum(&bytes), pipe.display()));
    });
}

#[test]
fn the_standard_input_is_a_dash() {
    let dir = directory();
    let path = dir.path().join("file");
    std::fs::write(&path, "some bytes").unwrap();
    let input = Stdio::from(File::open(&path).unwrap());
    let (code, out, err) = finish(softfault(&["sum", "-"]).stdin(input));
    assert_eq!(code, 0, "{err}");
    assert_eq!(out, format!("{}  -\n", sum(b"some bytes")));
    // This file could be mapped.
    assert!(err.ends_with("; read plainly\n"), "{err}");
}

/// Failed before: the sum of nothing, and exit code 0.
#[test]
fn a_standard_input_that_is_closed_is_refused() {
    let mut shell = Command::new("sh");
    shell.args(["-c", "exec \"$0\" sum - <&-"]);
    refused(
        shell.arg(env!("CARGO_BIN_EXE_softfault")),
        "the standard input is closed",
    );
}

/// Failed before: a newline made two lines of one, and a byte that is not UTF-8 became three.
#[test]
fn odd_names_are_as_of_sha256sum() {
    let dir = directory();
    std::fs::write(dir.path().join("file"), "some bytes").unwrap();
    let sum = sum(b"some bytes");
    let names: [(&[u8], String, &[u8]); 6] = [
        (b"plain name", sum.clone(), b"plain name"),
        (b"bad\xff\xfename", sum.clone(), b"bad\xff\xfename"),
        (b"two\nlines", format!("\\{sum}"), br"two\nlines"),
        (b"to the\rstart", format!("\\{sum}"), br"to the\rstart"),
        (br"back\slash", format!("\\{sum}"), br"back\\slash"),
        (b"\\n\n\xff", format!("\\{sum}"), b"\\\\n\\n\xff"),
    ];
    let mut all = Vec::new();
    for (name, first, shown) in &names {
        let name = OsStr::from_bytes(name);
        std::fs::copy(dir.path().join("file"), dir.path().join(name)).unwrap();
        let mut command = softfault(&["sum"]);
        let done = command.arg(name).current_dir(dir.path()).output().unwrap();
        assert!(done.status.success(), "{name:?}");
        let expected = [first.as_bytes(), b"  ", shown, b"\n"].concat();
        assert_eq!(done.stdout, expected, "{name:?}");
        all.extend(done.stdout);
    }
    std::fs::write(dir.path().join("sums"), all).unwrap();
    let mut check = Command::new("sha256sum");
    let check = check.args(["--check", "--strict", "--quiet", "sums"]);
    assert!(check.current_dir(dir.path()).status().unwrap().success());
}

/// The kernel serves a file that is in its page cache, and cannot keep its pages when it is cut off: an error, and no signal.
#[test]
fn a_file_that_is_cut_off_meanwhile_is_an_error() {
    let dir = directory();
    let path = dir.path().join("file");
    let mut refused = 0;
    // Until one was cut off in the middle of its sum, wherever that is on this machine.
    for round in 0..60 {
        std::fs::write(&path, vec![1; 48 << 20]).unwrap();
        let mut command = softfault(&["sum"]);
        command
            .arg(&path)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(10 + 5 * round));
        File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(0)
            .unwrap();
        let output = child.wait_with_output().unwrap();
        let err = String::from_utf8_lossy(&output.stderr);
        match output.status.code() {
            Some(0) if round > 20 && refused > 0 => break,
            Some(0) => {}
            Some(2) => refused += 1,
            _ => panic!("{}: {err}", output.status),
        }
        if refused > 5 {
            break;
        }
    }
    assert!(refused > 0, "no sum was long enough");
}
