//! A backing that is only read, and whose writes the system refuses: the touch of a program is made again for that. A call makes no
//! touch, and has the error.

use softfault_engine::PAGE_SIZE;
use softfault_engine::fault::{
    self, FaultError, FaultFlags, FaultInError, FaultInMany, NeverInterrupted, Outcome, Populated,
};
use softfault_engine::mm::backing::VmOps;
use softfault_engine::mm::{Attributes, Backing, Protection};
use softfault_oracle::Rig;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

const START: usize = 1 << 40;

/// How often it was asked: a call without an end is a failure.
#[derive(Debug)]
struct Refusing(AtomicUsize);

impl VmOps for Refusing {
    fn object(&self) -> *const () {
        (&raw const self.0).cast()
    }

    fn is_writable(&self) -> bool {
        false
    }

    fn refuse_write(&self) -> bool {
        assert!(self.0.fetch_add(1, Relaxed) < 100, "asked again and again");
        true
    }
}

#[test]
fn a_call_for_writes_has_the_error() {
    let rig = Rig::new(2048);
    let range = START..START + 4 * PAGE_SIZE;
    let attributes = Attributes {
        backing: Backing::new(Refusing(AtomicUsize::new(0))),
        protection: Protection::Read,
        ..Attributes::default()
    };
    rig.space.mmap(range.clone(), attributes).unwrap();
    let never = &NeverInterrupted;
    let write = FaultFlags {
        write: true,
        ..FaultFlags::default()
    };
    let touched = fault::handle(&rig.space, START, write, never);
    assert_eq!(touched, Outcome::Mapped, "the system refuses the next one");
    let mut many = FaultInMany::new(vec![(3, range.clone())], true);
    assert!(many.run(&rig.space, never));
    let failed: Vec<_> = many.failed().collect();
    assert_eq!(failed, [(3, FaultInError::Error(FaultError::Protection))]);
    let populated = fault::populate(&rig.space, range.clone(), true, never);
    assert_eq!(populated, Populated::Failed(START, FaultError::Protection));
    let locked = fault::lock(&rig.space, range.clone(), true, never);
    assert_eq!(locked, Populated::Failed(START, FaultError::Protection));
    rig.unmap(range);
    rig.finish();
}
