//! Calls on taken memory for which the kernel refuses new mappings: `refused.c`.

use crate::{compile, directory, file, same_each_way};

/// More than the budget, which is less than is mapped.
const BYTES: usize = 40 << 20;

fn same(case: &str) {
    let directory = directory(&format!("refused-{case}"));
    let Some(program) = compile("refused.c", &directory.join("program"), &[]) else {
        return;
    };
    let data = file(&directory, BYTES);
    let swap = format!("{}:200M", directory.display());
    let options = ["--min-size", "1M", "--anonymous", "--swap", &swap];
    // A touch that waits for ever ends, too.
    let command = ["timeout", "300"].map(AsRef::as_ref);
    let command = [
        &command[..],
        &[program.as_ref(), case.as_ref(), data.as_ref()],
    ]
    .concat();
    same_each_way(&directory, &command, &options, |stats, how| {
        assert!(stats.last().expect("its own").taken() > 0, "{how}");
    });
}

/// What the program maps there is its own: nothing of it is evicted.
#[test]
fn a_mapping_over_a_part_of_a_file_s_is_refused_or_done() {
    same("fixed");
}

#[test]
fn a_mapping_that_cannot_be_handed_back_is_not_moved() {
    same("moved");
}

#[test]
fn a_mapping_that_cannot_be_handed_back_is_not_cut() {
    same("cut");
}

#[test]
fn a_part_of_anonymous_memory_is_unmapped_without_a_new_mapping() {
    same("part");
}

#[test]
fn anonymous_memory_is_unmapped_without_a_new_mapping() {
    same("whole");
}
