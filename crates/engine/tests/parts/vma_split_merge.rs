//! Every way in which a verb splits and merges VMAs, drawn.

use crate::drawn;

use crate::drawn::{Drawn, VERBS, Verb, range};
use softfault_engine::PAGE_SIZE;
use softfault_engine::mm::{Attributes, Backing, MmError, VmaSlabs};
use softfault_oracle::Numbered;

#[test]
fn unmap() {
    #[rustfmt::skip]
    let cases: &[(&str, &str, &str, &[&str])] = &[
        // before      unmapped    after       pieces
        // One VMA.
        ("AAAAAA",    "xxxxxx",   "------",   &["A0..6"]),
        ("AAAAAA",    "xx    ",   "--AAAA",   &["A0..2"]),
        ("AAAAAA",    "    xx",   "AAAA--",   &["A4..6"]),
        ("AAAAAA",    "  xx  ",   "AA--AA",   &["A2..4"]),
        ("AAAAAA",    " xxxx ",   "A----A",   &["A1..5"]),
        // Reaching past it.
        ("-AAAA-",    "xxxxxx",   "------",   &["A1..5"]),
        ("-AAAA-",    "xxx   ",   "---AA-",   &["A1..3"]),
        ("-AAAA-",    "   xxx",   "-AA---",   &["A3..5"]),
        // Nothing there.
        ("AA--BB",    "  xx  ",   "AA--BB",   &[]),
        ("------",    " xxx  ",   "------",   &[]),
        // Two VMAs.
        ("AAABBB",    " xxxx ",   "A----B",   &["A1..3", "B3..5"]),
        ("AAABBB",    "xxx   ",   "---BBB",   &["A0..3"]),
        ("AAABBB",    "   xxx",   "AAA---",   &["B3..6"]),
        ("AAABBB",    "xxxx  ",   "----BB",   &["A0..3", "B3..4"]),
        ("AAABBB",    "  xxxx",   "AA----",   &["A2..3", "B3..6"]),
        ("AAABBB",    "  x   ",   "AA-BBB",   &["A2..3"]),
        ("AAABBB",    "   x  ",   "AAA-BB",   &["B3..4"]),
        ("AAABBB",    " x    ",   "A-ABBB",   &["A1..2"]),
        ("AAABBB",    "xxxxxx",   "------",   &["A0..3", "B3..6"]),
        ("AAA|AAA",   "  xx  ",   "AA--AA",   &["A2..3", "A3..4"]),
        // Several.
        ("AABBCC",    " xxxx ",   "A----C",   &["A1..2", "B2..4", "C4..5"]),
        ("AABBCC",    "  xx  ",   "AA--CC",   &["B2..4"]),
        ("AA-B-CC",   " xxxxx ",  "A-----C",  &["A1..2", "B3..4", "C5..6"]),
        ("ABCDEF",    "xxxxxx",   "------",   &["A0..1", "B1..2", "C2..3", "D3..4", "E4..5", "F5..6"]),
        ("aaAAbb",    " xxxx ",   "a----b",   &["A1..2", "A2..4", "B4..5"]),
    ];
    for verb in VERBS {
        for &(before, mask, after, pieces) in cases {
            println!("{before} {mask}");
            let drawn = Drawn::new(before, verb);
            assert_eq!(drawn.unmap(mask).unwrap(), pieces);
            drawn.assert_row(after);
        }
    }
}

#[test]
fn change() {
    const DONE: Result<(), MmError> = Ok(());
    const HOLE: Result<(), MmError> = Err(MmError::Unmapped);
    #[rustfmt::skip]
    let cases: &[(&str, &str, &str, Result<(), MmError>)] = &[
        // before      changed     after
        // One VMA: none, one or two new ones.
        ("AAAAAA",    "xxxxxx",   "aaaaaa",   DONE),
        ("AAAAAA",    "xx    ",   "aaAAAA",   DONE),
        ("AAAAAA",    "    xx",   "AAAAaa",   DONE),
        ("AAAAAA",    "  xx  ",   "AAaaAA",   DONE),
        // So already.
        ("aaaaaa",    "  xx  ",   "aaaaaa",   DONE),
        ("AAaaAA",    "  xx  ",   "AAaaAA",   DONE),
        // It grows a neighbour that agrees.
        ("aaAAAA",    "  xx  ",   "aaaaAA",   DONE),
        ("AAAAaa",    "  xx  ",   "AAaaaa",   DONE),
        ("aaAAaa",    "  xx  ",   "aaaaaa",   DONE),
        ("aaAA--",    "  xx  ",   "aaaa--",   DONE),
        ("--AAaa",    "  xx  ",   "--aaaa",   DONE),
        // The neighbour differs in something else.
        ("bbAAbb",    "  xx  ",   "bbaabb",   DONE),
        ("BBAABB",    "  xx  ",   "BBaaBB",   DONE),
        ("aa|AA|aa",  "  xx  ",   "aa|aa|aa", DONE),
        ("aa|AAAA",   "  xx  ",   "aa|aaAA",  DONE),
        ("AAAA|aa",   "  xx  ",   "AAaa|aa",  DONE),
        // Two VMAs.
        ("AAABBB",    "xxxxxx",   "aaabbb",   DONE),
        ("AAABBB",    " xxxx ",   "AaabbB",   DONE),
        ("AAAaaa",    " xxxx ",   "Aaaaaa",   DONE),
        ("aaaAAA",    " xxxx ",   "aaaaaA",   DONE),
        ("aaaBBB",    " xxxx ",   "aaabbB",   DONE),
        ("AAA|AAA",   " xxxx ",   "Aaa|aaA",  DONE),
        // Three and more.
        ("AAaaAA",    " xxxx ",   "AaaaaA",   DONE),
        ("AAaaAA",    "xxxxxx",   "aaaaaa",   DONE),
        ("aaAAaaAAaa","xxxxxxxxxx","aaaaaaaaaa", DONE),
        ("AABBCC",    " xxxx ",   "AabbcC",   DONE),
        // Holes.
        ("AA--AA",    " xxxx ",   "Aa--aA",   HOLE),
        ("--AA--",    "xxxxxx",   "--aa--",   HOLE),
        ("--AAAA",    "xxxx  ",   "--aaAA",   HOLE),
        ("AAAA--",    "  xxxx",   "AAaa--",   HOLE),
        ("aa--AA",    "xxxxxx",   "aa--aa",   HOLE),
        ("AA--BB",    "  xx  ",   "AA--BB",   HOLE),
        ("------",    "  xx  ",   "------",   HOLE),
        ("AA-AA-AA",  "xxxxxxxx", "aa-aa-aa", HOLE),
    ];
    for verb in VERBS {
        for &(before, mask, after, result) in cases {
            println!("{before} {mask} {verb:?}");
            let drawn = Drawn::new(before, verb);
            assert_eq!(drawn.change(mask), result);
            drawn.assert_row(after);
        }
    }
}

#[test]
fn map() {
    #[rustfmt::skip]
    let cases: &[(&str, &str, &str)] = &[
        // before      mapped      after
        ("------",    "  AA  ",   "--AA--"),
        ("AA----",    "  AA  ",   "AAAA--"),
        ("----AA",    "  AA  ",   "--AAAA"),
        ("AA--AA",    "  AA  ",   "AAAAAA"),
        ("A----A",    "  AA  ",   "A-AA-A"),
        ("BB----",    "  AA  ",   "BBAA--"),
        ("----BB",    "  AA  ",   "--AABB"),
        ("BB--BB",    "  AA  ",   "BBAABB"),
        ("AA--BB",    "  AA  ",   "AAAABB"),
        ("BB--AA",    "  AA  ",   "BBAAAA"),
        ("aa--AA",    "  AA  ",   "aaAAAA"),
        ("AA--aa",    "  AA  ",   "AAAAaa"),
        ("aa--aa",    "  AA  ",   "aaAAaa"),
        // Of another part of the backing: `|` first moves it on.
        ("AA----",    "| AA  ",   "AA|AA--"),
        ("----AA",    "| AA  ",   "--AA|AA"),
        ("AA--AA",    "| AA  ",   "AA|AA|AA"),
    ];
    for verb in VERBS {
        for &(before, new, after) in cases {
            println!("{before} {new}");
            let drawn = Drawn::new(before, verb);
            let new = match new.strip_prefix('|') {
                Some(new) => format!("| {new}"),
                None => new.to_owned(),
            };
            drawn.map(&new);
            drawn.assert_row(after);
        }
    }
}

/// All that the two neighbours of a new mapping can be, and for each whether
/// it makes one VMA with it.
#[test]
fn map_between_all_neighbours() {
    let new = || drawn::attributes('A', 2, 0, Verb::Protect);
    type Change = fn(&mut Attributes);
    let neighbours: [(&str, bool, Option<Change>); 7] = [
        ("hole", false, None),
        ("agrees", true, Some(|_| {})),
        ("backing", false, Some(|a| a.backing = Numbered(0).into())),
        (
            "no backing",
            false,
            Some(|a| a.backing = Backing::default()),
        ),
        ("pgoff", false, Some(|a| a.pgoff += 1)),
        (
            "protection",
            false,
            Some(|a| {
                a.protection = softfault_engine::mm::Protection::None;
            }),
        ),
        (
            "advice",
            false,
            Some(|a| {
                a.advice = softfault_engine::mm::Advice::Sequential;
            }),
        ),
    ];
    for (below, below_merges, make_below) in &neighbours {
        for (above, above_merges, make_above) in &neighbours {
            println!("below {below}, above {above}");
            let drawn = Drawn::new("------", Verb::Protect);
            for (page, make) in [(0, make_below), (4, make_above)] {
                if let Some(make) = make {
                    let mut attributes = drawn::attributes('A', page, 0, Verb::Protect);
                    make(&mut attributes);
                    drawn.space.mmap(range(page..page + 2), attributes).unwrap();
                }
            }
            let before = drawn.space.map_count();
            drawn.space.mmap(range(2..4), new()).unwrap();
            let merged = usize::from(*below_merges) + usize::from(*above_merges);
            assert_eq!(drawn.space.map_count(), before + 1 - merged);
            let mmap = drawn.space.mmap_lock().read();
            drawn.space.validate(&mmap);
            let vma = drawn.space.find(&mmap, range(2..3).start).unwrap();
            let from = if *below_merges { 0 } else { 2 };
            let to = if *above_merges { 6 } else { 4 };
            assert_eq!(vma.range(), range(from..to));
            assert_eq!(vma.attributes(&mmap).pgoff, from as u64);
        }
    }
}

#[test]
fn map_refuses_taken_addresses() {
    let drawn = Drawn::new("-AAA-", Verb::Protect);
    for pages in [0..2, 1..2, 1..4, 2..3, 3..5, 0..5] {
        let attributes = drawn::attributes('B', pages.start, 0, Verb::Protect);
        let result = drawn.space.mmap(range(pages), attributes);
        assert_eq!(result, Err(MmError::Overlap));
        drawn.assert_row("-AAA-");
    }
}

#[test]
fn bad_ranges_are_refused_and_change_nothing() {
    let drawn = Drawn::new("AAAA", Verb::Protect);
    let all = range(0..4);
    let bad = [
        (all.start..all.start, MmError::Empty),
        (all.end..all.start, MmError::Empty),
        (all.start + 1..all.end, MmError::Misaligned),
        (all.start..all.end - 1, MmError::Misaligned),
    ];
    for (bad, error) in bad {
        let attributes = || drawn::attributes('B', 0, 0, Verb::Protect);
        let space = &drawn.space;
        assert_eq!(space.mmap(bad.clone(), attributes()), Err(error));
        let unmapped = space.munmap(bad.clone(), |_, _| panic!("removed"));
        assert_eq!(unmapped, Err(error));
        assert_eq!(space.mprotect(bad.clone(), Default::default()), Err(error));
        assert_eq!(space.madvise(bad, Default::default()), Err(error));
        drawn.assert_row("AAAA");
    }
    let far = Attributes {
        pgoff: u64::MAX,
        ..Attributes::default()
    };
    assert_eq!(drawn.space.mmap(range(6..8), far), Err(MmError::Overflow));
    drawn.assert_row("AAAA");
}

#[test]
fn the_ends_of_the_address_space() {
    let drawn = Drawn::new("", Verb::Protect);
    let last = usize::MAX & !(PAGE_SIZE - 1);
    for range in [0..PAGE_SIZE, last - PAGE_SIZE..last] {
        let attributes = || drawn::attributes('A', 0, 0, Verb::Protect);
        drawn.space.mmap(range.clone(), attributes()).unwrap();
        let again = drawn.space.mmap(range.clone(), attributes());
        assert_eq!(again, Err(MmError::Overlap));
        drawn
            .space
            .madvise(range.clone(), Default::default())
            .unwrap();
        assert!(drawn.space.lock_vma(range.start).is_some());
        assert!(drawn.space.lock_vma(range.end).is_none());
    }
    drawn.space.validate(&drawn.space.mmap_lock().read());
    drawn.space.munmap(0..last, |_, _| {}).unwrap();
    assert_eq!(drawn.space.map_count(), 0);
}

/// With no VMA left, a verb that needs one changes nothing it has not said.
#[test]
fn without_memory() {
    for verb in VERBS {
        let short = |vmas| Drawn::on(VmaSlabs::new(vmas), "AAAAAA", verb);
        // A hole in the middle needs one more.
        let drawn = short(1);
        assert_eq!(drawn.unmap("  xx  "), Err(MmError::NoMemory));
        drawn.assert_row("AAAAAA");
        // Cutting the ends off does not.
        assert_eq!(drawn.unmap("xx    ").unwrap(), ["A0..2"]);
        assert_eq!(drawn.unmap("    xx").unwrap(), ["A4..6"]);
        drawn.assert_row("--AA--");
        let attributes = drawn::attributes('B', 0, 0, verb);
        let mapped = drawn.space.mmap(range(0..1), attributes);
        assert_eq!(mapped, Err(MmError::NoMemory));
        drawn.assert_row("--AA--");
        // Growing needs none either.
        drawn.map("AA--AA");
        drawn.assert_row("AAAAAA");

        // A change in the middle needs two: with one, the first split is
        // undone.
        for vmas in [1, 2] {
            let drawn = short(vmas);
            assert_eq!(drawn.change("  xx  "), Err(MmError::NoMemory));
            drawn.assert_row("AAAAAA");
        }
        let drawn = short(3);
        assert_eq!(drawn.change("  xx  "), Ok(()));
        drawn.assert_row("AAaaAA");

        // A change is made up to the VMA that cannot be split.
        let drawn = Drawn::on(VmaSlabs::new(2), "AABBBB", verb);
        assert_eq!(drawn.change("xxxx  "), Err(MmError::NoMemory));
        drawn.assert_row("aaBBBB");
    }
}

/// The same for tree nodes: 20 VMAs fill the only one.
#[test]
fn without_tree_nodes() {
    let row: String = "A-".repeat(20);
    let drawn = Drawn::on(VmaSlabs::with_max_nodes(100, 1), &row, Verb::Advise);
    let attributes = drawn::attributes('B', 41, 0, Verb::Advise);
    let mapped = drawn.space.mmap(range(41..44), attributes.clone());
    assert_eq!(mapped, Err(MmError::NoMemory));
    drawn.assert_row(&row);
    drawn.unmap(" xx  ").unwrap();
    drawn.space.mmap(range(41..44), attributes).unwrap();
    assert_eq!(drawn.unmap(&format!("{:42}x", "")), Err(MmError::NoMemory));
    let row = format!("A---{}-BBB", &row[4..]);
    drawn.assert_row(&row);
}

#[test]
#[should_panic(expected = "exit() comes first")]
fn dropping_a_space_with_mappings_is_refused() {
    let drawn = Drawn::new("A", Verb::Advise);
    let slabs = drawn.slabs.clone();
    let space =
        softfault_engine::mm::AddressSpace::new(slabs, sync::Arc::new(softfault_oracle::Still));
    let space = space.unwrap();
    let attributes = Attributes::default();
    space.mmap(range(0..1), attributes).unwrap();
}

/// Every row of five pages out of two backings in two states and holes, every
/// range in it, every verb: the result is that of a model that goes page by page.
#[test]
fn everything_on_five_pages() {
    const PAGES: usize = 5;
    const LETTERS: [char; 4] = ['-', 'A', 'a', 'B'];
    for verb in VERBS {
        for number in 0..LETTERS.len().pow(PAGES as u32) {
            let letter = |page| LETTERS[number / LETTERS.len().pow(page) % LETTERS.len()];
            let row: String = (0..PAGES as u32).map(letter).collect();
            for (from, to) in (0..PAGES).flat_map(|a| (a + 1..=PAGES).map(move |b| (a, b))) {
                let mask = format!("{}{}", " ".repeat(from), "x".repeat(to - from));
                let part = &row[from..to];
                let with = |part: &str| format!("{}{part}{}", &row[..from], &row[to..]);

                let drawn = Drawn::new(&row, verb);
                let result = drawn.change(&mask);
                assert_eq!(result.is_err(), part.contains('-'));
                drawn.assert_row(&with(&part.to_ascii_lowercase()));

                let drawn = Drawn::new(&row, verb);
                let pieces = drawn.unmap(&mask).unwrap();
                let mut runs = 0;
                let mut last = '-';
                for letter in part.chars() {
                    runs += usize::from(letter != '-' && letter != last);
                    last = letter;
                }
                assert_eq!(pieces.len(), runs, "{row} {mask}: {pieces:?}");
                drawn.assert_row(&with(&"-".repeat(to - from)));

                // The part is free now: map it anew.
                drawn.map(&format!("{}{}", " ".repeat(from), "A".repeat(to - from)));
                drawn.assert_row(&with(&"A".repeat(to - from)));
            }
        }
    }
}
