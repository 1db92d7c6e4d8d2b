//! The gated delta rule on the GPU: a workgroup has a block of the state's rows, and walks through
//! the steps, or through chunks of them where there are many. Then the gradients that do not carry a
//! state are those of each chunk by itself.

use super::{CHUNK, Sizes};
use crate::array::{DType, Meta};
use crate::error::Result;
use crate::gpu::{Bind, GpuCall, Kernel, grid, packed};

/// Threads of a workgroup.
const THREADS: usize = 256;
/// Rows of a block in the forward kernel.
const ROWS: usize = 16;
/// Numbers of the state's gradient that a workgroup holds.
const HELD: usize = 2048;

fn sizes(call: &GpuCall<'_>) -> Sizes {
    Sizes::new(&call.input_metas().collect::<Vec<_>>())
}

/// How a workgroup's threads share the rows of a block.
fn constants(sizes: Sizes, corrects: bool, rows: usize) -> String {
    let lanes = THREADS / rows;
    let Sizes { keys, gates, .. } = sizes;
    let gate = if gates == keys { "key" } else { "0u" };
    format!(
        "const ROWS = {rows}u;\nconst LANES = {lanes}u;\nconst EACH = {}u;\nconst KEYS = {keys}u;\n\
         const GATES = {gates}u;\nconst CORRECTS = {corrects};\nfn gate_of(key: u32) -> u32 {{ return {gate}; }}\n",
        keys.div_ceil(lanes)
    )
}

/// The kernels for chunks, but for what they read and write.
const CHUNKED: &str =
    concat!(include_str!("chunk.wgsl"), include_str!("block.wgsl"), include_str!("chunked.wgsl"));
const SLOPES: &str =
    concat!(include_str!("chunk.wgsl"), include_str!("block.wgsl"), include_str!("slopes.wgsl"));
const CHUNK_GRADIENTS: &str =
    concat!(include_str!("chunk.wgsl"), include_str!("chunk_gradients.wgsl"));

/// Steps of a chunk.
const STEPS: usize = 32;
/// Steps from which on chunks pay.
const LEAST_STEPS: usize = 16;
/// Keys of the largest state that is taken through chunks.
const MOST_KEYS: usize = 512;
/// Numbers kept for chunks at a time, if that is enough for one head.
const KEPT: usize = 1 << 23;

/// Whether steps go by chunks: with one gate each, and enough of them.
fn by_chunks(sizes: Sizes) -> bool {
    let Sizes { steps, keys, gates, .. } = sizes;
    gates == 1 && steps >= LEAST_STEPS && keys <= MOST_KEYS
}

/// Values that a workgroup takes through chunks.
fn columns(keys: usize) -> usize {
    let most = (HELD / keys.max(1)).clamp(1, ROWS);
    1 << most.ilog2()
}

/// What the kernels for chunks are made for.
fn chunk_constants(sizes: Sizes, corrects: bool) -> String {
    let (keys, columns) = (sizes.keys, columns(sizes.keys));
    format!(
        "const STEPS = {STEPS}u;\nconst KEYS = {keys}u;\nconst COLS = {columns}u;\n\
         const CORRECTS = {corrects};\n"
    )
}

pub(super) fn forward(call: &mut GpuCall<'_>, corrects: bool) -> Result<()> {
    let sizes = sizes(call);
    if sizes.none() {
        return Ok(());
    }
    if by_chunks(sizes) { chunked(call, sizes, corrects) } else { stepped(call, sizes, corrects) }
}

/// All steps by chunks.
fn chunked(call: &mut GpuCall<'_>, sizes: Sizes, corrects: bool) -> Result<()> {
    const NAMES: [&str; 6] = ["q", "k", "v", "g", "beta", "state"];
    let Sizes { batch, heads, steps, keys, values, .. } = sizes;
    let dtype = call.meta(0).dtype;
    // The state may be in the memory of the next one.
    let given = !call.aliased(5);
    let inputs = if given { 6 } else { 5 };
    let source = || {
        let mut text = packed::PACKING.to_string();
        text.push_str(
            "struct Params { groups: u32, blocks: u32, steps: u32, values: u32, shared_heads: u32,\n\
             q: u32, k: u32, v: u32, g: u32, beta: u32, state: u32 }\nvar<immediate> p: Params;\n\
             const RESULTS = true;\nconst KEEPS = false;\nfn first_head() -> u32 { return 0u; }\n\
             fn keep_state(head: u32, chunk: u32, key: u32, value: u32, x: f32) {}\n\
             fn keep_learnt(head: u32, step: u32, value: u32, wrong: f32, learnt: f32) {}\n",
        );
        for (input, name) in NAMES.into_iter().enumerate() {
            let dtype = if input < 3 { dtype } else { DType::F32 };
            let raw = format!("{name}_from");
            text.push_str(&match input < inputs {
                true => packed::reader(&raw, input, dtype),
                false => packed::load_function(&raw, "next_data", dtype),
            });
            text.push_str(&format!("fn {name}(i: u32) -> f32 {{ return {raw}(p.{name} + i); }}\n"));
        }
        text.push_str(&packed::writer("next", inputs, DType::F32));
        text.push_str(&packed::writer("y", inputs + 1, dtype));
        text + &chunk_constants(sizes, corrects) + CHUNKED
    };
    let blocks = values.div_ceil(columns(keys));
    let groups = batch * heads * blocks;
    let mut params = [groups, blocks, steps, values, sizes.shared()].map(|n| n as u32).to_vec();
    params.extend((0..6).map(|input| call.meta(input).layout.offset as u32));
    if !given {
        params[10] = 0;
    }
    let mut bindings: Vec<Bind<'_>> = (0..inputs).map(Bind::Input).collect();
    bindings.extend([Bind::Output(1), Bind::Output(0)]);
    call.launch(&Kernel {
        variant: format!("chunked/{dtype}/{keys}/{corrects}/{given}"),
        source: &source,
        bindings: &bindings,
        params: &params,
        groups: grid(groups),
    })
}

/// All steps one by one.
fn stepped(call: &mut GpuCall<'_>, sizes: Sizes, corrects: bool) -> Result<()> {
    let Sizes { batch, heads, steps, keys, values, gates, .. } = sizes;
    let dtype = call.meta(0).dtype;
    // Without steps there is no memory to bind, and nothing is read.
    let any = steps > 0;
    let names = ["q", "k", "v", "g", "beta", "state"];
    // The state may be in the memory of the next one.
    let given = !call.aliased(5);
    let used: Vec<usize> = (0..6).filter(|&input| if input == 5 { given } else { any }).collect();
    let source = || {
        let mut text = packed::PACKING.to_string();
        for (input, name) in names.into_iter().enumerate() {
            let dtype = if input < 3 { dtype } else { DType::F32 };
            text.push_str(&match used.iter().position(|&other| other == input) {
                Some(binding) => packed::reader(name, binding, dtype),
                None if input == 5 => packed::load_function(name, "next_data", DType::F32),
                None => format!("fn {name}(i: u32) -> f32 {{ return 0.0; }}\n"),
            });
        }
        text.push_str(&packed::writer("next", used.len(), DType::F32));
        text.push_str(&match any {
            true => packed::writer("y", used.len() + 1, dtype),
            false => "fn y_set(i: u32, value: f32) {}\n".to_string(),
        });
        text + &constants(sizes, corrects, ROWS) + include_str!("forward.wgsl")
    };
    let blocks = values.div_ceil(ROWS);
    let groups = batch * heads * blocks;
    let mut params = [groups, blocks, steps, values, sizes.shared()].map(|n| n as u32).to_vec();
    params.extend((0..6).map(|input| call.meta(input).layout.offset as u32));
    if !given {
        params[10] = 0;
    }
    let mut bindings: Vec<Bind<'_>> = used.iter().map(|&input| Bind::Input(input)).collect();
    bindings.push(Bind::Output(1));
    bindings.extend(any.then_some(Bind::Output(0)));
    call.launch(&Kernel {
        variant: format!("forward/{dtype}/{keys}/{gates}/{corrects}/{any}/{given}"),
        source: &source,
        bindings: &bindings,
        params: &params,
        groups: grid(groups),
    })
}

/// Where the backward kernels find their numbers and leave them, all as `f32` in the scratch memory:
/// the inputs, then the gradients (those of keys and queries for each value head), and then what is
/// kept of some heads.
struct Regions {
    /// Where each region begins, and the end.
    starts: Vec<usize>,
    rows: usize,
    /// Steps of a chunk.
    chunk: usize,
    /// Heads that go by chunks at a time.
    heads: usize,
}

impl Regions {
    fn new(sizes: Sizes) -> Regions {
        let Sizes { batch, key_heads, heads, steps, keys, values, gates } = sizes;
        // As many rows as a workgroup's memory holds.
        let rows = (HELD / keys.max(1)).clamp(1, ROWS);
        let rows = (1 << rows.ilog2()).min(values.next_power_of_two());
        let chunk = steps.clamp(1, CHUNK);
        let (of_key_heads, of_heads) = (batch * key_heads, batch * heads);
        let block = of_heads * rows * keys;
        let (state, beta) = (of_heads * values * keys, of_heads * steps);
        let (result, key) = (beta * values, beta * keys);
        let mut lengths = vec![
            of_key_heads * steps * keys,
            of_key_heads * steps * keys,
            result,
            beta * gates,
            beta,
            state,
            result,
            state,
            key,
            key,
            result,
            beta * gates,
            beta,
            state,
        ];
        let mut at_once = 0;
        if by_chunks(sizes) {
            let (states, each) = (steps.div_ceil(STEPS) * keys * values, steps * values);
            at_once = (KEPT / (2 * states + 3 * each).max(1)).clamp(1, of_heads.max(1));
            lengths.extend([states, states, each, each, each].map(|length| at_once * length));
        } else {
            lengths.extend([block * steps.div_ceil(chunk), block * (chunk + 1)]);
        }
        let mut starts = vec![0];
        for length in lengths {
            starts.push(starts[starts.len() - 1] + length);
        }
        Regions { starts, rows, chunk, heads: at_once }
    }

    fn length(&self, region: usize) -> usize {
        self.starts[region + 1] - self.starts[region]
    }
}

/// Bytes of scratch memory that the backward kernels use.
pub(super) fn scratch(inputs: &[&Meta]) -> usize {
    let starts = Regions::new(Sizes::new(inputs)).starts;
    starts.last().copied().unwrap_or(0).max(1) * size_of::<f32>()
}

pub(super) fn backward(call: &mut GpuCall<'_>, corrects: bool) -> Result<()> {
    let sizes = sizes(call);
    let Sizes { steps, keys, .. } = sizes;
    let regions = Regions::new(sizes);
    if !sizes.none() {
        for input in 0..8 {
            gathered(call, input, &regions)?;
        }
        if by_chunks(sizes) {
            by_some_heads(call, sizes, corrects, &regions)?;
        } else {
            walked(call, sizes, corrects, &regions)?;
        }
    }
    for output in 0..6 {
        // Heads that share keys add up.
        let (shared, run) = if output < 2 { (sizes.shared(), steps * keys) } else { (1, 1) };
        // Without rows there is nothing to sum.
        let shared = if sizes.none() { 0 } else { shared };
        let meta = call.output_meta(output);
        let (dtype, size) = (meta.dtype, meta.size());
        if size == 0 {
            continue;
        }
        let source = || {
            format!(
                "{}{}{}{}",
                packed::PACKING,
                include_str!("spread.wgsl"),
                packed::word_writer("out", 1, dtype),
                packed::word_main(dtype, "p.n", "summed")
            )
        };
        let words = size.div_ceil(packed::per_word(dtype));
        call.launch(&Kernel {
            variant: format!("spread/{dtype}"),
            source: &source,
            bindings: &[Bind::Scratch, Bind::Output(output)],
            params: &[size, regions.starts[8 + output], shared, run].map(|n| n as u32),
            groups: grid(words.div_ceil(packed::WORD_MAIN_GROUP)),
        })?;
    }
    Ok(())
}

/// Copies an input, widened, to its region.
fn gathered(call: &mut GpuCall<'_>, input: usize, regions: &Regions) -> Result<()> {
    let meta = call.meta(input);
    if meta.size() == 0 {
        return Ok(());
    }
    debug_assert_eq!(meta.size(), regions.length(input));
    let dtype = meta.dtype;
    let source = || {
        format!(
            "{}{}{}",
            packed::PACKING,
            packed::reader("x", 0, dtype),
            include_str!("gathered.wgsl")
        )
    };
    call.launch(&Kernel {
        variant: format!("gathered/{dtype}"),
        source: &source,
        bindings: &[Bind::Input(input), Bind::Scratch],
        params: &[meta.size(), meta.layout.offset, regions.starts[input]].map(|n| n as u32),
        groups: grid(meta.size().div_ceil(THREADS)),
    })
}

/// The gradients of all heads, from the inputs' regions to theirs.
fn walked(call: &mut GpuCall<'_>, sizes: Sizes, corrects: bool, regions: &Regions) -> Result<()> {
    let Sizes { batch, heads, steps, keys, values, gates, .. } = sizes;
    let mut params =
        [batch * heads, steps, values, sizes.shared(), regions.chunk].map(|n| n as u32).to_vec();
    params.extend(regions.starts[..16].iter().map(|&start| start as u32));
    call.launch(&Kernel {
        variant: format!("backward/{keys}/{gates}/{corrects}/{}", regions.rows),
        source: &|| constants(sizes, corrects, regions.rows) + include_str!("backward.wgsl"),
        bindings: &[Bind::Scratch],
        params: &params,
        groups: grid(batch * heads),
    })
}

/// The gradients of all heads by chunks: the states before chunks, their gradients behind chunks, and
/// then each chunk by itself.
fn by_some_heads(
    call: &mut GpuCall<'_>,
    sizes: Sizes,
    corrects: bool,
    regions: &Regions,
) -> Result<()> {
    let Sizes { batch, heads, steps, keys, values, .. } = sizes;
    let (blocks, chunks) = (values.div_ceil(columns(keys)), steps.div_ceil(STEPS));
    let states = "const RESULTS = false;\nconst KEEPS = true;\n".to_string() + CHUNKED;
    let kernels: [(&str, &str, usize); 3] = [
        ("states", &states, blocks),
        ("slopes", SLOPES, blocks),
        ("chunk_gradients", CHUNK_GRADIENTS, chunks),
    ];
    for first in (0..batch * heads).step_by(regions.heads) {
        let count = regions.heads.min(batch * heads - first);
        for (name, text, parts) in kernels {
            let groups = count * parts;
            let mut params = [groups, parts, steps, values, sizes.shared(), first].to_vec();
            params.extend(&regions.starts[..19]);
            let params: Vec<u32> = params.into_iter().map(|n| n as u32).collect();
            call.launch(&Kernel {
                variant: format!("{name}/{keys}/{corrects}"),
                source: &|| chunk_constants(sizes, corrects) + include_str!("kept.wgsl") + text,
                bindings: &[Bind::Scratch],
                params: &params,
                groups: grid(groups),
            })?;
        }
    }
    Ok(())
}
