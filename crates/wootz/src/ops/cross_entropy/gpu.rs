//! Losses over a vocabulary on the GPU: one workgroup per row forward, one thread per word of the
//! gradient backward. Labels are checked by a launch of their own before anything is written.

use super::kl::logits_and_mask;
use super::{KlDivergenceBackward, KlSide, Labels, rows_of};
use crate::array::{Class, DType};
use crate::error::Result;
use crate::gpu::{Bind, GpuCall, Kernel, MATH, grid, packed};
use crate::ops::indexing::{offsets::place_function, raw};

const ONLINE: &str = include_str!("online.wgsl");
const POWER: &str = include_str!("power.wgsl");
const NO_DIVERGENCE: &str = "fn divergence(i: u32) -> f32 { return 0.0; }\n";

pub(super) fn forward(call: &mut GpuCall<'_>, labels: Labels) -> Result<()> {
    check(call, labels)?;
    let mut text = Text::new(call, &["logits"], labels.smoothing);
    text.labels(call, labels).write("loss", 0).write("lse", 1);
    text.add(&format!("const SMOOTHED = {};\n", labels.smoothing > 0.0));
    text.key.push_str(if labels.smoothing > 0.0 { " smoothed" } else { "" });
    text.add(ONLINE).add(include_str!("forward.wgsl"));
    let groups = grid(text.rows);
    text.launch(call, "row", true, groups)
}

pub(super) fn backward(call: &mut GpuCall<'_>, labels: Labels) -> Result<()> {
    check(call, labels)?;
    let first = labels.inputs();
    let mut text = Text::new(call, &["logits"], labels.smoothing);
    text.labels(call, labels);
    text.read(call, "lse", first).read(call, "g", first + 1).read(call, "h", first + 2);
    text.add(POWER).add(include_str!("backward.wgsl"));
    text.gradient(call, true)
}

pub(super) fn kl(call: &mut GpuCall<'_>, masked: bool) -> Result<()> {
    let mut text = Text::new(call, &["targets", "predictions"], 0.0);
    text.mask(call, masked);
    text.write("divergence", 0).write("targets_lse", 1).write("predictions_lse", 2);
    text.add(ONLINE).add(include_str!("kl.wgsl"));
    let groups = grid(text.rows);
    text.launch(call, "row", false, groups)
}

pub(super) fn kl_backward(call: &mut GpuCall<'_>, op: KlDivergenceBackward) -> Result<()> {
    let (side, first) = (op.side, logits_and_mask(op.masked));
    let mut text = Text::new(call, &["targets", "predictions"], 0.0);
    text.mask(call, op.masked);
    text.read(call, "targets_lse", first + 1).read(call, "predictions_lse", first + 2);
    text.read(call, "g", first + 3);
    match side {
        KlSide::Targets => text.read(call, "divergence", first),
        // It does not ask for the divergence.
        KlSide::Predictions => text.word("divergence_offset", 0).add(NO_DIVERGENCE),
    };
    text.add(&format!("const OF_PREDICTIONS = {};\n", side == KlSide::Predictions));
    text.key.push_str(&format!(" {side:?}"));
    text.add(POWER).add(include_str!("kl_backward.wgsl"));
    text.gradient(call, false)
}

/// Records a kernel that only looks for labels out of range.
fn check(call: &mut GpuCall<'_>, labels: Labels) -> Result<()> {
    let (rows, columns) = rows_of(call.meta(0));
    let site = call.status_site(1, columns);
    let mut text = Text::new(call, &[], 0.0);
    text.word("site", site);
    text.labels(call, labels);
    text.add(raw::MAIN).add(include_str!("check.wgsl"));
    text.launch(call, "check", true, raw::threads_grid(rows))
}

/// A kernel's text, and what it binds and is given.
struct Text {
    key: String,
    /// Everything but the parameters' declaration.
    body: String,
    fields: String,
    words: Vec<u32>,
    bindings: Vec<Bind<'static>>,
    rows: usize,
}

impl Text {
    /// With logits as the first inputs, each by its name.
    fn new(call: &GpuCall<'_>, logits: &[&str], smoothing: f64) -> Text {
        let (rows, columns) = rows_of(call.meta(0));
        let mut text = Text {
            key: String::new(),
            body: [packed::PACKING, MATH].concat(),
            fields: String::new(),
            words: Vec::new(),
            bindings: Vec::new(),
            rows,
        };
        text.word("rows", rows as u32).word("columns", columns as u32);
        text.number("kept", 1.0 - smoothing).number("even", smoothing / columns as f64);
        for (index, name) in logits.iter().enumerate() {
            text.read(call, name, index);
        }
        text
    }

    fn add(&mut self, text: &str) -> &mut Text {
        self.body.push_str(text);
        self
    }

    /// A parameter, in WGSL `p.name`.
    fn word(&mut self, name: &str, word: u32) -> &mut Text {
        self.fields.push_str(&format!("{name}: u32, "));
        self.words.push(word);
        self
    }

    fn number(&mut self, name: &str, number: f64) -> &mut Text {
        self.fields.push_str(&format!("{name}: f32, "));
        self.words.push((number as f32).to_bits());
        self
    }

    /// An input, as the function `name(i)` with `i` counted from `p.name_offset`.
    fn read(&mut self, call: &GpuCall<'_>, name: &str, input: usize) -> &mut Text {
        let meta = call.meta(input);
        self.word(&format!("{name}_offset"), meta.layout.offset as u32);
        self.key.push_str(&format!(" {}", meta.dtype));
        if call.aliased(input) {
            // It is in the output, whose words are declared as bits.
            self.key.push('=');
            let load = match meta.dtype {
                DType::F32 => {
                    format!("fn {name}(i: u32) -> f32 {{ return bitcast<f32>(out_data[i]); }}\n")
                }
                dtype => packed::load_function(name, "out_data", dtype),
            };
            return self.add(&load);
        }
        let reader = packed::reader(name, self.bindings.len(), meta.dtype);
        self.bindings.push(Bind::Input(input));
        self.add(&reader)
    }

    /// An output of one `float32` for each row, as the array `name_data`.
    fn write(&mut self, name: &str, output: usize) -> &mut Text {
        let writer = packed::word_writer(name, self.bindings.len(), DType::F32);
        self.bindings.push(Bind::Output(output));
        self.add(&writer)
    }

    /// Labels, with `column(row)` and `counts(row)`.
    fn labels(&mut self, call: &GpuCall<'_>, labels: Labels) -> &mut Text {
        let dtype = call.meta(1).dtype;
        self.read(call, "labels", 1);
        let mut counts = self.masked(call, labels.masked);
        if let Some(ignored) = ignored_literal(labels.ignored, dtype) {
            counts = format!("({counts}) && labels(p.labels_offset + row) != {ignored}");
        }
        self.counts(&counts);
        self.add(&place_function(dtype, false)).add(include_str!("labels.wgsl"))
    }

    /// `counts(row)` by a mask, if there is one.
    fn mask(&mut self, call: &GpuCall<'_>, masked: bool) -> &mut Text {
        let counts = self.masked(call, masked);
        self.counts(&counts)
    }

    /// Whether a row counts by the mask, which is the third input if there is one, as WGSL.
    fn masked(&mut self, call: &GpuCall<'_>, masked: bool) -> String {
        if !masked {
            return "true".into();
        }
        self.read(call, "mask", 2);
        "mask(p.mask_offset + row) != 0u".into()
    }

    fn counts(&mut self, counts: &str) -> &mut Text {
        self.key.push_str(&format!(" {counts}"));
        self.add(&format!("fn counts(row: u32) -> bool {{ return {counts}; }}\n"))
    }

    /// A gradient in the first output by `gradient(i)`. A guarded one writes nothing once a bad
    /// label was reported.
    fn gradient(mut self, call: &mut GpuCall<'_>, guarded: bool) -> Result<()> {
        let meta = call.output_meta(0);
        let (dtype, size) = (meta.dtype, meta.dtype.size());
        self.word("n", meta.size() as u32);
        let output = raw::word_output("out", self.bindings.len(), size);
        self.bindings.push(Bind::Output(0));
        let value = match dtype {
            DType::F32 => "bitcast<u32>(gradient(i))".to_string(),
            _ => packed::narrow(dtype, "gradient(i)"),
        };
        self.add(&output).add(&raw::each_word(size, guarded, &value));
        let words = meta.size().div_ceil(packed::per_word(dtype));
        self.launch(call, "gradient", guarded, raw::threads_grid(words))
    }

    fn launch(
        self,
        call: &mut GpuCall<'_>,
        variant: &str,
        status: bool,
        groups: [u32; 3],
    ) -> Result<()> {
        let Text { key, body, fields, words, bindings, .. } = self;
        let source = || {
            let status = if status { raw::status(bindings.len()) } else { String::new() };
            format!("struct Params {{ {fields} }}\nvar<immediate> p: Params;\n{status}{body}")
        };
        let kernel = Kernel {
            variant: format!("{variant}{key}"),
            source: &source,
            bindings: &bindings,
            params: &words,
            groups,
        };
        if status { call.launch_with_status(&kernel) } else { call.launch(&kernel) }
    }
}

/// The label that does not count as WGSL, if the labels' dtype can hold it.
fn ignored_literal(ignored: Option<i64>, dtype: DType) -> Option<String> {
    let ignored = ignored?;
    let class = dtype.class();
    let fits = match class {
        Class::U32 => u32::try_from(ignored).is_ok(),
        Class::I32 => i32::try_from(ignored).is_ok(),
        Class::U64 => ignored >= 0,
        _ => true,
    };
    fits.then(|| format!("{}({ignored})", packed::wgsl_type(class)))
}
