//! The documents' workloads on simulated machines of N cores.
