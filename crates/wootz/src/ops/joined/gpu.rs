//! Several products on the GPU as one launch. A matrix is a text of its own, whose names end in its number; a
//! workgroup has rows of one matrix, or the same rows of two where one is the gate of the other.

use std::fmt::Write;

use super::{Gate, Joined, Place};
use crate::array::DType;
use crate::error::Result;
use crate::gpu::{Bind, GpuCall, Kernel, MATH, MAX_PARAMS, grid, numbered, packed};
use crate::ops::quantized::gpu::{RowSums, UNITS_LOOP, Weights, word};

/// Parameters that all texts have, and those of each matrix.
const COMMON: [&str; 4] = ["x_at", "m", "k", "groups"];
const OWN: [&str; 6] = ["w_at", "scales_at", "biases_at", "n", "start", "bias_at"];

/// One of the matrices.
struct Matrix {
    place: Place,
    /// The output that its product goes to, unless a gate takes it.
    output: usize,
    /// None of dense ones.
    weights: Option<Weights>,
    offsets: [u32; 3],
    bias_offset: Option<u32>,
    key: String,
    n: usize,
}

impl Matrix {
    fn new(call: &mut GpuCall<'_>, place: Place, output: usize, n: usize) -> Result<Matrix> {
        let Place { first, scheme, bias } = place;
        let weights = scheme.map(|scheme| Weights::new(call, scheme, first)).transpose()?;
        let (offsets, mut key) = match &weights {
            Some(weights) => (weights.offsets, weights.whole_key()),
            None => ([word(call.meta(first).layout.offset)?, 0, 0], "dense".to_string()),
        };
        let bias_offset = bias.map(|bias| word(call.meta(bias).layout.offset)).transpose()?;
        if bias_offset.is_some() {
            key += "+bias";
        }
        Ok(Matrix { place, output, weights, offsets, bias_offset, key, n })
    }

    /// Names of its parameters: only with a bias it has one for where that is.
    fn own(&self) -> &'static [&'static str] {
        &OWN[..OWN.len() - self.bias_offset.is_none() as usize]
    }

    /// Arrays of its weights.
    fn arrays(&self) -> usize {
        self.weights.as_ref().map_or(1, Weights::count)
    }

    /// Arrays that it binds.
    fn count(&self) -> usize {
        self.arrays() + self.place.bias.is_some() as usize
    }

    fn bindings(&self) -> Vec<Bind<'_>> {
        let mut bindings = match &self.weights {
            Some(weights) => weights.bindings(),
            None => vec![Bind::Input(self.place.first)],
        };
        bindings.extend(self.place.bias.map(Bind::Input));
        bindings
    }

    /// `add_rows`, which adds up the products of some rows, and `with_bias`, on arrays that are bound from `binding`
    /// on.
    fn text(&self, binding: usize, dtype: DType) -> String {
        let mut text = match &self.weights {
            Some(weights) => {
                weights.text(binding, "value") + UNITS_LOOP + include_str!("quantized.wgsl")
            }
            None => packed::reader("w", binding, dtype) + include_str!("dense.wgsl"),
        };
        let mut result = "sum".to_string();
        if self.place.bias.is_some() {
            text += &packed::reader("bias", binding + self.arrays(), dtype);
            // As products by themselves: what has codes is rounded before anything is added to it.
            if self.weights.is_some() {
                result = packed::round(dtype, "sum");
            }
            result += " + bias(p.bias_at + row)";
        }
        text + &format!("fn with_bias(sum: f32, row: u32) -> f32 {{ return {result}; }}\n")
    }
}

/// Arrays that a launch binds whose products a gate puts together.
pub(super) fn gated_bindings(joined: &Joined) -> usize {
    let of_matrix = |place: Place| {
        let table = place.scheme.is_some_and(|scheme| !scheme.table().is_empty());
        let arrays = place.scheme.map_or(1, |scheme| scheme.arrays());
        arrays + table as usize + place.bias.is_some() as usize
    };
    2 + joined.places().map(of_matrix).sum::<usize>()
}

pub(super) fn run(call: &mut GpuCall<'_>, joined: &Joined) -> Result<()> {
    let metas: Vec<_> = call.input_metas().collect();
    let mut matrices = Vec::new();
    for (number, place) in joined.places().enumerate() {
        matrices.push(Matrix::new(call, place, number, place.shape(&metas)[1])?);
    }
    let most = call.gpu().max_storage_bindings();
    if let Some(by) = joined.gate {
        let wanted = gated_bindings(joined);
        if wanted > most {
            let reason = format!("{wanted} arrays in one launch, which binds at most {most}");
            return Err(call.not_on_device(reason));
        }
        return launch(call, &matrices, Some(by));
    }
    // As many at a time as a launch can bind and say.
    let fits = |matrices: &[Matrix]| {
        let bound = 1 + matrices.iter().map(|matrix| matrix.count() + 1).sum::<usize>();
        let said = COMMON.len() + matrices.iter().map(|matrix| matrix.own().len()).sum::<usize>();
        bound <= most && said <= MAX_PARAMS
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
        params.extend(matrix.bias_offset);
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
        own += &numbered(&part, matrix.own(), number);
        for field in matrix.own() {
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
             out_set_{number}(j * p.n_{number} + row, \
             with_bias_{number}(total(0u, SUBGROUPS, lid), row)); }}"
        );
    }
    if let Some(by) = gate {
        text += MATH;
        own += &packed::writer("out", binding, dtype);
        let through = match by {
            Gate::Silu => "gate * wz_sigmoid(gate)",
            // Half of one and a hyperbolic tangent, which is a sigmoid of twice as much. Fast math would multiply what follows
            // with the two by themselves, and infinities of both signs meet.
            Gate::GeluTanh => {
                "gate * wz_sigmoid(1.5957691 * (gate + 0.044715 * (gate * gate * gate)))"
            }
        };
        let _ = writeln!(
            store,
            "if (row < p.n_0) {{ let gate = with_bias_0(total(0u, SUBGROUPS, lid), row); \
             let up = with_bias_1(total(1u, SUBGROUPS, lid), row); \
             out_set(j * p.n_0 + row, {through} * up); }}"
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
