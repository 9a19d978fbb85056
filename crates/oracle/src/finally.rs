//! The cleanup of a test, however the test ends.

/// Calls the function when it is dropped. Threads that go on until they are told to stop are
/// told also where a check fails: a test that fails must end.
pub struct Finally<F: FnMut()>(pub F);

impl<F: FnMut()> Drop for Finally<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}
