//! Requests to another process, and its answers.

use softfault_engine::mm::MmError;
use softfault_oracle::{Expected, MemoryVerb, Step};
use std::io::{self, Read, Write};
use std::ops::Range;
use std::os::unix::net::UnixStream;

macro_rules! verbs {
    ($($(#[$about:meta])* $verb:ident,)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Verb { $($(#[$about])* $verb,)* }

        impl Verb {
            const ALL: &[Self] = &[$(Self::$verb,)*];
        }
    };
}

verbs! {
    /// Map zeros.
    MapZeros,
    /// Map a private copy of a file's pages, from page `more` on.
    MapCopy,
    Unmap,
    MakeReadOnly,
    MakeMut,
    /// To `more` pages.
    Resize,
    /// Which of [`MemoryVerb::ALL`] is `more`.
    Manage,
    /// Some bytes of a page; the answer has them.
    Read,
    Write,
    /// Plans of `more` threads.
    Run,
    /// The pages paid for, from the one to the other of the numbers.
    Check,
    /// The bytes are the numbers of pages.
    Absent,
    Evict,
    SetMemory,
    /// Make a child, which comes and listens.
    Fork,
    /// Unmap everything, and end; `more` is not 0 if all children have ended.
    Exit,
}

/// Something to be done with pages, or bytes, of the arena.
pub struct Request {
    pub verb: Verb,
    /// Of softfault, or of the kernel.
    pub side: usize,
    pub range: Range<usize>,
    pub more: usize,
    pub bytes: Vec<u8>,
}

impl Request {
    pub fn new(verb: Verb, side: usize, range: Range<usize>) -> Self {
        Self {
            verb,
            side,
            range,
            more: 0,
            bytes: Vec::new(),
        }
    }

    pub fn more(self, more: usize) -> Self {
        Self { more, ..self }
    }

    pub fn bytes(self, bytes: Vec<u8>) -> Self {
        Self { bytes, ..self }
    }

    pub fn send(&self, stream: &mut UnixStream) -> io::Result<()> {
        let (start, end) = (self.range.start, self.range.end);
        let head = [self.verb as usize, self.side, start, end, self.more];
        send(stream, &head, &self.bytes)
    }

    /// None: nobody asks any more.
    pub fn receive(stream: &mut UnixStream) -> Option<Self> {
        let ([verb, side, start, end, more], bytes) = receive(stream).ok()?;
        Some(Self {
            verb: Verb::ALL[verb],
            side,
            range: start..end,
            more,
            bytes,
        })
    }
}

/// The result of a request.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    /// Of an access, or another that can fail so.
    Expected(Expected),
    Mapped(Result<(), MmError>),
    Bytes(Expected, Vec<u8>),
    /// A page; or the answering process.
    Page(Option<usize>),
}

const EXPECTED: [Expected; 4] = [
    Expected::Done,
    Expected::Unmapped,
    Expected::Forbidden,
    Expected::Failed,
];

impl Answer {
    pub const DONE: Self = Self::Expected(Expected::Done);

    pub fn send(&self, stream: &mut UnixStream) -> io::Result<()> {
        let number = |expected: &Expected| EXPECTED.iter().position(|it| it == expected).unwrap();
        let (head, bytes) = match self {
            Self::Expected(expected) => ([0, number(expected)], &[][..]),
            Self::Mapped(Ok(())) => ([1, 0], &[][..]),
            Self::Mapped(Err(error)) => {
                assert_eq!(*error, MmError::Overlap);
                ([1, 1], &[][..])
            }
            Self::Bytes(expected, bytes) => ([2, number(expected)], &bytes[..]),
            Self::Page(page) => ([3, page.map_or(0, |page| page + 1)], &[][..]),
        };
        send(stream, &head, bytes)
    }

    pub fn receive(stream: &mut UnixStream) -> io::Result<Self> {
        let ([kind, what], bytes) = receive(stream)?;
        Ok(match kind {
            0 => Self::Expected(EXPECTED[what]),
            1 => Self::Mapped(if what == 0 {
                Ok(())
            } else {
                Err(MmError::Overlap)
            }),
            2 => Self::Bytes(EXPECTED[what], bytes),
            _ => Self::Page(what.checked_sub(1)),
        })
    }
}

fn send(stream: &mut UnixStream, head: &[usize], bytes: &[u8]) -> io::Result<()> {
    let numbers = head.iter().copied().chain([bytes.len()]);
    let mut message: Vec<u8> = numbers.flat_map(usize::to_ne_bytes).collect();
    message.extend_from_slice(bytes);
    stream.write_all(&message)
}

fn receive<const N: usize>(stream: &mut UnixStream) -> io::Result<([usize; N], Vec<u8>)> {
    let mut number = || -> io::Result<usize> {
        let mut bytes = [0; size_of::<usize>()];
        stream.read_exact(&mut bytes)?;
        Ok(usize::from_ne_bytes(bytes))
    };
    let mut head = [0; N];
    for place in &mut head {
        *place = number()?;
    }
    let mut bytes = vec![0; number()?];
    stream.read_exact(&mut bytes)?;
    Ok((head, bytes))
}

/// Numbers as bytes, and back.
pub fn from_numbers(numbers: &[usize]) -> Vec<u8> {
    numbers
        .iter()
        .flat_map(|number| number.to_ne_bytes())
        .collect()
}

pub fn to_numbers(bytes: &[u8]) -> Vec<usize> {
    let (numbers, _) = bytes.as_chunks();
    numbers
        .iter()
        .map(|&bytes| usize::from_ne_bytes(bytes))
        .collect()
}

pub fn from_plans(plans: &[Vec<Step>]) -> Vec<u8> {
    let steps = plans.iter().enumerate().flat_map(|(thread, plan)| {
        plan.iter().map(move |step| {
            let expected = EXPECTED.iter().position(|it| *it == step.expected).unwrap();
            let (value, write) = (usize::from(step.value), usize::from(step.write));
            [thread, step.at, value, write, expected]
        })
    });
    from_numbers(&steps.flatten().collect::<Vec<_>>())
}

pub fn to_plans(threads: usize, bytes: &[u8]) -> Vec<Vec<Step>> {
    let mut plans = vec![Vec::new(); threads];
    for [thread, at, value, write, expected] in to_numbers(bytes).as_chunks().0 {
        plans[*thread].push(Step {
            at: *at,
            value: *value as u8,
            write: *write != 0,
            expected: EXPECTED[*expected],
        });
    }
    plans
}

/// A verb's place in the list of all.
pub fn number_of(verb: MemoryVerb) -> usize {
    let place = MemoryVerb::ALL.iter().position(|it| *it == verb);
    place.expect("a verb is one of all")
}
