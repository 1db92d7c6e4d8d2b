//! What a launch costs, told from the kernel's text, its grid and its buffers, without running it:
//! threads, memory, barriers and bytes; and whether an Apple GPU would take it.

use std::collections::HashMap;

use naga::valid::GlobalUse;
use naga::{Block, Function, Handle, Statement};

use super::apple7::{APPLE7, LaunchSize};
use super::kernel::Access;
use super::msl::{ENTRY, describe, parse};
use super::simulated::Collected;

/// A kernel's launch in figures.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelCost {
    /// The kernel's name, for messages.
    pub name: String,
    /// Threads of a workgroup in each dimension.
    pub workgroup_size: [u32; 3],
    /// Workgroups in each dimension.
    pub groups: [u32; 3],
    /// Memory of a workgroup, where Metal rounds each variable up to 16 bytes.
    pub workgroup_bytes: u64,
    /// Barriers that a thread passes if every loop runs once and every branch is taken.
    pub barriers: usize,
    /// Those of them that are in a loop.
    pub barriers_in_loops: usize,
    /// Bytes of parameters.
    pub param_bytes: u32,
    /// The buffers, in the order of their numbers.
    pub bindings: Vec<BindingCost>,
}

/// One buffer of a launch.
#[derive(Clone, Debug, PartialEq)]
pub struct BindingCost {
    /// The variable's name.
    pub name: String,
    /// The `@binding` number.
    pub binding: u32,
    /// How it is declared.
    pub access: Access,
    /// Whether the text reads it, atomically or not.
    pub read: bool,
    /// Whether the text writes it, atomically or not.
    pub written: bool,
    /// Whether its elements are atomic.
    pub atomic: bool,
    /// Bytes of an element as the kernel loads it: packed types come in words of four.
    pub element_bytes: u32,
    /// Bytes that the kernel sees. If it reads or writes the buffer these are taken to be read or
    /// written once: an upper bound for kernels that leave some out.
    pub bytes: u64,
}

impl KernelCost {
    /// The figures of a kernel's text, for a launch of one workgroup on buffers of one element.
    pub fn of(name: impl Into<String>, source: &str) -> Result<KernelCost, String> {
        let (module, info) = parse(source)?;
        let launch = describe(&module, &info)?;
        let position = module.entry_points.iter().position(|entry| entry.name == ENTRY);
        let position = position.ok_or_else(|| format!("there is no entry point `{ENTRY}`"))?;
        let entry = &module.entry_points[position];
        let uses = info.get_entry_point(position);
        let size = |ty: Handle<naga::Type>| module.types[ty].inner.try_size(module.to_ctx());

        let mut bindings = Vec::new();
        for (handle, variable) in module.global_variables.iter() {
            let used = uses[handle];
            if let naga::AddressSpace::Storage { access } = variable.space {
                let (element, element_bytes) = match module.types[variable.ty].inner {
                    naga::TypeInner::Array { base, stride, .. } => (base, stride),
                    _ => (variable.ty, size(variable.ty).unwrap_or(u32::MAX)),
                };
                let store = access.contains(naga::StorageAccess::STORE);
                bindings.push(BindingCost {
                    name: variable.name.clone().unwrap_or_default(),
                    binding: variable.binding.map_or(u32::MAX, |binding| binding.binding),
                    access: if store { Access::ReadWrite } else { Access::Read },
                    read: used.contains(GlobalUse::READ),
                    written: used.contains(GlobalUse::WRITE),
                    atomic: matches!(module.types[element].inner, naga::TypeInner::Atomic(_)),
                    element_bytes,
                    bytes: element_bytes.into(),
                });
            }
        }
        bindings.sort_by_key(|binding| binding.binding);
        let mut barriers = Barriers { module: &module, known: HashMap::new() };
        let (all, in_loops) = barriers.of_block(&entry.function.body, false);
        Ok(KernelCost {
            name: name.into(),
            workgroup_size: launch.workgroup_size,
            groups: [1; 3],
            workgroup_bytes: launch.threadgroup_bytes().into(),
            barriers: all,
            barriers_in_loops: in_loops,
            param_bytes: launch.params_bytes,
            bindings,
        })
    }

    /// The figures of a launch of so many workgroups on buffers of these sizes.
    pub fn launched(mut self, groups: [u32; 3], binding_bytes: &[u64]) -> KernelCost {
        self.groups = groups;
        for (binding, &bytes) in self.bindings.iter_mut().zip(binding_bytes) {
            binding.bytes = bytes;
        }
        self
    }

    /// Threads of a workgroup.
    pub fn threads_per_group(&self) -> u64 {
        product(self.workgroup_size)
    }

    /// Workgroups of the launch.
    pub fn group_count(&self) -> u64 {
        product(self.groups)
    }

    /// Threads of the launch.
    pub fn threads(&self) -> u64 {
        self.threads_per_group().saturating_mul(self.group_count())
    }

    /// Buffers that Metal binds: one for parameters, one for the sizes of the others.
    pub fn buffers(&self) -> usize {
        let parameters = usize::from(self.param_bytes > 0);
        self.bindings.len() + parameters + usize::from(!self.bindings.is_empty())
    }

    /// Bytes that the launch reads, each once.
    pub fn bytes_read(&self) -> u64 {
        self.bindings.iter().map(BindingCost::bytes_read).sum()
    }

    /// Bytes that the launch writes, each once.
    pub fn bytes_written(&self) -> u64 {
        self.bindings.iter().map(BindingCost::bytes_written).sum()
    }
}

impl BindingCost {
    /// Bytes that the launch reads, each once.
    pub fn bytes_read(&self) -> u64 {
        if self.read { self.bytes } else { 0 }
    }

    /// Bytes that the launch writes, each once.
    pub fn bytes_written(&self) -> u64 {
        if self.written { self.bytes } else { 0 }
    }
}

impl Collected {
    /// What the launch costs.
    pub fn cost(&self) -> Result<KernelCost, String> {
        let cost = KernelCost::of(self.launch.key.to_string(), &self.launch.source)?;
        Ok(cost.launched(self.launch.groups, &self.binding_bytes))
    }
}

/// Whether the GPU of an M1 takes a launch. The error names the kernel and every figure that is too
/// large.
pub fn fits_apple7(cost: &KernelCost) -> Result<(), String> {
    let size = LaunchSize {
        threadgroup_bytes: cost.workgroup_bytes,
        threads: cost.threads_per_group(),
        buffers: cost.buffers() as u64,
        groups: cost.groups.into_iter().max().unwrap_or_default().into(),
        param_bytes: cost.param_bytes.into(),
    };
    let name = &cost.name;
    size.within(&APPLE7).map_err(|text| format!("{name} does not fit an Apple M1: {text}"))
}

/// The one limit that wgpu leaves to the driver, checked before the text is: what kernels declare
/// and do not use counts, too.
pub(super) fn workgroup_memory_fits_apple7(module: &naga::Module) -> Result<(), String> {
    let variables = module.global_variables.iter().map(|(_, variable)| variable);
    let bytes = variables.filter(|variable| variable.space == naga::AddressSpace::WorkGroup).map(
        |variable| {
            let size = module.types[variable.ty].inner.try_size(module.to_ctx());
            u64::from(size.unwrap_or(u32::MAX)).next_multiple_of(16)
        },
    );
    LaunchSize { threadgroup_bytes: bytes.sum(), ..LaunchSize::default() }.within(&APPLE7)
}

fn product(dimensions: [u32; 3]) -> u64 {
    dimensions.into_iter().fold(1, |product, length| product.saturating_mul(length.into()))
}

/// Counts barriers: all, and those in loops.
struct Barriers<'a> {
    module: &'a naga::Module,
    known: HashMap<Handle<Function>, (usize, usize)>,
}

impl Barriers<'_> {
    fn of_block(&mut self, block: &Block, in_loop: bool) -> (usize, usize) {
        let mut sum = (0, 0);
        let mut add = |(all, looped): (usize, usize)| {
            sum.0 += all;
            sum.1 += if in_loop { all } else { looped };
        };
        for statement in block {
            match statement {
                Statement::ControlBarrier(_) | Statement::MemoryBarrier(_) => add((1, 0)),
                // A load between two barriers.
                Statement::WorkGroupUniformLoad { .. } => add((2, 0)),
                Statement::Block(block) => add(self.of_block(block, in_loop)),
                Statement::If { accept, reject, .. } => {
                    add(self.of_block(accept, in_loop));
                    add(self.of_block(reject, in_loop));
                }
                Statement::Switch { cases, .. } => {
                    cases.iter().for_each(|case| add(self.of_block(&case.body, in_loop)));
                }
                Statement::Loop { body, continuing, .. } => {
                    add(self.of_block(body, true));
                    add(self.of_block(continuing, true));
                }
                Statement::Call { function, .. } => add(self.of_function(*function)),
                _ => {}
            }
        }
        sum
    }

    /// Functions do not call themselves, so this ends.
    fn of_function(&mut self, function: Handle<Function>) -> (usize, usize) {
        if let Some(known) = self.known.get(&function) {
            return *known;
        }
        let module = self.module;
        let count = self.of_block(&module.functions[function].body, false);
        self.known.insert(function, count);
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KERNEL: &str = "
        struct Params { n: u32, m: u32, k: u32 }
        var<immediate> p: Params;
        var<workgroup> w: array<f32, 65>;
        var<workgroup> flag: u32;
        var<workgroup> unused: array<f32, 10000>;
        @group(0) @binding(0) var<storage, read> x: array<vec4f>;
        @group(0) @binding(2) var<storage, read_write> status: array<atomic<u32>, 4>;
        @group(0) @binding(1) var<storage, read_write> y: array<u32>;
        fn sync() { workgroupBarrier(); }
        @compute @workgroup_size(8, 4)
        fn main(@builtin(local_invocation_index) i: u32) {
            w[i] = x[i].x;
            flag = i;
            sync();
            for (var k = 0u; k < p.n; k++) { sync(); storageBarrier(); w[i] += w[i + 1]; }
            if (workgroupUniformLoad(&flag) == 3u) { atomicMin(&status[0], p.m); }
            y[i] = bitcast<u32>(w[i]) + p.k;
        }";

    #[test]
    fn figures_come_from_the_text_and_the_launch() {
        let cost = KernelCost::of("test/kernel", KERNEL).unwrap();
        let cost = cost.launched([10, 3, 1], &[4096, 1024, 16]);
        assert_eq!((cost.threads_per_group(), cost.group_count(), cost.threads()), (32, 30, 960));
        assert_eq!((cost.workgroup_bytes, cost.param_bytes, cost.buffers()), (272 + 16, 12, 5));
        assert_eq!((cost.barriers, cost.barriers_in_loops), (5, 2));
        let [x, y, status] = &cost.bindings[..] else { panic!("{cost:?}") };
        assert_eq!((x.name.as_str(), x.access, x.element_bytes), ("x", Access::Read, 16));
        assert_eq!((x.read, x.written, x.atomic), (true, false, false));
        assert_eq!((y.access, y.element_bytes), (Access::ReadWrite, 4));
        assert_eq!((y.read, y.written, y.atomic), (false, true, false));
        assert_eq!((status.binding, status.atomic, status.element_bytes), (2, true, 4));
        assert_eq!((cost.bytes_read(), cost.bytes_written()), (4096 + 16, 1024 + 16));
        assert_eq!((x.bytes_read(), x.bytes_written()), (4096, 0));
        fits_apple7(&cost).unwrap();
        assert!(KernelCost::of("test/none", "fn").is_err());
    }

    #[test]
    fn kernels_that_do_not_fit_an_m1_are_named_with_the_figures() {
        let kernel = |threads: u32, words: u32, buffers: u32| {
            let declare =
                |i| format!("@group(0) @binding({i}) var<storage, read_write> b{i}: array<u32>;\n");
            let bindings: String = (0..buffers).map(declare).collect();
            format!(
                "var<immediate> n: u32; var<workgroup> w: array<u32, {words}>; {bindings}
                 @compute @workgroup_size({threads})
                 fn main(@builtin(local_invocation_index) i: u32) {{ w[i] = n; b0[i] = w[i]; }}"
            )
        };
        let check = |text: &str, groups: [u32; 3]| {
            fits_apple7(&KernelCost::of("op/variant", text).unwrap().launched(groups, &[]))
        };
        check(&kernel(1024, 8192, 29), [65_535, 65_535, 1]).unwrap();
        let refused = [
            (kernel(1024, 8193, 1), [1; 3], "32784 bytes of threadgroup memory, not 32768"),
            (kernel(1025, 8, 1), [1; 3], "1025 threads in a threadgroup, not 1024"),
            (kernel(64, 8, 30), [1; 3], "32 buffers, not 31"),
            (kernel(64, 8, 1), [1, 65_536, 1], "65536 threadgroups in a dimension, not 65535"),
        ];
        for (text, groups, part) in refused {
            let message = check(&text, groups).unwrap_err();
            assert_eq!(message, format!("op/variant does not fit an Apple M1: {part}"));
        }
        let message = check(&kernel(2048, 20_000, 1), [1; 3]).unwrap_err();
        assert!(message.contains("; "), "{message}");
    }
}
