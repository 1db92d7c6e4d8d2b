//! The explicit level: `Encoder` runs operations into memory that the caller placed, in an order
//! that it keeps correct by itself. The lazy evaluator is one of its clients.

use std::sync::{Arc, MutexGuard};

use smallvec::SmallVec;

use crate::array::{Array, Meta};
use crate::buffer::Buffer;
use crate::cpu::{CpuCall, CpuInput, CpuOutput};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::eval::{Evaluation, lock};
#[cfg(feature = "gpu")]
use crate::gpu::{GpuCall, GpuSubmission, Recorder, StatusSite};
use crate::op::{Op, argument_name};

/// Memory that operations may use beside their outputs; see [`Op::scratch`]. One workspace serves
/// all operations of an encoder, one after the other.
#[derive(Debug)]
pub struct Workspace {
    device: Device,
    bytes: usize,
    buffer: Option<Arc<Buffer>>,
}

impl Workspace {
    /// A workspace of this many bytes.
    pub fn new(device: &Device, bytes: usize) -> Result<Workspace> {
        let buffer = (bytes > 0).then(|| Buffer::alloc(device, bytes)).transpose()?;
        Ok(Workspace { device: device.clone(), bytes, buffer })
    }

    /// A workspace for operations that need none.
    pub fn none(device: &Device) -> Workspace {
        Workspace { device: device.clone(), bytes: 0, buffer: None }
    }

    /// How many bytes there are.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Records operations into preallocated arrays and submits them together.
///
/// On the CPU an operation runs when it is recorded. On a GPU it runs after [`submit`](Self::submit);
/// an operation sees what earlier ones of the same encoder wrote.
///
/// ```
/// use wootz::{Array, DType, Device, Encoder, Workspace, ops::Softmax};
/// let device = Device::cpu();
/// let x = Array::from_slice_on(&[0.0f32, 0.0], &[1, 2], &device)?;
/// let y = Array::empty_on(&[1, 2], DType::F32, &device)?;
/// let mut encoder = Encoder::new(&device)?;
/// encoder.run(&Softmax, &[&x], &[&y], &mut Workspace::none(&device))?;
/// encoder.submit()?.wait()?;
/// assert_eq!(y.to_vec::<f32>()?, [0.5, 0.5]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub struct Encoder {
    device: Device,
    #[cfg(feature = "gpu")]
    gpu: Option<GpuRecording>,
}

/// Recorded GPU work is submitted after so many launches, if they have so many workgroups; small ones wait for more, so
/// that a token of a deep model is one submission. Bounds what one command buffer does.
#[cfg(feature = "gpu")]
const MANY_LAUNCHES: usize = 512;
#[cfg(feature = "gpu")]
const MANY_GROUPS: u64 = 1 << 22;
#[cfg(feature = "gpu")]
const MOST_LAUNCHES: usize = 4096;

/// What a GPU encoder has collected.
#[cfg(feature = "gpu")]
struct GpuRecording {
    recorder: Recorder,
    /// Memory that the recorded work writes.
    written: Vec<Arc<Buffer>>,
    /// Where a kernel may report a bad index, and submissions whose results are read.
    sites: Vec<StatusSite>,
    parents: Vec<Arc<GpuSubmission>>,
}

/// Work that was handed to a device.
#[derive(Debug)]
pub struct Submission {
    #[cfg(feature = "gpu")]
    gpu: Option<Arc<GpuSubmission>>,
}

impl Submission {
    /// Waits until the work is done and reports what went wrong in it.
    pub fn wait(&self) -> Result<()> {
        #[cfg(feature = "gpu")]
        if let Some(gpu) = &self.gpu {
            return gpu.finish();
        }
        Ok(())
    }
}

/// An array at the explicit level: metadata and memory.
#[derive(Clone, Copy)]
pub(crate) struct Operand<'a> {
    pub(crate) meta: &'a Meta,
    pub(crate) buffer: &'a Arc<Buffer>,
}

impl<'a> Operand<'a> {
    pub(crate) fn of(op: &dyn Op, index: usize, array: &'a Array) -> Result<Operand<'a>> {
        let buffer = array.buffer().ok_or_else(|| {
            let expected = "an evaluated array";
            Error::argument(op.name(), argument_name(op, index), expected, "one that is still lazy")
        })?;
        Ok(Operand { meta: array.meta(), buffer })
    }
}

impl Encoder {
    /// An encoder for one device.
    pub fn new(device: &Device) -> Result<Encoder> {
        Ok(Encoder {
            device: device.clone(),
            #[cfg(feature = "gpu")]
            gpu: device.as_gpu().map(|gpu| GpuRecording {
                recorder: gpu.recorder(),
                written: Vec::new(),
                sites: Vec::new(),
                parents: Vec::new(),
            }),
        })
    }

    /// Records one operation. All arrays are evaluated and of this encoder's device; outputs are
    /// row-major, of exactly the shape and dtype the operation says, and share memory with an
    /// input only where the operation allows it. Nothing is written if this returns an error.
    pub fn run(
        &mut self,
        op: &dyn Op,
        inputs: &[&Array],
        outputs: &[&Array],
        workspace: &mut Workspace,
    ) -> Result<()> {
        let evaluation = lock();
        for (index, array) in inputs.iter().chain(outputs).enumerate() {
            if array.device() != &self.device {
                return Err(Error::DeviceMismatch {
                    op: op.name(),
                    argument: argument_name(op, index),
                    expected: self.device.to_string(),
                    got: array.device().to_string(),
                });
            }
            if array.size() == 0 {
                let expected = "no axis of length 0";
                return Err(Error::shape(
                    op.name(),
                    argument_name(op, index),
                    expected,
                    array.shape(),
                ));
            }
        }
        let metas: SmallVec<[&Meta; 4]> = inputs.iter().map(|input| input.meta()).collect();
        let expected = crate::op::infer(op, &metas)?;
        check_outputs(op, inputs.len(), &expected, outputs)?;
        let inputs = (inputs.iter().enumerate())
            .map(|(index, array)| Operand::of(op, index, array))
            .collect::<Result<Vec<_>>>()?;
        let first_output = inputs.len();
        let outputs = (outputs.iter().enumerate())
            .map(|(index, array)| Operand::of(op, first_output + index, array))
            .collect::<Result<Vec<_>>>()?;
        check_aliases(op, &inputs, &outputs)?;
        let scratch = op.scratch(&metas, self.device.is_gpu());
        if workspace.bytes < scratch || (scratch > 0 && workspace.device != self.device) {
            let expected = format!("at least {scratch} bytes on {}", self.device);
            let got = format!("{} bytes on {}", workspace.bytes, workspace.device);
            return Err(Error::argument(op.name(), "workspace", expected, got));
        }
        self.record(&evaluation, op, &inputs, &outputs, workspace.buffer.as_ref())
    }

    /// Hands everything recorded to the device.
    pub fn submit(self) -> Result<Submission> {
        #[cfg(feature = "gpu")]
        if let Some(GpuRecording { recorder, written, sites, parents }) = self.gpu {
            let submission = Arc::new(GpuSubmission::new(recorder.submit()?, sites, parents));
            for buffer in written.iter().filter_map(|buffer| buffer.gpu()) {
                buffer.set_writer(Some(submission.clone()));
            }
            return Ok(Submission { gpu: Some(submission) });
        }
        Ok(Submission {
            #[cfg(feature = "gpu")]
            gpu: None,
        })
    }

    /// Whether so much GPU work is recorded that it should be submitted.
    pub(crate) fn is_long(&self) -> bool {
        #[cfg(feature = "gpu")]
        if let Some(recording) = &self.gpu {
            let (launches, groups) = (recording.recorder.len(), recording.recorder.groups());
            let long = launches >= MANY_LAUNCHES && groups >= MANY_GROUPS;
            return long || launches >= MOST_LAUNCHES;
        }
        false
    }

    /// Records one operation whose operands have been checked.
    pub(crate) fn record(
        &mut self,
        _evaluation: &MutexGuard<'_, Evaluation>,
        op: &dyn Op,
        inputs: &[Operand<'_>],
        outputs: &[Operand<'_>],
        scratch: Option<&Arc<Buffer>>,
    ) -> Result<()> {
        for output in outputs {
            if !inputs.iter().any(|input| Arc::ptr_eq(input.buffer, output.buffer)) {
                crate::testing::count_written(output.meta.bytes());
            }
        }
        #[cfg(feature = "gpu")]
        if self.gpu.is_some() && op.host() {
            return self.run_on_host(op, inputs, outputs);
        }
        #[cfg(feature = "gpu")]
        if let (Some(recording), Some(gpu)) = (&mut self.gpu, self.device.as_gpu()) {
            let GpuRecording { recorder, written, sites, parents } = recording;
            let writers = inputs.iter().filter_map(|input| input.buffer.gpu()?.writer());
            for writer in writers {
                if !parents.iter().any(|parent| Arc::ptr_eq(parent, &writer)) {
                    parents.push(writer);
                }
            }
            let mut call = GpuCall::new(op, gpu, recorder, sites, inputs, outputs, scratch)?;
            op.gpu(&mut call)?;
            // What was written before is gone, and what went wrong then does not matter any more.
            for output in outputs.iter().filter_map(|output| output.buffer.gpu()) {
                output.set_writer(None);
            }
            written.extend(outputs.iter().map(|output| output.buffer.clone()));
            return Ok(());
        }
        run_on_cpu(op, inputs, outputs, scratch)
    }

    /// Runs one operation of a GPU on the host: after what was recorded before, and before what
    /// will be.
    #[cfg(feature = "gpu")]
    fn run_on_host(
        &mut self,
        op: &dyn Op,
        inputs: &[Operand<'_>],
        outputs: &[Operand<'_>],
    ) -> Result<()> {
        let foreign =
            || Error::Gpu { message: format!("[{}] memory of another device", op.name()) };
        let (device, host) = (self.device.clone(), Device::cpu());
        let gpu = device.as_gpu().ok_or_else(foreign)?;
        let next = Encoder::new(&device)?;
        std::mem::replace(self, next).submit()?;
        let mut arguments: SmallVec<[(Meta, Arc<Buffer>); 4]> = SmallVec::new();
        for input in inputs {
            let memory = input.buffer.gpu().ok_or_else(foreign)?;
            memory.finish()?;
            let start = input.meta.layout.offset * input.meta.dtype.size();
            let bytes = gpu.download(&memory.buffer, start as u64, input.meta.bytes() as u64)?;
            let meta = Meta::new(op.name(), input.meta.shape(), input.meta.dtype)?;
            arguments.push((meta, Buffer::from_bytes(&host, &bytes)?));
        }
        let metas: SmallVec<[&Meta; 4]> = arguments.iter().map(|(meta, _)| meta).collect();
        let scratch = op.scratch(&metas, false);
        let scratch = (scratch > 0).then(|| Buffer::alloc(&host, scratch)).transpose()?;
        let results = (outputs.iter())
            .map(|output| Buffer::alloc(&host, output.meta.bytes()))
            .collect::<Result<SmallVec<[Arc<Buffer>; 2]>>>()?;
        let arguments: SmallVec<[Operand<'_>; 4]> =
            arguments.iter().map(|(meta, buffer)| Operand { meta, buffer }).collect();
        let computed: SmallVec<[Operand<'_>; 2]> = (outputs.iter().zip(&results))
            .map(|(output, buffer)| Operand { meta: output.meta, buffer })
            .collect();
        run_on_cpu(op, &arguments, &computed, scratch.as_ref())?;
        for (output, result) in outputs.iter().zip(&results) {
            let memory = output.buffer.gpu().ok_or_else(foreign)?;
            let result = result.read().ok_or_else(foreign)?;
            gpu.upload(&memory.buffer, 0, &result.bytes()[..output.meta.bytes()])?;
            memory.set_writer(None);
        }
        Ok(())
    }
}

/// Locks the operands' memory and calls the CPU kernel.
fn run_on_cpu(
    op: &dyn Op,
    inputs: &[Operand<'_>],
    outputs: &[Operand<'_>],
    scratch: Option<&Arc<Buffer>>,
) -> Result<()> {
    let foreign = || Error::Gpu { message: format!("[{}] memory of another device", op.name()) };
    let alias = |input: &Operand<'_>| {
        outputs.iter().position(|output| Arc::ptr_eq(output.buffer, input.buffer))
    };
    let mut write_guards: SmallVec<[_; 2]> = SmallVec::new();
    for output in outputs {
        write_guards.push(output.buffer.write().ok_or_else(foreign)?);
    }
    let mut read_guards: SmallVec<[_; 4]> = SmallVec::new();
    for input in inputs {
        let alias = alias(input);
        let guard = match alias {
            Some(_) => None,
            None => Some(input.buffer.read().ok_or_else(foreign)?),
        };
        read_guards.push((guard, alias));
    }
    let mut scratch_guard = scratch.and_then(|buffer| buffer.write());
    // Filled in place: a replay of small kernels consists of little else.
    let mut call = CpuCall {
        op,
        inputs: SmallVec::new(),
        outputs: SmallVec::new(),
        scratch: scratch_guard.as_mut().map_or(&mut [], |guard| guard.bytes_mut()),
    };
    for (index, (input, (guard, alias))) in inputs.iter().zip(&read_guards).enumerate() {
        let bytes = match guard {
            Some(guard) if op.reads_bytes(index) => Some(guard.bytes()),
            Some(guard) => Some(guard.aligned(input.meta.dtype.size())?),
            None => None,
        };
        call.inputs.push(CpuInput { meta: input.meta, bytes, alias: *alias });
    }
    for (output, guard) in outputs.iter().zip(&mut write_guards) {
        call.outputs.push(CpuOutput {
            meta: output.meta,
            bytes: &mut guard.bytes_mut()[..output.meta.bytes()],
        });
    }
    op.cpu(&mut call)
}

/// Outputs at the explicit level must be exactly what the operation writes.
fn check_outputs(op: &dyn Op, inputs: usize, expected: &[Meta], outputs: &[&Array]) -> Result<()> {
    if expected.len() != outputs.len() {
        return Err(Error::argument(
            op.name(),
            "outputs",
            format!("{} arrays", expected.len()),
            outputs.len(),
        ));
    }
    for (index, (expected, output)) in expected.iter().zip(outputs).enumerate() {
        let name = || argument_name(op, inputs + index);
        if expected.dtype != output.dtype() {
            return Err(Error::dtype(op.name(), name(), expected.dtype, output.dtype()));
        }
        if expected.shape() != output.shape() {
            let wanted = format!("{:?}", expected.shape());
            return Err(Error::shape(op.name(), name(), wanted, output.shape()));
        }
        if output.meta().layout != expected.layout {
            let got = format!("strides {:?}", output.strides());
            return Err(Error::argument(op.name(), name(), "row-major memory from offset 0", got));
        }
    }
    Ok(())
}

/// Shared memory is allowed only where the operation says so, and then only exactly shared; memory
/// of a file is not written.
fn check_aliases(op: &dyn Op, inputs: &[Operand<'_>], outputs: &[Operand<'_>]) -> Result<()> {
    for (o, output) in outputs.iter().enumerate() {
        if output.buffer.is_read_only() {
            let (expected, got) = ("memory that may be written", "memory of a mapped file");
            return Err(Error::argument(
                op.name(),
                argument_name(op, inputs.len() + o),
                expected,
                got,
            ));
        }
        for (other, earlier) in outputs[..o].iter().enumerate() {
            if Arc::ptr_eq(output.buffer, earlier.buffer) {
                let (name, got) =
                    (argument_name(op, inputs.len() + o), argument_name(op, inputs.len() + other));
                let got = format!("the memory of {got}");
                return Err(Error::argument(op.name(), name, "memory of its own", got));
            }
        }
        for (i, input) in inputs.iter().enumerate() {
            if !Arc::ptr_eq(output.buffer, input.buffer) {
                continue;
            }
            if !op.may_alias().contains(&(i, o)) || input.meta != output.meta {
                let name = argument_name(op, inputs.len() + o);
                let got = format!("the memory of {}", argument_name(op, i));
                return Err(Error::argument(op.name(), name, "memory of its own", got));
            }
        }
    }
    Ok(())
}
