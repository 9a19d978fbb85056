# Everything that is worth typing, by name. `just` lists it.

_default:
    @just --list

# Two minutes that show what the project is about
tour *arguments:
    cargo run --release --bin softfault -- tour {{ arguments }}

# A workload on any engine: just lab sparse --on kernel,softfault
lab workload *arguments:
    cargo run --release --bin softfault -- lab run {{ workload }} {{ arguments }}

# A file's SHA-256 through a softfault map
sum file *arguments:
    cargo run --release --bin softfault -- sum {{ file }} {{ arguments }}
