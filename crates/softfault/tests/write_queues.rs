//! Queues of writes are the process's, however many files it writes to.

mod write_scene;

use write_scene::{PAGE, Scratch, engine, write};

/// Queues of `io_submit(2)` in this process: each is a mapping.
fn queues() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().filter(|line| line.contains("/[aio]")).count()
}

#[test]
fn many_files_that_are_written_to_share_a_few_queues() {
    const FILES: usize = 100;
    const BYTES: usize = 64 << 10;
    let scratches: Vec<_> = (0..FILES)
        .map(|number| Scratch::new(&format!("queues-{number}"), BYTES))
        .collect();
    let engine = engine(64 << 20);
    let written = |scratch: &Scratch| {
        let mut map = write(&engine, &scratch.open());
        map[PAGE] = 7;
        map[BYTES - 1] = 9;
        map.flush().unwrap();
        map
    };
    let mut maps = vec![written(&scratches[0])];
    let of_one = queues();
    maps.extend(scratches[1..].iter().map(written));
    assert_eq!(queues(), of_one, "of one file, and of {FILES}");
    maps.clear();
    drop(engine);
    for scratch in &scratches {
        let content = scratch.content();
        assert_eq!((content[PAGE], content[BYTES - 1]), (7, 9));
    }
}
