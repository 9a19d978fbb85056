//! Block devices.

use crate::twin::{PAGE, READ, Twin, aged_file, content, of_file, own_engine, text, unmap};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::process::Command;

/// A device over a file; `None` where there is none to be had.
struct Loop {
    name: String,
}

impl Loop {
    fn over(file: &File) -> Option<Self> {
        let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
        let made = Command::new("losetup")
            .args(["--find", "--show", "--read-only", &path])
            .output();
        match made {
            Ok(made) if made.status.success() => {
                let name = String::from_utf8(made.stdout).unwrap();
                let name = name.trim().to_owned();
                Some(Self { name })
            }
            why => {
                softfault_skip::skipped("root", format_args!("no loop device: {why:?}"));
                None
            }
        }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["-d", &self.name]).status();
    }
}

/// Failed before: its size is not in its `stat`, so its maps were taken for such as reach past the end of a file.
#[test]
fn maps_of_a_device_are_of_one_window() {
    const PAGES: usize = 512;
    let _turn = crate::twin::turn();
    let made = aged_file(PAGES * PAGE);
    let Some(device) = Loop::over(&made) else {
        return;
    };
    let opened = File::open(&device.name).unwrap();
    let shared = libc::MAP_SHARED;
    let twin = Twin::of_file(&opened, PAGES, READ, shared);
    let other = of_file(&opened, PAGES, READ, shared).ours(own_engine());
    assert_eq!(other, Ok(twin.ours.cast()), "{}", text());
    let (ours, kernels) = twin.bytes(0, PAGES);
    assert!(ours == content(PAGES * PAGE) && ours == kernels);
    unmap(twin.ours.cast(), PAGES * PAGE);
    assert_eq!(twin.unmap(0, PAGES), (Ok(()), Ok(())));
    // Past its end there is nothing.
    let longer = of_file(&opened, 2 * PAGES, READ, shared).ours(own_engine());
    unmap(longer.unwrap(), 2 * PAGES * PAGE);
}
