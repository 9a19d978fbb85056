//! The workloads on small machines.

mod all;
mod pft;
mod retries;
mod small;
mod swap;

/// So that memory that is shared by mistake is shared here too.
#[global_allocator]
static HEAP: softfault_sim::Heap = softfault_sim::Heap;
