//! A GPU that is simulated: wgpu's `noop` backend holds the memory and checks every call, and a
//! [`Simulator`] does what the kernels would have done. All code above sees a usual device.
//!
//! What such a device offers is what an Apple M1 offers through Metal, so the variants of kernels
//! that are chosen by capability are those of Apple's GPUs.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock};

use wgpu::{CooperativeMatrixProperties, CooperativeScalarType, Features, Limits};

use super::apple7::APPLE7;
use super::buffer::GpuBuffer;
use super::device::{AdapterSummary, Gpu, lock, summarize};
use super::kernel::{Access, Kernel, KernelKey};
use super::recorder::{Launch, NO_STATUS};
use crate::error::{Error, Result};

/// Does a GPU's work. See [`GpuOptions::simulator`](super::GpuOptions::simulator).
pub trait Simulator: Send + Sync {
    /// Runs launches in order. `memory` holds the bytes of every buffer they bind; those that are
    /// bound [`Access::ReadWrite`] are kept as they are on return. No buffer may change its length.
    /// Memory that nobody has written is full of `0xff`: NaN in every float format.
    ///
    /// The message of an error becomes that of [`Error::Gpu`], for every array of the submission;
    /// no memory changes then.
    fn run(&self, launches: &[SimulatedLaunch], memory: &mut [Vec<u8>]) -> Result<(), String>;
}

/// One kernel to simulate. See the module [`gpu`](super) for what its text looks like.
#[derive(Clone, Debug, PartialEq)]
pub struct SimulatedLaunch {
    /// Identifies the text.
    pub key: KernelKey,
    /// The complete WGSL.
    pub source: Arc<str>,
    /// The words of the `var<immediate>`.
    pub params: Vec<u32>,
    /// Workgroups in each dimension; none is zero.
    pub groups: [u32; 3],
    /// What `@binding(i)` is: a place in the submission's memory. The status words are last if the
    /// kernel binds them.
    pub bindings: Vec<(usize, Access)>,
}

/// A [`Simulator`] that computes nothing and notes what was launched: results are what the memory
/// held before. For looking at kernels without a GPU.
#[derive(Default)]
pub struct Collector {
    seen: Mutex<BTreeMap<KernelKey, Collected>>,
}

/// A kernel as a [`Collector`] saw it: of its launches, the first with the most workgroups.
#[derive(Clone, Debug)]
pub struct Collected {
    /// The launch.
    pub launch: SimulatedLaunch,
    /// The bytes of each binding.
    pub binding_bytes: Vec<u64>,
}

impl Collector {
    /// What was launched since the last call, in the order of keys.
    pub fn take(&self) -> Vec<Collected> {
        std::mem::take(&mut *lock(&self.seen)).into_values().collect()
    }
}

impl Simulator for Collector {
    fn run(&self, launches: &[SimulatedLaunch], memory: &mut [Vec<u8>]) -> Result<(), String> {
        let size = |launch: &SimulatedLaunch| launch.groups.map(u64::from).iter().product::<u64>();
        let mut seen = lock(&self.seen);
        for launch in launches {
            if seen.get(&launch.key).is_none_or(|old| size(&old.launch) < size(launch)) {
                let bytes = |(place, _): &(usize, Access)| memory[*place].len() as u64;
                let binding_bytes = launch.bindings.iter().map(bytes).collect();
                let collected = Collected { launch: launch.clone(), binding_bytes };
                seen.insert(launch.key.clone(), collected);
            }
        }
        Ok(())
    }
}

impl fmt::Debug for dyn Simulator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Simulator")
    }
}

/// The simulated adapter, which is not one of [`adapters`](super::adapters).
pub(super) fn adapter() -> Result<&'static (wgpu::Adapter, AdapterSummary)> {
    static ADAPTER: OnceLock<Option<(wgpu::Adapter, AdapterSummary)>> = OnceLock::new();
    let found = ADAPTER.get_or_init(|| {
        let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
        descriptor.backends = wgpu::Backends::NOOP;
        descriptor.flags = wgpu::InstanceFlags::empty();
        descriptor.backend_options.noop = wgpu::NoopBackendOptions {
            enable: true,
            limits: Some(apple_limits()),
            features: Some(apple_features()),
            device_type: Some(wgpu::DeviceType::Cpu),
            // What wgpu says of every Metal adapter.
            subgroup_min_size: Some(4),
            subgroup_max_size: Some(64),
        };
        let instance = wgpu::Instance::new(descriptor);
        let adapters = pollster::block_on(instance.enumerate_adapters(wgpu::Backends::NOOP));
        let adapter = adapters.into_iter().next()?;
        let summary = AdapterSummary {
            name: "simulated Apple M1".into(),
            backend: "simulated".into(),
            ..summarize(0, &adapter, &matrices())
        };
        Some((adapter, summary))
    });
    found.as_ref().ok_or_else(|| Error::NoDevice {
        wanted: "a simulated gpu".into(),
        reason: "wgpu's noop backend is missing".into(),
    })
}

/// What an M1 has through wgpu's Metal backend, of what matters here.
fn apple_features() -> Features {
    Features::IMMEDIATES
        | Features::MAPPABLE_PRIMARY_BUFFERS
        | Features::SUBGROUP
        | Features::SUBGROUP_BARRIER
        | Features::SHADER_F16
        | Features::SHADER_I16
        | Features::SHADER_INT64
        | Features::EXPERIMENTAL_COOPERATIVE_MATRIX
}

/// An M1's limits through wgpu's Metal backend: of Metal's buffers, one is for immediates and one for
/// the sizes of the others.
fn apple_limits() -> Limits {
    let limit = |figure: u64| u32::try_from(figure).unwrap_or(u32::MAX);
    let buffers = limit(APPLE7.buffers - 2);
    let threads = limit(APPLE7.threads);
    // The smallest M1 has 8 GiB of memory, and gives half of it to one buffer.
    let largest_buffer = 4 << 30;
    Limits {
        max_buffer_size: largest_buffer,
        max_storage_buffer_binding_size: largest_buffer,
        max_storage_buffers_per_shader_stage: buffers,
        max_buffers_and_acceleration_structures_per_shader_stage: buffers,
        max_compute_workgroup_storage_size: limit(APPLE7.threadgroup_bytes),
        max_compute_invocations_per_workgroup: threads,
        max_compute_workgroup_size_x: threads,
        max_compute_workgroup_size_y: threads,
        max_compute_workgroup_size_z: threads,
        max_compute_workgroups_per_dimension: limit(APPLE7.groups),
        max_immediate_size: limit(APPLE7.param_bytes),
        min_storage_buffer_offset_alignment: 32,
        max_non_sampler_bindings: u32::MAX,
        ..Limits::default()
    }
}

/// Metal's cooperative matrices, as `(input, accumulator)`; all are 8x8.
pub(super) const METAL_MATRICES: [(CooperativeScalarType, CooperativeScalarType); 3] = [
    (CooperativeScalarType::F32, CooperativeScalarType::F32),
    (CooperativeScalarType::F16, CooperativeScalarType::F16),
    (CooperativeScalarType::F16, CooperativeScalarType::F32),
];

/// The noop backend has no such list of its own.
pub(super) fn matrices() -> Vec<CooperativeMatrixProperties> {
    let eight = |(ab_type, cr_type)| CooperativeMatrixProperties {
        m_size: 8,
        n_size: 8,
        k_size: 8,
        ab_type,
        cr_type,
        saturating_accumulation: false,
    };
    METAL_MATRICES.map(eight).to_vec()
}

/// A device's simulator. As on a GPU, a submission is done some time after it was handed over: when somebody
/// asks for what it did. Whoever records meanwhile, on another device too, need not wait for it.
pub(super) struct Simulated {
    simulator: Arc<dyn Simulator>,
    /// Submissions that were not done yet, in their order.
    queue: Mutex<Vec<(Recording, Arc<Outcome>)>>,
}

/// The status words of a submission that is done, or what went wrong.
pub(super) type Outcome = Mutex<Option<Result<[u32; 4], String>>>;

impl Simulated {
    pub(super) fn new(simulator: Arc<dyn Simulator>) -> Simulated {
        Simulated { simulator, queue: Mutex::default() }
    }

    /// Hands a submission over; what comes of it is there once the device has settled.
    pub(super) fn submit(&self, recording: Recording) -> Arc<Outcome> {
        let outcome = Arc::new(Outcome::default());
        lock(&self.queue).push((recording, outcome.clone()));
        outcome
    }
}

impl Gpu {
    /// Does what was submitted to a simulated device. To be called before memory is looked at or written.
    pub(super) fn settle(&self) {
        let Some(Simulated { simulator, queue }) = &self.simulated else { return };
        // Held meanwhile: another thread must not see that nothing is left to do before it is done.
        for (recording, outcome) in lock(queue).drain(..) {
            let done = recording.run(self, &**simulator);
            *lock(&outcome) = Some(done);
        }
    }
}

/// What a recorder has collected for a simulator.
#[derive(Default)]
pub(super) struct Recording {
    launches: Vec<SimulatedLaunch>,
    /// The buffers, and whether a launch writes them. The status words come behind them.
    buffers: Vec<(Arc<GpuBuffer>, bool)>,
    /// Places by the buffers' ids.
    places: BTreeMap<u64, usize>,
}

impl Recording {
    pub(super) fn add(&mut self, launch: &Launch<'_>, kernel: &Kernel) {
        let mut bindings = Vec::with_capacity(launch.bindings.len() + 1);
        for &(buffer, access) in launch.bindings {
            let place = *self.places.entry(buffer.id()).or_insert_with(|| {
                self.buffers.push((buffer.clone(), false));
                self.buffers.len() - 1
            });
            self.buffers[place].1 |= access == Access::ReadWrite;
            bindings.push((place, access));
        }
        if launch.status {
            bindings.push((STATUS, Access::ReadWrite));
        }
        self.launches.push(SimulatedLaunch {
            key: launch.key.clone(),
            source: kernel.source.clone().unwrap_or_default(),
            params: launch.params.to_vec(),
            groups: launch.groups,
            bindings,
        });
    }

    /// Does the work: the submission's status words, or what went wrong.
    fn run(mut self, gpu: &Gpu, simulator: &dyn Simulator) -> Result<[u32; 4], String> {
        let mut status = [NO_STATUS, 0, 0, 0];
        if self.launches.is_empty() {
            return Ok(status);
        }
        let text = |error: Error| error.to_string();
        let mut memory = Vec::with_capacity(self.buffers.len() + 1);
        for (buffer, _) in &self.buffers {
            memory.push(peek(gpu, buffer).map_err(text)?);
        }
        let last = memory.len();
        memory.push(status.iter().flat_map(|word| word.to_ne_bytes()).collect());
        for (place, _) in self.launches.iter_mut().flat_map(|launch| &mut launch.bindings) {
            *place = (*place).min(last);
        }
        simulator.run(&self.launches, &mut memory)?;
        let sizes = self.buffers.iter().map(|(buffer, _)| buffer.size()).chain([16]);
        if memory.len() != last + 1 || !sizes.eq(memory.iter().map(|bytes| bytes.len() as u64)) {
            return Err("the simulator changed the length of a buffer".into());
        }
        for ((buffer, written), bytes) in self.buffers.iter().zip(&memory) {
            if *written {
                gpu.write(buffer, 0, bytes).map_err(text)?;
            }
        }
        for (word, bytes) in status.iter_mut().zip(memory[last].chunks_exact(4)) {
            *word = bytes.try_into().map_or(0, u32::from_ne_bytes);
        }
        Ok(status)
    }
}

/// A new buffer's contents are unspecified, even if the memory was used before: whatever a kernel
/// reads of it becomes NaN.
pub(super) fn poison(gpu: &Gpu, buffer: &GpuBuffer) -> Result<()> {
    gpu.write(buffer, 0, &vec![0xff; buffer.size() as usize])
}

/// A buffer's bytes; unlike a download this is not counted.
fn peek(gpu: &Gpu, buffer: &GpuBuffer) -> Result<Vec<u8>> {
    let size = buffer.size();
    let staging = gpu.staging(size)?;
    let source = buffer.raw()?;
    let index = gpu.guarded(|| {
        let mut encoder = gpu.device.create_command_encoder(&Default::default());
        encoder.copy_buffer_to_buffer(source, 0, &staging, 0, size);
        gpu.queue.submit([encoder.finish()])
    })?;
    let mut bytes = Vec::new();
    gpu.read_mapped(&staging, size, &index, |mapped| bytes.extend_from_slice(mapped))?;
    Ok(bytes)
}

/// Stands for the place of the status words until all buffers are known.
const STATUS: usize = usize::MAX;

#[cfg(test)]
mod tests {
    use super::super::{AdapterKind, GpuOptions, adapters};
    use super::*;
    use crate::{Array, Device};

    /// Runs closures as simulators.
    struct Run<F>(F);

    impl<F> Simulator for Run<F>
    where
        F: Fn(&[SimulatedLaunch], &mut [Vec<u8>]) -> Result<(), String> + Send + Sync,
    {
        fn run(&self, launches: &[SimulatedLaunch], memory: &mut [Vec<u8>]) -> Result<(), String> {
            (self.0)(launches, memory)
        }
    }

    fn open(
        run: impl Fn(&[SimulatedLaunch], &mut [Vec<u8>]) -> Result<(), String> + Send + Sync + 'static,
    ) -> Device {
        with(Arc::new(Run(run)))
    }

    fn with(simulator: Arc<dyn Simulator>) -> Device {
        let options = GpuOptions { simulator: Some(simulator), ..Default::default() };
        Device::gpu_with(0, &options).unwrap()
    }

    const SUM: &str = "
        struct Params { n: u32 }
        var<immediate> p: Params;
        @group(0) @binding(0) var<storage, read> x: array<f32>;
        @group(0) @binding(1) var<storage, read_write> y: array<f32>;
        @group(0) @binding(2) var<storage, read_write> status: array<atomic<u32>, 4>;
        @compute @workgroup_size(1)
        fn main() {
            var sum = y[0];
            for (var i = 0u; i < p.n; i++) { sum += x[i]; }
            y[0] = sum;
            atomicMin(&status[0], p.n);
        }";

    fn floats(bytes: &[u8]) -> Vec<f32> {
        bytes.chunks_exact(4).map(|b| f32::from_ne_bytes(b.try_into().unwrap())).collect()
    }

    /// What `SUM` does.
    fn sum(launches: &[SimulatedLaunch], memory: &mut [Vec<u8>]) -> Result<(), String> {
        for launch in launches {
            assert_eq!((launch.key.to_string().as_str(), &*launch.source), ("test/sum", SUM));
            let [(x, Access::Read), (y, Access::ReadWrite), (status, Access::ReadWrite)] =
                launch.bindings[..]
            else {
                panic!("{launch:?}")
            };
            let n = launch.params[0];
            let values = floats(&memory[x]);
            let sum = floats(&memory[y])[0] + values[..n as usize].iter().sum::<f32>();
            memory[y][..4].copy_from_slice(&sum.to_ne_bytes());
            let code = u32::from_ne_bytes(memory[status][..4].try_into().unwrap()).min(n);
            memory[status][..4].copy_from_slice(&code.to_ne_bytes());
        }
        Ok(())
    }

    fn launch_sum(
        gpu: &Arc<Gpu>,
        times: usize,
        x: &Arc<GpuBuffer>,
        y: &Arc<GpuBuffer>,
        n: u32,
    ) -> super::super::Submission {
        let mut recorder = gpu.recorder();
        for _ in 0..times {
            recorder
                .launch(&Launch {
                    key: KernelKey::new("test", "sum"),
                    source: &|| SUM.into(),
                    bindings: &[(x, Access::Read), (y, Access::ReadWrite)],
                    params: &[n],
                    groups: [1, 1, 1],
                    status: true,
                })
                .unwrap();
        }
        recorder.submit().unwrap()
    }

    #[test]
    fn a_simulator_reads_and_writes_the_devices_memory_and_status() {
        let device = open(sum);
        let gpu = device.as_gpu().unwrap();
        let x = Arc::new(gpu.alloc(12).unwrap());
        let y = Arc::new(gpu.alloc(4).unwrap());
        let bytes: Vec<u8> = [1.0f32, 2.0, 4.0].iter().flat_map(|v| v.to_ne_bytes()).collect();
        gpu.upload(&x, 0, &bytes).unwrap();
        gpu.upload(&y, 0, &0.5f32.to_ne_bytes()).unwrap();
        let (first, second) = (launch_sum(gpu, 2, &x, &y, 3), launch_sum(gpu, 1, &x, &y, 2));
        assert_eq!((first.status().unwrap(), second.status().unwrap()), (Some(3), Some(2)));
        assert!(first.is_done().unwrap());
        assert_eq!(floats(&gpu.download(&y, 0, 4).unwrap()), [0.5 + 7.0 + 7.0 + 3.0]);
        let counters = gpu.counters();
        assert_eq!((counters.dispatches, counters.submissions), (3, 2));
        assert_eq!((counters.uploaded_bytes, counters.downloaded_bytes), (16, 4));
        assert_eq!((counters.transfers, counters.pipelines_created), (1, 1));
        // An empty submission is none of the simulator's business.
        assert_eq!(gpu.recorder().submit().unwrap().status().unwrap(), None);
    }

    #[test]
    fn memory_that_was_never_written_is_nan_even_where_it_was_used_before() {
        let device = open(sum);
        let gpu = device.as_gpu().unwrap();
        let old = gpu.alloc(300).unwrap();
        let id = old.id();
        gpu.upload(&old, 0, &[0; 300]).unwrap();
        drop(old);
        let x = Arc::new(gpu.alloc(290).unwrap());
        assert_eq!((x.id(), x.size()), (id, 304));
        assert_eq!(gpu.download(&x, 0, 304).unwrap(), [0xff; 304]);
        let y = Arc::new(gpu.alloc(4).unwrap());
        gpu.upload(&y, 0, &[0; 4]).unwrap();
        launch_sum(gpu, 1, &x, &y, 1).wait().unwrap();
        assert!(floats(&gpu.download(&y, 0, 4).unwrap())[0].is_nan());
    }

    #[test]
    fn a_simulators_complaint_is_the_error_of_its_arrays_and_no_others() {
        let device = open(|launches, memory| {
            memory.iter_mut().for_each(|bytes| bytes.fill(0));
            Err(format!("{}: out of bounds", launches[0].key.op))
        });
        let x = Array::from_slice_on(&[1.0f32, 2.0], &[2], &device).unwrap();
        let y = (&x + 1.0).exp().unwrap();
        for _ in 0..2 {
            let error = crate::eval([&y]).unwrap_err();
            assert!(matches!(error, Error::Gpu { .. }), "{error}");
            assert!(error.to_string().contains(": out of bounds"), "{error}");
            assert!(matches!(y.to_vec::<f32>(), Err(Error::Gpu { .. })));
        }
        let z = (&y * 2.0).sum(()).unwrap();
        assert!(matches!(z.to_vec::<f32>(), Err(Error::Gpu { .. })));
        assert_eq!(x.to_vec::<f32>().unwrap(), [1.0, 2.0]);
    }

    #[test]
    fn a_simulator_may_not_change_lengths() {
        let device = open(|_, memory| {
            memory[0].pop();
            Ok(())
        });
        let x = Array::from_slice_on(&[1.0f32, 2.0], &[2], &device).unwrap();
        let error = (&x + 1.0).to_vec::<f32>().unwrap_err();
        assert!(error.to_string().contains("length of a buffer"), "{error}");
    }

    #[test]
    fn a_collector_notes_every_kernel_once_and_computes_nothing() {
        let collector = Arc::new(Collector::default());
        let device = with(collector.clone());
        let make = |rows: usize| {
            let x = Array::from_slice_on(&vec![1.0f32; rows * 40], &[rows, 40], &device).unwrap();
            let y = crate::softmax(&x, -1).unwrap();
            (x.square().unwrap().to_vec::<f32>().unwrap(), y.to_vec::<f32>().unwrap())
        };
        let (square, softmax) = make(3);
        assert!(square.iter().chain(&softmax).all(|value| value.is_nan()));
        make(30);
        make(20);
        let collected = collector.take();
        let names: Vec<_> = collected.iter().map(|kernel| kernel.launch.key.op).collect();
        assert_eq!(names, ["fused", "softmax"]);
        for kernel in &collected {
            assert!(kernel.launch.source.contains("fn main("));
            assert_eq!(kernel.binding_bytes, [30 * 40 * 4; 2], "{}", kernel.launch.key);
        }
        assert!(collector.take().is_empty());
    }

    #[test]
    fn a_simulated_device_is_an_m1_and_shows_up_nowhere_else() {
        let device = open(|_, _| Ok(()));
        let gpu = device.as_gpu().unwrap();
        let summary = gpu.summary();
        assert_eq!((summary.kind, summary.name.as_str()), (AdapterKind::Software, gpu.name()));
        assert!(gpu.has_int64() && gpu.has_f16() && gpu.has_subgroups());
        assert!(gpu.has_cooperative_matrix());
        assert_eq!((gpu.max_storage_bindings(), gpu.max_groups()), (29, 65_535));
        assert_eq!(summary.max_workgroup_invocations, 1024);
        assert_eq!(summary.workgroup_memory_bytes, 32_768);
        assert!(adapters().iter().all(|a| a.backend != "Noop" && a.name != summary.name));
        assert!(Device::choose().0 != device && Device::default_device() != device);

        let simulator: Option<Arc<dyn Simulator>> = Some(Arc::new(Collector::default()));
        let options = GpuOptions { simulator, without_int64: true, ..Default::default() };
        assert!(format!("{options:?}").contains("Simulator"));
        assert!(matches!(Gpu::open(1, &options), Err(Error::NoDevice { .. })));
        assert!(!Gpu::open(0, &options).unwrap().has_int64());
    }

    #[test]
    fn a_kernel_that_an_m1_would_refuse_is_refused() {
        use super::super::KernelShape;
        let device = open(|_, _| Ok(()));
        let compile = |text: &str| {
            let accesses = [Access::ReadWrite].into_iter().collect();
            let shape = KernelShape { accesses, params: 0 };
            let gpu = device.as_gpu().unwrap();
            gpu.compile_check(&KernelKey::new("test", "large"), text, &shape)
        };
        let kernel = |threads: u32, words: u32| {
            format!(
                "enable wgpu_cooperative_matrix; enable f16;
                 var<workgroup> w: array<u32, {words}>;
                 @group(0) @binding(0) var<storage, read_write> y: array<f16>;
                 @compute @workgroup_size({threads})
                 fn main(@builtin(local_invocation_index) i: u32) {{
                     w[i] = i;
                     let m = coopLoadT<coop_mat8x8<f16, C>>(&y[0], 8);
                     coopStoreT(m, &y[w[i]], 8);
                 }}"
            )
        };
        compile(&kernel(1024, 8192)).unwrap();
        let error = compile(&kernel(1025, 8192)).unwrap_err().to_string();
        assert!(error.contains("1024"), "{error}");
        let error = compile(&kernel(1024, 8193)).unwrap_err().to_string();
        assert!(error.contains("32784 bytes of threadgroup memory, not 32768"), "{error}");
    }
}
