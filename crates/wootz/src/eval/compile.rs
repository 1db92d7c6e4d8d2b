//! `compile`: functions that are recorded once for each signature of their arguments and then
//! replayed from a [plan](super::plan).

use std::cell::Cell;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::plan::Plan;
use crate::array::{Array, DType, Shape};
use crate::autograd;
use crate::device::Device;
use crate::error::{Error, Result};

/// Signatures that a compiled function remembers unless it is told otherwise.
const CAPACITY: usize = 32;

/// A function that runs from plans: see [`compile`].
pub struct Compiled<F> {
    function: F,
    capacity: usize,
    cache: Mutex<Cache>,
}

#[derive(Default)]
struct Cache {
    /// The most recently used last.
    plans: Vec<(Signature, Arc<Plan>)>,
    stats: CompileStats,
}

/// What decides about a plan.
struct Signature {
    device: Device,
    arguments: Vec<(Shape, DType)>,
}

/// What a compiled function has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompileStats {
    /// How often the function itself ran, to be recorded.
    pub traces: u64,
    /// How often a plan ran.
    pub replays: u64,
}

/// A plan as it can be known before it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanSummary {
    /// Operations that the function recorded.
    pub nodes: usize,
    /// Kernels that they became.
    pub kernels: usize,
    /// Bytes that the first run takes beside the arguments, at their peak; later ones take the
    /// same memory.
    pub bytes: usize,
}

/// Makes a function that runs `function` once for each signature of shapes, dtypes and device, on
/// arrays without values, and replays what it recorded: fused kernels in memory that was laid out
/// ahead. A call computes its results at once; on a GPU it does not wait for them.
///
/// State is explicit: what changes from call to call must be an argument, and what becomes of it a
/// result. An array that the function captures is a constant of the plan. Numbers that change, as a
/// learning rate or a position, are arguments of shape `[]`; they do not record anew. Random numbers
/// need a key that is an argument; asking for others while recording is an error.
///
/// ```
/// use wootz::{Array, add, compile, exp, negative};
/// // fun = mx.compile(lambda x, y: mx.exp(-x) + y)
/// let fun = compile(|x: &[Array]| Ok(vec![add(exp(negative(&x[0])?)?, &x[1])?]));
/// let (x, y) = (Array::new([0.0f32, 1.0])?, Array::new([2.0f32, 2.0])?);
/// assert_eq!(fun.call(&[x.clone(), y.clone()])?[0].to_vec::<f32>()?, [3.0, 2.3678794]);
/// fun.call(&[y, x])?;
/// assert_eq!((fun.stats().traces, fun.stats().replays), (1, 2));
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn compile<F>(function: F) -> Compiled<F>
where
    F: Fn(&[Array]) -> Result<Vec<Array>>,
{
    Compiled { function, capacity: CAPACITY, cache: Mutex::default() }
}

thread_local! {
    static RECORDING: Cell<usize> = const { Cell::new(0) };
}

/// Whether this thread records a function for a plan, in which what is not an argument becomes a
/// constant.
pub(crate) fn is_recording() -> bool {
    RECORDING.get() > 0
}

impl<F> Compiled<F>
where
    F: Fn(&[Array]) -> Result<Vec<Array>>,
{
    /// Remembers at most this many signatures; the one not used for longest is forgotten first.
    pub fn capacity(mut self, signatures: usize) -> Compiled<F> {
        self.capacity = signatures.max(1);
        self
    }

    /// The results of the function. Inside another transform the function itself runs, so that the
    /// transform sees what it does.
    pub fn call(&self, arguments: &[Array]) -> Result<Vec<Array>> {
        self.replay(arguments.to_vec(), false)
    }

    /// As [`call`](Self::call), for arguments that the caller gives away: a result that is computed
    /// in place takes the memory of its argument if nobody else holds that. A step of a loop so
    /// writes only what is new into a cache of any size, or a new value over a parameter.
    ///
    /// ```
    /// use wootz::{Array, DType, compile, slice_update_dynamic};
    /// let append = compile(|x: &[Array]| Ok(vec![slice_update_dynamic(&x[0], &x[1], &x[2], &[0])?]));
    /// let mut cache = Array::zeros(&[4], DType::F32)?;
    /// for i in 0..3 {
    ///     let (value, place) = (Array::new([i as f32 + 0.5])?, Array::new([i])?);
    ///     cache = append.call_owned(vec![cache, value, place])?.remove(0);
    /// }
    /// assert_eq!(cache.to_vec::<f32>()?, [0.5, 1.5, 2.5, 0.0]);
    /// # Ok::<(), wootz::Error>(())
    /// ```
    pub fn call_owned(&self, arguments: Vec<Array>) -> Result<Vec<Array>> {
        self.replay(arguments, true)
    }

    fn replay(&self, arguments: Vec<Array>, owned: bool) -> Result<Vec<Array>> {
        // What was made of a transform's arguments is marked for good, but once it has a value the
        // mark matters only inside the transform.
        let traced = |argument: &Array| {
            argument.node.traced && (autograd::is_tracing() || !argument.is_evaluated())
        };
        if is_recording() || arguments.iter().any(traced) {
            return (self.function)(&arguments);
        }
        let plan = self.plan_for(&arguments)?;
        let rows = arguments.into_iter().map(Array::into_dense).collect::<Result<Vec<_>>>()?;
        super::eval(&rows)?;
        let results = plan.replay(&rows, owned)?;
        self.cache().stats.replays += 1;
        Ok(results)
    }

    /// What a call with such arguments takes. The function is recorded if it has not been.
    pub fn plan(&self, arguments: &[Array]) -> Result<PlanSummary> {
        let plan = self.plan_for(arguments)?;
        Ok(PlanSummary { nodes: plan.nodes(), kernels: plan.steps(), bytes: plan.bytes() })
    }

    /// What this function has done so far.
    pub fn stats(&self) -> CompileStats {
        self.cache().stats
    }

    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn plan_for(&self, arguments: &[Array]) -> Result<Arc<Plan>> {
        let mut cache = self.cache();
        if let Some(found) = cache.plans.iter().position(|(known, _)| known.fits(arguments)) {
            let entry = cache.plans.remove(found);
            let plan = entry.1.clone();
            cache.plans.push(entry);
            return Ok(plan);
        }
        drop(cache);
        let signature = Signature::of(arguments)?;
        // Not under the lock: the function may call itself.
        let plan = Arc::new(self.record(&signature)?);
        let mut cache = self.cache();
        cache.stats.traces += 1;
        if cache.plans.len() >= self.capacity {
            cache.plans.remove(0);
        }
        cache.plans.push((signature, plan.clone()));
        Ok(plan)
    }

    fn record(&self, signature: &Signature) -> Result<Plan> {
        let inside_another = autograd::is_tracing();
        let _trace = autograd::Trace::start();
        let device = &signature.device;
        let placeholders = (signature.arguments.iter())
            .map(|(shape, dtype)| autograd::placeholder("compile", shape, *dtype, device))
            .collect::<Result<Vec<_>>>()?;
        RECORDING.set(RECORDING.get() + 1);
        let outputs = crate::with_device(device, || (self.function)(&placeholders));
        RECORDING.set(RECORDING.get() - 1);
        let outputs = outputs?;
        autograd::settle_constants("compile", &placeholders, &outputs, inside_another)?;
        Plan::new(&placeholders, &outputs, device)
    }
}

impl Signature {
    fn of(arguments: &[Array]) -> Result<Signature> {
        let device = match arguments.first() {
            Some(first) => first.device().clone(),
            None => Device::default_device(),
        };
        for (index, argument) in arguments.iter().enumerate() {
            if *argument.device() != device {
                return Err(Error::DeviceMismatch {
                    op: "compile",
                    argument: format!("argument {index}"),
                    expected: device.to_string(),
                    got: argument.device().to_string(),
                });
            }
        }
        let arguments = arguments.iter().map(|a| (Shape::from_slice(a.shape()), a.dtype()));
        Ok(Signature { device, arguments: arguments.collect() })
    }

    /// Whether it is that of these arguments.
    fn fits(&self, arguments: &[Array]) -> bool {
        let fits = |((shape, dtype), argument): (&(Shape, DType), &Array)| {
            *dtype == argument.dtype()
                && shape[..] == *argument.shape()
                && self.device == *argument.device()
        };
        let here = !arguments.is_empty() || self.device == Device::default_device();
        here && self.arguments.len() == arguments.len()
            && self.arguments.iter().zip(arguments).all(fits)
    }
}
