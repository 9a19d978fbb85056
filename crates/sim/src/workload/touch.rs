//! Touching the pages of a file, and checking their bytes.

use super::gang::Member;
use super::tally::Waited;
use crate::rig::FileMap;
use crate::world;
use softfault_engine::fault::FaultError;

impl Member {
    /// Reads a word of a page, and checks it. A page that cannot be read counts
    /// as failed where the disk has bad ones, and is an error elsewhere.
    pub fn touch(&mut self, map: &FileMap, page: u64, what: Waited) -> Result<(), String> {
        let since = world::now_ns();
        let read = self.rig.read(&mut self.view, map.address(page));
        self.tally.longest(what, world::now_ns() - since);
        self.tally.touches += 1;
        match read {
            Ok(word) if word == map.word(page) => Ok(()),
            Ok(word) => Err(format!(
                "wrong data in page {page} of a file: {word:#x}, not {:#x}",
                map.word(page)
            )),
            Err(FaultError::Io(_) | FaultError::Short) if self.errors_expected => {
                self.tally.failed += 1;
                Ok(())
            }
            Err(error) => Err(format!("cannot read page {page} of a file: {error:?}")),
        }
    }
}
