//! Reading into folios: at once, or ahead of need.
//!
//! ```text
//!   read      a folio, by the thread that needs it; and the end of every read
//!   extent    holes and data of the store
//!   batch     reads for the store, put together from folios
//!   ahead     the plans of the policy (`readahead`), and the requests of callers
//!   baseline  a whole window, as Linux reads it
//! ```

pub(crate) mod ahead;
pub(crate) mod baseline;
mod batch;
pub(crate) mod extent;
pub(crate) mod read;

pub use ahead::prefetch;
pub(crate) use batch::ReadBatch;
pub use read::Completion;
pub(crate) use read::unlocked;
