//! Tools of the swap tests: pages whose bytes tell which they are, and
//! places to put a swap file.

#![allow(dead_code)] // Each test crate uses its part.

pub mod failing;

use std::path::{Path, PathBuf};
use std::process::Command;

use softfault::{Compression, Swap, SwapFile};
use softfault_engine::store::{Store, StoreError};
use softfault_engine::swap::SwapDevice;

use crate::store_scene::{Frames, PAGE};

pub const BOTH: [Compression; 2] = [Compression::None, Compression::Lz4];

/// The disk that the build is on.
pub fn disk() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

/// Where a swap file may be.
pub fn places() -> [&'static Path; 2] {
    [disk(), Path::new("/dev/shm")]
}

/// A file with so many slots.
pub fn swap_file(dir: &Path, slots: usize, compression: Compression) -> SwapFile {
    open(dir, slots, compression).expect("a swap file")
}

pub fn open(dir: &Path, slots: usize, compression: Compression) -> std::io::Result<SwapFile> {
    let swap = Swap::in_dir(dir).bytes((slots * PAGE) as u64);
    swap.compression(compression).open(0, None)
}

/// Fills a page with the bytes of `version` of `slot`: noise, text, or little
/// else than zeros.
pub fn fill(page: &mut [u8], slot: usize, version: u64) {
    let mut state = (slot as u64) << 20 ^ version ^ 0x9e37_79b9_7f4a_7c15;
    let mut random = || {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (state >> 33) as u8
    };
    match (slot as u64 + version) % 4 {
        0 => page.iter_mut().for_each(|byte| *byte = random()),
        1 => page.fill(0),
        2 => {
            let words = [&b"swap "[..], b"page ", b"slot ", b"fault "];
            let text = core::iter::repeat_with(|| words[random() as usize % 4]).flatten();
            page.iter_mut()
                .zip(text)
                .for_each(|(byte, &text)| *byte = text);
        }
        _ => {
            // The first part noise, so that sizes differ.
            page.fill(slot as u8);
            let noise = random() as usize * 16;
            page[..noise].iter_mut().for_each(|byte| *byte = random());
        }
    }
    page[..8].copy_from_slice(&(slot as u64).to_le_bytes());
    page[8..16].copy_from_slice(&version.to_le_bytes());
}

/// Memory of pages, here and there.
pub struct Pages {
    frames: Frames,
    count: usize,
}

impl Pages {
    pub fn new(count: usize) -> Self {
        Self {
            frames: Frames::new(2 * count),
            count,
        }
    }

    /// Every page of the first half has a neighbour; those of the second have none.
    fn at(&self, page: usize) -> *mut u8 {
        let half = self.count / 2;
        match page < half {
            true => self.frames.page(page),
            false => self.frames.page(half + 2 * (page - half)),
        }
    }

    /// Writes these slots of these versions, from the first slot on.
    pub fn write(
        &self,
        file: &dyn SwapDevice,
        first: usize,
        versions: &[u64],
    ) -> Result<(), StoreError> {
        let pages: Vec<*const u8> = (0..versions.len())
            .map(|i| self.at(i).cast_const())
            .collect();
        for (i, &version) in versions.iter().enumerate() {
            // SAFETY: the page is ours.
            let page = unsafe { core::slice::from_raw_parts_mut(self.at(i), PAGE) };
            fill(page, first + i, version);
        }
        // SAFETY: the pages are ours.
        unsafe { file.write((first * PAGE) as u64, &pages) }
    }

    /// Reads slots in one call, and compares them.
    #[track_caller]
    pub fn check(&self, file: &dyn Store, first: usize, versions: &[u64]) {
        let bytes = versions.len() * PAGE;
        // SAFETY: the frames are ours.
        let read = unsafe { file.read((first * PAGE) as u64, self.frames.page(0), bytes) };
        assert_eq!(read, Ok(bytes), "slots from {first} on");
        check(&self.frames, 0, first, versions);
    }
}

/// Compares frames with the expected bytes of slots from `first` on.
#[track_caller]
pub fn check(frames: &Frames, at: usize, first: usize, versions: &[u64]) {
    let mut wanted = vec![0; PAGE];
    for (i, &version) in versions.iter().enumerate() {
        fill(&mut wanted, first + i, version);
        let found = frames.bytes(at + i, PAGE);
        assert!(found == wanted, "slot {} version {version}", first + i);
    }
}

pub fn discard(file: &dyn SwapDevice, slots: std::ops::Range<usize>) {
    file.discard((slots.start * PAGE) as u64..(slots.end * PAGE) as u64);
}

/// A file system of its own, in this process only: its mounts are nobody else's.
pub struct Mounted {
    pub dir: PathBuf,
}

impl Mounted {
    /// To be called in a child process. `None` if the machine does not let us.
    pub fn new(name: &str, what: &[&str]) -> Option<Self> {
        let dir = disk().join(format!("{name}-{}", std::process::id()));
        std::fs::create_dir(&dir).expect("a directory to mount on");
        // SAFETY: only changes which mounts this process sees.
        let apart = unsafe {
            libc::unshare(libc::CLONE_NEWNS) == 0
                && libc::mount(
                    std::ptr::null(),
                    c"/".as_ptr(),
                    std::ptr::null(),
                    libc::MS_REC | libc::MS_PRIVATE,
                    std::ptr::null(),
                ) == 0
        };
        let mounted = apart && run("mount", &[what, &[dir.to_str()?]].concat());
        if !mounted {
            std::fs::remove_dir(&dir).expect("an empty directory");
            softfault_skip::skipped("root", format_args!("no {name} can be mounted here"));
        }
        // Not made where nothing is mounted: its end unmounts.
        mounted.then(|| Self { dir })
    }

    /// A tmpfs of so many bytes.
    pub fn tmpfs(bytes: usize) -> Option<Self> {
        let size = format!("size={bytes}");
        Self::new("tmpfs", &["-t", "tmpfs", "-o", &size, "tmpfs"])
    }

    /// A file system of `kind` in a file of so many bytes.
    pub fn image(kind: &str, bytes: u64) -> Option<Self> {
        let image = disk().join(format!("{kind}-{}.img", std::process::id()));
        let file = std::fs::File::create(&image).expect("an image");
        file.set_len(bytes).expect("an image of this size");
        let path = image.to_str()?;
        let mounted = run(&format!("mkfs.{kind}"), &["-q", "-F", "-m", "0", path])
            .then(|| Self::new(kind, &["-o", "loop", path]))
            .flatten();
        std::fs::remove_file(&image).expect("the image has a name");
        mounted
    }

    /// Bytes that are free.
    pub fn free(&self) -> u64 {
        free(&self.dir)
    }

    pub fn files(&self) -> usize {
        let names = std::fs::read_dir(&self.dir).expect("readable").flatten();
        names
            .filter(|entry| entry.file_name() != "lost+found")
            .count()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        assert!(run("umount", &[self.dir.to_str().expect("UTF-8")]) || std::thread::panicking());
        let _ = std::fs::remove_dir(&self.dir);
    }
}

fn run(command: &str, arguments: &[&str]) -> bool {
    let output = Command::new(command).args(arguments).output();
    let Ok(output) = output else {
        println!("{command}: {output:?}");
        return false;
    };
    if !output.status.success() {
        println!(
            "{command} {arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    output.status.success()
}

/// Bytes that are free where `dir` is.
pub fn free(dir: &Path) -> u64 {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::CString::new(dir.as_os_str().as_bytes()).expect("a path");
    let mut found = std::mem::MaybeUninit::<libc::statvfs>::zeroed();
    // SAFETY: fills the structure.
    let found = unsafe {
        assert_eq!(libc::statvfs(path.as_ptr(), found.as_mut_ptr()), 0);
        found.assume_init()
    };
    found.f_bfree * found.f_frsize
}

/// Waits until it is so.
pub fn until(what: impl Fn() -> bool) {
    while !what() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}
