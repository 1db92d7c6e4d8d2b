//! Several products on the GPU as one launch. A matrix is a text of its own, whose names end in its number; a
//! workgroup has rows of one matrix, or the same rows of two where one is the gate of the other.

use std::fmt::Write;

use super::{Gate, Joined};
use crate::array::DType;
use crate::error::Result;
use crate::gpu::{Bind, GpuCall, Kernel, MATH, MAX_PARAMS, grid, numbered, packed};
use crate::ops::quantized::gpu::{RowSums, UNITS_LOOP, Weights, word};
use crate::quant::Scheme;

/// Parameters that all texts have, and those of each matrix.
const COMMON: [&str; 4] = ["x_at", "m", "k", "groups"];
const OWN: [&str; 5] = ["w_at", "scales_at", "biases_at", "n", "start"];

/// One of the matrices.
struct Matrix {
    /// The input that it begins with.
    first: usize,
    /// The output that its product goes to, unless a gate takes it.
    output: usize,
    /// None of dense ones.
    weights: Option<Weights>,
    offsets: [u32; 3],
    key: String,
    n: usize,
}

impl Matrix {
    fn new(
        call: &mut GpuCall<'_>,
        (first, scheme): (usize, Option<Scheme>),
        output: usize,
        n: usize,
    ) -> Result<Matrix> {
        let weights = scheme.map(|scheme| Weights::new(call, scheme, first)).transpose()?;
        let (offsets, key) = match &weights {
            Some(weights) => (weights.offsets, weights.whole_key()),
            None => ([word(call.meta(first).layout.offset)?, 0, 0], "dense".to_string()),
        };
        Ok(Matrix { first, output, weights, offsets, key, n })
    }

    /// Arrays that it binds.
    fn count(&self) -> usize {
        self.weights.as_ref().map_or(1, Weights::count)
    }

    fn bindings(&self) -> Vec<Bind<'_>> {
        match &self.weights {
            Some(weights) => weights.bindings(),
            None => vec![Bind::Input(self.first)],
        }
    }

    /// `add_rows`, which adds up the products of some rows, on arrays that are bound from `binding` on.
    fn text(&self, binding: usize, dtype: DType) -> String {
        match &self.weights {
            Some(weights) => {
                weights.text(binding, "value") + UNITS_LOOP + include_str!("quantized.wgsl")
            }
            None => packed::reader("w", binding, dtype) + include_str!("dense.wgsl"),
        }
    }
}

pub(super) fn run(call: &mut GpuCall<'_>, joined: &Joined) -> Result<()> {
    let metas: Vec<_> = call.input_metas().collect();
    let mut matrices = Vec::new();
    for (number, (first, scheme)) in joined.firsts().enumerate() {
        let shape = joined.shape(&metas, first, scheme);
        matrices.push(Matrix::new(call, (first, scheme), number, shape[1])?);
    }
    if let Some(by) = joined.gate {
        return launch(call, &matrices, Some(by));
    }
    // As many at a time as a launch can bind and say.
    let most = call.gpu().max_storage_bindings();
    let fits = |matrices: &[Matrix]| {
        let bound = 1 + matrices.iter().map(|matrix| matrix.count() + 1).sum::<usize>();
        bound <= most && COMMON.len() + OWN.len() * matrices.len() <= MAX_PARAMS
    };
    let mut rest = &matrices[..];
    while !rest.is_empty() {
        let count = (1..=rest.len()).rev().find(|&count| fits(&rest[..count])).unwrap_or(1);
        launch(call, &rest[..count], None)?;
        rest = &rest[count..];
    }
    Ok(())
}

/// Products with all of the matrices, each for itself, or those of two put together.
fn launch(call: &mut GpuCall<'_>, matrices: &[Matrix], gate: Option<Gate>) -> Result<()> {
    let (x, dtype) = (call.meta(0), call.output_meta(0).dtype);
    let [_, m, k] = [0, 1, 2].map(|axis| x.shape()[axis]);
    let way = RowSums::of(call, m, k);
    let groups_of = |matrix: &Matrix| matrix.n.div_ceil(way.rows);
    let groups: usize = match gate {
        Some(_) => matrices.first().map_or(0, groups_of),
        None => matrices.iter().map(groups_of).sum(),
    };
    let mut params = vec![word(x.layout.offset)?, word(m)?, word(k)?, word(groups)?];
    let mut bindings = vec![Bind::Input(0)];
    let mut start = 0;
    for matrix in matrices {
        params.extend(matrix.offsets);
        params.extend([word(matrix.n)?, word(start)?]);
        start += groups_of(matrix);
        bindings.extend(matrix.bindings());
        if gate.is_none() {
            bindings.push(Bind::Output(matrix.output));
        }
    }
    if gate.is_some() {
        bindings.push(Bind::Output(0));
    }
    let keys: Vec<&str> = matrices.iter().map(|matrix| matrix.key.as_str()).collect();
    call.launch(&Kernel {
        variant: format!("{}/{dtype}/{gate:?}/{}", way.key(), keys.join("/")),
        source: &|| source(&way, dtype, matrices, gate),
        bindings: &bindings,
        params: &params,
        groups: grid(groups),
    })
}

fn source(way: &RowSums, dtype: DType, matrices: &[Matrix], gate: Option<Gate>) -> String {
    let mut text = packed::PACKING.to_string();
    let mut fields = COMMON.join(": u32, ") + ": u32,\n";
    let (mut add, mut store) = (String::new(), String::new());
    let mut own = String::new();
    let mut binding = 1;
    for (number, matrix) in matrices.iter().enumerate() {
        let mut part = matrix.text(binding, dtype);
        binding += matrix.count();
        if gate.is_none() {
            part += &packed::writer("out", binding, dtype);
            binding += 1;
        }
        own += &numbered(&part, &OWN, number);
        for field in OWN {
            let _ = write!(fields, "{field}_{number}: u32, ");
        }
        let here = match number + 1 == matrices.len() {
            true => format!("group >= p.start_{number} && group < p.groups"),
            false => format!("group >= p.start_{number} && group < p.start_{}", number + 1),
        };
        if gate.is_some() {
            let _ = writeln!(
                add,
                "first = group * ROWS;\n\
                 if (group < p.groups) {{ add_rows_{number}(first, lid, &sums); }}\n\
                 keep({number}u, SUBGROUP, LANE, &sums);"
            );
            continue;
        }
        let _ = writeln!(
            add,
            "if ({here}) {{ first = (group - p.start_{number}) * ROWS; \
             add_rows_{number}(first, lid, &sums); }}"
        );
        let _ = writeln!(
            store,
            "if ({here} && row < p.n_{number}) {{ \
             out_set_{number}(j * p.n_{number} + row, total(0u, SUBGROUPS, lid)); }}"
        );
    }
    if let Some(by) = gate {
        text += MATH;
        own += &packed::writer("out", binding, dtype);
        let through = match by {
            Gate::Silu => "gate * wz_sigmoid(gate)",
            Gate::GeluTanh => {
                "0.5 * gate * (1.0 + wz_tanh(0.7978846 * (gate + 0.044715 * (gate * gate * gate))))"
            }
        };
        let _ = writeln!(
            store,
            "if (row < p.n_0) {{ let gate = total(0u, SUBGROUPS, lid); \
             out_set(j * p.n_0 + row, {through} * total(1u, SUBGROUPS, lid)); }}"
        );
    } else {
        add += "keep(0u, SUBGROUP, LANE, &sums);\n";
    }
    let parts = if gate.is_some() { matrices.len() } else { 1 };
    let main = include_str!("main.wgsl").replace("// ADD", &add).replace("// STORE", &store);
    let constants = way.constants() + &format!("const PARTS = {parts}u;\n");
    let params = format!("struct Params {{ {fields} }}\nvar<immediate> p: Params;\n");
    text += &packed::reader("x", 0, dtype);
    [text, params, constants, own, way.text(&main)].concat()
}
