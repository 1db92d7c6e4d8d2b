//! Normalisation on the GPU: one workgroup per row, or per block of rows where gradients are summed
//! over the rows.

use super::{Norm, blocks_of};
use crate::array::DType;
use crate::error::Result;
use crate::gpu::rows::{Group, Rows};
use crate::gpu::{Bind, GpuCall, Kernel, grid, packed};

const GROUP: &str = include_str!("group.wgsl");
const WIDTH: usize = 256;

/// Threads of a row and elements that each keeps in registers: of one array that is read, of each of two, or of each of
/// four. Longer rows, and those of more than 256 threads on a GPU that has no more, are read again whenever they are
/// needed.
const KEPT: &[Group] = &[Group { width: WIDTH, most: 32 }, Group { width: 512, most: 64 }];
const KEPT_OF_TWO: &[Group] = &[Group { width: WIDTH, most: 32 }, Group { width: 512, most: 32 }];
const KEPT_OF_FOUR: &[Group] = &[Group { width: WIDTH, most: 16 }, Group { width: 512, most: 16 }];
/// Of none: rows are read once.
const NONE: &[Group] = &[Group { width: WIDTH, most: 0 }];

pub(super) fn forward(call: &mut GpuCall<'_>, norm: Norm) -> Result<()> {
    let (rows, columns) = rows_of(call);
    let params = [
        rows as u32,
        columns as u32,
        norm.eps.to_bits(),
        offset(call, Some(0)),
        offset(call, norm.weight()),
        offset(call, norm.bias()),
        offset(call, norm.added()),
        offset(call, norm.first_weight()),
        norm.first.unwrap_or(0.0).to_bits(),
    ];
    let memory = Memory::new(call, KEPT).keep("x", Some(0)).read("weight", norm.weight());
    let memory = memory.read_or("bias", norm.bias(), "0.0").of(norm);
    let memory = if norm.only_sum { memory } else { memory.write("out", 0) };
    let memory = memory.read_or("added", norm.added(), "0.0");
    let memory = if norm.added { memory.write("sum", !norm.only_sum as usize) } else { memory };
    let memory = memory.read("first_weight", norm.first_weight());
    memory.launch(call, "row", include_str!("row.wgsl"), &params, rows)
}

pub(super) fn inverse(call: &mut GpuCall<'_>, eps: f32) -> Result<()> {
    let (rows, columns) = rows_of(call);
    let params = [rows as u32, columns as u32, eps.to_bits(), offset(call, Some(0))];
    let memory = Memory::new(call, NONE).read("x", Some(0)).write_single("out", 0, DType::F32);
    memory.launch(call, "inverse", include_str!("inverse.wgsl"), &params, rows)
}

pub(super) fn backward_dx(call: &mut GpuCall<'_>, weighted: bool) -> Result<()> {
    let (rows, columns) = rows_of(call);
    let weight = weighted.then_some(1);
    let (dy, r) = if weighted { (2, 3) } else { (1, 2) };
    let params = [
        rows as u32,
        columns as u32,
        offset(call, Some(0)),
        offset(call, weight),
        offset(call, Some(dy)),
        offset(call, Some(r)),
    ];
    let memory = Memory::new(call, KEPT_OF_TWO).keep("x", Some(0)).read("weight", weight);
    let memory = memory.keep("dy", Some(dy)).read_single("r", r).write("out", 0);
    memory.launch(call, "row", include_str!("backward_dx.wgsl"), &params, rows)
}

pub(super) fn backward_dw(call: &mut GpuCall<'_>) -> Result<()> {
    let (rows, columns) = rows_of(call);
    let (blocks, rows_per_block) = blocks_of(rows, true);
    // Without rows there is no memory to bind, and the sum is zero.
    if blocks > 0 {
        let memory = Memory::new(call, NONE).read("x", Some(0)).read("dy", Some(1));
        let memory = memory.read_single("r", 2).scratch("partials");
        let across = columns.div_ceil(WIDTH * memory.rows.span());
        let params = [
            rows as u32,
            columns as u32,
            rows_per_block as u32,
            across as u32,
            (blocks * across) as u32,
            offset(call, Some(0)),
            offset(call, Some(1)),
            offset(call, Some(2)),
        ];
        let text = include_str!("backward_dw.wgsl");
        memory.launch(call, "block", text, &params, blocks * across)?;
    }
    add_partials(call, 0, columns, blocks, 1, 0)
}

pub(super) fn backward(call: &mut GpuCall<'_>, norm: Norm) -> Result<()> {
    let (rows, columns) = rows_of(call);
    let (blocks, rows_per_block) = blocks_of(rows, true);
    if blocks > 0 {
        let dy = Some(norm.cotangent());
        let params = [
            rows as u32,
            columns as u32,
            rows_per_block as u32,
            blocks as u32,
            norm.eps.to_bits(),
            offset(call, Some(0)),
            offset(call, norm.weight()),
            offset(call, dy),
            offset(call, norm.direct()),
        ];
        let memory = Memory::new(call, KEPT_OF_FOUR).keep("x", Some(0));
        let memory = memory.read("weight", norm.weight()).keep("dy", dy);
        let memory = memory
            .read_or("direct", norm.direct(), "0.0")
            .write("out", 0)
            .scratch("partials")
            .of(norm);
        memory.launch(call, "block", include_str!("backward.wgsl"), &params, blocks)?;
    }
    for index in 0..norm.sums() {
        add_partials(call, 1 + index, columns, blocks, norm.sums(), index)?;
    }
    Ok(())
}

/// Sums the part `index` of the `parts` that each block has.
fn add_partials(
    call: &mut GpuCall<'_>,
    output: usize,
    columns: usize,
    blocks: usize,
    parts: usize,
    index: usize,
) -> Result<()> {
    let dtype = call.output_meta(output).dtype;
    let memory = Memory::new(call, NONE).scratch("partials").write_single("sum", output, dtype);
    let text = include_str!("add_partials.wgsl");
    let params = [columns, blocks, parts * columns, index * columns].map(|number| number as u32);
    memory.launch(call, "add_partials", text, &params, columns.div_ceil(WIDTH))
}

/// Rows and columns of the first input.
fn rows_of(call: &GpuCall<'_>) -> (usize, usize) {
    let x = call.meta(0);
    let columns = x.shape().last().copied().unwrap_or(1).max(1);
    (x.size() / columns, columns)
}

fn offset(call: &GpuCall<'_>, input: Option<usize>) -> u32 {
    input.map_or(0, |input| call.meta(input).layout.offset as u32)
}

/// What a kernel binds, and the functions by which it reaches it.
struct Memory {
    dtype: DType,
    rows: Rows,
    aliased: Vec<bool>,
    dtypes: Vec<DType>,
    parts: Vec<(&'static str, Part)>,
    /// Of kernels that both norms share.
    norm: Option<Norm>,
}

#[derive(Clone, Copy)]
enum Part {
    /// An input of rows, or of one row for all; whether it is kept in registers.
    Input(usize, bool),
    /// As before, in the memory of the output called `out`.
    InPlace(bool),
    /// An input that is not there: this number everywhere.
    Number(&'static str),
    /// An input that is read by the element.
    Single(usize),
    Output(usize),
    /// An output that is written by the element.
    SingleOutput(usize, DType),
    Scratch,
}

impl Memory {
    /// For a kernel that gives rows to such groups.
    fn new(call: &GpuCall<'_>, groups: &[Group]) -> Memory {
        let metas: Vec<_> = call.input_metas().collect();
        let dtype = metas[0].dtype;
        let offsets = metas.iter().filter(|meta| meta.dtype == dtype).map(|x| x.layout.offset);
        Memory {
            dtype,
            rows: Rows::in_groups(
                dtype,
                rows_of(call).1,
                offsets,
                groups,
                call.gpu().max_threads(),
            ),
            aliased: (0..metas.len()).map(|input| call.aliased(input)).collect(),
            dtypes: metas.iter().map(|meta| meta.dtype).collect(),
            parts: Vec::new(),
            norm: None,
        }
    }

    /// For a kernel that both norms share.
    fn of(self, norm: Norm) -> Memory {
        Memory { norm: Some(norm), ..self }
    }

    /// An input that is needed more than once.
    fn keep(self, name: &'static str, input: Option<usize>) -> Memory {
        self.input(name, input, true, "1.0")
    }

    /// An input, or ones if it is not there.
    fn read(self, name: &'static str, input: Option<usize>) -> Memory {
        self.read_or(name, input, "1.0")
    }

    fn read_or(self, name: &'static str, input: Option<usize>, otherwise: &'static str) -> Memory {
        self.input(name, input, false, otherwise)
    }

    fn input(
        self,
        name: &'static str,
        input: Option<usize>,
        kept: bool,
        otherwise: &'static str,
    ) -> Memory {
        let part = match input {
            Some(input) if self.aliased[input] => Part::InPlace(kept),
            Some(input) => Part::Input(input, kept),
            None => Part::Number(otherwise),
        };
        self.with(name, part)
    }

    fn read_single(self, name: &'static str, input: usize) -> Memory {
        self.with(name, Part::Single(input))
    }

    fn write(self, name: &'static str, output: usize) -> Memory {
        self.with(name, Part::Output(output))
    }

    fn write_single(self, name: &'static str, output: usize, dtype: DType) -> Memory {
        self.with(name, Part::SingleOutput(output, dtype))
    }

    fn scratch(self, name: &'static str) -> Memory {
        self.with(name, Part::Scratch)
    }

    fn with(mut self, name: &'static str, part: Part) -> Memory {
        self.parts.push((name, part));
        self
    }

    fn launch(
        self,
        call: &mut GpuCall<'_>,
        variant: &str,
        text: &str,
        params: &[u32],
        groups: usize,
    ) -> Result<()> {
        let mut bindings = Vec::new();
        let mut key = format!("{variant}.{}.{}.", self.dtype, self.rows.key());
        if let Some(Norm { centred, summed, biased, .. }) = self.norm {
            for (word, there) in [("centred.", centred), ("summed.", summed), ("biased.", biased)] {
                key.push_str(if there { word } else { "" });
            }
        }
        for &(_, part) in &self.parts {
            let (bind, sign) = match part {
                Part::Input(input, _) | Part::Single(input) => (Some(Bind::Input(input)), '-'),
                Part::InPlace(_) => (None, '='),
                Part::Number(_) => (None, '1'),
                Part::Output(output) | Part::SingleOutput(output, _) => {
                    (Some(Bind::Output(output)), 'o')
                }
                Part::Scratch => (Some(Bind::Scratch), 's'),
            };
            bindings.extend(bind);
            key.push(sign);
        }
        call.launch(&Kernel {
            variant: key,
            source: &|| self.source(text),
            bindings: &bindings,
            params,
            groups: grid(groups),
        })
    }

    fn source(&self, text: &str) -> String {
        let rows = &self.rows;
        let mut source = [packed::PACKING, &rows.types()].concat();
        let mut binding = 0;
        for &(name, part) in &self.parts {
            source.push_str(&match part {
                Part::Input(..) => rows.reader(name, binding),
                Part::InPlace(_) => rows.load_written(name, "out"),
                Part::Number(number) => rows.number(name, number),
                Part::Single(input) => packed::reader(name, binding, self.dtypes[input]),
                Part::Output(_) => rows.writer(name, binding),
                Part::SingleOutput(_, dtype) => packed::writer(name, binding, dtype),
                Part::Scratch => packed::writer(name, binding, DType::F32),
            });
            if let Part::Input(_, true) | Part::InPlace(true) = part {
                source.push_str(&rows.keeper(name));
            }
            binding += !matches!(part, Part::InPlace(_) | Part::Number(_)) as usize;
        }
        source.push_str(GROUP);
        if let Some(Norm {
            centred,
            summed,
            added,
            first,
            only_sum,
            weighted,
            biased,
            direct,
            ..
        }) = self.norm
        {
            for (name, value) in [
                ("FIRST", first.is_some()),
                ("ONLY_SUM", only_sum),
                ("CENTRED", centred),
                ("SUMMED", summed),
                ("ADDED", added),
                ("WEIGHTED", weighted),
                ("BIASED", biased),
                ("DIRECT", direct),
            ] {
                source.push_str(&format!("const {name} = {value};\n"));
            }
            if !added {
                source.push_str("fn sum_span_set(i: u32, value: Span) {}\n");
            }
            if only_sum {
                source.push_str("fn out_span_set(i: u32, value: Span) {}\n");
            }
            source.push_str(include_str!("moments.wgsl"));
        }
        rows.typed(&(source + text))
    }
}
