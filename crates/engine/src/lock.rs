//! Locks of our own, built on the façade so that they are checked and costed.
