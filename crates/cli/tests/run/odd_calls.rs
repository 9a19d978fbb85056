//! Calls with lengths that nobody looks at, and a child of vfork that sets handlers: `odd_calls.c`. Calls with pointers to where
//! nothing is: `pointers.c`. What calls leave in errno: `errno.c`.

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

#[test]
fn pointers_to_where_nothing_is() {
    let directory = directory("pointers");
    let Some(program) = compile("pointers.c", &directory.join("program"), &[]) else {
        return;
    };
    let data = file(&directory, 16 << 20);
    let swap = format!("{}:100M", directory.display());
    let options = ["--anonymous", "--swap", &swap];
    let command = [program.as_ref(), data.as_ref()];
    same_each_way(&directory, &command, &options, |stats, how| {
        assert_eq!(stats.last().expect("the program's own").taken(), 2, "{how}");
    });
}

/// Failed before, by signals: a call that was made again left EFAULT in errno although it succeeded, and pathconf(3) without a value
/// was taken for an error.
#[test]
fn calls_that_are_made_again_leave_errno_as_it_was() {
    let directory = directory("errno");
    let Some(program) = compile("errno.c", &directory.join("program"), &[]) else {
        return;
    };
    let data = file(&directory, 16 << 20);
    let swap = format!("{}:100M", directory.display());
    let options = ["--anonymous", "--swap", &swap];
    let command = [program.as_ref(), data.as_ref()];
    same_each_way(&directory, &command, &options, |stats, how| {
        assert_eq!(stats.last().expect("the program's own").taken(), 2, "{how}");
    });
}
