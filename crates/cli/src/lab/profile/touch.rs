//! The touches.

use super::column::Column;
use super::kind::{Kind, ToldBy};
use super::prepare::Scene;
use crate::error::Error;
use crate::interrupt::Interrupt;
use softfault::stage;

/// Touches in a row that are recorded, and as many that are not.
const ROW: u64 = 2;

/// Touches the pages of a scene in its order: as many recorded as said, as many not.
pub fn record(
    scene: &Scene,
    kind: Kind,
    told: ToldBy,
    touches: u64,
    interrupt: &Interrupt,
) -> Result<Column, Error> {
    let (mut recorded, mut unrecorded) = (Vec::new(), Vec::new());
    recorded.reserve(touches as usize);
    unrecorded.reserve(touches as usize);
    for at in 0..2 * touches {
        interrupt.check()?;
        let page = scene.order(at);
        let recording = (at / ROW).is_multiple_of(2);
        stage::switch(recording);
        stage::begin();
        let found = scene.touch(page, kind.writes());
        let touched = stage::end();
        stage::switch(false);
        scene.check(page, found)?;
        match recording {
            true => recorded.push(touched),
            false => unrecorded.push(touched.total_ns()),
        }
    }
    Ok(Column::of(kind, told, &recorded, &mut unrecorded))
}
