//! The lab's engine over soft page tables: bytes are reached by calls.

use super::engine::{Anonymous, Engine, Forked, Mapping};
use super::on_softfault::engine_stats;
use super::stats::EngineStats;
use softfault::policy::Policies;
use softfault::soft::{SoftEngine, SoftMap, SoftMapMut};
use std::fs::File;
use std::io;
use std::ptr::NonNull;

/// An engine with a budget of `memory` bytes and these policies, or why the library refuses it.
pub fn build(memory: u64, policies: Policies) -> Result<Box<dyn Engine>, String> {
    let memory = usize::try_from(memory).map_err(|_| "the budget is larger than memory can be")?;
    let builder = softfault::Engine::builder().memory(memory);
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

    fn read_byte(&self, offset: usize) -> io::Result<u8> {
        let mut byte = [0];
        SoftMapMut::read_at(self, &mut byte, offset)?;
        Ok(byte[0])
    }

    fn write_byte(&self, offset: usize, byte: u8) -> io::Result<()> {
        SoftMapMut::write_at(self, &[byte], offset)?;
        Ok(())
    }
}
