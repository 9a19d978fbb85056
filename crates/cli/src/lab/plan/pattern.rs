//! Patterns: the variants of a workload, each a row.

use super::args::RunArgs;
use super::workload::{Files, Workload};
use crate::error::Error;
use crate::lab::family::Family;
use crate::lab::job::{Order, Pass, Start, Writing};
use crate::lab::memory::accesses::Spread;
use softfault_sim::Verb;

/// How uneven zipf is, as YCSB has it.
const THETA: f64 = 0.99;

/// One pattern: its name in rows, and the work of the child. Immutable.
#[derive(Clone, Debug)]
pub struct Pattern {
    /// The name.
    pub name: String,
    /// Filled in for the file at hand: a sparse walk's accesses depend on its length.
    pub(super) kind: Kind,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Sparse(Order),
    Random,
    Many { present: bool },
    Orders(Family),
    Scan(Pass),
    Write(Writing),
    Append,
    Thrash(Files),
    WarmStart,
    Pft { shared: bool },
    Spf,
    Loops { verb: Verb, contended: bool },
    Storm,
    Anon(Spread),
    SwapRetry(Spread),
    Snapshot(Spread),
    Hugetlb(Start),
}

/// The patterns that `args` asks for.
pub fn patterns(args: &RunArgs) -> Result<Vec<Pattern>, Error> {
    let one = |name: &str, kind| Ok(vec![named(name, kind)]);
    match args.workload {
        Workload::Sparse => {
            let all = "random,stride1021,stride2053,stride4099,sequential";
            parsed(&args.pattern, all, sparse_kind)
        }
        Workload::Many => parsed(&args.pattern, "cold,present", many_kind),
        Workload::Orders => orders(args),
        Workload::Scan => parsed(&args.pattern, "cold,warm,remap", scan_kind),
        Workload::Pft => parsed(&args.pattern, "own,shared", pft_kind),
        Workload::Thrash => {
            let files = match args.files.is_empty() {
                true => &[Files::Data],
                false => &args.files[..],
            };
            let pattern = |&files: &Files| match files {
                Files::Data => named("data", Kind::Thrash(files)),
                Files::Holes => named("holes", Kind::Thrash(files)),
            };
            Ok(files.iter().map(pattern).collect())
        }
        Workload::Write => {
            let theta = theta(args)?;
            let pattern = |name: &str| match name {
                "sequential" => Ok(named(name, Kind::Write(Writing::Over))),
                "append" => Ok(named(name, Kind::Append)),
                "random" => Ok(named(name, Kind::Write(Writing::Words(Spread::Uniform)))),
                "zipf" => Ok(named(
                    &format!("zipf{theta}"),
                    Kind::Write(Writing::Words(Spread::Zipf { theta })),
                )),
                _ => Err(no_pattern(
                    "write",
                    name,
                    "sequential, append, random or zipf",
                )),
            };
            match args.pattern.is_empty() {
                true => ["sequential", "random", "zipf"]
                    .map(pattern)
                    .into_iter()
                    .collect(),
                false => args.pattern.iter().map(|name| pattern(name)).collect(),
            }
        }
        Workload::Random => one("random", Kind::Random),
        Workload::WarmStart => one("mixed", Kind::WarmStart),
        Workload::Spf => one("spf", Kind::Spf),
        Workload::Loops => parsed(&args.pattern, LOOPS, loops_kind),
        Workload::Storm => one("storm", Kind::Storm),
        Workload::Anon => spreads(args, "uniform,zipf", Kind::Anon),
        Workload::SwapRetry => spreads(args, "uniform", Kind::SwapRetry),
        Workload::Hugetlb => parsed(&args.pattern, "empty,populated", huge_kind),
        Workload::Snapshot => spreads(args, "uniform", Kind::Snapshot),
    }
}

/// The skew of the spread `zipf`.
fn theta(args: &RunArgs) -> Result<f64, Error> {
    let theta = args.theta.unwrap_or(THETA);
    match theta > 0.0 && theta < 1.0 {
        true => Ok(theta),
        false => Err(Error::input("--theta must be above 0 and below 1")),
    }
}

/// Patterns of workloads that differ in how accesses are spread over pages.
fn spreads(
    args: &RunArgs,
    defaults: &str,
    kind: fn(Spread) -> Kind,
) -> Result<Vec<Pattern>, Error> {
    let theta = theta(args)?;
    let pattern = |name: &str| match name {
        "uniform" => Ok(named(name, kind(Spread::Uniform))),
        "zipf" if theta == THETA => Ok(named(name, kind(Spread::Zipf { theta }))),
        "zipf" => Ok(named(&format!("zipf{theta}"), kind(Spread::Zipf { theta }))),
        _ => Err(no_pattern(args.workload.name(), name, "uniform or zipf")),
    };
    match args.pattern.is_empty() {
        true => defaults.split(',').map(pattern).collect(),
        false => args.pattern.iter().map(|name| pattern(name)).collect(),
    }
}

/// Those that somebody met, and three that are drawn.
const ORDERS: &str = "0213,04152637,shuffle64,shuffle4096,reverse16,anywhere8,gaps3of8,gaps24of32+shuffle8,\
                      streams16+shuffle16,drawn1,drawn2,drawn3";

/// Orders of access, by their names.
fn orders(args: &RunArgs) -> Result<Vec<Pattern>, Error> {
    let names: Vec<&str> = match args.pattern.is_empty() {
        true => ORDERS.split(',').collect(),
        false => args.pattern.iter().map(String::as_str).collect(),
    };
    let pattern = |name: &str| {
        let family = Family::parse(name, args.seed).ok_or_else(|| {
            let known = "0213, shuffleN, reverseN, anywhereN, gapsNofM, streamsN, backwards, with + between, or drawnN";
            no_pattern("orders", name, known)
        })?;
        Ok(named(&family.to_string(), Kind::Orders(family)))
    };
    names.into_iter().map(pattern).collect()
}

fn named(name: &str, kind: Kind) -> Pattern {
    Pattern {
        name: name.into(),
        kind,
    }
}

/// Patterns by name; without any, those of `defaults`.
fn parsed(
    names: &[String],
    defaults: &str,
    kind: fn(&str) -> Result<Kind, Error>,
) -> Result<Vec<Pattern>, Error> {
    let pattern = |name: &str| kind(name).map(|kind| named(name, kind));
    match names.is_empty() {
        true => defaults.split(',').map(pattern).collect(),
        false => names.iter().map(|name| pattern(name)).collect(),
    }
}

fn sparse_kind(name: &str) -> Result<Kind, Error> {
    let stride = name.strip_prefix("stride").and_then(|n| n.parse().ok());
    match (name, stride) {
        ("random", _) => Ok(Kind::Sparse(Order::Random)),
        ("sequential", _) => Ok(Kind::Sparse(Order::Stride(1))),
        (_, Some(stride)) if stride > 0 => Ok(Kind::Sparse(Order::Stride(stride))),
        _ => Err(no_pattern("sparse", name, "random, sequential or strideN")),
    }
}

fn many_kind(name: &str) -> Result<Kind, Error> {
    let all = [("cold", false), ("present", true)];
    known("many", name, &all).map(|present| Kind::Many { present })
}

fn scan_kind(name: &str) -> Result<Kind, Error> {
    let all = [
        ("cold", Pass::Cold),
        ("warm", Pass::Warm),
        ("remap", Pass::Remap),
    ];
    known("scan", name, &all).map(Kind::Scan)
}

fn pft_kind(name: &str) -> Result<Kind, Error> {
    let all = [("own", false), ("shared", true)];
    known("pft", name, &all).map(|shared| Kind::Pft { shared })
}

/// The disjoint loops.
const LOOPS: &str = "mmap,mmap-touch,unmap-untouched,unmap,touch";

fn loops_kind(name: &str) -> Result<Kind, Error> {
    let all = [
        ("mmap", (Verb::Map, false)),
        ("mmap-touch", (Verb::MapAndTouch, false)),
        ("unmap-untouched", (Verb::UnmapUntouched, false)),
        ("unmap", (Verb::Unmap, false)),
        ("touch", (Verb::Touch, false)),
        ("unmap-untouched-contended", (Verb::UnmapUntouched, true)),
        ("unmap-contended", (Verb::Unmap, true)),
        ("touch-contended", (Verb::Touch, true)),
    ];
    known("loops", name, &all).map(|(verb, contended)| Kind::Loops { verb, contended })
}

fn huge_kind(name: &str) -> Result<Kind, Error> {
    let all = [
        ("empty", Start::Empty),
        ("emptied", Start::Emptied),
        ("populated", Start::Populated),
        ("scan", Start::Scan),
    ];
    known("hugetlb", name, &all).map(Kind::Hugetlb)
}

/// The one of that name.
fn known<T: Copy>(workload: &str, name: &str, all: &[(&str, T)]) -> Result<T, Error> {
    let found = all.iter().find(|(known, _)| *known == name);
    found.map(|(_, kind)| *kind).ok_or_else(|| {
        let mut names: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
        let last = names.pop().unwrap_or_default();
        no_pattern(workload, name, &format!("{} or {last}", names.join(", ")))
    })
}

fn no_pattern(workload: &str, name: &str, known: &str) -> Error {
    Error::input(format_args!("{workload} has no pattern `{name}`: {known}"))
}

impl Pattern {
    /// Whether every page that it touches is a fault.
    pub fn has_faults(&self, workload: Workload) -> bool {
        match self.kind {
            Kind::Hugetlb(start) => start != Start::Scan,
            _ => workload.has_faults(),
        }
    }

    /// Whether `--seconds` is the length of its run, or of a part of it, in a plan whose runs are `timed`, or not.
    pub fn has_seconds(&self, timed: bool) -> bool {
        match self.kind {
            Kind::Sparse(_) | Kind::Many { .. } | Kind::Orders(_) | Kind::Scan(_) => false,
            Kind::Write(Writing::Over) | Kind::Append => false,
            Kind::WarmStart | Kind::SwapRetry(_) => timed,
            _ => true,
        }
    }

    /// The contents of a thrash's files; `None` for the others.
    pub fn files(&self) -> Option<Files> {
        match self.kind {
            Kind::Thrash(files) => Some(files),
            _ => None,
        }
    }

    /// Whether it makes its file longer, and so has one of its own.
    pub fn appends(&self) -> bool {
        matches!(self.kind, Kind::Append)
    }
}
