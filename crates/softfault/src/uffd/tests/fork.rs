//! A window that a child of fork inherits, and the child's use of
//! it.

use super::served::serve;
use super::{copy, of, page, present, read, real, reserve, write};
use crate::table::in_child::{check, forked};
use crate::uffd::UffdMmu;
use core::sync::atomic::{AtomicUsize, Ordering};
use softfault_engine::PAGE_SIZE;
use softfault_engine::mmu::{Access, Mmu, Reservation, Zeroed};
use std::slice::from_ref;
use std::sync::{Arc, OnceLock};

#[test]
fn a_child_adopts_inherited_memory() {
    let mmu = Arc::new(real());
    let window = reserve(&mmu, 16);
    // SAFETY: advice about a mapping.
    unsafe { libc::madvise(window.addr as *mut _, window.bytes, libc::MADV_DOFORK) };
    copy(&mmu, &window, 0, 1, Access::Writable).unwrap();
    copy(&mmu, &window, 1, 2, Access::ReadOnly).unwrap();
    assert_eq!(
        mmu.zero_page(&window, page(&window, 2)),
        Ok(Zeroed::Nothing)
    );
    // The child's window has another descriptor, hence another token.
    let token = Arc::new(AtomicUsize::new(window.token as usize));
    let childs = Arc::new(OnceLock::<UffdMmu>::new());
    let faults = {
        let (mmu, window, token) = (mmu.clone(), window.clone(), token.clone());
        let childs = childs.clone();
        serve(&window.clone(), move |addr, write| {
            let mmu = childs.get().unwrap_or(&mmu);
            let token = token.load(Ordering::Relaxed) as u32;
            let window = Reservation { token, ..window };
            let there = addr < page(&window, 3);
            match there && write {
                true => mmu.make_writable(&window, addr).unwrap(),
                false => mmu.fill(&window, addr, PAGE_SIZE).unwrap(),
            }
        })
    };
    let windows = mmu.fork_prepare();
    forked(|| {
        mmu.fork_child(&windows, |start| start == window.addr, |_| {});
        let Ok(own) = UffdMmu::new(crate::Faults::Signals) else {
            return 1;
        };
        let mmu = childs.get_or_init(|| own);
        let Ok(own) = mmu.adopt(window.range(), &windows) else {
            return 1;
        };
        mmu.was_adopted(&window.range(), &windows);
        token.store(own.token as usize, Ordering::Relaxed);
        check!(read(&own, 0) == of(1) && read(&own, 1) == of(2) && read(&own, 2) == 0);
        check!(faults.take() == (0, 0));
        // Missing pages are missing, and not the kernel's zeros.
        check!(read(&own, 3) == 0 && faults.take() == (1, 0));
        // Protection is not inherited.
        write(&own, 1, 3);
        check!(faults.take() == (0, 0) && read(&own, 1) == 3);
        mmu.protect(from_ref(&(page(&own, 0)..page(&own, 3))));
        for at in 0..3 {
            write(&own, at, 4);
            check!(faults.take() == (0, 1));
        }
        // Zeros of the child's own can be asked about.
        check!(mmu.zero_page(&own, page(&own, 4)) == Ok(Zeroed::Nothing));
        mmu.zap(&[page(&own, 0)..page(&own, 1), page(&own, 1)..page(&own, 2)]);
        check!(!present(&own)[0] && !present(&own)[1]);
        0
    });
    // All is as it was, and so is the protection.
    assert_eq!(
        (read(&window, 0), read(&window, 1), read(&window, 2)),
        (of(1), of(2), 0)
    );
    assert_eq!(present(&window)[..5], [true, true, true, false, false]);
    assert_eq!(faults.take(), (0, 0));
    write(&window, 0, 5);
    assert_eq!(faults.take(), (0, 0));
    for at in [1, 2] {
        write(&window, at, 5);
        assert_eq!(faults.take(), (0, 1), "page {at}");
    }
}

/// Something else is put there: as a spare window it would be one that nobody serves.
#[test]
fn a_window_that_a_child_has_lost_is_no_spare() {
    let mmu = real();
    let window = reserve(&mmu, 16);
    copy(&mmu, &window, 3, 1, Access::Writable).unwrap();
    // SAFETY: advice about a mapping.
    unsafe { libc::madvise(window.addr as *mut _, window.bytes, libc::MADV_DOFORK) };
    let windows = mmu.fork_prepare();
    let in_child = |adopted: bool, lost: fn(&UffdMmu, &Reservation)| {
        mmu.fork_child(&windows, |start| start == window.addr, |_| {});
        let Ok(mmu) = UffdMmu::new(crate::Faults::Signals) else {
            return 1;
        };
        let Ok(own) = mmu.adopt(window.range(), &windows) else {
            return 1;
        };
        if adopted {
            mmu.was_adopted(&window.range(), &windows);
        }
        lost(&mmu, &own);
        mmu.release(own);
        // Nothing comes to be there before the place is closed.
        check!(adopted || read(&window, 3) == of(1));
        let other = reserve(&mmu, 16);
        check!(other.addr != window.addr || adopted);
        // It is served.
        check!(copy(&mmu, &other, 3, 2, Access::Writable) == Ok(()));
        check!(read(&other, 3) == of(2));
        0
    };
    forked(|| in_child(false, |_, _| ()));
    forked(|| in_child(true, |mmu, own| mmu.close_part(&own.range())));
}

/// Threads that give parts away wait for the end of the fork. Zaps do not, nor for them.
#[test]
fn a_fork_keeps_given_parts_as_they_are_and_no_zap_waiting() {
    let mmu = real();
    let window = reserve(&mmu, 16);
    let part = page(&window, 4)..page(&window, 8);
    let forks = mmu.fork_prepare();
    assert!(mmu.given.may_give() && !mmu.given.may_change());
    std::thread::scope(|scope| {
        let (mmu, window, part) = (&mmu, &window, &part);
        let gives = scope.spawn(move || {
            // SAFETY: nobody serves a fault there.
            unsafe { mmu.give(window, part) }
        });
        mmu.zap(from_ref(&window.range()));
        assert!(forks.given.served(&window.range()).len() == 1 && !gives.is_finished());
        drop(forks);
        gives.join().unwrap().unwrap();
    });
    assert_eq!(mmu.fork_prepare().given.served(&window.range()).len(), 2);
}
