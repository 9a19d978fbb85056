//! Which CPUs there are and how far apart, from /sys.

use super::Failure;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// How far apart two CPUs are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Distance {
    /// Hardware threads of a core.
    Sibling,
    /// Cores with one last-level cache.
    Cluster,
    /// Cores of a NUMA node.
    Node,
    /// Cores of a socket.
    Socket,
    /// Different sockets.
    Remote,
}

impl Distance {
    /// Its name in a topology.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sibling => "sibling",
            Self::Cluster => "cluster",
            Self::Node => "node",
            Self::Socket => "socket",
            Self::Remote => "remote",
        }
    }

    /// For a sentence about two CPUs.
    pub fn words(self) -> &'static str {
        match self {
            Self::Sibling => "threads of a core",
            Self::Cluster => "cores with one last-level cache",
            Self::Node => "cores of a node with different last-level caches",
            Self::Socket => "of different nodes of a socket",
            Self::Remote => "of different sockets",
        }
    }
}

/// A CPU and its socket, node and cluster.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Cpu {
    number: usize,
    socket: u64,
    node: u64,
    /// The first CPU that shares its last-level cache.
    cluster: usize,
    /// The first hardware thread of its core.
    core: usize,
}

/// CPUs that this process may run on.
pub struct Cpus {
    all: Vec<Cpu>,
    model: String,
}

/// How many of each there are, in the next larger.
pub struct Shape {
    pub sockets: u16,
    pub nodes: u16,
    pub clusters: u16,
    pub cores: u16,
    pub smt: u16,
}

impl Cpus {
    /// Looks.
    pub fn of_this_machine() -> Result<Self, Failure> {
        let all: Vec<Cpu> = allowed()?.into_iter().map(look).collect();
        match all.is_empty() {
            true => Err(Failure::Failed("no CPU to run on".into())),
            false => Ok(Self {
                all,
                model: model(),
            }),
        }
    }

    /// Where most is measured.
    pub fn home(&self) -> usize {
        self.all[0].number
    }

    /// All of them.
    pub fn numbers(&self) -> Vec<usize> {
        self.all.iter().map(|cpu| cpu.number).collect()
    }

    /// The processor's name and how many CPUs of it this process has.
    pub fn model(&self) -> String {
        let virtual_machine = match fs::read_to_string("/proc/cpuinfo") {
            Ok(text) if text.contains(" hypervisor") => " of a virtual machine",
            _ => "",
        };
        format!(
            "{} CPUs{virtual_machine} of an {}",
            self.all.len(),
            self.model
        )
    }

    /// Two CPUs that are as far apart, if there are.
    pub fn pair(&self, distance: Distance) -> Option<[usize; 2]> {
        let pairs = self.all.iter().enumerate().flat_map(|(at, first)| {
            let others = self.all[at + 1..].iter();
            others.map(move |second| (first, second))
        });
        let mut like = pairs.filter(|(first, second)| apart(first, second) == distance);
        like.next()
            .map(|(first, second)| [first.number, second.number])
    }

    /// Two different CPUs, as far apart as there are; none of a single CPU.
    pub fn farthest_pair(&self) -> Option<[usize; 2]> {
        [
            Distance::Remote,
            Distance::Socket,
            Distance::Node,
            Distance::Cluster,
            Distance::Sibling,
        ]
        .into_iter()
        .find_map(|distance| self.pair(distance))
    }

    /// The shape of the machine. Where its parts differ, the largest of each.
    pub fn shape(&self) -> Shape {
        let largest = |of: &dyn Fn(&Cpu) -> (u64, u64, usize, usize),
                       part: &dyn Fn(&Cpu) -> u64| {
            let wholes: BTreeSet<_> = self.all.iter().map(of).collect();
            let parts = wholes.iter().map(|whole| {
                let inside = self.all.iter().filter(|cpu| of(cpu) == *whole);
                inside.map(part).collect::<BTreeSet<_>>().len()
            });
            parts.max().unwrap_or(1) as u16
        };
        Shape {
            sockets: largest(&|_| (0, 0, 0, 0), &|cpu| cpu.socket),
            nodes: largest(&|cpu| (cpu.socket, 0, 0, 0), &|cpu| cpu.node),
            clusters: largest(&|cpu| (cpu.socket, cpu.node, 0, 0), &|cpu| {
                cpu.cluster as u64
            }),
            cores: largest(&|cpu| (cpu.socket, cpu.node, cpu.cluster, 0), &|cpu| {
                cpu.core as u64
            }),
            smt: largest(
                &|cpu| (cpu.socket, cpu.node, cpu.cluster, cpu.core),
                &|cpu| cpu.number as u64,
            ),
        }
    }

    /// The calling thread may run anywhere again.
    pub fn unpin(&self) {
        // It was allowed before.
        let _ = set(self.all.iter().map(|cpu| cpu.number));
    }
}

fn apart(a: &Cpu, b: &Cpu) -> Distance {
    match () {
        () if a.socket != b.socket => Distance::Remote,
        () if a.node != b.node => Distance::Socket,
        () if a.cluster != b.cluster => Distance::Node,
        () if a.core != b.core => Distance::Cluster,
        () => Distance::Sibling,
    }
}

fn look(number: usize) -> Cpu {
    let dir = format!("/sys/devices/system/cpu/cpu{number}");
    let read = |file: &str| fs::read_to_string(format!("{dir}/{file}")).ok();
    // A list as `0-3,8`: its first is a name for all of it.
    let first = |file: &str| {
        let text = read(file)?;
        let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().ok()
    };
    let number_in = |file: &str| read(file)?.trim().parse().ok();
    let cluster = (0..8).filter_map(|at| {
        let level: u32 = read(&format!("cache/index{at}/level"))?
            .trim()
            .parse()
            .ok()?;
        Some((level, first(&format!("cache/index{at}/shared_cpu_list"))?))
    });
    let cluster = cluster.max_by_key(|(level, _)| *level);
    Cpu {
        number,
        // Some virtual machines say -1.
        socket: number_in("topology/physical_package_id").unwrap_or(0),
        node: node(Path::new(&dir)).unwrap_or(0),
        cluster: cluster.map_or(0, |(_, first)| first),
        core: first("topology/thread_siblings_list").unwrap_or(number),
    }
}

/// The directory of a CPU has a link that is named for its node.
fn node(dir: &Path) -> Option<u64> {
    let names = fs::read_dir(dir).ok()?.flatten();
    let mut nodes = names.filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        name.strip_prefix("node")?.parse().ok()
    });
    nodes.next()
}

fn model() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let named = line("model name").unwrap_or_else(|| "unknown processor".into());
    match (line("cpu family"), line("model\t")) {
        (Some(family), Some(model)) => format!("{named} (family {family}, model {model})"),
        _ => named,
    }
}

fn allowed() -> Result<Vec<usize>, Failure> {
    // SAFETY: zeros are an empty set.
    let mut cpus: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set is as large as is said.
    let answer = unsafe { libc::sched_getaffinity(0, size_of_val(&cpus), &mut cpus) };
    if answer != 0 {
        return Err(std::io::Error::last_os_error().into());
    }
    let size = libc::CPU_SETSIZE as usize;
    // SAFETY: within the set.
    Ok((0..size)
        .filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &cpus) })
        .collect())
}

fn set(numbers: impl Iterator<Item = usize>) -> std::io::Result<()> {
    // SAFETY: zeros are an empty set.
    let mut cpus: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    for number in numbers {
        // SAFETY: a number that sched_getaffinity gave.
        unsafe { libc::CPU_SET(number, &mut cpus) };
    }
    // SAFETY: the set is as large as is said; 0 is the calling thread.
    match unsafe { libc::sched_setaffinity(0, size_of_val(&cpus), &cpus) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// The calling thread runs on this CPU alone.
pub fn pin(cpu: usize) -> Result<(), Failure> {
    let why = |e| Failure::Failed(format!("cannot run on CPU {cpu} alone: {e}"));
    set(std::iter::once(cpu)).map_err(why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpu(number: usize, socket: u64, node: u64, cluster: usize, core: usize) -> Cpu {
        Cpu {
            number,
            socket,
            node,
            cluster,
            core,
        }
    }

    #[test]
    fn distances_and_shape_follow_the_shared_parts() {
        let all = vec![
            cpu(0, 0, 0, 0, 0),
            cpu(1, 0, 0, 0, 1),
            cpu(2, 0, 0, 2, 2),
            cpu(3, 0, 1, 3, 3),
            cpu(4, 1, 2, 4, 4),
            cpu(5, 0, 0, 0, 0),
        ];
        let cpus = Cpus {
            all,
            model: String::new(),
        };
        assert_eq!(cpus.pair(Distance::Sibling), Some([0, 5]));
        assert_eq!(cpus.pair(Distance::Cluster), Some([0, 1]));
        assert_eq!(cpus.pair(Distance::Node), Some([0, 2]));
        assert_eq!(cpus.pair(Distance::Socket), Some([0, 3]));
        assert_eq!(cpus.farthest_pair(), Some([0, 4]));
        let shape = cpus.shape();
        let counts = [
            shape.sockets,
            shape.nodes,
            shape.clusters,
            shape.cores,
            shape.smt,
        ];
        assert_eq!(counts, [2, 2, 2, 2, 2]);
    }

    #[test]
    fn this_machine_has_a_shape() {
        let cpus = Cpus::of_this_machine().unwrap();
        let shape = cpus.shape();
        let most = [
            shape.sockets,
            shape.nodes,
            shape.clusters,
            shape.cores,
            shape.smt,
        ];
        let most: usize = most.iter().map(|&n| usize::from(n)).product();
        assert!(most >= cpus.all.len());
    }
}
