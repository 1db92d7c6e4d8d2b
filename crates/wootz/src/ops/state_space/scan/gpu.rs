//! Selective scans on the GPU: a thread has a channel and walks through the steps with its state in registers. The gradient
//! keeps states before chunks of steps, and makes those of a chunk again when it walks back.

use super::super::TURNS;
use super::op::{CHUNK, MOST, SelectiveScan, Sizes};
use crate::array::{DType, Meta};
use crate::error::Result;
use crate::gpu::{Bind, GpuCall, Kernel, MATH, grid, packed};

/// Threads of a workgroup.
const WIDTH: usize = 64;
/// Numbers of a state that are summed over the channels at a time.
const AT_ONCE: usize = 16;
/// An argument's name, dtype and place among the inputs.
type Argument = (&'static str, usize, DType);

/// The beginning of a kernel's text: inputs by their names, and constants.
fn prelude(arguments: &[Argument], size: usize, stated: bool) -> String {
    let mut text = [packed::PACKING, MATH].concat();
    for (binding, &(name, _, dtype)) in arguments.iter().enumerate() {
        text.push_str(&packed::reader(name, binding, dtype));
    }
    text + &format!(
        "const SIZE = {size}u;\nconst STATED = {stated};\nconst CHUNK = {CHUNK}u;\n\
         const WIDTH = {WIDTH}u;\nconst AT_ONCE = {AT_ONCE}u;\n"
    )
}

fn arguments<const N: usize>(
    call: &GpuCall<'_>,
    named: [(&'static str, usize); N],
) -> [Argument; N] {
    named.map(|(name, input)| (name, input, call.meta(input).dtype))
}

/// What tells apart kernels of these arguments.
fn key(arguments: &[Argument]) -> String {
    arguments.iter().map(|(name, _, dtype)| format!("/{name}.{dtype}")).collect()
}

fn offset(call: &GpuCall<'_>, input: usize) -> u32 {
    call.meta(input).layout.offset as u32
}

fn expect_size(call: &GpuCall<'_>, sizes: Sizes) -> Result<()> {
    match sizes.size <= MOST {
        true => Ok(()),
        false => Err(call.not_on_device(format!("states of more than {MOST} numbers a channel"))),
    }
}

pub(super) fn forward(call: &mut GpuCall<'_>, op: SelectiveScan) -> Result<()> {
    let sizes = Sizes::new(call.meta(0), call.meta(2));
    expect_size(call, sizes)?;
    let Sizes { batch, steps, channels, size } = sizes;
    let threads = batch * channels;
    if let Some(input) = op.state() {
        let dtype = call.meta(input).dtype;
        let params = [(threads * size) as u32, offset(call, input)];
        call.launch(&Kernel {
            variant: format!("start/{dtype}"),
            source: &|| {
                [
                    packed::PACKING,
                    &packed::reader("state", 0, dtype),
                    &packed::writer("next", 1, DType::F32),
                    include_str!("start.wgsl"),
                ]
                .concat()
            },
            bindings: &[Bind::Input(input), Bind::Output(1)],
            params: &params,
            groups: grid((threads * size).div_ceil(WIDTH)),
        })?;
    }
    let mut inputs = arguments(call, [("x", 0), ("dt", 1), ("a", 2), ("b", 3), ("c", 4)]).to_vec();
    if let Some(d) = op.d() {
        inputs.push(("d", d, call.meta(d).dtype));
    }
    let dtype = call.meta(0).dtype;
    let mut bindings: Vec<Bind<'_>> = inputs.iter().map(|input| Bind::Input(input.1)).collect();
    bindings.extend([Bind::Output(1), Bind::Output(0)]);
    let at_once = (TURNS / (size + 1)).saturating_sub(3).max(1);
    for first in (0..steps).step_by(at_once) {
        // Behind other steps there is a state, too.
        let stated = op.stated || first > 0;
        let source = || {
            let mut text = prelude(&inputs, size, stated);
            if !op.skips {
                text.push_str("fn d(i: u32) -> f32 { return 0.0; }\n");
            }
            text.push_str(&format!("const SKIPS = {};\n", op.skips));
            text.push_str(&packed::writer("next", inputs.len(), DType::F32));
            text.push_str(&packed::writer("y", inputs.len() + 1, dtype));
            text + include_str!("forward.wgsl")
        };
        let end = steps.min(first + at_once);
        let mut params = [threads, steps, channels, first, end].map(|n| n as u32).to_vec();
        params.extend((0..5).map(|input| offset(call, input)));
        params.push(op.d().map_or(0, |d| offset(call, d)));
        call.launch(&Kernel {
            variant: format!("forward/{size}/{stated}{}", key(&inputs)),
            source: &source,
            bindings: &bindings,
            params: &params,
            groups: grid(threads.div_ceil(WIDTH)),
        })?;
    }
    Ok(())
}

/// Where the kernels of the gradient leave their numbers, as `f32` in the scratch memory.
struct Regions {
    /// Workgroups that share the channels.
    blocks: usize,
    chunks: usize,
    starts: usize,
    states: usize,
    /// Of the state, and then in the order of the inputs.
    slopes: usize,
    dx: usize,
    ddt: usize,
    da: usize,
    db: usize,
    dc: usize,
    end: usize,
}

impl Regions {
    fn new(sizes: Sizes) -> Regions {
        let Sizes { batch, steps, channels, size } = sizes;
        let (blocks, chunks) = (channels.div_ceil(WIDTH), steps.div_ceil(CHUNK));
        let (state, each) = (batch * channels * size, batch * steps * channels);
        let summed = batch * blocks * steps * size;
        let starts = 0;
        let states = starts + chunks * state;
        let slopes = states + (CHUNK.min(steps) + 1) * state;
        let dx = slopes + state;
        let ddt = dx + each;
        let da = ddt + each;
        let db = da + state;
        let dc = db + summed;
        Regions { blocks, chunks, starts, states, slopes, dx, ddt, da, db, dc, end: dc + summed }
    }
}

/// Bytes of scratch memory that the gradient's kernels use.
pub(super) fn scratch(inputs: &[&Meta]) -> usize {
    Regions::new(Sizes::new(inputs[0], inputs[2])).end * size_of::<f32>()
}

pub(super) fn backward(call: &mut GpuCall<'_>, stated: bool) -> Result<()> {
    let sizes = Sizes::new(call.meta(0), call.meta(2));
    expect_size(call, sizes)?;
    let Sizes { batch, steps, channels, size } = sizes;
    let (regions, threads, given) = (Regions::new(sizes), batch * channels, 5 + stated as usize);
    let (dy, last) = (given, given + 1);
    keep_starts(call, sizes, stated, last)?;
    let inputs = arguments(call, [("x", 0), ("dt", 1), ("a", 2), ("b", 3), ("c", 4), ("dy", dy)]);
    let groups = batch * regions.blocks;
    let Regions { starts, states, slopes, dx, ddt, da, db, dc, .. } = regions;
    // Forward through the chunk, and back with sums over the threads.
    let of_chunk = size * (CHUNK + 1) + CHUNK * (size.div_ceil(AT_ONCE) * (AT_ONCE + 17) + 2);
    for [first, end] in parts(regions.chunks, of_chunk, 2 * size) {
        let mut params =
            [groups, regions.blocks, threads, steps, channels, regions.chunks, first, end]
                .map(|n| n as u32)
                .to_vec();
        params.extend(inputs.iter().map(|input| offset(call, input.1)));
        params.extend([starts, states, slopes, dx, ddt, da, db, dc].map(|start| start as u32));
        launch(
            call,
            "walk_back",
            include_str!("walk_back.wgsl"),
            &inputs,
            (size, stated),
            &params,
            groups,
        )?;
    }
    // Gradients of rates are sums over the batch, those of b and c over the blocks.
    let (of_rates, of_steps) = (channels * size, steps * size);
    let outputs = [
        (dx, 1, 1),
        (ddt, 1, 1),
        (da, batch, of_rates),
        (db, regions.blocks, of_steps),
        (dc, regions.blocks, of_steps),
        (slopes, 1, 1),
    ];
    for (output, (start, parts, run)) in outputs.into_iter().enumerate().take(given) {
        let meta = call.output_meta(output);
        let (dtype, count) = (meta.dtype, meta.size());
        let source = || {
            [
                packed::PACKING,
                include_str!("../delta/spread.wgsl"),
                &packed::word_writer("out", 1, dtype),
                &packed::word_main(dtype, "p.n", "summed"),
            ]
            .concat()
        };
        let words = count.div_ceil(packed::per_word(dtype));
        call.launch(&Kernel {
            variant: format!("spread/{dtype}"),
            source: &source,
            bindings: &[Bind::Scratch, Bind::Output(output)],
            params: &[count, start, parts, run].map(|n| n as u32),
            groups: grid(words.div_ceil(packed::WORD_MAIN_GROUP)),
        })?;
    }
    Ok(())
}

/// The states before chunks, and the gradient of the last one.
fn keep_starts(call: &mut GpuCall<'_>, sizes: Sizes, stated: bool, last: usize) -> Result<()> {
    let Sizes { batch, steps, channels, size } = sizes;
    let (regions, threads) = (Regions::new(sizes), batch * channels);
    let mut inputs =
        arguments(call, [("x", 0), ("dt", 1), ("a", 2), ("b", 3), ("last", last)]).to_vec();
    if stated {
        inputs.push(("state", 5, call.meta(5).dtype));
    }
    for [first, end] in parts(regions.chunks, size + CHUNK * (size + 1), size) {
        let counts = [threads, steps, channels, regions.chunks, first, end];
        let mut params = counts.map(|n| n as u32).to_vec();
        params.extend((0..4).map(|input| offset(call, input)));
        params.push(if stated { offset(call, 5) } else { 0 });
        params.push(offset(call, last));
        params.extend([regions.starts, regions.slopes].map(|start| start as u32));
        let (text, groups) = (include_str!("starts.wgsl"), threads.div_ceil(WIDTH));
        launch(call, "starts", text, &inputs, (size, stated), &params, groups)?;
    }
    Ok(())
}

/// Parts of the chunks for a launch each, of loops that take so many turns for a chunk and for all of them.
fn parts(chunks: usize, each: usize, all: usize) -> impl Iterator<Item = [usize; 2]> {
    let at_once = (TURNS.saturating_sub(all) / each).max(1);
    (0..chunks).step_by(at_once).map(move |first| [first, chunks.min(first + at_once)])
}

/// A kernel that reads inputs and works in the scratch memory.
fn launch(
    call: &mut GpuCall<'_>,
    variant: &str,
    text: &str,
    inputs: &[Argument],
    (size, stated): (usize, bool),
    params: &[u32],
    groups: usize,
) -> Result<()> {
    let source = || {
        let mut source = prelude(inputs, size, stated);
        if !stated {
            source.push_str("fn state(i: u32) -> f32 { return 0.0; }\n");
        }
        let binding = inputs.len();
        source.push_str(&format!(
            "@group(0) @binding({binding}) var<storage, read_write> memory: array<f32>;\n"
        ));
        source + text
    };
    let mut bindings: Vec<Bind<'_>> = inputs.iter().map(|input| Bind::Input(input.1)).collect();
    bindings.push(Bind::Scratch);
    call.launch(&Kernel {
        variant: format!("{variant}/{size}/{stated}{}", key(inputs)),
        source: &source,
        bindings: &bindings,
        params,
        groups: grid(groups),
    })
}
