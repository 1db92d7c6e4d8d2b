//! Functions with rules of their own, and functions that are run again when their gradient is
//! needed.

use std::fmt;
use std::sync::Arc;

use super::batch::Batch;
use super::vjp::vjp_where_float;
use super::vmap::vmap;
use crate::array::{Array, Meta};
use crate::cpu::CpuCall;
use crate::error::{Error, Result};
use crate::op::{Metas, Op};
use crate::ops;
use crate::random;

/// A function of arrays that an operation can hold.
type Function = Arc<dyn Fn(&[Array]) -> Result<Vec<Array>> + Send + Sync>;
type Vjp = Arc<dyn Fn(&[Array], &[Array], &[Array]) -> Result<Vec<Array>> + Send + Sync>;
type Jvp = Arc<dyn Fn(&[Array], &[Array]) -> Result<Vec<Array>> + Send + Sync>;
type Vmap = Arc<dyn Fn(&[Array], &[bool]) -> Result<Vec<Array>> + Send + Sync>;

/// The function whose gradient runs it again, instead of keeping what it computed on the way: less
/// memory for more time. What is differentiated must be an argument. Random numbers without a key, such
/// as dropout's, are the same in both runs; inside of [`with_key`](crate::random::with_key) the function
/// draws them with a key of its own.
///
/// ```
/// use wootz::{Array, checkpoint, grad};
/// // def fun(x): y = mx.exp(x); return y * mx.sin(y)
/// let function = checkpoint(|x: &[Array]| {
///     let y = x[0].exp()?;
///     Ok(vec![&y * y.sin()?])
/// });
/// // mx.grad(mx.checkpoint(fun))(mx.array(1.0))
/// let dx = grad(move |x| Ok(function(x)?.remove(0)))(&[Array::new(1.0f32)?])?;
/// assert!((dx[0].item::<f32>()? + 5.6208).abs() < 1e-3);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn checkpoint<F>(function: F) -> impl Fn(&[Array]) -> Result<Vec<Array>> + Send + Sync + 'static
where
    F: Fn(&[Array]) -> Result<Vec<Array>> + Send + Sync + 'static,
{
    let function = custom(function);
    move |inputs| function.call(inputs)
}

/// A function that can be given rules of its own for transforms: MLX's `custom_function`.
///
/// ```
/// use wootz::{Array, custom, grad};
/// // @mx.custom_function
/// // def f(x, y):
/// //     return mx.sin(x) * y
/// let f = custom(|primals: &[Array]| {
///     let (x, y) = (&primals[0], &primals[1]);
///     Ok(vec![x.sin()? * y])
/// });
/// // @f.vjp
/// // def f_vjp(primals, cotangent, output):
/// //     x, y = primals
/// //     return cotan * mx.cos(x) * y, cotan * mx.sin(x)
/// let f = f.with_vjp(|primals, cotangents, _outputs| {
///     let (x, y, cotan) = (&primals[0], &primals[1], &cotangents[0]);
///     Ok(vec![cotan * x.cos()? * y, cotan * x.sin()?])
/// });
/// let (x, y) = (Array::new(0.5f32)?, Array::new(2.0f32)?);
/// // mx.grad(f, argnums=(0, 1))(mx.array(0.5), mx.array(2.0))
/// let gradients = grad(move |primals| Ok(f.call(primals)?.remove(0)))(&[x, y])?;
/// assert!((gradients[0].item::<f32>()? - 2.0 * 0.5f32.cos()).abs() < 1e-6);
/// assert!((gradients[1].item::<f32>()? - 0.5f32.sin()).abs() < 1e-6);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn custom<F>(function: F) -> CustomFunction
where
    F: Fn(&[Array]) -> Result<Vec<Array>> + Send + Sync + 'static,
{
    CustomFunction { function: Arc::new(function), vjp: None, jvp: None, vmap: None }
}

/// A function with rules of its own; see [`custom`]. A rule that is not given is made from the
/// function, which runs again for a gradient.
#[derive(Clone)]
pub struct CustomFunction {
    function: Function,
    vjp: Option<Vjp>,
    jvp: Option<Jvp>,
    vmap: Option<Vmap>,
}

impl CustomFunction {
    /// Gradients of the arguments, from the arguments, the gradients of the results, and the
    /// results.
    pub fn with_vjp(
        mut self,
        rule: impl Fn(&[Array], &[Array], &[Array]) -> Result<Vec<Array>> + Send + Sync + 'static,
    ) -> CustomFunction {
        self.vjp = Some(Arc::new(rule));
        self
    }

    /// Tangents of the results, from the arguments and their tangents.
    ///
    /// ```
    /// use wootz::{Array, custom, jvp};
    /// // @f.jvp
    /// // def f_jvp(primals, tangents):
    /// //     x, y = primals
    /// //     dx, dy = tangents
    /// //     return dx * mx.cos(x) * y + dy * mx.sin(x)
    /// let f = custom(|x: &[Array]| Ok(vec![x[0].sin()? * &x[1]]))
    ///     .with_jvp(|x, along| Ok(vec![&along[0] * x[0].cos()? * &x[1] + &along[1] * x[0].sin()?]));
    /// let (x, along) = ([0.0f32, 3.0], [2.0f32, 5.0]);
    /// let [x, along] = [x, along].map(|pair| pair.map(|value| Array::new(value).unwrap()));
    /// // mx.jvp(f, (mx.array(0.0), mx.array(3.0)), (mx.array(2.0), mx.array(5.0)))
    /// let (_, changes) = jvp(|x: &[Array]| f.call(x), &x, &along)?;
    /// assert_eq!(changes[0].item::<f32>()?, 6.0);
    /// # Ok::<(), wootz::Error>(())
    /// ```
    pub fn with_jvp(
        mut self,
        rule: impl Fn(&[Array], &[Array]) -> Result<Vec<Array>> + Send + Sync + 'static,
    ) -> CustomFunction {
        self.jvp = Some(Arc::new(rule));
        self
    }

    /// The results for a batch, the first axis of all of them, from arguments that have it as
    /// their first axis where the flag says so.
    ///
    /// ```
    /// use wootz::{Array, custom, vmap};
    /// // @f.vmap
    /// // def f_vmap(inputs, axes):
    /// //     x, y = inputs
    /// //     ax, ay = axes
    /// //     if ay != ax and ax is not None:
    /// //         y = y.swapaxes(ay, ax)
    /// //     return mx.sin(x) * y, (ax or ay)
    /// let f = custom(|x: &[Array]| Ok(vec![x[0].sin()? * &x[1]]))
    ///     .with_vmap(|inputs, has_batch| {
    ///         let (x, y) = (&inputs[0], &inputs[1]);
    ///         // A batch is the first axis here, so that nothing is swapped.
    ///         assert_eq!(has_batch, [true, false]);
    ///         Ok(vec![x.sin()? * y])
    ///     });
    /// let (x, y) = (Array::new([0.0f32, std::f32::consts::FRAC_PI_2])?, Array::new(2.0f32)?);
    /// // mx.vmap(f, in_axes=(0, None))(x, y)
    /// let batch = vmap(move |x: &[Array]| f.call(x), [Some(0), None], 0)(&[x, y])?;
    /// assert_eq!(batch[0].to_vec::<f32>()?, [0.0, 2.0]);
    /// # Ok::<(), wootz::Error>(())
    /// ```
    pub fn with_vmap(
        mut self,
        rule: impl Fn(&[Array], &[bool]) -> Result<Vec<Array>> + Send + Sync + 'static,
    ) -> CustomFunction {
        self.vmap = Some(Arc::new(rule));
        self
    }

    /// Calls the function.
    ///
    /// ```
    /// use wootz::{Array, custom};
    /// let double = custom(|x: &[Array]| Ok(vec![&x[0] * 2.0]));
    /// assert_eq!(double.call(&[Array::new([1.0f32, 2.0])?])?[0].to_vec::<f32>()?, [2.0, 4.0]);
    /// # Ok::<(), wootz::Error>(())
    /// ```
    pub fn call(&self, inputs: &[Array]) -> Result<Vec<Array>> {
        let ruled = self.vjp.is_some() || self.jvp.is_some() || self.vmap.is_some();
        // Rules know the function's own arguments only.
        let key = match inputs.first().filter(|_| !ruled) {
            Some(first) => crate::with_device(first.device(), random::next_scoped)?,
            None => None,
        };
        let Some(key) = key else { return self.apply(inputs) };
        // A transform may look at the key, so it is an argument too.
        let function = self.function.clone();
        let keyed = custom(move |x: &[Array]| match x {
            [x @ .., key] => random::with_key(key, || function(x)),
            [] => function(x),
        });
        random::scoped(None, || keyed.apply(&[inputs, &[key]].concat()))
    }

    fn apply(&self, inputs: &[Array]) -> Result<Vec<Array>> {
        // Whoever runs the function again must draw the same random numbers.
        let sequence = random::sequence();
        // Transforms see the operation below; what the function computes is hidden from them.
        let hidden: Vec<Array> = inputs.iter().map(Array::detached).collect();
        let outputs = (self.function)(&hidden)?;
        if let Some(index) = outputs.iter().position(|output| output.node.is_traced()) {
            let reason = format!(
                "result {index} depends on an array of a transform around it that is not an argument"
            );
            return Err(Error::Transform { transform: "custom", reason });
        }
        if outputs.is_empty() {
            return Ok(outputs);
        }
        let op = Custom { function: self.clone(), arguments: inputs.len(), sequence };
        let all: Vec<&Array> = inputs.iter().chain(&outputs).collect();
        Ok(Array::apply_all(op, &all)?.into_vec())
    }
}

/// A call of a custom function: the arguments, then its results, which the outputs are.
struct Custom {
    function: CustomFunction,
    arguments: usize,
    /// Where the sequence of random keys was when the function was called.
    sequence: random::Sequence,
}

impl Custom {
    /// Runs the function as it ran first.
    fn again(&self, x: &[Array]) -> Result<Vec<Array>> {
        random::replaying(&self.sequence, || (self.function.function)(x))
    }
}

impl fmt::Debug for Custom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "custom of {} arguments", self.arguments)
    }
}

impl Op for Custom {
    fn name(&self) -> &'static str {
        "custom"
    }

    fn infer(&self, inputs: &[&Meta]) -> Result<Metas> {
        Ok(inputs[self.arguments..].iter().map(|&result| result.clone()).collect())
    }

    fn is_view(&self) -> bool {
        true
    }

    fn viewed(&self, output: usize) -> usize {
        self.arguments + output
    }

    fn cpu(&self, _: &mut CpuCall<'_>) -> Result<()> {
        Ok(())
    }

    fn vjp(
        &self,
        inputs: &[Array],
        outputs: &[Array],
        cotangents: &[Option<Array>],
    ) -> Result<Vec<Option<Array>>> {
        let arguments = &inputs[..self.arguments];
        let cotangents = or_zeros(outputs, cotangents)?;
        let gradients = match &self.function.vjp {
            Some(rule) => rule(arguments, &cotangents, outputs)?,
            None => {
                // Not before the gradients are there: else it would run, and be kept, too early.
                let arguments = depends(arguments, &cotangents)?;
                vjp_where_float(|x| self.again(x), &arguments, &cotangents)?.1
            }
        };
        if gradients.len() != arguments.len() {
            let reason = format!(
                "the vjp of {} arguments gave {} gradients",
                arguments.len(),
                gradients.len()
            );
            return Err(Error::Transform { transform: "custom", reason });
        }
        let float = |(gradient, argument): (Array, &Array)| {
            argument.dtype().is_inexact().then_some(gradient)
        };
        let gradients = gradients.into_iter().zip(arguments).map(float);
        Ok(gradients.chain(outputs.iter().map(|_| None)).collect())
    }

    fn jvp(
        &self,
        inputs: &[Array],
        _: &[Array],
        tangents: &[Option<Array>],
    ) -> Result<Vec<Option<Array>>> {
        let arguments = &inputs[..self.arguments];
        let tangents = or_zeros(arguments, &tangents[..self.arguments])?;
        let along = match &self.function.jvp {
            Some(rule) => rule(arguments, &tangents)?,
            None => super::jvp(|x| self.again(x), arguments, &tangents)?.1,
        };
        Ok(along.into_iter().map(Some).collect())
    }

    fn vmap(&self, batch: &Batch<'_>) -> Result<Vec<Array>> {
        let (inputs, batched) = (&batch.inputs[..self.arguments], &batch.batched[..self.arguments]);
        if let Some(rule) = &self.function.vmap {
            return rule(inputs, batched);
        }
        // The same rules for each element. Arguments that all share are spread, so that their
        // gradients are summed.
        let CustomFunction { function, vjp, jvp, .. } = self.function.clone();
        let all = CustomFunction {
            function: Arc::new(move |x| vmap(&*function, 0, 0)(x)),
            vjp: vjp.map(|rule| -> Vjp {
                Arc::new(move |x, cotangents, outputs| {
                    let (n, m) = (x.len(), cotangents.len());
                    let one = |all: &[Array]| rule(&all[..n], &all[n..n + m], &all[n + m..]);
                    vmap(one, 0, 0)(&[x, cotangents, outputs].concat())
                })
            }),
            jvp: jvp.map(|rule| -> Jvp {
                Arc::new(move |x, tangents| {
                    let one = |all: &[Array]| rule(&all[..x.len()], &all[x.len()..]);
                    vmap(one, 0, 0)(&[x, tangents].concat())
                })
            }),
            vmap: None,
        };
        let spread =
            (0..self.arguments).map(|index| batch.spread(index)).collect::<Result<Vec<_>>>()?;
        random::replaying(&self.sequence, || all.call(&spread))
    }
}

/// Zeros in place of what is missing.
pub(super) fn or_zeros(arrays: &[Array], values: &[Option<Array>]) -> Result<Vec<Array>> {
    (arrays.iter().zip(values))
        .map(|(array, value)| value.clone().map_or_else(|| ops::zeros_like(array), Ok))
        .collect()
}

/// The same arrays, which are not there before `dependencies` are: whoever evaluates one of them evaluates
/// those, too.
///
/// ```
/// use wootz::{Array, depends};
/// let (x, y) = (Array::new([1.0f32])? + 1.0, Array::new([2.0f32])? * 4.0);
/// // mx.eval(mx.depends(x, y))
/// let later = depends(&[x], &[y.clone()])?;
/// assert_eq!(later[0].item::<f32>()?, 2.0);
/// assert!(y.is_evaluated());
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn depends(inputs: &[Array], dependencies: &[Array]) -> Result<Vec<Array>> {
    if inputs.is_empty() {
        return Ok(Vec::new());
    }
    let all: Vec<&Array> = inputs.iter().chain(dependencies).collect();
    Ok(Array::apply_all(Depends { arrays: inputs.len() }, &all)?.into_vec())
}

/// The first inputs, after the others.
#[derive(Debug)]
struct Depends {
    arrays: usize,
}

impl Op for Depends {
    fn name(&self) -> &'static str {
        "depends"
    }

    fn infer(&self, inputs: &[&Meta]) -> Result<Metas> {
        Ok(inputs[..self.arrays].iter().map(|&input| input.clone()).collect())
    }

    fn is_view(&self) -> bool {
        true
    }

    fn viewed(&self, output: usize) -> usize {
        output
    }

    fn cpu(&self, _: &mut CpuCall<'_>) -> Result<()> {
        Ok(())
    }

    fn vjp(
        &self,
        inputs: &[Array],
        _: &[Array],
        cotangents: &[Option<Array>],
    ) -> Result<Vec<Option<Array>>> {
        let mut gradients = cotangents.to_vec();
        gradients.resize(inputs.len(), None);
        Ok(gradients)
    }

    fn vmap(&self, batch: &Batch<'_>) -> Result<Vec<Array>> {
        batch.again(&batch.spread_all()?)
    }
}
