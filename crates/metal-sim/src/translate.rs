//! WGSL to MSL, with the options and the numbering of wgpu-hal 30.0.1's Metal backend.

use naga::back::msl;
use naga::proc::{BoundsCheckPolicies, BoundsCheckPolicy};
use naga::valid::{Capabilities, ImmediateSlots, ModuleInfo, ValidationFlags, Validator};

/// The language version wgpu asks of an Apple silicon Mac with macOS 15. Between 2.4 and 4.0 naga
/// writes the same text for compute kernels.
pub const LANGUAGE: (u8, u8) = (3, 2);

/// Argument buffers an Apple GPU has for a kernel.
pub const MAX_BUFFERS: u32 = 31;

/// Bytes of threadgroup memory a threadgroup may have on an M1.
pub const MAX_THREADGROUP_BYTES: u32 = 32 << 10;

/// Threads a threadgroup may have.
pub const MAX_THREADS: u32 = 1024;

/// Threadgroups one dimension of a grid may have in wgpu.
pub const MAX_GROUPS: u32 = 65_535;

/// A kernel in MSL, with what a host must know to launch it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Translated {
    /// The MSL.
    pub text: String,
    /// The name of the kernel function in the text.
    pub entry: String,
    /// Threads of a threadgroup.
    pub workgroup_size: [u32; 3],
    /// The `[[buffer(n)]]` of the parameters, if the kernel has parameters.
    pub params_slot: Option<u32>,
    /// Bytes of parameters.
    pub params_bytes: u32,
    /// The `[[buffer(n)]]` of the sizes of the runtime-sized bindings.
    pub sizes_slot: Option<u32>,
    /// The bindings whose sizes in bytes are passed there, in order.
    pub sized: Vec<u32>,
    /// The storage bindings, in order of their numbers.
    pub bindings: Vec<Binding>,
    /// Bytes of each threadgroup variable, as passed to `setThreadgroupMemoryLength`.
    pub threadgroup: Vec<u32>,
}

/// One `@group(0) @binding(n)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Binding {
    /// The number in WGSL.
    pub binding: u32,
    /// The `[[buffer(n)]]` in MSL.
    pub slot: u32,
    /// Is it declared `read_write`?
    pub writes: bool,
}

impl Translated {
    /// Bytes of threadgroup memory of one threadgroup.
    pub fn threadgroup_bytes(&self) -> u32 {
        self.threadgroup.iter().map(|bytes| bytes.next_multiple_of(16)).sum()
    }

    /// Threads of a threadgroup.
    pub fn threads(&self) -> u32 {
        self.workgroup_size.iter().product()
    }

    /// What of this kernel would not fit an M1, if anything.
    pub fn over_limit(&self) -> Option<String> {
        let buffers = self.bindings.iter().map(|binding| binding.slot + 1).max().unwrap_or(0);
        let buffers = buffers.max(self.sizes_slot.map_or(0, |slot| slot + 1));
        let over = |what: &str, is: u32, limit: u32| {
            (is > limit).then(|| format!("{is} {what}, the limit is {limit}"))
        };
        over("bytes of threadgroup memory", self.threadgroup_bytes(), MAX_THREADGROUP_BYTES)
            .or_else(|| over("threads in a threadgroup", self.threads(), MAX_THREADS))
            .or_else(|| over("buffers", buffers, MAX_BUFFERS))
    }
}

/// Translates a kernel whose entry point is `main`, whose storage bindings are in `@group(0)` and
/// whose parameters are in `var<immediate>`. Checked: as a shader module with all runtime checks
/// and with zeroed workgroup memory; otherwise with none and without. The error is naga's message.
pub fn to_msl(wgsl: &str, checked: bool) -> Result<Translated, String> {
    let (module, info) = parse(wgsl)?;
    let stage = naga::ShaderStage::Compute;
    let resources = resources(&module)?;
    let (module, info) = naga::back::pipeline_constants::process_overrides(
        &module,
        &info,
        Some((stage, ENTRY)),
        &Default::default(),
    )
    .map_err(|error| error.to_string())?;

    let bounds = match checked {
        true => BoundsCheckPolicy::Restrict,
        false => BoundsCheckPolicy::Unchecked,
    };
    let options = msl::Options {
        lang_version: LANGUAGE,
        per_entry_point_map: [(ENTRY.to_owned(), resources.clone())].into(),
        bounds_check_policies: BoundsCheckPolicies {
            index: bounds,
            buffer: bounds,
            image_load: bounds,
            binding_array: BoundsCheckPolicy::Unchecked,
        },
        zero_initialize_workgroup_memory: checked,
        force_loop_bounding: checked,
        mesh_shader_primitive_indices_clamp: checked,
        emit_int_div_checks: checked,
        ray_query_initialization_tracking: checked,
        inline_samplers: Vec::new(),
        spirv_cross_compatibility: false,
        fake_missing_bindings: false,
        task_dispatch_limits: None,
    };
    let pipeline = msl::PipelineOptions {
        entry_point: Some((stage, ENTRY.to_owned())),
        vertex_pulling_transform: true,
        ..Default::default()
    };
    let (text, names) = msl::write_string(&module, &info, &options, &pipeline)
        .map_err(|error| error.to_string())?;
    let entry = match names.entry_point_names.into_iter().next() {
        Some(name) => name.map_err(|error| error.to_string())?,
        None => return Err("naga wrote no entry point".into()),
    };
    describe(&module, &info, &resources, text, entry)
}

const ENTRY: &str = "main";

fn parse(wgsl: &str) -> Result<(naga::Module, ModuleInfo), String> {
    let module = naga::front::wgsl::parse_str(wgsl).map_err(|error| error.emit_to_string(wgsl))?;
    let capabilities = Capabilities::IMMEDIATES
        | Capabilities::SHADER_INT64
        | Capabilities::SHADER_FLOAT16
        | Capabilities::SHADER_FLOAT16_IN_FLOAT32
        | Capabilities::SUBGROUP
        | Capabilities::SUBGROUP_BARRIER
        | Capabilities::COOPERATIVE_MATRIX;
    let info = Validator::new(ValidationFlags::all(), capabilities)
        .validate(&module)
        .map_err(|error| error.emit_to_string(wgsl))?;
    Ok((module, info))
}

/// The slots that wgpu-hal's `create_pipeline_layout` gives: parameters first, then the bindings in
/// order of their numbers, then the sizes.
fn resources(module: &naga::Module) -> Result<msl::EntryPointResources, String> {
    let mut bindings = Vec::new();
    for (_, variable) in module.global_variables.iter() {
        match (variable.space, variable.binding) {
            (naga::AddressSpace::Storage { access }, Some(binding)) if binding.group == 0 => {
                bindings.push((binding, access.contains(naga::StorageAccess::STORE)));
            }
            (_, Some(_)) => return Err("a kernel binds only storage buffers of group 0".into()),
            (_, None) => {}
        }
    }
    bindings.sort_by_key(|(binding, _)| binding.binding);
    let mut next = 0u8;
    let mut take = || {
        next += 1;
        next - 1
    };
    let has_params = ImmediateSlots::size_for_module(module) != 0;
    let mut resources = msl::EntryPointResources {
        immediates_buffer: has_params.then(&mut take),
        ..Default::default()
    };
    for &(binding, mutable) in &bindings {
        let target = msl::BindTarget { buffer: Some(take()), mutable, ..Default::default() };
        resources.resources.insert(binding, target);
    }
    resources.sizes_buffer = (!bindings.is_empty()).then(take);
    Ok(resources)
}

/// What wgpu-hal's `load_shader` collects for the launch.
fn describe(
    module: &naga::Module,
    info: &ModuleInfo,
    resources: &msl::EntryPointResources,
    text: String,
    entry: String,
) -> Result<Translated, String> {
    let index = module.entry_points.iter().position(|point| point.name == ENTRY);
    let index = index.ok_or("the kernel has no entry point `main`")?;
    let uses = info.get_entry_point(index);
    let mut threadgroup = Vec::new();
    let mut sized = Vec::new();
    for (handle, variable) in module.global_variables.iter() {
        let inner = &module.types[variable.ty].inner;
        match (variable.space, variable.binding) {
            (naga::AddressSpace::WorkGroup, _) if !uses[handle].is_empty() => {
                threadgroup.push(inner.size(module.to_ctx()));
            }
            (naga::AddressSpace::Storage { .. }, Some(binding))
                if inner.needs_host_buffer_byte_size(&module.types) =>
            {
                sized.push(binding.binding);
            }
            _ => {}
        }
    }
    let slot = |(binding, target): (&naga::ResourceBinding, &msl::BindTarget)| Binding {
        binding: binding.binding,
        slot: target.buffer.unwrap_or_default().into(),
        writes: target.mutable,
    };
    let mut bindings = resources.resources.iter().map(slot).collect::<Vec<_>>();
    bindings.sort_by_key(|binding| binding.binding);
    Ok(Translated {
        text,
        entry,
        workgroup_size: module.entry_points[index].workgroup_size,
        params_slot: resources.immediates_buffer.map(u32::from),
        params_bytes: ImmediateSlots::size_for_module(module),
        sizes_slot: resources.sizes_buffer.map(u32::from),
        sized,
        bindings,
        threadgroup,
    })
}
