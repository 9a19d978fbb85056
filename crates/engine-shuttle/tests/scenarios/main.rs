//! Scenarios.

mod drawn;
