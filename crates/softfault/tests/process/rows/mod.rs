//! The rows, by subject.

pub mod advice;
pub mod descriptors;
pub mod limits;
pub mod locking;
pub mod mapping;
pub mod processes;
pub mod reading;
pub mod signals;

use crate::row::Row;

/// All of them.
pub fn all() -> impl Iterator<Item = &'static Row> {
    let parts = [
        locking::ROWS,
        advice::ROWS,
        mapping::ROWS,
        reading::ROWS,
        descriptors::ROWS,
        limits::ROWS,
        signals::ROWS,
        processes::ROWS,
    ];
    parts.into_iter().flatten()
}
