//! Attention on the GPU: a workgroup holds some rows of one side and goes through tiles of the other
//! in workgroup memory. Where there are few queries, the keys are split over workgroups as well.

use super::cooperative::{Kept, Matrices};
use super::spec::{AttentionSpec, Lengths, MaskKind, Sizes};
use super::text::{Inputs, Text, Tile, WIDTH};
use crate::array::DType;
use crate::error::Result;
use crate::gpu::{Bind, Gpu, GpuCall, Kernel, grid, packed};
use crate::quant::Scheme;

const ENDED: &str = include_str!("ended.wgsl");
const GRADIENT: &str = include_str!("gradient.wgsl");
/// Queries that count as few: the heads that share keys are then taken together, so that keys are read for all of
/// them at once.
const FEW: usize = 16;
/// Rows from which on cooperative matrices are worth it, and the most that any tile has.
const MANY_ROWS: usize = 16;
const MOST_ROWS: usize = 32;
/// Keys that a part has at least, where they are split: putting parts together takes a launch, which fewer do not
/// make up for.
const LEAST_KEYS: usize = 256;
/// Workgroups to aim at where keys are split.
const GROUPS: usize = 64;
/// Parts begin at multiples of this: no tile goes through more keys at a time.
const PART: usize = 64;

/// How the rows of a forward are cut.
struct Cut {
    /// Rows that share keys and follow one another, and how many of those there are in a batch.
    rows: usize,
    kinds: usize,
    tile: Tile,
    splits: usize,
    split_keys: usize,
}

impl Cut {
    fn of(sizes: &Sizes) -> Cut {
        let few = sizes.queries <= FEW;
        let (rows, kinds) = match few {
            true => (sizes.group() * sizes.queries, sizes.key_heads),
            false => (sizes.queries, sizes.heads),
        };
        let most = if sizes.dims > 256 { 8 } else { 16 };
        let tile = Tile::of(rows.next_power_of_two().clamp(4, most));
        // The same with and without cooperative matrices: the scratch memory has room for so many parts.
        let groups = (sizes.batch * kinds * rows.div_ceil(MOST_ROWS)).max(1);
        let splits = if few { GROUPS.div_ceil(groups) } else { 1 };
        let splits = splits.min(sizes.keys.div_ceil(LEAST_KEYS)).max(1);
        let split_keys = sizes.keys.div_ceil(splits).next_multiple_of(PART).max(1);
        let splits = sizes.keys.div_ceil(split_keys).max(1);
        Cut { rows, kinds, tile, splits, split_keys }
    }

    /// With cooperative matrices where there are some and many rows.
    fn on(mut self, call: &GpuCall<'_>, sizes: &Sizes, inputs: Inputs) -> Cut {
        if self.rows > MANY_ROWS {
            let kept = Kept {
                rows: self.rows,
                held: &[sizes.dims],
                summed: &[sizes.value_dims],
                tiles: 1,
            };
            // What codes stand for is no number of 16 bits.
            let native = sizes.dtype == DType::F16 && inputs == Inputs::Forward;
            self.tile = Matrices::tile(call, native, &kept).unwrap_or(self.tile);
        }
        self
    }
}

/// Where keys are split, every part keeps sums, maximum and total of each row.
pub(super) fn forward_scratch(sizes: &Sizes) -> usize {
    match Cut::of(sizes).splits {
        1 => 0,
        splits => row_count(sizes) * splits * (sizes.value_dims + 2) * 4,
    }
}

/// Four words for each row.
pub(super) fn backward_scratch(sizes: &Sizes) -> usize {
    if sizes.keys == 0 { 0 } else { row_count(sizes) * 16 }
}

/// And as many for each part of the mask's gradient, behind them.
pub(super) fn mask_scratch(sizes: &Sizes) -> usize {
    match (backward_scratch(sizes), parts(sizes)) {
        (0, _) => 0,
        (rows, 1) => rows,
        (rows, parts) => rows + sizes.mask.iter().product::<usize>() * parts * 16,
    }
}

fn row_count(sizes: &Sizes) -> usize {
    sizes.batch * sizes.heads * sizes.queries
}

pub(super) fn forward(
    call: &mut GpuCall<'_>,
    spec: &AttentionSpec,
    sizes: &Sizes,
    lse: bool,
) -> Result<()> {
    forward_with(call, spec, sizes, lse, Inputs::Forward)
}

pub(super) fn forward_quantized(
    call: &mut GpuCall<'_>,
    spec: &AttentionSpec,
    sizes: &Sizes,
    schemes: [Scheme; 2],
) -> Result<()> {
    forward_with(call, spec, sizes, false, Inputs::Coded(schemes))
}

/// The most arrays that a kernel of the forward binds, with the status words that tell of wrong lengths.
fn bindings(spec: &AttentionSpec, inputs: Inputs, lse: bool) -> usize {
    let lengths = spec.lengths.count();
    let optional = (spec.mask != MaskKind::None) as usize + spec.sinks as usize + lengths;
    inputs.count() + optional + 1 + lse as usize + (lengths > 0) as usize
}

/// Whether a GPU's kernels bind all arrays of attention to quantized keys and values.
pub(super) fn fits_quantized(gpu: &Gpu, spec: &AttentionSpec, schemes: [Scheme; 2]) -> bool {
    bindings(spec, Inputs::Coded(schemes), false) <= gpu.max_storage_bindings()
}

fn forward_with(
    call: &mut GpuCall<'_>,
    spec: &AttentionSpec,
    sizes: &Sizes,
    lse: bool,
    inputs: Inputs,
) -> Result<()> {
    if row_count(sizes) == 0 || sizes.value_dims == 0 && !lse {
        return Ok(());
    }
    let cut = Cut::of(sizes);
    let values = row_count(sizes) * sizes.value_dims;
    if sizes.keys == 0 {
        let mut text = Text::new(call, spec, sizes, cut.tile, inputs);
        text.lengths().sinks().write("out", 0).lse(lse).add(ENDED);
        text.add(include_str!("nothing.wgsl")).reports_length();
        return text.launch("nothing", values.div_ceil(WIDTH));
    }
    check_dims(call, sizes)?;
    let (wanted, most) = (bindings(spec, inputs, lse), call.gpu().max_storage_bindings());
    if wanted > most {
        let reason = format!("{wanted} arrays in one launch, which binds at most {most}");
        return Err(call.not_on_device(reason));
    }
    let cut = cut.on(call, sizes, inputs);
    let mut text = Text::new(call, spec, sizes, cut.tile, inputs);
    text.params.kinds = cut.kinds;
    text.params.rows = cut.rows;
    text.params.splits = cut.splits;
    text.params.split_keys = cut.split_keys;
    let groups = sizes.batch * cut.kinds * cut.rows.div_ceil(cut.tile.rows) * cut.splits;
    text.params.groups = groups;
    let single = cut.splits == 1;
    text.read("q", 0).keys_and_values().scores().lengths();
    if single {
        text.sinks().write_rows("out", 0, sizes.value_dims).lse(lse).add(ENDED);
    } else {
        text.scratch("partials");
    }
    text.tile("tile").hold("q", sizes.dims).products("k", "q", sizes.dims);
    text.sums("v", "tile", sizes.value_dims).shrink("v", sizes.value_dims);
    text.add(match single {
        true => include_str!("finish_whole.wgsl"),
        false => include_str!("finish_part.wgsl"),
    });
    text.add(include_str!("forward.wgsl")).reports_length();
    text.launch(if single { "tiled" } else { "decode" }, groups)?;
    if single {
        return Ok(());
    }
    let mut text = Text::new(call, spec, sizes, cut.tile, inputs);
    text.params.splits = cut.splits;
    text.scratch("partials").sinks().lengths_fit().write("out", 0).lse(lse).add(ENDED);
    // Threads that share a row, which first weigh its parts.
    let lanes = sizes.value_dims.next_power_of_two().clamp(32, WIDTH);
    text.add(&format!("const LANES_OF = {lanes}u;\nconst MOST_SPLITS = {GROUPS}u;\n"));
    text.add(include_str!("merge.wgsl"));
    text.launch("merge", row_count(sizes).div_ceil(WIDTH / lanes))
}

pub(super) fn backward(call: &mut GpuCall<'_>, spec: &AttentionSpec, sizes: &Sizes) -> Result<()> {
    if row_count(sizes) == 0 || sizes.keys == 0 {
        // Nothing is seen. What has no elements has no memory to write.
        for output in 0..3 {
            if call.output_meta(output).size() > 0 {
                zeros(call, output)?;
            }
        }
        return Ok(());
    }
    check_dims(call, sizes)?;
    rows(call, spec, sizes)?;
    // The rows know about lengths.
    let spec = &AttentionSpec { lengths: Lengths::All, ..*spec };
    let Sizes { dims, value_dims, .. } = *sizes;
    let inputs = |text: &mut Text<'_, '_>| {
        text.read("q", 0).read("k", 1).read("v", 2).read("dout", 3).scores().row_data();
        text.add(GRADIENT);
    };
    let tile = backward_tile(call, sizes, sizes.queries, &[dims], 1);
    let mut text = Text::new(call, spec, sizes, tile, Inputs::Backward);
    let groups = sizes.batch * sizes.heads * sizes.queries.div_ceil(tile.rows);
    text.params.groups = groups;
    inputs(&mut text);
    text.write_rows("dq", 0, dims).tile("tile").hold("q", dims).hold("dout", value_dims);
    text.products("k", "q", dims).products("v", "dout", value_dims).sums("k", "tile", dims);
    text.add(include_str!("backward_q.wgsl")).launch("backward_q", groups)?;

    let tile = backward_tile(call, sizes, sizes.keys, &[dims, value_dims], 2);
    let mut text = Text::new(call, spec, sizes, tile, Inputs::Backward);
    let groups = sizes.batch * sizes.key_heads * sizes.keys.div_ceil(tile.rows);
    text.params.groups = groups;
    inputs(&mut text);
    text.write_rows("dk", 1, dims).write_rows("dv", 2, value_dims);
    text.tile("tile").tile("p_tile");
    text.hold("k", dims).hold("v", value_dims);
    text.products("q", "k", dims).products("dout", "v", value_dims);
    text.sums("q", "tile", dims).sums("dout", "p_tile", value_dims);
    text.add(include_str!("backward_kv.wgsl")).launch("backward_kv", groups)
}

/// The tile of a kernel of the backward that holds so many rows, and sums lines of such widths.
fn backward_tile(
    call: &GpuCall<'_>,
    sizes: &Sizes,
    rows: usize,
    summed: &[usize],
    tiles: usize,
) -> Tile {
    let kept = Kept { rows, held: &[sizes.dims, sizes.value_dims], summed, tiles };
    Matrices::tile(call, sizes.dtype == DType::F16, &kept).unwrap_or_else(|| {
        Tile::of(match sizes.dims + sizes.value_dims {
            0..=256 => 16,
            257..=512 => 8,
            _ => 4,
        })
    })
}

pub(super) fn backward_mask(
    call: &mut GpuCall<'_>,
    spec: &AttentionSpec,
    sizes: &Sizes,
) -> Result<()> {
    let elements: usize = sizes.mask.iter().product();
    if elements == 0 {
        return Ok(());
    }
    if row_count(sizes) == 0 || sizes.keys == 0 {
        return zeros(call, 0);
    }
    check_dims(call, sizes)?;
    rows(call, spec, sizes)?;
    let spec = &AttentionSpec { lengths: Lengths::All, ..*spec };
    let Sizes { dims, value_dims, .. } = *sizes;
    let tile = backward_tile(call, sizes, sizes.queries, &[], 1);
    let mut text = Text::new(call, spec, sizes, tile, Inputs::Backward);
    let [batch, heads, queries, keys] = sizes.mask;
    text.params.kinds = batch;
    text.params.rows = heads;
    text.params.splits = queries;
    text.params.split_keys = keys;
    let count = parts(sizes);
    text.params.groups = count;
    text.read("q", 0).read("k", 1).read("v", 2).read("dout", 3).scores().row_data();
    text.add(GRADIENT).tile("tile").hold("q", dims).hold("dout", value_dims);
    text.products("k", "q", dims).products("v", "dout", value_dims);
    let stored = if count == 1 {
        text.write_spans("dmask", 0, keys)
    } else {
        text.add(
            "const SPAN = 1u;\n\
             fn store(i: u32, part: u32, sums: vec2<f32>) {\n\
             row_data[p.batch * p.heads * p.queries + i * p.groups + part].x = \
             bitcast<u32>(sums.x);\n}\n",
        );
        "part"
    };
    text.add(include_str!("backward_mask.wgsl"));
    let blocks =
        |length: usize, mask: usize, of: usize| if mask == 1 { 1 } else { length.div_ceil(of) };
    let tiles = batch
        * heads
        * blocks(sizes.queries, queries, tile.rows)
        * blocks(sizes.keys, keys, tile.lines);
    text.launch(&format!("backward_mask {stored}"), tiles * count)?;
    if count == 1 {
        return Ok(());
    }
    let same = Sizes { dims: 1, value_dims: 1, ..*sizes };
    let mut text = Text::new(call, spec, &same, Tile::of(16), Inputs::Backward);
    text.params.kinds = elements;
    text.params.groups = count;
    let lanes = lanes_of(count);
    text.row_data().write("dmask", 0).add(&format!("const LANES_OF = {lanes}u;\n"));
    text.add(include_str!("join_mask.wgsl"));
    text.launch(&format!("join_mask {lanes}"), elements.div_ceil(WIDTH / lanes))
}

/// How many workgroups share the scores that an element of the mask was added to, so that none has many.
fn parts(sizes: &Sizes) -> usize {
    /// Scores that a part has at least, where there is more than one.
    const LEAST: usize = 16 * WIDTH;
    /// Parts of all elements together: enough for any GPU, and little memory.
    const MOST: usize = 16_384;
    let all = [sizes.batch, sizes.heads, sizes.queries, sizes.keys];
    let summed = all.iter().zip(sizes.mask).map(|(&all, mask)| if mask == 1 { all } else { 1 });
    let elements: usize = sizes.mask.iter().product();
    summed.product::<usize>().div_ceil(LEAST).min(MOST / elements.max(1)).max(1)
}

/// Threads that share so many summands: no more than have several each.
fn lanes_of(summands: usize) -> usize {
    summands.div_ceil(16).next_power_of_two().min(WIDTH)
}

pub(super) fn backward_d(call: &mut GpuCall<'_>) -> Result<()> {
    let meta = call.meta(0);
    let (dtype, dims) = (meta.dtype, meta.shape()[3]);
    let rows = call.output_meta(0).size();
    if rows == 0 {
        return Ok(());
    }
    if dims == 0 {
        return zeros(call, 0);
    }
    let offset = |input: usize| call.meta(input).layout.offset as u32;
    // Where rows are whole words of a packed type, words are read once.
    let pairs = packed::per_word(dtype) == 2
        && [dims as u32, offset(0), offset(1)].iter().all(|n| n % 2 == 0);
    call.launch(&Kernel {
        variant: format!("row.{dtype}{}", if pairs { ".pairs" } else { "" }),
        source: &|| {
            let product = match pairs {
                true => {
                    let two = format!(
                        "vec2<f32>(wz_widen_{dtype}(WORD, 0u), wz_widen_{dtype}(WORD, 1u))",
                        dtype = dtype.name()
                    );
                    format!(
                        "const SPAN = 2u;\n\
                         fn product(out_at: u32, dout_at: u32) -> f32 {{\n\
                         let out_word = out_data[out_at >> 1u];\n\
                         let dout_word = dout_data[dout_at >> 1u];\n\
                         let products = {} * {};\n\
                         return products.x + products.y;\n}}\n",
                        two.replace("WORD", "out_word"),
                        two.replace("WORD", "dout_word")
                    )
                }
                false => "const SPAN = 1u;\n\
                          fn product(out_at: u32, dout_at: u32) -> f32 { \
                          return out(out_at) * dout(dout_at); }\n"
                    .to_string(),
            };
            [
                packed::PACKING,
                &packed::reader("out", 0, dtype),
                &packed::reader("dout", 1, dtype),
                &packed::writer("d", 2, DType::F32),
                &product,
                include_str!("backward_d.wgsl"),
            ]
            .concat()
        },
        bindings: &[Bind::Input(0), Bind::Input(1), Bind::Output(0)],
        params: &[rows as u32, dims as u32, offset(0), offset(1)],
        groups: grid(rows.div_ceil(8)),
    })
}

/// What the backward knows of each query, into the scratch memory.
fn rows(call: &mut GpuCall<'_>, spec: &AttentionSpec, sizes: &Sizes) -> Result<()> {
    // Its text is the same for all dtypes and dims.
    let same = Sizes { dims: 1, value_dims: 1, dtype: DType::F32, ..*sizes };
    let mut text = Text::new(call, spec, &same, Tile::of(16), Inputs::Backward);
    text.read("lse", 4).read("d", 5).lengths().row_data();
    text.add(include_str!("rows.wgsl")).reports_length();
    text.launch("rows", row_count(sizes).div_ceil(WIDTH))
}

/// Heads without dims have no memory to bind.
fn check_dims(call: &GpuCall<'_>, sizes: &Sizes) -> Result<()> {
    match sizes.dims.min(sizes.value_dims) {
        0 => Err(call.not_on_device("heads of no dims; use the CPU device")),
        _ => Ok(()),
    }
}

fn zeros(call: &mut GpuCall<'_>, output: usize) -> Result<()> {
    let words = call.output_meta(output).bytes().div_ceil(4);
    call.launch(&Kernel {
        variant: "zeros".into(),
        source: &|| include_str!("../matmul/zeros.wgsl").to_string(),
        bindings: &[Bind::Output(output)],
        params: &[words as u32],
        groups: grid(words.div_ceil(WIDTH)),
    })
}
