//! Adapters, and [`Gpu`]: one opened device with its queue, counters and health.
//!
//! wgpu panics by default on an uncaptured error and when a poll meets a lost device. Everything
//! here turns both into [`Error`]s: handlers are installed when the device is opened, and every
//! entry point asks [`Gpu::check`] first.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use wgpu::{ErrorFilter, Features, PollError, PollType};

use super::buffer::{Constants, Memory, Transfers};
use super::kernel::Kernels;
use super::recorder::StatusPool;
use super::simulated::{self, METAL_MATRICES, Simulated, Simulator};
use super::system::{self, pooled};
use crate::error::{Error, Result};

/// What an adapter is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AdapterKind {
    /// A GPU with its own memory.
    Discrete,
    /// A GPU that shares the CPU's memory.
    Integrated,
    /// A GPU seen through a virtual machine.
    Virtual,
    /// A driver that computes on the CPU, such as lavapipe. For tests; never a default device.
    Software,
    /// The driver does not say.
    Other,
}

/// What one adapter is and can do.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AdapterSummary {
    /// The number to give to [`Gpu::open`].
    pub index: usize,
    /// The adapter's name.
    pub name: String,
    /// `Vulkan` or `Metal`.
    pub backend: String,
    /// What it is made of.
    pub kind: AdapterKind,
    /// The families of GPUs it belongs to, where Metal tells: `Apple8 Mac2 Metal3`.
    pub family: Option<String>,
    /// The memory that the system recommends to use at most, where it tells: the memory limit of a
    /// [`Gpu`] as it is opened.
    pub working_set_bytes: Option<u64>,
    /// The driver's name and version.
    pub driver: String,
    /// Those features that matter here and that the adapter offers.
    pub features: Vec<&'static str>,
    /// The largest buffer.
    pub max_buffer_bytes: u64,
    /// The largest part of a buffer that one kernel argument can see.
    pub max_binding_bytes: u64,
    /// How many buffers one kernel can see, the status word included.
    pub max_storage_buffers: u32,
    /// The largest workgroup.
    pub max_workgroup_invocations: u32,
    /// Memory shared by a workgroup.
    pub workgroup_memory_bytes: u32,
    /// The smallest subgroup, as reported. Not to be trusted: Metal's is a constant in wgpu.
    pub subgroup_min: u32,
    /// The largest subgroup, as reported.
    pub subgroup_max: u32,
}

/// Every adapter of the machine, best backend first; empty if there is no driver. Enumerated once.
pub fn adapters() -> Vec<AdapterSummary> {
    registry().iter().map(|(_, summary)| summary.clone()).collect()
}

/// How to open a device. The default takes all that the adapter offers.
#[derive(Clone, Debug, Default)]
pub struct GpuOptions {
    /// Ask for a device that refuses larger bindings.
    pub max_binding_bytes: Option<u64>,
    /// Ask for a device that refuses larger buffers.
    pub max_buffer_bytes: Option<u64>,
    /// Ask for a device whose kernels see fewer buffers, the status word included.
    pub max_storage_bindings: Option<u32>,
    /// Compile kernels with bounds, loop and division checks and with zeroed workgroup memory.
    pub checked: bool,
    /// Do as if the adapter had no 64-bit integers.
    pub without_int64: bool,
    /// Do as if the adapter had no cooperative matrices.
    pub without_matrices: bool,
    /// Open a simulated Apple GPU whose kernels are run by this. It has number 0, and is none of
    /// [`adapters`].
    pub simulator: Option<Arc<dyn Simulator>>,
}

/// What a [`Gpu`] has done since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GpuCounters {
    /// Kernels submitted for running.
    pub dispatches: u64,
    /// Operations that recorded kernels: a node and a fused run count once each, whatever the
    /// number of their kernels.
    pub operations: u64,
    /// Submissions made by recorders.
    pub submissions: u64,
    /// Submissions made for downloads and for flushing large uploads.
    pub transfers: u64,
    /// Bytes sent to the device.
    pub uploaded_bytes: u64,
    /// Bytes fetched from the device.
    pub downloaded_bytes: u64,
    /// Buffers made by the driver; those reused from the cache do not count.
    pub allocations: u64,
    /// Kernels compiled.
    pub pipelines_created: u64,
    /// Bind groups made; those reused do not count.
    pub bind_groups_created: u64,
}

/// An opened GPU. Shared as `Arc<Gpu>`; all methods may be called from any thread.
pub struct Gpu {
    pub(super) device: wgpu::Device,
    pub(super) queue: wgpu::Queue,
    pub(super) memory: Mutex<Memory>,
    pub(super) constants: Mutex<Constants>,
    pub(super) transfers: Transfers,
    pub(super) kernels: Kernels,
    pub(super) statuses: StatusPool,
    pub(super) count: Counts,
    pub(super) checked: bool,
    pub(super) simulated: Option<Simulated>,
    summary: AdapterSummary,
    features: Features,
    limits: wgpu::Limits,
    health: Arc<Health>,
}

impl Gpu {
    /// Open the adapter with this index in [`adapters`].
    pub fn open(adapter_index: usize, options: &GpuOptions) -> Result<Arc<Gpu>> {
        let adapters = match options.simulator {
            Some(_) => std::slice::from_ref(simulated::adapter()?),
            None => registry(),
        };
        let Some((adapter, summary)) = adapters.get(adapter_index) else {
            let reason = match adapters.len() {
                0 => "no Vulkan or Metal driver found".to_string(),
                _ if options.simulator.is_some() => "the simulated gpu has number 0".to_string(),
                n => format!("there are {n} adapters, counted from 0"),
            };
            return Err(Error::NoDevice { wanted: format!("gpu:{adapter_index}"), reason });
        };
        let offered = adapter.features();
        if !offered.contains(Features::IMMEDIATES) || adapter.limits().max_immediate_size < 128 {
            return Err(Error::MissingFeature {
                device: summary.name.clone(),
                feature: "128 bytes of immediates (push constants)".into(),
                needed_by: "every kernel".into(),
            });
        }
        let mut features = offered
            & (Features::IMMEDIATES
                | Features::SUBGROUP
                | Features::SUBGROUP_BARRIER
                | Features::SHADER_F16
                | Features::SHADER_INT64
                | Features::EXPERIMENTAL_COOPERATIVE_MATRIX);
        features.set(
            Features::SHADER_INT64,
            features.contains(Features::SHADER_INT64) && !options.without_int64,
        );
        let matrices = summary.features.contains(&COOPERATIVE_MATRIX) && !options.without_matrices;
        features.set(Features::EXPERIMENTAL_COOPERATIVE_MATRIX, matrices);

        let mut limits = adapter.limits();
        let cap =
            |limit: &mut u64, wish: Option<u64>| *limit = wish.map_or(*limit, |w| w.min(*limit));
        cap(&mut limits.max_buffer_size, options.max_buffer_bytes);
        cap(&mut limits.max_storage_buffer_binding_size, options.max_binding_bytes);
        let bindings = &mut limits.max_storage_buffers_per_shader_stage;
        *bindings = options.max_storage_bindings.map_or(*bindings, |wish| wish.min(*bindings));

        let experimental_features = if features.contains(Features::EXPERIMENTAL_COOPERATIVE_MATRIX)
        {
            // SAFETY: only cooperative matrices are requested, and only this crate's own kernels,
            // which are compared with the CPU's results, use them.
            unsafe { wgpu::ExperimentalFeatures::enabled() }
        } else {
            wgpu::ExperimentalFeatures::disabled()
        };
        let request = adapter.request_device(&wgpu::DeviceDescriptor {
            label: Some("wootz"),
            required_features: features,
            required_limits: limits.clone(),
            experimental_features,
            memory_hints: wgpu::MemoryHints::Performance,
            trace: wgpu::Trace::Off,
        });
        let (device, queue) = pollster::block_on(request).map_err(|error| Error::NoDevice {
            wanted: format!("gpu:{adapter_index} ({})", summary.name),
            reason: error.to_string(),
        })?;

        let health = Arc::new(Health::default());
        let handler = health.clone();
        device.on_uncaptured_error(Arc::new(move |error| handler.note(error)));
        let handler = health.clone();
        device.set_device_lost_callback(move |reason, message| {
            handler.lose(&format!("{reason:?} {message}"));
        });

        let statuses = StatusPool::new(&device, &queue);
        let gpu = Arc::new(Gpu {
            device,
            queue,
            memory: Mutex::default(),
            constants: Mutex::default(),
            transfers: Transfers::default(),
            kernels: Kernels::default(),
            statuses,
            count: Counts::default(),
            checked: options.checked,
            simulated: options.simulator.clone().map(Simulated::new),
            summary: summary.clone(),
            features,
            limits,
            health,
        });
        if let Some(bytes) = gpu.summary.working_set_bytes {
            gpu.set_memory_limit(bytes);
        }
        gpu.check()?;
        Ok(gpu)
    }

    /// The adapter's name.
    pub fn name(&self) -> &str {
        &self.summary.name
    }

    /// What the adapter is. Its limits are the adapter's, not those asked for with [`GpuOptions`].
    pub fn summary(&self) -> &AdapterSummary {
        &self.summary
    }

    /// Whether kernels may use `i64` and `u64`.
    pub fn has_int64(&self) -> bool {
        self.features.contains(Features::SHADER_INT64)
    }

    /// Whether kernels may use `f16`.
    pub fn has_f16(&self) -> bool {
        self.features.contains(Features::SHADER_F16)
    }

    /// Whether kernels may use subgroup operations.
    pub fn has_subgroups(&self) -> bool {
        self.features.contains(Features::SUBGROUP)
    }

    /// Whether kernels may use cooperative matrices as Metal has them: 8x8, of f32 or f16, where
    /// f16 accumulates in f16 or f32. An adapter with other matrices only has none.
    pub fn has_cooperative_matrix(&self) -> bool {
        self.features.contains(Features::EXPERIMENTAL_COOPERATIVE_MATRIX)
    }

    /// Whether kernels are compiled with runtime checks.
    pub fn is_checked(&self) -> bool {
        self.checked
    }

    /// The largest buffer that a kernel can see whole.
    pub fn max_binding_bytes(&self) -> u64 {
        // A binding's size must be a multiple of four.
        self.limits.max_storage_buffer_binding_size.min(self.limits.max_buffer_size) & !3
    }

    /// How many buffers one kernel can see, the status word included.
    pub fn max_storage_bindings(&self) -> usize {
        self.limits.max_storage_buffers_per_shader_stage as usize
    }

    /// The most threads of a workgroup.
    pub fn max_threads(&self) -> usize {
        let most = self.limits.max_compute_workgroup_size_x;
        most.min(self.limits.max_compute_invocations_per_workgroup) as usize
    }

    /// The most workgroups in one dimension of a launch.
    pub fn max_groups(&self) -> u32 {
        self.limits.max_compute_workgroups_per_dimension
    }

    /// What has been done since the device was opened.
    pub fn counters(&self) -> GpuCounters {
        let count = &self.count;
        GpuCounters {
            dispatches: count.dispatches.load(Relaxed),
            operations: count.operations.load(Relaxed),
            submissions: count.submissions.load(Relaxed),
            transfers: count.transfers.load(Relaxed),
            uploaded_bytes: count.uploaded_bytes.load(Relaxed),
            downloaded_bytes: count.downloaded_bytes.load(Relaxed),
            allocations: count.allocations.load(Relaxed),
            pipelines_created: count.pipelines_created.load(Relaxed),
            bind_groups_created: count.bind_groups_created.load(Relaxed),
        }
    }

    /// Counts an operation that recorded its first kernel.
    pub(super) fn count_operation(&self) {
        self.count.operations.fetch_add(1, Relaxed);
    }

    /// `Err` if the device is lost, or if the driver complained since the last call.
    pub fn check(&self) -> Result<()> {
        if self.health.lost.load(Relaxed) {
            return Err(self.lost_error());
        }
        if self.health.complained.swap(false, Relaxed)
            && let Some(message) = lock(&self.health.complaint).take()
        {
            return Err(Error::Gpu { message });
        }
        Ok(())
    }

    /// Destroy the device under everybody's feet, to test that this is survived.
    pub fn lose_for_test(&self) {
        // First the flag: no thread may take the silence of a destroyed device for success.
        self.health.lose("destroyed by a test");
        self.device.destroy();
        // Lets wgpu release what it holds.
        let _ = self.poll(PollType::Poll);
    }

    /// Wait for everything that was submitted.
    pub fn synchronize(&self) -> Result<()> {
        self.settle();
        let idle = self.guarded(|| self.queue.submit([]))?;
        self.wait_for(&idle)
    }

    /// Wait for a submission. Returns early, with an error, when the device is lost meanwhile.
    pub(super) fn wait_for(&self, index: &wgpu::SubmissionIndex) -> Result<()> {
        // The slices bound how long a loss that only another thread noticed stays unseen here. They are long: wgpu
        // 30 panics if a wait runs out while another thread sees the queue become empty.
        while !self.poll_for(index, Duration::from_secs(30))? {}
        Ok(())
    }

    /// Wait at most `timeout`; whether the submission is done.
    pub(super) fn poll_for(
        &self,
        index: &wgpu::SubmissionIndex,
        timeout: Duration,
    ) -> Result<bool> {
        self.check()?;
        self.poll(PollType::Wait { submission_index: Some(index.clone()), timeout: Some(timeout) })
    }

    fn poll(&self, poll: PollType) -> Result<bool> {
        // wgpu offers no poll that reports a lost device as a value: it panics, holding no lock.
        match catch_unwind(AssertUnwindSafe(|| pooled(|| self.device.poll(poll)))) {
            Ok(Ok(status)) => Ok(status.wait_finished()),
            Ok(Err(PollError::Timeout)) => self.check().map(|()| false),
            Ok(Err(error)) => {
                self.check()?;
                Err(Error::Gpu { message: error.to_string() })
            }
            Err(_) => {
                self.health.lose("the driver failed while waiting");
                Err(self.lost_error())
            }
        }
    }

    /// Run `work` and catch what wgpu says about it on this thread.
    pub(super) fn scoped<T>(&self, work: impl FnOnce() -> T) -> (T, Option<wgpu::Error>) {
        let memory = self.device.push_error_scope(ErrorFilter::OutOfMemory);
        let internal = self.device.push_error_scope(ErrorFilter::Internal);
        let validation = self.device.push_error_scope(ErrorFilter::Validation);
        let value = pooled(work);
        let validation = pollster::block_on(validation.pop());
        let internal = pollster::block_on(internal.pop());
        let memory = pollster::block_on(memory.pop());
        (value, memory.or(validation).or(internal))
    }

    /// Like [`Gpu::scoped`] for work that can only fail through a defect or a loss.
    pub(super) fn guarded<T>(&self, work: impl FnOnce() -> T) -> Result<T> {
        let (value, error) = self.scoped(work);
        // wgpu reports a lost device through the callback only.
        if self.health.lost.load(Relaxed) {
            return Err(self.lost_error());
        }
        match error {
            None => Ok(value),
            Some(wgpu::Error::OutOfMemory { .. }) => Err(self.out_of_memory(0)),
            Some(error) => Err(Error::Gpu { message: error.to_string() }),
        }
    }

    /// An [`Error::OutOfMemory`] with the present numbers.
    pub(super) fn out_of_memory(&self, requested: u64) -> Error {
        let memory = self.state();
        let (active, limit) = (memory.active, memory.limit);
        Error::OutOfMemory { device: self.name().into(), requested, active, limit }
    }

    fn lost_error(&self) -> Error {
        let reason = lock(&self.health.reason).clone();
        Error::DeviceLost { device: self.name().into(), reason }
    }
}

impl std::fmt::Debug for Gpu {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Gpu({}, {})", self.summary.index, self.summary.name)
    }
}

/// The counters behind [`GpuCounters`].
#[derive(Default)]
pub(super) struct Counts {
    pub(super) dispatches: AtomicU64,
    pub(super) operations: AtomicU64,
    pub(super) submissions: AtomicU64,
    pub(super) transfers: AtomicU64,
    pub(super) uploaded_bytes: AtomicU64,
    pub(super) downloaded_bytes: AtomicU64,
    pub(super) allocations: AtomicU64,
    pub(super) pipelines_created: AtomicU64,
    pub(super) bind_groups_created: AtomicU64,
}

/// Lock, also after a panic of another holder: every critical section leaves its data consistent.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What wgpu's callbacks reported.
#[derive(Default)]
struct Health {
    lost: AtomicBool,
    complained: AtomicBool,
    reason: Mutex<String>,
    complaint: Mutex<Option<String>>,
}

impl Health {
    /// The first reason stays: what follows a loss are its consequences.
    fn lose(&self, reason: &str) {
        let mut stored = lock(&self.reason);
        if !self.lost.load(Relaxed) {
            reason.trim().clone_into(&mut stored);
            self.lost.store(true, Relaxed);
        }
    }

    fn note(&self, error: wgpu::Error) {
        lock(&self.complaint).get_or_insert_with(|| error.to_string());
        self.complained.store(true, Relaxed);
    }
}

/// The machine's adapters. Never dropped, like the drivers they come from.
fn registry() -> &'static [(wgpu::Adapter, AdapterSummary)] {
    static REGISTRY: OnceLock<Vec<(wgpu::Adapter, AdapterSummary)>> = OnceLock::new();
    REGISTRY.get_or_init(|| {
        // On a target without any backend, wgpu's constructor panics.
        let backends = wgpu::Instance::enabled_backend_features() - wgpu::Backends::NOOP;
        if backends.is_empty() {
            return Vec::new();
        }
        let instance = wgpu::Instance::new(wgpu::InstanceDescriptor {
            backends,
            flags: wgpu::InstanceFlags::empty(),
            ..wgpu::InstanceDescriptor::new_without_display_handle()
        });
        let adapters = pollster::block_on(instance.enumerate_adapters(backends));
        let summary = |(index, adapter): (usize, &wgpu::Adapter)| {
            summarize(index, adapter, &adapter.cooperative_matrix_properties())
        };
        let summaries = adapters.iter().enumerate().map(summary).collect::<Vec<_>>();
        adapters.into_iter().zip(summaries).collect()
    })
}

/// Describes an adapter that has these cooperative matrices.
pub(super) fn summarize(
    index: usize,
    adapter: &wgpu::Adapter,
    matrices: &[wgpu::CooperativeMatrixProperties],
) -> AdapterSummary {
    let (info, limits, offered) = (adapter.get_info(), adapter.limits(), adapter.features());
    let usable = |feature: &Features| {
        offered.contains(*feature)
            && (*feature != Features::EXPERIMENTAL_COOPERATIVE_MATRIX
                || has_metal_matrices(matrices))
    };
    let system::Traits { family, working_set_bytes } = system::traits(adapter);
    let known = [
        ("subgroup", Features::SUBGROUP),
        ("f16", Features::SHADER_F16),
        ("int64", Features::SHADER_INT64),
        ("timestamp", Features::TIMESTAMP_QUERY),
        (COOPERATIVE_MATRIX, Features::EXPERIMENTAL_COOPERATIVE_MATRIX),
        ("mappable-primary", Features::MAPPABLE_PRIMARY_BUFFERS),
    ];
    AdapterSummary {
        index,
        name: info.name,
        backend: format!("{:?}", info.backend),
        kind: match info.device_type {
            wgpu::DeviceType::DiscreteGpu => AdapterKind::Discrete,
            wgpu::DeviceType::IntegratedGpu => AdapterKind::Integrated,
            wgpu::DeviceType::VirtualGpu => AdapterKind::Virtual,
            wgpu::DeviceType::Cpu => AdapterKind::Software,
            wgpu::DeviceType::Other => AdapterKind::Other,
        },
        family,
        working_set_bytes,
        driver: format!("{} {}", info.driver, info.driver_info).trim().to_string(),
        features: known.iter().filter(|(_, f)| usable(f)).map(|(n, _)| *n).collect(),
        max_buffer_bytes: limits.max_buffer_size,
        max_binding_bytes: limits.max_storage_buffer_binding_size,
        max_storage_buffers: limits.max_storage_buffers_per_shader_stage,
        max_workgroup_invocations: limits.max_compute_invocations_per_workgroup,
        workgroup_memory_bytes: limits.max_compute_workgroup_storage_size,
        subgroup_min: info.subgroup_min_size,
        subgroup_max: info.subgroup_max_size,
    }
}

/// Whether all the configurations that Metal has are among these.
fn has_metal_matrices(matrices: &[wgpu::CooperativeMatrixProperties]) -> bool {
    METAL_MATRICES.iter().all(|&(input, accumulator)| {
        matrices.iter().any(|matrix| {
            [matrix.m_size, matrix.n_size, matrix.k_size] == [8; 3]
                && (matrix.ab_type, matrix.cr_type) == (input, accumulator)
        })
    })
}

/// The feature's name in summaries.
const COOPERATIVE_MATRIX: &str = "cooperative-matrix";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cooperative_matrices_count_only_where_all_of_metals_are_there() {
        let metal = simulated::matrices();
        assert!(has_metal_matrices(&metal));
        assert!(!has_metal_matrices(&metal[..2]) && !has_metal_matrices(&[]));
        let mut larger = metal.clone();
        larger[0].k_size = 16;
        assert!(!has_metal_matrices(&larger));
        larger.extend(metal);
        assert!(has_metal_matrices(&larger));
    }
}
