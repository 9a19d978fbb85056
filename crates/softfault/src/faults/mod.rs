//! How a touch of a missing page reaches us: by a signal, or by a message to threads of ours.
//!
//! The SIGBUS handler (`handler`) serves faults in the thread that raised them, with all other
//! signals masked; while it waits it looks whether one is pending, and returns
//! for it: the touch faults again. A SIGBUS that is not ours goes to the
//! handler before ours (`chain`). A handler that is installed after ours gets our faults
//! until the next call into the library, which puts ours in front of it; one that restores
//! ours and raises the signal again is understood (`raised`).
//!
//! With [`Faults::Threads`](crate::Faults::Threads) the kernel puts the touching thread to sleep and a message into the
//! userfaultfd. A pool of threads (`pool`) reads these, many at a time (`begin`), serves each as the signal handler would, except for the reads,
//! which a ring does meanwhile (`under_way`), and wakes the thread. A fault that cannot be served becomes a SIGBUS (`raise`), once for each touch (`last_messages`).
//!
//! Which of them it is is settled when the process begins to serve faults (`start`).

mod begin;
mod chain;
mod handler;
mod last_messages;
mod pool;
mod raise;
mod raised;
mod start;
mod under_way;

pub(crate) use handler::{check_handlers, install};
pub use handler::{program_sigbus, reinstall_handler, set_sigbus_calls_intercepted};
pub(crate) use start::{NoProcess, failed_touches, get_or_make, make};
