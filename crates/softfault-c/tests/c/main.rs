//! The library as C programs have it: installed, found by pkg-config, linked, run.

mod installed;
mod programs;
mod symbols;
