//! The child process that runs kernels, and what is said to it.

use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;

use crate::apple7::APPLE7;
use crate::library::{Cache, Compiled};
use crate::report::{Counts, Failure, FailureKind, LaunchReport, Report};

/// The order in which the threads of a threadgroup, and the threadgroups, take their turns. A
/// correct kernel gives the same bits in every order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Order {
    /// By their numbers.
    #[default]
    Forward,
    /// The last first.
    Reverse,
    /// Mixed, differently after each barrier, the same for the same seed.
    Shuffled(u64),
}

/// One launch of a kernel.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The kernel.
    pub kernel: Arc<Compiled>,
    /// The words of its `var<immediate>`.
    pub params: Vec<u32>,
    /// Threadgroups in each dimension.
    pub groups: [u32; 3],
    /// For `@binding(i)`, which memory it is and whether it is written.
    pub bindings: Vec<(usize, bool)>,
}

/// Seconds after which a launch counts as endless.
const TIMEOUT: u32 = 60;

/// A process that runs launches one after the other. It is started when it is needed and again
/// after a failure, which ends it.
#[derive(Debug)]
pub struct Worker {
    /// Seconds after which a launch counts as endless.
    pub timeout: u32,
    /// Are floats that are too small to be normal taken as zero, as GPUs may? Only on x86.
    pub flush_denormals: bool,
    program: PathBuf,
    process: Option<Process>,
}

#[derive(Debug)]
struct Process {
    child: Child,
    input: ChildStdin,
    output: ChildStdout,
}

impl Worker {
    /// A worker; the program that it runs is compiled if the cache does not have it.
    pub fn new(cache: &Cache) -> Result<Worker, String> {
        let program = cache.runner()?;
        Ok(Worker { timeout: TIMEOUT, flush_denormals: false, program, process: None })
    }

    /// Runs launches in order over memory; each sees what those before it wrote. Memory that some
    /// launch writes is changed. After a failure all memory is as it was before. If any launch's
    /// kernel is from a counting build, all must be.
    pub fn run(
        &mut self,
        launches: &[Launch],
        memory: &mut [Vec<u8>],
        order: Order,
    ) -> Result<Report, Failure> {
        for (i, launch) in launches.iter().enumerate() {
            check(launch, memory).map_err(|message| failure(launches, i, message))?;
        }
        let counting = launches.first().is_some_and(|launch| launch.kernel.build.counting);
        if let Some(i) = launches.iter().position(|other| other.kernel.build.counting != counting) {
            return Err(failure(launches, i, "only some of the kernels count".into()));
        }
        let written = written(launches, memory.len());
        let request = self.request(launches, memory, &written, order, counting);
        match self.exchange(&request, launches, memory, &written, counting) {
            Ok(Ok(report)) => Ok(report),
            Ok(Err(failure)) => {
                self.end();
                Err(failure)
            }
            Err(error) => {
                let how = self.end();
                let kind = FailureKind::Crash;
                let message = format!("the worker ended ({how}): {error}");
                Err(Failure { kind, ..failure(launches, 0, message) })
            }
        }
    }

    fn start(&mut self) -> std::io::Result<&mut Process> {
        if self.process.is_none() {
            let mut child =
                Command::new(&self.program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
            let closed = || std::io::Error::other("the worker has no pipes");
            let input = child.stdin.take().ok_or_else(closed)?;
            let output = child.stdout.take().ok_or_else(closed)?;
            self.process = Some(Process { child, input, output });
        }
        self.process.as_mut().ok_or_else(|| std::io::Error::other("the worker did not start"))
    }

    /// Ends the process, if it runs; says how it ended.
    fn end(&mut self) -> String {
        let Some(mut process) = self.process.take() else { return "it did not run".into() };
        drop((process.input, process.output));
        match process.child.wait() {
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        }
    }

    fn request(
        &self,
        launches: &[Launch],
        memory: &[Vec<u8>],
        written: &[bool],
        order: Order,
        counting: bool,
    ) -> Vec<u8> {
        let (mode, seed) = match order {
            Order::Forward => (0, 0),
            Order::Reverse => (1, 0),
            Order::Shuffled(seed) => (2, seed),
        };
        let mut request = Request::default();
        request.words(&[1, mode]).long(seed).words(&[self.timeout]);
        request.words(&[counting.into(), self.flush_denormals.into()]);
        request.words(&[memory.len() as u32]);
        for (bytes, written) in memory.iter().zip(written) {
            request.words(&[(*written).into()]).long(bytes.len() as u64).bytes(bytes);
        }
        request.words(&[launches.len() as u32]);
        for launch in launches {
            request.launch(launch, memory);
        }
        request.0
    }

    fn exchange(
        &mut self,
        request: &[u8],
        launches: &[Launch],
        memory: &mut [Vec<u8>],
        written: &[bool],
        counting: bool,
    ) -> std::io::Result<Result<Report, Failure>> {
        let process = self.start()?;
        // A worker that fails early does not read everything; what it says tells why.
        let sent = process.input.write_all(request).and_then(|()| process.input.flush());
        let output = &mut process.output;
        let status = read_word(output).map_err(|error| sent.err().unwrap_or(error))?;
        if status != 0 {
            return read_failure(output, launches).map(Err);
        }
        let report = read_report(output, launches, counting)?;
        let mut changed = Vec::new();
        for (i, bytes) in memory.iter().enumerate().filter(|(i, _)| written[*i]) {
            let mut new = vec![0; bytes.len()];
            output.read_exact(&mut new)?;
            changed.push((i, new));
        }
        for (i, new) in changed {
            memory[i] = new;
        }
        Ok(Ok(report))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.end();
    }
}

fn failure(launches: &[Launch], launch: usize, message: String) -> Failure {
    let kernel = launches.get(launch).map(|launch| launch.kernel.name.clone()).unwrap_or_default();
    let kind = FailureKind::Launch;
    Failure { kind, kernel, launch, group: None, thread: None, binding: None, message }
}

/// What wgpu and Metal would refuse.
fn check(launch: &Launch, memory: &[Vec<u8>]) -> Result<(), String> {
    let kernel = &launch.kernel.msl.launch;
    kernel.size(launch.groups).within(&APPLE7)?;
    if kernel.threads() == 0 {
        return Err("0 threads in a threadgroup".into());
    }
    if launch.params.len() * 4 != kernel.params_bytes as usize {
        let (given, declared) = (launch.params.len() * 4, kernel.params_bytes);
        return Err(format!("{given} bytes of parameters for a kernel with {declared}"));
    }
    if let Some((index, _)) = launch.bindings.iter().find(|(index, _)| *index >= memory.len()) {
        return Err(format!("there is no memory {index}"));
    }
    for declared in &kernel.bindings {
        let binding = declared.binding;
        match launch.bindings.get(binding as usize) {
            None => return Err(format!("binding {binding} is missing")),
            Some((_, writes)) if *writes != declared.writes => {
                return Err(format!(
                    "binding {binding} is bound with another access than declared"
                ));
            }
            Some((index, false)) if launch.bindings.contains(&(*index, true)) => {
                return Err(format!("the memory of binding {binding} is bound for writing too"));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

fn written(launches: &[Launch], count: usize) -> Vec<bool> {
    let mut written = vec![false; count];
    for (index, writes) in launches.iter().flat_map(|launch| &launch.bindings) {
        written[*index] |= *writes;
    }
    written
}

/// Little-endian numbers and bytes, as `runner/protocol.h` reads them.
#[derive(Default)]
struct Request(Vec<u8>);

impl Request {
    fn words(&mut self, words: &[u32]) -> &mut Request {
        self.0.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        self
    }

    fn long(&mut self, number: u64) -> &mut Request {
        self.bytes(&number.to_le_bytes())
    }

    fn bytes(&mut self, bytes: &[u8]) -> &mut Request {
        self.0.extend_from_slice(bytes);
        self
    }

    fn counted(&mut self, words: &[u32]) -> &mut Request {
        self.words(&[words.len() as u32]).words(words)
    }

    fn launch(&mut self, launch: &Launch, memory: &[Vec<u8>]) {
        let kernel = &launch.kernel.msl.launch;
        for text in [&launch.kernel.library.to_string_lossy(), launch.kernel.symbol.as_str()] {
            self.words(&[text.len() as u32]).bytes(text.as_bytes());
        }
        self.words(&kernel.workgroup_size).words(&launch.groups);
        self.words(&[kernel.params_slot.unwrap_or(u32::MAX)]).counted(&launch.params);
        let bound = |binding: u32| launch.bindings.get(binding as usize).map_or(0, |(i, _)| *i);
        let size = |binding: &u32| u32::try_from(memory[bound(*binding)].len()).unwrap_or(u32::MAX);
        let sizes = kernel.sized.iter().map(size).collect::<Vec<_>>();
        self.words(&[kernel.sizes_slot.unwrap_or(u32::MAX)]).counted(&sizes);
        self.words(&[kernel.bindings.len() as u32]);
        for declared in &kernel.bindings {
            self.words(&[declared.binding, declared.slot, bound(declared.binding) as u32]);
        }
        self.counted(&kernel.threadgroup);
    }
}

fn read_word(from: &mut impl Read) -> std::io::Result<u32> {
    let mut bytes = [0; 4];
    from.read_exact(&mut bytes)?;
    Ok(u32::from_le_bytes(bytes))
}

fn read_long(from: &mut impl Read) -> std::io::Result<u64> {
    let mut bytes = [0; 8];
    from.read_exact(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

fn read_failure(from: &mut impl Read, launches: &[Launch]) -> std::io::Result<Failure> {
    let mut head = [0; 11];
    for word in &mut head {
        *word = read_word(from)?;
    }
    let [kind, launch, in_kernel, gx, gy, gz, x, y, z, binding, length] = head;
    let mut message = vec![0; length as usize];
    from.read_exact(&mut message)?;
    let kind = match kind {
        0 => FailureKind::Launch,
        1 => FailureKind::OutOfBounds,
        2 => FailureKind::DivergentBarrier,
        3 => FailureKind::PartialSimdgroup,
        4 => FailureKind::Race,
        5 => FailureKind::Timeout,
        _ => FailureKind::Crash,
    };
    let message = String::from_utf8_lossy(&message).into_owned();
    Ok(Failure {
        kind,
        group: (in_kernel == 1).then_some([gx, gy, gz]),
        thread: (in_kernel == 1).then_some([x, y, z]),
        binding: (binding != u32::MAX).then_some(binding),
        ..failure(launches, launch as usize, message)
    })
}

/// Bindings that the runner counts for each launch; the last is threadgroup memory.
const PLACES: usize = 32;

fn read_report(
    from: &mut impl Read,
    launches: &[Launch],
    counting: bool,
) -> std::io::Result<Report> {
    let mut report = Report::default();
    for launch in launches {
        let mut counted = LaunchReport {
            kernel: launch.kernel.name.clone(),
            groups: read_long(from)?,
            threads: read_long(from)?,
            threadgroup_bytes: launch.kernel.msl.launch.threadgroup_bytes().into(),
            barriers: read_long(from)?,
            simd_barriers: read_long(from)?,
            ..Default::default()
        };
        for place in 0..if counting { PLACES } else { 0 } {
            let mut words = [0; Counts::WORDS];
            for word in &mut words {
                *word = read_long(from)?;
            }
            let counts = Counts::from_words(&words);
            if place == PLACES - 1 {
                counted.threadgroup = counts;
            } else if place < launch.bindings.len() {
                counted.bindings.push(counts);
            }
        }
        report.launches.push(counted);
    }
    Ok(report)
}
