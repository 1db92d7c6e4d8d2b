//! Attention on the GPU: a workgroup holds some rows of one side and goes through tiles of the other
//! in workgroup memory. Where there are few queries, the keys are split over workgroups as well.

use std::fmt::Write;

use super::spec::{AttentionSpec, Lengths, MaskKind, Sizes};
use crate::array::DType;
use crate::error::Result;
use crate::gpu::{Bind, GpuCall, Kernel, MATH, grid, packed};

const COMMON: &str = include_str!("common.wgsl");
const ENDED: &str = include_str!("ended.wgsl");
const GRADIENT: &str = include_str!("gradient.wgsl");
/// Threads of a workgroup.
const WIDTH: usize = 256;

/// Numbers of the piece of a tile that is in workgroup memory at a time.
const PIECE: usize = 2048;
/// Rows of queries, of all heads that share keys, that count as few.
const FEW: usize = 16;
/// Keys that a part has at least, where they are split.
const LEAST_KEYS: usize = 128;
/// Workgroups to aim at where keys are split.
const GROUPS: usize = 64;

/// How the rows of a forward are cut.
struct Cut {
    /// Rows that share keys and follow one another, and how many of those there are in a batch.
    rows: usize,
    kinds: usize,
    tile: Tile,
    splits: usize,
    split_keys: usize,
}

/// Rows that a workgroup holds, and lines of a tile that it goes through.
#[derive(Clone, Copy)]
struct Tile {
    rows: usize,
    lines: usize,
}

impl Tile {
    fn of(rows: usize) -> Tile {
        Tile { rows, lines: (WIDTH / rows).max(32) }
    }

    fn lanes(&self) -> usize {
        WIDTH / self.rows
    }

    /// Sums that a thread holds of a row this wide, and the columns that are added at a time.
    fn sums(&self, width: usize) -> (usize, usize) {
        let lanes = self.lanes();
        let columns = width.next_multiple_of(lanes).clamp(lanes, 64.max(lanes));
        (width.div_ceil(columns).max(1) * columns / lanes, columns)
    }
}

impl Cut {
    fn of(sizes: &Sizes) -> Cut {
        let folded = sizes.group() * sizes.queries;
        let few = folded <= FEW;
        let (rows, kinds) =
            if few { (folded, sizes.key_heads) } else { (sizes.queries, sizes.heads) };
        let most = if sizes.dims > 256 { 8 } else { 16 };
        let tile = Tile::of(rows.next_power_of_two().clamp(4, most));
        let groups = (sizes.batch * kinds * rows.div_ceil(tile.rows)).max(1);
        let splits = if few { GROUPS.div_ceil(groups) } else { 1 };
        let splits = splits.min(sizes.keys.div_ceil(LEAST_KEYS)).max(1);
        let split_keys = sizes.keys.div_ceil(splits).next_multiple_of(tile.lines).max(1);
        let splits = sizes.keys.div_ceil(split_keys).max(1);
        Cut { rows, kinds, tile, splits, split_keys }
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

fn row_count(sizes: &Sizes) -> usize {
    sizes.batch * sizes.heads * sizes.queries
}

pub(super) fn forward(
    call: &mut GpuCall<'_>,
    spec: &AttentionSpec,
    sizes: &Sizes,
    lse: bool,
) -> Result<()> {
    if row_count(sizes) == 0 || sizes.value_dims == 0 && !lse {
        return Ok(());
    }
    let cut = Cut::of(sizes);
    let values = row_count(sizes) * sizes.value_dims;
    if sizes.keys == 0 {
        let mut text = Text::new(call, spec, sizes, cut.tile, 3);
        text.sinks().write("out", 0).lse(lse).add(ENDED).add(include_str!("nothing.wgsl"));
        return text.launch("nothing", values.div_ceil(WIDTH));
    }
    check_dims(call, sizes)?;
    let mut text = Text::new(call, spec, sizes, cut.tile, 3);
    text.params.kinds = cut.kinds;
    text.params.rows = cut.rows;
    text.params.splits = cut.splits;
    text.params.split_keys = cut.split_keys;
    let groups = sizes.batch * cut.kinds * cut.rows.div_ceil(cut.tile.rows) * cut.splits;
    text.params.groups = groups;
    text.read("q", 0).read("k", 1).read("v", 2).scores().lengths();
    let single = cut.splits == 1;
    if single {
        text.sinks().write("out", 0).lse(lse).add(ENDED);
    } else {
        text.scratch("partials");
    }
    text.check_length().hold("q", sizes.dims).products("k", "q", sizes.dims).sums(
        "v",
        "tile",
        sizes.value_dims,
    );
    text.add(match single {
        true => include_str!("finish_whole.wgsl"),
        false => include_str!("finish_part.wgsl"),
    });
    text.add(include_str!("forward.wgsl"));
    text.launch(if single { "tiled" } else { "decode" }, groups)?;
    if single {
        return Ok(());
    }
    let mut text = Text::new(call, spec, sizes, cut.tile, 3);
    text.params.splits = cut.splits;
    text.scratch("partials").sinks().write("out", 0).lse(lse).add(ENDED);
    text.add(include_str!("merge.wgsl"));
    text.launch("merge", values.div_ceil(WIDTH))
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
    let held = match sizes.dims + sizes.value_dims {
        0..=256 => 16,
        257..=512 => 8,
        _ => 4,
    };
    let (tile, Sizes { dims, value_dims, .. }) = (Tile::of(held), *sizes);
    let inputs = |text: &mut Text<'_, '_>| {
        text.read("q", 0).read("k", 1).read("v", 2).read("dout", 3).scores().row_data();
        text.add(GRADIENT);
    };
    let mut text = Text::new(call, spec, sizes, tile, 6);
    let groups = sizes.batch * sizes.heads * sizes.queries.div_ceil(tile.rows);
    text.params.groups = groups;
    inputs(&mut text);
    text.write("dq", 0).hold("q", dims).hold("dout", value_dims);
    text.products("k", "q", dims).products("v", "dout", value_dims).sums("k", "tile", dims);
    text.add(include_str!("backward_q.wgsl")).launch("backward_q", groups)?;

    let mut text = Text::new(call, spec, sizes, tile, 6);
    let groups = sizes.batch * sizes.key_heads * sizes.keys.div_ceil(tile.rows);
    text.params.groups = groups;
    inputs(&mut text);
    text.write("dk", 1).write("dv", 2).hold("k", dims).hold("v", value_dims);
    text.products("q", "k", dims).products("dout", "v", value_dims);
    text.sums("q", "tile", dims).sums("dout", "p_tile", value_dims);
    text.add(include_str!("backward_kv.wgsl")).launch("backward_kv", groups)
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
    let mut text = Text::new(call, spec, sizes, Tile::of(16), 6);
    let [batch, heads, queries, keys] = sizes.mask;
    text.params.kinds = batch;
    text.params.rows = heads;
    text.params.splits = queries;
    text.params.split_keys = keys;
    text.read("q", 0).read("k", 1).read("v", 2).read("dout", 3).scores().row_data();
    text.write("dmask", 0).add(GRADIENT).add(include_str!("backward_mask.wgsl"));
    text.launch("backward_mask", elements.div_ceil(WIDTH))
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
    call.launch(&Kernel {
        variant: format!("row.{dtype}"),
        source: &|| {
            [
                packed::PACKING,
                &packed::reader("out", 0, dtype),
                &packed::reader("dout", 1, dtype),
                &packed::writer("d", 2, DType::F32),
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
    let mut text = Text::new(call, spec, &same, Tile::of(16), 6);
    text.read("lse", 4).read("d", 5).lengths().row_data();
    text.add(include_str!("rows.wgsl")).launch("rows", row_count(sizes).div_ceil(WIDTH))
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

/// The words of the parameters that differ between kernels.
#[derive(Default)]
struct Params {
    groups: usize,
    kinds: usize,
    rows: usize,
    splits: usize,
    split_keys: usize,
}

/// A kernel's text in the making, with what it binds.
struct Text<'c, 'a> {
    call: &'c mut GpuCall<'a>,
    spec: AttentionSpec,
    sizes: Sizes,
    tile: Tile,
    /// The first optional input.
    optional: usize,
    /// Whether lines are whole words of a packed type, which are read at once.
    whole: bool,
    params: Params,
    /// What the kernel reports.
    site: Option<u32>,
    bindings: Vec<Bind<'static>>,
    /// Buffers and constants.
    head: String,
    /// Functions, behind the common ones.
    body: String,
}

impl<'c, 'a> Text<'c, 'a> {
    fn new(
        call: &'c mut GpuCall<'a>,
        spec: &AttentionSpec,
        sizes: &Sizes,
        tile: Tile,
        optional: usize,
    ) -> Self {
        let (spec, sizes) = (*spec, *sizes);
        let even = |number: usize| number.is_multiple_of(2);
        let lines = if optional == 6 { 4 } else { 3 };
        let whole = packed::per_word(sizes.dtype) == 2
            && even(sizes.dims)
            && even(sizes.value_dims)
            && (0..lines).all(|input| even(call.meta(input).layout.offset));
        let mut text = Text {
            call,
            spec,
            sizes,
            tile,
            optional,
            whole,
            params: Params::default(),
            site: None,
            bindings: Vec::new(),
            head: String::new(),
            body: String::new(),
        };
        let (dims, value_dims) = (sizes.dims.max(1), sizes.value_dims.max(1));
        let Tile { rows, lines } = tile;
        let _ = write!(
            text.head,
            "const D = {dims}u;\nconst DV = {value_dims}u;\nconst R = {rows}u;\n\
             const C = {lines}u;\nconst SUMS_K = {}u;\nconst SUMS_V = {}u;\n\
             const SINKS = {};\n\
             var<workgroup> piece: array<f32, {}>;\n",
            tile.sums(dims).0,
            tile.sums(value_dims).0,
            spec.sinks && optional == 3,
            PIECE + 2 * lines,
        );
        text
    }

    fn add(&mut self, text: &str) -> &mut Self {
        self.body.push_str(text);
        self
    }

    fn bind(&mut self, bind: Bind<'static>, text: impl FnOnce(usize) -> String) -> &mut Self {
        self.head.push_str(&text(self.bindings.len()));
        self.bindings.push(bind);
        self
    }

    fn read(&mut self, name: &str, input: usize) -> &mut Self {
        let dtype = self.call.meta(input).dtype;
        if packed::per_word(dtype) == 2 {
            let widen = format!("wz_widen_{}", dtype.name());
            self.add(&format!(
                "fn {name}_two(i: u32) -> vec2<f32> {{\n\
                 let word = {name}_data[i >> 1u];\n\
                 return vec2<f32>({widen}(word, 0u), {widen}(word, 1u));\n}}\n"
            ));
        }
        self.bind(Bind::Input(input), |binding| packed::reader(name, binding, dtype))
    }

    fn write(&mut self, name: &str, output: usize) -> &mut Self {
        let dtype = self.call.output_meta(output).dtype;
        self.bind(Bind::Output(output), |binding| packed::writer(name, binding, dtype))
    }

    fn scratch(&mut self, name: &str) -> &mut Self {
        self.bind(Bind::Scratch, |binding| packed::writer(name, binding, DType::F32))
    }

    fn row_data(&mut self) -> &mut Self {
        self.bind(Bind::Scratch, |binding| {
            format!(
                "@group(0) @binding({binding}) var<storage, read_write> row_data: \
                 array<vec4<u32>>;\n"
            )
        })
    }

    /// The inputs that are there of mask, sinks, lengths and ends of keys, in their order.
    fn optional(&self) -> [Option<usize>; 4] {
        let there = [
            self.spec.mask != MaskKind::None,
            self.spec.sinks && self.optional == 3,
            self.spec.lengths != Lengths::All,
            self.spec.lengths == Lengths::Sequences,
        ];
        let mut next = self.optional;
        there.map(|there| {
            let input = there.then_some(next);
            next += there as usize;
            input
        })
    }

    /// What scores are made with, the mask among it.
    fn scores(&mut self) -> &mut Self {
        if let Some(input) = self.optional()[0] {
            self.read("mask", input);
        }
        let hidden = match self.spec.mask {
            MaskKind::None => "return bits_of(score);",
            MaskKind::Bool => "return select(bits_of(score), HIDDEN, mask(at) == 0u);",
            // Asked of the mask's own bits: see fast math.
            MaskKind::Additive => {
                "let added = mask(at); let own = bitcast<u32>(added); \
                 if (own == 0xff800000u) { return HIDDEN; } \
                 if (strange(own)) { return 0x7fc00000u; } return bits_of(score + added);"
            }
        };
        let text = format!("fn hidden(score: f32, at: u32) -> u32 {{ {hidden} }}\n");
        self.add(&text).add(include_str!("scores.wgsl"))
    }

    /// `sink(head)`.
    fn sinks(&mut self) -> &mut Self {
        match self.optional()[1] {
            Some(input) => self
                .read("sinks", input)
                .add("fn sink(head: u32) -> f32 { return sinks(p.sinks_offset + head); }\n"),
            None => self.add("fn sink(head: u32) -> f32 { return 0.0; }\n"),
        }
    }

    /// `sees(batch, query)`.
    fn lengths(&mut self) -> &mut Self {
        let [_, _, lengths, key_ends] = self.optional();
        let text = match (lengths, key_ends) {
            (Some(query_ends), Some(key_ends)) => self
                .read("query_ends", query_ends)
                .read("key_ends", key_ends)
                .add(include_str!("sequences.wgsl")),
            (Some(length), None) => self.read("length", length).add(
                "fn sequence(batch: u32, query: u32) -> vec3<u32> {\n\
                 let valid = u32(clamp(length(p.length_offset + batch), 0i, i32(p.keys)));\n\
                 return vec3<u32>(p.queries, 0u, valid);\n}\n",
            ),
            _ => self.add(
                "fn sequence(batch: u32, query: u32) -> vec3<u32> {\n\
                 return vec3<u32>(p.queries, 0u, p.keys);\n}\n",
            ),
        };
        text.add(include_str!("sees.wgsl"))
    }

    /// `check_length(batch)`, which reports a length that there is no room for. Comes last, because it
    /// binds the status words.
    fn check_length(&mut self) -> &mut Self {
        let valid = self.spec.lengths == Lengths::Valid;
        let Some(input) = self.optional()[2].filter(|_| valid) else {
            return self.add("fn check_length(batch: u32) {}\n");
        };
        let binding = self.bindings.len();
        let _ = writeln!(
            self.head,
            "@group(0) @binding({binding}) var<storage, read_write> status: array<atomic<u32>, 4>;"
        );
        self.site = Some(self.call.status_site(input, self.sizes.keys + 1));
        self.add(
            "fn check_length(batch: u32) {\n\
             let own = bitcast<u32>(length(p.length_offset + batch));\n\
             if (own > p.keys && atomicMin(&status[0], p.site) > p.site) {\n\
             atomicStore(&status[1], own);\n}\n}\n",
        )
    }

    /// `lse_set(row, value)`.
    fn lse(&mut self, there: bool) -> &mut Self {
        match there {
            true => self.write("lse", 1),
            false => self.add("fn lse_set(row: u32, value: f32) {}\n"),
        }
    }

    /// `hold_NAME(base, first, end, lid)`: rows from `first` on, as many as are held.
    fn hold(&mut self, name: &str, width: usize) -> &mut Self {
        let rows = self.tile.rows;
        let to = format!("held_{name}");
        let body = copy(name, &to, rows, width, width, width, self.whole);
        self.add(&format!(
            "fn hold_{name}(base: u32, first: u32, end: u32, lid: u32) {{\n\
             let start = 0u;\n{body}}}\n"
        ))
    }

    /// `products_NAME(base, first, end, r, lane, lid)`: of a held row with lines of the array.
    fn products(&mut self, name: &str, held: &str, width: usize) -> &mut Self {
        let lines = self.tile.lines;
        let step = (PIECE / lines).min(width);
        // A column more keeps threads on different banks.
        let pitch = step + 1;
        let body = copy(name, "piece", lines, step, pitch, width, self.whole);
        self.add(&format!(
            "fn products_{name}(base: u32, first: u32, end: u32, r: u32, lane: u32, lid: u32) \
             -> array<f32, PER> {{\n\
             var sums: array<f32, PER>;\n\
             for (var t = 0u; t < PER; t++) {{ sums[t] = 0.0; }}\n\
             for (var start = 0u; start < {width}u; start += {step}u) {{\n{body}\
             workgroupBarrier();\n\
             for (var e = 0u; e < min({step}u, {width}u - start); e++) {{\n\
             let left = held_{held}[r * {width}u + start + e];\n\
             for (var t = 0u; t < PER; t++) {{\n\
             sums[t] += left * piece[(lane + t * LANES) * {pitch}u + e];\n}}\n}}\n\
             workgroupBarrier();\n}}\n\
             return sums;\n}}\n"
        ))
    }

    /// `add_NAME(sums, base, first, end, r, lane, lid)`: lines of the array, each times its element
    /// of a tile.
    fn sums(&mut self, name: &str, tile: &str, width: usize) -> &mut Self {
        let (sums, columns) = self.tile.sums(width);
        let lines = PIECE / 64;
        let each = columns / self.tile.lanes();
        let body = copy(name, "piece", lines, columns, columns, width, self.whole);
        // The lines of the piece follow those before it.
        let body = body.replace("first +", "first + line +");
        self.add(&format!(
            "fn add_{name}(sums: ptr<function, array<f32, {sums}>>, base: u32, first: u32, \
             end: u32, r: u32, lane: u32, lid: u32) {{\n\
             for (var line = 0u; line < C; line += {lines}u) {{\n\
             for (var start = 0u; start < {width}u; start += {columns}u) {{\n{body}\
             workgroupBarrier();\n\
             for (var i = 0u; i < {lines}u; i++) {{\n\
             let bits = {tile}[r * C + line + i];\n\
             if (bits != HIDDEN) {{\n\
             for (var t = 0u; t < {each}u; t++) {{\n\
             (*sums)[start / LANES + t] += \
             bitcast<f32>(bits) * piece[i * {columns}u + lane + t * LANES];\n}}\n}}\n}}\n\
             workgroupBarrier();\n}}\n}}\n}}\n"
        ))
    }

    fn launch(&mut self, variant: &str, groups: usize) -> Result<()> {
        let Sizes {
            batch,
            heads,
            key_heads,
            queries,
            keys,
            dims,
            value_dims,
            dtype,
            sequences,
            ..
        } = self.sizes;
        let optional = self.optional();
        let offset = |input: Option<usize>| {
            input.map_or(0, |input| self.call.meta(input).layout.offset as u32)
        };
        let backward = self.optional == 6;
        let given = |input: usize| offset(backward.then_some(input));
        let strides = self.sizes.mask_strides();
        let Params { groups: all, kinds, rows, splits, split_keys } = self.params;
        let sizes = [all, batch, heads, key_heads, queries, keys, kinds, rows, splits, split_keys];
        let mut params: Vec<u32> = sizes.iter().map(|&size| size as u32).collect();
        params.push((self.spec.scale as f32).to_bits());
        params.push((self.spec.softcap.unwrap_or(0.0) as f32).to_bits());
        params.push(self.spec.causal as u32);
        params.push(self.spec.window.map_or(0, |window| window.min(keys + queries) as u32));
        params.extend([offset(Some(0)), offset(Some(1)), offset(Some(2))]);
        params.extend([given(3), given(4), given(5)]);
        params.extend([optional[0], optional[1], optional[2]].map(offset));
        params.extend(strides.map(|stride| stride as u32));
        params.extend([self.site.unwrap_or_default(), sequences as u32, offset(optional[3])]);
        let spec = &self.spec;
        let (head, body, tile) = (&self.head, &self.body, self.tile);
        let kernel = Kernel {
            variant: format!(
                "{variant}/{dtype}{}/{dims}x{value_dims}/{}/{:?}/{}/{:?}/{}",
                if self.whole { " pairs" } else { "" },
                tile.rows,
                spec.mask,
                spec.sinks,
                spec.lengths,
                self.bindings.len()
            ),
            source: &|| [packed::PACKING, MATH, head, COMMON, body].concat(),
            bindings: &self.bindings,
            params: &params,
            groups: grid(groups),
        };
        match self.site {
            Some(_) => self.call.launch_with_status(&kernel),
            None => self.call.launch(&kernel),
        }
    }
}

/// Text that copies lines `first..end` of an array of lines of `width`, columns from `start` on, to
/// workgroup memory: `lines × columns` at a pitch, zeros where there is nothing. Pairs of columns are
/// copied at once if they are `whole` words.
fn copy(
    name: &str,
    to: &str,
    lines: usize,
    columns: usize,
    pitch: usize,
    width: usize,
    whole: bool,
) -> String {
    let size = lines * columns;
    let (span, load) = if whole { (2, format!("{name}_two")) } else { (1, name.to_string()) };
    let store = |to: &str| match whole {
        true => format!("{to} = value.x;\n{} = value.y;", to.replace("at]", "at + 1u]")),
        false => format!("{to} = value;"),
    };
    let zero = if whole { "vec2<f32>(0.0)" } else { "0.0" };
    format!(
        "for (var i = lid * {span}u; i < {size}u; i += WIDTH * {span}u) {{\n\
         let own = first + i / {columns}u;\n\
         let column = start + i % {columns}u;\n\
         var value = {zero};\n\
         if (own < end && column < {width}u) {{ value = {load}(base + own * {width}u + column); }}\n\
         let at = i / {columns}u * {pitch}u + i % {columns}u;\n\
         {}\n}}\n",
        store(&format!("{to}[at]"))
    )
}
