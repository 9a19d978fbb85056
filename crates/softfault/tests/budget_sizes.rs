//! Budgets of any size: an engine, or an error that names the size.

mod files;
mod proc;

use files::{check, made_file};
use softfault::{Engine, HugeMemory, MIN_MEMORY, Swap};
use std::io::{self, ErrorKind};

const SIZES: [usize; 16] = [
    0,
    1,
    4095,
    MIN_MEMORY - 1,
    MIN_MEMORY,
    MIN_MEMORY + 1,
    64 << 20,
    (1 << 32) - 1,
    1 << 32,
    1 << 44,
    1 << 46,
    (1 << 47) + 4096,
    1 << 62,
    (1 << 63) - 1,
    1 << 63,
    usize::MAX,
];

/// The machine's memory, read independently of the library.
fn machine() -> usize {
    proc::machine("MemTotal") + proc::machine("SwapTotal")
}

/// Checks the result of asking for `bytes`; true if there is an engine.
#[track_caller]
fn answer<T>(bytes: usize, made: &io::Result<T>) -> bool {
    match made {
        Ok(_) => {
            assert!(bytes >= MIN_MEMORY, "{bytes}");
            assert!(bytes <= machine(), "{bytes}");
            true
        }
        Err(error) if bytes < MIN_MEMORY => {
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{bytes}: {error}");
            assert!(error.to_string().contains("at least 8 MiB"), "{error}");
            false
        }
        Err(error) => {
            assert!(bytes > machine() / 2, "{bytes}: {error}");
            assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{bytes}: {error}");
            let said = error.to_string();
            assert!(said.contains(&(bytes >> 20).to_string()), "{said}");
            assert!(
                !said.contains('\n') && said.contains("this machine has"),
                "{said}"
            );
            false
        }
    }
}

#[test]
fn any_budget_is_an_engine_or_an_error() {
    let file = made_file("sizes", 1 << 20);
    for bytes in SIZES {
        let made = Engine::builder()
            .allow_kernel_maps(false)
            .memory(bytes)
            .build();
        if answer(bytes, &made) {
            // SAFETY: nobody writes to the file.
            let map = unsafe { made.unwrap().map(&file) }.unwrap();
            check(&map, 77_777);
        }
        let made = Engine::builder()
            .allow_kernel_maps(false)
            .memory(bytes)
            .build_soft();
        if answer(bytes, &made) {
            let map = made.unwrap().map(&file).unwrap();
            map.read_at(&mut [0; 9], 4095).unwrap();
        }
    }
}

#[test]
fn a_budget_can_be_raised_as_far_as_the_machine_goes() {
    for most in SIZES {
        let builder = Engine::builder()
            .allow_kernel_maps(false)
            .memory(MIN_MEMORY)
            .max_memory(most);
        let engine = builder.clone().build().unwrap();
        let soft = builder.build_soft().unwrap();
        for bytes in SIZES {
            // Whole pages count.
            let most = most.clamp(MIN_MEMORY, machine()) / 4096;
            let fits = (MIN_MEMORY / 4096..=most).contains(&(bytes / 4096));
            for set in [engine.set_memory(bytes), soft.set_memory(bytes)] {
                match set {
                    Ok(()) => assert!(fits, "{bytes} of {most}"),
                    // The bookkeeping of a larger budget is paid from it.
                    Err(error) => assert!(!fits || bytes > 64 << 20, "{bytes} of {most}: {error}"),
                }
            }
        }
        engine.set_memory(MIN_MEMORY).unwrap();
        soft.set_memory(MIN_MEMORY).unwrap();
        engine.map_anon(1 << 20).unwrap()[5] = 5;
    }
}

#[test]
fn an_engine_within_another_asks_for_any_budget() {
    let outer = files::engine(64 << 20);
    for bytes in SIZES {
        let made = Engine::builder()
            .allow_kernel_maps(false)
            .memory(bytes)
            .within(&outer)
            .build();
        if let Ok(inner) = &made {
            inner.map_anon(1 << 20).unwrap()[5] = 5;
        }
        assert!(made.is_ok() || bytes != MIN_MEMORY);
    }
}

#[test]
fn swap_and_huge_memory_of_any_size_are_an_error_at_worst() {
    for bytes in SIZES {
        let swap = Swap::in_dir(env!("CARGO_TARGET_TMPDIR")).bytes(bytes as u64);
        match Engine::builder()
            .allow_kernel_maps(false)
            .memory(MIN_MEMORY)
            .swap(swap)
            .build()
        {
            Ok(engine) => drop(engine.map_anon(1 << 20).unwrap()),
            Err(error) => println!("swap of {bytes}: {error}"),
        }
        match HugeMemory::builder().create(bytes as u64) {
            Ok(memory) => drop(memory),
            Err(error) => println!("huge memory of {bytes}: {error}"),
        }
    }
}
