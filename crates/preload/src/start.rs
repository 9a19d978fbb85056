//! When the library is loaded, and when the process ends.

use crate::{declined, fits, fork, hooks, inside, options, reports, standard_error, table, tree};

/// Before the program's own initialisers, and after those of the libraries that it is linked with: their calls, and those of threads
/// that they start, come to the hooks before.
#[used]
#[unsafe(link_section = ".init_array")]
static LOADED: extern "C" fn() = loaded;

/// After the program's own handlers of atexit(3).
#[used]
#[unsafe(link_section = ".fini_array")]
static ENDS: extern "C" fn() = ends;

extern "C" fn loaded() {
    fits::check();
    fork::watch();
    standard_error::remember();
    options::get();
    hooks::prepare();
    softfault::prepare_threads();
}

extern "C" fn ends() {
    reports::write_last();
    let _inside = inside::enter();
    if let Some(mut table) = table::lock_or_give_up() {
        tree::ends(table.tree.as_ref());
        let written = table.written.take();
        drop(table);
        declined::tell_of_writer(written);
    }
}
