//! Calls on taken memory, for which the kernel refuses one call of softfault's: `denied.c`.

use crate::{MEMORY, compile, directory, file, same_case, softfault_run, text, ways};
use std::process::Command;

/// More than the budget, and no whole number of pages.
const BYTES: usize = (12 << 20) + 100;

fn same(case: &str) {
    same_case("denied.c", case, (Some(BYTES), "200M"), |stats, how| {
        assert!(stats.taken() > 0, "{how}");
    });
}

/// Failed before: the call was refused, and nothing was at the old addresses any more.
#[test]
fn memory_that_cannot_be_made_read_only_again_is_not_lost() {
    same("grows");
}

/// Failed before: the call was refused, and the taken memory was gone.
#[test]
fn taken_memory_stays_where_what_is_beside_it_cannot_be_unmapped() {
    same("unmaps-memory");
    same("unmaps-file");
}

/// Failed before: it was refused.
#[test]
fn a_mapping_has_the_addresses_of_what_it_replaces() {
    same("fixed");
}

/// Failed before, by signals: the C library ended the process, datagrams were lost, and reads were EFAULT.
#[test]
fn nothing_is_consumed_by_a_call_without_memory_to_receive_into() {
    same("receives");
}

/// Failed before: SIGABRT.
#[test]
fn memory_is_given_back_where_there_is_none_left_for_lists() {
    same("gives-back");
}

/// Failed before: it was there for ever, and nobody knew of it.
#[test]
fn a_block_that_cannot_be_unmapped_goes_later() {
    same("frees");
}

/// By messages the stack is served until a hook is called on it; by signals it was handed over before the thread began. Before, the calls
/// were made, with the engine's locks on a stack whose faults wait for them.
#[test]
fn a_call_is_refused_whose_stack_cannot_be_handed_over() {
    let directory = directory("denied-on-stack");
    let Some(program) = compile("denied.c", &directory.join("program"), &[]) else {
        return;
    };
    let data = file(&directory, BYTES);
    let said = |command: &mut Command| {
        let said = command.arg("on-stack").arg(&data).output().unwrap();
        assert_eq!(text(&said.stderr), "");
        text(&said.stdout)
    };
    let alone = said(&mut Command::new(&program));
    assert_eq!(alone, "refused 0, wrong 0\n");
    let swap = format!("{}:200M", directory.display());
    for how in ways() {
        let mut with = softfault_run();
        with.args(["--memory", MEMORY, "--min-size", "1M", "--anonymous"]);
        with.args(["--swap", &swap, "--faults", how, "--"]);
        with.args(["timeout", "300"]).arg(&program);
        let refused = if *how == "messages" { 16 } else { 0 };
        let expected = format!("refused {refused}, wrong 0\n");
        assert_eq!(said(&mut with), expected, "{how}");
    }
}
