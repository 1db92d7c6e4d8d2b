//! Elementwise programs as one generated kernel: any inputs, layouts and dtypes, one pass over
//! memory. A thread owns whole words of each output.

use std::fmt::Write;

use smallvec::SmallVec;

use super::call::{Bind, GpuCall, Kernel, grid};
use super::packed;
use crate::array::{DType, Layout, collapse};
use crate::error::{Error, Result};
use crate::eval::{Argument, Program, StepKind};

/// Scalar functions that WGSL lacks or leaves imprecise.
pub const MATH: &str = include_str!("snippets/math.wgsl");

/// Integer functions for any width: `$T` stands for the type, `$U` for the unsigned one.
const INTEGERS: &str = include_str!("snippets/integers.wgsl");
/// Functions whose names start with `wz_c_`; long, so that only kernels that call one contain them.
const C_LIBRARY: &str = include_str!("snippets/c_library.wgsl");

/// Functions of complex numbers, for kernels that compute some.
pub const COMPLEX: &str = include_str!("snippets/complex.wgsl");

const WORKGROUP: usize = 64;
/// Parameters that every device takes.
const MAX_WORDS: usize = super::MAX_PARAMS;

/// How a kernel finds an input's elements.
#[derive(Clone, Copy, PartialEq)]
enum Access {
    /// Element `i` of the output is element `offset + i`.
    Flat,
    /// One element for all.
    Single,
    /// Through strides.
    Strided,
    /// In the memory of an output, to which the input gave it.
    InPlace(usize),
}

/// Records the kernel for `program` over the call's inputs, broadcast to the output's shape.
pub(crate) fn run(program: &Program, call: &mut GpuCall<'_>) -> Result<()> {
    let output = call.output_meta(0);
    let metas: SmallVec<[_; 8]> = call.input_metas().collect();
    let layouts: SmallVec<[Layout; 8]> = std::iter::once(output.layout.clone())
        .chain(metas.iter().map(|meta| meta.layout.broadcast_to(output.shape())))
        .collect();
    let (shape, strides) = collapse(&layouts.iter().collect::<SmallVec<[&Layout; 8]>>());
    let access: SmallVec<[Access; 8]> = (0..metas.len())
        .map(|input| match (call.alias(input), &strides[input + 1][..]) {
            (Some(output), _) => Access::InPlace(output),
            // As the output lies, whatever other inputs keep axes from being merged.
            (_, own) if !own.is_empty() && *own == strides[0][..] => Access::Flat,
            (_, strides) if strides.iter().all(|&stride| stride == 0) => Access::Single,
            _ => Access::Strided,
        })
        .collect();
    let lanes = program.output_dtypes().map(packed::per_word).max().unwrap_or(1);
    let whole_words = |(input, access): (usize, &Access)| {
        let per_word = packed::per_word(metas[input].dtype);
        matches!(access, Access::Flat | Access::InPlace(_))
            && (2..=lanes).contains(&per_word)
            && metas[input].layout.offset.is_multiple_of(per_word)
    };
    let words: SmallVec<[bool; 8]> = access.iter().enumerate().map(whole_words).collect();

    let mut params: Vec<u32> = vec![output.size() as u32];
    let strided = access.contains(&Access::Strided);
    if strided {
        params.extend(shape.iter().map(|&length| length as u32));
    }
    for (input, meta) in metas.iter().enumerate() {
        params.push(meta.layout.offset as u32);
        if access[input] == Access::Strided {
            params.extend(strides[input + 1].iter().map(|&stride| stride as i32 as u32));
        }
    }
    for step in &program.steps {
        if let StepKind::Constant(bits) = step.kind {
            params.push(bits as u32);
            if step.dtype.size() == 8 {
                params.push((bits >> 32) as u32);
            }
        }
    }
    if params.len() > MAX_WORDS {
        let got = format!("{} words for rank {}", params.len(), shape.len());
        return Err(Error::argument(
            "fused",
            "inputs",
            format!("at most {MAX_WORDS} words of parameters"),
            got,
        ));
    }
    let rank = if strided { shape.len() } else { 0 };
    let params_len = params.len();
    let generator =
        Generator { program, access: &access, words: &words, rank, lanes, params: params_len };
    let mut bindings: SmallVec<[Bind<'_>; 8]> = (0..metas.len())
        .filter(|&input| !matches!(access[input], Access::InPlace(_)))
        .map(Bind::Input)
        .collect();
    bindings.extend((0..call.outputs()).map(Bind::Output));
    let threads = output.size().div_ceil(lanes);
    call.launch(&Kernel {
        variant: generator.key(),
        source: &|| generator.source(),
        bindings: &bindings,
        params: &params,
        groups: grid(threads.div_ceil(WORKGROUP)),
    })
}

/// Writes the kernel.
struct Generator<'a> {
    program: &'a Program,
    access: &'a [Access],
    /// Inputs whose words are the thread's own, which reads each once.
    words: &'a [bool],
    rank: usize,
    /// Elements that a thread computes: a word of the output that has most in a word.
    lanes: usize,
    params: usize,
}

impl Generator<'_> {
    /// Everything the text depends on.
    fn key(&self) -> String {
        let mut key = String::new();
        let access = self.access.iter().zip(self.words);
        for (dtype, (access, &words)) in self.program.inputs.iter().zip(access) {
            if words {
                key.push('#');
            }
            // Writing to a String cannot fail.
            let _ = match access {
                Access::Flat => write!(key, "{dtype},"),
                Access::Single => write!(key, "{dtype}!,"),
                Access::Strided => write!(key, "{dtype}*,"),
                Access::InPlace(output) => write!(key, "{dtype}={output},"),
            };
        }
        let _ = write!(key, "{}", self.rank);
        for output in &self.program.outputs {
            let _ = write!(key, ">{output}");
        }
        for step in &self.program.steps {
            let name = match step.kind {
                StepKind::Kernel(kernel) => kernel.name,
                StepKind::Cast => "as",
                StepKind::Constant(_) => "constant",
            };
            let _ = write!(key, ";{name}");
            for argument in &step.arguments {
                let _ = match argument {
                    Argument::Input(input) => write!(key, " i{input}"),
                    Argument::Step(step) => write!(key, " {step}"),
                };
            }
            let _ = write!(key, ":{}", step.dtype);
        }
        key
    }

    fn source(&self) -> String {
        let mut text = String::from(packed::PACKING);
        text.push_str(MATH);
        text.push_str("struct Params {\n");
        for word in 0..self.params {
            let _ = writeln!(text, "w{word}: u32,");
        }
        text.push_str("}\nvar<immediate> p: Params;\n");
        let mut binding = 0;
        for (input, &dtype) in self.program.inputs.iter().enumerate() {
            if !matches!(self.access[input], Access::InPlace(_)) {
                text.push_str(&packed::reader(&format!("in{input}"), binding, dtype));
                binding += 1;
            }
        }
        for (output, dtype) in self.program.output_dtypes().enumerate() {
            text.push_str(&packed::word_writer(&format!("out{output}"), binding + output, dtype));
        }
        for (input, &dtype) in self.program.inputs.iter().enumerate() {
            if let Access::InPlace(output) = self.access[input] {
                let (name, data) = (format!("in{input}"), format!("out{output}_data"));
                text.push_str(&packed::load_function(&name, &data, dtype));
            }
        }
        self.kernels(&mut text);
        self.compute(&mut text);
        self.main(&mut text);
        text
    }

    /// The entry point. A thread computes all its elements before it stores any: an input may lie
    /// where an output is stored.
    fn main(&self, text: &mut String) {
        let lanes = self.lanes;
        let _ = write!(
            text,
            "@compute @workgroup_size({WORKGROUP})\n\
             fn main(@builtin(workgroup_id) wid: vec3u, @builtin(num_workgroups) groups: vec3u,\n\
             @builtin(local_invocation_index) lid: u32) {{\n\
             let word = (wid.x + wid.y * groups.x) * {WORKGROUP}u + lid;\n\
             let first = word * {lanes}u;\n\
             if (first >= p.w0) {{ return; }}\n"
        );
        self.read_words(text);
        // The word of each input of which the element is a part.
        let element = |lane: usize| {
            let mut call = format!("compute(first + {lane}u");
            for (input, dtype) in self.words() {
                let _ = write!(call, ", word{input}_{}", lane / packed::per_word(dtype));
            }
            call + ")"
        };
        let _ = writeln!(text, "let v0 = {};", element(0));
        for lane in 1..lanes {
            let value = element(lane);
            let _ = writeln!(
                text,
                "var v{lane}: Values; if (first + {lane}u < p.w0) {{ v{lane} = {value}; }}"
            );
        }
        for (output, dtype) in self.program.output_dtypes().enumerate() {
            let per_word = packed::per_word(dtype);
            for first in (0..lanes).step_by(per_word) {
                let value = |lane: usize| format!("v{}.o{output}", first + lane);
                // Lanes past the end are zero; only whole words past it are not there.
                let bits = |lane: usize| match lane * 32 / per_word {
                    0 => packed::narrow(dtype, &value(lane)),
                    shift => format!("({} << {shift}u)", packed::narrow(dtype, &value(lane))),
                };
                let word = match per_word {
                    1 => value(0),
                    _ => (0..per_word).map(bits).collect::<Vec<_>>().join(" | "),
                };
                let place = format!("first / {per_word}u + {}u", first / per_word);
                let guard = match first {
                    0 => String::new(),
                    _ => format!("if (first + {first}u < p.w0) "),
                };
                let _ = writeln!(text, "{guard}{{ out{output}_data[{place}] = {word}; }}");
            }
        }
        text.push_str("}\n");
    }

    /// Inputs of which a thread reads whole words.
    fn words(&self) -> impl Iterator<Item = (usize, DType)> {
        let inputs = self.program.inputs.iter().copied().enumerate();
        inputs.filter(|(input, _)| self.words[*input])
    }

    /// Their words.
    fn read_words(&self, text: &mut String) {
        for (input, dtype) in self.words() {
            let per_word = packed::per_word(dtype);
            let data = match self.access[input] {
                Access::InPlace(output) => format!("out{output}_data"),
                _ => format!("in{input}_data"),
            };
            let place = format!("(p.w{} + first) / {per_word}u", self.offset_word(input));
            let _ = writeln!(text, "let word{input}_0 = {data}[{place}];");
            for word in 1..self.lanes / per_word {
                let _ = writeln!(
                    text,
                    "var word{input}_{word} = 0u; if (first + {}u < p.w0) {{ word{input}_{word} = {data}[{place} + {word}u]; }}",
                    word * per_word
                );
            }
        }
    }

    /// The parameter that holds an input's offset.
    fn offset_word(&self, input: usize) -> usize {
        let strided = self.access[..input].iter().filter(|a| **a == Access::Strided).count();
        1 + self.rank + input + strided * self.rank
    }

    /// One WGSL function per distinct kernel and class.
    fn kernels(&self, text: &mut String) {
        let mut written: Vec<String> = Vec::new();
        let mut types: SmallVec<[&str; 4]> = SmallVec::new();
        for step in &self.program.steps {
            let StepKind::Kernel(kernel) = step.kind else { continue };
            let class =
                self.program.argument_dtype(step.arguments[step.arguments.len() - 1]).class();
            let value = packed::wgsl_type(class);
            let name = format!("k_{}_{value}", kernel.name);
            if written.contains(&name) {
                continue;
            }
            // Only for types in use: a device may lack those of 64 bits.
            if value == "vec2f" && !text.contains(COMPLEX) {
                text.push_str(COMPLEX);
            }
            if !["f32", "vec2f"].contains(&value) && !types.contains(&value) {
                let unsigned = if value.ends_with("64") { "u64" } else { "u32" };
                text.push_str(&INTEGERS.replace("$T", value).replace("$U", unsigned));
                types.push(value);
            }
            let parameters: Vec<String> = (step.arguments.iter().zip(["a", "b", "c", "d"]))
                .map(|(argument, name)| {
                    let class = self.program.argument_dtype(*argument).class();
                    format!("{name}: {}", packed::wgsl_type(class))
                })
                .collect();
            // A class without expression is refused when the node is built, or by the compiler.
            let expression = (kernel.wgsl)(class).unwrap_or("unsupported");
            let (result, expression) = match kernel.boolean {
                true => ("u32", format!("select(0u, 1u, {expression})")),
                false => (packed::wgsl_type(step.dtype.class()), expression.to_string()),
            };
            let expression = expression.replace("$T", value);
            if expression.contains("wz_c_") && !text.contains(C_LIBRARY) {
                text.push_str(C_LIBRARY);
            }
            let parameters = parameters.join(", ");
            let _ =
                writeln!(text, "fn {name}({parameters}) -> {result} {{ return {expression}; }}");
            written.push(name);
        }
    }

    /// The function that computes element `i` of the outputs.
    fn compute(&self, text: &mut String) {
        text.push_str("struct Values {");
        for (output, dtype) in self.program.output_dtypes().enumerate() {
            let _ = write!(text, " o{output}: {},", packed::wgsl_type(dtype.class()));
        }
        text.push_str(" }\nfn compute(i: u32");
        for (input, _) in self.words() {
            let _ = write!(text, ", word{input}: u32");
        }
        text.push_str(") -> Values {\n");
        if self.rank > 0 {
            text.push_str("var rest = i;\n");
            for axis in (0..self.rank).rev() {
                let length = 1 + axis;
                let _ =
                    writeln!(text, "let i{axis} = rest % p.w{length}; rest = rest / p.w{length};");
            }
        }
        for (input, (access, &words)) in self.access.iter().zip(self.words).enumerate() {
            if words {
                let dtype = self.program.inputs[input];
                let (name, last) = (dtype.name(), packed::per_word(dtype) - 1);
                let _ = writeln!(text, "let x{input} = wz_widen_{name}(word{input}, i & {last}u);");
                continue;
            }
            let word = self.offset_word(input);
            let mut place = format!("p.w{word}");
            match access {
                Access::Flat | Access::InPlace(_) => place.push_str(" + i"),
                Access::Single => {}
                Access::Strided => {
                    for axis in 0..self.rank {
                        // Strides may be negative; unsigned arithmetic wraps to the same place.
                        let _ = write!(place, " + i{axis} * p.w{}", word + 1 + axis);
                    }
                }
            }
            let _ = writeln!(text, "let x{input} = in{input}({place});");
        }
        let mut word = self.offset_word(self.access.len());
        for (index, step) in self.program.steps.iter().enumerate() {
            let name = |argument: &Argument| match argument {
                Argument::Input(input) => format!("x{input}"),
                Argument::Step(step) => format!("t{step}"),
            };
            let value = match step.kind {
                StepKind::Constant(_) => self.constant(step.dtype, &mut word),
                StepKind::Cast => {
                    let from = self.program.argument_dtype(step.arguments[0]).class();
                    packed::convert(from, step.dtype, &name(&step.arguments[0]))
                }
                StepKind::Kernel(kernel) => {
                    let last = step.arguments[step.arguments.len() - 1];
                    let class = self.program.argument_dtype(last).class();
                    let arguments: Vec<String> = step.arguments.iter().map(name).collect();
                    format!(
                        "k_{}_{}({})",
                        kernel.name,
                        packed::wgsl_type(class),
                        arguments.join(", ")
                    )
                }
            };
            let rounded = packed::round(step.dtype, &value);
            let _ = writeln!(text, "let t{index} = {rounded};");
        }
        let values: Vec<String> =
            self.program.outputs.iter().map(|step| format!("t{step}")).collect();
        let _ = writeln!(text, "return Values({});\n}}", values.join(", "));
    }

    fn constant(&self, dtype: DType, word: &mut usize) -> String {
        let low = *word;
        *word += if dtype.size() == 8 { 2 } else { 1 };
        match packed::wgsl_type(dtype.class()) {
            "u32" => format!("p.w{low}"),
            "vec2f" => format!("bitcast<vec2f>(vec2u(p.w{low}, p.w{}))", low + 1),
            "u64" => format!("(u64(p.w{low}) | (u64(p.w{}) << 32u))", low + 1),
            "i64" => format!("(i64(p.w{low}) | (i64(p.w{}) << 32u))", low + 1),
            other => format!("bitcast<{other}>(p.w{low})"),
        }
    }
}
