//! Normalisation on the GPU: one workgroup per row, or per block of rows where gradients are summed
//! over the rows.

use super::{Norm, blocks_of};
use crate::array::DType;
use crate::error::Result;
use crate::gpu::{Bind, GpuCall, Kernel, grid, packed};

const GROUP: &str = include_str!("group.wgsl");
const WIDTH: usize = 256;

pub(super) fn forward(call: &mut GpuCall<'_>, norm: Norm) -> Result<()> {
    let (rows, columns) = rows_of(call);
    let params = [
        rows as u32,
        columns as u32,
        norm.eps.to_bits(),
        offset(call, Some(0)),
        offset(call, norm.weight()),
        offset(call, norm.bias()),
    ];
    let memory = Memory::new(call).read("x", Some(0)).read("weight", norm.weight());
    let memory = memory.read_or("bias", norm.bias(), "0.0").write("out", 0).of(norm);
    memory.launch(call, "row", include_str!("row.wgsl"), &params, rows)
}

pub(super) fn inverse(call: &mut GpuCall<'_>, eps: f32) -> Result<()> {
    let (rows, columns) = rows_of(call);
    let params = [rows as u32, columns as u32, eps.to_bits(), offset(call, Some(0))];
    let memory = Memory::new(call).read("x", Some(0)).write("out", 0);
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
    let memory = Memory::new(call).read("x", Some(0)).read("weight", weight);
    let memory = memory.read("dy", Some(dy)).read("r", Some(r)).write("out", 0);
    memory.launch(call, "row", include_str!("backward_dx.wgsl"), &params, rows)
}

pub(super) fn backward_dw(call: &mut GpuCall<'_>) -> Result<()> {
    let (rows, columns) = rows_of(call);
    let (blocks, rows_per_block) = blocks_of(rows, true);
    // Without rows there is no memory to bind, and the sum is zero.
    if blocks > 0 {
        let across = columns.div_ceil(WIDTH);
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
        let memory = Memory::new(call).read("x", Some(0)).read("dy", Some(1)).read("r", Some(2));
        let memory = memory.scratch("partials");
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
        ];
        let memory = Memory::new(call).read("x", Some(0)).read("weight", norm.weight());
        let memory = memory.read("dy", dy).write("out", 0).scratch("partials").of(norm);
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
    let memory = Memory::new(call).scratch("partials").write("sum", output);
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
    aliased: Vec<bool>,
    dtypes: Vec<DType>,
    outputs: Vec<DType>,
    parts: Vec<(&'static str, Part)>,
    /// Of kernels that both norms share.
    norm: Option<Norm>,
}

#[derive(Clone, Copy)]
enum Part {
    Input(usize),
    /// An input that shares the memory of the output called `out`.
    InPlace(usize),
    /// An input that is not there: this number everywhere.
    Number(&'static str),
    Output(usize),
    Scratch,
}

impl Memory {
    fn new(call: &GpuCall<'_>) -> Memory {
        let dtypes: Vec<DType> = call.input_metas().map(|meta| meta.dtype).collect();
        Memory {
            dtype: dtypes[0],
            aliased: (0..dtypes.len()).map(|input| call.aliased(input)).collect(),
            outputs: Vec::new(),
            dtypes,
            parts: Vec::new(),
            norm: None,
        }
    }

    /// For a kernel that both norms share.
    fn of(self, norm: Norm) -> Memory {
        Memory { norm: Some(norm), ..self }
    }

    /// An input, or ones if it is not there.
    fn read(self, name: &'static str, input: Option<usize>) -> Memory {
        self.read_or(name, input, "1.0")
    }

    fn read_or(
        mut self,
        name: &'static str,
        input: Option<usize>,
        otherwise: &'static str,
    ) -> Memory {
        let part = match input {
            Some(input) if self.aliased[input] => Part::InPlace(input),
            Some(input) => Part::Input(input),
            None => Part::Number(otherwise),
        };
        self.parts.push((name, part));
        self
    }

    fn write(mut self, name: &'static str, output: usize) -> Memory {
        self.parts.push((name, Part::Output(output)));
        self
    }

    fn scratch(mut self, name: &'static str) -> Memory {
        self.parts.push((name, Part::Scratch));
        self
    }

    fn launch(
        mut self,
        call: &mut GpuCall<'_>,
        variant: &str,
        text: &str,
        params: &[u32],
        groups: usize,
    ) -> Result<()> {
        let mut bindings = Vec::new();
        let mut key = format!("{variant}.{}.", self.dtype);
        if let Some(Norm { centred: true, biased, .. }) = self.norm {
            key.push_str(if biased { "centred.biased." } else { "centred." });
        }
        for &(_, part) in &self.parts {
            let (bind, sign) = match part {
                Part::Input(input) => (Some(Bind::Input(input)), '-'),
                Part::InPlace(_) => (None, '='),
                Part::Number(_) => (None, '1'),
                Part::Output(output) => {
                    self.outputs.push(call.output_meta(output).dtype);
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
        let mut source = packed::PACKING.to_string();
        let (mut binding, mut outputs) = (0, self.outputs.iter());
        for &(name, part) in &self.parts {
            source.push_str(&match part {
                Part::Input(input) => packed::reader(name, binding, self.dtypes[input]),
                Part::InPlace(input) => packed::load_written(name, "out", self.dtypes[input]),
                Part::Number(number) => {
                    format!("fn {name}(i: u32) -> f32 {{ return {number}; }}\n")
                }
                Part::Output(_) => {
                    let dtype = outputs.next().copied().unwrap_or(self.dtype);
                    packed::writer(name, binding, dtype)
                }
                Part::Scratch => packed::writer(name, binding, DType::F32),
            });
            binding += !matches!(part, Part::InPlace(_) | Part::Number(_)) as usize;
        }
        let value = packed::round(self.dtype, "value");
        source.push_str(&format!("fn rounded(value: f32) -> f32 {{ return {value}; }}\n"));
        source.push_str(GROUP);
        if let Some(Norm { centred, weighted, biased, .. }) = self.norm {
            for (name, value) in [("CENTRED", centred), ("WEIGHTED", weighted), ("BIASED", biased)]
            {
                source.push_str(&format!("const {name} = {value};\n"));
            }
            source.push_str(include_str!("moments.wgsl"));
        }
        source + text
    }
}
