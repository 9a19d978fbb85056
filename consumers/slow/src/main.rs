//! One file on a device that takes its time: each read of it is answered so long after it was asked for, any number
//! of them at a time. Its bytes are in memory, so that no other device is in the way.
//!
//! ```text
//! cargo run --release --manifest-path consumers/slow/Cargo.toml -- --latency-us 1000 FILE /mnt COMMAND ...
//! ```

use clap::Parser;
use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    InitFlags, KernelConfig, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData,
    ReplyDirectory, ReplyEntry, ReplyOpen, Request,
};
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

/// Shows a file of the same name and bytes in a directory, whose reads take their time, while a command runs.
#[derive(Parser)]
#[command(name = "softfault-slow-files", version)]
struct Args {
    /// From a read's arrival to its answer, in microseconds
    #[arg(long, default_value_t = 1000)]
    latency_us: u64,
    /// The file whose bytes are shown; all of it is held in memory
    file: PathBuf,
    /// An empty directory to mount over; takes root, or fusermount3
    mount: PathBuf,
    /// The command that runs meanwhile
    #[arg(required = true, trailing_var_arg = true)]
    command: Vec<OsString>,
}

/// How long the kernel may keep what it was told of names and lengths: nothing changes.
const FOR_EVER: Duration = Duration::from_secs(1 << 30);
const FILE: INodeNo = INodeNo(2);
/// Threads that answer.
const ANSWERING: usize = 2;

/// A read that waits for its time.
struct Waiting {
    due: Instant,
    offset: u64,
    bytes: u32,
    reply: ReplyData,
}

/// Immutable, but for the queue.
struct Slow {
    name: OsString,
    bytes: u64,
    latency: Duration,
    made: SystemTime,
    waiting: Sender<Waiting>,
}

impl Slow {
    fn attributes(&self, inode: INodeNo) -> FileAttr {
        let (kind, perm, size) = match inode {
            FILE => (FileType::RegularFile, 0o444, self.bytes),
            _ => (FileType::Directory, 0o555, 0),
        };
        FileAttr {
            ino: inode,
            size,
            blocks: size.div_ceil(512),
            atime: self.made,
            mtime: self.made,
            ctime: self.made,
            crtime: self.made,
            kind,
            perm,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }
}

impl Filesystem for Slow {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let wanted = InitFlags::FUSE_ASYNC_READ | InitFlags::FUSE_ASYNC_DIO;
        let refused = |_| io::Error::other("the kernel has no asynchronous reads here");
        config.add_capabilities(wanted).map_err(refused)?;
        // The reader decides how many requests are in flight, and bdi/read_ahead_kb how far the page cache reads
        // ahead: no limit of ours comes first.
        for most in [
            config.set_max_background(4096),
            config.set_congestion_threshold(4096),
        ] {
            most.map_err(|most| io::Error::other(format!("{most} requests at most")))?;
        }
        if let Err(most) = config.set_max_readahead(8 << 20) {
            config.set_max_readahead(most).ok();
        }
        Ok(())
    }

    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match name == self.name {
            true => reply.entry(&FOR_EVER, &self.attributes(FILE), Generation(0)),
            false => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&FOR_EVER, &self.attributes(inode));
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        // The page cache outlives an open file, as on a disk.
        reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE);
    }

    fn readdir(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let names = [
            (INodeNo::ROOT, FileType::Directory, OsStr::new(".")),
            (INodeNo::ROOT, FileType::Directory, OsStr::new("..")),
            (FILE, FileType::RegularFile, &self.name),
        ];
        for (next, (inode, kind, name)) in (1..).zip(names).skip(offset as usize) {
            if reply.add(inode, next, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        bytes: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let due = Instant::now() + self.latency;
        let waiting = Waiting {
            due,
            offset,
            bytes,
            reply,
        };
        // Nobody answers any more only when the filesystem goes.
        self.waiting.send(waiting).ok();
    }
}

/// Answers in the order of arrival, which is that of the times.
fn answer(waiting: &Mutex<Receiver<Waiting>>, contents: &[u8]) {
    loop {
        let Ok(read) = waiting.lock().expect("no thread panics").recv() else {
            return;
        };
        thread::sleep(read.due.saturating_duration_since(Instant::now()));
        let start = (read.offset as usize).min(contents.len());
        let end = (start + read.bytes as usize).min(contents.len());
        read.reply.data(&contents[start..end]);
    }
}

/// Ctrl-C and the like are the command's; once it has ended the filesystem goes. A handler, unlike what is ignored,
/// is not inherited by what is executed.
fn leave_signals_to_the_command() {
    extern "C" fn nothing(_: libc::c_int) {}
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: a handler that does nothing.
        unsafe { libc::signal(signal, nothing as *const () as libc::sighandler_t) };
    }
}

fn run(args: &Args) -> Result<ExitCode, String> {
    let named = |path: &Path, e: io::Error| format!("{}: {e}", path.display());
    let contents: Arc<[u8]> = std::fs::read(&args.file)
        .map_err(|e| named(&args.file, e))?
        .into();
    let name = args
        .file
        .file_name()
        .ok_or("the file has no name")?
        .to_owned();
    let (sender, receiver) = channel();
    let slow = Slow {
        name,
        bytes: contents.len() as u64,
        latency: Duration::from_micros(args.latency_us),
        made: SystemTime::now(),
        waiting: sender,
    };
    let receiver = Arc::new(Mutex::new(receiver));
    for _ in 0..ANSWERING {
        let (receiver, contents) = (Arc::clone(&receiver), Arc::clone(&contents));
        thread::spawn(move || answer(&receiver, &contents));
    }
    leave_signals_to_the_command();
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::RO,
        MountOption::FSName("softfault-slow".into()),
    ];
    let mounted =
        fuser::spawn_mount(slow, &args.mount, &config).map_err(|e| named(&args.mount, e))?;
    let mut command = Command::new(&args.command[0]);
    let status = command.args(&args.command[1..]).status();
    mounted
        .umount_and_join()
        .map_err(|e| named(&args.mount, e))?;
    let status = status.map_err(|e| named(Path::new(&args.command[0]), e))?;
    Ok(ExitCode::from(status.code().unwrap_or(1) as u8))
}

fn main() -> ExitCode {
    run(&Args::parse()).unwrap_or_else(|error| {
        eprintln!("softfault-slow-files: {error}");
        ExitCode::from(2)
    })
}
