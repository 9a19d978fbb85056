//! Machines by name: those of the documents, as far as they describe them.

use std::fmt;
use std::path::Path;
use sync::topology::Topology;

/// The presets' files. None of their figures was chosen by its results.
const FILES: [&str; 3] = [
    include_str!("presets/broadwell-56.json"),
    include_str!("presets/zen5-256.json"),
    include_str!("presets/x86-256.json"),
];

/// A file is a few KiB; a larger one is no topology.
const LARGEST: u64 = 1 << 20;

/// The most CPUs of a machine.
const MOST_CPUS: usize = 4096;

/// An hour in picoseconds: no cost is as large.
const LARGEST_COST: u64 = 3_600_000_000_000_000;

/// More than any hardware thread slows its sibling down by.
const LARGEST_PERCENT: u64 = 1000;

/// Why a topology cannot be had; one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unusable(String);

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unusable {}

fn unusable(text: impl fmt::Display) -> Unusable {
    Unusable(text.to_string().replace('\n', " "))
}

/// All presets.
pub fn all() -> Vec<Topology> {
    let parsed = FILES.iter().map(|text| parse(text));
    parsed
        .map(|topology| topology.expect("presets are well-formed: a test looks"))
        .collect()
}

/// The preset of this name.
pub fn named(name: &str) -> Option<Topology> {
    all().into_iter().find(|topology| topology.name == name)
}

/// A preset by its name, or the topology in a file: a name with a `/` or the ending
/// `.json` is a path.
pub fn find(name_or_path: &str) -> Result<Topology, Unusable> {
    let is_path = name_or_path.contains('/') || name_or_path.ends_with(".json");
    match named(name_or_path) {
        Some(topology) => Ok(topology),
        None if is_path => load(Path::new(name_or_path)),
        None => {
            let names: Vec<String> = all().into_iter().map(|topology| topology.name).collect();
            Err(unusable(format_args!(
                "no topology is called `{name_or_path}`: there are {}, and files by their path",
                names.join(", ")
            )))
        }
    }
}

/// The file that [`find`] reads, if it is not a preset's name.
pub fn file_of(name_or_path: &str) -> Option<&Path> {
    named(name_or_path)
        .is_none()
        .then(|| Path::new(name_or_path))
}

/// The topology in a file.
pub fn load(path: &Path) -> Result<Topology, Unusable> {
    let wrong = |why: &dyn fmt::Display| {
        unusable(format_args!(
            "cannot use the topology {}: {why}",
            path.display()
        ))
    };
    let about = std::fs::metadata(path).map_err(|e| wrong(&e))?;
    if !about.is_file() || about.len() > LARGEST {
        return Err(wrong(&"not a file of a topology"));
    }
    let text = std::fs::read_to_string(path).map_err(|e| wrong(&e))?;
    parse(&text).map_err(|why| wrong(&why))
}

/// The topology that `text` describes, if one can simulate it.
pub fn parse(text: &str) -> Result<Topology, Unusable> {
    let topology: Topology = serde_json::from_str(text).map_err(unusable)?;
    check(&topology)?;
    Ok(topology)
}

/// Whether the figures can be those of a machine: something of each kind, and
/// distances that cost more the farther they are.
pub fn check(topology: &Topology) -> Result<(), Unusable> {
    let parts = [
        ("sockets", topology.sockets),
        ("nodes", topology.nodes),
        ("clusters", topology.clusters),
        ("cores", topology.cores),
        ("smt", topology.smt),
    ];
    for (name, count) in parts {
        if count == 0 {
            return Err(unusable(format_args!("it has no {name}")));
        }
    }
    // Not by `cpus`, which may overflow.
    let cpus = (parts.iter()).try_fold(1usize, |all, &(_, n)| all.checked_mul(usize::from(n)));
    if cpus.is_none_or(|cpus| cpus > MOST_CPUS) {
        return Err(unusable(format_args!("more than {MOST_CPUS} CPUs")));
    }
    let line = &topology.line;
    let distances = [
        ("hit", line.hit),
        ("sibling", line.sibling),
        ("cluster", line.cluster),
        ("node", line.node),
        ("socket", line.socket),
        ("remote", line.remote),
    ];
    if line.hit == 0 {
        return Err(unusable("line.hit is zero: time would stand still"));
    }
    for pair in distances.windows(2) {
        let [(near, less), (far, more)] = [pair[0], pair[1]];
        if less > more {
            return Err(unusable(format_args!(
                "line.{near} is {less} and line.{far} {more}: farther must not cost less"
            )));
        }
    }
    let above_zero = [
        ("line.memory", line.memory),
        ("scheduler.slice", topology.scheduler.slice),
        ("disk.bandwidth", topology.disk.bandwidth),
        ("memory.bandwidth", topology.memory.bandwidth),
        ("disk.depth", u64::from(topology.disk.depth)),
    ];
    if let Some((name, _)) = above_zero.iter().find(|(_, value)| *value == 0) {
        return Err(unusable(format_args!("{name} is zero")));
    }
    if topology.memory.remote < line.memory {
        return Err(unusable(format_args!(
            "line.memory is {} and memory.remote {}: farther must not cost less",
            line.memory, topology.memory.remote
        )));
    }
    if topology.smt_extra > LARGEST_PERCENT {
        return Err(unusable(format_args!(
            "smt_extra is above {LARGEST_PERCENT} percent"
        )));
    }
    let mut costs = topology.clone();
    let mut largest = 0;
    crate::vary::costs(&mut costs, |_, cost| largest = largest.max(*cost));
    match largest > LARGEST_COST {
        true => Err(unusable("a cost is above an hour")),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_are_the_documents_machines() {
        let cpus: Vec<usize> = all().iter().map(Topology::cpus).collect();
        assert_eq!(cpus, [56, 256, 256]);
        for topology in all() {
            assert_eq!(check(&topology), Ok(()), "{}", topology.name);
            assert_eq!(named(&topology.name).as_ref(), Some(&topology));
            assert!(topology.source.len() > 500, "{} says little", topology.name);
            assert!(topology.line.cluster < topology.line.remote);
            assert!(topology.line.hit < topology.line.memory);
            assert!(topology.page.clear < topology.kernel.signal);
        }
        let zen = named("zen5-256").unwrap();
        assert_eq!((zen.sockets, zen.sockets * zen.nodes, zen.smt), (2, 4, 2));
        assert_eq!(zen.nodes * zen.clusters * zen.cores, 64);
    }

    #[test]
    fn an_invalid_machine_is_an_error_of_one_line() {
        let refused = |change: &dyn Fn(&mut Topology)| {
            let mut topology = named("broadwell-56").unwrap();
            change(&mut topology);
            let text = serde_json::to_string(&topology).unwrap();
            parse(&text).unwrap_err().to_string()
        };
        assert_eq!(refused(&|t| t.cores = 0), "it has no cores");
        assert_eq!(refused(&|t| t.cores = u16::MAX), "more than 4096 CPUs");
        assert!(refused(&|t| t.line.remote = 1).contains("farther must not cost less"));
        assert!(refused(&|t| t.line.hit = 0).contains("stand still"));
        assert_eq!(refused(&|t| t.disk.depth = 0), "disk.depth is zero");
        assert!(refused(&|t| t.page.clear = u64::MAX).contains("an hour"));
        assert!(refused(&|t| t.memory.remote = 1).contains("farther must not cost less"));
        assert!(refused(&|t| t.smt_extra = 1001).contains("above 1000 percent"));
        assert_eq!(
            refused(&|t| t.memory.bandwidth = 0),
            "memory.bandwidth is zero"
        );
        let malformed = |text: &str| parse(text).unwrap_err().to_string();
        assert!(malformed("{").contains("EOF"));
        assert!(malformed("{\"nodes\":-1}").contains("expected u16"));
        assert!(malformed("{\"colour\":1}").contains("unknown field `colour`"));
        let unknown = find("vax").unwrap_err().to_string();
        assert!(
            unknown.contains("broadwell-56, zen5-256, x86-256"),
            "{unknown}"
        );
        let absent = find("./none.json").unwrap_err().to_string();
        assert!(absent.contains("./none.json: No such file"), "{absent}");
        assert!(find("/dev/zero").is_err());
    }
}
