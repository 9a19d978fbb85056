//! All operations of a run, a line each.

use crate::error::Error;
use crate::interrupt::Interrupt;
use crate::output::Sink;
use softfault_sim::Outcome;
use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, Write};

/// Events between two looks for a signal.
const LOOK: usize = 1 << 16;

/// Writes the trace of a run.
pub fn write(sink: &Sink, outcome: &Outcome, interrupt: &Interrupt) -> Result<(), Error> {
    let (name, out): (String, Box<dyn Write>) = match sink {
        Sink::Stdout => ("stdout".into(), Box::new(io::stdout().lock())),
        Sink::File(path) => {
            let file = File::create(path).map_err(|e| cannot(&path.display().to_string(), &e))?;
            (path.display().to_string(), Box::new(file))
        }
    };
    let mut out = BufWriter::new(out);
    for (at, event) in outcome.report.trace.iter().flatten().enumerate() {
        if at % LOOK == 0 {
            interrupt.check()?;
        }
        match writeln!(out, "{event}") {
            // The reader has seen enough.
            Err(e) if e.kind() == ErrorKind::BrokenPipe => return Ok(()),
            written => written.map_err(|e| cannot(&name, &e))?,
        }
    }
    out.flush().map_err(|e| cannot(&name, &e))
}

fn cannot(name: &str, error: &io::Error) -> Error {
    Error::input(format_args!("cannot write {name}: {error}"))
}
