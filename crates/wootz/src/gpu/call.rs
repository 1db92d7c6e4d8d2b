//! What an operation's GPU kernel receives, and what becomes of its reports.

use std::sync::Arc;

use super::{Access, Gpu, GpuBuffer, KernelKey, Launch, Recorder, Submission};
use crate::array::{DType, Meta};
use crate::buffer::Buffer;
use crate::encoder::Operand;
use crate::error::{Error, Result};
use crate::op::{Op, argument_name};

/// One operation being recorded on a GPU.
pub struct GpuCall<'a> {
    op: &'a dyn Op,
    gpu: &'a Arc<Gpu>,
    recorder: &'a mut Recorder,
    sites: &'a mut Vec<StatusSite>,
    inputs: &'a [Operand<'a>],
    outputs: &'a [Operand<'a>],
    scratch: Option<&'a Arc<Buffer>>,
    /// Whether a kernel was recorded.
    launched: bool,
}

/// Memory that a kernel binds.
#[derive(Clone, Copy, Debug)]
pub enum Bind<'a> {
    /// An input, read. An [aliased](GpuCall::aliased) input is not bound: it is read from the
    /// output.
    Input(usize),
    /// An output, read and written.
    Output(usize),
    /// The scratch memory, read and written.
    Scratch,
    /// The scratch memory, read: values read there are the same for all threads of a workgroup if
    /// their places are.
    ReadScratch,
    /// Memory the call allocated itself, read.
    Read(&'a Arc<GpuBuffer>),
    /// Memory the call allocated itself, read and written.
    Write(&'a Arc<GpuBuffer>),
}

/// A place where a kernel may find a bad number; its own number is what the kernel reports.
#[derive(Clone, Debug)]
pub(crate) struct StatusSite {
    op: &'static str,
    argument: String,
    rule: Rule,
}

/// What a number must be that a kernel reports if it is not.
#[derive(Clone, Debug)]
enum Rule {
    /// An index into an axis of this length.
    Index(usize),
    /// In words.
    Words(String),
}

/// A kernel to launch: see [`Launch`].
pub struct Kernel<'a> {
    /// Which of the operation's kernels, with everything its text depends on.
    pub variant: String,
    /// The complete WGSL.
    pub source: &'a dyn Fn() -> String,
    /// Memory in the order of its `@binding` numbers.
    pub bindings: &'a [Bind<'a>],
    /// The `var<immediate>`.
    pub params: &'a [u32],
    /// The number of workgroups, from [`grid`].
    pub groups: [u32; 3],
}

impl<'a> GpuCall<'a> {
    pub(crate) fn new(
        op: &'a dyn Op,
        gpu: &'a Arc<Gpu>,
        recorder: &'a mut Recorder,
        sites: &'a mut Vec<StatusSite>,
        inputs: &'a [Operand<'a>],
        outputs: &'a [Operand<'a>],
        scratch: Option<&'a Arc<Buffer>>,
    ) -> Result<GpuCall<'a>> {
        for operand in inputs.iter().chain(outputs) {
            let wide = matches!(operand.meta.dtype, DType::I64 | DType::U64);
            if wide && !gpu.has_int64() {
                return Err(Error::MissingFeature {
                    device: gpu.name().into(),
                    feature: "SHADER_INT64".into(),
                    needed_by: format!("{} of {}", op.name(), operand.meta.dtype),
                });
            }
        }
        Ok(GpuCall { op, gpu, recorder, sites, inputs, outputs, scratch, launched: false })
    }

    /// The GPU this runs on.
    pub fn gpu(&self) -> &'a Arc<Gpu> {
        self.gpu
    }

    /// Metadata of an input.
    pub fn meta(&self, input: usize) -> &'a Meta {
        self.inputs[input].meta
    }

    /// Metadata of all inputs.
    pub fn input_metas(&self) -> impl Iterator<Item = &'a Meta> + use<'a> {
        self.inputs.iter().map(|input| input.meta)
    }

    /// Metadata of an output.
    pub fn output_meta(&self, output: usize) -> &'a Meta {
        self.outputs[output].meta
    }

    /// Whether an input shares the memory of an output, so that it must be read from there.
    pub fn aliased(&self, input: usize) -> bool {
        self.alias(input).is_some()
    }

    /// The output that an input shares memory with.
    pub(crate) fn alias(&self, input: usize) -> Option<usize> {
        let same = |output: &Operand<'_>| Arc::ptr_eq(output.buffer, self.inputs[input].buffer);
        self.outputs.iter().position(same)
    }

    /// How many outputs there are.
    pub(crate) fn outputs(&self) -> usize {
        self.outputs.len()
    }

    /// The error of an operation without a kernel for this device.
    pub fn not_on_device(&self, reason: impl Into<String>) -> Error {
        Error::NotOnDevice {
            op: self.op.name(),
            device: self.gpu.name().into(),
            reason: reason.into(),
        }
    }

    /// Memory that lives until the submission; for operations that cannot tell in
    /// [`Op::scratch`] what they need.
    pub fn temporary(&mut self, bytes: usize) -> Result<Arc<GpuBuffer>> {
        let buffer = Arc::new(self.gpu.alloc(bytes as u64)?);
        self.recorder.keep(buffer.clone());
        Ok(buffer)
    }

    /// Records a kernel behind those recorded before.
    pub fn launch(&mut self, kernel: &Kernel<'_>) -> Result<()> {
        self.record(kernel, false)
    }

    /// Records a kernel that also binds the status words, last.
    pub fn launch_with_status(&mut self, kernel: &Kernel<'_>) -> Result<()> {
        self.record(kernel, true)
    }

    /// A number for kernels to report with `atomicMin` into the first status word, and the bits of
    /// the index into the second: reading a result is then an error about `argument`, whose
    /// indices must lie within an axis of `length`.
    pub fn status_site(&mut self, argument: usize, length: usize) -> u32 {
        self.site(argument, Rule::Index(length))
    }

    /// As [`status_site`](GpuCall::status_site), for a number that is no index and must be as the
    /// words say.
    pub fn status_site_of(&mut self, argument: usize, expected: String) -> u32 {
        self.site(argument, Rule::Words(expected))
    }

    fn site(&mut self, argument: usize, rule: Rule) -> u32 {
        let argument = argument_name(self.op, argument);
        self.sites.push(StatusSite { op: self.op.name(), argument, rule });
        self.sites.len() as u32 - 1
    }

    fn record(&mut self, kernel: &Kernel<'_>, status: bool) -> Result<()> {
        let foreign =
            || Error::Gpu { message: format!("[{}] memory of another device", self.op.name()) };
        let memory = |buffer: &'a Arc<Buffer>| buffer.gpu().map(|m| &m.buffer).ok_or_else(foreign);
        let bindings = kernel
            .bindings
            .iter()
            .map(|bind| {
                Ok(match *bind {
                    Bind::Input(input) => (memory(self.inputs[input].buffer)?, Access::Read),
                    Bind::Output(output) => {
                        (memory(self.outputs[output].buffer)?, Access::ReadWrite)
                    }
                    Bind::Scratch => {
                        (memory(self.scratch.ok_or_else(foreign)?)?, Access::ReadWrite)
                    }
                    Bind::ReadScratch => (memory(self.scratch.ok_or_else(foreign)?)?, Access::Read),
                    Bind::Read(buffer) => (buffer, Access::Read),
                    Bind::Write(buffer) => (buffer, Access::ReadWrite),
                })
            })
            .collect::<Result<Vec<(&Arc<GpuBuffer>, Access)>>>()?;
        self.recorder.launch(&Launch {
            key: KernelKey::new(self.op.name(), kernel.variant.as_str()),
            source: kernel.source,
            bindings: &bindings,
            params: kernel.params,
            groups: kernel.groups,
            status,
        })?;
        if !self.launched {
            self.launched = true;
            self.gpu.count_operation();
        }
        Ok(())
    }
}

/// Spreads workgroups over two dimensions, because one holds 65,535. Kernels compute their number
/// as `wid.x + wid.y * groups.x` and ignore numbers past the end.
pub fn grid(groups: usize) -> [u32; 3] {
    const MOST: usize = 65_535;
    if groups <= MOST {
        return [groups as u32, 1, 1];
    }
    let rows = groups.div_ceil(MOST);
    [groups.div_ceil(rows) as u32, rows as u32, 1]
}

/// Submitted work, with what its reports mean and the work it builds on.
#[derive(Debug)]
pub(crate) struct GpuSubmission {
    submission: Submission,
    sites: Vec<StatusSite>,
    parents: Vec<Arc<GpuSubmission>>,
}

impl GpuSubmission {
    pub(crate) fn new(
        submission: Submission,
        sites: Vec<StatusSite>,
        parents: Vec<Arc<GpuSubmission>>,
    ) -> GpuSubmission {
        GpuSubmission { submission, sites, parents }
    }

    /// Waits, and reports what went wrong here or in the work this builds on.
    pub(crate) fn finish(&self) -> Result<()> {
        // In a loop: chains of submissions can be long.
        let mut pending: Vec<&GpuSubmission> = vec![self];
        while let Some(submission) = pending.pop() {
            submission.check()?;
            pending.extend(submission.parents.iter().map(|parent| &**parent));
        }
        Ok(())
    }

    fn check(&self) -> Result<()> {
        let Some(code) = self.submission.status()? else { return Ok(()) };
        let [index, ..] = self.submission.status_details()?;
        let got = index as i32 as i64;
        let Some(StatusSite { op, argument, rule }) = self.sites.get(code as usize) else {
            let message = format!("a kernel reported unknown status {code}");
            return Err(Error::Gpu { message });
        };
        let argument = argument.clone();
        Err(match rule {
            Rule::Index(length) => Error::Index { op, argument, got, length: *length },
            Rule::Words(expected) => Error::argument(op, argument, expected.clone(), got),
        })
    }
}
