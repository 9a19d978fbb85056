//! The whole way: a file is mapped by the library, and each of its pages is touched.

use super::check::{Check, Tried, Whereabouts};
use super::place::{PAGE, Place, contents};
use softfault::store::QueueKind;
use softfault::{Engine, MIN_MEMORY};
use std::io;

pub const CHECK: Check = Check {
    name: NAME,
    costs: "no map can be served; Fallback::Kernel maps with the kernel's mmap, without a budget, and \
            Builder::build_soft serves calls",
    run: |place| match serve(place) {
        Ok(found) => Tried::ok(found),
        Err(e) => Tried::missing(format!("no: {}", plain(&e)), mend(&e)),
    },
    whereabouts: Whereabouts::Child,
};

/// The check that decides whether maps can be served.
pub const NAME: &str = "served-fault";

fn serve(place: &Place) -> io::Result<String> {
    let file = place.file()?;
    // So small a file would be mapped by the kernel.
    let engine = Engine::builder()
        .memory(MIN_MEMORY)
        .allow_kernel_maps(false);
    let engine = engine.build()?;
    // SAFETY: the file has no name, so nobody else writes to it.
    let map = unsafe { engine.map(&file) }?;
    let expected = contents();
    // A touch of each page, from the last to the first: none is the neighbour of one read before.
    for page in (0..expected.len()).step_by(PAGE).rev() {
        let end = expected.len().min(page + PAGE);
        if map[page..end] != expected[page..end] {
            return Err(io::Error::other(format!("page {} read wrong", page / PAGE)));
        }
    }
    let stats = engine.stats();
    if !map.is_managed() || stats.faults == 0 {
        return Err(io::Error::other("the pages came without a fault of ours"));
    }
    let ahead = match stats.async_reads {
        Some(QueueKind::Aio) => "io_submit reads ahead",
        Some(QueueKind::Uring) => "io_uring reads ahead",
        None => "nothing reads ahead",
    };
    Ok(format!(
        "{} pages of a file read right through a map, in {} faults; {ahead}",
        expected.len().div_ceil(PAGE),
        stats.faults
    ))
}

/// The library's error, without the advice to call the command that is running.
fn plain(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::Unsupported => "userfaultfd is closed".to_owned(),
        _ => error.to_string(),
    }
}

fn mend(error: &io::Error) -> String {
    match (error.kind(), error.raw_os_error()) {
        (io::ErrorKind::Unsupported, _) => "see the `userfaultfd` check above".to_owned(),
        (io::ErrorKind::OutOfMemory, _) => {
            "ulimit -v unlimited; sysctl -w vm.overcommit_memory=0".to_owned()
        }
        (_, Some(libc::EMFILE)) => "ulimit -n 65536".to_owned(),
        _ => "if SIGBUS is blocked here, start it from a shell; else report a bug".to_owned(),
    }
}
