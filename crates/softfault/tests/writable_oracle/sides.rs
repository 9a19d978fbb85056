//! A file that is mapped over an engine, and its twin that the kernel maps: each operation is done to both.

use crate::ops::{Mix, Op, Verb, draw};
use crate::write_scene::{PAGE, Scratch, read, write};
use softfault::{
    Advice, Builder, Coherence, Engine, FaultError, Mmap, MmapMut, MmapOptions, UncheckedAdvice,
};
use softfault_engine::policy::Policies;
use softfault_oracle::Random;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

/// Operations that are told where something is wrong.
const REMEMBERED: usize = 20_000;
/// Bytes of the file that is read into maps.
const SOURCE: usize = 2 << 20;
/// The budget: the file may become longer.
pub const MEMORY: usize = 9 << 20;

/// A map of a part of the file.
struct Part {
    at: usize,
    map: MmapMut,
}

pub struct Sides {
    mix: Mix,
    seed: u64,
    /// Operations at the same time draw from it, too.
    pub random: Random,
    step: usize,
    recent: VecDeque<(usize, Op)>,
    /// As long as the file may become.
    most: usize,
    pub len: usize,
    ours: Scratch,
    theirs: Scratch,
    source: Scratch,
    pub file: File,
    twin: File,
    pub policies: Policies,
    engine: Engine,
    elsewhere: Engine,
    /// All of the file, and more.
    pub map: MmapMut,
    parts: Vec<Part>,
    readers: Vec<Mmap>,
    reader_elsewhere: Option<Mmap>,
    /// The twin, by the kernel.
    pub other: MmapMut,
    _kernel: Engine,
}

/// The byte that an operation stores at a place: bytes that end up elsewhere are seen.
pub fn pattern(step: usize, at: usize) -> u8 {
    ((step.wrapping_mul(0x9E37_79B1) >> 7) ^ at ^ (at >> 8)) as u8
}

/// The whole pages around a part.
pub fn around(at: usize, count: usize) -> Range<usize> {
    at & !(PAGE - 1)..(at + count).next_multiple_of(PAGE)
}

/// All engines of a process have the same locks of VMAs.
pub fn builder(policies: Policies) -> Builder {
    let builder = Engine::builder().memory(MEMORY).small_maps(0);
    builder.policies(policies)
}

fn map_all(engine: &Engine, file: &File, most: usize) -> MmapMut {
    // SAFETY: written bytes are looked for.
    unsafe { MmapOptions::new().len(most).map_mut_in(engine, file) }.unwrap()
}

impl Sides {
    pub fn new(mix: Mix, seed: u64, most: usize, policies: Policies) -> Self {
        let len = most / 2 + 777;
        let scratch = |name: &str| Scratch::new(&format!("oracle-{name}-{seed}"), len);
        let (ours, theirs) = (scratch("ours"), scratch("theirs"));
        let source = Scratch::new(&format!("oracle-source-{seed}"), SOURCE);
        let (file, twin) = (ours.open(), theirs.open());
        let build = |coherence| builder(policies).coherence(coherence).build().unwrap();
        let [kernel, elsewhere] = [(); 2].map(|()| build(Coherence::Kernel));
        let engine = build(Coherence::Engine);
        let map = map_all(&engine, &file, most);
        let other = map_all(&kernel, &twin, most);
        assert!(map.is_managed() && !other.is_managed());
        Self {
            mix,
            seed,
            random: Random::new(seed),
            step: 0,
            recent: VecDeque::new(),
            most,
            len,
            ours,
            theirs,
            source,
            file,
            twin,
            policies,
            engine,
            elsewhere,
            map,
            parts: Vec::new(),
            readers: Vec::new(),
            reader_elsewhere: None,
            other,
            _kernel: kernel,
        }
    }

    /// So many operations, and then each byte.
    pub fn play(&mut self, operations: usize) {
        for _ in 0..operations {
            self.step += 1;
            let op = draw(self.mix, &mut self.random, self.len, self.most);
            self.recent.push_back((self.step, op));
            if self.recent.len() > REMEMBERED {
                self.recent.pop_front();
            }
            self.obey(op);
        }
        self.all_is_the_same();
    }

    fn obey(&mut self, op: Op) {
        let Op {
            verb,
            at,
            count,
            to,
            which,
        } = op;
        if count == 0 && !matches!(verb, Verb::SetLen | Verb::SetLenByOther | Verb::MapAllAnew) {
            return;
        }
        let part = at..at + count;
        match verb {
            Verb::Store => {
                self.becomes_at_least(at + count);
                let step = self.step;
                let (map, from) = self.map_of(&part, which);
                fill(&mut map[at - from..][..count], at, step);
                fill(&mut self.other[part], at, step);
            }
            Verb::WriteAt => {
                let bytes = self.bytes(&part);
                let (map, from) = self.map_of(&part, which);
                assert_eq!(map.write_at(&bytes, at - from), Ok(count));
                self.other[part].copy_from_slice(&bytes);
            }
            Verb::ReadFrom => self.read_from(part, which),
            Verb::ReadLocked => self.read_locked(at, count, which),
            Verb::CopyWithin => {
                let both = at.min(to)..(at + count).max(to + count);
                let (map, from) = self.map_of(&both, which);
                map.copy_within(at - from..at - from + count, to - from);
                self.other.copy_within(part, to);
            }
            Verb::Look => self.look(part, which),
            Verb::ReadAt => {
                let mut seen = vec![0; count];
                let (map, from) = self.map_of(&part, which);
                assert_eq!(map.read_at(&mut seen, at - from), Ok(count));
                self.is_same(&seen, at, "read_at");
                self.is_over_at_the_end();
            }
            Verb::WriteTo => {
                let mut seen = Vec::new();
                let (map, from) = self.map_of(&part, which);
                map.write_to(at - from..at - from + count, &mut seen)
                    .unwrap();
                self.is_same(&seen, at, "write_to");
            }
            Verb::Flush => self.map.flush().unwrap(),
            Verb::FlushRange => {
                let (map, from) = self.map_of(&part, which);
                map.flush_range(at - from, count).unwrap();
            }
            Verb::FlushSoon => self.map.flush_async().unwrap(),
            Verb::PageOut => self.page_out(&around(at, count)),
            Verb::GiveAway => {
                let pages = around(at, count);
                let advice = UncheckedAdvice::DontNeed;
                // SAFETY: written bytes stay.
                let given =
                    unsafe { (self.map).unchecked_advise_range(advice, pages.start, pages.len()) };
                given.unwrap();
            }
            Verb::WillNeed => self.map.advise_range(Advice::WillNeed, at, count).unwrap(),
            Verb::Populate => self.map.populate(part).unwrap(),
            Verb::PunchPages => self.punch_pages(at, count),
            Verb::Squeeze => {
                self.engine.set_memory(MEMORY - (1 << 20)).unwrap();
                self.engine.set_memory(MEMORY).unwrap();
            }
            Verb::Read => {
                self.settle(at, count);
                let mut seen = vec![0; count];
                self.file.read_exact_at(&mut seen, at as u64).unwrap();
                self.is_same(&seen, at, "read(2)");
            }
            Verb::Write => {
                let bytes = self.bytes(&part);
                self.settle(at, count);
                for file in [&self.file, &self.twin] {
                    file.write_all_at(&bytes, at as u64).unwrap();
                }
                self.changed_by_other(at, count);
            }
            Verb::Punch => self.allocate(at, count, libc::FALLOC_FL_PUNCH_HOLE),
            Verb::Zero => self.allocate(at, count, libc::FALLOC_FL_ZERO_RANGE),
            Verb::CopyFile => self.copy_file(at, count, to),
            Verb::SetLen => self.set_len(to),
            Verb::SetLenByOther => {
                self.map.flush().unwrap();
                self.file.set_len(to as u64).unwrap();
                self.twin.set_len(to as u64).unwrap();
                self.page_out(&(0..self.most));
                self.len = to;
                self.length_is_seen();
            }
            Verb::PastEnd => {
                let end = self.len.next_multiple_of(PAGE).min(self.most);
                self.map[self.len..end].fill(0xEE);
                self.set_len(to);
            }
            Verb::MapPart if self.parts.len() < 4 => self.map_part(at, which),
            Verb::UnmapPart if !self.parts.is_empty() => {
                drop(self.parts.swap_remove(which % self.parts.len()));
            }
            Verb::MapRead if self.readers.len() < 3 => {
                self.readers.push(read(&self.engine, &self.file));
            }
            Verb::UnmapRead if !self.readers.is_empty() => {
                drop(self.readers.swap_remove(which % self.readers.len()));
            }
            Verb::MapAllAnew => self.map_anew(which),
            Verb::LookElsewhere => self.look_elsewhere(at, count),
            Verb::Threads => self.threads(at, which),
            Verb::Fork => self.forks(which),
            _ => {}
        }
    }

    /// A map that shows all of a part, and where it begins.
    fn map_of(&mut self, part: &Range<usize>, which: usize) -> (&mut MmapMut, usize) {
        let shows = |of: &Part| of.at <= part.start && part.end <= (of.at + of.map.len());
        let all = self.parts.len() + 1;
        match self.parts.get_mut(which % all) {
            Some(of) if shows(of) => (&mut of.map, of.at),
            _ => (&mut self.map, 0),
        }
    }

    fn bytes(&self, part: &Range<usize>) -> Vec<u8> {
        part.clone().map(|at| pattern(self.step, at)).collect()
    }

    fn read_from(&mut self, part: Range<usize>, which: usize) {
        let (count, skip) = (part.len(), which % (SOURCE / 2));
        let mut source = self.source.open();
        source.seek(SeekFrom::Start(skip as u64)).unwrap();
        let (map, from) = self.map_of(&part, which);
        let into = part.start - from..part.end - from;
        let got = match which % 2 {
            0 => map.read_from(into, &mut source),
            _ => map.write_from(into, &mut source),
        };
        assert_eq!(got.unwrap(), count as u64);
        source
            .read_exact_at(&mut self.other[part], skip as u64)
            .unwrap();
    }

    /// Locked pages can be written to by any system call.
    fn read_locked(&mut self, at: usize, count: usize, which: usize) {
        let count = count.min(64 * PAGE);
        let mut part = MmapOptions::new();
        part.offset(at as u64).len(count);
        // SAFETY: written bytes are looked for.
        let mut map = unsafe { part.map_mut_in(&self.engine, &self.file) }.unwrap();
        map.lock().unwrap();
        let (source, skip) = (self.source.open(), (which % (SOURCE / 2)) as u64);
        source.read_exact_at(&mut map, skip).unwrap();
        source
            .read_exact_at(&mut self.other[at..at + count], skip)
            .unwrap();
        match which % 3 {
            0 => map.flush().unwrap(),
            1 => map.unlock().unwrap(),
            _ => {}
        }
    }

    fn look(&mut self, part: Range<usize>, which: usize) {
        let (map, from) = self.map_of(&part, which);
        let seen = &raw const map[part.start - from..part.end - from];
        // SAFETY: a part of a map that lives, and that nobody writes to meanwhile.
        self.is_same(unsafe { &*seen }, part.start, "a map");
        for reader in &self.readers {
            let end = part.end.min(reader.len());
            if part.start < end {
                self.is_same(&reader[part.start..end], part.start, "a read-only map");
            }
        }
    }

    /// A call past the last page is refused.
    fn is_over_at_the_end(&self) {
        let end = self.len.next_multiple_of(PAGE);
        if end < self.most {
            let refused = self.map.read_at(&mut [0; 8], end);
            assert_eq!(refused, Err(FaultError::BeyondEnd), "{}", self.told(end));
        }
    }

    fn look_elsewhere(&mut self, at: usize, count: usize) {
        self.settle(at, count);
        let (engine, file) = (&self.elsewhere, &self.file);
        let map = (self.reader_elsewhere.take()).unwrap_or_else(|| read(engine, file));
        let end = (at + count).min(map.len());
        if at < end {
            let pages = around(at, end - at);
            let pages = pages.start..pages.end.min(map.len());
            map.advise_range(Advice::PageOut, pages.start, pages.len())
                .unwrap();
            self.is_same(&map[at..end], at, "a map of another engine");
        }
        self.reader_elsewhere = Some(map);
    }

    /// Brings writes to these pages into the file, so that none of them is dirty.
    fn settle(&mut self, at: usize, count: usize) {
        let pages = around(at, count);
        match self.random.below(8) {
            0 => {
                let len = pages.len().min(self.most - pages.start);
                self.map.flush_range(pages.start, len).unwrap();
            }
            _ => self.page_out(&pages),
        }
    }

    /// Others have written to the file.
    fn changed_by_other(&mut self, at: usize, count: usize) {
        self.page_out(&around(at, count));
        if at + count > self.len {
            self.len = at + count;
            // A touch past the former end sees it, too.
            match self.random.below(2) {
                0 => self.length_is_seen(),
                _ => self.reader_elsewhere = None,
            }
        }
    }

    pub fn page_out(&self, pages: &Range<usize>) {
        let len = pages.len().min(self.most - pages.start);
        let done = self.map.advise_range(Advice::PageOut, pages.start, len);
        done.unwrap();
    }

    /// How long a file is the next map of it sees.
    fn length_is_seen(&mut self) {
        self.reader_elsewhere = None;
        drop(map_all(&self.engine, &self.file, self.most));
    }

    fn becomes_at_least(&mut self, len: usize) {
        if self.len < len {
            self.set_len(len);
        }
    }

    fn set_len(&mut self, len: usize) {
        self.reader_elsewhere = None;
        self.engine.truncate(&self.file, len as u64).unwrap();
        self.twin.set_len(len as u64).unwrap();
        self.len = len;
    }

    fn punch_pages(&mut self, at: usize, count: usize) {
        let pages = around(at, count);
        // The last page of the file, as a whole.
        let len = pages.len().min(self.most - pages.start);
        for map in [&self.map, &self.other] {
            let punch = UncheckedAdvice::Remove;
            // SAFETY: nobody relies on the bytes.
            unsafe { map.unchecked_advise_range(punch, pages.start, len) }.unwrap();
        }
    }

    /// fallocate(2), which leaves the length.
    fn allocate(&mut self, at: usize, count: usize, mode: i32) {
        self.settle(at, count);
        for file in [&self.file, &self.twin] {
            let mode = mode | libc::FALLOC_FL_KEEP_SIZE;
            let (fd, at, count) = (file.as_raw_fd(), at as libc::off_t, count as libc::off_t);
            // SAFETY: no pointer.
            let done = unsafe { libc::fallocate(fd, mode, at, count) };
            let error = std::io::Error::last_os_error();
            match (done, error.raw_os_error()) {
                (0, _) => {}
                // Not every filesystem has it.
                (_, Some(libc::EOPNOTSUPP)) => {
                    let zeros = vec![0; count as usize];
                    file.write_all_at(&zeros, at as u64).unwrap();
                }
                _ => panic!("fallocate: {error}"),
            }
        }
        self.changed_by_other(at, count);
    }

    fn copy_file(&mut self, at: usize, count: usize, to: usize) {
        // Ranges that overlap are refused by copy_file_range(2).
        if at < to + count && to < at + count {
            return;
        }
        self.settle(at, count);
        self.settle(to, count);
        for file in [&self.file, &self.twin] {
            let (mut from, mut into) = (at as i64, to as i64);
            let mut left = count;
            while left > 0 {
                let fd = file.as_raw_fd();
                // SAFETY: the offsets live.
                let copied =
                    unsafe { libc::copy_file_range(fd, &raw mut from, fd, &raw mut into, left, 0) };
                if copied <= 0 {
                    // Not every filesystem has it.
                    let mut bytes = vec![0; left];
                    file.read_exact_at(&mut bytes, from as u64).unwrap();
                    file.write_all_at(&bytes, into as u64).unwrap();
                    break;
                }
                left -= copied as usize;
            }
        }
        self.changed_by_other(to, count);
    }

    fn map_part(&mut self, at: usize, which: usize) {
        let len = 1 + which % (2 << 20);
        let len = len.min(self.most - at);
        let mut part = MmapOptions::new();
        part.offset(at as u64).len(len);
        // SAFETY: written bytes are looked for.
        let map = unsafe { part.map_mut_in(&self.engine, &self.file) }.unwrap();
        assert!(map.is_managed());
        self.parts.push(Part { at, map });
    }

    fn map_anew(&mut self, which: usize) {
        self.parts.clear();
        self.readers.clear();
        // A window is kept by any map of it.
        let kept =
            (which.is_multiple_of(2) && self.len > 0).then(|| write(&self.engine, &self.file));
        let rest = self.engine.map_anon(1).unwrap();
        drop(core::mem::replace(&mut self.map, rest));
        self.map = map_all(&self.engine, &self.file, self.most);
        assert!(self.map.is_managed());
        drop(kept);
    }

    /// `seen` is compared with the twin's bytes from `at` on.
    pub fn is_same(&self, seen: &[u8], at: usize, by: &str) {
        let expected = &self.other[at..at + seen.len()];
        if seen != expected {
            let mut wrong = (0..seen.len()).filter(|&at| seen[at] != expected[at]);
            let first = wrong.next().unwrap();
            let last = wrong.next_back().unwrap_or(first);
            panic!(
                "{by}: {} instead of {} at {}, and up to {}: {}",
                seen[first],
                expected[first],
                at + first,
                at + last,
                self.told(at + first)
            );
        }
    }

    /// The last operations on a page.
    fn told(&self, at: usize) -> String {
        let page = at / PAGE;
        let touches = |from: usize, count: usize| {
            let pages = around(from, count);
            pages.start / PAGE <= page && page < pages.end / PAGE
        };
        let whole = [
            Verb::SetLen,
            Verb::SetLenByOther,
            Verb::PastEnd,
            Verb::MapAllAnew,
            Verb::Flush,
            Verb::Fork,
            Verb::Squeeze,
        ];
        let touching = self.recent.iter().filter(|(_, op)| {
            let copies = matches!(op.verb, Verb::CopyWithin | Verb::CopyFile);
            whole.contains(&op.verb)
                || touches(op.at, op.count)
                || (copies && touches(op.to, op.count))
                || (op.verb == Verb::Threads && touches(op.at, 64 * PAGE))
        });
        let touching: Vec<_> = touching
            .map(|(step, op)| format!("{step} {op:?}"))
            .collect();
        let last = touching.len().saturating_sub(30);
        format!(
            "seed {} step {}, length {}, page {page}; operations:\n{}",
            self.seed,
            self.step,
            self.len,
            touching[last..].join("\n")
        )
    }

    fn all_is_the_same(&mut self) {
        self.map.flush().unwrap();
        assert_eq!(self.map.dirty_bytes(), 0, "{}", self.told(0));
        let len = self.len;
        let ours = self.ours.content();
        assert_eq!(ours.len(), len, "{}", self.told(len));
        self.is_same(&ours, 0, "the file");
        let theirs = self.theirs.content();
        assert!(ours == theirs, "the map shows the twin's bytes");
        self.is_same(&self.map[..len], 0, "the map");
        let stats = self.engine.stats();
        assert!(stats.peak_bytes <= MEMORY as u64, "{}", stats.peak_bytes);
        assert_eq!(stats.write_errors, 0);
    }
}

fn fill(bytes: &mut [u8], at: usize, step: usize) {
    for (offset, byte) in bytes.iter_mut().enumerate() {
        *byte = pattern(step, at + offset);
    }
}
