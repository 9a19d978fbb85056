//! A budget that is not below the memory that there is: a line says so.

use crate::{same_variables, softfault_run, text};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The lines about a budget, within a memory cgroup or not.
fn said_of(budget: &str, cgroup: Option<&Path>) -> String {
    let mut run = softfault_run();
    run.args(["--memory", budget, "--", "echo", "ran"]);
    if let Some(cgroup) = cgroup {
        let mut shell = Command::new("sh");
        shell.args(["-c", "echo $$ > \"$0\" && exec \"$@\""]);
        shell
            .arg(cgroup.join("cgroup.procs"))
            .arg(run.get_program());
        shell.args(run.get_args());
        same_variables(&run, &mut shell);
        run = shell;
    }
    let run = run.output().unwrap();
    assert_eq!(text(&run.stdout), "ran\n", "{}", text(&run.stderr));
    text(&run.stderr)
}

#[test]
fn as_much_as_the_machine_has() {
    // SAFETY: only asks.
    let (pages, page) = unsafe {
        (
            libc::sysconf(libc::_SC_PHYS_PAGES),
            libc::sysconf(libc::_SC_PAGESIZE),
        )
    };
    let said = said_of(&(pages * page).to_string(), None);
    assert!(
        said.starts_with("warning: --memory ") && said.contains(" is not below "),
        "{said}"
    );
    assert_eq!(said_of("8M", None), "");
}

/// A memory cgroup of this test's own.
struct Cgroup(PathBuf);

impl Cgroup {
    fn new(limit: &str) -> Option<Self> {
        let said = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let places = said.lines().filter_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            let (root, file) = match parts.next()? {
                "" => ("/sys/fs/cgroup", "memory.max"),
                "memory" => ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
                _ => return None,
            };
            let own = Path::new(root).join(parts.next()?.trim_start_matches('/'));
            Some((
                own.join(format!("softfault-run-{}", std::process::id())),
                file,
            ))
        });
        places.into_iter().find_map(|(place, file)| {
            fs::create_dir(&place).ok()?;
            let made = Self(place);
            fs::write(made.0.join(file), limit).ok().map(|()| made)
        })
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn as_much_as_a_memory_cgroup_has() {
    let Some(cgroup) = Cgroup::new("268435456") else {
        return softfault_skip::skipped("root", "no memory cgroup can be made here");
    };
    let inner = cgroup.0.join("inner");
    fs::create_dir(&inner).unwrap();
    let inner = Cgroup(inner);
    // The limit is that of the outer one, too.
    for place in [&cgroup.0, &inner.0] {
        let said = said_of("256M", Some(place));
        let file = cgroup.0.to_string_lossy();
        assert!(
            said.starts_with("warning: --memory 256 MiB is not below 256 MiB, "),
            "{said}"
        );
        assert!(said.contains(&*file), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert_eq!(said_of("128M", Some(place)), "");
    }
}
