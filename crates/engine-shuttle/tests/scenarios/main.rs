//! Scenarios.

mod first;
