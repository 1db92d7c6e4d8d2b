//! Kernels that give a workgroup to a row and need its elements more than once: how a row lies over
//! the threads, and WGSL that keeps it in registers, so that memory is read once.
//!
//! A thread takes spans of a row: single elements, or whole words of a packed type, which then are
//! loaded and stored at once and merged with nobody. Texts compute in what they call `Span`, which
//! becomes `f32` or `vec2<f32>`, step by step:
//!
//! ```wgsl
//! for (var step = 0u; step < span_steps(columns); step++) {
//!     let column = span_column(step, lid);
//!     if (column < columns) { out_span(first + column, x_row(step, first + column)); }
//! }
//! ```

use super::packed;
use crate::array::DType;

/// What every text of spans has.
const SPANS: &str = include_str!("snippets/spans.wgsl");

/// A workgroup that a row may be given to. All that 512 threads keep beside what they compute with should be 64
/// elements each, lest registers run out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Group {
    /// Its threads.
    pub(crate) width: usize,
    /// Elements that each keeps at most.
    pub(crate) most: usize,
}

/// How a row lies over the threads of a workgroup.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rows {
    dtype: DType,
    width: usize,
    /// Elements of a span.
    span: usize,
    /// Spans that a thread keeps of a row; 0 if a row has too many.
    kept: usize,
}

impl Rows {
    /// For rows of so many columns of a float type in arrays that begin at these offsets, and groups
    /// of so many threads, which keep at most so many elements each.
    pub(crate) fn new(
        dtype: DType,
        columns: usize,
        offsets: impl IntoIterator<Item = usize>,
        width: usize,
        most: usize,
    ) -> Rows {
        Rows::in_groups(dtype, columns, offsets, &[Group { width, most }], usize::MAX)
    }

    /// For the first of some groups that keeps a row and has no more than so many threads; the first of all if
    /// there is none.
    pub(crate) fn in_groups(
        dtype: DType,
        columns: usize,
        offsets: impl IntoIterator<Item = usize>,
        groups: &[Group],
        threads: usize,
    ) -> Rows {
        let per_word = packed::per_word(dtype);
        let whole = |place: usize| place.is_multiple_of(per_word);
        let span = if whole(columns) && offsets.into_iter().all(whole) { per_word } else { 1 };
        let keeping = groups.iter().filter(|group| group.width <= threads).find_map(|group| {
            // Powers of two, so that few kernels serve all lengths.
            let steps = columns.div_ceil(group.width * span).next_power_of_two();
            (steps * span <= group.most).then_some((group.width, steps))
        });
        let (width, kept) = keeping.unwrap_or((groups.first().map_or(1, |group| group.width), 0));
        Rows { dtype, width, span, kept }
    }

    /// Elements that a thread takes at once.
    pub(crate) fn span(&self) -> usize {
        self.span
    }

    /// What it adds to a kernel's key.
    pub(crate) fn key(&self) -> String {
        format!("{}x{}x{}", self.width, self.span, self.kept)
    }

    /// A whole text with the types of its spans.
    pub(crate) fn typed(&self, text: &str) -> String {
        let (float, bits) =
            if self.span == 1 { ("f32", "u32") } else { ("vec2<f32>", "vec2<u32>") };
        text.replace("SpanBits", bits).replace("Span", float)
    }

    /// What a thread's spans are, and functions of them.
    pub(crate) fn types(&self) -> String {
        let Rows { width, span, kept, .. } = self;
        let lane = if *span == 1 { "value" } else { "value[lane]" };
        let sum = if *span == 1 { "value" } else { "value.x + value.y" };
        let of = if *span == 1 { "first" } else { "Span(first, last)" };
        format!(
            "const WIDTH = {width}u;\nconst SPAN = {span}u;\nconst KEPT = {kept}u;\n\
             fn span_lane(value: Span, lane: u32) -> f32 {{ return {lane}; }}\n\
             fn span_sum(value: Span) -> f32 {{ return {sum}; }}\n\
             fn span_of(first: f32, last: f32) -> Span {{ return {of}; }}\n{}{SPANS}",
            self.each("span_rounded", &packed::round(self.dtype, "value")),
        )
    }

    /// A function of spans that computes an expression of `value` in each lane.
    pub(crate) fn each(&self, name: &str, expression: &str) -> String {
        let lanes = if self.span == 1 {
            format!("return {expression};")
        } else {
            let lane = |lane: &str| {
                format!("{{ let value = spans.{lane}; result.{lane} = {expression}; }}")
            };
            format!("var result: Span; {} {} return result;", lane("x"), lane("y"))
        };
        let argument = if self.span == 1 { "value" } else { "spans" };
        format!("fn {name}({argument}: Span) -> Span {{ {lanes} }}\n")
    }

    /// Declares a buffer to read, with `name_span(i)`, which loads the span that begins at element
    /// `i`.
    pub(crate) fn reader(&self, name: &str, binding: usize) -> String {
        packed::reader(name, binding, self.dtype) + &self.load(name, &format!("{name}_data"))
    }

    /// As [`reader`](Self::reader), for an input in the memory of the output called `output`.
    pub(crate) fn load_written(&self, name: &str, output: &str) -> String {
        match self.span {
            1 => packed::load_written(name, output, self.dtype) + &self.load(name, ""),
            _ => self.load(name, &format!("{output}_data")),
        }
    }

    /// As [`reader`](Self::reader), for an input that is not there: a number everywhere.
    pub(crate) fn number(&self, name: &str, number: &str) -> String {
        format!("fn {name}_span(i: u32) -> Span {{ return Span({number}); }}\n")
    }

    /// Declares an output, with `name_span_set(i, value)`, which stores the span that begins at `i`.
    pub(crate) fn writer(&self, name: &str, binding: usize) -> String {
        if self.span == 1 {
            let set = format!("{name}_set(i, value);");
            return packed::writer(name, binding, self.dtype) + &self.store(name, &set);
        }
        let [low, high] = ["value.x", "value.y"].map(|lane| packed::narrow(self.dtype, lane));
        let set = format!("{name}_data[i >> 1u] = {low} | ({high} << 16u);");
        packed::word_writer(name, binding, self.dtype) + &self.store(name, &set)
    }

    /// For an input declared before: `name_keep(first, columns, lid)`, which loads a thread's spans
    /// of the row that begins at `first`, and `name_row(step, i)`, which gives one of them.
    pub(crate) fn keeper(&self, name: &str) -> String {
        format!(
            "var<private> {name}_kept: array<Span, max(KEPT, 1u)>;\n\
             fn {name}_keep(first: u32, columns: u32, lid: u32) {{\n\
             for (var step = 0u; step < KEPT; step++) {{\n\
             let column = span_column(step, lid);\n\
             if (column < columns) {{ {name}_kept[step] = {name}_span(first + column); }}\n\
             }}\n}}\n\
             fn {name}_row(step: u32, i: u32) -> Span {{\n\
             if (KEPT > 0u) {{ return {name}_kept[step]; }}\n\
             return {name}_span(i);\n}}\n"
        )
    }

    fn load(&self, name: &str, data: &str) -> String {
        let body = match self.span {
            1 => format!("return {name}(i);"),
            _ => {
                let widen = format!("wz_widen_{}", self.dtype.name());
                format!(
                    "let word = {data}[i >> 1u]; return Span({widen}(word, 0u), {widen}(word, 1u));"
                )
            }
        };
        format!("fn {name}_span(i: u32) -> Span {{ {body} }}\n")
    }

    fn store(&self, name: &str, set: &str) -> String {
        format!("fn {name}_span_set(i: u32, value: Span) {{ {set} }}\n")
    }
}
