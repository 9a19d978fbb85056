//! Whether loom was through with a model. It tells nobody but its log: the one
//! line that it writes only when no schedule is left.

use std::cell::Cell;
use std::fmt::Debug;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{Interest, with_default};
use tracing::{Event, Level, Metadata, Subscriber};

/// How the line begins.
const COMPLETED: &str = "Completed in ";

thread_local! {
    static SEEN: Cell<bool> = const { Cell::new(false) };
}

/// Runs `explore`; true if loom completed it.
pub fn watch(explore: impl FnOnce()) -> bool {
    SEEN.set(false);
    with_default(Listener, explore);
    SEEN.take()
}

/// Listens only to loom's log of a whole model.
struct Listener;

impl Listener {
    fn wants(metadata: &Metadata<'_>) -> bool {
        metadata.is_event()
            && *metadata.level() == Level::INFO
            && metadata.target() == "loom::model"
    }
}

impl Subscriber for Listener {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        match Self::wants(metadata) {
            true => Interest::sometimes(),
            false => Interest::never(),
        }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        Self::wants(metadata)
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut Line);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Line;

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" && format!("{value:?}").starts_with(COMPLETED) {
            SEEN.set(true);
        }
    }
}
