//! Lists of operations from a seed.

use crate::op::{MapAdvice, MemoryVerb, Op};
use crate::random::Random;
use core::ops::Range;
use softfault_engine::PAGE_SIZE;
use softfault_engine::mm::Protection;

/// The setting that lists are drawn for. Each thread changes the bytes of its own part of every
/// space, and touches all of it.
#[derive(Debug, Clone)]
pub struct Draw {
    /// Spaces at the start.
    pub spaces: usize,
    /// Pages of each.
    pub pages: usize,
    /// Pages of the file.
    pub file_pages: usize,
    /// Threads.
    pub threads: usize,
    /// Operations of each.
    pub ops: usize,
    /// Forks are among them.
    pub forks: bool,
    /// Pages are pinned, and so not cut off.
    pub pins: bool,
    /// Memory goes to swap, and there are private copies of the file, which then
    /// stays as it is.
    pub swap: bool,
}

impl Draw {
    /// Something in every part of every space.
    pub fn setup(&self, random: &mut Random) -> Vec<Op> {
        let mut ops = Vec::new();
        for space in 0..self.spaces as u8 {
            for thread in 0..self.threads {
                let part = self.part(thread);
                let middle = part.start + 1 + random.below(part.len() - 1);
                ops.push(self.map_file(space, part.start..middle, random));
                let pages = middle..part.end;
                ops.push(Op::MapZeros { space, pages });
                if self.swap {
                    // Something is in swap when the threads begin.
                    let bytes = middle * PAGE_SIZE..part.end * PAGE_SIZE;
                    let seed = 0;
                    ops.push(Op::WriteBytes { space, bytes, seed });
                    ops.push(Op::Evict);
                }
            }
        }
        ops
    }

    /// A list for each thread.
    pub fn lists(&self, random: &mut Random) -> Vec<Vec<Op>> {
        let list = |thread| (0..self.ops).map(|_| self.op(thread, random)).collect();
        (0..self.threads).map(list).collect()
    }

    /// The pages that a thread may change.
    fn part(&self, thread: usize) -> Range<usize> {
        let each = self.pages / self.threads;
        thread * each..(thread + 1) * each
    }

    fn map_file(&self, space: u8, pages: Range<usize>, random: &mut Random) -> Op {
        // Mostly so that neighbours merge.
        let most = self.file_pages - pages.len().min(self.file_pages);
        let from = match random.below(3) {
            0 => random.below(most + 1),
            _ => pages.start.min(most),
        };
        Op::MapFile { space, pages, from }
    }

    fn op(&self, thread: usize, random: &mut Random) -> Op {
        let space = random.below(self.spaces + usize::from(self.forks)) as u8;
        let part = self.part(thread);
        let start = part.start + random.below(part.len());
        let pages = start..start + 1 + random.below(part.end - start);
        let at = random.below(self.pages * PAGE_SIZE);
        let few = at..at + 1 + random.below(2 * PAGE_SIZE);
        let first = random.below(self.file_pages);
        let of_file = first..first + 1 + random.below(self.file_pages - first);
        if self.swap && random.below(3) == 0 {
            return self.swap_op(space, pages, random);
        }
        match random.below(32) {
            0..9 => Op::ReadBytes { space, bytes: few },
            9..14 => Op::WriteBytes {
                space,
                bytes: few,
                seed: 0,
            },
            14 => Op::MapZeros { space, pages },
            15 => self.map_file(space, pages, random),
            16..18 => Op::UnmapPages { space, pages },
            18..20 => Op::ProtectPages {
                space,
                pages,
                protection: [Protection::None, Protection::Read, Protection::ReadWrite]
                    [random.below(3)],
            },
            20 => Op::AdvisePages {
                space,
                pages,
                advice: [MapAdvice::Normal, MapAdvice::Random, MapAdvice::Sequential]
                    [random.below(3)],
            },
            21..23 => {
                let to = part.start + random.below(part.len());
                let most = (part.end - to).min(pages.len());
                let pages = pages.start..pages.start + most;
                Op::RemapPages { space, pages, to }
            }
            23 if self.forks => Op::Fork { space },
            24 if self.forks => Op::Exit { space },
            25 => Op::PrefetchFile { pages: of_file },
            26 => Op::InvalidateFile { pages: of_file },
            27 if self.pins => Op::PinFile { pages: of_file },
            // One thread alone knows how long the file is.
            28 if thread == 0 && !self.pins && !self.swap => Op::Truncate {
                len: random.below(self.file_pages * PAGE_SIZE + 1) as u32,
            },
            29 if thread == 0 => Op::Memory {
                more: random.below(256) as u8,
            },
            30 => Op::Evict,
            _ => Op::ReadBytes { space, bytes: few },
        }
    }

    fn swap_op(&self, space: u8, pages: Range<usize>, random: &mut Random) -> Op {
        match random.below(8) {
            0 => {
                let Op::MapFile { space, pages, from } = self.map_file(space, pages, random) else {
                    unreachable!("it maps the file");
                };
                Op::MapCopy { space, pages, from }
            }
            1..3 => Op::Evict,
            _ => {
                let verb = MemoryVerb::ALL[random.below(MemoryVerb::ALL.len())];
                Op::ManagePages { space, pages, verb }
            }
        }
    }
}
