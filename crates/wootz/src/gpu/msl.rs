//! Kernels as Metal is given them: the text, and what a host must know to launch it, with the very
//! options and numbering of wgpu's Metal backend (wgpu-hal 30.0.1) for this crate's devices. Every
//! option is written out, so that a new one in naga does not go unnoticed.
//!
//! `metal-sim` compiles this file, too: what is simulated is what is shipped. So it uses nothing of
//! this crate but `apple7`.

use std::borrow::Cow;

use naga::ShaderStage;
use naga::back::msl;
use naga::back::pipeline_constants::process_overrides;
use naga::proc::{BoundsCheckPolicies, BoundsCheckPolicy};
use naga::valid::{Capabilities, ImmediateSlots, ModuleInfo, ValidationFlags, Validator};

use super::apple7::LaunchSize;

/// A kernel in MSL.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Msl {
    /// The text.
    pub text: String,
    /// The name of the kernel function in the text.
    pub entry: String,
    /// How it is launched.
    pub launch: MslLaunch,
}

/// What a host must know to launch a kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct MslLaunch {
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
    pub bindings: Vec<MslBinding>,
    /// Bytes of each threadgroup variable, as passed to `setThreadgroupMemoryLength`.
    pub threadgroup: Vec<u32>,
}

/// One `@group(0) @binding(n)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MslBinding {
    /// The number in WGSL.
    pub binding: u32,
    /// The `[[buffer(n)]]` in MSL.
    pub slot: u32,
    /// Is it declared `read_write`?
    pub writes: bool,
}

impl MslLaunch {
    /// Bytes of threadgroup memory of one threadgroup.
    pub fn threadgroup_bytes(&self) -> u32 {
        let rounded = self.threadgroup.iter().map(|bytes| bytes.next_multiple_of(16));
        rounded.fold(0, u32::saturating_add)
    }

    /// Threads of a threadgroup.
    pub fn threads(&self) -> u32 {
        self.workgroup_size.iter().fold(1, |product, length| product.saturating_mul(*length))
    }

    /// How large a launch of so many threadgroups is.
    pub fn size(&self, groups: [u32; 3]) -> LaunchSize {
        let slots = self.bindings.iter().map(|binding| binding.slot);
        let slots = slots.chain(self.params_slot).chain(self.sizes_slot);
        LaunchSize {
            threadgroup_bytes: self.threadgroup_bytes().into(),
            threads: self.threads().into(),
            buffers: slots.max().map_or(0, |slot| u64::from(slot) + 1),
            groups: groups.into_iter().max().unwrap_or_default().into(),
            param_bytes: self.params_bytes.into(),
        }
    }
}

/// The MSL that Apple's driver is given for a kernel whose entry point is `main`, on a Mac with macOS
/// 15. Others differ in the comment that names the language version. `checked`: with all runtime
/// checks and zeroed threadgroup memory; shipped kernels have neither.
pub fn to_msl(source: &str, checked: bool) -> Result<Msl, String> {
    let (module, info) = parse(source)?;
    let (module, info) = entry_point(&module, &info)?;
    let launch = describe(&module, &info)?;
    let options = msl::Options {
        lang_version: (3, 2),
        per_entry_point_map: [(ENTRY.to_string(), resources(&launch))].into(),
        inline_samplers: Vec::new(),
        spirv_cross_compatibility: false,
        fake_missing_bindings: false,
        bounds_check_policies: bounds_checks(checked),
        zero_initialize_workgroup_memory: checked,
        force_loop_bounding: checked,
        task_dispatch_limits: None,
        mesh_shader_primitive_indices_clamp: checked,
        emit_int_div_checks: checked,
        ray_query_initialization_tracking: checked,
    };
    let pipeline = msl::PipelineOptions {
        entry_point: Some((ShaderStage::Compute, ENTRY.into())),
        allow_and_force_point_size: false,
        vertex_pulling_transform: true,
        vertex_buffer_mappings: Vec::new(),
        binding_array_length_map: Default::default(),
    };
    let (text, names) = msl::write_string(&module, &info, &options, &pipeline)
        .map_err(|error| error.to_string())?;
    match names.entry_point_names.into_iter().next() {
        Some(Ok(entry)) => Ok(Msl { text, entry, launch }),
        Some(Err(error)) => Err(error.to_string()),
        None => Err("naga wrote no entry point".into()),
    }
}

/// How a kernel is launched: slots as wgpu's Metal backend gives them out (parameters, bindings in
/// order of their numbers, sizes of the bindings), and what it collects beside the text.
pub(crate) fn describe(module: &naga::Module, info: &ModuleInfo) -> Result<MslLaunch, String> {
    let index = module.entry_points.iter().position(|point| point.name == ENTRY);
    let index = index.ok_or_else(no_entry)?;
    let uses = info.get_entry_point(index);
    let mut slots = 0..;
    let params_bytes = ImmediateSlots::size_for_module(module);
    let mut launch = MslLaunch {
        workgroup_size: module.entry_points[index].workgroup_size,
        params_slot: if params_bytes > 0 { slots.next() } else { None },
        params_bytes,
        ..MslLaunch::default()
    };
    for ((binding, writes), slot) in bindings(module)?.into_iter().zip(&mut slots) {
        launch.bindings.push(MslBinding { binding: binding.binding, slot, writes });
    }
    if !launch.bindings.is_empty() {
        launch.sizes_slot = slots.next();
    }
    for (handle, variable) in module.global_variables.iter() {
        let inner = &module.types[variable.ty].inner;
        match (variable.space, variable.binding) {
            (naga::AddressSpace::WorkGroup, _) if !uses[handle].is_empty() => {
                launch.threadgroup.push(inner.try_size(module.to_ctx()).unwrap_or(u32::MAX));
            }
            (naga::AddressSpace::Storage { .. }, Some(binding))
                if inner.needs_host_buffer_byte_size(&module.types) =>
            {
                launch.sized.push(binding.binding);
            }
            _ => {}
        }
    }
    Ok(launch)
}

/// The slots as naga wants to know them.
fn resources(launch: &MslLaunch) -> msl::EntryPointResources {
    let slot = |slot: u32| u8::try_from(slot).unwrap_or(u8::MAX);
    let target = |binding: &MslBinding| {
        let place = naga::ResourceBinding { group: 0, binding: binding.binding };
        let target = msl::BindTarget {
            buffer: Some(slot(binding.slot)),
            mutable: binding.writes,
            ..Default::default()
        };
        (place, target)
    };
    msl::EntryPointResources {
        resources: launch.bindings.iter().map(target).collect(),
        immediates_buffer: launch.params_slot.map(slot),
        sizes_buffer: launch.sizes_slot.map(slot),
    }
}

/// A kernel's text as naga understands it.
pub(crate) fn parse(source: &str) -> Result<(naga::Module, ModuleInfo), String> {
    let module =
        naga::front::wgsl::parse_str(source).map_err(|error| error.emit_to_string(source))?;
    let capabilities = Capabilities::IMMEDIATES
        | Capabilities::SHADER_INT64
        | Capabilities::SHADER_FLOAT16
        | Capabilities::SHADER_FLOAT16_IN_FLOAT32
        | Capabilities::SUBGROUP
        | Capabilities::SUBGROUP_BARRIER
        | Capabilities::COOPERATIVE_MATRIX;
    let info = Validator::new(ValidationFlags::all(), capabilities)
        .validate(&module)
        .map_err(|error| error.emit_to_string(source))?;
    Ok((module, info))
}

type Prepared<'a> = (Cow<'a, naga::Module>, Cow<'a, ModuleInfo>);

/// What backends do before they translate.
pub(crate) fn entry_point<'a>(
    module: &'a naga::Module,
    info: &'a ModuleInfo,
) -> Result<Prepared<'a>, String> {
    if !module.entry_points.iter().any(|e| e.stage == ShaderStage::Compute && e.name == ENTRY) {
        return Err(no_entry());
    }
    let entry = Some((ShaderStage::Compute, ENTRY));
    process_overrides(module, info, entry, &Default::default()).map_err(|error| error.to_string())
}

/// The buffers in the order of their numbers, and whether they can be written.
pub(crate) fn bindings(
    module: &naga::Module,
) -> Result<Vec<(naga::ResourceBinding, bool)>, String> {
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
    bindings.sort();
    Ok(bindings)
}

/// What is checked at run time.
pub(crate) fn bounds_checks(checked: bool) -> BoundsCheckPolicies {
    let policy = if checked { BoundsCheckPolicy::Restrict } else { BoundsCheckPolicy::Unchecked };
    BoundsCheckPolicies {
        index: policy,
        buffer: policy,
        image_load: policy,
        binding_array: BoundsCheckPolicy::Unchecked,
    }
}

fn no_entry() -> String {
    format!("there is no compute entry point `{ENTRY}`")
}

/// Where every kernel starts.
pub(crate) const ENTRY: &str = "main";
