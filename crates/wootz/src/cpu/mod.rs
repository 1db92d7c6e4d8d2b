//! The CPU device: memory, the thread team, vector code, and what a kernel receives.

pub(crate) mod buffer;
pub(crate) mod cast;
mod copy;
pub(crate) mod fused;
#[allow(unsafe_code)]
pub(crate) mod gemm;
pub(crate) mod kept;
pub(crate) mod mapped;
#[allow(unsafe_code)]
pub(crate) mod quant;
pub(crate) mod simd;
mod sync;
#[allow(unsafe_code)]
pub(crate) mod threads;
pub(crate) mod tile;

use bytemuck::Pod;
use gemm::Elements;
use smallvec::SmallVec;
pub use threads::{set_threads, threads};

use crate::array::Meta;
use crate::error::{Error, Result};
use crate::op::{Op, argument_name};

/// One kernel call on the CPU: the inputs' memory, the outputs' memory and scratch.
pub struct CpuCall<'a> {
    pub(crate) op: &'a dyn Op,
    pub(crate) inputs: SmallVec<[CpuInput<'a>; 4]>,
    pub(crate) outputs: SmallVec<[CpuOutput<'a>; 2]>,
    pub(crate) scratch: &'a mut [u8],
}

/// An input: its metadata and the whole buffer it lies in. Without bytes, it shares the memory of
/// an output.
pub(crate) struct CpuInput<'a> {
    pub(crate) meta: &'a Meta,
    pub(crate) bytes: Option<&'a [u8]>,
    /// The output it shares memory with.
    pub(crate) alias: Option<usize>,
}

/// An output: its metadata and its row-major memory.
pub(crate) struct CpuOutput<'a> {
    pub(crate) meta: &'a Meta,
    pub(crate) bytes: &'a mut [u8],
}

/// A typed input with its layout: element `i` of the array is somewhere in `data`.
#[derive(Clone, Copy)]
pub struct Strided<'a, T> {
    /// The whole buffer.
    pub data: &'a [T],
    /// Shape, strides and offset into `data`.
    pub meta: &'a Meta,
}

impl<'a> CpuCall<'a> {
    /// Metadata of an input.
    pub fn meta(&self, input: usize) -> &'a Meta {
        self.inputs[input].meta
    }

    /// Metadata of an output.
    pub fn output_meta(&self, output: usize) -> &'a Meta {
        self.outputs[output].meta
    }

    /// Whether an input shares the memory of an output, so that it must be read from there.
    pub fn aliased(&self, input: usize) -> bool {
        self.inputs[input].alias.is_some()
    }

    /// The elements of a row-major input. An error if it is aliased or not row-major.
    pub fn input<T: Pod>(&self, input: usize) -> Result<&'a [T]> {
        let Strided { data, meta } = self.strided::<T>(input)?;
        let start = meta.layout.offset;
        let elements = data.get(start..start + meta.size());
        elements.filter(|_| meta.layout.is_contiguous()).ok_or_else(|| self.not_row_major(input))
    }

    fn not_row_major(&self, input: usize) -> Error {
        let name = argument_name(self.op, input);
        Error::argument(self.op.name(), name, "a row-major array", "a view")
    }

    /// The bytes of a row-major input, of whatever dtype. An error if it is aliased or not row-major.
    /// They need not be aligned if the operation [reads bytes](Op::reads_bytes) of this input.
    pub fn bytes(&self, input: usize) -> Result<&'a [u8]> {
        let Strided { data, meta } = self.strided::<u8>(input)?;
        let start = meta.layout.offset * meta.dtype.size();
        let bytes = data.get(start..start + meta.bytes());
        bytes.filter(|_| meta.layout.is_contiguous()).ok_or_else(|| self.not_row_major(input))
    }

    /// The elements of the buffer that an input of any layout lies in. An error if it is aliased. They need
    /// not be aligned if the operation [reads bytes](Op::reads_bytes) of this input.
    pub(crate) fn elements<T: Pod>(&self, input: usize) -> Result<Elements<'a, T>> {
        Ok(Elements::in_bytes(self.strided::<u8>(input)?.data))
    }

    /// An input of any layout. An error if it is aliased.
    pub fn strided<T: Pod>(&self, input: usize) -> Result<Strided<'a, T>> {
        let CpuInput { meta, bytes, .. } = self.inputs[input];
        let name = || argument_name(self.op, input);
        let bytes = bytes.ok_or_else(|| {
            Error::argument(self.op.name(), name(), "memory of its own", "memory of an output")
        })?;
        let whole = bytes.len() - bytes.len() % size_of::<T>();
        let data = bytemuck::try_cast_slice(&bytes[..whole])
            .map_err(|error| Error::argument(self.op.name(), name(), "aligned memory", error))?;
        Ok(Strided { data, meta })
    }

    /// The elements of an output.
    pub fn output<T: Pod>(&mut self, output: usize) -> Result<&mut [T]> {
        let op = self.op;
        let index = self.inputs.len() + output;
        bytemuck::try_cast_slice_mut(self.outputs[output].bytes).map_err(|error| {
            Error::argument(op.name(), argument_name(op, index), "aligned memory", error)
        })
    }

    /// The elements of two outputs at once.
    pub fn outputs2<T: Pod, U: Pod>(&mut self) -> Result<(&mut [T], &mut [U])> {
        let op = self.op;
        let [first, second, ..] = &mut self.outputs[..] else {
            return Err(Error::argument(op.name(), "outputs", "two arrays", "fewer"));
        };
        Ok((typed(op, first.bytes)?, typed(op, second.bytes)?))
    }

    /// The outputs' memory and the scratch memory together.
    pub fn output_and_scratch<T: Pod, S: Pod>(
        &mut self,
        output: usize,
    ) -> Result<(&mut [T], &mut [S])> {
        let whole = self.scratch.len() - self.scratch.len() % size_of::<S>();
        let scratch = typed(self.op, &mut self.scratch[..whole])?;
        Ok((typed(self.op, self.outputs[output].bytes)?, scratch))
    }
}

/// Memory that an operation writes, as elements.
pub(crate) fn typed<'a, T: Pod>(op: &dyn Op, bytes: &'a mut [u8]) -> Result<&'a mut [T]> {
    // What has no bytes need not lie anywhere.
    if bytes.is_empty() {
        return Ok(&mut []);
    }
    bytemuck::try_cast_slice_mut(bytes)
        .map_err(|error| Error::argument(op.name(), "outputs", "aligned memory", error))
}
