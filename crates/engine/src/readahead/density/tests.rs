use super::*;
use crate::readahead::Mapped;

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
