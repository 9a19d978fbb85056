//! Simulations as the command runs them: the same seed is the same run in any process, and an error is
//! one line.

use super::ordinary_user::OrdinaryUser;
use super::{directory, finish, is_empty, refused, rows, softfault, words};
use serde_json::Value;
use std::os::unix::process::CommandExt;
use std::process::Stdio;

/// A run of a second or less of this machine.
const SMALL: [&str; 8] = [
    "--cores",
    "1,3",
    "--region",
    "64K",
    "--seconds",
    "0.0002",
    "--seed",
    "5",
];

fn with<'a>(workload: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["sim", workload][..], &SMALL, more].concat()
}

/// Rows without the figures that the wall clock decides.
fn virtual_part(mut rows: Vec<Value>) -> Vec<Value> {
    for row in &mut rows {
        let row = row.as_object_mut().unwrap();
        for wall in ["wall_s", "host_cpu_s", "operations_per_wall_s"] {
            assert!(row.remove(wall).is_some_and(|value| value.is_number()));
        }
    }
    rows
}

#[test]
fn a_seed_is_the_same_run_in_every_process() {
    let arguments = with("pft", &["--seeds", "2", "--vary", "20"]);
    let one_by_one = [&arguments[..], &["--jobs", "1"]].concat();
    let [first, second] = [&arguments, &one_by_one].map(|arguments| virtual_part(rows(arguments)));
    assert_eq!(first, second);
    // By cores, policies, seeds.
    let order: Vec<_> = (first.iter())
        .map(|row| {
            let text = |name: &str| row[name].as_str().unwrap().to_owned();
            (
                row["cores"].as_u64().unwrap(),
                text("policy"),
                row["seed"].as_u64().unwrap(),
            )
        })
        .collect();
    let mut expected = Vec::new();
    for cores in [1, 3] {
        for policy in ["lock=rwsem", "lock=refcount", "lock=biased"] {
            for seed in [5, 6] {
                expected.push((cores, policy.to_owned(), seed));
            }
        }
    }
    assert_eq!(order, expected);
    // Another seed and another policy are other runs.
    let mut digests: Vec<_> = first
        .iter()
        .map(|row| row["digest"].as_str().unwrap())
        .collect();
    digests.sort_unstable();
    digests.dedup();
    assert_eq!(digests.len(), first.len());
}

#[test]
fn rows_have_the_fields_that_readers_need() {
    for row in rows(&with("pft", &["--seeds", "1"])) {
        for name in ["workload", "policy", "topology", "digest"] {
            assert!(row[name].is_string(), "{name}");
        }
        for name in [
            "cores",
            "threads",
            "seed",
            "faults",
            "elapsed_s",
            "faults_per_s",
            "faults_per_cpu",
            "rounds",
            "retry_mmap_drop",
            "retry_io_miss",
            "operations",
            "wall_s",
        ] {
            assert!(row[name].is_number(), "{name}");
        }
        assert_eq!(row["error"], Value::Null);
        assert_eq!(row["threads"], row["cores"]);
        assert_eq!(row["topology"], "broadwell-56");
        let faults = row["faults"].as_f64().unwrap();
        assert!(faults >= 16.0 && row["operations"].as_f64().unwrap() > faults);
        let rate = faults / row["elapsed_s"].as_f64().unwrap();
        assert!((rate / row["faults_per_s"].as_f64().unwrap() - 1.0).abs() < 1e-6);
        let locks = row["locks"].as_object().unwrap();
        for name in ["mmap_lock_read", "mmap_lock_write"] {
            let lock = &locks[name];
            for figure in ["count", "wait_total_us", "wait_avg_us", "wait_max_us"] {
                assert!(lock[figure].is_number(), "{name} {figure}");
            }
            assert_eq!(lock["wait_ranges"].as_array().unwrap().len(), 8);
        }
        // Each round maps and unmaps.
        assert!(locks["mmap_lock_write"]["count"].as_u64() >= row["rounds"].as_u64());
    }
}

#[test]
fn the_lab_compares_files_of_the_simulator() {
    let dir = directory();
    let path = dir.path().join("pft.json");
    let path = path.to_str().unwrap();
    let (code, out, err) = finish(softfault(&with("pft", &["--json", path])).stdin(Stdio::null()));
    assert_eq!(code, 0, "{err}");
    for said in [
        "Hmean",
        "faults/cpu-1",
        "faults/sec-3",
        "lock=refcount",
        "document 004, 56 CPUs",
        "507927",
        "facade operations",
    ] {
        assert!(out.contains(said), "no {said}: {out}");
    }
    let (code, out, err) = finish(&mut softfault(&["lab", "compare", path]));
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("faults/sec-3"), "{out}");
}

#[test]
fn the_other_workloads_tell_of_locks_and_retries() {
    let few = words("--policies retry=mmap-lock+pin=no,default --cores 2");
    let thrash = [
        &words("sim thrash --threads 4 --file-size 1M --memory 16M --seconds 0.002")[..],
        &few[..],
    ];
    let (code, out, err) = finish(&mut softfault(&thrash.concat()));
    assert_eq!(code, 0, "{err}");
    assert!(
        out.contains("RETRY_IO_MISS") && out.contains("22,711"),
        "{out}"
    );
    let start = [
        &words("sim warm-start --files 20 --memory 16M --seconds 0.005")[..],
        &few[..],
    ];
    let (code, out, err) = finish(&mut softfault(&start.concat()));
    assert_eq!(code, 0, "{err}");
    assert!(
        out.contains("Read Lock Count") && out.contains("20,010"),
        "{out}"
    );
}

#[test]
fn simulations_without_rounds_have_a_speed_to_compare() {
    let dir = directory();
    let path = dir.path().join("storm.json");
    let path = path.to_str().unwrap();
    let mut storm = words("sim storm --cores 1 --seeds 1 --seconds 0.0002");
    storm.extend(["--json", path]);
    let (code, out, err) = finish(&mut softfault(&storm));
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("more touches/sec is better"), "{out}");
    let (code, out, err) = finish(&mut softfault(&["lab", "compare", path]));
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("pages/s"), "{out}");
}

#[test]
fn a_trace_is_the_same_in_every_process() {
    let single = words("--cores 2 --policies default --seeds 1 --trace -");
    let arguments = [
        &["sim", "pft", "--region", "16K", "--seconds", "0.00002"],
        &single[..],
    ]
    .concat();
    let [first, second] = [(); 2].map(|()| {
        let (code, out, err) = finish(&mut softfault(&arguments));
        assert_eq!(code, 0, "{err}");
        out
    });
    assert!(first.lines().count() > 100);
    assert!(first.lines().all(|line| line.contains("thread")), "{first}");
    assert_eq!(first, second);
}

#[test]
fn hot_places_are_named() {
    let shared = with(
        "pft",
        &["--shared", "--hot", "3", "--policies", "lock=refcount"],
    );
    let (code, out, err) = finish(&mut softfault(&shared));
    assert_eq!(code, 0, "{err}");
    // Of lines and of sleeps, three each at most.
    let is_place = |line: &&str| line.contains(".rs:");
    for table in out.split("\n\n") {
        assert!(table.lines().filter(is_place).count() <= 3, "{out}");
    }
    for title in ["Waits for cache lines: ", "Sleeps: "] {
        let (_, below) = out.split_once(title).expect(title);
        assert!(below.lines().any(|line| is_place(&line)), "{out}");
    }
}

#[test]
fn sensitivity_changes_one_cost_at_a_time() {
    let run = ["sim", "pft", "--shared", "--sensitivity", "--cores", "4"];
    let sizes = ["--region", "64K", "--seconds", "0.0002"];
    let policies = ["--policies", "lock=rwsem,lock=refcount,lock=biased"];
    let arguments = [&run[..], &sizes, &policies].concat();
    let all = rows(&arguments);
    let machines = all.len() / 3;
    assert_eq!(all.len() % 3, 0);
    let as_is = all.iter().filter(|row| row["changed_cost"].is_null());
    assert_eq!(as_is.count(), 3);
    // The same machines for each policy; no kernel, which soft tables do not have.
    assert!(machines > 30, "{machines}");
    let costs = |policy: usize| -> Vec<&Value> {
        let rows = all[policy * machines..][..machines].iter();
        rows.map(|row| &row["changed_cost"]).collect()
    };
    assert_eq!(costs(0), costs(1));
    assert_eq!(costs(0), costs(2));
    assert!(costs(0).contains(&&serde_json::json!(["line.remote", 2.0])));
    let of_kernel = |cost: &&Value| cost.to_string().contains("kernel");
    assert!(!costs(0).iter().any(of_kernel));

    let (code, out, err) = finish(&mut softfault(&arguments));
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("as multiples of lock=rwsem"), "{out}");
    assert!(out.contains("Less than 1 %: "), "{out}");
    for policy in ["lock=refcount: ", "lock=biased: "] {
        let verdict = out.lines().find(|line| line.starts_with(policy));
        assert!(verdict.expect(policy).contains(" × to "), "{out}");
    }
}

#[test]
fn a_thread_that_starves_is_told_of() {
    // Nobody has as much patience as a read from the disk takes.
    let arguments = words(
        "sim thrash --cores 1 --threads 2 --file-size 1M --memory 16M --seconds 0.002 --policies default --starvation-timeout 0.000001 --json -",
    );
    let (code, out, err) = finish(&mut softfault(&arguments));
    assert_eq!(code, 1, "{err}");
    assert!(
        err.contains("thrash 0") && err.contains("1 of 1 runs failed"),
        "{err}"
    );
    let rows: Value = serde_json::from_str(&out).unwrap();
    assert!(
        rows[0]["error"].as_str().unwrap().contains("thrash 0"),
        "{out}"
    );
}

#[test]
fn a_signal_ends_it_and_leaves_no_file() {
    let dir = directory();
    let path = dir.path().join("rows.json");
    let arguments = [
        "sim",
        "pft",
        "--cores",
        "56",
        "--seconds",
        "1000",
        "--json",
        path.to_str().unwrap(),
    ];
    let mut command = softfault(&arguments);
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = child.unwrap();
    // It catches signals before it has a second thread.
    let threads = format!("/proc/{}/task", child.id());
    while std::fs::read_dir(&threads).unwrap().count() < 2 {
        assert!(child.try_wait().unwrap().is_none(), "it ended early");
        std::thread::yield_now();
    }
    // SAFETY: kill takes two numbers; the process is our child, not waited for yet.
    assert_eq!(unsafe { libc::kill(child.id() as i32, libc::SIGINT) }, 0);
    let done = child.wait_with_output().unwrap();
    assert_eq!(done.status.code(), Some(130));
    assert!(done.stdout.is_empty() && done.stderr.is_empty());
    assert!(is_empty(dir.path()));
}

#[test]
fn wrong_arguments_are_one_line() {
    let cases: &[(&[&str], &str)] = &[
        (&["crawl"], "crawl"),
        (&["pft", "--cores", "0"], "above zero"),
        (&["pft", "--cores", "many"], "many"),
        (&["pft", "--cores", "57"], "broadwell-56 has 56 CPUs"),
        (&["pft", "--topology", "vax"], "zen5-256"),
        (&["pft", "--topology", "/nowhere.json"], "/nowhere.json"),
        (&["pft", "--policies", "lock=none"], "lock"),
        (&["pft", "--policies", "default,lock=refcount"], "twice"),
        (&["pft", "--vary", "101"], "0 to 100"),
        (&["pft", "--mmu", "hard"], "soft or uffd"),
        (&["pft", "--seconds", "-1"], "-1"),
        (
            &["pft", "--cores", "1", "--seeds", "1", "--seconds", "0"],
            "0 virtual seconds",
        ),
        (&["pft", "--trace", "t"], "single run"),
        (&["pft", "--sensitivity"], "one number of --cores"),
        (
            &["anon", "--sensitivity", "--cores", "2"],
            "two of --policies",
        ),
        (&["pft", "--sensitivity", "--seeds", "2"], "--seeds"),
        (
            &["pft", "--json", "/nowhere/rows.json"],
            "no such directory",
        ),
        (&["thrash", "--placement", "anywhere"], "anywhere"),
        (&["presets", "vax"], "broadwell-56"),
        (&["calibrate", "--lacking", "vax"], "zen5-256"),
        (&["calibrate", "--quick", "--dir", "/nowhere"], "/nowhere"),
    ];
    for (arguments, word) in cases {
        refused(&mut softfault(&[&["sim"], *arguments].concat()), word);
    }
}

#[test]
fn help_names_every_workload_and_argument() {
    let (code, out, _) = finish(&mut softfault(&["sim", "--help"]));
    assert_eq!(code, 0);
    for name in [
        "pft",
        "thrash",
        "warm-start",
        "spf",
        "loops",
        "storm",
        "calibrate",
        "presets",
    ] {
        assert!(out.contains(name), "{out}");
    }
    let (code, out, _) = finish(&mut softfault(&["sim", "pft", "--help"]));
    assert_eq!(code, 0);
    for name in [
        "--cores",
        "--threads",
        "--seed",
        "--seeds",
        "--vary",
        "--topology",
        "--policies",
        "--mmu",
        "--shared",
        "--memory",
        "--seconds",
        "--io-errors",
        "--trace",
        "--hot",
        "--json",
    ] {
        assert!(out.contains(name), "no {name}");
    }
}

#[test]
fn presets_are_listed_with_their_sources_and_printed_as_files() {
    let (code, out, _) = finish(&mut softfault(&["sim", "presets"]));
    assert_eq!(code, 0);
    for said in [
        "broadwell-56: 56 CPUs",
        "zen5-256: 256 CPUs",
        "x86-256: 256 CPUs",
        "assumed",
    ] {
        assert!(out.contains(said), "{out}");
    }
    let (code, out, _) = finish(&mut softfault(&["sim", "presets", "zen5-256"]));
    assert_eq!(code, 0);
    let mut topology: Value = serde_json::from_str(&out).unwrap();
    topology["name"] = "mine".into();
    let dir = directory();
    let path = dir.path().join("mine.json");
    std::fs::write(&path, topology.to_string()).unwrap();
    let mine = path.to_str().unwrap();
    let rows = rows(&with(
        "pft",
        &["--topology", mine, "--seeds", "1", "--policies", "default"],
    ));
    assert!(rows.iter().all(|row| row["topology"] == "mine"));
}

#[test]
fn this_machine_can_be_measured_and_simulated() {
    let dir = directory();
    let path = dir.path().join("here.json");
    let here = path.to_str().unwrap();
    let in_dir = dir.path().to_str().unwrap();
    let arguments = [
        "sim",
        "calibrate",
        "--quick",
        "--name",
        "here",
        "--dir",
        in_dir,
        "--json",
        here,
    ];
    let (code, out, err) = finish(&mut softfault(&arguments));
    assert_eq!((code, &out[..]), (0, ""), "{err}");
    let topology: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    assert!(topology["source"].as_str().unwrap().contains("Measured by"));
    let picoseconds = |part: &str, name: &str| topology[part][name].as_u64().unwrap();
    // Not the times, but the relations that cannot be otherwise.
    assert!(picoseconds("line", "hit") >= 1);
    assert!(picoseconds("line", "cluster") <= picoseconds("line", "remote"));
    let files = std::fs::read_dir(dir.path()).unwrap().count();
    assert_eq!(files, 1, "the file that was read is gone");
    let run = [
        "--cores",
        "1",
        "--topology",
        here,
        "--seeds",
        "1",
        "--policies",
        "default",
    ];
    let rows = rows(
        &[
            &["sim", "pft", "--region", "64K", "--seconds", "0.0002"],
            &run[..],
        ]
        .concat(),
    );
    assert_eq!(rows[0]["topology"], "here");
}

#[test]
fn loops_measure_one_verb() {
    for verb in ["mmap", "mmap-touch", "unmap-untouched", "unmap", "touch"] {
        for contended in [false, true] {
            let mut more = vec!["--seeds", "1", "--loop", verb];
            more.extend(contended.then_some("--contended"));
            for row in rows(&with("loops", &more)) {
                let name = if contended { " contended" } else { "" };
                let pattern = format!("{verb}{name}, {} cores", row["cores"]);
                assert_eq!(row["pattern"], pattern.as_str());
                let regions = row["rounds"].as_u64().unwrap();
                assert!(regions > 0 && regions.is_multiple_of(16), "{row}");
                assert!(row["rounds_per_s"].as_f64().unwrap() > 0.0, "{row}");
                // They are of more than the verb, and the time is not.
                assert!(row["faults_per_s"].is_null() && row["faults_per_cpu"].is_null());
            }
        }
    }
}

/// Failed before: panics, and one that waited for itself where a backtrace was asked for.
#[test]
fn a_limit_of_address_space_or_threads_is_one_line() {
    for bytes in [100 << 20, 8 << 30] {
        let mut sim = softfault(&with("pft", &["--seeds", "1"]));
        sim.env("RUST_BACKTRACE", "1");
        let limit = move || {
            // SAFETY: a structure of its size.
            assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &most(bytes)) }, 0);
            Ok(())
        };
        // SAFETY: only a system call; nothing is allocated.
        unsafe { sim.pre_exec(limit) };
        refused(&mut sim, "16 TiB of address space");
    }
    let user = OrdinaryUser::new();
    let mut sim = user.command();
    sim.args(with("pft", &["--seeds", "1"]));
    let limit = || {
        // SAFETY: a structure of its size.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NPROC, &most(1)) }, 0);
        Ok(())
    };
    // SAFETY: as above.
    unsafe { sim.pre_exec(limit) };
    refused(&mut sim, "cannot start a thread");
}

fn most(number: u64) -> libc::rlimit {
    libc::rlimit {
        rlim_cur: number,
        rlim_max: number,
    }
}

#[test]
fn results_are_kept_where_the_tables_cannot_be_shown() {
    let full = || {
        std::fs::File::options()
            .write(true)
            .open("/dev/full")
            .unwrap()
    };
    let dir = directory();
    let json = dir.path().join("rows.json");
    let mut to_file = softfault(&with("spf", &["--json"]));
    let status = to_file.arg(&json).stdout(full()).status().unwrap();
    assert_eq!(status.code(), Some(2), "stdout is full");
    let kept: Vec<Value> = serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
    assert!(!kept.is_empty());
    let mut to_stdout = softfault(&with("spf", &["--json", "-"]));
    let output = to_stdout.stderr(full()).output().unwrap();
    assert!(output.status.success(), "{:?}", output.status);
    let told: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    assert!(!told.is_empty());
}
