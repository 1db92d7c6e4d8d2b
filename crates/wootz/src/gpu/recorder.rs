//! Recording kernels and submitting them together, and the status word that comes back.
//!
//! A [`Recorder`] is one command buffer with one compute pass. Around the pass the submission's
//! status words are set and copied to a mappable buffer, with a marker behind them. The copy is read
//! only when somebody waits, so a report from a kernel costs no wait of its own; and a marker that
//! did not arrive tells that the driver gave the submission up, which Metal does silently.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use wgpu::BufferUsages;

use super::buffer::GpuBuffer;
use super::device::{Gpu, lock};
use super::kernel::{Access, Bound, KernelKey, KernelShape};
use super::simulated::{Outcome, Recording};
use crate::error::{Error, Result};

/// The most words of parameters that a kernel takes.
pub const MAX_PARAMS: usize = 32;

/// One kernel to run. See the module `gpu` for what the text looks like.
pub struct Launch<'a> {
    /// Identifies the text.
    pub key: KernelKey,
    /// The complete WGSL. Called only if the key was not compiled before.
    pub source: &'a dyn Fn() -> String,
    /// The buffers, in the order of their `@binding` numbers.
    pub bindings: &'a [(&'a Arc<GpuBuffer>, Access)],
    /// The `var<immediate>`, at most [`MAX_PARAMS`] words.
    pub params: &'a [u32],
    /// Workgroups in each dimension. If any is zero, nothing runs.
    pub groups: [u32; 3],
    /// Bind the submission's status words behind the buffers.
    pub status: bool,
}

/// Work being recorded. Dropping it discards the work.
pub struct Recorder {
    gpu: Arc<Gpu>,
    open: Option<Open>,
    pins: Pins,
    len: usize,
    groups: u64,
    /// What a simulator is given.
    simulated: Option<Recording>,
}

impl Gpu {
    /// Start recording.
    pub fn recorder(self: &Arc<Self>) -> Recorder {
        let simulated = self.simulated.as_ref().map(|_| Recording::default());
        Recorder {
            gpu: self.clone(),
            open: None,
            pins: Pins(Vec::new()),
            len: 0,
            groups: 0,
            simulated,
        }
    }
}

impl Recorder {
    /// Record a kernel, ordered behind those recorded before. An `Err` leaves the recorder as it was.
    pub fn launch(&mut self, launch: &Launch<'_>) -> Result<()> {
        self.gpu.check()?;
        if launch.groups.contains(&0) {
            return Ok(());
        }
        self.check(launch)?;
        let mut shape = KernelShape {
            accesses: launch.bindings.iter().map(|(_, access)| *access).collect(),
            params: launch.params.len(),
        };
        if launch.status {
            shape.accesses.push(Access::ReadWrite);
        }
        let kernel = self.gpu.kernel(&launch.key, launch.source, &shape)?;

        let gpu = self.gpu.clone();
        let open = self.open()?;
        let status = &open.status.words;
        let mut bound: Bound = launch.bindings.iter().map(|(b, _)| (b.id(), b.size())).collect();
        if launch.status {
            // Status buffers have their own ids, counted down from the top.
            bound.push((open.status.id, STATUS_BYTES));
        }
        let group = gpu.bind_group(&kernel, bound, |i| {
            launch.bindings.get(i).map_or(Ok(status), |(buffer, _)| buffer.raw())
        })?;

        if open.kernel != Some(kernel.id) {
            open.pass.set_pipeline(&kernel.pipeline);
            open.kernel = Some(kernel.id);
        }
        open.pass.set_bind_group(0, &group, &[]);
        if !launch.params.is_empty() {
            let mut bytes = [0; MAX_PARAMS * 4];
            for (to, word) in bytes.chunks_exact_mut(4).zip(launch.params) {
                to.copy_from_slice(&word.to_ne_bytes());
            }
            open.pass.set_immediates(0, &bytes[..launch.params.len() * 4]);
        }
        let [x, y, z] = launch.groups;
        open.pass.dispatch_workgroups(x, y, z);
        if let Some(recording) = &mut self.simulated {
            recording.add(launch, &kernel);
        }
        for &(buffer, access) in launch.bindings {
            self.pins.add(buffer.clone(), access);
        }
        self.len += 1;
        self.groups += launch.groups.iter().map(|&groups| u64::from(groups)).product::<u64>();
        Ok(())
    }

    /// Keep a buffer from being reused before the submission.
    pub fn keep(&mut self, buffer: Arc<GpuBuffer>) {
        self.pins.add(buffer, Access::Read);
    }

    /// How many kernels are recorded.
    pub fn len(&self) -> usize {
        self.len
    }

    /// How many workgroups they have.
    pub fn groups(&self) -> u64 {
        self.groups
    }

    /// Whether nothing is recorded.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Hand everything to the GPU, with one submit, and do not wait.
    pub fn submit(mut self) -> Result<Submission> {
        self.gpu.check()?;
        self.open()?;
        let gpu = self.gpu.clone();
        let Some(Open { mut encoder, pass, status, .. }) = self.open.take() else {
            return Err(Error::Gpu { message: "a recorder lost its encoder".into() });
        };
        let index = gpu.guarded(|| {
            drop(pass);
            encoder.copy_buffer_to_buffer(&status.words, 0, &status.readback, 0, SLOT_BYTES);
            gpu.queue.submit([encoder.finish()])
        })?;
        gpu.count.submissions.fetch_add(1, Relaxed);
        gpu.count.dispatches.fetch_add(self.len as u64, Relaxed);
        let outcome = match (&gpu.simulated, self.simulated.take()) {
            (Some(simulated), Some(recording)) => simulated.submit(recording),
            _ => Arc::default(),
        };
        Ok(Submission { gpu, index, status: Some(status), outcome })
    }

    /// The encoder, its pass and its status words: made when first needed.
    fn open(&mut self) -> Result<&mut Open> {
        if self.open.is_none() {
            let gpu = &self.gpu;
            let status = gpu.statuses.take(gpu)?;
            let opened = gpu.guarded(|| {
                let mut encoder = gpu.device.create_command_encoder(&Default::default());
                let (from, init) = (status.marker_offset(), &gpu.statuses.init);
                encoder.copy_buffer_to_buffer(init, from, &status.words, 0, SLOT_BYTES);
                let pass = encoder.begin_compute_pass(&Default::default()).forget_lifetime();
                (encoder, pass)
            });
            let (encoder, pass) = opened?;
            self.open = Some(Open { pass, encoder, status, kernel: None });
        }
        self.open.as_mut().ok_or_else(|| Error::Gpu { message: "a recorder is not open".into() })
    }

    /// Everything wgpu would refuse, refused with the operation's name.
    fn check(&self, launch: &Launch<'_>) -> Result<()> {
        let (gpu, op) = (&self.gpu, launch.key.op);
        let overflow = |argument: String, got: u64, limit: u64| match got > limit {
            true => Err(Error::SizeOverflow { op, argument, got: got.to_string(), limit }),
            false => Ok(()),
        };
        overflow("words of parameters".into(), launch.params.len() as u64, MAX_PARAMS as u64)?;
        for groups in launch.groups {
            let limit = gpu.max_groups();
            overflow("workgroups in a dimension".into(), groups.into(), limit.into())?;
        }
        let count = launch.bindings.len() + usize::from(launch.status);
        overflow("storage bindings".into(), count as u64, gpu.max_storage_bindings() as u64)?;

        for (i, (buffer, access)) in launch.bindings.iter().enumerate() {
            let argument = || format!("binding {i}");
            if !Arc::ptr_eq(buffer.gpu(), gpu) {
                let (expected, got) = (format!("{gpu:?}"), format!("{:?}", buffer.gpu()));
                let argument = argument();
                return Err(Error::DeviceMismatch { op, argument, expected, got });
            }
            if buffer.size() > gpu.max_binding_bytes() {
                overflow(argument(), buffer.size(), gpu.max_binding_bytes())?;
            }
            if *access == Access::ReadWrite && buffer.is_read_only() {
                let got = "memory that is only read";
                return Err(Error::argument(op, argument(), "memory to write", got));
            }
            let other =
                launch.bindings[..i].iter().position(|(b, a)| b.id() == buffer.id() && a != access);
            if let Some(other) = other {
                let expected = "a buffer that the kernel either reads or writes";
                let got = format!("the buffer of binding {other} again, with another access");
                return Err(Error::argument(op, argument(), expected, got));
            }
        }
        Ok(())
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        if let Some(open) = self.open.take() {
            // The pass must end before its encoder does; what is said about it is of no interest.
            let _ = self.gpu.scoped(|| drop((open.pass, open.encoder)));
            self.gpu.statuses.give_back(open.status);
        }
    }
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Recorder({} launches on {:?})", self.len, self.gpu)
    }
}

/// Work handed to the GPU.
pub struct Submission {
    gpu: Arc<Gpu>,
    index: wgpu::SubmissionIndex,
    /// Always there until `drop` gives it back.
    status: Option<StatusWords>,
    /// What the status words were, once somebody waited; or what a simulator complained of.
    outcome: Arc<Outcome>,
}

impl Submission {
    /// Wait until it is done.
    pub fn wait(&self) -> Result<()> {
        self.words().map(|_| ())
    }

    /// Whether it is done, without waiting.
    pub fn is_done(&self) -> Result<bool> {
        self.gpu.settle();
        // A thread that waits holds the lock.
        if self.outcome.try_lock().is_ok_and(|outcome| outcome.is_some()) {
            return Ok(true);
        }
        self.gpu.poll_for(&self.index, Duration::ZERO)
    }

    /// Wait; then the smallest code that a kernel reported, if any did.
    pub fn status(&self) -> Result<Option<u32>> {
        self.words().map(|words| Some(words[0]).filter(|code| *code != NO_STATUS))
    }

    /// Wait; then what kernels left in words 1 to 3 of the status. If several kernels or threads
    /// reported, these need not belong to the code of [`Submission::status`].
    pub fn status_details(&self) -> Result<[u32; 3]> {
        self.words().map(|[_, a, b, c]| [a, b, c])
    }

    fn words(&self) -> Result<[u32; 4]> {
        self.gpu.settle();
        let mut outcome = lock(&self.outcome);
        if let Some(known) = &*outcome {
            return known.clone().map_err(|message| Error::Gpu { message });
        }
        self.gpu.wait_for(&self.index)?;
        let Some(status) = &self.status else {
            return Err(Error::Gpu { message: "a submission lost its status".into() });
        };
        let mut words = [0; SLOT_BYTES as usize / 4];
        self.gpu.read_mapped(&status.readback, SLOT_BYTES, &self.index, |bytes| {
            for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(4)) {
                *word = bytes.try_into().map_or(0, u32::from_ne_bytes);
            }
        })?;
        let [a, b, c, d, marker, ..] = words;
        if marker != status.marker {
            let message = "the driver gave a submission up before its end (it ran for too long, \
                           or a kernel failed); its results are not valid";
            return Err(Error::Gpu { message: message.into() });
        }
        *outcome = Some(Ok([a, b, c, d]));
        Ok([a, b, c, d])
    }
}

impl Drop for Submission {
    fn drop(&mut self) {
        if let Some(status) = self.status.take() {
            self.gpu.statuses.give_back(status);
        }
    }
}

impl std::fmt::Debug for Submission {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Submission({:?}, {:?})", self.gpu, self.index)
    }
}

/// Status words of submissions, reused from one to the next.
pub(super) struct StatusPool {
    /// The words' first values, once for each marker.
    init: wgpu::Buffer,
    free: Mutex<Vec<StatusWords>>,
    made: std::sync::atomic::AtomicU64,
}

impl StatusPool {
    pub(super) fn new(device: &wgpu::Device, queue: &wgpu::Queue) -> Self {
        let init = device.create_buffer(&wgpu::BufferDescriptor {
            label: Some("status init"),
            size: MARKERS as u64 * SLOT_BYTES,
            usage: BufferUsages::COPY_SRC | BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        let words = (0..MARKERS).flat_map(|marker| [NO_STATUS, 0, 0, 0, marker, 0, 0, 0]);
        let bytes = words.flat_map(u32::to_ne_bytes).collect::<Vec<_>>();
        queue.write_buffer(&init, 0, &bytes);
        StatusPool { init, free: Mutex::default(), made: Default::default() }
    }

    /// The words used last, because their bind groups are likely to be cached.
    fn take(&self, gpu: &Gpu) -> Result<StatusWords> {
        if let Some(mut words) = lock(&self.free).pop() {
            // Another marker than last time; 0 is what memory never written looks like.
            words.marker = words.marker % (MARKERS - 1) + 1;
            return Ok(words);
        }
        let make = |usage| {
            let label = Some("status");
            let size = SLOT_BYTES;
            gpu.device.create_buffer(&wgpu::BufferDescriptor {
                label,
                size,
                usage,
                mapped_at_creation: false,
            })
        };
        gpu.guarded(|| StatusWords {
            id: u64::MAX - self.made.fetch_add(1, Relaxed),
            words: make(BufferUsages::STORAGE | BufferUsages::COPY_SRC | BufferUsages::COPY_DST),
            readback: make(BufferUsages::MAP_READ | BufferUsages::COPY_DST),
            marker: 1,
        })
    }

    fn give_back(&self, words: StatusWords) {
        lock(&self.free).push(words);
    }
}

/// The status words of one submission, and where they are read.
struct StatusWords {
    id: u64,
    words: wgpu::Buffer,
    readback: wgpu::Buffer,
    marker: u32,
}

impl StatusWords {
    fn marker_offset(&self) -> u64 {
        u64::from(self.marker) * SLOT_BYTES
    }
}

/// What a recorder has under construction. The pass ends before the encoder: order of fields.
struct Open {
    pass: wgpu::ComputePass<'static>,
    encoder: wgpu::CommandEncoder,
    status: StatusWords,
    kernel: Option<u64>,
}

/// Buffers of recorded work; let go after the submission, or when the recorder is dropped.
struct Pins(Vec<(Arc<GpuBuffer>, Access)>);

impl Pins {
    fn add(&mut self, buffer: Arc<GpuBuffer>, access: Access) {
        buffer.pin(access);
        self.0.push((buffer, access));
    }
}

impl Drop for Pins {
    fn drop(&mut self) {
        for (buffer, access) in &self.0 {
            buffer.unpin(*access);
        }
    }
}

/// What the first status word is when nothing was reported.
pub(super) const NO_STATUS: u32 = u32::MAX;
/// What kernels see of the status.
const STATUS_BYTES: u64 = 16;
/// Four status words, the marker, and padding.
const SLOT_BYTES: u64 = 32;
/// Different markers, so that old contents are not taken for new ones.
const MARKERS: u32 = 16;
