//! The worlds that mutations are tried in.

use std::fmt;
use std::str::FromStr;

/// A world: the engine's source over one `sync` façade, and its tests; or the library over it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum World {
    /// Models of one protocol each: all schedules within a bound, weak memory.
    Loom,
    /// Whole scenarios under schedules drawn by a seed.
    Shuttle,
    /// Workloads on simulated cores and time.
    Sim,
    /// The plain tests, on the threads and the memory of this machine.
    Std,
    /// The interfaces of programs, Rust's and C's, and programs under `softfault run`: real page faults, files and processes.
    Library,
}

/// The "test file" of a crate's own tests, those in its `src`.
pub const OF_THE_CRATE: &str = "src";

/// A crate's test binaries.
pub struct Tests {
    /// The crate.
    pub package: &'static str,
    /// Its folder below `crates`.
    pub folder: &'static str,
    /// Test files or folders; none for all there are.
    pub files: &'static [&'static str],
}

impl World {
    /// All of them.
    pub const ALL: [World; 5] = [
        World::Loom,
        World::Shuttle,
        World::Sim,
        World::Std,
        World::Library,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            World::Loom => "loom",
            World::Shuttle => "shuttle",
            World::Sim => "sim",
            World::Std => "std",
            World::Library => "library",
        }
    }

    /// True if it runs accesses in other orders than the program's. The std
    /// world behaves as the processor, and x86 weakens next to nothing.
    pub fn sees_orderings(self) -> bool {
        self == World::Loom
    }

    /// Its tests.
    pub fn tests(self) -> &'static [Tests] {
        match self {
            World::Loom => &[Tests {
                package: "softfault-engine-loom",
                folder: "engine-loom",
                files: &["models"],
            }],
            World::Shuttle => &[Tests {
                package: "softfault-engine-shuttle",
                folder: "engine-shuttle",
                files: &["scenarios"],
            }],
            World::Sim => &[
                Tests {
                    package: "softfault-engine-sim",
                    folder: "engine-sim",
                    files: &["machines"],
                },
                Tests {
                    package: "softfault-sim",
                    folder: "sim",
                    files: &["workloads"],
                },
            ],
            World::Std => &[Tests {
                package: "softfault-engine",
                folder: "engine",
                files: &["parts"],
            }],
            World::Library => &[
                Tests {
                    package: "softfault",
                    folder: "softfault",
                    files: &[],
                },
                Tests {
                    package: "softfault-c",
                    folder: "softfault-c",
                    files: &["c", "twins"],
                },
                Tests {
                    package: "softfault-cli",
                    folder: "cli",
                    files: &["run"],
                },
            ],
        }
    }

    /// Environment for a search that is not for one test: a few schedules of
    /// each scenario, so that all are come to.
    pub fn in_short(self) -> &'static [(&'static str, &'static str)] {
        match self {
            World::Shuttle => &[("SOFTFAULT_SHUTTLE_SCHEDULES", "400")],
            World::Loom | World::Sim | World::Std | World::Library => &[],
        }
    }
}

/// The modules of models that a change to a file of the engine is tried on; the
/// others have nothing of it.
pub fn models_of(path: &str) -> &'static [&'static str] {
    let path = path.trim_start_matches("crates/engine/src/");
    // Of several that match, the first.
    let models: &[(&str, &[&str])] = &[
        ("anon/pages", &["anon_pages", "faults", "private"]),
        ("anon", &["faults", "private"]),
        ("budget", &["budget", "window", "faults"]),
        ("cache/folio", &["folio", "faults", "lists", "writable"]),
        ("cache/frames", &["frames", "faults"]),
        ("cache/window", &["window", "faults", "writable"]),
        ("cache", &["faults", "writable"]),
        ("fault", &["faults", "private", "writable"]),
        ("huge", &["huge"]),
        (
            "lock",
            &[
                "locks",
                "mutex_pool",
                "queued_rwsem",
                "shared_verbs",
                "steal_rwsem",
                "vma_lock_rwsem",
            ],
        ),
        ("mm/tree", &["tree", "tree_shared"]),
        (
            "mm/",
            &[
                "grace",
                "shared_verbs",
                "vma_lock",
                "vma_lock_biased",
                "vma_lock_rwsem",
            ],
        ),
        ("mmu/soft/cores", &["soft_cores", "soft_tables"]),
        ("mmu/soft/frames", &["frames", "soft_tables"]),
        ("mmu", &["soft_tables"]),
        (
            "reclaim",
            &["batches", "faults", "lists", "private", "writable"],
        ),
        ("slab", &["slab"]),
        ("swap/slots", &["swap_slots", "private"]),
        ("swap", &["private"]),
    ];
    let found = models.iter().find(|(prefix, _)| path.starts_with(prefix));
    found.map_or(&[], |(_, models)| models)
}

impl fmt::Display for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for World {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let world = World::ALL.into_iter().find(|world| world.name() == name);
        world.ok_or_else(|| format!("no world '{name}': loom, shuttle, sim, std, library"))
    }
}
