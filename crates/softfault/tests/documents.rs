//! The code of the documents, compiled. Each block of Rust that they show is a part of this file, line by line;
//! the code that it takes for granted is around it.

#![allow(
    dead_code,
    unused_variables,
    unused_mut,
    clippy::undocumented_unsafe_blocks
)]

use std::error::Error;
use std::fs::File;
use std::net::TcpStream;
use std::ops::Range;
use std::os::fd::{AsFd as _, OwnedFd};

const THIS: &str = include_str!("documents.rs");
const DOCUMENTS: [(&str, &str); 3] = [
    ("README.md", include_str!("../../../README.md")),
    ("docs/huge.md", include_str!("../../../docs/huge.md")),
    ("docs/swap.md", include_str!("../../../docs/swap.md")),
];

#[test]
fn every_block_of_code_is_compiled_here() {
    let packed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let here = packed(THIS);
    let mut blocks = 0;
    for (name, text) in DOCUMENTS {
        for block in text.split("```rust\n").skip(1) {
            let block = block.split("```").next().expect("a block has an end");
            assert!(
                here.contains(&packed(block)),
                "{name}, not as here:\n{block}"
            );
            blocks += 1;
        }
    }
    assert!(blocks >= 5, "only {blocks} blocks");
}

#[rustfmt::skip]
mod first {
    use softfault::Engine;
    use std::fs::File;

    fn main() -> std::io::Result<()> {
        let file = File::open("records")?;
        let engine = Engine::builder().memory(1 << 30).allow_kernel_maps(false).build()?;
        // SAFETY: nobody writes to the file meanwhile.
        let map = unsafe { engine.map(&file)? };        // Deref<Target = [u8]>
        println!("{}", map[map.len() / 2]);             // a page fault: the engine reads one page
        println!("{} bytes at most", engine.stats().peak_bytes);
        Ok(())
    }
}

#[rustfmt::skip]
async fn use_it(file: File, wanted: Vec<Range<usize>>, mut socket: TcpStream) -> Result<(), Box<dyn Error>> {
    use softfault::{Advice, Engine, Swap};

    let swap = Swap::in_dir("/var/tmp").bytes(8 << 30);
    let engine = Engine::builder().memory(1 << 30).swap(swap).build()?;
    // SAFETY: nobody writes to the file meanwhile.
    let map = unsafe { engine.map(&file)? };
    let mut table = engine.map_anon(4 << 30)?;      // zeros; pages that do not fit go to swap; SIGBUS without swap
    let mut copy = unsafe { engine.map_copy(&file)? }; // private: writes stay in this map
    let pinned = map.pin(0..4096)?;                 // an I/O error is a value here; in a plain touch it is SIGBUS
    map.fault_in(1 << 20..2 << 20).await?;          // does not block an executor; to stay in memory, pin
    let answers = map.fault_in_many(&wanted).await; // thousands of ranges: one thread, many reads, an answer each
    map.write_to(.., &mut socket)?;                 // system calls on cold memory
    map.advise(Advice::Random)?;
    engine.set_memory(512 << 20)?;
    println!("{:#?}", engine.stats());
    Ok(())
}

#[rustfmt::skip]
fn huge(fd: OwnedFd) -> Result<(), Box<dyn Error>> {
    use softfault::{HugeMemory, HugeSize};

    let buffers = HugeMemory::builder().page_size(HugeSize::TwoMiB).create(8 << 30)?;
    let map = buffers.map()?;                       // huge pages of the pool, reserved; without a pool transparent or small ones
    let same = HugeMemory::from_fd(fd)?;            // in another process
    Ok(())
}

#[rustfmt::skip]
fn soft(file: File, mut buffer: [u8; 64], offset: usize) -> Result<(), Box<dyn Error>> {
    use softfault::Engine;

    let engine = Engine::builder().memory(1 << 30).build_soft()?;
    let map = engine.map(&file)?;
    map.read_at(&mut buffer, offset)?;              // safe: bytes are copied
    let snapshot = engine.fork()?;                  // all anonymous memory at one moment
    Ok(())
}

#[rustfmt::skip]
fn of_huge() -> Result<(), Box<dyn Error>> {
    use softfault::{HugeMapOptions, HugeMemory, HugeSize};

    let buffers = HugeMemory::builder().page_size(HugeSize::TwoMiB).create(8 << 30)?;
    let map = buffers.map()?;                       // reserved here, or an error with the remedy
    map.write_at(b"page 0", 0)?;                    // copies; as_ptr, as_mut_ptr, as_slice (unsafe) as well
    map.populate(0..1 << 30)?;                      // errors are values
    let reader = HugeMapOptions::new().read_only(true).map(&buffers)?;

    let fd = buffers.as_fd();                       // to another process: inherited, or over a socket
    let same = HugeMemory::from_fd(fd.try_clone_to_owned()?)?;

    buffers.punch_hole(2 << 20..6 << 20)?;          // given back, in all maps
    buffers.truncate(4 << 30)?;
    Ok(())
}

#[rustfmt::skip]
fn of_soft_huge() -> Result<(), Box<dyn Error>> {
    use softfault::Engine;

    let engine = Engine::builder().memory(1 << 30).huge_pages(256 << 20).build_soft()?;
    let memory = engine.huge_file(64 << 20)?;       // zeros until written, the same in all maps
    let (map, other) = (memory.map()?, memory.map()?);
    map.write_at(b"page 0", 0)?;                    // seen by `other`, and by forks of the engine
    memory.punch_hole(0..2 << 20)?;                 // given back, for all
    Ok(())
}

#[rustfmt::skip]
fn of_swap() -> Result<(), Box<dyn Error>> {
    use softfault::{Compression, Engine, Swap};

    let swap = Swap::in_dir("/var/tmp").bytes(8 << 30).compression(Compression::Lz4);
    let engine = Engine::builder().memory(1 << 30).swap(swap).build()?;
    println!("{:#?}", engine.stats().swap);
    Ok(())
}
