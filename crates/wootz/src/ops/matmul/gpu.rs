//! Matrix products on the GPU: tiles in workgroup memory, of cooperative matrices where there are
//! any, and a kernel of its own for products with a vector.

use std::fmt::Write;

use super::Addmm;
use super::plan::{Plan, most_batch_axes};
use crate::array::DType;
use crate::error::{Error, Result};
use crate::gpu::{Bind, GpuCall, Kernel, grid, packed};

const COOPERATIVE: &str = concat!(include_str!("factors.wgsl"), include_str!("cooperative.wgsl"));
const TILED: &str = concat!(include_str!("factors.wgsl"), include_str!("tiled.wgsl"));
/// How factors come into workgroup memory: one by one, or two of a word.
const FILL: &str = include_str!("fill.wgsl");
/// Where their text stands.
const FILL_HERE: &str = "// FILL\n";
const FILL_PAIRS: &str = include_str!("fill_pairs.wgsl");
const GEMV: &str = include_str!("gemv.wgsl");
const ZEROS: &str = include_str!("zeros.wgsl");
const PLACE: &str = include_str!("place.wgsl");
const BATCHED: &str = include_str!("batched.wgsl");

pub(super) fn run(call: &mut GpuCall<'_>, add: Option<Addmm>) -> Result<()> {
    // What is added comes before the factors.
    let first = add.is_some() as usize;
    let addend = add.map(|_| call.meta(0));
    let plan = Plan::new("matmul", call.meta(first), call.meta(first + 1), addend)?;
    if plan.k == 0 && add.is_none() {
        return write_zeros(call);
    }
    let most = most_batch_axes(add.is_some());
    if plan.batch.len() > most {
        let reason = format!("more than {most} axes of a batch that do not merge");
        return Err(call.not_on_device(reason));
    }
    // By the shape alone, not by how far a layout lets one product reach, because they sum in
    // different orders.
    let form = if plan.rows == 1 || plan.n == 1 {
        gemv(&plan)?
    } else {
        let large = Tiles::Plain { large: plan.m > 32 && plan.n > 32 };
        let way = cooperative(call).filter(|_| plan.rows > 32 && plan.n > 32).unwrap_or(large);
        in_tiles(&plan, &way)?
    };
    launch(call, &plan, add, form)
}

/// Nothing to sum: the inputs have no memory to bind.
pub(crate) fn write_zeros(call: &mut GpuCall<'_>) -> Result<()> {
    let words = call.output_meta(0).bytes().div_ceil(4);
    call.launch(&Kernel {
        variant: "zeros".into(),
        source: &|| ZEROS.to_string(),
        bindings: &[Bind::Output(0)],
        params: &[words as u32],
        groups: grid(words.div_ceil(256)),
    })
}

/// One of the ways to multiply.
pub(crate) struct Form {
    pub(crate) variant: String,
    body: &'static str,
    /// Extensions of the language, which the text begins with.
    extensions: &'static str,
    /// Whether factors of float16 are read as what they are; else they are widened.
    native: bool,
    /// Declarations that go before the body.
    constants: String,
    pub(crate) params: Vec<u32>,
    pub(crate) groups: u32,
    /// Whether rows of the output have whole pairs of elements.
    pub(crate) even: bool,
}

/// How workgroups compute square tiles of products with `n` columns, and the side of a tile. Small
/// products need more threads than reuse.
pub(crate) enum Tiles {
    /// In workgroup memory; a thread computes a square of elements.
    Plain { large: bool },
    /// Of cooperative matrices, maybe of factors as they are.
    Cooperative { native: bool },
}

impl Tiles {
    pub(crate) fn side(&self) -> usize {
        if let Tiles::Plain { large: false } = self { 32 } else { 64 }
    }

    pub(crate) fn form(&self, n: usize, params: Vec<u32>, groups: u32) -> Form {
        let even = n.is_multiple_of(2);
        match *self {
            Tiles::Plain { large } => {
                let per = if large { 4 } else { 2 };
                let constants = format!(
                    "{PLACE}alias Factor = f32;\nalias Sums = vec{per}<f32>;\nconst PER = {per}u;\n"
                );
                let variant = format!("tiled/{}", self.side());
                let (body, extensions, native) = (TILED, "", false);
                Form { variant, body, extensions, native, constants, params, groups, even }
            }
            Tiles::Cooperative { native } => {
                let (factor, extensions) = match native {
                    true => ("f16", "enable f16;\nenable wgpu_cooperative_matrix;\n"),
                    false => ("f32", "enable wgpu_cooperative_matrix;\n"),
                };
                let pad = if native { 8 } else { 4 };
                let constants = format!(
                    "{PLACE}alias Factor = {factor};\nconst PAD = {pad}u;\nconst DEPTH = 16u;\n"
                );
                let variant = format!("cooperative/{factor}");
                let body = COOPERATIVE;
                Form { variant, body, extensions, native, constants, params, groups, even }
            }
        }
    }
}

/// Whether a device multiplies with cooperative matrices, and then how.
pub(crate) fn cooperative(call: &GpuCall<'_>) -> Option<Tiles> {
    let native = call.output_meta(0).dtype == DType::F16 && call.gpu().has_f16();
    call.gpu().has_cooperative_matrix().then_some(Tiles::Cooperative { native })
}

fn in_tiles(plan: &Plan, way: &Tiles) -> Result<Form> {
    let (params, groups) = tiles(plan, way.side())?;
    let mut form = way.form(plan.n, params, groups);
    form.constants.push_str(BATCHED);
    Ok(form)
}

/// The parameters of a kernel whose workgroups compute square tiles, and their number.
fn tiles(plan: &Plan, tile: usize) -> Result<(Vec<u32>, u32)> {
    let (down, across) = (plan.m.div_ceil(tile), plan.n.div_ceil(tile));
    let groups = word(plan.count.saturating_mul(down).saturating_mul(across))?;
    let params = vec![
        word(plan.m)?,
        word(plan.n)?,
        word(plan.k)?,
        stride(plan.a.rows),
        stride(plan.a.columns),
        word(plan.a.offset)?,
        stride(plan.b.rows),
        stride(plan.b.columns),
        word(plan.b.offset)?,
        across as u32,
        (down * across) as u32,
        groups,
    ];
    Ok((params, groups))
}

/// The functions that a product with a vector asks: where the sides of a product and its output
/// begin, and whether it is computed at all.
pub(super) struct Vectors<'a> {
    pub(super) matrix: &'a str,
    pub(super) vector: &'a str,
    pub(super) output: &'a str,
    pub(super) running: &'a str,
    pub(super) finished: &'a str,
}

fn gemv(plan: &Plan) -> Result<Form> {
    let by_column = plan.rows == 1;
    let (matrix_at, vector_at) = if by_column { ("y", "x") } else { ("x", "y") };
    let place = if by_column { "0u, i" } else { "i, 0u" };
    vectors(
        plan,
        &Vectors {
            matrix: &format!("batch_offsets(batch).{matrix_at}"),
            vector: &format!("batch_offsets(batch).{vector_at}"),
            output: "batch * p.outputs",
            running: "true",
            finished: &format!("finish(batch_offsets(batch).z, {place}, sum)"),
        },
    )
}

/// A product with a vector, for a plan whose batch `at` knows.
pub(super) fn vectors(plan: &Plan, at: &Vectors<'_>) -> Result<Form> {
    // One side is the matrix, with an output for each of its lines; the other is the vector.
    let by_column = plan.rows == 1;
    let (outputs, line, along, vector) = match by_column {
        true => (plan.n, plan.b.columns, plan.b.rows, plan.a.columns),
        false => (plan.m, plan.a.rows, plan.a.columns, plan.b.rows),
    };
    // Neighbouring threads read neighbouring memory: along a line, or across lines.
    let across = line.unsigned_abs() < along.unsigned_abs();
    let lanes = if across { 4 } else { 64 };
    let blocks = outputs.div_ceil(256 / lanes);
    let groups = word(plan.count.saturating_mul(blocks))?;
    let (matrix_offset, vector_offset) = match by_column {
        true => (plan.b.offset, plan.a.offset),
        false => (plan.a.offset, plan.b.offset),
    };
    let params = vec![
        word(outputs)?,
        word(plan.k)?,
        stride(line),
        stride(along),
        stride(vector),
        blocks as u32,
        groups,
        word(matrix_offset)?,
        word(vector_offset)?,
    ];
    let (matrix, vector) = if by_column { ("b", "a") } else { ("a", "b") };
    let mut constants = format!(
        "const LANES = {lanes}u;\nconst ACROSS = {across};\n\
         fn matrix(i: u32) -> f32 {{ return {matrix}(i); }}\n\
         fn vector(i: u32) -> f32 {{ return {vector}(i); }}\n"
    );
    for (function, result, value) in [
        ("matrix_start(batch: u32)", "u32", format!("p.matrix_offset + {}", at.matrix)),
        ("vector_start(batch: u32)", "u32", format!("p.vector_offset + {}", at.vector)),
        ("out_start(batch: u32)", "u32", at.output.to_string()),
        ("running()", "bool", at.running.to_string()),
        ("finished(batch: u32, i: u32, sum: f32)", "f32", at.finished.to_string()),
    ] {
        let _ = writeln!(constants, "fn {function} -> {result} {{ return {value}; }}");
    }
    let variant = format!("gemv/{}/{lanes}", if by_column { "row" } else { "column" });
    let even = outputs.is_multiple_of(2);
    let (body, extensions, native) = (GEMV, "", false);
    Ok(Form { variant, body, extensions, native, constants, params, groups, even })
}

/// Launches a form with the parameters, accessors and bindings that all have.
fn launch(call: &mut GpuCall<'_>, plan: &Plan, add: Option<Addmm>, form: Form) -> Result<()> {
    let mut params = form.params.clone();
    let dtype = call.output_meta(0).dtype;
    let (mut a, mut b) = (Bind::Input(0), Bind::Input(1));
    if let Some(Addmm { alpha, beta }) = add {
        params.extend([stride(plan.c.rows), stride(plan.c.columns), word(plan.c.offset)?]);
        params.extend([alpha, beta].map(|scale| (scale as f32).to_bits()));
        (a, b) = (Bind::Input(1), Bind::Input(2));
        if plan.k == 0 {
            // Factors without elements have no memory to bind, and are not read.
            (a, b) = (Bind::Input(0), Bind::Input(0));
        }
    }
    for axis in &plan.batch {
        params.extend([axis.length as u32, stride(axis.a), stride(axis.b)]);
        params.extend(add.map(|_| stride(axis.c)));
    }
    let bindings = [a, b, Bind::Output(0), Bind::Input(0)];
    let (rank, added) = (plan.batch.len(), add.is_some());
    call.launch(&Kernel {
        variant: format!("{}/{dtype}/{rank}/{}", form.variant, form.even),
        source: &|| source(dtype, rank, added, &form),
        bindings: if added { &bindings } else { &bindings[..3] },
        params: &params,
        groups: grid(form.groups as usize),
    })
}

/// The kernel's text with accessors for the dtype and the axes of the batch, and
/// `finish(start, row, column, sum)`, which makes an element of a sum.
fn source(dtype: DType, rank: usize, added: bool, form: &Form) -> String {
    let (mut text, mut fields, mut steps) = (String::new(), String::new(), String::new());
    if added {
        text.push_str(&packed::reader("c", 3, dtype));
        fields.push_str("c_row: u32, c_column: u32, c_offset: u32, alpha: f32, beta: f32, ");
    }
    let _ = write!(
        text,
        "fn finish(start: u32, row: u32, column: u32, sum: f32) -> f32 {{\n{}}}\n",
        if added { FINISH } else { "return sum;\n" }
    );
    for axis in 0..rank {
        let _ = write!(fields, "length{axis}: u32, a{axis}: u32, b{axis}: u32, ");
        if added {
            let _ = write!(fields, "c{axis}: u32, ");
        }
    }
    for axis in (0..rank).rev() {
        let c = if added { format!("p.c{axis}") } else { "0u".to_string() };
        let _ = writeln!(
            steps,
            "at += (rest % p.length{axis}) * vec3<u32>(p.a{axis}, p.b{axis}, {c}); \
             rest /= p.length{axis};"
        );
    }
    let _ = write!(
        text,
        "fn batch_offsets(batch: u32) -> vec3<u32> {{\nvar rest = batch;\n\
         var at = vec3<u32>(0u);\n{steps}return at;\n}}\n"
    );
    form.text(dtype, &fields, &text)
}

impl Form {
    /// What an element of a factor is in the text.
    pub(crate) fn factor(&self) -> &'static str {
        if self.native { "f16" } else { "f32" }
    }

    /// The kernel's text with accessors for the dtype, more parameters, and the functions that it
    /// needs.
    pub(crate) fn text(&self, dtype: DType, fields: &str, functions: &str) -> String {
        if self.native || packed::per_word(dtype) != 2 || !self.body.contains(FILL_HERE) {
            return self.text_of(["a", "b"], dtype, fields, functions);
        }
        let widen = format!("wz_widen_{}", dtype.name());
        let halves = ["a", "b"].map(|name| {
            format!("fn {name}_of(word: u32, i: u32) -> f32 {{ return {widen}(word, i & 1u); }}\n")
        });
        let functions = [functions, &halves[0], &halves[1]].concat();
        self.text_with(FILL_PAIRS, ["a", "b"], dtype, fields, &functions)
    }

    /// The same with other names for the arguments' elements, where the functions say what `a` and
    /// `b` are.
    pub(crate) fn text_of(
        &self,
        names: [&str; 2],
        dtype: DType,
        fields: &str,
        functions: &str,
    ) -> String {
        self.text_with(FILL, names, dtype, fields, functions)
    }

    fn text_with(
        &self,
        fill: &str,
        names: [&str; 2],
        dtype: DType,
        fields: &str,
        functions: &str,
    ) -> String {
        let mut text = self.extensions.to_string();
        if packed::per_word(dtype) > 1 {
            text.push_str(packed::PACKING);
        }
        for (binding, name) in names.into_iter().enumerate() {
            text.push_str(&match self.native {
                true => format!(
                    "@group(0) @binding({binding}) var<storage, read> {name}_data: array<f16>;\n\
                     fn {name}(i: u32) -> f16 {{ return {name}_data[i]; }}\n"
                ),
                false => packed::reader(name, binding, dtype),
            });
        }
        text.push_str(&pair_writer("out", 2, dtype, self.even));
        text.push_str(functions);
        text.push_str(&self.constants);
        text.push_str(&self.body.replace("// MORE", fields).replace(FILL_HERE, fill));
        text
    }
}

/// The texts with cooperative matrices, which few devices run.
#[cfg(test)]
pub(super) fn cooperative_texts() -> Vec<String> {
    let mut texts = super::gather::cooperative_texts();
    texts.extend(crate::ops::conv::cooperative_texts());
    for (dtype, native) in
        [(DType::F32, false), (DType::F16, true), (DType::F16, false), (DType::BF16, false)]
    {
        for (columns, added) in [(64, false), (65, true)] {
            let sides =
                [crate::Array::ones(&[3, 64, 9], dtype), crate::Array::ones(&[9, columns], dtype)];
            let [Ok(a), Ok(b)] = &sides else { continue };
            let plan = Plan::new("matmul", a.meta(), b.meta(), None);
            let form = plan.and_then(|plan| in_tiles(&plan, &Tiles::Cooperative { native }));
            texts.extend(form.map(|form| source(dtype, 1, added, &form)));
        }
    }
    texts
}

/// What is multiplied with zero is not read: it may be NaN.
const FINISH: &str = "var plus = 0.0;
if (p.beta != 0.0) {
    plus = p.beta * c(p.c_offset + start + row * p.c_row + column * p.c_column);
}
return p.alpha * sum + plus;
";

/// Declares an output and `name_pair(i, first, second, both)`, which stores an element, at an even
/// place if rows are even, and maybe the one after it.
fn pair_writer(name: &str, binding: usize, dtype: DType, even: bool) -> String {
    if packed::per_word(dtype) > 1 && even {
        let (first, second) = (packed::narrow(dtype, "first"), packed::narrow(dtype, "second"));
        return format!(
            "{}fn {name}_pair(i: u32, first: f32, second: f32, both: bool) {{\n\
             {name}_data[i >> 1u] = {first} | ({second} << 16u);\n}}\n",
            packed::word_writer(name, binding, dtype)
        );
    }
    format!(
        "{}fn {name}_pair(i: u32, first: f32, second: f32, both: bool) {{\n\
         {name}_set(i, first);\nif (both) {{ {name}_set(i + 1u, second); }}\n}}\n",
        packed::writer(name, binding, dtype)
    )
}

/// A size as a word of the parameters.
pub(super) fn word(value: usize) -> Result<u32> {
    u32::try_from(value).map_err(|_| Error::SizeOverflow {
        op: "matmul",
        argument: "inputs".into(),
        got: value.to_string(),
        limit: u32::MAX as u64,
    })
}

/// A stride as a word: kernels add modulo 2³², so negative strides work.
pub(super) fn stride(value: isize) -> u32 {
    value as u32
}
