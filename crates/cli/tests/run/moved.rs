//! The kernel puts mappings where a part of private memory was: `moved.c`.

use crate::{compile, directory, same_each_way};

#[test]
fn a_mapping_is_moved_to_where_a_part_was_unmapped() {
    let directory = directory("moved");
    let Some(program) = compile("moved.c", &directory.join("program"), &[]) else {
        return;
    };
    let swap = format!("{}:100M", directory.display());
    let options = ["--min-size", "1M", "--anonymous", "--swap", &swap];
    same_each_way(&directory, &[program.as_ref()], &options, |stats, how| {
        assert_eq!((stats[0].taken(), stats[0].handed_back()), (3, 3), "{how}");
    });
}

/// The stacks of threads that softfault starts meanwhile do not lie in the hole: the program unmaps it with the range. `hole.c`.
#[test]
fn a_range_is_unmapped_with_the_hole_that_a_moved_part_has_left() {
    let directory = directory("hole");
    let Some(program) = compile("hole.c", &directory.join("program"), &["-pthread"]) else {
        return;
    };
    let swap = format!("{}:400M", directory.display());
    let options = ["--min-size", "1M", "--anonymous", "--swap", &swap];
    same_each_way(&directory, &[program.as_ref()], &options, |_, _| {});
}
