//! Ctrl-C (and SIGTERM, SIGHUP) as a flag: the command ends through its ordinary way out, which kills
//! children and removes cgroups; the files it makes have no name to leave behind. While results are put out there is
//! nothing left to clean, and the signal ends the process itself.

use crate::error::Error;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};

/// Whether a signal has asked for the end, and which.
#[derive(Clone)]
pub struct Interrupt(Arc<AtomicUsize>);

/// The one of this process, if it catches signals.
static CAUGHT: OnceLock<Interrupt> = OnceLock::new();
/// Whether a signal ends the process at once.
static ENDS: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// As long as it lives, a signal ends the process at once: output may wait for its reader, for ever.
pub struct Output(());

impl Output {
    /// `Err(Interrupted)` if a signal has come already.
    pub fn begin() -> Result<Self, Error> {
        // Before the look: a signal is seen by one of the two.
        ENDS.store(true, Ordering::SeqCst);
        let output = Self(());
        CAUGHT.get().map_or(Ok(()), Interrupt::check)?;
        Ok(output)
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        ENDS.store(false, Ordering::SeqCst);
    }
}

impl Interrupt {
    /// From here on the three signals only set the flag, except during [`Output`]. A signal that whoever started the command has set to be ignored, as
    /// nohup(1) does and a shell for jobs in the background, stays ignored.
    pub fn catch() -> Result<Self, Error> {
        let flag = Arc::new(AtomicUsize::new(0));
        let caught = [SIGINT, SIGTERM, SIGHUP];
        for signal in caught.into_iter().filter(|&signal| !is_ignored(signal)) {
            signal_hook::flag::register_conditional_default(signal, ENDS.clone())
                .and_then(|_| {
                    signal_hook::flag::register_usize(signal, flag.clone(), signal as usize)
                })
                .map_err(|e| Error::failed(format_args!("cannot catch signal {signal}: {e}")))?;
        }
        Ok(CAUGHT.get_or_init(|| Self(flag)).clone())
    }

    /// `Err(Interrupted)` once a signal has come.
    pub fn check(&self) -> Result<(), Error> {
        // Relaxed: the number is all there is to see.
        match self.0.load(Ordering::Relaxed) {
            0 => Ok(()),
            signal => Err(Error::Interrupted(signal as i32)),
        }
    }
}

fn is_ignored(signal: i32) -> bool {
    // SAFETY: zeros are a value of each field.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: only asks.
    let asked = unsafe { libc::sigaction(signal, std::ptr::null(), &mut action) };
    asked == 0 && action.sa_sigaction == libc::SIG_IGN
}
