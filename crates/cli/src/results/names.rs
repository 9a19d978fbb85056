//! The meaning of the names in a result file: which are the same engine, which differ in a policy alone, and their names
//! in words. A name that says nothing known is only a name.

use super::on::On;
use softfault::policy::MissAccounting;

/// Whether two names mean the same: `softfault:retry=vma-lock+pin=no` is `softfault:pin=no`.
pub fn same(a: &str, b: &str) -> bool {
    let parse = |on: &str| on.parse::<On>().ok();
    a == b || parse(a).is_some_and(|a| Some(a) == parse(b))
}

/// How the read-ahead of `on` counts, as document 003 calls it; the same with the default in place of that; whether
/// it is the baseline. `None` of an engine without such a policy.
fn variant(on: &str) -> Option<(&'static str, On, bool)> {
    let mut rest: On = on.parse().ok()?;
    let (On::Softfault(policies, _) | On::Soft(policies)) = &mut rest else {
        return None;
    };
    let miss = std::mem::take(&mut policies.miss_accounting);
    let name = match miss {
        MissAccounting::Baseline => "baseline",
        MissAccounting::FaultingAddress => "P1",
        MissAccounting::IgnoreTried => "P2-only",
        MissAccounting::Both => "P1+P2",
        MissAccounting::Adaptive => "adaptive",
    };
    Some((name, rest, miss == MissAccounting::Baseline))
}

/// Those of `names` that differ in how they count misses alone, if there are three or more: their places
/// and document 003's names of them, the baseline first.
pub fn variants(names: &[&str]) -> Vec<(usize, &'static str)> {
    let all: Vec<_> = names.iter().map(|on| variant(on)).collect();
    let family = |of: &On| -> Vec<usize> {
        let like = |at: &usize| all[*at].is_some_and(|(_, rest, _)| rest == *of);
        (0..all.len()).filter(like).collect()
    };
    // The engine with the most of them; of several the first.
    let families = all.iter().flatten().map(|(_, rest, _)| family(rest));
    let most = families.rev().max_by_key(Vec::len).unwrap_or_default();
    if most.len() < 3 {
        return Vec::new();
    }
    let named = most.into_iter().filter_map(|at| Some((at, all[at]?)));
    let mut named: Vec<_> = named.collect();
    named.sort_by_key(|(_, (.., baseline))| !baseline);
    named
        .into_iter()
        .map(|(at, (name, ..))| (at, name))
        .collect()
}

/// A description of `on`, for a reader that does not know the lab; empty if there is none.
pub fn words(on: &str) -> String {
    // Where files were told apart by name, the engine is the part before it.
    let on = on.split(" (").next().unwrap_or(on);
    let (engine, policies) = on.split_once(':').unwrap_or((on, ""));
    let engine = match engine {
        "kernel" => "mmap as it is",
        "kernel-random" => "mmap with MADV_RANDOM",
        "kernel-sequential" => "mmap with MADV_SEQUENTIAL",
        "kernel-hugepage" => "mmap with MADV_HUGEPAGE",
        "kernel-parked" => "mmap, with a mapping that keeps the page tables of huge pages",
        "pread" => "a direct read for each touch, no map and no cache",
        "pread-cached" => "direct reads through a cache of the budget's size, no map",
        "direct" => "a direct read or write of a page for each access, no memory",
        "softfault" if policies.is_empty() => "faults served in user space",
        "soft" if policies.is_empty() => "the same engine on page tables of its own, no signals",
        _ => "",
    };
    let policy = |part: &str| match part {
        "lock=rwsem" => "VMA locks as semaphores apart, with a flag: the baseline",
        "lock=refcount" => "VMA locks as one count",
        "lock=biased" => "VMA locks as one count, and a word a processor where many read",
        "reuse=rcu" => "slots of VMAs are reused after a grace period: the baseline",
        "mmap=linux" => "mmap_lock with Linux's queue of readers and writers",
        "mmap=phase-fair" => "writers get mmap_lock in the order of their coming",
        "verbs=shared" => "maps and unmaps of whole anonymous mappings go on beside one another",
        "retry=mmap-lock" => "after I/O a fault comes back under mmap_lock: the baseline",
        "retry=vma-lock" => "after I/O a fault comes back under its VMA lock",
        "retry=held" => "a fault keeps its VMA lock over I/O",
        "pin=no" => "reclaim may take the folio before the fault is back",
        "pin=yes" => "the waiting fault holds its folio",
        "miss=baseline" => "each page that a fault maps counts as a hit: the baseline",
        "miss=p1" => "only the faulting address counts as a hit",
        "miss=p2" => "a fault that waited for I/O counts as no hit",
        "miss=both" => "only the faulting address, and not after I/O, counts as a hit",
        "share=i-mmap-rwsem" => "each fault on huge pages holds i_mmap: the baseline",
        "share=document" => "a fault holds i_mmap while it begins to share a page table",
        "around=no" => "a fault on huge pages maps its page alone",
        "join=fault-mutex" => "each fault on huge pages takes its fault mutex",
        "left=freed" => "page tables of huge pages go with their last mapping",
        "fill=page" => "a fault fills one page of anonymous memory",
        "miss=adaptive" => "read-ahead follows strides and measures its use",
        _ => "",
    };
    let read_ahead = policies
        .strip_prefix("read_ahead_kb=")
        .map(|kb| format!("its device set to {kb} KiB of read-ahead"));
    let policies = policies.split('+').map(policy);
    let said = std::iter::once(engine)
        .chain(policies)
        .chain(read_ahead.as_deref());
    let said: Vec<&str> = said.filter(|words| !words.is_empty()).collect();
    said.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_mean_their_policies() {
        assert!(same("softfault:retry=vma-lock+pin=no", "softfault:pin=no"));
        assert!(same(
            "softfault:pin=no+lock=rwsem",
            "softfault:lock=rwsem+pin=no"
        ));
        assert!(same("softfault:miss=adaptive", "softfault"));
        assert!(!same("softfault:pin=no", "soft:pin=no"));
        assert!(!same("softfault", "kernel"));
        assert!(same("softfault:not=known", "softfault:not=known"));
        assert!(!same("softfault:not=known", "softfault:known=not"));
    }

    #[test]
    fn variants_share_all_but_how_misses_count() {
        let of = |on| variant(on).unwrap();
        assert_eq!(of("softfault:miss=p2").0, "P2-only");
        assert_eq!(of("softfault").0, "adaptive");
        assert_eq!(of("softfault:miss=p1").1, of("softfault").1);
        assert_ne!(of("softfault:miss=p1+pin=no").1, of("softfault").1);
        assert!(of("soft:miss=baseline").2 && !of("soft").2);
        assert_eq!(variant("kernel"), None);
        let all = [
            "kernel",
            "softfault",
            "softfault:miss=p1",
            "softfault:miss=baseline",
        ];
        let named = [(3, "baseline"), (1, "adaptive"), (2, "P1")];
        assert_eq!(variants(&all), named);
        assert_eq!(
            variants(&["softfault", "softfault:pin=no", "softfault:retry=held"]),
            []
        );
    }

    #[test]
    fn every_policy_has_words() {
        let words_of = words("softfault:lock=rwsem+retry=held+pin=no+miss=p1");
        assert_eq!(words_of.split("; ").count(), 4, "{words_of}");
        assert_eq!(words("kernel (later)"), "mmap as it is");
        assert_eq!(
            words("kernel:read_ahead_kb=128"),
            "mmap as it is; its device set to 128 KiB of read-ahead"
        );
        assert_eq!(words("<script>"), "");
    }
}
