//! The workloads on small machines.

mod all;
mod pft;
mod small;
