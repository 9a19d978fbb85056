//! Mutations: small patches to the engine's real source, each of which breaks a
//! protocol (a memory ordering weakened, a check left out, a lock kept, a wake-up
//! dropped). The tests that a patch names have to fail with it, or they show
//! nothing; and each world's tests are tried on it, to know the rules that each world can detect.
//!
//! - [`mutation`]: the form of a patch.
//! - [`world`]: where it is tried, and on which tests.
//! - [`attempt`]: one try: a build, and a test that fails, or none.
//! - [`trial`]: all of them, on several benches at a time.
//! - [`workspace`]: the copies that are broken.
//! - [`table`]: the results.

pub mod attempt;
pub mod mutation;
pub mod table;
pub mod trial;
pub mod workspace;
pub mod world;
