//! Two processes, each with an engine of its own, take turns at one file: bytes that one has flushed the other sees once the
//! other has given its pages away. Drawn, beside a model.

mod child;
mod write_scene;

use child::{command, scenario};
use softfault::{Advice, Engine, MmapMut, UncheckedAdvice};
use softfault_oracle::Random;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use write_scene::{PAGE, Scratch, engine, write};

const BYTES: usize = (20 << 20) + 321;
const TEST: &str = "two_processes_take_turns";

/// An order to a process about a part of the file.
#[derive(Debug, Clone, Copy)]
struct Turn {
    verb: Verb,
    at: usize,
    count: usize,
    byte: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verb {
    /// Fills it by stores.
    Store,
    /// Fills it by a call.
    Write,
    /// Copies it to the start of the file.
    Copy,
    /// Makes its pages a hole.
    Punch,
    /// Sums it up.
    Look,
    /// Maps the file anew.
    Remap,
}

const VERBS: [Verb; 6] = [
    Verb::Store,
    Verb::Write,
    Verb::Copy,
    Verb::Punch,
    Verb::Look,
    Verb::Remap,
];

fn sum(bytes: &[u8]) -> u64 {
    let mix = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, mix)
}

/// The pages that lie in it as a whole.
fn whole_pages(at: usize, count: usize) -> (usize, usize) {
    let start = at.next_multiple_of(PAGE);
    let end = (at + count) / PAGE * PAGE;
    (start, end.saturating_sub(start))
}

/// A process that has the file.
struct Player {
    engine: Engine,
    file: File,
    map: MmapMut,
}

impl Player {
    fn new(path: &str) -> Self {
        let file = File::options().read(true).write(true).open(path).unwrap();
        let engine = engine(9 << 20);
        Self {
            map: write(&engine, &file),
            engine,
            file,
        }
    }

    /// Its turn: all that it had of the file may be old, and all that it does is flushed.
    fn play(&mut self, turn: Turn) -> u64 {
        let Turn {
            verb,
            at,
            count,
            byte,
        } = turn;
        self.map.advise(Advice::PageOut).unwrap();
        match verb {
            Verb::Store => self.map[at..at + count].fill(byte),
            Verb::Write => {
                let bytes = vec![byte; count];
                assert_eq!(self.map.write_at(&bytes, at), Ok(count));
            }
            Verb::Copy => self.map.copy_within(at..at + count, 0),
            Verb::Punch => {
                let (at, count) = whole_pages(at, count);
                let punch = UncheckedAdvice::Remove;
                // SAFETY: nobody relies on the bytes.
                unsafe { self.map.unchecked_advise_range(punch, at, count) }.unwrap();
            }
            Verb::Look => return sum(&self.map[at..at + count]),
            Verb::Remap => self.map = write(&self.engine, &self.file),
        }
        self.map.flush().unwrap();
        0
    }
}

/// The other process.
struct Other(Child, ChildStdin, BufReader<ChildStdout>);

impl Other {
    fn new(path: &str) -> Self {
        let mut command = command(TEST, path);
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (to, from) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self(child, to, BufReader::new(from))
    }

    fn play(&mut self, turn: Turn) -> u64 {
        let verb = VERBS.iter().position(|&verb| verb == turn.verb).unwrap();
        let Turn {
            at, count, byte, ..
        } = turn;
        writeln!(self.1, "{verb} {at} {count} {byte}").unwrap();
        let mut line = String::new();
        while self.2.read_line(&mut line).unwrap() > 0 {
            // The harness has words of its own, on the same line perhaps.
            if let Some((_, answer)) = line.trim_end().split_once("answer ") {
                return answer.parse().unwrap();
            }
            line.clear();
        }
        panic!("the other process ended: {:?}", self.0.wait());
    }

    fn end(mut self) {
        drop(self.1);
        assert!(self.0.wait().unwrap().success());
    }
}

fn be_the_other(path: &str) {
    let mut player = Player::new(path);
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let numbers: Vec<usize> = line.split(' ').map(|word| word.parse().unwrap()).collect();
        let turn = Turn {
            verb: VERBS[numbers[0]],
            at: numbers[1],
            count: numbers[2],
            byte: numbers[3] as u8,
        };
        println!("answer {}", player.play(turn));
    }
}

#[test]
fn two_processes_take_turns() {
    if let Some(path) = scenario() {
        return be_the_other(&path);
    }
    let scratch = Scratch::new("turns", BYTES);
    let path = scratch.0.to_str().unwrap();
    let mut model = scratch.content();
    let (mut own, mut other) = (Player::new(path), Other::new(path));
    let mut random = Random::new(16);
    for step in 0..1_200 {
        let at = random.below(BYTES);
        let turn = Turn {
            verb: VERBS[random.below(VERBS.len())],
            at,
            count: (1 + random.below(6 * PAGE)).min(BYTES - at),
            byte: step as u8,
        };
        let is_other = random.below(2) == 1;
        let answer = match is_other {
            true => other.play(turn),
            false => own.play(turn),
        };
        let part = at..at + turn.count;
        match turn.verb {
            Verb::Store | Verb::Write => model[part].fill(turn.byte),
            Verb::Copy => model.copy_within(part, 0),
            Verb::Punch => {
                let (at, count) = whole_pages(at, turn.count);
                model[at..at + count].fill(0);
            }
            Verb::Look => assert_eq!(answer, sum(&model[part]), "step {step}: {turn:?}"),
            Verb::Remap => {}
        }
    }
    other.end();
    drop(own);
    assert!(scratch.content() == model);
}
