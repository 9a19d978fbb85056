use super::*;
use crate::readahead::Mapped;
use crate::readahead::areas::mixed;

/// The unused pages are those that areas have ahead, whichever way an area makes room for another: by a touch in
/// it, or by the end of a folio that began in the one before.
#[test]
fn unused_pages_are_the_pages_ahead() {
    let file_pages = 1 << 22;
    let mut density = Density::new(file_pages);
    let mut clock = 0;
    let mut rounds = 0;
    for round in 0..40 {
        let dense = round * 7 * AREA;
        for page in 0..96 {
            let kind = if page < 40 {
                Touch::Miss
            } else {
                Touch::FirstUse
            };
            let page = dense + page / 64 * 64 + page * 3 % 64;
            clock += 1;
            touch(&mut density, kind, page..page + 1, clock);
        }
        rounds += u32::from(density.unused.count() > 0);
        assert_eq!(
            density.unused.count(),
            density.areas.ahead(),
            "round {round}"
        );
        // As many areas as are remembered, and none of them known: every second is entered by the
        // end of a folio.
        for number in 0..64 {
            let end = (1024 + round * 130 + 2 * number + 1) * AREA;
            clock += 1;
            touch(&mut density, Touch::FirstUse, end - 1..end + 1, clock);
            assert_eq!(
                density.unused.count(),
                density.areas.ahead(),
                "{number} of round {round}"
            );
        }
    }
    assert!(rounds > 20, "in {rounds} rounds something was unused");
}

fn touch(density: &mut Density, touch: Touch, folio: Range<u64>, clock: u32) -> Option<Planned> {
    let event = Event {
        page: folio.start,
        folio,
        touch,
        mapped: Mapped::default(),
        file_pages: 1 << 22,
    };
    density.note(&event, 1 << 22, clock);
    let room = Room {
        pages: 4096,
        sure: 4096,
        memory: 1 << 22,
        window: 2048,
        clock,
    };
    density.plan(&event, &room)
}

/// Nor does an area that is forgotten, as it was evicted, keep its unused pages: its guess may have made room for
/// others long ago.
#[test]
fn an_evicted_area_has_no_unused_pages() {
    let mut density = Density::new(1 << 22);
    let mut clock = 0;
    for number in 0..100 {
        for page in 0..5 {
            let page = number * 3 * AREA + page;
            clock += 1;
            touch(&mut density, Touch::Miss, page..page + 1, clock);
        }
    }
    assert_eq!(density.unused.count(), density.areas.ahead());
    let mut owed = 0;
    for number in 0..100 {
        let Some(area) = density.area_of(number * 3 * AREA) else {
            continue;
        };
        owed += u64::from(area.ahead.count() > 0);
        for block in 0..=u64::from(LOST) {
            // Mapped, and missed all the same.
            let page = number * 3 * AREA + block * FOLIO;
            density.mapped(page..page + 1, clock);
            clock += 1;
            touch(&mut density, Touch::Miss, page..page + 1, clock);
        }
        assert_eq!(
            density.unused.count(),
            density.areas.ahead(),
            "area {number}"
        );
    }
    assert!(owed > 10, "{owed} areas had something ahead");
}

/// Of a reading that found no room from some page on, these pages are absent again; those before it, and those of an earlier
/// reading in the same area, are not.
#[test]
fn refused_pages_are_absent_again() {
    let mut density = Density::new(1 << 22);
    touch(&mut density, Touch::Miss, 0..1, 1);
    density.reads(0, &Pages::range(100..120), 1);
    density.reads(0, &Pages::range(40..60), 1);
    let reading = AreaPages {
        start: 0,
        pages: Pages::range(40..60),
        single: Blocks::ALL,
        is_sure: false,
    };
    density.refused(&reading, 50);
    let absent = |density: &Density, pages| density.area_of(0).expect("touched").absent_in(&pages);
    assert_eq!(absent(&density, 40..50), 0, "they are being read");
    assert_eq!(absent(&density, 50..60), 10, "they are not");
    assert_eq!(absent(&density, 100..120), 0, "they were read before");

    // Its pages are not unused any more, either.
    let unused = density.unused.count();
    let mut page = 0;
    let reading = loop {
        page += 1;
        assert!(page < 40, "half of a region is a reason to read the rest");
        let plan = touch(&mut density, Touch::Miss, page..page + 1, 1 + page as u32);
        if let Some(Ahead::Area(reading)) = plan.map(|plan| plan.ahead) {
            break reading;
        }
    };
    assert!(density.unused.count() > unused);
    density.refused(&reading, reading.pages.span().start);
    assert_eq!(density.unused.count(), unused);
    assert_eq!(density.areas.ahead(), unused);
}

/// Pages may be mapped early where areas are used up soon: not before one was, and not where sixteen are used in turn that
/// are more than an eighth of memory together.
#[test]
fn areas_that_are_used_up_soon_are_quick() {
    let mut density = Density::new(1 << 22);
    assert!(!density.is_quick(1 << 22), "nothing is known");
    for page in 0..AREA {
        density.mapped(page..page + 1, 1);
    }
    assert!(density.is_quick(8 * AREA));
    for page in 0..AREA {
        for area in 1..17 {
            let page = area * AREA + page;
            density.mapped(page..page + 1, 2);
        }
    }
    assert!(!density.is_quick(16 * AREA));
    assert!(density.is_quick(8 * 16 * AREA));
}

/// Touches, pages read ahead and gaps, drawn: where the quick look at an area finds nothing, no region around a page of it is dense.
#[test]
fn no_region_is_dense_without_five_pages_of_eight() {
    let (mut none, mut some) = (0, 0);
    for seed in 0..3000 {
        let drawn = |at: u64, below: u64| mixed(seed << 32 | at) % below;
        let file_pages = 4 * AREA + drawn(0, 2 * AREA);
        let mut density = Density::new(1 << 22);
        let all = Pages::range(0..AREA);
        // Where regions of a size are sure, pages that are read count.
        for rank in 0..2 * LEVELS * (seed % 2) as usize {
            density.guesses.begin(0, 9, rank, 1);
            density.guesses.add(0, &Pages::NONE, &all, 1);
            (0..9).for_each(|_| density.guesses.sample(0, &all));
            density.guesses.drop(0);
            assert!(density.guesses.is_sure(rank));
        }
        for number in 0..6 {
            if drawn(number + 1, 8) == 0 {
                continue;
            }
            // Few in most areas, and up to six of each eight.
            let share = drawn(number + 10, 1 + drawn(number + 20, 80));
            let area = density.areas.touch(number, 1);
            for page in 0..AREA {
                let at = 1000 + number * 2 * AREA + 2 * page;
                if drawn(at, 100) < share {
                    area.touched.add(page);
                } else if drawn(at + 1, 100) < share {
                    area.ahead.add(page);
                }
            }
            area.mapped = area.touched;
            if drawn(number + 30, 40) == 0 {
                let every_third = (0..AREA).step_by(3);
                let mut touched = Pages::NONE;
                every_third.for_each(|page| touched.add(page));
                area.expect(GapPeriod::of(number, &touched));
            }
        }
        for at in 0..8 {
            let page = drawn(at + 40, file_pages);
            let may_be = density.may_be_dense(page / AREA, file_pages);
            let is_dense = (0..LEVELS).any(|level| {
                let region = density.region(page, level, file_pages);
                density.is_dense(&region, file_pages)
            });
            assert!(may_be || !is_dense, "page {page}, seed {seed}");
            none += u32::from(!may_be);
            some += u32::from(is_dense);
        }
    }
    assert!(none > 1000 && some > 1000, "{none} and {some}");
}
