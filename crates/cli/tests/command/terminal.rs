//! Tables on terminals: no word is broken, however wide the terminal says that it is.

use super::directory;
use std::fs::File;
use std::io::Read;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// What the command prints on a terminal of so many columns.
fn on_terminal(columns: u16, arguments: &[&str]) -> String {
    let size = libc::winsize {
        ws_row: if columns == 0 { 0 } else { 24 },
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    let mut ends = [0; 2];
    let [master, terminal] = &mut ends;
    let (name, settings) = (std::ptr::null_mut(), std::ptr::null());
    // SAFETY: numbers to fill, and a structure that is there.
    let made = unsafe { libc::openpty(master, terminal, name, settings, &raw const size) };
    assert_eq!(made, 0, "{}", std::io::Error::last_os_error());
    // SAFETY: both are new, and nobody else's.
    let [master, terminal] = ends.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
    let mut command = Command::new(env!("CARGO_BIN_EXE_softfault"));
    command.args(arguments).stdin(Stdio::null());
    command.stdout(terminal).stderr(Stdio::null());
    let of_its_own = || {
        // SAFETY: numbers only. The size is asked of the terminal that controls the process, if there is one.
        unsafe {
            libc::setsid();
            libc::ioctl(libc::STDOUT_FILENO, libc::TIOCSCTTY, 0);
        }
        Ok(())
    };
    // SAFETY: only system calls; nothing is allocated.
    unsafe { command.pre_exec(of_its_own) };
    let mut child = command.spawn().unwrap();
    // Its end of the terminal: reading ends when the child's is closed, too.
    drop(command);
    let (mut master, mut out, mut bytes) = (File::from(master), Vec::new(), [0; 4096]);
    // At the end there is an error (EIO).
    while let Ok(read @ 1..) = master.read(&mut bytes) {
        out.extend(&bytes[..read]);
    }
    child.wait().unwrap();
    String::from_utf8(out).unwrap()
}

/// Failed before: `worklo/ad` at 80 columns, and at 0 a letter a line.
#[test]
fn no_word_is_broken() {
    let dir = directory();
    let dir = dir.path().to_str().unwrap();
    let on = ["kernel", "kernel-random", "softfault:retry=held+pin=no"];
    let on_list = on.join(",");
    let run = ["lab", "run", "sparse", "--on", &on_list, "--pattern"];
    let run = [&run[..], &["random", "--file-size", "4M"]].concat();
    let run = [&run[..], &["--memory", "16M", "--keep-system-caches"]].concat();
    let run = [&run[..], &["--dir", dir]].concat();
    for columns in [0, 80, 120, 250] {
        let table = on_terminal(columns, &run);
        for word in on.iter().chain(&["workload", "pattern", "pages/s"]) {
            assert!(table.contains(word), "{columns}: {word}: {table}");
        }
        let doctor = on_terminal(columns, &["doctor", "--dir", dir]);
        assert!(doctor.lines().count() < 100, "{columns}: {doctor}");
        for word in ["page-table-freeing", "served-fault", "userfaultfd"] {
            assert!(doctor.contains(word), "{columns}: {word}: {doctor}");
        }
    }
}
