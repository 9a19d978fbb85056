//! The native part of the Python package `softfault`: its `mmap`, its engines, and calls that wait for pages without the
//! interpreter's lock.
//!
//! | module | has |
//! |---|---|
//! | `mmap` | the class `mmap`, with the interface of the standard library's |
//! | `engine` | budgets, and which one a map is made under |
//! | `memory` | the memory of one map, served by the engine or the kernel |
//! | `plain` | a mapping of the kernel's own, where the engine has none |
//! | `maps` | which map has an address |
//! | `pages` | many ranges brought in, rows copied out |
//! | `calls` | system calls on memory that may not be there |
//! | `held` | the memory of a map, kept for a call |
//! | `lent` | buffers of others, and new bytes |
//! | `failure` | errors as exceptions |
//!
//! **The interpreter's lock** is let go around everything that may wait for a disk (`tests/test_lock.py`), and none of our own mutexes
//! is held then: all of them are taken and released by a thread that has the interpreter's lock. So a child of `os.fork` finds
//! them free, and knows which references to maps are those of threads that it does not have (`held`). One is taken without that lock:
//! a thread that builds a process's engine has it, and a child builds its own.

#[cfg(target_os = "linux")]
mod calls;
#[cfg(target_os = "linux")]
mod engine;
#[cfg(target_os = "linux")]
mod failure;
#[cfg(target_os = "linux")]
mod held;
#[cfg(target_os = "linux")]
mod lent;
#[cfg(target_os = "linux")]
mod maps;
#[cfg(target_os = "linux")]
mod memory;
#[cfg(target_os = "linux")]
mod mmap;
#[cfg(target_os = "linux")]
mod pages;
#[cfg(target_os = "linux")]
mod plain;

/// The module that the package's Python files use.
#[pyo3::pymodule(gil_used = true)]
mod _native {
    use pyo3::exceptions::PyImportError;
    use pyo3::prelude::*;

    /// Refuses an interpreter that is not the process's first: objects of it would be dropped under another one's lock.
    #[pymodule_init]
    fn init(_module: &Bound<'_, PyModule>) -> PyResult<()> {
        // SAFETY: this thread has the lock of the interpreter that is asked for.
        let id =
            unsafe { pyo3::ffi::PyInterpreterState_GetID(pyo3::ffi::PyInterpreterState_Get()) };
        match id {
            0 => Ok(()),
            _ => Err(PyImportError::new_err(
                "softfault does not support sub-interpreters: import it in the main interpreter",
            )),
        }
    }

    #[cfg(target_os = "linux")]
    #[pymodule_export]
    use super::{
        calls::{get, put, read_into, write_from},
        engine::{Engine, parse_size, reinstall_handler, set_current},
        held::give_back_for_others,
        mmap::Mmap,
        pages::{bring_in, is_served, place_of, take_rows},
    };
}
