//! Chosen products on the GPU: the indices are checked, the products are sorted by their right
//! matrices, and then the kernels of plain products compute tiles of each group.

use super::super::gpu::{Form, Tiles, Vectors, cooperative, stride, vectors, word, write_zeros};
use super::super::plan::{Matrix, Plan};
use super::GatherMmBackward;
use crate::array::{Meta, Shape};
use crate::error::Result;
use crate::gpu::{Bind, GpuCall, Kernel, grid, packed};
use crate::ops::indexing::along_axis::check_on_gpu;
use crate::ops::indexing::offsets::place_function;
use crate::ops::indexing::raw::status;

const GROUP: &str = include_str!("group.wgsl");
/// Readers of what `group.wgsl` wrote.
const GROUPS: &str = include_str!("groups.wgsl");
const ROWS: &str = include_str!("rows.wgsl");
const SUMS: &str = include_str!("sums.wgsl");

/// The parameters that `groups.wgsl` and those who use it need.
const FIELDS: &str = "a_batch: u32, b_batch: u32, experts: u32, items: u32,";

/// Products that are computed one by one, as products with vectors: the experts of one token
/// are all different.
const FEW: usize = 16;

pub(super) fn forward(call: &mut GpuCall<'_>) -> Result<()> {
    let (a, b) = (call.meta(0), call.meta(1));
    let (m, k, n) = (a.shape()[1], a.shape()[2], b.shape()[2]);
    let (count, experts) = (call.meta(2).size(), b.shape()[0]);
    if call.output_meta(0).size() == 0 {
        return Ok(());
    }
    group(call, a.shape()[0], experts)?;
    if k == 0 {
        return write_zeros(call);
    }
    let more = vec![
        stride(a.layout.strides[0]),
        stride(b.layout.strides[0]),
        word(experts)?,
        word(count)?,
    ];
    let sides = [a, b].map(matrix);
    if m == 1 && count <= FEW {
        let form = vectors(
            &plan(count, [1, n, k], sides),
            &Vectors {
                matrix: "right(batch) * p.b_batch",
                vector: "left(batch) * p.a_batch",
                output: "product(batch) * p.outputs",
                running: "starts(p.experts) == p.items",
                finished: "sum",
            },
        )?;
        return launch(call, [0, 1], form, more, FIELDS, "");
    }
    // Products of as many rows as one would find in a group.
    let many = n > 32 && count * m > 32 * experts;
    let plain = Tiles::Plain { large: many };
    let tiles = cooperative(call).filter(|_| many).unwrap_or(plain);
    // A group has at most one tile that is not full; see `rows.wgsl`.
    let (down, across) = (count * m / tiles.side() + experts, n.div_ceil(tiles.side()));
    let params = params([m, n, k], sides, across, word(down * across)?)?;
    let form = tiles.form(n, params, word(down * across)?);
    launch(call, [0, 1], form, more, FIELDS, ROWS)
}

pub(super) fn backward(call: &mut GpuCall<'_>, op: &GatherMmBackward) -> Result<()> {
    let a = call.meta(0);
    let (inner, count) = (a.shape()[1], call.meta(2).size());
    let Some(&[_, m, n]) = call.output_meta(0).shape().first_chunk::<3>() else { return Ok(()) };
    if op.experts * m * n == 0 {
        return Ok(());
    }
    if count == 0 {
        return write_zeros(call);
    }
    group(call, a.shape()[0], op.experts)?;
    if inner == 0 {
        return write_zeros(call);
    }
    let large = m > 32 && n > 32;
    let tiles = cooperative(call).filter(|_| large).unwrap_or(Tiles::Plain { large });
    let (down, across) = (m.div_ceil(tiles.side()), n.div_ceil(tiles.side()));
    let groups = word(op.experts.saturating_mul(down).saturating_mul(across))?;
    let inputs = if op.transposed { [1, 0] } else { [0, 1] };
    let [left, right] = inputs.map(|input| call.meta(input));
    let turned = |Matrix { offset, rows, columns }| Matrix { offset, rows: columns, columns: rows };
    let sides = [turned(matrix(left)), matrix(right)];
    let mut form = tiles.form(n, params([m, n, inner], sides, across, groups)?, groups);
    form.params[10] = word(down * across)?;
    let more = vec![
        stride(left.layout.strides[0]),
        stride(right.layout.strides[0]),
        word(op.experts)?,
        word(count)?,
        op.transposed as u32,
    ];
    launch(call, inputs, form, more, &backward_fields(), SUMS)
}

/// The parameters that `sums.wgsl` needs.
fn backward_fields() -> String {
    format!("{FIELDS} transposed: u32,")
}

/// Checks the indices and writes to the scratch memory which products belong together.
fn group(call: &mut GpuCall<'_>, left: usize, right: usize) -> Result<()> {
    let indices = [call.meta(2), call.meta(3)];
    if indices[0].size() == 0 {
        return Ok(());
    }
    check_on_gpu(call, 2, left, false)?;
    check_on_gpu(call, 3, right, false)?;
    let dtype = indices[0].dtype;
    let source = || {
        format!(
            "{}{}{}{}{}{GROUP}",
            packed::PACKING,
            packed::reader("lhs", 0, dtype),
            packed::reader("rhs", 1, dtype),
            status(3),
            place_function(dtype, false),
        )
    };
    call.launch_with_status(&Kernel {
        variant: format!("group {dtype}"),
        source: &source,
        bindings: &[Bind::Input(2), Bind::Input(3), Bind::Scratch],
        params: &[
            word(indices[0].size())?,
            word(right)?,
            word(left)?,
            word(indices[0].layout.offset)?,
            word(indices[1].layout.offset)?,
        ],
        groups: grid((right + 1).div_ceil(256)),
    })
}

/// Launches a form on two inputs, with the groups.
fn launch(
    call: &mut GpuCall<'_>,
    [left, right]: [usize; 2],
    form: Form,
    more: Vec<u32>,
    fields: &str,
    places: &str,
) -> Result<()> {
    let dtype = call.output_meta(0).dtype;
    let params = [&form.params[..], &more].concat();
    let functions = functions(places);
    call.launch(&Kernel {
        variant: format!("{}/{dtype}/{}", form.variant, form.even),
        source: &|| form.text(dtype, fields, &functions),
        bindings: &[Bind::Input(left), Bind::Input(right), Bind::Output(0), Bind::ReadScratch],
        params: &params,
        groups: grid(form.groups as usize),
    })
}

/// What a kernel is told of the groups.
fn functions(places: &str) -> String {
    format!(
        "{GROUPS}{places}\nfn finish(start: u32, row: u32, column: u32, sum: f32) -> f32 \
         {{ return sum; }}\n"
    )
}

/// The texts with cooperative matrices, which few devices run.
#[cfg(test)]
pub(in super::super) fn cooperative_texts() -> Vec<String> {
    let mut texts = Vec::new();
    for (dtype, native) in [(crate::DType::BF16, false), (crate::DType::F16, true)] {
        let form = Tiles::Cooperative { native }.form(64, Vec::new(), 1);
        texts.push(form.text(dtype, FIELDS, &functions(ROWS)));
        texts.push(form.text(dtype, &backward_fields(), &functions(SUMS)));
    }
    texts
}

/// The first of some matrices.
fn matrix(meta: &Meta) -> Matrix {
    let layout = &meta.layout;
    Matrix { offset: layout.offset, rows: layout.strides[1], columns: layout.strides[2] }
}

/// Products of one shape whose batch the kernel finds by itself.
fn plan(count: usize, [m, n, k]: [usize; 3], [a, b]: [Matrix; 2]) -> Plan {
    let c = Matrix { offset: 0, rows: 0, columns: 0 };
    let output = Shape::from_slice(&[count, m, n]);
    Plan { output, count, batch: Default::default(), m, n, k, rows: m, a, b, c }
}

/// The parameters of a kernel that computes tiles.
fn params(
    [m, n, k]: [usize; 3],
    [a, b]: [Matrix; 2],
    across: usize,
    groups: u32,
) -> Result<Vec<u32>> {
    Ok(vec![
        word(m)?,
        word(n)?,
        word(k)?,
        stride(a.rows),
        stride(a.columns),
        word(a.offset)?,
        stride(b.rows),
        stride(b.columns),
        word(b.offset)?,
        word(across)?,
        groups,
        groups,
    ])
}
