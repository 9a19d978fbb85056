//! Answers that mean "not now", and how often they are believed.

/// How often one piece of work may be put off before that is its error. A fault waits with all signals
/// masked: nobody could end a wait for a file system that answers so for ever.
const MOST: u32 = 1000;

/// Makes a call until it has another answer than "not now".
pub(crate) fn insist(call: impl Fn() -> Result<usize, i32>) -> Result<usize, i32> {
    let mut refusals = Refusals::default();
    loop {
        match call() {
            Err(errno) => refusals.again(errno)?,
            done => return done,
        }
    }
}

/// Counts how often one piece of work was put off. Progress begins the count anew.
#[derive(Debug, Default)]
pub(crate) struct Refusals(u32);

impl Refusals {
    /// `Ok`: try again. Otherwise `errno` is how it ended.
    pub(crate) fn again(&mut self, errno: i32) -> Result<(), i32> {
        let busy = errno == libc::EAGAIN;
        self.0 += 1;
        if self.0 > MOST || !(busy || errno == libc::EINTR) {
            return Err(errno);
        }
        if busy {
            // SAFETY: no arguments.
            unsafe { libc::sched_yield() };
        }
        Ok(())
    }

    /// Some of the work was done.
    pub(crate) fn progress(&mut self) {
        self.0 = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_errno_ends() {
        for errno in 1..4096 {
            let mut refusals = Refusals::default();
            let mut times = 0;
            while refusals.again(errno).is_ok() {
                times += 1;
                assert!(times <= MOST, "{errno}");
            }
            let is_put_off = [libc::EINTR, libc::EAGAIN].contains(&errno);
            assert_eq!(times > 0, is_put_off, "{errno}");
        }
    }
}
