//! Kernels: compiling WGSL once, and the bind groups that connect it with buffers.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use smallvec::SmallVec;

use super::cost::workgroup_memory_fits_apple7;
use super::device::{Gpu, lock};
use super::msl::ENTRY;
use super::prune::prune;
use crate::error::{Error, Result};

/// What a kernel does with a binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// `var<storage, read>`
    Read,
    /// `var<storage, read_write>`
    ReadWrite,
}

/// Identifies a kernel's text, and with it the compiled kernel. Whatever changes the text must
/// show in the variant.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KernelKey {
    /// The operation.
    pub op: &'static str,
    /// Which of its kernels, with dtypes and options.
    pub variant: String,
}

impl KernelKey {
    /// A key.
    pub fn new(op: &'static str, variant: impl Into<String>) -> Self {
        KernelKey { op, variant: variant.into() }
    }
}

impl fmt::Display for KernelKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.op, self.variant)
    }
}

impl Gpu {
    /// Starts or stops noting the kernels that are launched, for tests that look at their texts.
    pub fn trace_kernels(&self, on: bool) {
        self.kernels.tracing.store(on, Relaxed);
    }

    /// The keys and texts of the kernels launched since the last call, while tracing was on.
    pub fn take_traced_kernels(&self) -> Vec<(KernelKey, String)> {
        std::mem::take(&mut *lock(&self.kernels.traced)).into_iter().collect()
    }

    /// Compile a kernel without keeping it: does this device accept it?
    pub fn compile_check(&self, key: &KernelKey, source: &str, shape: &KernelShape) -> Result<()> {
        self.check()?;
        self.compile(key, source, shape).map(|_| ())
    }

    /// The compiled kernel, from the cache if it was compiled before.
    pub(super) fn kernel(
        &self,
        key: &KernelKey,
        source: &dyn Fn() -> String,
        shape: &KernelShape,
    ) -> Result<Arc<Kernel>> {
        if self.kernels.tracing.load(Relaxed) {
            lock(&self.kernels.traced).entry(key.clone()).or_insert_with(|| prune(&source()));
        }
        let found = |kernel: &Arc<Kernel>| match kernel.shape == *shape {
            true => Ok(kernel.clone()),
            false => Err(Error::Kernel {
                op: key.op,
                kernel: key.to_string(),
                message: format!(
                    "the key was used before with {:?}, now with {shape:?}",
                    kernel.shape
                ),
            }),
        };
        if let Some(kernel) = lock(&self.kernels.compiled).get(key) {
            return found(kernel);
        }
        // One at a time, so that two threads do not compile the same kernel.
        let _compiling = lock(&self.kernels.compiling);
        if let Some(kernel) = lock(&self.kernels.compiled).get(key) {
            return found(kernel);
        }
        let kernel = Arc::new(self.compile(key, &prune(&source()), shape)?);
        lock(&self.kernels.compiled).insert(key.clone(), kernel.clone());
        Ok(kernel)
    }

    fn compile(&self, key: &KernelKey, source: &str, shape: &KernelShape) -> Result<Kernel> {
        let label = key.to_string();
        let refuse = |message| Error::Kernel { op: key.op, kernel: key.to_string(), message };
        let module = naga::front::wgsl::parse_str(source)
            .map_err(|error| refuse(error.emit_to_string(source)))?;
        // wgpu lets a kernel read parameters that an earlier launch left, so it is checked here.
        let declared = naga::valid::ImmediateSlots::size_for_module(&module);
        let given = shape.params as u32 * 4;
        if declared != given {
            let text = format!("it declares {declared} bytes of parameters and is given {given}");
            return Err(refuse(text));
        }
        if self.simulated.is_some() {
            workgroup_memory_fits_apple7(&module).map_err(refuse)?;
        }
        let layout = self.bind_layout(&shape.accesses)?;
        let (pipeline, error) = self.scoped(|| {
            let descriptor = wgpu::ShaderModuleDescriptor {
                label: Some(&label),
                source: wgpu::ShaderSource::Wgsl(source.into()),
            };
            let module = if self.checked {
                self.device.create_shader_module(descriptor)
            } else {
                // SAFETY: the text is one of this crate's kernels, which do not index outside
                // their bindings, loop forever or divide by zero; the tests run them checked and
                // unchecked. wgpu still parses and validates the text itself.
                unsafe {
                    let checks = wgpu::ShaderRuntimeChecks::unchecked();
                    self.device.create_shader_module_trusted(descriptor, checks)
                }
            };
            let pipeline_layout =
                self.device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
                    label: Some(&label),
                    bind_group_layouts: &[Some(&layout.raw)],
                    immediate_size: given,
                });
            self.device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
                label: Some(&label),
                layout: Some(&pipeline_layout),
                module: &module,
                entry_point: Some(ENTRY),
                compilation_options: wgpu::PipelineCompilationOptions {
                    zero_initialize_workgroup_memory: self.checked,
                    ..Default::default()
                },
                cache: None,
            })
        });
        self.check()?;
        match error {
            None => {
                let id = self.count.pipelines_created.fetch_add(1, Relaxed);
                let source = self.simulated.is_some().then(|| source.into());
                Ok(Kernel { id, pipeline, layout, shape: shape.clone(), source })
            }
            Some(wgpu::Error::OutOfMemory { .. }) => Err(self.out_of_memory(0)),
            Some(error) => Err(refuse(error.to_string())),
        }
    }

    /// Kernels with equal accesses share one layout, and so their bind groups.
    fn bind_layout(&self, accesses: &[Access]) -> Result<Arc<BindLayout>> {
        let mut layouts = lock(&self.kernels.layouts);
        if let Some(layout) = layouts.get(accesses) {
            return Ok(layout.clone());
        }
        let entry = |(i, access): (usize, &Access)| wgpu::BindGroupLayoutEntry {
            binding: i as u32,
            visibility: wgpu::ShaderStages::COMPUTE,
            ty: wgpu::BindingType::Buffer {
                ty: wgpu::BufferBindingType::Storage { read_only: *access == Access::Read },
                has_dynamic_offset: false,
                min_binding_size: None,
            },
            count: None,
        };
        let entries = accesses.iter().enumerate().map(entry).collect::<Vec<_>>();
        let descriptor = wgpu::BindGroupLayoutDescriptor { label: None, entries: &entries };
        let raw = self.guarded(|| self.device.create_bind_group_layout(&descriptor))?;
        let layout = Arc::new(BindLayout { id: layouts.len() as u64, raw });
        layouts.insert(accesses.to_vec(), layout.clone());
        Ok(layout)
    }

    /// The bind group for these `(buffer id, bytes)`; `raw` gives the i-th buffer on a miss.
    pub(super) fn bind_group<'a>(
        &self,
        kernel: &Kernel,
        bound: Bound,
        raw: impl Fn(usize) -> Result<&'a wgpu::Buffer>,
    ) -> Result<wgpu::BindGroup> {
        let key = (kernel.layout.id, bound);
        if let Some(group) = lock(&self.kernels.groups).get(&key) {
            return Ok(group);
        }
        let entry = |(i, &(_, bytes)): (usize, &(u64, u64))| -> Result<_> {
            let buffer = raw(i)?;
            let size = wgpu::BufferSize::new(bytes);
            let binding = wgpu::BufferBinding { buffer, offset: 0, size };
            let resource = wgpu::BindingResource::Buffer(binding);
            Ok(wgpu::BindGroupEntry { binding: i as u32, resource })
        };
        let entries = key.1.iter().enumerate().map(entry).collect::<Result<Vec<_>>>()?;
        let layout = &kernel.layout.raw;
        let descriptor = wgpu::BindGroupDescriptor { label: None, layout, entries: &entries };
        let group = self.guarded(|| self.device.create_bind_group(&descriptor))?;
        self.count.bind_groups_created.fetch_add(1, Relaxed);
        lock(&self.kernels.groups).insert(key, group.clone());
        Ok(group)
    }
}

/// What a kernel is given: fixed for each [`KernelKey`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelShape {
    /// How each binding is used, the status word (if any) last.
    pub accesses: SmallVec<[Access; 12]>,
    /// Words of parameters.
    pub params: usize,
}

/// The ids and sizes of the buffers in a bind group.
pub(super) type Bound = SmallVec<[(u64, u64); 12]>;

/// A compiled kernel.
pub(super) struct Kernel {
    pub(super) id: u64,
    pub(super) pipeline: wgpu::ComputePipeline,
    /// The text, where a simulator needs it.
    pub(super) source: Option<Arc<str>>,
    layout: Arc<BindLayout>,
    shape: KernelShape,
}

/// Everything compiled for one device.
#[derive(Default)]
pub(super) struct Kernels {
    compiled: Mutex<HashMap<KernelKey, Arc<Kernel>>>,
    compiling: Mutex<()>,
    layouts: Mutex<HashMap<Vec<Access>, Arc<BindLayout>>>,
    groups: Mutex<BindGroups>,
    tracing: AtomicBool,
    traced: Mutex<HashMap<KernelKey, String>>,
}

struct BindLayout {
    id: u64,
    raw: wgpu::BindGroupLayout,
}

type GroupKey = (u64, Bound);

/// Bind groups in two generations: when the young one is full, it becomes the old one and the old
/// one is dropped, so what is used stays and the number is bounded.
#[derive(Default)]
struct BindGroups {
    young: HashMap<GroupKey, wgpu::BindGroup>,
    old: HashMap<GroupKey, wgpu::BindGroup>,
}

/// Bind groups in one generation.
const GENERATION: usize = 8192;

impl BindGroups {
    fn get(&mut self, key: &GroupKey) -> Option<wgpu::BindGroup> {
        if let Some(group) = self.young.get(key) {
            return Some(group.clone());
        }
        let (key, group) = self.old.remove_entry(key)?;
        self.insert(key, group.clone());
        Some(group)
    }

    fn insert(&mut self, key: GroupKey, group: wgpu::BindGroup) {
        if self.young.len() >= GENERATION {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, group);
    }
}
