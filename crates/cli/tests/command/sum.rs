//! `sum` prints what sha256sum would.

use super::{directory, finish, refused, softfault};
use sha2::{Digest, Sha256};

#[test]
fn a_sum_is_the_files_whatever_its_length() {
    let dir = directory();
    let path = dir.path().join("file");
    // Empty, a byte, a page but one, a partial last page, and one larger than the budget.
    for length in [0, 1, 4095, 3 * 4096 + 17, 48 << 20] {
        let mut state = length as u64 + 1;
        let bytes: Vec<u8> = std::iter::repeat_with(|| {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (state >> 56) as u8
        })
        .take(length)
        .collect();
        std::fs::write(&path, &bytes).unwrap();
        let (code, out, err) = finish(softfault(&["sum", "--memory", "32M"]).arg(&path));
        assert_eq!(code, 0, "{err}");
        let sum: String = Sha256::digest(&bytes)
            .iter()
            .map(|b| format!("{b:02x}"))
            .collect();
        assert_eq!(out, format!("{sum}  {}\n", path.display()));
        assert_eq!(err.lines().count(), 1, "{err}");
    }
}

#[test]
fn a_budget_below_the_minimum_is_refused() {
    let dir = directory();
    let path = dir.path().join("file");
    std::fs::write(&path, "x").unwrap();
    refused(softfault(&["sum", "--memory", "4K"]).arg(&path), "budget");
    let run = ["lab", "run", "scan", "--on", "softfault", "--memory", "4M"];
    refused(softfault(&run).arg("--file").arg(&path), "budget");
}
