//! Engines: a budget, the options of its maps, and the choice of the engine of a map.

use crate::failure::raised;
use crate::held::drop_detached;
use crate::plain;
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;
use softfault::{
    Builder, Coherence, Compression, Engine as Served, Fallback, Faults, KernelStats, Reads, Stats,
    Swap,
};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// A budget in bytes, and the maps under it. The Python class `softfault.Engine` is over this one.
#[pyclass(frozen, module = "softfault._native", name = "Engine")]
pub struct Engine {
    /// Immutable.
    recipe: Recipe,
    /// The engine that was built, its process, and the last requested budget. Locked by a thread that has the
    /// interpreter's lock, over no wait.
    built: Mutex<Built>,
}

/// The settings of an engine.
struct Recipe {
    swap: Option<Swap>,
    max_memory: Option<usize>,
    reads: Option<Reads>,
    coherence: Option<Coherence>,
    faults: Option<Faults>,
    allow_kernel_maps: Option<bool>,
    small_maps: Option<usize>,
    fallback: Fallback,
}

struct Built {
    memory: Option<usize>,
    engine: Option<(u32, Arc<OfProcess>)>,
}

/// The engine of one process. A child of fork does not use its parent's, which another thread may have been building.
#[derive(Default)]
struct OfProcess {
    engine: OnceLock<Served>,
    /// Locked by a thread that builds the engine, without the interpreter's lock.
    building: Mutex<()>,
}

impl OfProcess {
    /// The engine, built by the first thread that asks for it.
    fn get_or_build(&self, build: impl FnOnce() -> io::Result<Served>) -> io::Result<Served> {
        let _building = self.building.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(engine) = self.engine.get() {
            return Ok(engine.clone());
        }
        let engine = build()?;
        Ok(self.engine.get_or_init(|| engine).clone())
    }
}

impl Engine {
    fn built(&self) -> MutexGuard<'_, Built> {
        self.built.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The engine as this process has it: a child of fork makes its own, of the same budget. The parent's
    /// maps handle the fork themselves.
    pub(crate) fn here(&self, py: Python<'_>) -> PyResult<Served> {
        let mut built = self.built();
        let (here, memory) = (std::process::id(), built.memory);
        let (of_process, parents) = match &built.engine {
            Some((process, engine)) if *process == here => (engine.clone(), None),
            _ => {
                let engine = Arc::<OfProcess>::default();
                let parents = built.engine.replace((here, engine.clone()));
                (engine, parents)
            }
        };
        // Nothing is locked while the interpreter is given up: a thread that has it may want that lock.
        drop(built);
        drop_detached(parents);
        if let Some(engine) = of_process.engine.get() {
            return Ok(engine.clone());
        }
        // It may have to make a swap file.
        let done = py.detach(|| of_process.get_or_build(|| self.builder(memory).build()));
        done.map_err(raised)
    }

    fn builder(&self, memory: Option<usize>) -> Builder {
        let recipe = &self.recipe;
        let mut builder = Served::builder().fallback(recipe.fallback);
        if let Some(memory) = memory {
            builder = builder.memory(memory);
        }
        if let Some(most) = recipe.max_memory {
            builder = builder.max_memory(most);
        }
        if let Some(swap) = &recipe.swap {
            builder = builder.swap(swap.clone());
        }
        if let Some(reads) = recipe.reads {
            builder = builder.reads(reads);
        }
        if let Some(coherence) = recipe.coherence {
            builder = builder.coherence(coherence);
        }
        if let Some(faults) = recipe.faults {
            builder = builder.faults(faults);
        }
        if let Some(may) = recipe.allow_kernel_maps {
            builder = builder.allow_kernel_maps(may);
        }
        if let Some(bytes) = recipe.small_maps {
            builder = builder.small_maps(bytes);
        }
        builder
    }
}

#[pymethods]
impl Engine {
    #[new]
    #[pyo3(signature = (*, memory=None, max_memory=None, swap=None, swap_bytes=None, compression=None, reads=None,
                        coherence=None, faults=None, allow_kernel_maps=None, small_maps=None, fallback="kernel"))]
    #[expect(clippy::too_many_arguments, reason = "keywords of Python")]
    fn new(
        memory: Option<usize>,
        max_memory: Option<usize>,
        swap: Option<PathBuf>,
        swap_bytes: Option<u64>,
        compression: Option<&str>,
        reads: Option<&str>,
        coherence: Option<&str>,
        faults: Option<&str>,
        allow_kernel_maps: Option<bool>,
        small_maps: Option<usize>,
        fallback: &str,
        py: Python<'_>,
    ) -> PyResult<Self> {
        let ways = [("none", Compression::None), ("lz4", Compression::Lz4)];
        let compression = one_of("compression", compression, &ways)?;
        if swap.is_none() && (swap_bytes.is_some() || compression.is_some()) {
            let text = "a swap size or a compression needs a swap directory (swap=)";
            return Err(PyTypeError::new_err(text));
        }
        let swap = swap.map(|directory| {
            let mut swap = Swap::in_dir(directory);
            if let Some(bytes) = swap_bytes {
                swap = swap.bytes(bytes);
            }
            swap.compression(compression.unwrap_or_default())
        });
        let all = [
            ("direct", Reads::Direct),
            ("cached", Reads::Cached),
            ("auto", Reads::Auto),
        ];
        let reads = one_of("reads", reads, &all)?;
        let servers = [("kernel", Coherence::Kernel), ("engine", Coherence::Engine)];
        let coherence = one_of("coherence", coherence, &servers)?;
        let ways = [
            ("signals", Faults::Signals),
            ("threads", Faults::Threads),
            ("messages", Faults::Messages),
        ];
        let faults = one_of("faults", faults, &ways)?;
        let fallbacks = [("kernel", Fallback::Kernel), ("error", Fallback::Error)];
        let fallback = one_of("fallback", Some(fallback), &fallbacks)?.unwrap_or_default();
        let engine = Self {
            recipe: Recipe {
                swap,
                max_memory,
                reads,
                coherence,
                faults,
                allow_kernel_maps,
                small_maps,
                fallback,
            },
            built: Mutex::new(Built {
                memory,
                engine: None,
            }),
        };
        engine.here(py)?;
        Ok(engine)
    }

    /// Changes the budget, and evicts down to it.
    fn set_memory(&self, py: Python<'_>, bytes: usize) -> PyResult<()> {
        let engine = self.here(py)?;
        py.detach(|| engine.set_memory(bytes)).map_err(raised)?;
        self.built().memory = Some(bytes);
        Ok(())
    }

    /// Closes the files that have no map any more, and drops their pages.
    fn close_idle(&self, py: Python<'_>) -> PyResult<()> {
        let engine = self.here(py)?;
        py.detach(|| engine.close_idle());
        Ok(())
    }

    /// The engine's counters in this process, as numbers by name.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let engine = self.here(py)?;
        let stats = py.detach(|| engine.stats());
        as_dict(py, &stats)
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // The last reference to an engine ends its threads, and removes its swap file.
        let engine = self.built().engine.take();
        drop_detached(engine);
    }
}

fn one_of<T: Copy>(name: &str, value: Option<&str>, values: &[(&str, T)]) -> PyResult<Option<T>> {
    let Some(value) = value else {
        return Ok(None);
    };
    let found = values.iter().find(|(known, _)| *known == value);
    found.map(|(_, value)| Some(*value)).ok_or_else(|| {
        let known: Vec<&str> = values.iter().map(|(known, _)| *known).collect();
        PyValueError::new_err(format!(
            "{name} must be {}, and is {value:?}",
            known.join(" or ")
        ))
    })
}

fn as_dict<'py>(py: Python<'py>, s: &Stats) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    let swap = s.swap.unwrap_or_default();
    let KernelStats {
        small_maps,
        shared_maps,
        shared_bytes,
        switched_to_kernel,
        ..
    } = s.kernel;
    for (name, count) in [
        ("budget_bytes", s.budget_bytes),
        ("resident_bytes", s.resident_bytes),
        ("peak_bytes", s.peak_bytes),
        ("faults", s.faults),
        ("minor_faults", s.minor_faults),
        ("major_faults", s.major_faults),
        ("failed_touches", s.failed_touches),
        ("memory_waits", s.memory_waits),
        ("readahead_pages", s.readahead_pages),
        ("readahead_used", s.readahead_used),
        ("readahead_dropped", s.readahead_dropped),
        ("anonymous_faults", s.anonymous_faults),
        ("bytes_read", s.bytes_read),
        ("read_cached_bytes", s.read_cached_bytes),
        ("read_direct_bytes", s.read_direct_bytes),
        ("read_errors", s.read_errors),
        ("dirty_bytes", s.dirty_bytes),
        ("written_back_bytes", s.written_back_bytes),
        ("write_errors", s.write_errors),
        ("evicted", s.evicted),
        ("refaults", s.refaults),
        ("windows", s.windows),
        ("idle_windows", s.idle_windows),
        ("swap_pages_out", swap.pages_out),
        ("swap_pages_in", swap.pages_in),
        ("swap_write_errors", swap.write_errors),
        ("swap_full", swap.full),
        ("swap_slots_used", swap.slots_used),
        ("swap_slots_total", swap.slots_total),
        ("kernel_small_maps", small_maps),
        ("kernel_shared_maps", shared_maps),
        ("kernel_shared_bytes", shared_bytes),
        ("kernel_switches", switched_to_kernel),
        ("kernel_other_maps", plain::made()),
    ] {
        dict.set_item(name, count)?;
    }
    dict.set_item("kernel_fallback", s.kernel_fallback)?;
    Ok(dict)
}

/// Puts the handler of SIGBUS in front of one that was installed after it, if there is one of ours. False if the other stays in
/// front.
#[pyfunction]
pub(crate) fn reinstall_handler() -> bool {
    softfault::reinstall_handler()
}

/// Says which engine a map is made under that names none.
static CURRENT: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// Sets the function that answers the current engine. Called once, by the package.
#[pyfunction]
pub(crate) fn set_current(py: Python<'_>, function: Py<PyAny>) {
    let _ = CURRENT.set(py, function);
}

/// The engine of a map that is made with `named`.
pub(crate) fn of_map(py: Python<'_>, named: Option<&Bound<'_, PyAny>>) -> PyResult<Served> {
    let object = match named {
        Some(named) => named.clone(),
        None => {
            let function = CURRENT.get(py);
            let function = function.ok_or_else(|| {
                PyRuntimeError::new_err("import softfault, and not softfault._native")
            })?;
            function.bind(py).call0()?
        }
    };
    let wrong = || {
        PyTypeError::new_err("engine must be a softfault.Engine, or None for the current engine")
    };
    let native = object.getattr_opt("_native")?.ok_or_else(wrong)?;
    let native = native.cast_into::<Engine>().map_err(|_| wrong())?;
    native.get().here(py)
}

/// A number of bytes, with K, M, G or T (powers of 1024) behind it.
#[pyfunction]
pub(crate) fn parse_size(text: &str) -> PyResult<usize> {
    let size = softfault::parse_bytes(text);
    size.ok_or_else(|| {
        PyValueError::new_err(format!(
            "{text:?} is no size: a size is a whole number of bytes, or one followed by K, M, G or T"
        ))
    })
}
