//! The engine that a row is measured on, by name: the kernel's mmap in its moods, direct reads, and softfault with its
//! policies.
//!
//! ```text
//!   kernel   kernel-random   softfault   softfault:retry=mmap-lock+pin=no    kernel:read_ahead_kb=128
//!   └ engine ┘                           └ engine ┘ └ policies, joined by + ┘        └ its device's setting
//! ```

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use softfault::Reads;
use softfault::policy::Policies;
use std::fmt;
use std::str::FromStr;

/// The setting of the file's device for the row, in KiB; `None` leaves it unchanged.
pub type ReadAheadKb = Option<u32>;

/// The engine of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    /// Kernel mmap as it is.
    Kernel(ReadAheadKb),
    /// Kernel mmap with MADV_RANDOM.
    KernelRandom(ReadAheadKb),
    /// Kernel mmap with MADV_SEQUENTIAL.
    KernelSequential(ReadAheadKb),
    /// Kernel mmap with MADV_HUGEPAGE.
    KernelHugePage(ReadAheadKb),
    /// The kernel's huge pages, with a mapping that keeps page tables, as ours has one.
    KernelParked,
    /// O_DIRECT reads by as many threads, one for each touch, without a cache.
    Pread,
    /// The same through a cache of the budget's size in the process.
    PreadCached,
    /// O_DIRECT reads and writes of a file in place of memory, a page each.
    Direct,
    /// This project's engine; how it reads files, or as it does by itself.
    Softfault(Policies, Option<Reads>),
    /// The same over soft page tables: bytes are reached by calls, no fault is the kernel's.
    Soft(Policies),
}

/// The engines, for an error about an unknown one.
const ENGINES: &str = "kernel, kernel-random, kernel-sequential, kernel-hugepage, kernel-parked, pread, pread-cached, direct, softfault and soft";
/// How policies are written, for the same.
const POLICIES: &str = "softfault:POLICY=VALUE+POLICY=VALUE, soft likewise";
/// The part behind a kernel's name, before the number.
const READ_AHEAD: &str = "read_ahead_kb=";
/// The part before softfault's way of reading files.
const READS: &str = "reads=";

/// In KiB: no device is served better by more, and a setting without bound takes the machine's memory.
const MOST: u32 = 1 << 20;

/// A read-ahead in KiB, as it is typed.
pub fn parse_read_ahead(text: &str) -> Result<u32, String> {
    // SAFETY: sysconf has no preconditions.
    let page_kb = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u32 >> 10;
    match text.parse() {
        Ok(kb) if kb <= MOST && kb % page_kb == 0 => Ok(kb),
        _ => Err(format!(
            "a read-ahead is 0 to {MOST} KiB, in whole pages of {page_kb} KiB"
        )),
    }
}

/// Memory of a run that uses the page cache, besides its budget: the program's own, and the kernel's for it.
const BESIDES_BUDGET: u64 = 32 << 20;

impl On {
    /// Whether it is one of the kernel's own mmaps.
    pub fn is_kernel(self) -> bool {
        self.read_ahead().is_some()
    }

    /// The read-ahead setting of the file's device for the row; `None` for engines other than the kernel.
    fn read_ahead(self) -> Option<ReadAheadKb> {
        match self {
            Self::Kernel(kb)
            | Self::KernelRandom(kb)
            | Self::KernelSequential(kb)
            | Self::KernelHugePage(kb) => Some(kb),
            Self::KernelParked => Some(None),
            Self::Pread | Self::PreadCached | Self::Direct => None,
            Self::Softfault(..) | Self::Soft(_) => None,
        }
    }

    /// The setting of its file's device for the row, if it is changed.
    pub fn read_ahead_kb(self) -> ReadAheadKb {
        self.read_ahead().flatten()
    }

    /// The same engine with its file's device set to `kb`; `None` of an engine that such a setting does not reach:
    /// MADV_RANDOM switches read-ahead off, and only the kernel's own mmap goes by the device.
    pub fn at_read_ahead(self, kb: u32) -> Option<Self> {
        match self {
            Self::Kernel(_) => Some(Self::Kernel(Some(kb))),
            Self::KernelSequential(_) => Some(Self::KernelSequential(Some(kb))),
            Self::KernelHugePage(_) => Some(Self::KernelHugePage(Some(kb))),
            _ => None,
        }
    }

    /// Whether how much it reads ahead is the device's to say.
    pub fn reads_ahead(self) -> bool {
        self.at_read_ahead(0).is_some()
    }

    /// Whether nothing of it stays in memory.
    pub fn has_no_memory(self) -> bool {
        matches!(self, Self::Pread | Self::Direct)
    }

    /// The cgroup limit for a run with `memory` bytes: the kernel's budget is the limit itself;
    /// softfault keeps its budget by its own means, and the limit above it lets the group's peak show
    /// where it does not, unless it uses the page cache, which is in no budget and would be more memory; pread has no cache to bound.
    pub fn limit(self, memory: u64) -> Option<u64> {
        match self {
            _ if self.is_kernel() => Some(memory),
            Self::Softfault(_, Some(Reads::Cached | Reads::Auto)) => Some(memory + BESIDES_BUDGET),
            Self::Softfault(..) | Self::Soft(_) | Self::PreadCached => Some(memory + (1 << 30)),
            _ => None,
        }
    }
}

impl FromStr for On {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (engine, policies) = match text.split_once(':') {
            Some((engine, policies)) => (engine, Some(policies)),
            None => (text, None),
        };
        let kernel = |on: fn(ReadAheadKb) -> Self| match policies {
            None => Ok(on(None)),
            Some(setting) => match setting.strip_prefix(READ_AHEAD) {
                Some(kb) => Ok(on(Some(parse_read_ahead(kb)?))),
                None => Err(format!(
                    "{engine} has no policies, only softfault and soft have; it has {READ_AHEAD}N"
                )),
            },
        };
        let on = match engine {
            "kernel" => return kernel(Self::Kernel),
            "kernel-random" => return kernel(Self::KernelRandom),
            "kernel-sequential" => return kernel(Self::KernelSequential),
            "kernel-hugepage" => return kernel(Self::KernelHugePage),
            "kernel-parked" => Self::KernelParked,
            "pread" => Self::Pread,
            "pread-cached" => Self::PreadCached,
            "direct" => Self::Direct,
            "softfault" => {
                let (policies, reads) = with_reads(policies.unwrap_or_default())?;
                return Ok(Self::Softfault(policies, reads));
            }
            "soft" => {
                return self::policies(policies.unwrap_or_default()).map(Self::Soft);
            }
            _ => return Err(format!("engines are {ENGINES} (and {POLICIES})")),
        };
        match policies {
            None => Ok(on),
            Some(_) => Err(format!(
                "{engine} has no policies, only softfault and soft have"
            )),
        }
    }
}

impl fmt::Display for On {
    /// The name in arguments, tables and JSON; policies that are the default are not said.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (engine, policies) = match self {
            Self::Kernel(kb) => return kernel(f, "kernel", *kb),
            Self::KernelRandom(kb) => return kernel(f, "kernel-random", *kb),
            Self::KernelSequential(kb) => return kernel(f, "kernel-sequential", *kb),
            Self::KernelHugePage(kb) => return kernel(f, "kernel-hugepage", *kb),
            Self::KernelParked => return f.write_str("kernel-parked"),
            Self::Pread => return f.write_str("pread"),
            Self::PreadCached => return f.write_str("pread-cached"),
            Self::Direct => return f.write_str("direct"),
            Self::Softfault(policies, Some(reads)) => {
                let others = policies.to_string();
                let plus = if others.is_empty() { "" } else { "+" };
                return write!(f, "softfault:{READS}{reads}{plus}{others}");
            }
            Self::Softfault(policies, None) => ("softfault", policies),
            Self::Soft(policies) => ("soft", policies),
        };
        match *policies == Policies::default() {
            true => f.write_str(engine),
            false => write!(f, "{engine}:{policies}"),
        }
    }
}

/// Something that a list has more than once.
pub fn twice<T: PartialEq>(all: &[T]) -> Option<&T> {
    let (_, twice) = (all.iter().enumerate()).find(|(at, one)| all[..*at].contains(one))?;
    Some(twice)
}

/// The policies that `text` names, none of them twice: the engine's, or those of its twin in the simulator.
pub fn policies<T: FromStr<Err: fmt::Display>>(text: &str) -> Result<T, String> {
    let names = text.split('+').map(|part| part.split('=').next());
    let names: Vec<_> = names.map(Option::unwrap_or_default).collect();
    match twice(&names) {
        Some(twice) => Err(format!("`{twice}` is there twice")),
        None => text.parse().map_err(|e| format!("{e}")),
    }
}

/// The policies of softfault, and how it reads files if that is among them.
fn with_reads(text: &str) -> Result<(Policies, Option<Reads>), String> {
    let is_reads = |part: &&str| part.starts_with(READS);
    let (reads, others): (Vec<_>, Vec<_>) = text.split('+').partition(is_reads);
    let policies = policies(&others.join("+"))?;
    if reads.len() > 1 {
        return Err("`reads` is there twice".into());
    }
    let reads = reads.last().map(|part| {
        let name = &part[READS.len()..];
        name.parse().map_err(|why| format!("{part}: {why}"))
    });
    Ok((policies, reads.transpose()?))
}

fn kernel(f: &mut fmt::Formatter<'_>, name: &str, kb: ReadAheadKb) -> fmt::Result {
    match kb {
        None => f.write_str(name),
        Some(kb) => write!(f, "{name}:{READ_AHEAD}{kb}"),
    }
}

impl Serialize for On {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for On {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_aheads_are_whole_pages_within_bounds() {
        assert_eq!(parse_read_ahead("0"), Ok(0));
        assert_eq!(parse_read_ahead("128"), Ok(128));
        assert_eq!(parse_read_ahead("1048576"), Ok(MOST));
        for text in ["", "x", "-4", "127", "2097152", "4294967296", "128K"] {
            assert!(
                parse_read_ahead(text).unwrap_err().contains("1048576"),
                "{text}"
            );
        }
    }

    #[test]
    fn names_and_engines_are_the_same_thing() {
        for name in [
            "kernel",
            "kernel-random",
            "kernel-sequential",
            "kernel:read_ahead_kb=128",
            "kernel-parked",
            "kernel-random:read_ahead_kb=0",
            "kernel-sequential:read_ahead_kb=8192",
            "kernel-hugepage",
            "kernel-hugepage:read_ahead_kb=128",
            "pread",
            "pread-cached",
            "direct",
            "softfault",
            "softfault:retry=mmap-lock+pin=no",
            "softfault:lock=rwsem+miss=p1",
            "softfault:reads=cached",
            "softfault:reads=direct+lock=rwsem",
            "soft",
            "soft:lock=rwsem",
            "soft:lock=biased",
        ] {
            let on: On = name.parse().unwrap();
            assert_eq!(on.to_string(), name);
            let json = serde_json::to_string(&on).unwrap();
            assert_eq!(json, format!("\"{name}\""));
            assert_eq!(serde_json::from_str::<On>(&json).unwrap(), on);
        }
    }

    #[test]
    fn a_read_ahead_setting_is_for_engines_that_read_ahead() {
        let at = |name: &str| name.parse::<On>().unwrap().at_read_ahead(128);
        let name = |name: &str| at(name).unwrap().to_string();
        assert_eq!(name("kernel"), "kernel:read_ahead_kb=128");
        let other = "kernel-sequential:read_ahead_kb=64";
        assert_eq!(name(other), "kernel-sequential:read_ahead_kb=128");
        for on in ["kernel-random", "pread", "direct", "softfault", "soft"] {
            assert_eq!(at(on), None);
        }
    }

    #[test]
    fn policies_that_are_the_default_are_no_other_engine() {
        for name in ["softfault:", "softfault:lock=refcount+pin=yes"] {
            assert_eq!(name.parse(), "softfault".parse::<On>());
        }
    }

    #[test]
    fn an_unknown_engine_is_an_error_with_the_known_ones() {
        let error = |name: &str| name.parse::<On>().unwrap_err();
        for word in ["kernel-random", "pread", "softfault:POLICY=VALUE"] {
            assert!(error("windows").contains(word), "{}", error("windows"));
        }
        assert!(error("kernel:pin=no").contains("no policies"));
        assert!(error("kernel:pin=no").contains("read_ahead_kb=N"));
        assert!(error("kernel:read_ahead_kb=1").contains("whole pages"));
        assert!(error("pread:read_ahead_kb=128").contains("no policies"));
        assert!(error("softfault:pin=maybe").contains("one of no, yes"));
        assert!(error("softfault:reads=x").contains("direct, cached or auto"));
        assert!(error("softfault:sync=x").contains(
            "lock, reuse, mmap, verbs, retry, pin, miss, share, around, join, left, fill and map"
        ));
    }
}
