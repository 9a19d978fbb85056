//! The verbs of write protection, on a machine of two processors.

use super::UffdMmu;
use crate::job::{Job, Workload};
use crate::{preset, world};
use softfault_engine::mm::Protection;
use softfault_engine::mmu::{Access, Mmu, Reservation, SoftMmu, Zeroed};
use softfault_engine::{Clock, PAGE_SIZE};
use std::slice::from_ref;
use sync::Arc;

struct Now;

impl Clock for Now {
    fn now_ns(&self) -> u64 {
        world::now_ns()
    }
}

/// Runs `act` on a machine of two processors, in a window of 64 pages.
fn on_machine(act: impl FnOnce(&Arc<UffdMmu>, &Reservation)) {
    let job = Job::new(Workload::Pft, preset::named("x86-256").unwrap(), 2, 2);
    let config = world::Config::new(job.topology.clone(), 2, 1);
    let ran = world::run(config, || {
        let soft = Arc::new(SoftMmu::with_memory(16 << 20).unwrap());
        let clock: Arc<dyn Clock> = Arc::new(Now);
        let mmu = Arc::new(UffdMmu::new(&job, &soft, &clock));
        let window = mmu.reserve(64 * PAGE_SIZE, Protection::ReadWrite).unwrap();
        act(&mmu, &window);
        mmu.release(window);
        mmu.close();
    });
    ran.unwrap();
}

fn page(window: &Reservation, page: usize) -> usize {
    window.addr + page * PAGE_SIZE
}

fn word(mmu: &UffdMmu, addr: usize) -> Option<u64> {
    let page = mmu.windows.page(addr & !(PAGE_SIZE - 1))?;
    Some(page.word(addr % PAGE_SIZE))
}

fn time(act: impl FnOnce()) -> u64 {
    let before = world::now_ns();
    act();
    world::now_ns() - before
}

#[test]
fn protected_pages_are_not_written_to_and_keep_their_words() {
    on_machine(|mmu, window| {
        let (first, later) = (page(window, 3), page(window, 3) + 800);
        mmu.fill(window, first, PAGE_SIZE).unwrap();
        assert!(mmu.windows.write(first, 1) && mmu.windows.write(later, 2));
        mmu.protect(from_ref(&window.range()));
        assert!(!mmu.windows.write(later, 3));
        let mut saved = [0_u8; PAGE_SIZE];
        // SAFETY: a page that is there.
        unsafe {
            mmu.bytes(window, first)
                .copy_to(saved.as_mut_ptr(), PAGE_SIZE)
        };
        mmu.zap(core::slice::from_ref(&(first..first + PAGE_SIZE)));
        assert_eq!(word(mmu, first), None);
        // SAFETY: a page to copy from.
        unsafe { mmu.copy((window, first), &raw const saved, Access::ReadOnly) }.unwrap();
        assert_eq!((word(mmu, first), word(mmu, later)), (Some(1), Some(2)));
        assert!(!mmu.windows.write(later, 3));
        let other = mmu.reserve(64 * PAGE_SIZE, Protection::ReadWrite).unwrap();
        let moved = mmu.move_pages((window, window.addr), (&other, other.addr), window.bytes);
        moved.unwrap();
        assert_eq!(word(mmu, first), None);
        let later = page(&other, 3) + 800;
        assert!(word(mmu, later) == Some(2) && !mmu.windows.write(later, 3));
        mmu.make_writable(&other, page(&other, 3)).unwrap();
        assert!(mmu.windows.write(later, 3));
        mmu.release(other);
    });
}

#[test]
fn zeros_are_nothing_unless_somebody_writes_to_them_at_once() {
    on_machine(|mmu, window| {
        let addr = page(window, 0);
        assert_eq!(mmu.zero_page(window, addr), Ok(Zeroed::Nothing));
        assert!(word(mmu, addr) == Some(0) && !mmu.windows.write(addr, 1));
        mmu.make_writable(window, addr).unwrap();
        assert!(mmu.windows.write(addr, 1));
        let addr = page(window, 1);
        let writer = {
            let mmu = mmu.clone();
            sync::thread::spawn(move || {
                while !mmu.windows.write(addr, 7) {
                    mmu.kernel.access();
                }
            })
        };
        // The writer has begun.
        world::sleep_until_ns(world::now_ns() + 100_000);
        assert_eq!(mmu.zero_page(window, addr), Ok(Zeroed::Memory));
        writer.join().unwrap();
        assert!(word(mmu, addr) == Some(7) && mmu.windows.write(addr, 8));
    });
}

#[test]
fn protection_costs_by_its_pages_and_interrupted_cpus() {
    on_machine(|mmu, window| {
        let all = window.range();
        let nothing = time(|| mmu.protect(from_ref(&all)));
        mmu.fill(window, window.addr, PAGE_SIZE).unwrap();
        let one = time(|| mmu.protect(from_ref(&all)));
        mmu.fill(window, window.addr, window.bytes).unwrap();
        let many = time(|| mmu.protect(from_ref(&all)));
        assert!(nothing < one && one < many, "{nothing} {one} {many}");
        assert!(many < 64 * one, "one call for all");
        let again = time(|| mmu.protect(from_ref(&all)));
        assert!(again < one, "nobody has to be told: {again} {one}");
    });
}
