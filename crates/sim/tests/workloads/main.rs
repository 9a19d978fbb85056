//! The workloads on small machines.

mod pft;
mod small;
