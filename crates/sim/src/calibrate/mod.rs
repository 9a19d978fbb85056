//! Measures the machine that it runs on.
//!
//! Each figure is the median of several samples, each short enough that the
//! scheduler seldom comes between, on threads pinned to their CPUs. A cost that this
//! machine does not have or does not allow (a second socket, userfaultfd) is
//! taken from another topology, and `source` says which figures are.

mod code;
mod cpus;
mod disk;
mod faults;
mod lines;
pub mod memory;
mod pages;
mod sample;
mod shared;
mod threads;
pub mod uffd;

use cpus::Distance;
use std::fmt;
use std::path::PathBuf;
use sync::topology::{
    Disk, KernelCosts, LineCosts, MemoryCosts, Placement, SchedulerCosts, Topology,
};

/// Two CPUs on which work takes so many percent longer while both work share a core.
const SHARES_CORE: u64 = 20;

/// How to measure.
#[derive(Debug, Clone)]
pub struct Options {
    /// The name of the result.
    pub name: String,
    /// Fewer samples and smaller memory: seconds less, and rougher.
    pub quick: bool,
    /// Where a file to read is made; it has no name and is gone afterwards.
    pub dir: PathBuf,
    /// Where figures are from that cannot be measured here.
    pub lacking: Topology,
}

/// Why there is no result.
#[derive(Debug)]
pub enum Failure {
    /// The caller stopped it.
    Stopped,
    /// Something that must work did not; one line.
    Failed(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stopped => f.write_str("stopped"),
            Self::Failed(why) => f.write_str(&why.replace('\n', " ")),
        }
    }
}

impl std::error::Error for Failure {}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::Failed(error.to_string())
    }
}

/// A figure, in picoseconds unless it says otherwise, or why there is none.
type Figure = Result<u64, String>;

/// The progress, and the number of samples.
pub(crate) struct Watch<'a> {
    /// Called often with the name of the measurement; `false` stops.
    tell: &'a mut dyn FnMut(&str) -> bool,
    /// Samples a figure.
    samples: usize,
    quick: bool,
}

impl Watch<'_> {
    fn tell(&mut self, what: &str) -> Result<(), Failure> {
        match (self.tell)(what) {
            true => Ok(()),
            false => Err(Failure::Stopped),
        }
    }
}

/// Measures this machine. `tell` is called several times a second with the name of the
/// measurement, and stops it by answering `false`.
pub fn calibrate(
    options: &Options,
    tell: &mut dyn FnMut(&str) -> bool,
) -> Result<Topology, Failure> {
    let mut watch = Watch {
        tell,
        samples: if options.quick { 5 } else { 31 },
        quick: options.quick,
    };
    let watch = &mut watch;
    let cpus = cpus::Cpus::of_this_machine()?;
    let home = cpus.home();
    cpus::pin(home)?;
    let lacking = &options.lacking;
    let mut sources = Sources::new(lacking);
    let mut shape = cpus.shape();

    let mut line = line_costs(watch, &cpus, lacking, &mut sources)?;
    let page = pages::measure(watch, &mut sources)?;
    let declared = shape.smt;
    let smt_extra = smt_extra(watch, &cpus, &mut shape, &mut sources)?;
    if shape.smt > declared {
        // The measured figure is between two threads of a core.
        line.sibling = line.cluster;
    }
    let smt_extra = sources.or("smt_extra", smt_extra, lacking.smt_extra);
    let memory = memory_costs(watch, &cpus, &line, lacking, &mut sources)?;
    cpus::pin(home)?;
    let scheduler = scheduler_costs(watch, &cpus, lacking, &mut sources)?;
    // Threads inherit where their parent may run, and the disk's readers need all CPUs.
    cpus.unpin();
    let disk = disk_costs(watch, options, &scheduler, &mut sources)?;
    cpus::pin(home)?;
    let kernel = kernel_costs(watch, &cpus, lacking, &mut sources)?;
    let mut topology = Topology {
        name: options.name.clone(),
        source: String::new(),
        sockets: shape.sockets,
        nodes: shape.nodes,
        clusters: shape.clusters,
        cores: shape.cores,
        smt: shape.smt,
        placement: Placement::Spread,
        smt_extra,
        line,
        memory,
        scheduler,
        page,
        disk,
        kernel,
    };
    cpus::pin(home)?;
    let (code, note) = code::measure(watch, &topology)?;
    cpus.unpin();
    sources.note(note);
    topology.line.code = code;
    topology.source = sources.text(&cpus);
    Ok(topology)
}

fn line_costs(
    watch: &mut Watch,
    cpus: &cpus::Cpus,
    lacking: &Topology,
    sources: &mut Sources,
) -> Result<LineCosts, Failure> {
    let hit = lines::hit(watch)?;
    let rmw = lines::rmw(watch)?.saturating_sub(hit);
    let memory = lines::memory(watch)?;
    let from = &lacking.line;
    let theirs = [
        (Distance::Sibling, from.sibling),
        (Distance::Cluster, from.cluster),
        (Distance::Node, from.node),
        (Distance::Socket, from.socket),
        (Distance::Remote, from.remote),
    ];
    let mut costs = [0; 5];
    let mut least = hit;
    for (cost, (distance, theirs)) in costs.iter_mut().zip(theirs) {
        let figure = match cpus.pair(distance) {
            // Half a round trip is a transfer and the read-modify-write after it.
            Some(pair) => {
                let name = format!("a line from {}", distance.words());
                Ok(lines::transfer(watch, &name, pair)?.saturating_sub(rmw))
            }
            None => Err(format!("no two CPUs are {}", distance.words())),
        };
        let name = format!("line.{}", distance.name());
        // A greater distance does not cost less, in any source.
        *cost = sources.or(&name, figure, theirs).max(least);
        least = *cost;
    }
    let [sibling, cluster, node, socket, remote] = costs;
    sources.assumed(
        "line.hold",
        "as long as a read-modify-write between two hits",
    );
    Ok(LineCosts {
        // Measured last, when all else is known.
        code: 0,
        hit,
        rmw,
        sibling,
        cluster,
        node,
        socket,
        remote,
        memory,
        hold: rmw + 2 * hit,
    })
}

/// By how many percent the work of two hardware threads of a core takes longer. CPUs of a virtual machine may be such threads
/// without its saying so: then the shape is changed.
fn smt_extra(
    watch: &mut Watch,
    cpus: &cpus::Cpus,
    shape: &mut cpus::Shape,
    sources: &mut Sources,
) -> Result<Figure, Failure> {
    if let Some(siblings) = cpus.pair(Distance::Sibling) {
        return Ok(Ok(shared::longer_beside(watch, siblings)?));
    }
    let none = Err("no two CPUs are threads of a core".to_owned());
    let Some(pair) = cpus.pair(Distance::Cluster) else {
        return Ok(none);
    };
    // The least of several: work of others beside it is no sibling.
    let mut percent = u64::MAX;
    for _ in 0..3 {
        percent = percent.min(shared::longer_beside(watch, pair)?);
    }
    if percent < SHARES_CORE || !shape.cores.is_multiple_of(2) {
        return Ok(none);
    }
    (shape.cores, shape.smt) = (shape.cores / 2, 2);
    sources.note(format!(
        "CPUs {} and {} are said to be cores; work on both takes {percent} % longer, as on two threads of one, and they are \
         taken for such",
        pair[0], pair[1]
    ));
    Ok(Ok(percent))
}

fn memory_costs(
    watch: &mut Watch,
    cpus: &cpus::Cpus,
    line: &LineCosts,
    lacking: &Topology,
    sources: &mut Sources,
) -> Result<MemoryCosts, Failure> {
    let shape = cpus.shape();
    let nodes = shape.sockets * shape.nodes;
    // Not measured, with two sockets either: the figure would need memory of a chosen node.
    let remote = Err("it is measured on no machine".to_owned());
    let remote = sources.or("memory.remote", remote, lacking.memory.remote);
    Ok(MemoryCosts {
        bandwidth: shared::bandwidth(watch, &cpus.numbers(), nodes)?,
        remote: remote.max(line.memory),
    })
}

fn scheduler_costs(
    watch: &mut Watch,
    cpus: &cpus::Cpus,
    lacking: &Topology,
    sources: &mut Sources,
) -> Result<SchedulerCosts, Failure> {
    let from = &lacking.scheduler;
    let call = threads::call(watch)?;
    let switch = threads::hand_over(watch, cpus.home())?.saturating_sub(2 * call);
    let (wake, wake_latency) = match cpus.farthest_pair() {
        Some(pair) => {
            let (wake, latency) = threads::wake(watch, pair)?;
            (Ok(wake), Ok(latency))
        }
        None => (Err("one CPU".to_owned()), Err("one CPU".to_owned())),
    };
    Ok(SchedulerCosts {
        call,
        switch,
        wake: sources.or("scheduler.wake", wake, from.wake),
        wake_latency: sources.or("scheduler.wake_latency", wake_latency, from.wake_latency),
        slice: sources.or("scheduler.slice", threads::slice(), from.slice),
    })
}

fn disk_costs(
    watch: &mut Watch,
    options: &Options,
    scheduler: &SchedulerCosts,
    sources: &mut Sources,
) -> Result<Disk, Failure> {
    let measured = disk::measure(watch, &options.dir, scheduler)?;
    Ok(match measured {
        Ok(disk) => disk,
        Err(why) => {
            sources.lacks(
                &[
                    "disk.latency",
                    "disk.bandwidth",
                    "disk.depth",
                    "disk.request",
                    "disk.submit",
                ],
                &why,
            );
            options.lacking.disk.clone()
        }
    })
}

fn kernel_costs(
    watch: &mut Watch,
    cpus: &cpus::Cpus,
    lacking: &Topology,
    sources: &mut Sources,
) -> Result<KernelCosts, Failure> {
    let from = &lacking.kernel;
    let zaps = faults::zaps(watch)?;
    let map = faults::map(watch)?;
    let (signal, copy) = match faults::served(watch)? {
        Ok(served) => (Ok(served.signal), Ok((served.copy, served.copy_page))),
        Err(why) => (Err(why.clone()), Err(why)),
    };
    let interrupts = match cpus.farthest_pair() {
        Some(pair) => Ok(faults::interrupts(watch, pair)?),
        None => Err("one CPU".to_owned()),
    };
    let split = |figure: Result<(u64, u64), String>| match figure {
        Ok((first, second)) => (Ok(first), Ok(second)),
        Err(why) => (Err(why.clone()), Err(why)),
    };
    let (copy, copy_page) = split(copy);
    let (send, receive) = split(interrupts);
    sources.assumed(
        "kernel.signal_lock and its takings",
        "taken from the other topology",
    );
    Ok(KernelCosts {
        signal: sources.or("kernel.signal", signal, from.signal),
        signal_lock: from.signal_lock,
        signal_lock_takings: from.signal_lock_takings,
        uffd_copy: sources.or("kernel.uffd_copy", copy, from.uffd_copy),
        uffd_copy_page: sources.or("kernel.uffd_copy_page", copy_page, from.uffd_copy_page),
        zap: zaps.batch,
        zap_page: zaps.page,
        ipi_send: sources.or("kernel.ipi_send", send, from.ipi_send),
        ipi_receive: sources.or("kernel.ipi_receive", receive, from.ipi_receive),
        map,
    })
}

/// Where the figures are from, as text for people.
pub(crate) struct Sources {
    lacking: String,
    lacks: Vec<(String, String)>,
    notes: Vec<String>,
}

impl Sources {
    fn new(lacking: &Topology) -> Self {
        Self {
            lacking: lacking.name.clone(),
            lacks: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// The measured cost, or that of the other topology.
    fn or(&mut self, name: &str, measured: Figure, theirs: u64) -> u64 {
        measured.unwrap_or_else(|why| {
            self.lacks(&[name], &why);
            theirs
        })
    }

    fn lacks(&mut self, names: &[&str], why: &str) {
        for name in names {
            self.lacks.push(((*name).to_owned(), why.to_owned()));
        }
    }

    fn assumed(&mut self, name: &str, what: &str) {
        self.notes.push(format!("{name}: {what}"));
    }

    /// Something that was measured besides.
    fn note(&mut self, text: String) {
        self.notes.push(text);
    }

    fn text(&self, cpus: &cpus::Cpus) -> String {
        let mut text = format!(
            "Measured by softfault sim calibrate on {}, each figure the median of several.",
            cpus.model()
        );
        for (name, why) in &self.lacks {
            text += &format!(" NOT MEASURED, of {}: {name} ({why}).", self.lacking);
        }
        for note in &self.notes {
            text += &format!(" {note}.");
        }
        text
    }
}
