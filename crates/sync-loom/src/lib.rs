//! The `sync` façade over loom.
