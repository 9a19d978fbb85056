//! Scenarios.

mod advise;
mod budget;
mod drawn;
mod fork;
mod protect;
mod reclaim;
mod remap;
mod scene;
mod truncate;
mod unmap;
