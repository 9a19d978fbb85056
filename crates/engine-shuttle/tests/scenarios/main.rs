//! Scenarios.

mod advise;
mod budget;
mod drawn;
mod fork;
mod found;
mod protect;
mod reads;
mod reclaim;
mod remap;
mod scene;
mod truncate;
mod unmap;
