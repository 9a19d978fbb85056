//! The tour, made small.

use super::{directory, finish, is_empty, refused, softfault};

#[test]
fn the_tour_ends_with_a_table_of_both_engines_and_a_page() {
    let (files, pages) = (directory(), directory());
    let mut tour = softfault(&["tour", "--memory", "32M", "--seconds", "0.3", "--dir"]);
    let (code, out, err) = finish(tour.arg(files.path()).current_dir(pages.path()));
    assert_eq!(code, 0, "{err}");
    for word in ["least of a thread", "pread-cached"] {
        assert!(out.contains(word), "{out}");
    }
    for workload in ["sparse", "random", "scan", "anon", "thrash"] {
        let lines = out
            .lines()
            .filter(|line| line.trim_start().starts_with(workload));
        let on = |engine: &str| lines.clone().filter(|line| line.contains(engine)).count();
        assert!(
            on(" kernel") >= on(" softfault ") && on(" softfault ") > 0,
            "{out}"
        );
        // At both read-aheads, or at the device's own.
        let reads = workload != "anon" && on(" kernel:read_ahead_kb=128 ") > 0;
        let other = match (reads, workload) {
            // So much ahead of so many threads is more than this memory, where files have data.
            (true, "thrash") => on(" kernel:read_ahead_kb=128 "),
            (true, _) => on(" kernel:read_ahead_kb=8192 "),
            (false, _) => on(" kernel "),
        };
        assert_eq!(other, on(" softfault "), "{out}");
    }
    assert!(
        err.contains("KiB ahead") || err.contains("how far the kernel"),
        "{err}"
    );
    assert!(!out.contains("failed") && is_empty(files.path()), "{out}");
    assert!(out.ends_with("page: softfault-tour.html\n"), "{out}");
    let page = std::fs::read_to_string(pages.path().join("softfault-tour.html")).unwrap();
    for text in [
        "<h2>sparse</h2>",
        "<h2>thrash</h2>",
        "A tour of softfault",
        "--memory 32M",
        "</html>",
    ] {
        assert!(page.contains(text), "no {text}");
    }
}

#[test]
fn a_page_that_cannot_be_is_refused_before_anything_is_measured() {
    let dir = directory();
    let page = dir.path().join("none/page.html");
    let arguments = ["tour", "--report", page.to_str().unwrap(), "--dir"];
    refused(softfault(&arguments).arg(dir.path()), "no such directory");
    assert!(is_empty(dir.path()));
}
