//! The states that a thread may see of a thing that others change meanwhile.
//!
//! Every operation takes a while. A state may be current from the beginning of
//! the operation that makes it, until the end of one that began after that and
//! makes another. A thread that looks from `from` to `to` may see every state that was
//! perhaps current at some moment in between, and no other.

/// Moments, in order. Never the same twice.
pub(super) type Moment = u64;

/// An operation that has not ended.
pub(super) const RUNNING: Moment = Moment::MAX;

/// One state.
#[derive(Debug, Clone)]
struct State<V> {
    /// It is one of these: a space that was forked while others changed the
    /// first has pages of which more than one thing may be so.
    values: Vec<V>,
    begin: Moment,
    end: Moment,
    /// False if perhaps the operation did not change this thing, but another.
    certain: bool,
}

/// The states of a thing.
#[derive(Debug, Clone)]
pub(super) struct History<V> {
    states: Vec<State<V>>,
}

impl<V: Clone + PartialEq> History<V> {
    /// One state, since always.
    pub(super) fn new(values: Vec<V>) -> Self {
        let state = State {
            values,
            begin: 0,
            end: 0,
            certain: true,
        };
        Self {
            states: vec![state],
        }
    }

    /// An operation begins that makes it one of these.
    pub(super) fn begin(&mut self, now: Moment, values: Vec<V>) {
        let before = self.states.last();
        let is_running = before.is_some_and(|state| state.end == RUNNING);
        assert!(!is_running, "the list lets two threads change one page");
        self.states.push(State {
            values,
            begin: now,
            end: RUNNING,
            certain: true,
        });
    }

    /// The operation that began last has ended.
    pub(super) fn end(&mut self, now: Moment) {
        let last = self.states.last_mut().expect("there is always a state");
        assert_eq!(last.end, RUNNING, "an operation ends once");
        last.end = now;
    }

    /// An operation from `begin` to `end` made it `value`, or perhaps not.
    pub(super) fn add(&mut self, begin: Moment, end: Moment, value: V, certain: bool) {
        self.states.push(State {
            values: vec![value],
            begin,
            end,
            certain,
        });
    }

    /// An operation began that perhaps makes it `value`, at any time until something
    /// else does.
    pub(super) fn begin_perhaps(&mut self, begin: Moment, value: V) {
        self.add(begin, RUNNING, value, false);
    }

    /// The operation that began at `begin` has ended.
    pub(super) fn end_perhaps(&mut self, begin: Moment, now: Moment) {
        let running = |state: &&mut State<V>| state.begin == begin && state.end == RUNNING;
        for state in self.states.iter_mut().filter(running) {
            state.end = now;
        }
    }

    /// Its state if no thread changes it, or its last state.
    pub(super) fn last(&self) -> &[V] {
        &self.states.last().expect("there is always a state").values
    }

    /// How often it was changed.
    pub(super) fn changes(&self) -> usize {
        self.states.len() - 1
    }

    /// Everything that a thread may see that looks from `from` to `to`.
    pub(super) fn seen(&self, from: Moment, to: Moment) -> Vec<V> {
        let mut seen = Vec::new();
        for state in &self.states {
            let over =
                |other: &State<V>| other.certain && state.end < other.begin && other.end < from;
            if state.begin > to || self.states.iter().any(over) {
                continue;
            }
            for value in &state.values {
                if !seen.contains(value) {
                    seen.push(value.clone());
                }
            }
        }
        seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_seen_from_its_beginning_to_the_end_of_the_next() {
        let mut history = History::new(vec!['a']);
        history.begin(10, vec!['b']);
        assert_eq!(history.seen(1, 9), ['a']);
        assert_eq!(history.seen(5, 11), ['a', 'b']);
        assert_eq!(history.seen(11, 12), ['a', 'b'], "it has not ended");
        history.end(20);
        assert_eq!(history.seen(15, 30), ['a', 'b'], "it had not ended yet");
        assert_eq!(history.seen(21, 30), ['b']);
    }

    #[test]
    fn of_two_at_a_time_either_may_be_last() {
        let mut history = History::new(vec![0]);
        history.add(10, 20, 1, true);
        history.add(15, 18, 2, true);
        assert_eq!(history.seen(30, 31), [1, 2]);
        history.add(40, 41, 3, false);
        assert_eq!(history.seen(50, 51), [1, 2, 3], "perhaps another's");
        history.add(60, 61, 4, true);
        assert_eq!(history.seen(70, 71), [4]);
        history.begin_perhaps(80, 0);
        history.add(82, 83, 5, true);
        // In any order.
        let seen = |history: &History<i32>, begin, end| {
            let mut values = history.seen(begin, end).to_vec();
            values.sort_unstable();
            values
        };
        assert_eq!(seen(&history, 84, 85), [0, 5], "it may still happen");
        history.end_perhaps(80, 90);
        assert_eq!(seen(&history, 91, 92), [0, 5]);
        history.add(93, 94, 6, true);
        assert_eq!(history.seen(95, 96), [6]);
    }
}
