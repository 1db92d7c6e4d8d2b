//! Moving elements without knowing what they mean: one kernel per element width on both devices,
//! and the pieces that kernels with a variable number of axes are put together from.

use crate::array::{Layout, Shape, Strides, collapse};
use crate::cpu::{CpuCall, threads};
use crate::error::Result;
#[cfg(feature = "gpu")]
use crate::gpu::{Bind, GpuCall, Kernel, grid, packed};

/// Axes that a kernel walks: merged where one stride serves, with the strides into one array.
#[derive(Clone, Debug)]
pub(super) struct Walk {
    pub(super) shape: Shape,
    pub(super) strides: Strides,
    size: usize,
}

impl Walk {
    pub(super) fn new(shape: Shape, strides: Strides) -> Walk {
        let size = shape.iter().product();
        let layout = Layout { shape, strides, offset: 0 };
        let (shape, mut strides) = collapse(&[&layout]);
        Walk { shape, strides: strides.remove(0), size }
    }

    /// Axes that are merged already.
    #[cfg(feature = "gpu")]
    pub(super) fn merged(shape: Shape, strides: Strides) -> Walk {
        let size = shape.iter().product();
        Walk { shape, strides, size }
    }

    /// The number of places.
    pub(super) fn len(&self) -> usize {
        self.size
    }

    /// Whether the places follow each other.
    pub(super) fn is_run(&self) -> bool {
        matches!(&self.strides[..], [] | [1])
    }

    /// Where the `n`-th place in row-major order is.
    #[inline]
    pub(super) fn place(&self, n: usize) -> isize {
        let mut rest = n;
        let mut place = 0;
        for (&length, &stride) in self.shape.iter().zip(&self.strides).skip(1).rev() {
            place += (rest % length) as isize * stride;
            rest /= length;
        }
        place + self.strides.first().map_or(0, |&stride| rest as isize * stride)
    }
}

/// Copies a row-major input into an output, unless they share memory.
pub(in crate::ops) fn copy_on_cpu(
    call: &mut CpuCall<'_>,
    input: usize,
    output: usize,
) -> Result<()> {
    const CHUNK: usize = 1 << 18;
    if call.aliased(input) {
        return Ok(());
    }
    let meta = call.meta(input);
    let source = call.strided::<u8>(input)?.data;
    let start = meta.layout.offset * meta.dtype.size();
    threads::chunks_mut(call.output::<u8>(output)?, CHUNK, |chunk, target| {
        let from = start + chunk * CHUNK;
        target.copy_from_slice(&source[from..from + target.len()]);
    });
    Ok(())
}

/// Threads of a workgroup in every kernel of this folder.
#[cfg(feature = "gpu")]
pub(super) const WORKGROUP: usize = 64;

/// Opens `main`, with the thread's number in `id`.
#[cfg(feature = "gpu")]
pub(in crate::ops) const MAIN: &str = "@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(num_workgroups) groups: vec3u,
    @builtin(local_invocation_index) lid: u32) {
    let id = (wid.x + wid.y * groups.x) * 64u + lid;
";

/// Workgroups for this many threads.
#[cfg(feature = "gpu")]
pub(in crate::ops) fn threads_grid(threads: usize) -> [u32; 3] {
    grid(threads.div_ceil(WORKGROUP))
}

/// Copies a row-major input into an output, unless they share memory. A guarded copy does nothing
/// once an error was reported.
#[cfg(feature = "gpu")]
pub(in crate::ops) fn copy_on_gpu(
    call: &mut GpuCall<'_>,
    input: usize,
    output: usize,
    guarded: bool,
) -> Result<()> {
    if call.aliased(input) {
        return Ok(());
    }
    let meta = call.meta(input);
    let size = meta.dtype.size();
    let mut words = Words::default();
    words.push("n", meta.size());
    words.push("x_offset", meta.layout.offset);
    let source = || {
        let guard = if guarded { status(2) } else { String::new() };
        format!(
            "{}{}{}{}{guard}{}",
            packed::PACKING,
            words.text(),
            reader("x", 0, size),
            word_output("out", 1, size),
            each_word(size, guarded, "x(p.x_offset + i)"),
        )
    };
    let kernel = Kernel {
        variant: format!("copy {size} {guarded}"),
        source: &source,
        bindings: &[Bind::Input(input), Bind::Output(output)],
        params: &words.words,
        groups: threads_grid(meta.size().div_ceil((4 / size).max(1))),
    };
    if guarded { call.launch_with_status(&kernel) } else { call.launch(&kernel) }
}

/// A `main` whose threads own whole words of `out` and fill them with `value`, an expression of
/// the element number `i`. A guarded one writes nothing once an error was reported.
#[cfg(feature = "gpu")]
pub(in crate::ops) fn each_word(size: usize, guarded: bool, value: &str) -> String {
    let guard = if guarded { "if (failed()) { return; }" } else { "" };
    let per_word = (4 / size).max(1);
    let body = if per_word == 1 {
        format!("let i = id; if (i >= p.n) {{ return; }}\nout_data[i] = {value};\n")
    } else {
        let bits = 8 * size;
        format!(
            "if (id * {per_word}u >= p.n) {{ return; }}\n\
             var bits = 0u;\n\
             for (var lane = 0u; lane < {per_word}u; lane += 1u) {{\n\
             let i = id * {per_word}u + lane;\n\
             if (i < p.n) {{ bits |= ({value}) << (lane * {bits}u); }}\n\
             }}\n\
             out_data[id] = bits;\n"
        )
    };
    format!("{MAIN}{guard}\n{body}}}\n")
}

/// The status words, bound at `binding`, with `report(site, index)` and `failed()`.
#[cfg(feature = "gpu")]
pub(in crate::ops) fn status(binding: usize) -> String {
    format!(
        "@group(0) @binding({binding}) var<storage, read_write> status: array<atomic<u32>, 4>;\n\
         fn report(site: u32, index: u32) {{\n\
         if (atomicMin(&status[0], site) > site) {{ atomicStore(&status[1], index); }}\n\
         }}\n\
         fn failed() -> bool {{ return atomicLoad(&status[0]) != 0xffffffffu; }}\n"
    )
}

/// Declares a buffer of elements of `size` bytes to read, and `name(i)` that gives their bits.
#[cfg(feature = "gpu")]
pub(super) fn reader(name: &str, binding: usize, size: usize) -> String {
    match unsigned(size) {
        Some(dtype) => packed::reader(name, binding, dtype),
        None => format!(
            "@group(0) @binding({binding}) var<storage, read> {name}_data: array<vec2u>;\n\
             fn {name}(i: u32) -> vec2u {{ return {name}_data[i]; }}\n"
        ),
    }
}

/// Declares an output of elements of `size` bytes and `name_set(i, bits)`, which any thread may
/// call for any element.
#[cfg(feature = "gpu")]
pub(super) fn writer(name: &str, binding: usize, size: usize) -> String {
    match unsigned(size) {
        Some(dtype) => packed::writer(name, binding, dtype),
        None => format!(
            "@group(0) @binding({binding}) var<storage, read_write> {name}_data: array<vec2u>;\n\
             fn {name}_set(i: u32, bits: vec2u) {{ {name}_data[i] = bits; }}\n"
        ),
    }
}

/// Declares an output that is written in whole words, or pairs of them.
#[cfg(feature = "gpu")]
pub(in crate::ops) fn word_output(name: &str, binding: usize, size: usize) -> String {
    let word = if size == 8 { "vec2u" } else { "u32" };
    format!("@group(0) @binding({binding}) var<storage, read_write> {name}_data: array<{word}>;\n")
}

/// The unsigned dtype of a width; 64-bit elements move as pairs of words.
#[cfg(feature = "gpu")]
fn unsigned(size: usize) -> Option<crate::array::DType> {
    use crate::array::DType;
    match size {
        1 => Some(DType::U8),
        2 => Some(DType::U16),
        4 => Some(DType::U32),
        _ => None,
    }
}

/// The parameter words of a kernel, and the text that names them.
#[cfg(feature = "gpu")]
#[derive(Default)]
pub(super) struct Words {
    pub(super) words: Vec<u32>,
    names: Vec<(&'static str, Option<usize>)>,
}

#[cfg(feature = "gpu")]
impl Words {
    /// A number, in WGSL `p.name`.
    pub(super) fn push(&mut self, name: &'static str, value: usize) {
        self.words.push(value as u32);
        self.names.push((name, None));
    }

    /// A walk, in WGSL the function `name(n)` that tells the place of the `n`-th element. Strides
    /// may be negative: unsigned arithmetic wraps to the same place.
    pub(super) fn walk(&mut self, name: &'static str, walk: &Walk) {
        self.words.extend(walk.shape.iter().map(|&length| length as u32));
        self.words.extend(walk.strides.iter().map(|&stride| stride as u32));
        self.names.push((name, Some(walk.shape.len())));
    }

    /// The ranks of the walks, which the text depends on.
    pub(super) fn key(&self) -> String {
        let ranks = self.names.iter().filter_map(|(_, rank)| *rank);
        ranks.map(|rank| format!(" {rank}")).collect()
    }

    /// The declaration of `p` and the functions of the walks.
    pub(super) fn text(&self) -> String {
        let mut fields = String::new();
        let mut functions = String::new();
        for (name, rank) in &self.names {
            let Some(rank) = rank else {
                fields += &format!("{name}: u32,\n");
                continue;
            };
            (0..*rank).for_each(|axis| fields += &format!("{name}_l{axis}: u32,\n"));
            (0..*rank).for_each(|axis| fields += &format!("{name}_s{axis}: u32,\n"));
            functions += &format!("fn {name}(n: u32) -> u32 {{ var rest = n; var place = 0u;\n");
            for axis in (1..*rank).rev() {
                functions += &format!(
                    "place += (rest % p.{name}_l{axis}) * p.{name}_s{axis};\n\
                     rest = rest / p.{name}_l{axis};\n"
                );
            }
            let outermost =
                if *rank > 0 { format!("place + rest * p.{name}_s0") } else { "place".into() };
            functions += &format!("return {outermost}; }}\n");
        }
        format!("struct Params {{\n{fields}}}\nvar<immediate> p: Params;\n{functions}")
    }
}
