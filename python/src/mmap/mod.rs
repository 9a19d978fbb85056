//! The class `mmap`, with the interface of the standard library's: the same names, arguments and exceptions.
//!
//! | file | has |
//! |---|---|
//! | `open` | the arguments, and the memory that they ask for |
//! | `items` | `m[i]`, `m[i:j]`, iteration |
//! | `stream` | methods of a file: `read`, `seek`, `write` |
//! | `position` | where those read and write, while other threads do |
//! | `search` | `find` and `rfind` |
//! | `change` | `resize`, `move`, `flush`, `madvise` |
//! | `waits` | methods beyond the standard library's: many ranges at once, system calls, pages that stay |

mod change;
mod items;
mod open;
mod position;
mod search;
mod stream;
mod waits;

use crate::engine;
use crate::failure::of_page;
use crate::held::{Held, drop_detached};
use crate::lent::Lent;
use crate::maps;
use crate::memory::{Memory, copy_across};
use core::ffi::c_int;
use open::{Access, Arguments, Opened};
use position::Position;
use pyo3::exceptions::{PyBufferError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use std::fs::File;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A map of a file, or of memory, under an engine's budget: mmap.mmap's interface.
#[pyclass(
    frozen,
    subclass,
    weakref,
    mapping,
    name = "mmap",
    module = "softfault"
)]
pub struct Mmap {
    /// Locked by a thread that has the interpreter's lock, over no wait.
    state: Mutex<State>,
    /// Immutable.
    access: Access,
    /// Byte of the file that it begins with. Immutable.
    offset: u64,
    /// Whether its writes are its own, and not in the file. Immutable.
    is_private: bool,
    /// Whether it keeps a file for `size` and `resize`.
    trackfd: bool,
}

/// The mutable state of a map.
struct State {
    /// `None` once it is closed, and while a resize has it. A call has a reference of its own: a map that is closed meanwhile goes
    /// when that is through.
    memory: Option<Arc<Memory>>,
    /// The file, for its size.
    file: Option<Arc<File>>,
    /// Where it is read and written as a file.
    position: Position,
    /// Buffers that others have of it.
    exports: usize,
    /// The process in which a thread resizes it, or 0: other threads begin no call meanwhile. A child of fork does not have that
    /// thread.
    resized_in: u32,
}

impl State {
    /// True while a thread of this process resizes the map, or is about to.
    fn is_resized(&self) -> bool {
        self.resized_in != 0 && self.resized_in == std::process::id()
    }

    /// True if the map is closed. So it is in a child of a fork in whose midst another thread resized it.
    fn is_closed(&self) -> bool {
        self.memory.is_none() && !self.is_resized()
    }

    /// The memory, if the map is open.
    fn held(&self) -> PyResult<Held> {
        let memory = self.memory.clone();
        let memory = memory.ok_or_else(|| PyValueError::new_err("mmap closed or invalid"))?;
        Ok(memory.into())
    }
}

impl Mmap {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The memory, if the map is open. While another thread resizes the map, this waits for it.
    fn memory(&self) -> PyResult<Held> {
        let state = self.once(|state| !state.is_resized())?;
        state.held()
    }

    /// The state, once something is true of it that another thread brings about. Others run meanwhile.
    fn once(&self, is_true: impl Fn(&State) -> bool) -> PyResult<MutexGuard<'_, State>> {
        loop {
            let state = self.state();
            if is_true(&state) {
                return Ok(state);
            }
            drop(state);
            Python::attach(|py| {
                if is_finalizing(py) {
                    // A thread that has let the interpreter go does not get it again: nobody would bring it about.
                    return Err(PyRuntimeError::new_err(
                        "another thread was in a call on the map when the interpreter began to exit",
                    ));
                }
                py.detach(change::wait_for_others);
                py.check_signals()
            })?;
        }
    }

    /// The memory, if it may be written to.
    fn writable(&self) -> PyResult<Held> {
        let memory = self.memory()?;
        match self.access {
            Access::Read => Err(PyTypeError::new_err(
                "mmap can't modify a readonly memory map.",
            )),
            _ => Ok(memory),
        }
    }

    /// Copies bytes of an object in; they fit.
    fn copy_in(
        &self,
        py: Python<'_>,
        memory: &Memory,
        offset: usize,
        bytes: &Lent,
    ) -> PyResult<()> {
        let (from, len) = bytes.place();
        let other = maps::of_buffer((from, len))?;
        let copied = py.detach(|| match &other {
            Some((other, part)) => copy_across((other, part.start), (memory, offset), len),
            // SAFETY: the bytes are lent, and no map's.
            None => unsafe { memory.copy_in(offset, (from, len)) }.map(drop),
        });
        copied.map_err(of_page)
    }

    /// Takes the memory and the file out, for the caller to drop.
    fn take_out(state: &mut State) -> (Option<Held>, Option<Arc<File>>) {
        let memory = state.memory.take();
        if let Some(memory) = &memory {
            maps::leave(memory);
        }
        (memory.map(Held::from), state.file.take())
    }
}

/// True once the interpreter exits: other threads run no Python code any more. `Py_IsFinalizing` is in the stable ABI from 3.13 on.
fn is_finalizing(py: Python<'_>) -> bool {
    // SAFETY: the name ends with a zero, and this thread has the interpreter's lock.
    let function = unsafe { ffi::PySys_GetObject(c"is_finalizing".as_ptr()) };
    // SAFETY: an object, or null, which `sys` has; it gets a reference of its own here.
    let function = unsafe { Bound::from_borrowed_ptr_or_opt(py, function) };
    // `sys` is empty near the end.
    function.is_none_or(|function| {
        let answer = function.call0().and_then(|answer| answer.is_truthy());
        answer.unwrap_or(true)
    })
}

#[pymethods]
impl Mmap {
    #[new]
    #[pyo3(signature = (fileno, length, flags=libc::MAP_SHARED, prot=libc::PROT_READ | libc::PROT_WRITE, access=0,
                        offset=0, *, trackfd=true, engine=None))]
    #[expect(clippy::too_many_arguments, reason = "mmap.mmap's, and two")]
    fn new(
        py: Python<'_>,
        fileno: i32,
        length: isize,
        flags: i32,
        prot: i32,
        access: i32,
        offset: i64,
        trackfd: bool,
        engine: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let arguments = Arguments::new(fileno, length, (flags, prot, access), offset)?;
        let served = arguments.wants_engine().then(|| engine::of_map(py, engine));
        let served = served.transpose()?;
        // The last reference to an engine that another thread drops meanwhile may go there, too.
        let opened = py.detach(|| {
            let engine = served;
            let mut opened = arguments.open(engine.as_ref())?;
            // A close of a file may wait for a server, as write-back may.
            opened.file.take_if(|_| !trackfd);
            Ok::<_, PyErr>(opened)
        });
        let Opened { memory, file } = opened?;
        let memory = Arc::new(memory);
        maps::enter(&memory, arguments.access() != Access::Read);
        let map = Self {
            state: Mutex::new(State {
                memory: Some(memory),
                file: file.map(Arc::new),
                position: Position::start(),
                exports: 0,
                resized_in: 0,
            }),
            access: arguments.access(),
            is_private: arguments.is_private(),
            offset: offset as u64,
            trackfd,
        };
        if arguments.is_to_be_populated() {
            map.populate_at_first(py, arguments.is_writable_memory())?;
        }
        Ok(map)
    }

    /// Unmaps the map. Raises BufferError while a buffer of it is in use.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        // A resize that has the memory is waited for, and one that waits for others finds the map closed.
        let mut state = self.once(|state| state.memory.is_some() || !state.is_resized())?;
        if state.exports > 0 {
            let text = "cannot close exported pointers exist";
            return Err(PyBufferError::new_err(text));
        }
        let (memory, file) = Self::take_out(&mut state);
        drop(state);
        drop(memory);
        py.detach(|| drop(file));
        Ok(())
    }

    /// True if the map is closed.
    #[getter]
    fn closed(&self) -> bool {
        self.state().is_closed()
    }

    fn __len__(&self) -> PyResult<usize> {
        Ok(self.memory()?.len())
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyResult<PyRef<'_, Self>> {
        slf.memory()?;
        Ok(slf)
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(
        &self,
        py: Python<'_>,
        _exception: &Bound<'_, pyo3::types::PyTuple>,
    ) -> PyResult<()> {
        self.close(py)
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        let name = slf.get_type().fully_qualified_name()?;
        let map = slf.get();
        let state = map.once(|state| state.memory.is_some() || !state.is_resized())?;
        Ok(match &state.memory {
            None => format!("<{name} closed=True>"),
            Some(memory) => format!(
                "<{name} closed=False, access={}, length={}, pos={}, offset={}>",
                map.access.name(),
                memory.len(),
                state.position.at(),
                map.offset
            ),
        })
    }

    /// # Safety
    /// The interpreter's: `view` is to be filled.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let map = slf.get();
        let memory = map.memory()?;
        let read_only = c_int::from(map.access == Access::Read);
        let (start, len) = (memory.start() as *mut core::ffi::c_void, memory.len());
        // SAFETY: the view is the interpreter's to be filled; the memory stays until the view is released, since a map with
        // exports is neither closed nor resized, and the view has a reference to the map.
        let filled = unsafe {
            ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start, len as isize, read_only, flags)
        };
        if filled < 0 {
            return Err(PyErr::fetch(slf.py()));
        }
        map.state().exports += 1;
        Ok(())
    }

    /// # Safety
    /// The interpreter's: `view` was filled by `__getbuffer__`, and is released once.
    unsafe fn __releasebuffer__(&self, _view: *mut ffi::Py_buffer) {
        self.state().exports -= 1;
    }
}

impl Drop for Mmap {
    fn drop(&mut self) {
        let (memory, file) = Self::take_out(&mut self.state());
        drop(memory);
        drop_detached(file);
    }
}
