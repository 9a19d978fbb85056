//! A file system of a MiB, with a file of holes that is longer.

use softfault_oracle::Finally;
use std::ffi::CString;
use std::fs::File;

/// Bytes of the file.
pub const BYTES: usize = 4 << 20;

/// Calls `test` with the file, where a file system can be mounted; else says that it was skipped.
pub fn with_file(name: &str, test: impl FnOnce(File)) {
    let dir = std::env::temp_dir().join(format!("softfault-{name}-{}", std::process::id()));
    std::fs::create_dir(&dir).unwrap();
    let path = CString::new(dir.to_str().unwrap()).unwrap();
    let (kind, size) = (c"tmpfs".as_ptr(), c"size=1m".as_ptr().cast());
    // SAFETY: names that end in zero.
    let mounted = unsafe { libc::mount(kind, path.as_ptr(), kind, 0, size) };
    let _gone = Finally(|| {
        // SAFETY: as above; nobody has files there.
        unsafe { libc::umount2(path.as_ptr(), libc::MNT_DETACH) };
        let _ = std::fs::remove_dir(&dir);
    });
    if mounted != 0 {
        return softfault_skip::skipped("root", "a small file system can be mounted by root only");
    }
    let mut options = File::options();
    let file = options.read(true).write(true).create(true);
    let file = file.truncate(true).open(dir.join("file")).unwrap();
    file.set_len(BYTES as u64).unwrap();
    test(file);
}
