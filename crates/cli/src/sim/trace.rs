//! All operations of a run, a line each.

use crate::error::Error;
use crate::interrupt::{Interrupt, Output};
use crate::output::{self, Sink};
use softfault_sim::Outcome;
use std::io::{self, BufWriter, ErrorKind, Write};

/// Events between two looks for a signal.
const LOOK: usize = 1 << 16;

/// Writes the trace of a run.
pub fn write(sink: &Sink, outcome: &Outcome, interrupt: &Interrupt) -> Result<(), Error> {
    let lines = |name: &str, out: &mut dyn Write| {
        for (at, event) in outcome.report.trace.iter().flatten().enumerate() {
            if at % LOOK == 0 {
                interrupt.check()?;
            }
            match writeln!(out, "{event}") {
                // The reader has seen enough.
                Err(e) if e.kind() == ErrorKind::BrokenPipe => return Ok(()),
                written => written.map_err(|e| cannot(name, &e))?,
            }
        }
        out.flush().map_err(|e| cannot(name, &e))
    };
    match sink {
        Sink::Stdout => {
            let _output = Output::begin()?;
            lines("stdout", &mut BufWriter::new(io::stdout().lock()))
        }
        Sink::File(path) => {
            let name = path.display().to_string();
            output::write_by(path, &|out| lines(&name, out))
        }
    }
}

fn cannot(name: &str, error: &io::Error) -> Error {
    Error::input(format_args!("cannot write {name}: {error}"))
}
