//! The cases of other programs, whose calls on mappings are made by syscall(2): `by_syscall.h`.

use crate::own_names::serves_its_own_faults;
use crate::{BYTES, compile, directory, file, same_each_way};
use std::path::{Path, PathBuf};

/// A case of a program, how many mappings it takes, and how many it hands back.
type Row = (&'static str, u64, u64);

fn program(source: &str, directory: &Path) -> Option<PathBuf> {
    let header = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/run/by_syscall.h");
    let header = header.to_str().expect("a path of letters");
    compile(source, &directory.join(source), &["-include", header])
}

fn cases((source, bytes): (&str, usize), rows: &[Row], options: &[&str]) {
    let directory = directory(&format!("by-syscall-{source}"));
    let Some(program) = program(source, &directory) else {
        return;
    };
    let data = file(&directory, bytes);
    let swap = format!("{}:300M", directory.display());
    let options = match options {
        [] => options.to_vec(),
        _ => [options, &["--anonymous", "--swap", &swap]].concat(),
    };
    for &(case, taken, handed_back) in rows {
        let command = [program.as_ref(), case.as_ref(), data.as_ref()];
        same_each_way(&directory, &command, &options, |stats, how| {
            let stats = stats.last().expect("the program's own");
            let counts = (stats.taken(), stats.handed_back());
            assert_eq!(counts, (taken, handed_back), "{source} {case} {how}");
        });
    }
}

#[test]
fn files() {
    let rows = [
        ("parts", 2, 0),
        ("twice", 2, 0),
        ("unmap-parts", 1, 1),
        ("again", 20, 0),
        ("protect", 1, 1),
        ("write-to-private", 2, 1),
        ("move", 1, 1),
        ("fixed-over", 1, 1),
        ("advise", 1, 1),
        ("lock", 1, 1),
        ("errno", 1, 0),
        ("calls", 1, 0),
        ("change-under-readers", 10, 10),
    ];
    cases(("cases.c", BYTES), &rows, &[]);
}

#[test]
fn memory_that_is_written_to() {
    let rows = [
        ("calls", 2, 0),
        ("advise", 2, 1),
        ("unmap-parts", 4, 0),
        ("protect", 2, 3),
        ("fixed-over", 2, 0),
        ("move", 3, 2),
        ("lock", 1, 1),
        ("change-under-writers", 2, 20),
        ("pressure", 3, 0),
        ("receives-others", 3, 0),
    ];
    cases(
        ("private.c", (12 << 20) + 100),
        &rows,
        &["--min-size", "1M"],
    );
}

#[test]
fn reserved_address_space() {
    let rows = [("heap", 18, 0), ("protect", 5, 1), ("threads", 48, 0)];
    cases(("reserve.c", 4 << 20), &rows, &["--min-size", "1M"]);
}

#[test]
fn mappings_that_are_moved() {
    let directory = directory("by-syscall-moved");
    let Some(program) = program("moved.c", &directory) else {
        return;
    };
    let swap = format!("{}:100M", directory.display());
    let options = ["--min-size", "1M", "--anonymous", "--swap", &swap];
    same_each_way(&directory, &[program.as_ref()], &options, |stats, how| {
        assert_eq!((stats[0].taken(), stats[0].handed_back()), (3, 3), "{how}");
    });
}

/// Failed before: UFFDIO_REGISTER came to the kernel, which has another userfaultfd there: EBUSY.
#[test]
fn a_program_serves_its_own_faults() {
    let directory = directory("by-syscall-uffd");
    if let Some(program) = program("uffd.c", &directory) {
        serves_its_own_faults(&directory, &program);
    }
}
