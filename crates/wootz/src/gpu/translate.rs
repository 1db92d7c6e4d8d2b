//! WGSL checked without a device, and turned into SPIR-V with the very options that wgpu's Vulkan
//! backend uses for this crate's devices. Every option is written out, so that a new one in naga does
//! not go unnoticed.

use naga::ShaderStage;
use naga::back::spv;

use super::msl::{ENTRY, bindings, bounds_checks, entry_point, parse};

/// Parse and validate WGSL without a device, allowing every feature that kernels may use.
/// The error is the compiler's message with the place in the text.
pub fn validate_wgsl(source: &str) -> Result<(), String> {
    parse(source).map(|_| ())
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
        binding_map: bindings(&module)?.iter().enumerate().map(number).collect(),
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

#[cfg(test)]
mod tests {
    use super::super::to_msl;
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
        let msl = to_msl(KERNEL, false).unwrap().text;
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
            assert!(to_msl(KERNEL, true).unwrap().text.contains(part), "{part}");
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
