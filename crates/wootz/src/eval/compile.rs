//! `compile`: functions that are recorded once for each signature of their arguments and then
//! replayed from a [plan](super::plan).

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::plan::Plan;
use crate::array::{Array, DType, Shape};
use crate::autograd::{Trace, placeholder, settle_constants};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::random;

/// Signatures that a compiled function remembers unless it is told otherwise.
const CAPACITY: usize = 32;

/// A function that runs from plans: see [`compile`].
pub struct Compiled<F> {
    function: F,
    plans: Plans<Signature, Plan>,
}

/// What a compiled function has recorded, by what decides about it.
pub(crate) struct Plans<K, P> {
    capacity: usize,
    cache: Mutex<Cache<K, P>>,
}

struct Cache<K, P> {
    /// The most recently used last.
    plans: Vec<(K, Arc<P>)>,
    stats: CompileStats,
}

/// What decides about a plan.
pub(crate) struct Signature {
    device: Device,
    arguments: Vec<(Shape, DType)>,
}

/// What a compiled function has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompileStats {
    /// How many recordings of the function became plans. Of threads that record a signature at the
    /// same time, one does.
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

impl PlanSummary {
    pub(crate) fn of(plan: &Plan) -> PlanSummary {
        PlanSummary { nodes: plan.nodes(), kernels: plan.steps(), bytes: plan.bytes() }
    }
}

/// Makes a function that runs `function` once for each signature of shapes, dtypes and device, on
/// arrays without values, and replays what it recorded: fused kernels in memory that was laid out
/// ahead. A call computes its results at once; on a GPU it does not wait for them. It runs where its
/// arguments are; scalars come there from any device.
///
/// State is explicit: what changes from call to call must be an argument, and what becomes of it a
/// result. An array that the function captures is a constant of the plan. Numbers that change, as a
/// learning rate or a position, are arguments of shape `[]`; they do not record anew. Random numbers
/// need a key that is an argument, as the key of a draw or of all draws
/// [within it](crate::random::with_key); asking for others while recording is an error.
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
    Compiled { function, plans: Plans::new() }
}

/// Whether compiled functions run by themselves, on all threads.
static DISABLED: AtomicBool = AtomicBool::new(false);

/// From now on compiled functions of the whole process run by themselves, to look for a mistake in one.
/// What they have recorded is kept for [`enable_compile`].
///
/// ```
/// use wootz::{Array, compile, disable_compile, enable_compile};
/// let double = compile(|x: &[Array]| Ok(vec![&x[0] * 2.0]));
/// // mx.disable_compile()
/// disable_compile();
/// assert_eq!(double.call(&[Array::new([1.5f32])?])?[0].to_vec::<f32>()?, [3.0]);
/// assert_eq!(double.stats().traces, 0);
/// enable_compile();
/// double.call(&[Array::new([1.5f32])?])?;
/// assert_eq!(double.stats().traces, 1);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn disable_compile() {
    DISABLED.store(true, Ordering::Relaxed);
}

/// Ends what [`disable_compile`] began.
pub fn enable_compile() {
    DISABLED.store(false, Ordering::Relaxed);
}

thread_local! {
    static RECORDING: Cell<usize> = const { Cell::new(0) };
}

/// Whether a compiled function runs by itself: so that a transform of these arguments, or a recording,
/// sees what it does, or because that is asked for.
pub(crate) fn runs_by_itself(arguments: &[Array]) -> bool {
    let disabled = DISABLED.load(Ordering::Relaxed);
    disabled || is_recording() || arguments.iter().any(|argument| argument.node.is_traced())
}

/// Whether this thread records a function for a plan, in which what is not an argument becomes a
/// constant.
pub(crate) fn is_recording() -> bool {
    RECORDING.get() > 0
}

/// Runs `body` as a recording of this thread.
fn recording<T>(body: impl FnOnce() -> T) -> T {
    /// Ends the recording, also if `body` panics.
    struct End;
    impl Drop for End {
        fn drop(&mut self) {
            RECORDING.set(RECORDING.get() - 1);
        }
    }
    RECORDING.set(RECORDING.get() + 1);
    let _end = End;
    body()
}

impl<F> Compiled<F>
where
    F: Fn(&[Array]) -> Result<Vec<Array>>,
{
    /// Remembers at most this many signatures; the one not used for longest is forgotten first.
    pub fn capacity(mut self, signatures: usize) -> Compiled<F> {
        self.plans.set_capacity(signatures);
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
        if runs_by_itself(&arguments) {
            return (self.function)(&arguments);
        }
        let plan = self.plan_for(&arguments)?;
        self.plans.replay(&plan, arguments, owned)
    }

    /// What a call with such arguments takes. The function is recorded if it has not been.
    pub fn plan(&self, arguments: &[Array]) -> Result<PlanSummary> {
        Ok(PlanSummary::of(&*self.plan_for(arguments)?))
    }

    /// What this function has done so far.
    pub fn stats(&self) -> CompileStats {
        self.plans.stats()
    }

    fn plan_for(&self, arguments: &[Array]) -> Result<Arc<Plan>> {
        let known = |signature: &Signature| signature.fits(arguments);
        self.plans.find_or_record(known, || {
            let signature = Signature::of(arguments)?;
            let plan = signature.record(&self.function)?;
            Ok((signature, plan))
        })
    }
}

impl<K, P> Plans<K, P> {
    pub(crate) fn new() -> Plans<K, P> {
        let cache = Cache { plans: Vec::new(), stats: CompileStats::default() };
        Plans { capacity: CAPACITY, cache: Mutex::new(cache) }
    }

    pub(crate) fn set_capacity(&mut self, plans: usize) {
        self.capacity = plans.max(1);
    }

    pub(crate) fn stats(&self) -> CompileStats {
        self.cache().stats
    }

    fn cache(&self) -> MutexGuard<'_, Cache<K, P>> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known under a key that fits, or else what `record` makes.
    pub(crate) fn find_or_record(
        &self,
        fits: impl Fn(&K) -> bool,
        record: impl FnOnce() -> Result<(K, P)>,
    ) -> Result<Arc<P>> {
        if let Some(plan) = self.cache().find(&fits) {
            return Ok(plan);
        }
        // Not under the lock: the function may call itself, or wait for a thread that does.
        let (key, plan) = record()?;
        let plan = Arc::new(plan);
        let mut cache = self.cache();
        // Another thread may have recorded the same meanwhile: everybody replays the first plan.
        if let Some(first) = cache.find(&fits) {
            return Ok(first);
        }
        cache.stats.traces += 1;
        if cache.plans.len() >= self.capacity {
            cache.plans.remove(0);
        }
        cache.plans.push((key, plan.clone()));
        Ok(plan)
    }

    /// Runs a plan.
    pub(crate) fn replay(
        &self,
        plan: &Plan,
        arguments: Vec<Array>,
        owned: bool,
    ) -> Result<Vec<Array>> {
        let device = device_of(&arguments);
        let here = |argument: Array| argument.into_dense_on(&device);
        let rows = arguments.into_iter().map(here).collect::<Result<Vec<_>>>()?;
        super::eval(&rows)?;
        let results = plan.replay(&rows, owned)?;
        self.cache().stats.replays += 1;
        Ok(results)
    }
}

impl<K, P> Cache<K, P> {
    /// What is known under a key that fits, which is then the most recently used.
    fn find(&mut self, fits: impl Fn(&K) -> bool) -> Option<Arc<P>> {
        let found = self.plans.iter().position(|(key, _)| fits(key))?;
        let entry = self.plans.remove(found);
        let plan = entry.1.clone();
        self.plans.push(entry);
        Some(plan)
    }
}

/// Where a function of these arguments runs. Scalars may be anywhere.
fn device_of(arguments: &[Array]) -> Device {
    let placed = arguments.iter().find(|argument| argument.rank() > 0);
    match placed.or(arguments.first()) {
        Some(argument) => argument.device().clone(),
        None => Device::default_device(),
    }
}

impl Signature {
    pub(crate) fn of(arguments: &[Array]) -> Result<Signature> {
        let device = device_of(arguments);
        for (index, argument) in arguments.iter().enumerate() {
            if argument.rank() > 0 && *argument.device() != device {
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

    /// What a function computes for such arguments.
    pub(crate) fn record(&self, function: impl Fn(&[Array]) -> Result<Vec<Array>>) -> Result<Plan> {
        let trace = Trace::recording("compile");
        let device = &self.device;
        let placeholders = (self.arguments.iter())
            .map(|(shape, dtype)| placeholder(&trace, "compile", shape, *dtype, device))
            .collect::<Result<Vec<_>>>()?;
        // A key from outside would be a constant.
        let run = || crate::with_device(device, || function(&placeholders));
        let outputs = recording(|| random::scoped(None, run))?;
        settle_constants("compile", &placeholders, &outputs)?;
        Plan::new(&placeholders, &outputs, device)
    }

    /// Whether it is that of these arguments.
    pub(crate) fn fits(&self, arguments: &[Array]) -> bool {
        let fits = |((shape, dtype), argument): (&(Shape, DType), &Array)| {
            *dtype == argument.dtype()
                && shape[..] == *argument.shape()
                && (shape.is_empty() || self.device == *argument.device())
        };
        self.device == device_of(arguments)
            && self.arguments.len() == arguments.len()
            && self.arguments.iter().zip(arguments).all(fits)
    }
}
