//! The texts of attention's kernels on the GPU, put together from functions for what is read and how tiles are
//! multiplied.

use std::fmt::Write;

use super::cooperative::Matrices;
use super::spec::{AttentionSpec, Lengths, MaskKind, QUANTIZED, Sizes};
use crate::array::DType;
use crate::error::Result;
use crate::gpu::{Bind, GpuCall, Kernel, MATH, grid, packed};
use crate::quant::Scheme;

const COMMON: &str = include_str!("common.wgsl");
const LENGTHS_FIT: &str = include_str!("lengths_fit.wgsl");
const ENDS_FIT: &str = include_str!("ends_fit.wgsl");
/// Threads of a workgroup.
pub(super) const WIDTH: usize = 256;

/// Numbers of the piece of a tile that is in workgroup memory at a time.
const PIECE: usize = 2048;

/// Rows that a workgroup holds, and lines of a tile that it goes through.
#[derive(Clone, Copy)]
pub(super) struct Tile {
    pub(super) rows: usize,
    pub(super) lines: usize,
    /// Where products are made of cooperative matrices.
    pub(super) matrices: Option<Matrices>,
}

impl Tile {
    pub(super) fn of(rows: usize) -> Tile {
        Tile { rows, lines: (WIDTH / rows).max(32), matrices: None }
    }

    pub(super) fn lanes(&self) -> usize {
        WIDTH / self.rows
    }

    /// Sums that a thread holds of a row this wide, and the columns that are added at a time.
    pub(super) fn sums(&self, width: usize) -> (usize, usize) {
        let lanes = self.lanes();
        if let Some(matrices) = &self.matrices {
            let (columns, pieces) = matrices.columns(self.rows, width);
            return (columns * pieces / lanes, columns);
        }
        let columns = width.next_multiple_of(lanes).clamp(lanes, 64.max(lanes));
        (width.div_ceil(columns).max(1) * columns / lanes, columns)
    }
}

/// The inputs that a kernel has before the optional ones.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Inputs {
    /// `q`, `k` and `v`.
    Forward,
    /// `q`, and codes, scales and biases of `k` and of `v`.
    Coded([Scheme; 2]),
    /// Those of the forward, the output's gradient, the log-sum-exps and the sums of rows.
    Backward,
}

impl Inputs {
    pub(super) fn count(self) -> usize {
        match self {
            Inputs::Forward => 3,
            Inputs::Coded(_) => QUANTIZED,
            Inputs::Backward => 6,
        }
    }
}

/// The words of the parameters that differ between kernels.
#[derive(Default)]
pub(super) struct Params {
    pub(super) groups: usize,
    pub(super) kinds: usize,
    pub(super) rows: usize,
    pub(super) splits: usize,
    pub(super) split_keys: usize,
}

/// A kernel's text in the making, with what it binds.
pub(super) struct Text<'c, 'a> {
    call: &'c mut GpuCall<'a>,
    spec: AttentionSpec,
    sizes: Sizes,
    tile: Tile,
    inputs: Inputs,
    /// Whether lines are whole words of a packed type, which are read at once.
    whole: bool,
    pub(super) params: Params,
    /// What the kernel reports.
    site: Option<u32>,
    bindings: Vec<Bind<'static>>,
    /// Buffers and constants.
    head: String,
    /// Functions, behind the common ones.
    body: String,
}

impl<'c, 'a> Text<'c, 'a> {
    pub(super) fn new(
        call: &'c mut GpuCall<'a>,
        spec: &AttentionSpec,
        sizes: &Sizes,
        tile: Tile,
        inputs: Inputs,
    ) -> Self {
        let (spec, sizes) = (*spec, *sizes);
        let even = |number: usize| number.is_multiple_of(2);
        let lines = match inputs {
            Inputs::Forward => 3,
            Inputs::Coded(_) => 1,
            Inputs::Backward => 4,
        };
        let whole = packed::per_word(sizes.dtype) == 2
            && even(sizes.dims)
            && even(sizes.value_dims)
            && (0..lines).all(|input| even(call.meta(input).layout.offset));
        let mut text = Text {
            call,
            spec,
            sizes,
            tile,
            inputs,
            whole,
            params: Params::default(),
            site: None,
            bindings: Vec::new(),
            head: String::new(),
            body: String::new(),
        };
        let (dims, value_dims) = (sizes.dims.max(1), sizes.value_dims.max(1));
        let Tile { rows, lines, .. } = tile;
        let _ = write!(
            text.head,
            "const D = {dims}u;\nconst DV = {value_dims}u;\nconst R = {rows}u;\n\
             const LINES = {lines}u;\nconst SUMS_K = {}u;\nconst SUMS_V = {}u;\n\
             const SINKS = {};\n{}",
            tile.sums(dims).0,
            tile.sums(value_dims).0,
            spec.sinks && inputs != Inputs::Backward,
            match &tile.matrices {
                Some(matrices) => matrices.head(&tile),
                // Subgroups do not matter.
                None => format!(
                    "const PITCH = LINES;\nconst subgroup = 0u;\n\
                     var<workgroup> piece: array<f32, {}>;\n",
                    PIECE + 2 * lines
                ),
            },
        );
        text
    }

    pub(super) fn add(&mut self, text: &str) -> &mut Self {
        self.body.push_str(text);
        self
    }

    fn bind(&mut self, bind: Bind<'static>, text: impl FnOnce(usize) -> String) -> &mut Self {
        self.head.push_str(&text(self.bindings.len()));
        self.bindings.push(bind);
        self
    }

    pub(super) fn read(&mut self, name: &str, input: usize) -> &mut Self {
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

    /// `k` and `v`, and where they begin.
    pub(super) fn keys_and_values(&mut self) -> &mut Self {
        let starts = match self.inputs {
            Inputs::Coded([keys, values]) => {
                self.coded("k", 1, keys).coded("v", 4, values);
                // Functions that decode know about offsets.
                ["0u"; 2]
            }
            _ => {
                self.read("k", 1).read("v", 2);
                ["p.k_offset", "p.v_offset"]
            }
        };
        let [k, v] = starts;
        self.add(&format!(
            "fn k_start() -> u32 {{ return {k}; }}\nfn v_start() -> u32 {{ return {v}; }}\n"
        ))
    }

    /// `NAME_four(i)` of an array whose codes, scales and biases are three inputs.
    fn coded(&mut self, name: &str, input: usize, scheme: Scheme) -> &mut Self {
        let codes = format!("{name}_codes");
        self.bind(Bind::Input(input), |binding| packed::reader(&codes, binding, DType::U32));
        self.read(&format!("{name}_scales"), input + 1);
        self.read(&format!("{name}_biases"), input + 2);
        let (bits, group) = (scheme.bits().unwrap_or(8), scheme.group_size().unwrap_or(32));
        let _ = write!(self.head, "const {name}_BITS = {bits}u;\nconst {name}_GROUP = {group}u;\n");
        // The parameters of the backward's arrays are theirs.
        let [scales, biases] = match name {
            "k" => ["p.dout_offset", "p.lse_offset"],
            _ => ["p.d_offset", "p.last_offset"],
        };
        self.add(&format!(
            "fn {name}(i: u32) -> f32 {{ return {name}_four(i / 4u * 4u)[i % 4u]; }}\n"
        ));
        let text = include_str!("../../quant/affine_four.wgsl").replace("NAME", name);
        self.add(&text.replace("SCALES_AT", scales).replace("BIASES_AT", biases))
    }

    /// How an array is read.
    fn load(&self, name: &str) -> Load {
        let coded = matches!(self.inputs, Inputs::Coded(_)) && matches!(name, "k" | "v");
        let (span, function) = match self.whole {
            _ if coded => (4, format!("{name}_four")),
            true => (2, format!("{name}_two")),
            false => (1, name.to_string()),
        };
        Load { name: name.to_string(), span, function }
    }

    pub(super) fn write(&mut self, name: &str, output: usize) -> &mut Self {
        let dtype = self.call.output_meta(output).dtype;
        self.bind(Bind::Output(output), |binding| packed::writer(name, binding, dtype))
    }

    /// `store(i, part, values)`: `SPAN` elements of an output from `i` on, where rows have so many; tells how.
    pub(super) fn write_spans(&mut self, name: &str, output: usize, row: usize) -> &'static str {
        let dtype = self.call.output_meta(output).dtype;
        let head = "fn store(i: u32, part: u32, values: vec2<f32>) {";
        if packed::per_word(dtype) != 2 || !row.is_multiple_of(2) {
            self.add(&format!("const SPAN = 1u;\n{head} {name}_set(i, values.x); }}\n"));
            self.write(name, output);
            return "whole";
        }
        let [low, high] = ["x", "y"].map(|part| packed::narrow(dtype, &format!("values.{part}")));
        let word = format!("{low} | ({high} << 16u)");
        self.add(&format!("const SPAN = 2u;\n{head} {name}_data[i / 2u] = {word}; }}\n"));
        self.bind(Bind::Output(output), |binding| packed::word_writer(name, binding, dtype));
        "pairs"
    }

    /// `NAME_rows(row, live, own, lane, lid)`: rows of an output, of which each thread has columns `LANES` apart.
    /// All threads call it when no piece is in use: there words of packed types are put together.
    pub(super) fn write_rows(&mut self, name: &str, output: usize, width: usize) -> &mut Self {
        let dtype = self.call.output_meta(output).dtype;
        let sums = self.tile.sums(width).0;
        let function = format!(
            "fn {name}_rows(row: u32, live: bool, own: ptr<function, array<f32, {sums}>>, \
             lane: u32, lid: u32) {{\n\
             for (var i = 0u; i < {sums}u; i++) {{\n\
             let column = lane + i * LANES;\n"
        );
        if !self.whole || packed::per_word(dtype) != 2 {
            self.add(&format!(
                "{function}\
                 if (live && column < {width}u) {{ {name}_set(row * {width}u + column, (*own)[i]); }}\n}}\n}}\n"
            ));
            return self.write(name, output);
        }
        let [low, high] = [0, 1].map(|i| packed::narrow(dtype, &format!("piece[lid + {i}u]")));
        self.add(&format!(
            "{function}\
             piece[lid] = (*own)[i];\n\
             workgroupBarrier();\n\
             if (live && lane % 2u == 0u && column < {width}u) {{\n\
             {name}_data[(row * {width}u + column) / 2u] = {low} | ({high} << 16u);\n}}\n\
             workgroupBarrier();\n}}\n}}\n"
        ));
        self.bind(Bind::Output(output), |binding| packed::word_writer(name, binding, dtype))
    }

    pub(super) fn scratch(&mut self, name: &str) -> &mut Self {
        self.bind(Bind::Scratch, |binding| packed::writer(name, binding, DType::F32))
    }

    pub(super) fn row_data(&mut self) -> &mut Self {
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
            self.spec.sinks && self.inputs != Inputs::Backward,
            self.spec.lengths != Lengths::All,
            self.spec.lengths == Lengths::Sequences,
        ];
        let mut next = self.inputs.count();
        there.map(|there| {
            let input = there.then_some(next);
            next += there as usize;
            input
        })
    }

    /// What scores are made with, the mask among it.
    pub(super) fn scores(&mut self) -> &mut Self {
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
        self.add(&text).add(include_str!("scores.wgsl"));
        let masked = match self.spec.mask {
            MaskKind::None => return self.add(include_str!("unmasked.wgsl")),
            MaskKind::Bool => "return mask(at) == 0u;",
            MaskKind::Additive => "return bitcast<u32>(mask(at)) == 0xff800000u;",
        };
        self.add(&format!("fn masked(at: u32) -> bool {{ {masked} }}\n"))
            .add(include_str!("masked.wgsl"))
    }

    /// `sink(head)`.
    pub(super) fn sinks(&mut self) -> &mut Self {
        match self.optional()[1] {
            Some(input) => self
                .read("sinks", input)
                .add("fn sink(head: u32) -> f32 { return sinks(p.sinks_offset + head); }\n"),
            None => self.add("fn sink(head: u32) -> f32 { return 0.0; }\n"),
        }
    }

    /// `sees(batch, query)`.
    pub(super) fn lengths(&mut self) -> &mut Self {
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

    /// `lengths_fit()`: whether lengths and ends are right; without it nothing is written.
    pub(super) fn lengths_fit(&mut self) -> &mut Self {
        let [_, _, lengths, key_ends] = self.optional();
        match (lengths, key_ends) {
            (Some(query_ends), Some(key_ends)) => {
                self.read("query_ends", query_ends).read("key_ends", key_ends).add(ENDS_FIT)
            }
            (Some(length), None) => self.read("length", length).add(LENGTHS_FIT),
            _ => self.add("fn lengths_fit() -> bool { return true; }\n"),
        }
    }

    /// `lengths_fit()` and `report_length(batch)`, which reports a length that there is no room for and ends
    /// that are not in order. Comes last and behind `lengths`, because it binds the status words.
    pub(super) fn reports_length(&mut self) -> &mut Self {
        let [_, _, lengths, key_ends] = self.optional();
        let Some(lengths) = lengths else {
            return self.add(
                "fn lengths_fit() -> bool { return true; }\nfn report_length(batch: u32) {}\n",
            );
        };
        let binding = self.bindings.len();
        let _ = writeln!(
            self.head,
            "@group(0) @binding({binding}) var<storage, read_write> status: array<atomic<u32>, 4>;"
        );
        let Sizes { queries, keys, .. } = self.sizes;
        let Some(key_ends) = key_ends else {
            self.site = Some(self.call.status_site(lengths, keys + 1));
            return self.add(LENGTHS_FIT).add(include_str!("report_length.wgsl"));
        };
        // The next site is that of the keys.
        let mut site = |input: usize, length: usize| {
            self.call.status_site_of(input, format!("ends in order from 0 to {length}"))
        };
        let first = site(lengths, queries);
        site(key_ends, keys);
        self.site = Some(first);
        self.add(ENDS_FIT).add(include_str!("report_ends.wgsl"))
    }

    /// `lse_set(row, value)`.
    pub(super) fn lse(&mut self, there: bool) -> &mut Self {
        match there {
            true => self.write("lse", 1),
            false => self.add("fn lse_set(row: u32, value: f32) {}\n"),
        }
    }

    /// `NAME_bits(r, c)` and `NAME_set(r, c, bits)`: a tile of scores or weights. Matrices take weights as
    /// what they are.
    pub(super) fn tile(&mut self, name: &str) -> &mut Self {
        let (kind, from, to) = match self.tile.matrices {
            Some(_) => ("f32", "bitcast<u32>", "bitcast<f32>"),
            None => ("u32", "", ""),
        };
        self.add(&format!(
            "var<workgroup> {name}: array<{kind}, R * PITCH>;\n\
             fn {name}_bits(r: u32, c: u32) -> u32 {{ return {from}({name}[r * PITCH + c]); }}\n\
             fn {name}_set(r: u32, c: u32, bits: u32) {{ {name}[r * PITCH + c] = {to}(bits); }}\n"
        ))
    }

    /// `hold_NAME(base, first, end, lid)`: rows from `first` on, as many as are held.
    pub(super) fn hold(&mut self, name: &str, width: usize) -> &mut Self {
        let (rows, matrices) = (self.tile.rows, self.tile.matrices);
        let pitch = matrices.map_or(width, |matrices| matrices.pitch(width));
        let kind = matrices.map_or("f32", |matrices| matrices.factor());
        let clear = if matrices.is_some() { "clear(lid);\n" } else { "" };
        let to = format!("held_{name}");
        let body = self.load(name).copy(&to, rows, width, pitch, width, kind);
        self.add(&format!(
            "var<workgroup> {to}: array<{kind}, {}>;\n\
             fn hold_{name}(base: u32, first: u32, end: u32, lid: u32) {{\n\
             let start = 0u;\n{clear}{body}}}\n",
            rows * pitch
        ))
    }

    /// `products_NAME(base, first, end, r, lane, lid, subgroup)`: of a held row with lines of the array.
    pub(super) fn products(&mut self, name: &str, held: &str, width: usize) -> &mut Self {
        let (lines, load) = (self.tile.lines, self.load(name));
        if let Some(matrices) = self.tile.matrices {
            let text = matrices.products(&self.tile, &load, held, width);
            return self.add(&text);
        }
        let step = (PIECE / lines).min(width);
        // A column more keeps threads on different banks.
        let pitch = step + 1;
        let body = load.copy("piece", lines, step, pitch, width, "f32");
        self.add(&format!(
            "fn products_{name}(base: u32, first: u32, end: u32, r: u32, lane: u32, lid: u32, \
             subgroup: u32) -> array<f32, PER> {{\n\
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

    /// `add_NAME(sums, base, first, end, r, lane, lid, subgroup)`: lines of the array, each times its
    /// weight in a tile; `none_NAME()`: the sums of no lines; and
    /// `columns_NAME(sums, r, lane, subgroup)`: those of a thread, from column `lane` on, `LANES` apart.
    pub(super) fn sums(&mut self, name: &str, tile: &str, width: usize) -> &mut Self {
        let ((sums, columns), load) = (self.tile.sums(width), self.load(name));
        if let Some(matrices) = self.tile.matrices {
            let text = matrices.sums(&self.tile, &load, tile, width);
            return self.add(&text);
        }
        let lines = PIECE / 64;
        let each = columns / self.tile.lanes();
        let body = load.copy("piece", lines, columns, columns, width, "f32");
        // The lines of the piece follow those before it.
        let body = body.replace("first +", "first + line +");
        self.add(&format!(
            "fn none_{name}() -> array<f32, {sums}> {{\n\
             var none: array<f32, {sums}>;\n\
             for (var i = 0u; i < {sums}u; i++) {{ none[i] = 0.0; }}\n\
             return none;\n}}\n\
             fn add_{name}(sums: ptr<function, array<f32, {sums}>>, base: u32, first: u32, \
             end: u32, r: u32, lane: u32, lid: u32, subgroup: u32) {{\n\
             for (var line = 0u; line < LINES; line += {lines}u) {{\n\
             for (var start = 0u; start < {width}u; start += {columns}u) {{\n{body}\
             workgroupBarrier();\n\
             for (var i = 0u; i < {lines}u; i++) {{\n\
             let bits = {tile}_bits(r, line + i);\n\
             if (bits != ABSENT) {{\n\
             for (var t = 0u; t < {each}u; t++) {{\n\
             (*sums)[start / LANES + t] += \
             bitcast<f32>(bits) * piece[i * {columns}u + lane + t * LANES];\n}}\n}}\n}}\n\
             workgroupBarrier();\n}}\n}}\n}}\n\
             fn columns_{name}(sums: ptr<function, array<f32, {sums}>>, r: u32, lane: u32, \
             subgroup: u32) -> array<f32, {sums}> {{ return *sums; }}\n"
        ))
    }

    /// `raised(most, top)`: what powers are taken against when `top` is the largest score; and
    /// `shrink_NAME(sums, factor, r, lane, lid, subgroup)` for sums that were against less.
    pub(super) fn shrink(&mut self, name: &str, width: usize) -> &mut Self {
        let text = match self.tile.matrices {
            Some(matrices) => matrices.shrink(&self.tile, name, width),
            None => format!(
                "fn raised(most: f32, top: f32) -> f32 {{ return top; }}\n\
                 fn shrink_{name}(sums: ptr<function, array<f32, {count}>>, factor: f32, r: u32, \
                 lane: u32, lid: u32, subgroup: u32) {{\n\
                 for (var i = 0u; i < {count}u; i++) {{ (*sums)[i] *= factor; }}\n}}\n",
                count = self.tile.sums(width).0
            ),
        };
        self.add(&text)
    }

    pub(super) fn launch(&mut self, variant: &str, groups: usize) -> Result<()> {
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
        // Of the backward; or of scales and biases, in their order.
        let (others, last) = match self.inputs {
            Inputs::Forward => ([None; 3], None),
            Inputs::Coded(_) => ([Some(2), Some(3), Some(5)], Some(6)),
            Inputs::Backward => ([Some(3), Some(4), Some(5)], None),
        };
        let v = if matches!(self.inputs, Inputs::Coded(_)) { 4 } else { 2 };
        let strides = self.sizes.mask_strides();
        let Params { groups: all, kinds, rows, splits, split_keys } = self.params;
        let sizes = [all, batch, heads, key_heads, queries, keys, kinds, rows, splits, split_keys];
        let mut params: Vec<u32> = sizes.iter().map(|&size| size as u32).collect();
        params.push((self.spec.scale as f32).to_bits());
        params.push((self.spec.softcap.unwrap_or(0.0) as f32).to_bits());
        params.push(self.spec.causal as u32);
        params.push(self.spec.window.map_or(0, |window| window.min(keys + queries) as u32));
        params.extend([offset(Some(0)), offset(Some(1)), offset(Some(v))]);
        params.extend(others.map(offset));
        params.extend([optional[0], optional[1], optional[2]].map(offset));
        params.extend(strides.map(|stride| stride as u32));
        params.extend([self.site.unwrap_or_default(), sequences as u32, offset(optional[3])]);
        params.push(offset(last));
        let coded = match self.inputs {
            Inputs::Coded([keys, values]) => {
                let [k, v] = [2, 5].map(|scales| self.call.meta(scales).dtype);
                format!("/{keys}, {k}/{values}, {v}")
            }
            _ => String::new(),
        };
        let spec = &self.spec;
        let (head, body, tile) = (&self.head, &self.body, self.tile);
        let (extensions, subgroup, way) = match &tile.matrices {
            Some(matrices) => (
                matrices.extensions(),
                "@builtin(subgroup_id) subgroup: u32,",
                format!("cooperative/{}/", matrices.factor()),
            ),
            None => ("", "", String::new()),
        };
        let kernel = Kernel {
            variant: format!(
                "{way}{variant}/{dtype}{}/{dims}x{value_dims}/{}/{:?}/{}/{:?}/{}{coded}",
                if self.whole { " pairs" } else { "" },
                tile.rows,
                spec.mask,
                spec.sinks,
                spec.lengths,
                self.bindings.len()
            ),
            source: &|| {
                let body = body.replace("// MORE", subgroup);
                [extensions, packed::PACKING, MATH, head, COMMON, &body].concat()
            },
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

/// How an array is read.
pub(super) struct Load {
    pub(super) name: String,
    /// Elements at once, and the function that gives them.
    span: usize,
    function: String,
}

impl Load {
    /// Text that copies lines `first..end` of an array of lines of `width`, columns from `start` on, to
    /// workgroup memory: `lines × columns` at a pitch, zeros where there is nothing. Each goes through
    /// `kind`, a type or a function.
    pub(super) fn copy(
        &self,
        to: &str,
        lines: usize,
        columns: usize,
        pitch: usize,
        width: usize,
        kind: &str,
    ) -> String {
        let (size, span, load) = (lines * columns, self.span, &self.function);
        let (zero, store) = match span {
            1 => ("0.0".to_string(), format!("{to}[at] = {kind}(value);")),
            _ => {
                let each = (0..span).map(|i| format!("{to}[at + {i}u] = {kind}(value[{i}]);"));
                (format!("vec{span}<f32>(0.0)"), each.collect::<Vec<_>>().join("\n"))
            }
        };
        format!(
            "for (var i = lid * {span}u; i < {size}u; i += WIDTH * {span}u) {{\n\
             let own = first + i / {columns}u;\n\
             let column = start + i % {columns}u;\n\
             var value = {zero};\n\
             if (own < end && column < {width}u) {{ \
             value = {load}(base + own * {width}u + column); }}\n\
             let at = i / {columns}u * {pitch}u + i % {columns}u;\n\
             {store}\n}}\n"
        )
    }
}
