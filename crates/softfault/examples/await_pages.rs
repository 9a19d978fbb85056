//! Awaits pages, so that a thread of an executor does not wait in a page fault. The executor here is the least that
//! there can be: it polls one future and sleeps until it is woken.
//!
//! `cargo run --release --example await_pages -- FILE`

use softfault::Engine;
use std::fs::File;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args_os().nth(1).expect("the path of a file");
    let file = File::open(path)?;
    let engine = Engine::builder().memory(64 << 20).build()?;
    // SAFETY: nobody writes to the file meanwhile.
    let map = unsafe { engine.map(&file) }?;
    let end = map.len().min(1 << 20);
    block_on(map.fault_in(..end))?;
    let faults = engine.stats().faults;
    let sum: u64 = map[..end].iter().map(|&byte| u64::from(byte)).sum();
    println!(
        "{end} bytes sum up to {sum}; {} faults since they were awaited",
        engine.stats().faults - faults
    );
    Ok(())
}
