//! Reductions on a GPU. The order of combination depends on the number of reduced elements only:
//! see `lanes.wgsl`. Strides are parameters, so that no layout is copied first.

use std::fmt::Write;

use super::cpu::Plan;
use crate::array::{Class, DType, Meta, Shape, Strides};
use crate::error::{Error, Result};
use crate::gpu::{Bind, COMPLEX, GpuCall, Kernel, MATH, MAX_PARAMS, grid, packed};

/// Reduced elements of one workgroup's part; longer reductions take a second pass.
const BLOCK: usize = 4096;
/// Up to this many elements one thread does all.
const FEW: usize = 32;

/// What a reduction computes, in WGSL: the type `Acc` and the functions on it.
pub(super) struct Wgsl {
    /// Declares `Acc` (or names it), given the type elements are computed in.
    pub(super) acc: fn(value: &str) -> String,
    /// An accumulator from element `v` at reduced index `i`.
    pub(super) element: fn(Class) -> String,
    /// Combines accumulators `a` and `b`, of which `a` comes first: a function body.
    pub(super) combine: fn(Class) -> String,
    /// The result of combining nothing.
    pub(super) identity: &'static str,
    /// The result from accumulator `a`, and if it is scaled from `scale`.
    pub(super) finish: &'static str,
    /// Whether the result is scaled.
    pub(super) scaled: bool,
    /// Bytes of an accumulator.
    pub(super) size: fn(Class) -> usize,
}

/// Bytes for the results of blocks, if there is more than one.
pub(super) fn scratch(wgsl: &Wgsl, input: &Meta, axes: &[usize]) -> usize {
    let plan = Plan::new(&input.layout, axes);
    match plan.length.div_ceil(BLOCK) {
        0 | 1 => 0,
        blocks => plan.outputs * blocks * (wgsl.size)(input.dtype.class()),
    }
}

/// Records the reduction of the call's input over `axes`.
pub(super) fn run(wgsl: &Wgsl, call: &mut GpuCall<'_>, axes: &[usize], scale: f32) -> Result<()> {
    let input = call.meta(0);
    let plan = Plan::new(&input.layout, axes);
    if plan.outputs == 0 {
        return Ok(());
    }
    let blocks = plan.length.div_ceil(BLOCK).max(1);
    let mut pass = Pass {
        wgsl,
        scale,
        dtype: input.dtype,
        output: call.output_meta(0).dtype,
        from_scratch: false,
        to_scratch: blocks > 1,
        kept: plan.kept,
        reduced: plan.reduced,
        column: plan.column,
        outputs: plan.outputs,
        length: plan.length,
        offset: input.layout.offset,
        block_length: if blocks > 1 { BLOCK } else { plan.length },
    };
    pass.launch(call)?;
    if blocks > 1 {
        // The results of blocks lie as columns.
        pass = Pass {
            from_scratch: true,
            to_scratch: false,
            kept: (Shape::from_slice(&[plan.outputs]), Strides::from_slice(&[1])),
            reduced: (Shape::from_slice(&[blocks]), Strides::from_slice(&[plan.outputs as isize])),
            column: plan.outputs > 1,
            length: blocks,
            offset: 0,
            block_length: blocks,
            ..pass
        };
        pass.launch(call)?;
    }
    Ok(())
}

/// One launch: from the input or from scratch memory, to scratch memory or to the output.
struct Pass<'a> {
    wgsl: &'a Wgsl,
    scale: f32,
    dtype: DType,
    output: DType,
    from_scratch: bool,
    to_scratch: bool,
    kept: (Shape, Strides),
    reduced: (Shape, Strides),
    column: bool,
    outputs: usize,
    length: usize,
    offset: usize,
    block_length: usize,
}

impl Pass<'_> {
    fn launch(&self, call: &mut GpuCall<'_>) -> Result<()> {
        let blocks = self.length.div_ceil(self.block_length.max(1)).max(1);
        let few = blocks == 1 && self.length <= FEW;
        let mut params: Vec<u32> =
            [self.outputs, self.length, blocks, self.block_length, self.offset]
                .map(|word| word as u32)
                .to_vec();
        for (shape, strides) in [&self.kept, &self.reduced] {
            params.extend(shape.iter().map(|&length| length as u32));
            params.extend(strides.iter().map(|&stride| stride as i32 as u32));
        }
        if self.wgsl.scaled {
            params.push(self.scale.to_bits());
        }
        if params.len() > MAX_PARAMS {
            let expected = format!("at most {MAX_PARAMS} words of parameters");
            let got = format!("{} words; call contiguous() first", params.len());
            return Err(Error::argument("reduce", "x", expected, got));
        }
        let source = if self.from_scratch { Bind::Scratch } else { Bind::Input(0) };
        let target = if self.to_scratch { Bind::Scratch } else { Bind::Output(0) };
        let groups = match few {
            true => self.outputs.div_ceil(64),
            false => self.outputs.div_ceil(8) * blocks,
        };
        call.launch(&Kernel {
            variant: format!(
                "{}{}{}{} {} {} {} {}",
                if few { "thread" } else { "lanes" },
                if self.column { " column" } else { "" },
                if self.from_scratch { " second" } else { "" },
                if self.to_scratch { " first" } else { "" },
                self.dtype,
                self.output,
                self.kept.0.len(),
                self.reduced.0.len()
            ),
            source: &|| self.source(few, params.len()),
            bindings: &[source, target],
            params: &params,
            groups: grid(groups),
        })
    }

    fn source(&self, few: bool, words: usize) -> String {
        let class = self.dtype.class();
        let value = packed::wgsl_type(class);
        let wgsl = self.wgsl;
        let mut text = String::from(packed::PACKING);
        text.push_str(MATH);
        text.push_str(STRUCTURED);
        if class == Class::C64 {
            text.push_str(COMPLEX);
            text.push_str("fn wz_one() -> vec2f { return vec2f(1.0, 0.0); }\n");
        } else {
            let _ = writeln!(text, "fn wz_one() -> {value} {{ return {value}(1); }}");
        }
        // Writing to a String cannot fail.
        text.push_str("struct Params { outputs: u32, length: u32, blocks: u32, block_length: u32, offset: u32,\n");
        for word in 5..words {
            let _ = write!(text, "w{word}: u32, ");
        }
        text.push_str("}\nvar<immediate> p: Params;\n");
        let _ = writeln!(text, "const COLUMN = {};", self.column);
        text.push_str(&(wgsl.acc)(value));
        let scratch = |name: &str, binding: usize| {
            format!(
                "@group(0) @binding({binding}) var<storage, read_write> {name}_data: array<Acc>;\n"
            )
        };
        if self.from_scratch {
            text.push_str(&scratch("x", 0));
            text.push_str("fn element(place: u32, i: u32) -> Acc { return x_data[place]; }\n");
        } else {
            text.push_str(&packed::reader("x", 0, self.dtype));
            let element = (wgsl.element)(class);
            let _ = writeln!(
                text,
                "fn element(place: u32, i: u32) -> Acc {{ let v = x(place); return {element}; }}"
            );
        }
        if self.to_scratch {
            text.push_str(&scratch("y", 1));
            text.push_str("fn store(i: u32, a: Acc) { y_data[i] = a; }\n");
        } else {
            text.push_str(&packed::writer("y", 1, self.output));
            // Sums of bools are counted unsigned and stored signed.
            let finish = match (class, self.output.class()) {
                (Class::U32, Class::I32) => format!("bitcast<i32>({})", wgsl.finish),
                _ => wgsl.finish.to_string(),
            };
            // The last parameter.
            let scale = match wgsl.scaled {
                true => format!("let scale = bitcast<f32>(p.w{}); ", words - 1),
                false => String::new(),
            };
            let _ = writeln!(text, "fn store(i: u32, a: Acc) {{ {scale}y_set(i, {finish}); }}");
        }
        let combine = (wgsl.combine)(class);
        let _ = writeln!(text, "fn combine(a: Acc, b: Acc) -> Acc {{ {combine} }}");
        let _ = writeln!(text, "fn identity() -> Acc {{ return {}; }}", wgsl.identity);
        let kept = self.kept.0.len();
        text.push_str(&place("kept_place", "p.offset", 5, kept));
        text.push_str(&place("reduced_place", "0u", 5 + 2 * kept, self.reduced.0.len()));
        text.push_str(match few {
            true => include_str!("thread.wgsl"),
            false => include_str!("lanes.wgsl"),
        });
        text
    }
}

/// A function from a row-major number within some axes to a place in memory. The lengths of the
/// axes are parameters from `word` on, followed by their strides.
pub(crate) fn place(name: &str, start: &str, word: usize, rank: usize) -> String {
    let mut text = format!("fn {name}(i: u32) -> u32 {{ var rest = i; var at = {start};\n");
    for axis in (0..rank).rev() {
        let (length, stride) = (word + axis, word + rank + axis);
        // Strides may be negative; unsigned arithmetic wraps to the same place.
        let _ = match axis {
            0 => writeln!(text, "at += rest * p.w{stride};"),
            _ => writeln!(
                text,
                "at += (rest % p.w{length}) * p.w{stride}; rest = rest / p.w{length};"
            ),
        };
    }
    text.push_str("return at; }\n");
    text
}

/// Functions of the accumulators that are more than a number.
const STRUCTURED: &str = concat!(include_str!("logsumexp.wgsl"), include_str!("moments.wgsl"));

/// The accumulator is a value.
pub(super) fn plain(value: &str) -> String {
    format!("alias Acc = {value};\n")
}

/// The body that chooses the larger or the smaller of `a` and `b`.
pub(crate) fn extremum(class: Class, largest: bool) -> String {
    let name = if largest { "max" } else { "min" };
    match class {
        // On the bits, because drivers may assume that there is no NaN and no infinity.
        Class::F32 | Class::F64 => format!("return wz_{name}imum(a, b);"),
        Class::C64 => format!("return wz_z_{name}imum(a, b);"),
        _ => format!("return {name}(a, b);"),
    }
}

/// The body that multiplies `a` and `b`.
pub(crate) fn product(class: Class) -> String {
    if class == Class::C64 { "return wz_z_mul(a, b);".into() } else { "return a * b;".into() }
}

/// The body that adds what `a` and `b` are the logarithms of.
pub(crate) fn log_sum(class: Class) -> String {
    let name = if class == Class::C64 { "wz_z_logaddexp" } else { "wz_logaddexp" };
    format!("return {name}(a, b);")
}

/// Whether the element `v` is not zero, as a number.
pub(super) fn truth(class: Class) -> String {
    packed::convert(class, DType::Bool, "v")
}

/// The body that chooses the better of `a` and `b`, then the earlier.
pub(super) fn choice(class: Class, largest: bool) -> String {
    let sign = if largest { ">" } else { "<" };
    match class {
        Class::F32 | Class::F64 => format!(
            "let x = wz_isnan(a.v); let y = wz_isnan(b.v);\n\
             if (x != y) {{ if (y) {{ return b; }} return a; }}\n\
             let s = wz_order(a.v); let t = wz_order(b.v);\n\
             if ((t {sign} s && !x) || ((x || t == s) && b.i < a.i)) {{ return b; }}\n\
             return a;"
        ),
        Class::C64 => {
            let (worse, better) = if largest { ("a.v", "b.v") } else { ("b.v", "a.v") };
            format!(
                "let x = wz_z_isnan(a.v); let y = wz_z_isnan(b.v);\n\
                 if (x != y) {{ if (y) {{ return b; }} return a; }}\n\
                 let same = x || wz_z_equal(a.v, b.v);\n\
                 if (wz_z_less({worse}, {better}) || (same && b.i < a.i)) {{ return b; }}\n\
                 return a;"
            )
        }
        _ => format!("if (b.v {sign} a.v || (b.v == a.v && b.i < a.i)) {{ return b; }}\nreturn a;"),
    }
}
