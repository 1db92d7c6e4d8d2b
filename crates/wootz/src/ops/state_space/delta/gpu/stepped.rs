//! The kernels step by step, for few steps or gates of each key. A launch has as many steps as lavapipe's loops
//! have turns for.

use super::super::super::TURNS;
use super::super::CHUNK;
use super::{HELD, NAMES, Regions, Sizes, THREADS, memory, offsets, readers};
use crate::array::DType;
use crate::error::Result;
use crate::gpu::{Bind, GpuCall, Kernel, grid, packed};

/// Rows of a block.
const ROWS: usize = 16;

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

/// Turns of a thread's loops for one step of the state, where rows have so many threads.
fn turns(keys: usize, rows: usize) -> usize {
    let lanes = THREADS / rows;
    2 * keys.div_ceil(lanes) + 2 * lanes + 2
}

/// The forward. Without steps there is no memory to bind, and nothing is read.
pub(super) fn forward(call: &mut GpuCall<'_>, sizes: Sizes, corrects: bool) -> Result<()> {
    let Sizes { batch, heads, steps, keys, values, gates, .. } = sizes;
    let (dtype, offsets, any) = (call.meta(0).dtype, offsets(call), steps > 0);
    let blocks = values.div_ceil(ROWS);
    let groups = batch * heads * blocks;
    let at_once = (TURNS / turns(keys, ROWS)).max(1);
    for first in (0..steps.max(1)).step_by(at_once) {
        // The state may be in the memory of the next one; behind other steps it is.
        let given = first == 0 && !call.aliased(5);
        let used: Vec<usize> =
            (0..6).filter(|&input| if input == 5 { given } else { any }).collect();
        let (text, mut bindings) = readers(call, &used);
        let source = || {
            let mut text = text.clone();
            for (input, name) in NAMES.into_iter().enumerate().take(6) {
                text.push_str(&match used.contains(&input) {
                    true => continue,
                    false if input == 5 => packed::load_function(name, "next_data", DType::F32),
                    false => format!("fn {name}(i: u32) -> f32 {{ return 0.0; }}\n"),
                });
            }
            text.push_str(&packed::writer("next", used.len(), DType::F32));
            text.push_str(&match any {
                true => packed::writer("y", used.len() + 1, dtype),
                false => "fn y_set(i: u32, value: f32) {}\n".to_string(),
            });
            text + &constants(sizes, corrects, ROWS) + include_str!("../forward.wgsl")
        };
        let end = steps.min(first + at_once);
        let mut params = vec![groups, blocks, steps, values, sizes.shared(), first, end];
        params.extend(&offsets[..5]);
        params.push(if given { offsets[5] } else { 0 });
        bindings.push(Bind::Output(1));
        bindings.extend(any.then_some(Bind::Output(0)));
        call.launch(&Kernel {
            variant: format!("forward/{dtype}/{keys}/{gates}/{corrects}/{any}/{given}"),
            source: &source,
            bindings: &bindings,
            params: &Vec::from_iter(params.iter().map(|&n| n as u32)),
            groups: grid(groups),
        })?;
    }
    Ok(())
}

/// What the gradient keeps behind the gradients.
pub(super) struct Kept {
    /// Rows of a block: as many as a workgroup's memory holds.
    rows: usize,
    /// Steps of a chunk.
    chunk: usize,
    /// Where states at the starts of chunks are, and behind the steps of one.
    starts: [usize; 2],
}

impl Kept {
    pub(super) fn new(sizes: Sizes, regions: &mut Regions) -> Kept {
        let Sizes { batch, heads, steps, keys, values, .. } = sizes;
        let rows = (HELD / keys.max(1)).clamp(1, ROWS);
        let rows = (1 << rows.ilog2()).min(values.next_power_of_two());
        let chunk = steps.clamp(1, CHUNK);
        let block = batch * heads * rows * keys;
        let lengths = [block * steps.div_ceil(chunk), block * (chunk + 1)];
        Kept { rows, chunk, starts: lengths.map(|length| regions.take(length)) }
    }
}

/// The gradients of all heads, a block of rows after the other: forward, keeping states at the starts of
/// chunks, and back through the chunks.
pub(super) fn backward(
    call: &mut GpuCall<'_>,
    sizes: Sizes,
    corrects: bool,
    regions: &mut Regions,
) -> Result<()> {
    let Sizes { batch, heads, steps, keys, values, gates, .. } = sizes;
    let Kept { rows, chunk, starts } = Kept::new(sizes, regions);
    let (offsets, dtype) = (offsets(call), call.meta(0).dtype);
    let chunks = steps.div_ceil(chunk);
    let of_step = turns(keys, rows) + keys.div_ceil(THREADS / rows);
    // Back there are as many turns for keys again, and those of sums.
    let of_chunk = chunk * (3 * of_step + keys.div_ceil(THREADS) * (rows + 1) + rows + 300);
    let kernels: [(&str, &str, &[usize], usize); 2] = [
        ("keep", include_str!("../keep.wgsl"), &[1, 2, 3, 4, 5], TURNS / (chunk * of_step)),
        ("back", include_str!("../back.wgsl"), &[0, 1, 2, 3, 4, 6, 7], TURNS / of_chunk),
    ];
    for block in (0..values).step_by(rows) {
        for (name, text, inputs, at_once) in kernels {
            let (mut given, mut bindings) = readers(call, inputs);
            given.push_str(&memory(bindings.len()));
            bindings.push(Bind::Scratch);
            let source = || {
                [&given, &constants(sizes, corrects, rows), include_str!("../rows.wgsl"), text]
                    .concat()
            };
            for first in (0..chunks).step_by(at_once.max(1)) {
                let end = chunks.min(first + at_once.max(1));
                let counts =
                    [batch * heads, steps, values, sizes.shared(), chunk, block, first, end];
                let params = counts.into_iter().chain(offsets);
                let params = params.chain(regions.gradients).chain(starts);
                call.launch(&Kernel {
                    variant: format!("{name}/{dtype}/{keys}/{gates}/{corrects}/{rows}"),
                    source: &source,
                    bindings: &bindings,
                    params: &Vec::from_iter(params.map(|n| n as u32)),
                    groups: grid(batch * heads),
                })?;
            }
        }
    }
    Ok(())
}
