//! Evaluation: orders the pending part of a graph, fuses elementwise runs, reuses memory and runs
//! the steps through an [`Encoder`](crate::Encoder).

mod compile;
mod fusion;
mod order;
mod plan;
mod program;
mod run;
mod schedule;

use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

pub use compile::{CompileStats, Compiled, PlanSummary, compile, disable_compile, enable_compile};
pub(crate) use compile::{Plans, Signature, is_recording, runs_by_itself};
pub(crate) use plan::Plan;
pub(crate) use program::{Argument, ELEMENTWISE_ALIASES, Program, Step, StepKind};
pub(crate) use run::{read_bytes, read_memory};

use crate::array::Array;
use crate::device::Device;
use crate::error::Result;

/// What is shared by evaluations, which take turns: a node runs once, and nodes carry scratch
/// marks that belong to one evaluation.
#[derive(Debug)]
pub(crate) struct Evaluation {
    epoch: u32,
}

impl Evaluation {
    /// The number of the next evaluation.
    fn next_epoch(&mut self) -> u32 {
        self.epoch = self.epoch.wrapping_add(1).max(1);
        self.epoch
    }
}

/// The lock that makes evaluations take turns.
pub(crate) fn lock() -> MutexGuard<'static, Evaluation> {
    EVALUATION.lock().unwrap_or_else(PoisonError::into_inner)
}

static EVALUATION: Mutex<Evaluation> = Mutex::new(Evaluation { epoch: 0 });

/// Computes arrays and waits for them.
///
/// ```
/// let x = wootz::Array::from_slice(&[1.0f32, 2.0], &[2])?;
/// let (a, b) = (&x * 2.0, &x + 1.0);
/// wootz::eval([&a, &b])?;
/// assert!(a.is_evaluated() && b.is_evaluated());
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn eval<'a>(arrays: impl IntoIterator<Item = &'a Array>) -> Result<()> {
    let arrays: Vec<&Array> = arrays.into_iter().collect();
    submit(&arrays)?;
    arrays.iter().try_for_each(|array| run::finish(array))
}

/// Starts computing arrays and returns at once. Errors show when a value is asked for.
///
/// ```
/// let x = wootz::Array::from_slice(&[1.0f32, 2.0], &[2])? * 3.0;
/// wootz::async_eval([&x])?;
/// assert_eq!(x.to_vec::<f32>()?, [3.0, 6.0]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn async_eval<'a>(arrays: impl IntoIterator<Item = &'a Array>) -> Result<()> {
    let arrays: Vec<Array> = arrays.into_iter().filter(|a| !a.is_evaluated()).cloned().collect();
    if arrays.iter().any(|array| array.device().is_gpu()) {
        return submit(&arrays.iter().collect::<Vec<_>>());
    }
    // A failure to hand over means the worker is gone; the reader then evaluates by itself.
    let _reader_evaluates =
        background().lock().unwrap_or_else(PoisonError::into_inner).send(Message::Evaluate(arrays));
    Ok(())
}

/// Waits until everything has run that was begun on a device, as by [`async_eval`]. What went wrong shows
/// when a value is asked for; an error here is that the device is lost.
///
/// ```
/// use wootz::{Array, async_eval, default_device, synchronize};
/// let x = Array::new([1.0f32, 2.0])? * 3.0;
/// async_eval([&x])?;
/// // mx.synchronize()
/// synchronize(&default_device())?;
/// assert!(x.is_evaluated());
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn synchronize(device: &Device) -> Result<()> {
    let (reached, end) = channel();
    if !device.is_gpu()
        && let Some(background) = BACKGROUND.get()
    {
        let marker = Message::Reached(reached);
        let sent = background.lock().unwrap_or_else(PoisonError::into_inner).send(marker);
        // A thread that is gone has nothing to do any more.
        let _gone = sent.map(|()| end.recv());
    }
    // Whoever evaluates now has run, or submitted, when the lock is free.
    drop(lock());
    #[cfg(feature = "gpu")]
    if let Some(gpu) = device.as_gpu() {
        return gpu.synchronize();
    }
    Ok(())
}

/// Runs or queues everything that the arrays need.
fn submit(arrays: &[&Array]) -> Result<()> {
    let evaluated = || arrays.iter().all(|array| array.is_evaluated());
    if evaluated() && !arrays.iter().any(|array| array.device().is_gpu()) {
        return Ok(());
    }
    let mut evaluation = lock();
    // A GPU array counts as evaluated once it is recorded; whoever recorded it has submitted it
    // by the time the lock is free.
    if evaluated() {
        return Ok(());
    }
    let graph = order::Graph::collect(evaluation.next_epoch(), arrays);
    let tasks = schedule::schedule(&graph, fusion::plan(&graph), false);
    run::run(&evaluation, graph, tasks)
}

/// What the thread of [`async_eval`] is told.
enum Message {
    Evaluate(Vec<Array>),
    /// To say when all before it is done.
    Reached(Sender<()>),
}

static BACKGROUND: OnceLock<Mutex<Sender<Message>>> = OnceLock::new();

/// The thread that evaluates CPU arrays for [`async_eval`].
fn background() -> &'static Mutex<Sender<Message>> {
    BACKGROUND.get_or_init(|| {
        let (sender, receiver) = channel::<Message>();
        // Without a thread the receiver is dropped, sending fails and readers evaluate themselves.
        let _detached = std::thread::Builder::new().name("wootz-eval".into()).spawn(move || {
            for message in receiver {
                match message {
                    Message::Evaluate(arrays) => {
                        let arrays: Vec<&Array> = arrays.iter().collect();
                        // The error comes up again when the value is read.
                        let _shown_to_the_reader = submit(&arrays);
                    }
                    Message::Reached(reached) => {
                        let _nobody_waits = reached.send(());
                    }
                }
            }
        });
        Mutex::new(sender)
    })
}
