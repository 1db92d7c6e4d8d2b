//! Rotary encoding on the GPU: one kernel, whose threads find an angle once for several heads.

use super::{Positions, Rope, Sizes};
use crate::array::DType;
use crate::error::Result;
use crate::gpu::{Bind, GpuCall, Kernel, MATH, grid, packed};

/// How far pairs are turned, and moving the features of a head.
pub(super) const TURN: &str = include_str!("turn.wgsl");
pub(super) const ITEM: &str = include_str!("item.wgsl");
/// Threads of a workgroup.
const WIDTH: usize = 64;
/// Heads that share an angle at most, and threads below which there are better more of them.
const MOST_HEADS: usize = 8;
const FEW_THREADS: usize = 1 << 14;

pub(super) fn rotate(call: &mut GpuCall<'_>, rope: &Rope) -> Result<()> {
    let sizes = Sizes::of(rope, &call.input_metas().collect::<Vec<_>>());
    let dtype = call.output_meta(0).dtype;
    let per_word = packed::per_word(dtype);
    // Of types that share words a thread takes what makes whole ones.
    let pairs = if rope.traditional { 1 } else { per_word };
    let whole = per_word == 1
        || sizes.features.is_multiple_of(2) && (rope.traditional || sizes.half.is_multiple_of(2));
    let copied = (sizes.features - rope.dims).div_ceil(per_word);
    let items = sizes.half.div_ceil(pairs) + copied;
    let (groups, group_heads) = sizes.groups();
    let at_one_head = groups * group_heads * sizes.length * items;
    let heads_per_thread = (at_one_head / FEW_THREADS).clamp(1, MOST_HEADS).min(group_heads);
    let head_blocks = group_heads.div_ceil(heads_per_thread);
    let threads = groups * head_blocks * sizes.length * items;
    let x = &call.meta(0).layout;
    let given = (rope.positions.inputs() > 0).then(|| call.meta(2));
    // Positions or offsets of a batch along an axis.
    let position_row = if rope.positions == Positions::Given { sizes.length } else { 1 };
    // Strides may be negative: sums of words wrap.
    let words = |number: usize| number as u32;
    let params = [
        words(threads),
        words(items),
        words(copied),
        words(sizes.heads),
        words(sizes.length),
        words(sizes.features),
        words(sizes.half),
        words(group_heads),
        words(head_blocks),
        words(heads_per_thread),
        words(x.offset),
        x.strides[0] as u32,
        x.strides[1] as u32,
        x.strides[2] as u32,
        words(call.meta(1).layout.offset),
        words(call.meta(1).shape()[0]),
        words(given.map_or(0, |given| given.layout.offset)),
        words(if groups == 1 { 0 } else { position_row }),
        words(sizes.position_batches * position_row),
        rope.positions.start().to_bits(),
        (rope.scale as f32).to_bits(),
        (rope.amplitude as f32).to_bits(),
        (if rope.inverse { -1.0f32 } else { 1.0 }).to_bits(),
    ];
    let aliased = call.aliased(0);
    // Whether pairs of neighbours are words of what is read, too.
    let even = |number: isize| number % 2 == 0;
    let whole_source = per_word > 1
        && whole
        && even(x.offset as isize)
        && x.strides[..3].iter().all(|&stride| even(stride));
    let mut bindings = vec![Bind::Output(0), Bind::Input(1)];
    bindings.extend(given.map(|_| Bind::Input(2)));
    if !aliased {
        bindings.push(Bind::Input(0));
    }
    let kind = (rope.positions, given.map(|given| given.dtype));
    let kind_name = match rope.positions {
        Positions::From(_) => "from",
        Positions::Offset => "offset",
        Positions::Given => "given",
    };
    let source = || {
        let mut source = [packed::PACKING, MATH].concat();
        source.push_str(&output(0, dtype, whole));
        source.push_str(&packed::reader("frequencies", 1, DType::F32));
        source.push_str(&position(2, kind));
        source.push_str(&match (aliased, whole) {
            (true, true) => packed::load_function("x", "out_data", dtype),
            (true, false) => packed::load_written("x", "out", dtype),
            (false, _) => packed::reader("x", 2 + given.is_some() as usize, dtype),
        });
        let data = if aliased { "out_data" } else { "x_data" };
        source.push_str(&neighbours(dtype, data, whole_source));
        source.push_str(&format!(
            "const TRADITIONAL = {};\nconst PAIRS = {pairs}u;\nconst PER_WORD = {per_word}u;\n",
            rope.traditional
        ));
        let both =
            [TURN, ITEM].concat().replace("HALF", "p.half").replace("FEATURES", "p.features");
        source.push_str(&both.replace("AXES", "p.axes").replace("SINE_SIGN", "p.sine_sign"));
        source + include_str!("rotate.wgsl")
    };
    call.launch(&Kernel {
        variant: format!(
            "rotate {dtype} {whole} {whole_source} {aliased} {} {kind_name} {:?}",
            rope.traditional, kind.1
        ),
        source: &source,
        bindings: &bindings,
        params: &params,
        groups: grid(threads.div_ceil(WIDTH)),
    })
}

/// Declares the output with `put(i, value)`, and `put2(i, values)` for it and the next element,
/// which are a word if words are `whole`.
pub(super) fn output(binding: usize, dtype: DType, whole: bool) -> String {
    let single = packed::per_word(dtype) == 1;
    let mut text = match whole {
        true => packed::word_writer("out", binding, dtype),
        false => packed::writer("out", binding, dtype),
    };
    let (put, put2) = match (single, whole) {
        (true, _) => ("out_data[i] = value;".into(), "put(i, values.x); put(i + 1u, values.y);"),
        (false, false) => ("out_set(i, value);".into(), "put(i, values.x); put(i + 1u, values.y);"),
        // No thread has less than a word.
        (false, true) => (
            format!("out_data[i >> 1u] = {};", packed::narrow(dtype, "value")),
            "out_data[i >> 1u] = NARROW(values.x) | (NARROW(values.y) << 16u);",
        ),
    };
    let put2 = put2.replace("NARROW", &format!("wz_narrow_{}", dtype.name()));
    text.push_str(&format!(
        "fn put(i: u32, value: f32) {{ {put} }}\nfn put2(i: u32, values: vec2f) {{ {put2} }}\n"
    ));
    text
}

/// `x2(i)`: element `i` of the array `data` and the next, which are a word if words are `whole`.
pub(super) fn neighbours(dtype: DType, data: &str, whole: bool) -> String {
    let body = match whole {
        false => "return vec2f(x(i), x(i + 1u));".to_string(),
        true => {
            let widen = format!("wz_widen_{}", dtype.name());
            format!(
                "let word = {data}[i >> 1u]; return vec2f({widen}(word, 0u), {widen}(word, 1u));"
            )
        }
    };
    format!("fn x2(i: u32) -> vec2f {{ {body} }}\n")
}

/// Declares the position of a row along an axis, and the array it comes from.
pub(super) fn position(binding: usize, (positions, dtype): (Positions, Option<DType>)) -> String {
    let mut text = String::new();
    let mut given = String::new();
    if let Some(dtype) = dtype {
        text.push_str(&packed::reader("positions", binding, dtype));
        let place = match positions {
            Positions::Given => "+ axis * p.positions_axis + row",
            _ => "",
        };
        let load = format!("positions(p.positions_offset + group * p.positions_batch {place})");
        given = packed::convert(dtype.class(), DType::F32, &load);
    }
    let value = match positions {
        Positions::From(_) => "f32(row) + p.start".to_string(),
        Positions::Offset => format!("f32(row) + {given}"),
        Positions::Given => given,
    };
    text + &format!("fn position(axis: u32, group: u32, row: u32) -> f32 {{ return {value}; }}\n")
}
