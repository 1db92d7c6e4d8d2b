//! What a run tells: counts, or what went wrong.

use std::fmt;

/// What a run did, launch by launch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// In the order of the launches.
    pub launches: Vec<LaunchReport>,
}

/// What one launch did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LaunchReport {
    /// The kernel's name.
    pub kernel: String,
    /// Threadgroups that ran.
    pub groups: u64,
    /// Threads of all threadgroups that ran to their end.
    pub threads: u64,
    /// Bytes of threadgroup memory of one threadgroup, as it was given to the kernel.
    pub threadgroup_bytes: u64,
    /// `threadgroup_barrier`s, each counted once for a threadgroup.
    pub barriers: u64,
    /// `simdgroup_barrier`s, each counted once for a simdgroup.
    pub simd_barriers: u64,
    /// Counting builds: what was done with each binding, in order of the numbers.
    pub bindings: Vec<Counts>,
    /// Counting builds: what was done with threadgroup memory.
    pub threadgroup: Counts,
}

/// How memory was used. A simdgroup access is what the lanes of one simdgroup do at one place in
/// the machine code at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Loads by single threads.
    pub loads: u64,
    /// Stores by single threads, atomic updates included.
    pub stores: u64,
    /// How many of both were atomic.
    pub atomics: u64,
    /// Bytes loaded.
    pub load_bytes: u64,
    /// Bytes stored.
    pub store_bytes: u64,
    /// Loads by simdgroups.
    pub load_accesses: u64,
    /// Stores by simdgroups.
    pub store_accesses: u64,
    /// The cache lines of 128 bytes that each load by a simdgroup touched, summed up.
    pub load_lines: u64,
    /// The same for stores.
    pub store_lines: u64,
    /// Bytes that some thread loaded, each counted once.
    pub loaded_bytes: u64,
    /// Bytes that some thread stored, each counted once.
    pub stored_bytes: u64,
}

impl Counts {
    pub(crate) const WORDS: usize = 11;

    pub(crate) fn from_words(words: &[u64]) -> Counts {
        let word = |i: usize| words.get(i).copied().unwrap_or_default();
        Counts {
            loads: word(0),
            stores: word(1),
            atomics: word(2),
            load_bytes: word(3),
            store_bytes: word(4),
            load_accesses: word(5),
            store_accesses: word(6),
            load_lines: word(7),
            store_lines: word(8),
            loaded_bytes: word(9),
            stored_bytes: word(10),
        }
    }
}

/// Why a run was given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What kind of mistake it is.
    pub kind: FailureKind,
    /// The kernel's name; empty if no kernel is to blame.
    pub kernel: String,
    /// Which of the launches.
    pub launch: usize,
    /// The position of the threadgroup, if a thread did it.
    pub group: Option<[u32; 3]>,
    /// The position in the threadgroup, if a thread did it.
    pub thread: Option<[u32; 3]>,
    /// The binding, if it is about one.
    pub binding: Option<u32>,
    /// What happened.
    pub message: String,
}

/// Kinds of failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FailureKind {
    /// The launch cannot be made: wrong bindings, too many threadgroups, no such library.
    Launch,
    /// Memory outside of a binding or a threadgroup variable was touched.
    OutOfBounds,
    /// A barrier that not all threads of a threadgroup reach.
    DivergentBarrier,
    /// A simdgroup matrix operation that not all lanes of a simdgroup reach.
    PartialSimdgroup,
    /// Two threads touch the same memory, one of them writes, and nothing orders them.
    Race,
    /// The launch took too long.
    Timeout,
    /// Anything else that ended the process, such as an integer division by zero.
    Crash,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} in launch {}", self.kind, self.launch)?;
        if !self.kernel.is_empty() {
            write!(f, " ({})", self.kernel)?;
        }
        if let (Some(group), Some(thread)) = (self.group, self.thread) {
            write!(f, ", threadgroup {group:?}, thread {thread:?}")?;
        }
        if let Some(binding) = self.binding {
            write!(f, ", binding {binding}")?;
        }
        write!(f, ": {}", self.message)
    }
}

impl std::error::Error for Failure {}
