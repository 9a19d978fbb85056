//! The functions of the C library that are ours.
//!
//! | file | has | does something |
//! |---|---|---|
//! | `mapping` | mmap(2) and what changes mappings | always |
//! | `process` | children that are made without the handlers of pthread_atfork(3) | always |
//! | `signals` | handlers and masks: no thread may block the signal by which its faults are served | where faults are signals |
//! | `memory`, `arguments` | calls that hand memory to the kernel | where faults are signals |
//! | `direct` | calls by which a device writes into memory | where private memory was taken |
//! | `paths`, `programs` | calls that hand a path to it, or the arguments of a program | where faults are signals |
//! | `raw` | syscall(2) | as the call that it makes |
//! | `again` | what the last three have in common: what is missing is brought in, and the call made again | |

use crate::mode;
use crate::options::Mode;

mod again;
mod arguments;
mod direct;
mod mapping;
mod memory;
mod next;
mod paths;
mod process;
mod programs;
mod raw;
mod signals;

/// Before the program's threads begin: a hook may be called where nothing can be looked up.
pub fn prepare() {
    mapping::prepare();
    direct::find();
    memory::find();
    arguments::find();
    programs::find_all();
    raw::find();
    paths::find();
    process::find();
    signals::find();
    if mode::get() == Mode::Signals {
        signals::unblock();
    }
}
