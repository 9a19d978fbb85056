//! Calls with lengths that nobody looks at, and a child of vfork that sets handlers: `odd_calls.c`.

use crate::{compile, directory, file, same_each_way};

#[test]
fn odd_arguments_and_children_of_vfork() {
    let directory = directory("odd-calls");
    let Some(program) = compile("odd_calls.c", &directory.join("program"), &[]) else {
        return;
    };
    let data = file(&directory, 16 << 20);
    let command = [program.as_ref(), data.as_ref()];
    same_each_way(&directory, &command, &[], |stats, how| {
        assert_eq!(stats.last().expect("the program's own").taken(), 1, "{how}");
    });
}
