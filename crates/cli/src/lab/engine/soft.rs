//! The lab's engine over soft page tables: bytes are reached by calls.

use super::softfault::{builder, engine_stats};
use super::{Anonymous, Engine, Forked, Mapping};
use crate::lab::job::Swap;
use crate::lab::stats::EngineStats;
use softfault::policy::Policies;
use softfault::soft::{SoftEngine, SoftMap, SoftMapMut};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::ptr::NonNull;

/// An engine with a budget of `memory` bytes and these policies, or why the library refuses it.
pub fn build(
    memory: u64,
    policies: Policies,
    swap: Option<&Swap>,
) -> Result<Box<dyn Engine>, String> {
    let builder = builder(memory, swap)?;
    match builder.policies(policies).build_soft() {
        Ok(engine) => Ok(Box::new(OnSoft(engine))),
        Err(e) => Err(format!("soft: {e}")),
    }
}

struct OnSoft(SoftEngine);

impl Engine for OnSoft {
    fn map(&self, file: &File) -> io::Result<Box<dyn Mapping>> {
        Ok(Box::new(self.0.map(file)?))
    }

    fn map_anonymous(&self, bytes: usize) -> io::Result<Box<dyn Anonymous>> {
        Ok(Box::new(self.0.map_anon(bytes)?))
    }

    fn fork(&self) -> io::Result<Forked> {
        Ok(Forked::Space(Box::new(self.0.fork()?)))
    }

    fn stats(&self) -> Option<EngineStats> {
        Some(engine_stats(&self.0.stats()))
    }
}

impl Mapping for SoftMap {
    fn bytes(&self) -> Option<&[u8]> {
        None
    }

    fn bring_in(&self, ranges: &[Range<usize>], _present: bool) -> io::Result<()> {
        let answers = self.fault_in_many(ranges, None);
        Ok(answers.into_iter().collect::<Result<(), _>>()?)
    }

    fn read_at(&self, offset: usize, buffer: &mut [u8]) -> io::Result<()> {
        let count = SoftMap::read_at(self, buffer, offset)?;
        match count == buffer.len() {
            true => Ok(()),
            false => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

impl Anonymous for SoftMapMut {
    fn start(&self) -> Option<NonNull<u8>> {
        None
    }

    fn read_at(&self, offset: usize, buffer: &mut [u8]) -> io::Result<()> {
        match SoftMapMut::read_at(self, buffer, offset)? {
            count if count == buffer.len() => Ok(()),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    fn write_at(&self, offset: usize, bytes: &[u8]) -> io::Result<()> {
        match SoftMapMut::write_at(self, bytes, offset)? {
            count if count == bytes.len() => Ok(()),
            _ => Err(io::ErrorKind::WriteZero.into()),
        }
    }
}
