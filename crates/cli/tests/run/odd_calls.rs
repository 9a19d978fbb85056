//! Calls with lengths that nobody looks at, and a child of vfork that sets handlers: `odd_calls.c`. Calls with pointers to where
//! nothing is: `pointers.c`. The errno that calls leave: `errno.c`.

use crate::{compile, directory, file, same_each_way};

/// Runs a program each way, over a file of 16 MiB; of its mappings so many are taken.
fn same(name: &str, options: &[&str], taken: u64) {
    let directory = directory(name);
    let Some(program) = compile(&format!("{name}.c"), &directory.join("program"), &[]) else {
        return;
    };
    let data = file(&directory, 16 << 20);
    let command = [program.as_ref(), data.as_ref()];
    same_each_way(&directory, &command, options, |stats, how| {
        let own = stats.last().expect("the program's own");
        assert_eq!(own.taken(), taken, "{how}");
    });
}

/// The same, with private memory that is taken, too.
fn same_with_memory(name: &str) {
    let swap = format!("{}:100M", std::env::temp_dir().display());
    same(name, &["--anonymous", "--swap", &swap], 2);
}

#[test]
fn odd_arguments_and_children_of_vfork() {
    same("odd_calls", &[], 1);
}

#[test]
fn pointers_to_where_nothing_is() {
    same_with_memory("pointers");
}

/// Failed before, by signals: a call that was made again left EFAULT in errno although it succeeded, and pathconf(3) without a value
/// was taken for an error.
#[test]
fn calls_that_are_made_again_leave_errno_as_it_was() {
    same_with_memory("errno");
}
