//! All that the machinery knows of an operation: the [`Op`] trait, the calls a kernel receives,
//! elementwise kernels that can be fused, and the entries and cases that the test harness walks.

use std::fmt::Debug;
use std::ops::{Deref, Range};
use std::sync::Arc;

use smallvec::SmallVec;

use crate::array::{Array, Class, DType, Layout, Meta};
pub use crate::autograd::Batch;
use crate::cpu::CpuCall;
use crate::error::{Error, Result};
#[cfg(feature = "gpu")]
use crate::gpu::GpuCall;

/// The outputs' metadata; most operations have one output.
pub type Metas = SmallVec<[Meta; 1]>;

/// An operation: shape rule, kernels and gradient. The lazy level and the explicit level run the
/// same implementations of this trait, and so can yours.
pub trait Op: Debug + Send + Sync + 'static {
    /// MLX's name of the operation.
    fn name(&self) -> &'static str;

    /// Names of the inputs followed by names of the outputs, for error messages.
    fn arguments(&self) -> &'static [&'static str] {
        &[]
    }

    /// Checks the inputs and tells the outputs' shapes and dtypes. Outputs are row-major, unless
    /// this is a [view](Op::is_view), where the layout tells how the first input is seen.
    fn infer(&self, inputs: &[&Meta]) -> Result<Metas>;

    /// Whether the outputs only see the memory of an input in another way: that of the first, or
    /// the one that [`viewed`](Op::viewed) tells.
    fn is_view(&self) -> bool {
        false
    }

    /// The input whose memory an output of a view sees.
    fn viewed(&self, _output: usize) -> usize {
        0
    }

    /// Whether the only input may live on another device than the output; the evaluator moves the
    /// bytes, no kernel runs.
    fn is_transfer(&self) -> bool {
        false
    }

    /// Whether the host computes the outputs on every device, by the [CPU's kernel](Op::cpu): the
    /// encoder moves the bytes there and back. Inputs must be row-major.
    fn host(&self) -> bool {
        false
    }

    /// Bytes that a kernel needs beside its outputs.
    fn scratch(&self, _inputs: &[&Meta], _gpu: bool) -> usize {
        0
    }

    /// Pairs `(input, output)` that may share memory: the kernel reads each element of that input
    /// before it writes it. The kernel sees such an input as [aliased](CpuCall::aliased).
    fn may_alias(&self) -> &'static [(usize, usize)] {
        &[]
    }

    /// Whether the CPU kernel reads an input as bytes only (through [`CpuCall::bytes`]), as products
    /// read weights: then they are used as they lie in a mapped file, aligned or not. Any other input
    /// that is not aligned in its file is copied once.
    fn reads_bytes(&self, _input: usize) -> bool {
        false
    }

    /// Computes the outputs on the CPU.
    fn cpu(&self, call: &mut CpuCall<'_>) -> Result<()>;

    /// Records the kernels that compute the outputs on a GPU.
    #[cfg(feature = "gpu")]
    fn gpu(&self, call: &mut GpuCall<'_>) -> Result<()> {
        Err(call.not_on_device("this operation has no GPU kernel"))
    }

    /// The gradients of the inputs, given those of the outputs, in terms of other operations.
    /// `None` says that no gradient flows, as for an index or a piecewise constant function.
    /// An output without cotangent did not take part. Without a rule of its own it follows from the
    /// [composition](Op::composed).
    fn vjp(
        &self,
        inputs: &[Array],
        outputs: &[Array],
        cotangents: &[Option<Array>],
    ) -> Result<Vec<Option<Array>>> {
        let composed = |x: &[Array]| self.composed(x);
        crate::autograd::composed_vjp(self.name(), composed, inputs, outputs, cotangents)
    }

    /// How the outputs change with the inputs, in terms of other operations. `None` says not at
    /// all. Without a rule of its own it follows from [`vjp`](Op::vjp): the gradients are linear in
    /// the cotangents, and the transpose of that linear function is the Jacobian.
    fn jvp(
        &self,
        inputs: &[Array],
        outputs: &[Array],
        tangents: &[Option<Array>],
    ) -> Result<Vec<Option<Array>>> {
        let vjp = |cotangents: &[Option<Array>]| self.vjp(inputs, outputs, cotangents);
        crate::autograd::transposed(self.name(), vjp, inputs, outputs, tangents)
    }

    /// The outputs for a batch of inputs, each with the batch as its first axis. Without a rule of
    /// its own an elementwise operation is applied to the whole batch, and another one is
    /// [composed](Op::composed) of operations that have rules; with neither it is an error.
    fn vmap(&self, batch: &Batch<'_>) -> Result<Vec<Array>> {
        match self.elementwise() {
            Some(_) => batch.again(&batch.aligned()?),
            None => batch.composed(self.name(), |inputs| self.composed(inputs)),
        }
    }

    /// The same function made of plainer operations: test oracle, fallback on a device that lacks
    /// the kernel, and higher-order gradient.
    fn composed(&self, _inputs: &[Array]) -> Option<Result<Vec<Array>>> {
        None
    }

    /// The kernel, if every output element depends on the matching input elements only.
    /// Such operations broadcast their inputs and are fused.
    fn elementwise(&self) -> Option<Elementwise> {
        None
    }
}

/// A handle to an operation. One that lives as long as the program costs nothing to hold.
#[derive(Clone, Debug)]
pub enum OpRef {
    /// Lives as long as the program, as the row of a table does.
    Static(&'static dyn Op),
    /// Shared by those who hold it.
    Shared(Arc<dyn Op>),
}

impl Deref for OpRef {
    type Target = dyn Op;

    fn deref(&self) -> &dyn Op {
        match self {
            OpRef::Static(op) => *op,
            OpRef::Shared(op) => &**op,
        }
    }
}

impl<T: Op> From<T> for OpRef {
    fn from(op: T) -> OpRef {
        OpRef::Shared(Arc::new(op))
    }
}

/// One elementwise step as the fused executors run it.
#[derive(Clone, Copy, Debug)]
pub enum Elementwise {
    /// A kernel applied to the inputs.
    Kernel(&'static ElementKernel),
    /// A conversion of the only input to the output's dtype.
    Cast,
    /// A constant without inputs, as the bits of the output's class.
    Constant(u64),
}

/// Elements of a block; tiles are whole numbers of blocks.
pub const BLOCK: usize = 64;

/// Applies a function to whole tiles: arguments and result are slices of the step's class, as
/// bytes aligned for it. The result has a multiple of [`BLOCK`] elements; an argument of just one
/// block is repeated, which is how constants and scalars come: see [`block`].
pub type TileFn = fn(args: &[&[u8]], out: &mut [u8]);

/// Block `index` of a tile function's argument.
#[inline(always)]
pub fn block<T>(argument: &[T], index: usize) -> &[T; BLOCK] {
    let blocks = argument.as_chunks::<BLOCK>().0;
    &blocks[if blocks.len() == 1 { 0 } else { index }]
}

/// A scalar function for all devices.
#[derive(Debug)]
pub struct ElementKernel {
    /// Unique name, part of the fused kernel's key.
    pub name: &'static str,
    /// The CPU function for values of the given dtype's class.
    pub cpu: fn(Class) -> Option<TileFn>,
    /// The WGSL expression of `a`, `b`, `c` and `d` for values of the given class.
    pub wgsl: fn(Class) -> Option<&'static str>,
    /// Whether the WGSL expression is a truth value.
    pub boolean: bool,
    /// The CPU function, in `float32`, of this kernel and of a next one that takes the result as its
    /// argument at the given position, if there is one: it saves storing and loading a tile. Its
    /// arguments are this kernel's and then the other one of the next.
    pub joined: fn(next: &ElementKernel, position: usize) -> Option<TileFn>,
}

/// An operation as the harness sees it. An operation without cases does not register.
#[derive(Debug)]
pub struct Entry {
    /// The operation's name.
    pub name: &'static str,
    /// Its test cases.
    pub cases: Vec<Case>,
}

/// One call to test. The harness multiplies it by layouts, dtypes and devices.
#[derive(Debug)]
pub struct Case {
    /// What varies between the cases of one operation, for messages.
    pub label: String,
    /// Shapes of the arguments.
    pub inputs: Vec<CaseInput>,
    /// The lazy call.
    pub call: CaseCall,
    /// Dtypes to run the whole case in: the dtype of the inputs that do not fix their own.
    pub dtypes: &'static [DType],
    /// How results are compared.
    pub tolerance: Tolerance,
    /// Whether gradients are checked.
    pub gradient: Gradient,
    /// What gradients in narrow dtypes may be off by, relative to the largest element, if that is less than
    /// what the tolerance grants.
    pub narrow_gradient: Option<f64>,
    /// What its kernels may move on a GPU, if that is counted.
    pub moves: Option<Moves>,
}

/// How many elements a case's kernels move at best, and how often that they may.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moves {
    /// Elements that must be read or written, or those of a model of tiles.
    pub elements: usize,
    /// Times as many are a failure.
    pub limit: f64,
}

/// A function of arrays.
type ArrayFn = dyn Fn(&[Array]) -> Result<Vec<Array>> + Send + Sync;

/// A case's function of its arguments.
pub struct CaseCall(pub Box<ArrayFn>);

impl Debug for CaseCall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CaseCall")
    }
}

/// One argument of a case.
#[derive(Clone, Debug)]
pub struct CaseInput {
    /// The shape.
    pub shape: Vec<usize>,
    /// Values are drawn from this range.
    pub range: Range<f64>,
    /// A dtype of its own, such as that of an index.
    pub dtype: Option<DType>,
}

/// How close results must be; the harness has one table of figures per class and dtype.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Tolerance {
    /// Equal values.
    Exact,
    /// One rounding of an elementwise function.
    Elementwise,
    /// A sum over an axis.
    Reduction,
    /// A product of matrices.
    Contraction,
    /// Arithmetic in single precision that errs by a factor more, with the reason, which is printed
    /// in `docs/ops.md`. Narrow results are still rounded once.
    Because(f64, &'static str),
    /// A sum over an axis that narrow dtypes round once more on the way, by the operation's definition: with
    /// the reason. Two devices may so be two roundings each apart.
    Twice(&'static str),
    /// Steps in between are rounded to the dtype by the operation's definition: a factor more in any
    /// dtype, with the reason.
    Rounded(f64, &'static str),
}

/// Whether a case's gradients are checked against finite differences.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Gradient {
    /// Checked for all float inputs.
    Checked,
    /// Checked for all float inputs, in single precision: all there is for complex numbers.
    Single,
    /// Zero everywhere it exists: piecewise constant.
    Zero,
    /// There is none; asking is an error.
    None,
}

impl Case {
    /// A case over float inputs of the given shapes, values in ±2, gradients checked.
    pub fn new(
        label: impl Into<String>,
        shapes: &[&[usize]],
        call: impl Fn(&[Array]) -> Result<Vec<Array>> + Send + Sync + 'static,
    ) -> Case {
        let input =
            |shape: &&[usize]| CaseInput { shape: shape.to_vec(), range: -2.0..2.0, dtype: None };
        Case {
            label: label.into(),
            inputs: shapes.iter().map(input).collect(),
            call: CaseCall(Box::new(call)),
            dtypes: FLOATS,
            tolerance: Tolerance::Elementwise,
            gradient: Gradient::Checked,
            narrow_gradient: None,
            moves: None,
        }
    }

    /// Draws all inputs from `range`.
    pub fn range(mut self, range: Range<f64>) -> Case {
        self.inputs.iter_mut().for_each(|input| input.range = range.clone());
        self
    }

    /// Fixes the dtype and range of input `index`.
    pub fn fixed(mut self, index: usize, dtype: DType, range: Range<f64>) -> Case {
        if let Some(input) = self.inputs.get_mut(index) {
            input.dtype = Some(dtype);
            input.range = range;
        }
        self
    }

    /// Runs in these dtypes.
    pub fn dtypes(mut self, dtypes: &'static [DType]) -> Case {
        self.dtypes = dtypes;
        self
    }

    /// Compares with this tolerance.
    pub fn tolerance(mut self, tolerance: Tolerance) -> Case {
        self.tolerance = tolerance;
        self
    }

    /// Counts what kernels move: at most `limit` times so many elements.
    pub fn moves(mut self, elements: usize, limit: f64) -> Case {
        self.moves = Some(Moves { elements, limit });
        self
    }

    /// Says how gradients are checked.
    pub fn gradient(mut self, gradient: Gradient) -> Case {
        self.gradient = gradient;
        self
    }

    /// Holds gradients in narrow dtypes to a fraction of the largest element.
    pub fn narrow_gradient(mut self, limit: f64) -> Case {
        self.narrow_gradient = Some(limit);
        self
    }
}

/// Evaluates an argument that a case makes for itself, so that its work is not counted as the
/// case's. In a batch it has no value, and then need not be.
pub(crate) fn evaluate_argument(x: &Array) -> Result<()> {
    match x.eval() {
        Err(Error::Transform { .. }) => Ok(()),
        other => other,
    }
}

/// The float dtypes that run on every device.
pub const FLOATS: &[DType] = &[DType::F32, DType::F16, DType::BF16];
/// Every integer dtype.
pub const INTEGERS: &[DType] =
    &[DType::U8, DType::U16, DType::U32, DType::U64, DType::I8, DType::I16, DType::I32, DType::I64];
/// Every dtype that runs on every device.
pub const EVERY: &[DType] = &[
    DType::Bool,
    DType::U8,
    DType::U16,
    DType::U32,
    DType::U64,
    DType::I8,
    DType::I16,
    DType::I32,
    DType::I64,
    DType::F16,
    DType::BF16,
    DType::F32,
];

/// What an operation says of its outputs; counted.
pub(crate) fn infer(op: &dyn Op, inputs: &[&Meta]) -> Result<Metas> {
    crate::testing::count_inference();
    let mut outputs = op.infer(inputs)?;
    // Where nothing lies does not matter, and must not be beyond the memory.
    for output in outputs.iter_mut().filter(|output| output.layout.offset > 0) {
        if output.size() == 0 {
            output.layout = Layout::contiguous(output.shape());
        }
    }
    Ok(outputs)
}

/// Checks the number of inputs; the first line of most `infer` functions.
pub fn expect_inputs(op: &dyn Op, inputs: &[&Meta], count: usize) -> Result<()> {
    if inputs.len() != count {
        return Err(Error::argument(op.name(), "inputs", format!("{count} arrays"), inputs.len()));
    }
    Ok(())
}

/// Checks that an input is row-major, which lazy functions see to and explicit callers must.
pub fn expect_contiguous(op: &dyn Op, inputs: &[&Meta], index: usize) -> Result<()> {
    let layout = &inputs[index].layout;
    if !layout.is_contiguous() {
        let expected = "a row-major array";
        let got = format!("strides {:?} for shape {:?}", &layout.strides[..], &layout.shape[..]);
        return Err(Error::argument(op.name(), argument_name(op, index), expected, got));
    }
    Ok(())
}

/// Checks the dtype of an input.
pub fn expect_dtype(op: &dyn Op, inputs: &[&Meta], index: usize, dtype: DType) -> Result<()> {
    if inputs[index].dtype != dtype {
        return Err(Error::dtype(op.name(), argument_name(op, index), dtype, inputs[index].dtype));
    }
    Ok(())
}

/// Checks that an input is of a float dtype.
pub fn expect_float(op: &dyn Op, inputs: &[&Meta], index: usize) -> Result<()> {
    if !inputs[index].dtype.is_float() {
        let expected = "a floating-point type";
        return Err(Error::dtype(
            op.name(),
            argument_name(op, index),
            expected,
            inputs[index].dtype,
        ));
    }
    Ok(())
}

/// Checks that an input is of a float dtype or complex.
pub fn expect_inexact(op: &dyn Op, inputs: &[&Meta], index: usize) -> Result<()> {
    if inputs[index].dtype.is_complex() { Ok(()) } else { expect_float(op, inputs, index) }
}

/// Checks the shape of an input.
pub fn expect_shape(op: &dyn Op, inputs: &[&Meta], index: usize, shape: &[usize]) -> Result<()> {
    if inputs[index].shape() != shape {
        let expected = format!("{shape:?}");
        return Err(Error::shape(
            op.name(),
            argument_name(op, index),
            expected,
            inputs[index].shape(),
        ));
    }
    Ok(())
}

/// The name of the argument at `index`, counting inputs first and then outputs.
pub fn argument_name(op: &dyn Op, index: usize) -> String {
    op.arguments().get(index).map_or_else(|| format!("argument {index}"), |name| name.to_string())
}
