//! Kernels as drivers are given them: WGSL checked without a device, and turned into MSL and SPIR-V
//! with the very options that wgpu's Metal and Vulkan backends use for this crate's devices. Every
//! option is written out, so that a new one in naga does not go unnoticed.

use std::borrow::Cow;

use naga::ShaderStage;
use naga::back::pipeline_constants::process_overrides;
use naga::back::{msl, spv};
use naga::proc::{BoundsCheckPolicies, BoundsCheckPolicy};
use naga::valid::{Capabilities, ImmediateSlots, ModuleInfo, ValidationFlags, Validator};

/// Parse and validate WGSL without a device, allowing every feature that kernels may use.
/// The error is the compiler's message with the place in the text.
pub fn validate_wgsl(source: &str) -> Result<(), String> {
    parse(source).map(|_| ())
}

/// The MSL that Apple's driver is given for a kernel, on a Mac with macOS 15. Others differ in the
/// comment that names the language version. Shipped kernels are not `checked`; see
/// [`GpuOptions::checked`](super::GpuOptions::checked).
pub fn to_msl(source: &str, checked: bool) -> Result<String, String> {
    let (module, info) = parse(source)?;
    let (module, info) = entry_point(&module, &info)?;

    // Slots as wgpu's Metal backend gives them out: parameters, bindings, sizes of the bindings.
    let mut next = 0;
    let mut slot = || {
        next += 1;
        next - 1
    };
    let mut resources = msl::EntryPointResources::default();
    if ImmediateSlots::size_for_module(&module) > 0 {
        resources.immediates_buffer = Some(slot());
    }
    let bindings = bindings(&module);
    for &(binding, mutable) in &bindings {
        let target = msl::BindTarget { buffer: Some(slot()), mutable, ..Default::default() };
        resources.resources.insert(binding, target);
    }
    if !bindings.is_empty() {
        resources.sizes_buffer = Some(slot());
    }

    let options = msl::Options {
        lang_version: (3, 2),
        per_entry_point_map: [(ENTRY.to_string(), resources)].into(),
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
    let text = msl::write_string(&module, &info, &options, &pipeline);
    text.map(|(text, _)| text).map_err(|error| error.to_string())
}

/// The SPIR-V words that a Vulkan 1.3 driver is given for a kernel. What depends on the adapter is
/// as on one with all features that kernels may use and, for `checked`, without robust access of
/// its own.
pub fn to_spirv(source: &str, checked: bool) -> Result<Vec<u32>, String> {
    let (module, info) = parse(source)?;
    let (module, info) = entry_point(&module, &info)?;
    use spv::Capability::*;
    let capabilities = [
        Shader,
        Matrix,
        GroupNonUniform,
        GroupNonUniformVote,
        GroupNonUniformArithmetic,
        GroupNonUniformBallot,
        GroupNonUniformShuffle,
        GroupNonUniformShuffleRelative,
        GroupNonUniformQuad,
        Int64,
        Float16,
        CooperativeMatrixKHR,
        VulkanMemoryModel,
    ];
    let number = |(number, &(binding, _)): (usize, &(naga::ResourceBinding, bool))| {
        let binding_info = spv::BindingInfo {
            descriptor_set: binding.group,
            binding: number as u32,
            binding_array_size: None,
        };
        (binding, binding_info)
    };
    let options = spv::Options {
        lang_version: (1, 6),
        flags: spv::WriterFlags::LABEL_VARYINGS | spv::WriterFlags::FORCE_POINT_SIZE,
        fake_missing_bindings: false,
        binding_map: bindings(&module).iter().enumerate().map(number).collect(),
        capabilities: Some(capabilities.into_iter().collect()),
        bounds_check_policies: bounds_checks(checked),
        zero_initialize_workgroup_memory: match checked {
            true => spv::ZeroInitializeWorkgroupMemoryMode::Native,
            false => spv::ZeroInitializeWorkgroupMemoryMode::None,
        },
        force_loop_bounding: checked,
        ray_query_initialization_tracking: checked,
        trace_ray_argument_validation: true,
        use_storage_input_output_16: true,
        debug_info: None,
        task_dispatch_limits: None,
        mesh_shader_primitive_indices_clamp: checked,
        emit_int_div_checks: checked,
    };
    let pipeline =
        spv::PipelineOptions { shader_stage: ShaderStage::Compute, entry_point: ENTRY.into() };
    spv::write_vec(&module, &info, &options, Some(&pipeline)).map_err(|error| error.to_string())
}

/// A kernel's text as naga understands it.
pub(super) fn parse(source: &str) -> Result<(naga::Module, ModuleInfo), String> {
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
fn entry_point<'a>(module: &'a naga::Module, info: &'a ModuleInfo) -> Result<Prepared<'a>, String> {
    if !module.entry_points.iter().any(|e| e.stage == ShaderStage::Compute && e.name == ENTRY) {
        return Err(format!("there is no compute entry point `{ENTRY}`"));
    }
    let entry = Some((ShaderStage::Compute, ENTRY));
    process_overrides(module, info, entry, &Default::default()).map_err(|error| error.to_string())
}

/// The buffers in the order of their numbers, and whether they can be written.
fn bindings(module: &naga::Module) -> Vec<(naga::ResourceBinding, bool)> {
    let buffer = |variable: &naga::GlobalVariable| match variable.space {
        naga::AddressSpace::Storage { access } => {
            Some((variable.binding?, access.contains(naga::StorageAccess::STORE)))
        }
        _ => None,
    };
    let mut bindings: Vec<_> =
        module.global_variables.iter().filter_map(|(_, variable)| buffer(variable)).collect();
    bindings.sort();
    bindings
}

fn bounds_checks(checked: bool) -> BoundsCheckPolicies {
    let policy = if checked { BoundsCheckPolicy::Restrict } else { BoundsCheckPolicy::Unchecked };
    BoundsCheckPolicies {
        index: policy,
        buffer: policy,
        image_load: policy,
        binding_array: BoundsCheckPolicy::Unchecked,
    }
}

/// Where every kernel starts.
pub(super) const ENTRY: &str = "main";

#[cfg(test)]
mod tests {
    use super::*;

    const KERNEL: &str = "
        struct Params { n: u32, d: u32 }
        var<immediate> p: Params;
        var<workgroup> w: array<u32, 64>;
        @group(0) @binding(1) var<storage, read_write> y: array<u32>;
        @group(0) @binding(0) var<storage, read> x: array<u32>;
        @compute @workgroup_size(64)
        fn main(@builtin(global_invocation_id) id: vec3u, @builtin(local_invocation_index) i: u32) {
            for (var k = 0u; k < p.n; k++) { w[i] += x[k]; }
            workgroupBarrier();
            y[id.x] = w[63u - i] / p.d;
        }";

    #[test]
    fn msl_has_metals_slots_and_no_checks_as_shipped() {
        let msl = to_msl(KERNEL, false).unwrap();
        assert!(msl.starts_with("// language: metal3.2\n"), "{msl}");
        for part in [
            "p [[buffer(0)]]",
            "x [[buffer(1)]]",
            "y [[buffer(2)]]",
            "_buffer_sizes [[buffer(3)]]",
            "kernel void main_(",
        ] {
            assert!(msl.contains(part), "{part}: {msl}");
        }
        for part in ["loop_bound", "min(unsigned", "naga_div"] {
            assert!(!msl.contains(part), "{part}: {msl}");
            assert!(to_msl(KERNEL, true).unwrap().contains(part), "{part}");
        }
    }

    #[test]
    fn spirv_is_a_module_of_version_1_6() {
        let [unchecked, checked] = [false, true].map(|checked| to_spirv(KERNEL, checked).unwrap());
        assert_eq!(unchecked[..2], [0x0723_0203, 0x0001_0600]);
        assert!(unchecked.len() < checked.len());
    }

    #[test]
    fn what_cannot_be_translated_is_an_error() {
        let other = "@compute @workgroup_size(1) fn start() {}";
        for result in [to_msl(other, false).map(drop), to_spirv(other, false).map(drop)] {
            assert!(result.unwrap_err().contains("`main`"));
        }
        assert!(to_msl("fn", false).unwrap_err().contains("expected identifier"));
    }
}
