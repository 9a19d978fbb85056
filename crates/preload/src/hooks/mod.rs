//! The functions of the C library that are ours.
//!
//! | file | has | does something |
//! |---|---|---|
//! | `mapping`, `moving` | mmap(2) and calls that change mappings | always |
//! | `asked` | msync(2), munlock(2) and mincore(2), which say whether something is mapped | always |
//! | `malloc` | malloc(3) and its like | where anonymous memory is taken |
//! | `process` | children that are made without the handlers of pthread_atfork(3), and these | always |
//! | `thread_exit` | destructors at the end of threads | for values of ours |
//! | `signals` | handlers and masks: no thread may block the signal by which its faults are served | where faults are signals |
//! | `timers` | timers that call a function in a thread of the C library's | where faults are signals |
//! | `memory`, `arguments` | calls that hand memory to the kernel | where faults are signals |
//! | `receive` | calls by which the kernel puts something into memory, and takes it from elsewhere | where faults are signals |
//! | `random` | calls that give random bytes | where faults are signals |
//! | `many` | many messages at a time | |
//! | `bounce` | the memory for that | |
//! | `polled` | poll(2) and its like | where faults are signals |
//! | `position`, `stream_lock` | calls that are several here are one for other threads | |
//! | `uffd` | ioctl(2): memory whose faults the program serves itself | always |
//! | `limits` | limits on the size of files | where private memory was taken |
//! | `by_error` | calls that answer the number of an error | where faults are signals |
//! | `checked` | forms of calls that check bounds | where faults are signals |
//! | `waits` | words that threads wait on, and stacks | where faults are signals |
//! | `direct` | calls by which a device writes into memory | where private memory was taken |
//! | `paths`, `programs`, `lists` | calls that hand a path to it, or the arguments of a program | where faults are signals |
//! | `names` | other names of calls | as the call |
//! | `readable` | structures that may not be there | for those |
//! | `rights` | setuid(2) and its like | always |
//! | `served` | pages that a hook may touch | |
//! | `resolver` | res_query(3) and its like: buffers that go to a name server, and come from it | where faults are signals |
//! | `raw` | syscall(2) | as the call that it makes |
//! | `writes` | calls that write many bytes: the rest follows | where faults are signals |
//! | `again` | the common part of those for signals: missing pages are brought in, and the call made again | |

use crate::options::Mode;
use crate::{mode, program};

mod again;
mod arguments;
mod asked;
mod bounce;
mod by_error;
mod checked;
mod direct;
mod limits;
mod lists;
mod malloc;
mod many;
mod mapping;
mod memory;
mod moving;
mod names;
mod next;
mod paths;
mod polled;
mod position;
mod process;
mod programs;
mod put;
mod random;
mod raw;
mod readable;
mod reading;
mod receive;
mod resolver;
mod rights;
mod served;
mod signals;
mod stream_lock;
mod thread_exit;
mod timers;
mod uffd;
mod waits;
mod writes;

/// Before the program's threads begin: a hook may be called where nothing can be looked up.
pub fn prepare() {
    // The loader may be busy later, in a thread that waits for a lock of this one.
    program::obstacle();
    program::makes_calls_itself();
    malloc::prepare();
    mapping::prepare();
    direct::find();
    memory::find();
    arguments::find();
    asked::find();
    uffd::find();
    programs::find_all();
    raw::find();
    paths::find_all();
    names::find();
    process::find();
    thread_exit::find();
    signals::find();
    timers::find();
    limits::find();
    receive::find_all();
    random::find();
    resolver::find();
    rights::find();
    by_error::find();
    checked::find_all();
    waits::find_all();
    if mode::get() == Mode::Signals {
        signals::unblock();
    }
}
