//! `Array`: a cheap handle to a node of the lazy graph, with its shape, strides and dtype.

mod construct;
mod display;
mod dtype;
mod dtype_info;
mod element;
mod layout;
mod node;
mod operators;

use std::sync::Arc;

pub use construct::{AsArray, Nested, asarray};
pub use dtype::{Class, DType};
pub use dtype_info::{
    DTypeCategory, DTypeOrCategory, FloatInfo, IntegerInfo, can_cast, finfo, iinfo, isdtype,
    issubdtype, result_type,
};
pub use element::{Element, Scalar};
pub(crate) use layout::checked_size;
pub use layout::{Layout, Meta, Shape, Strides, broadcast_shapes, collapse, normalize_axis};
pub(crate) use node::{Buffers, Node, Work};
pub use operators::Arg;
use smallvec::SmallVec;

use crate::autograd::{Marks, Trace};
use crate::buffer::Buffer;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::eval;
use crate::op::{Metas, Op, OpRef};

/// An n-dimensional array. Operations on it build a graph; memory is filled when a value is asked
/// for, or by [`eval`](crate::eval()). Clones share everything.
///
/// ```
/// use wootz::Array;
/// let x = Array::from_slice(&[1.0f32, 2.0, 3.0, 4.0], &[2, 2])?;
/// let y = (&x + 1.0).transpose()?;
/// assert_eq!(y.shape(), [2, 2]);
/// assert_eq!(y.to_vec::<f32>()?, [2.0, 4.0, 3.0, 5.0]);
/// # Ok::<(), wootz::Error>(())
/// ```
#[derive(Clone)]
pub struct Array {
    pub(crate) node: Arc<Node>,
    index: u32,
}

impl Array {
    /// Lengths of the axes.
    pub fn shape(&self) -> &[usize] {
        &self.meta().layout.shape
    }

    /// Distances in elements between neighbours along each axis.
    pub fn strides(&self) -> &[isize] {
        &self.meta().layout.strides
    }

    /// The length of `axis`, which may count from the end.
    pub fn dim(&self, axis: i64) -> Result<usize> {
        Ok(self.shape()[normalize_axis("dim", axis, self.rank())?])
    }

    /// Whether both are handles of the same array; equal values do not make them so.
    ///
    /// ```
    /// let x = wootz::Array::new([1, 2])?;
    /// assert!(x.is_same(&x.clone()) && !x.is_same(&wootz::Array::new([1, 2])?));
    /// # Ok::<(), wootz::Error>(())
    /// ```
    pub fn is_same(&self, other: &Array) -> bool {
        Arc::ptr_eq(&self.node, &other.node) && self.index == other.index
    }

    /// The number of axes.
    pub fn rank(&self) -> usize {
        self.shape().len()
    }

    /// The number of elements.
    pub fn size(&self) -> usize {
        self.meta().size()
    }

    /// The number of bytes the elements take.
    pub fn nbytes(&self) -> usize {
        self.meta().bytes()
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.meta().dtype
    }

    /// Where this array lives.
    pub fn device(&self) -> &Device {
        &self.node.device
    }

    /// Shape, strides, offset and dtype.
    pub fn meta(&self) -> &Meta {
        &self.node.outputs[self.index as usize]
    }

    /// Whether the elements lie row-major without gaps.
    pub fn is_contiguous(&self) -> bool {
        self.meta().layout.is_contiguous()
    }

    /// Whether the elements have been computed.
    pub fn is_evaluated(&self) -> bool {
        self.node.is_evaluated()
    }

    /// Computes the elements now.
    pub fn eval(&self) -> Result<()> {
        eval::eval([self])
    }

    /// The only element of an array of size 1.
    ///
    /// ```
    /// let x = wootz::Array::from_slice(&[2.5f32], &[1])?;
    /// assert_eq!(x.item::<f32>()?, 2.5);
    /// assert!(x.item::<i32>().is_err());
    /// # Ok::<(), wootz::Error>(())
    /// ```
    pub fn item<T: Element>(&self) -> Result<T> {
        if self.size() != 1 {
            return Err(Error::shape("item", "array", "one element", self.shape()));
        }
        let values = self.to_vec::<T>()?;
        values
            .first()
            .copied()
            .ok_or_else(|| Error::shape("item", "array", "one element", self.shape()))
    }

    /// The elements in row-major order. `T` must be the array's dtype.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        if T::DTYPE != self.dtype() {
            return Err(Error::dtype("to_vec", "array", T::DTYPE, self.dtype()));
        }
        Ok(T::from_bytes(&self.to_bytes()?))
    }

    /// The bytes of the elements in row-major order.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let dense = self.contiguous()?;
        dense.eval()?;
        eval::read_bytes(&dense)
    }

    /// The bytes in this array's memory, also if the work that was to write them failed. For tests
    /// of what a failure leaves behind; only of evaluated row-major arrays.
    #[doc(hidden)]
    pub fn memory_bytes(&self) -> Result<Vec<u8>> {
        eval::read_memory(self)
    }

    /// A row-major array with the same elements: this one, if it is row-major already.
    pub fn contiguous(&self) -> Result<Array> {
        if self.is_contiguous() { Ok(self.clone()) } else { crate::ops::copy(self) }
    }

    /// A row-major array on `device` with the same elements, from the start of its memory on. Takes the
    /// array, so that there is no second handle to its memory.
    pub(crate) fn into_dense_on(self, device: &Device) -> Result<Array> {
        if self.device() != device {
            return crate::ops::to_device(&self, device)?.into_dense_on(device);
        }
        let fits = self.is_contiguous() && self.meta().layout.offset == 0;
        if fits { Ok(self) } else { crate::ops::copy(&self) }
    }

    /// The operation this array waits for and its inputs; nothing once that is forgotten, which is
    /// after evaluation. For tools that look at graphs.
    pub fn producer(&self) -> Option<(OpRef, Vec<Array>)> {
        self.node.work().map(|work| (work.op, work.inputs.into_vec()))
    }

    /// Applies an operation with one output.
    pub fn apply(op: impl Into<OpRef>, inputs: &[&Array]) -> Result<Array> {
        let mut outputs = Array::apply_all(op, inputs)?;
        outputs.pop().ok_or(Error::Gpu { message: "operation without outputs".into() })
    }

    /// Applies an operation; one array per output.
    pub fn apply_all(op: impl Into<OpRef>, inputs: &[&Array]) -> Result<SmallVec<[Array; 1]>> {
        let op = op.into();
        let device = match inputs.first() {
            Some(first) => common_device(&*op, first, inputs)?,
            None => Device::default_device(),
        };
        Array::apply_on(op, inputs, &device)
    }

    /// Applies an operation whose outputs live on `device`.
    pub(crate) fn apply_on(
        op: OpRef,
        inputs: &[&Array],
        device: &Device,
    ) -> Result<SmallVec<[Array; 1]>> {
        let metas: SmallVec<[&Meta; 4]> = inputs.iter().map(|input| input.meta()).collect();
        let outputs = crate::op::infer(&*op, &metas)?;
        if device.is_gpu() {
            check_gpu_dtypes(op.name(), device, &outputs)?;
        }
        let inputs = inputs
            .iter()
            .map(|input| match input.device() == device || op.is_transfer() {
                true => Ok((*input).clone()),
                false => crate::ops::to_device(input, device),
            })
            .collect::<Result<_>>()?;
        let count = outputs.len() as u32;
        let node = Arc::new(Node::pending(device.clone(), outputs, Work { op, inputs }));
        Ok((0..count).map(|index| Array { node: node.clone(), index }).collect())
    }

    /// A scalar computed by an operation without inputs.
    pub(crate) fn scalar_node(op: OpRef, dtype: DType, device: &Device) -> Array {
        let outputs = Metas::from_elem(Meta { layout: Layout::contiguous(&[]), dtype }, 1);
        let work = Work { op, inputs: SmallVec::new() };
        Array { node: Arc::new(Node::pending(device.clone(), outputs, work)), index: 0 }
    }

    /// An array over data that is there already.
    pub(crate) fn from_buffer(device: &Device, meta: Meta, buffer: Arc<Buffer>) -> Array {
        Array { node: Arc::new(Node::leaf(device.clone(), meta, buffer)), index: 0 }
    }

    /// Which output of its node this array is.
    pub(crate) fn output_index(&self) -> usize {
        self.index as usize
    }

    /// All outputs of a node.
    pub(crate) fn outputs_of(node: &Arc<Node>) -> Vec<Array> {
        (0..node.outputs.len() as u32).map(|index| Array { node: node.clone(), index }).collect()
    }

    /// The memory, once evaluated.
    pub(crate) fn buffer(&self) -> Option<&Arc<Buffer>> {
        self.node.buffers().map(|buffers| &buffers[self.index as usize])
    }

    /// The same elements without the others that were computed with them, whose memory this array would keep. Nothing if
    /// there are none, or none yet.
    pub(crate) fn alone(&self) -> Option<Array> {
        let buffer = self.buffer().filter(|_| self.node.outputs.len() > 1)?;
        Some(Array::from_buffer(self.device(), self.meta().clone(), buffer.clone()))
    }

    /// A new node with the same value that a transform can recognise as its argument.
    pub(crate) fn traced_copy(&self, trace: &Trace) -> Array {
        self.renamed(Marks::of(std::slice::from_ref(self)).and(trace))
    }

    /// The same value, as if it depended on what these arrays depend on.
    pub(crate) fn beside(&self, others: &[Array]) -> Array {
        self.renamed(Marks::of(others))
    }

    /// The same value, which no transform that is running looks behind.
    pub(crate) fn detached(&self) -> Array {
        self.renamed(Marks::default())
    }

    fn renamed(&self, marks: Marks) -> Array {
        let identity = crate::ops::identity_op();
        let work = Work { op: identity, inputs: SmallVec::from_elem(self.clone(), 1) };
        Array::marked(self.device(), Metas::from_elem(self.meta().clone(), 1), work, marks)
    }

    /// The output of an operation without inputs that a transform can recognise as its argument.
    pub(crate) fn traced_source(op: OpRef, device: &Device, trace: &Trace) -> Result<Array> {
        let outputs = crate::op::infer(&*op, &[])?;
        let (work, marks) = (Work { op, inputs: SmallVec::new() }, Marks::default().and(trace));
        Ok(Array::marked(device, outputs, work, marks))
    }

    fn marked(device: &Device, outputs: Metas, work: Work, marks: Marks) -> Array {
        Array { node: Arc::new(Node::marked(device.clone(), outputs, work, marks)), index: 0 }
    }
}

/// The device of all inputs; scalars do not count, they are moved.
fn common_device(op: &dyn Op, first: &Array, inputs: &[&Array]) -> Result<Device> {
    let mut device = first.device();
    let mut decided = first.rank() > 0;
    for (index, input) in inputs.iter().enumerate().skip(1) {
        if input.device() == device {
            decided |= input.rank() > 0;
        } else if !decided {
            device = input.device();
            decided = input.rank() > 0;
        } else if input.rank() > 0 {
            return Err(Error::DeviceMismatch {
                op: op.name(),
                argument: crate::op::argument_name(op, index),
                expected: device.to_string(),
                got: input.device().to_string(),
            });
        }
    }
    Ok(device.clone())
}

pub(crate) fn check_gpu_dtypes_if_gpu(
    op: &'static str,
    device: &Device,
    meta: &Meta,
) -> Result<()> {
    if device.is_gpu() { check_gpu_dtypes(op, device, std::slice::from_ref(meta)) } else { Ok(()) }
}

/// GPUs have no doubles, and 64-bit integers only with a feature.
fn check_gpu_dtypes(op: &'static str, device: &Device, outputs: &[Meta]) -> Result<()> {
    for meta in outputs {
        if meta.dtype == DType::F64 {
            let reason = "float64 exists on the CPU only; use astype(float32) or the CPU device";
            return Err(Error::NotOnDevice {
                op,
                device: device.to_string(),
                reason: reason.into(),
            });
        }
        if meta.size() as u64 > u32::MAX as u64 {
            return Err(Error::SizeOverflow {
                op,
                argument: "shape".into(),
                got: format!("{} elements", meta.size()),
                limit: u32::MAX as u64,
            });
        }
    }
    Ok(())
}
