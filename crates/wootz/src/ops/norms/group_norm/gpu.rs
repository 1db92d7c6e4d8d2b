//! Normalisation of groups on the GPU: a workgroup has a group of a sample, and of its gradient, in its registers if it has
//! no more elements than its threads keep; else they are read again for each sum. The gradients of weight and bias are
//! sums down columns of what the groups found.

use super::{Groups, Sizes};
use crate::array::DType;
use crate::error::Result;
use crate::gpu::rows::{Group, Rows};
use crate::gpu::{Bind, GpuCall, Kernel, grid, packed};

/// Threads of a workgroup, of large groups of elements where a GPU has so many; and elements of each array that a thread
/// keeps in registers.
const WIDTHS: [usize; 2] = [256, 512];
const KEPT: usize = 32;

pub(super) fn forward(call: &mut GpuCall<'_>, norm: Groups) -> Result<()> {
    launch(call, norm, "forward", include_str!("forward.wgsl"), None)
}

pub(super) fn backward(call: &mut GpuCall<'_>, norm: Groups) -> Result<()> {
    launch(call, norm, "backward", include_str!("backward.wgsl"), Some(norm.cotangent()))?;
    let Sizes { batch, features, .. } = Sizes::new(call.meta(0));
    let sums = [(norm.weighted, 1), (norm.biased, 0)].into_iter().filter(|(there, _)| *there);
    // Without positions no group has been there.
    let samples = if call.meta(0).size() == 0 { 0 } else { batch };
    for (output, (_, part)) in sums.enumerate() {
        let dtype = call.output_meta(1 + output).dtype;
        let source = || {
            [
                packed::PACKING,
                include_str!("add_samples.wgsl"),
                &packed::word_writer("out", 1, dtype),
                &packed::word_main(dtype, "p.features", "summed"),
            ]
            .concat()
        };
        let words = features.div_ceil(packed::per_word(dtype));
        call.launch(&Kernel {
            variant: format!("add_samples/{dtype}"),
            source: &source,
            bindings: &[Bind::Scratch, Bind::Output(1 + output)],
            params: &[features, samples, part].map(|n| n as u32),
            groups: grid(words.div_ceil(packed::WORD_MAIN_GROUP)),
        })?;
    }
    Ok(())
}

/// A kernel that has a workgroup for each group of each sample.
fn launch(
    call: &mut GpuCall<'_>,
    norm: Groups,
    name: &str,
    text: &str,
    dy: Option<usize>,
) -> Result<()> {
    let Sizes { batch, positions, features } = Sizes::new(call.meta(0));
    let groups = batch * norm.groups;
    if groups * positions == 0 {
        return Ok(());
    }
    let dtype = call.meta(0).dtype;
    let bias = if dy.is_some() { None } else { norm.bias() };
    let inputs = [("x", Some(0)), ("weight", norm.weight()), ("bias", bias), ("dy", dy)];
    let size = features / norm.groups;
    // Whole words are neighbours of one group; a gradient goes down columns.
    let pairs = norm.neighbours && size.is_multiple_of(2) && dy.is_none();
    let offsets = inputs.iter().filter_map(|&(_, input)| Some(call.meta(input?).layout.offset));
    let offsets = offsets.chain((!pairs).then_some(1));
    // As many threads as give each of them one feature.
    let by_column = size <= WIDTHS[0];
    let ways = WIDTHS.map(|width| Group {
        width: if dy.is_some() && by_column { width - width % size } else { width },
        most: if dy.is_none() && width > WIDTHS[0] { 2 * KEPT } else { KEPT },
    });
    let threads = call.gpu().max_threads();
    let rows = Rows::in_groups(dtype, positions * size, offsets, &ways, threads);
    let source = || {
        let mut source = [packed::PACKING, &rows.types()].concat();
        let mut binding = 0;
        for (name, input) in inputs {
            if input.is_some() {
                source.push_str(&rows.reader(name, binding));
                binding += 1;
            } else {
                let number = if name == "weight" { "1.0" } else { "0.0" };
                source.push_str(&format!("fn {name}(i: u32) -> f32 {{ return {number}; }}\n"));
                source.push_str(&rows.number(name, number));
            }
        }
        source.push_str(&rows.writer("out", binding));
        if dy.is_some() {
            source.push_str(&packed::writer("partials", binding + 1, DType::F32));
            source.push_str(&format!("const BY_COLUMN = {by_column};\n"));
        }
        let place = if norm.neighbours { "group * size + i" } else { "i * p.groups + group" };
        source.push_str(&format!(
            "fn feature(group: u32, size: u32, i: u32) -> u32 {{ return {place}; }}\n"
        ));
        source += include_str!("../group.wgsl");
        source += include_str!("moments.wgsl");
        rows.typed(&(source + text))
    };
    let mut bindings: Vec<Bind<'_>> =
        inputs.iter().filter_map(|&(_, input)| input).map(Bind::Input).collect();
    bindings.push(Bind::Output(0));
    bindings.extend(dy.map(|_| Bind::Scratch));
    let offset = |input: Option<usize>| input.map_or(0, |i| call.meta(i).layout.offset as u32);
    let mut params =
        [groups, norm.groups, positions, features].map(|number| number as u32).to_vec();
    params.push(norm.eps.to_bits());
    params.extend(inputs.map(|(_, input)| offset(input)));
    let Groups { weighted, neighbours, .. } = norm;
    call.launch(&Kernel {
        variant: format!(
            "{name}/{dtype}/{}/{weighted}/{}/{neighbours}",
            rows.key(),
            bias.is_some()
        ),
        source: &source,
        bindings: &bindings,
        params: &params,
        groups: grid(groups),
    })
}
