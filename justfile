# Everything that is worth typing, by name. `just` lists it.

_default:
    @just --list

# Three minutes that show what the project is about
tour *arguments:
    cargo run --release --bin softfault -- tour {{ arguments }}

# A workload on any engine: just lab sparse --on kernel,softfault
lab workload *arguments:
    cargo run --release --bin softfault -- lab run {{ workload }} {{ arguments }}

# A file's SHA-256 through a softfault map
sum file *arguments:
    cargo run --release --bin softfault -- sum {{ file }} {{ arguments }}

# What this machine allows, and how to change it
doctor *arguments:
    cargo run --release --bin softfault -- doctor {{ arguments }}

# Everything that has to pass
ci:
    .ci/run

# Tests that fail now and then: in any order, on one to five threads, on cases that nobody has tried: just hunt 10. Of some
# programs alone, beside three busy loops: BUSY=3 just hunt 100 fork signals
hunt rounds="1" *programs:
    .ci/hunt {{ rounds }} {{ programs }}

# A release without its tag: what is not ready, and all that would be published
release-dry-run version:
    .ci/release --dry-run {{ version }}

# The engine with one line broken at a time, and which world notices
mutate *arguments:
    cargo run --release -p softfault-mutate -- {{ arguments }}

# The models under a loom that reorders more: a quarter of an hour
loom *files:
    cargo run --release -p softfault-mutate --bin softfault-loom -- {{ files }}

# Schedules and seconds of each model, into docs/proof-loom.md: a quarter of an hour
loom-counts:
    docs/count-schedules

# Many schedules of each scenario of the engine: just shuttle 10_000_000
shuttle schedules="1_000_000" *names:
    SOFTFAULT_SHUTTLE_SCHEDULES={{ schedules }} cargo test --release -p softfault-engine-shuttle -- --nocapture {{ names }}

# One schedule of a scenario again: just shuttle-seed 4711 unmap::fault_against_unmap
shuttle-seed seed name:
    SOFTFAULT_SHUTTLE_SEED={{ seed }} cargo test -p softfault-engine-shuttle -- --nocapture --exact {{ name }} | \
      awk '{ print } / 1 passed;/ { passed = 1 } END { if (!passed) print "failed, or no scenario has this name"; exit !passed }'

# Operations on private memory over soft page tables, everything evicted all the time: just oracle 1_000_000
oracle operations="1_000_000":
    SOFTFAULT_ORACLE_OPERATIONS={{ operations }} cargo test --release -p softfault-engine --test parts -- --nocapture anon_oracle::a_long_run

# The same over userfaultfd, beside the kernel's own memory, in processes that fork: just oracle-uffd 1_000_000
oracle-uffd operations="1_000_000":
    SOFTFAULT_ORACLE_OPERATIONS={{ operations }} cargo test --release -p softfault --test anon_oracle -- --nocapture a_long_run

# Operations on a file that is written to under the budget, beside the kernel's own map, and so many of fsx's mix: just oracle-write 1_000_000
oracle-write operations="1_000_000":
    SOFTFAULT_ORACLE_OPERATIONS={{ operations }} cargo test --release -p softfault --test writable_oracle -- --nocapture --test-threads 1

# Operations on huge pages that spaces share, alone and by threads at a time: just oracle-huge 1_000_000
oracle-huge operations="1_000_000":
    SOFTFAULT_ORACLE_OPERATIONS={{ operations }} cargo test --release -p softfault-engine --test parts -- --nocapture huge_oracle huge_threads

# Drawn calls of a program while others read maps: just chaos 600, just chaos 60 4711
chaos seconds="600" seed="":
    SOFTFAULT_CHAOS_SECONDS={{ seconds }} {{ if seed == "" { "" } else { "SOFTFAULT_CHAOS_SEED=" + seed } }} cargo test -p softfault --test process -- --nocapture no_call_of

# All commands of the documents, smaller than they are there: some minutes
documented:
    SOFTFAULT_DOCUMENTED=all cargo test -p softfault-cli --test command -- --nocapture commands_of_the_documents

# What read-ahead costs in each order of access, into docs/read-ahead.md
read-ahead-table:
    SOFTFAULT_WRITE_TABLE=1 cargo test -p softfault-engine --test parts -- orders_are_read

# What a program may do, into docs/process.md
process-table:
    SOFTFAULT_WRITE_TABLE=1 cargo test -p softfault --test process -- the_documented_matrix
