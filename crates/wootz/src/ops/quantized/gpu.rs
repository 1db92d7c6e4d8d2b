//! Quantized weights on the GPU: kernels decode 32 weights at a time by the format's snippet.

use std::sync::Arc;

use crate::array::DType;
use crate::error::{Error, Result};
use crate::gpu::{Bind, GpuBuffer, GpuCall, Kernel, grid, packed};
use crate::ops::indexing::along_axis::check_on_gpu;
use crate::ops::indexing::offsets::place_function;
use crate::ops::indexing::raw::status;
use crate::quant::Scheme;

/// Units of 32 weights that a workgroup decodes.
const UNITS: usize = 64;
/// Rows of `x` up to which products are done row by row.
const FEW: usize = 8;
/// Rows of weights for each workgroup that multiplies one row of `x`.
const OUTPUTS: usize = 8;
/// Rows and columns of a tile.
const TILE: [usize; 2] = [32, 64];

pub(super) fn dequantize(call: &mut GpuCall<'_>, scheme: Scheme) -> Result<()> {
    let meta = call.output_meta(0);
    let (dtype, units) = (meta.dtype, meta.size() / 32);
    expect_units(call, meta.size())?;
    if units == 0 {
        return Ok(());
    }
    let weights = Weights::new(call, scheme, 0)?;
    let params = [&weights.offsets[..], &[word(units)?]].concat();
    call.launch(&Kernel {
        variant: format!("{scheme}/{dtype}"),
        source: &|| {
            let product = packed::round(dtype, "value");
            let narrow = match packed::per_word(dtype) {
                1 => "values[at]".to_string(),
                _ => format!(
                    "{} | ({} << 16u)",
                    packed::narrow(dtype, "values[at]"),
                    packed::narrow(dtype, "values[at + 1u]")
                ),
            };
            let per_word = packed::per_word(dtype);
            [
                weights.text(0, &product),
                packed::word_writer("out", weights.count(), dtype),
                format!("const PER_WORD = {per_word}u;\n"),
                include_str!("dequantize.wgsl").replace("STORED", &narrow),
            ]
            .concat()
        },
        bindings: &[weights.bindings(), vec![Bind::Output(0)]].concat(),
        params: &params,
        groups: grid(units.div_ceil(UNITS)),
    })
}

pub(super) fn quantize(call: &mut GpuCall<'_>, scheme: Scheme) -> Result<()> {
    let w = call.meta(0);
    let Some(group) = scheme.group_size() else {
        return Err(call.not_on_device("blocks are encoded on the CPU"));
    };
    let groups = w.size() / group;
    if groups == 0 {
        return Ok(());
    }
    let dtype = w.dtype;
    let mut bindings = vec![Bind::Input(0), Bind::Output(0), Bind::Output(1)];
    if scheme.arrays() == 3 {
        bindings.push(Bind::Output(2));
    }
    call.launch(&Kernel {
        variant: format!("{scheme}/{dtype}"),
        source: &|| {
            let stored = if scheme.arrays() == 3 { dtype } else { DType::U8 };
            let mut text = [
                packed::PACKING.to_string(),
                packed::reader("w", 0, dtype),
                packed::word_writer("codes", 1, DType::U32),
                packed::writer("scales", 2, stored),
                format!("const GROUP = {group}u;\nconst BITS = {}u;\n", scheme.bits().unwrap_or(0)),
            ]
            .concat();
            if scheme.arrays() == 3 {
                text += &packed::writer("biases", 3, dtype);
                text + include_str!("quantize.wgsl") + include_str!("quantize_affine.wgsl")
            } else {
                text += &format!("const NV = {};\n", scheme == Scheme::Nvfp4);
                text += include_str!("../../quant/small_float.wgsl");
                text + include_str!("quantize.wgsl") + include_str!("quantize_float.wgsl")
            }
        },
        bindings: &bindings,
        params: &[word(w.layout.offset)?, word(groups)?],
        groups: grid(groups.div_ceil(UNITS)),
    })
}

pub(super) fn matmul(call: &mut GpuCall<'_>, scheme: Scheme, transpose: bool) -> Result<()> {
    let each = (call.meta(1).shape()[0] > 1) as u32;
    let indices = Indices {
        text: format!(
            "fn x_matrix(batch: u32) -> u32 {{ return batch; }}\n\
             fn w_matrix(batch: u32) -> u32 {{ return batch * {each}u; }}\n\
             fn running() -> bool {{ return true; }}\n"
        ),
        key: format!("{each}"),
        params: vec![0, 0, 0, 0],
        bindings: Vec::new(),
    };
    product(call, scheme, transpose, indices)
}

pub(super) fn gather(call: &mut GpuCall<'_>, scheme: Scheme, transpose: bool) -> Result<()> {
    let first = 1 + scheme.arrays();
    let (lefts, rights) = (call.meta(0).shape()[0], call.meta(1).shape()[0]);
    let (lhs, rhs) = (call.meta(first), call.meta(first + 1));
    if lhs.size() == 0 {
        return Ok(());
    }
    check_on_gpu(call, first, lefts, false)?;
    check_on_gpu(call, first + 1, rights, false)?;
    let binding = first + 1 + !scheme.table().is_empty() as usize;
    let text = [
        packed::reader("lhs", binding, lhs.dtype),
        packed::reader("rhs", binding + 1, lhs.dtype),
        status(binding + 2),
        place_function(lhs.dtype, false),
        "fn x_matrix(batch: u32) -> u32 { return place(lhs(p.lhs_at + batch), p.lefts).x; }\n\
         fn w_matrix(batch: u32) -> u32 { return place(rhs(p.rhs_at + batch), p.rights).x; }\n\
         fn running() -> bool { return !failed(); }\n"
            .to_string(),
    ];
    let indices = Indices {
        text: text.concat(),
        key: format!("gather {}", lhs.dtype),
        params: vec![
            word(lhs.layout.offset)?,
            word(rhs.layout.offset)?,
            word(lefts)?,
            word(rights)?,
        ],
        bindings: vec![Bind::Input(first), Bind::Input(first + 1)],
    };
    product(call, scheme, transpose, indices)
}

/// Which matrices a product takes.
struct Indices {
    /// The functions `x_matrix`, `w_matrix` and `running`, and what they read, which is bound last.
    text: String,
    key: String,
    params: Vec<u32>,
    bindings: Vec<Bind<'static>>,
}

fn product(
    call: &mut GpuCall<'_>,
    scheme: Scheme,
    transpose: bool,
    indices: Indices,
) -> Result<()> {
    let (x, output) = (call.meta(0), call.output_meta(0));
    let (&[_, m, k], &[batch, _, n]) = (x.shape(), output.shape()) else {
        return Err(Error::shape("quantized_matmul", "x", "three axes", x.shape()));
    };
    if output.size() == 0 {
        return Ok(());
    }
    let dtype = output.dtype;
    expect_units(call, if transpose { k } else { n })?;
    let weights = Weights::new(call, scheme, 1)?;
    let row_by_row = transpose && m <= FEW;
    let groups = if row_by_row {
        batch * m * n.div_ceil(OUTPUTS)
    } else {
        batch * m.div_ceil(TILE[0]) * n.div_ceil(TILE[1])
    };
    let mut params = weights.offsets.to_vec();
    for value in [x.layout.offset, m, n, k, groups] {
        params.push(word(value)?);
    }
    params.extend(&indices.params);
    // Binding 0 is `x`; the output follows the weights.
    let out = 1 + weights.count();
    let kernel = Kernel {
        variant: format!(
            "{scheme}/{dtype}/{transpose}/{row_by_row}/{}/{}",
            weights.key, indices.key
        ),
        source: &|| {
            let text = match row_by_row {
                true => include_str!("gemv.wgsl"),
                false => include_str!("tiled.wgsl"),
            };
            [
                weights.text(1, "value"),
                packed::reader("x", 0, dtype),
                packed::writer("out", out, dtype),
                indices.text.clone(),
                format!("const TRANSPOSE = {transpose};\n"),
                include_str!("product.wgsl").into(),
                text.into(),
            ]
            .concat()
        },
        bindings: &[
            &[Bind::Input(0)],
            &weights.bindings()[..],
            &[Bind::Output(0)],
            &indices.bindings,
        ]
        .concat(),
        params: &params,
        groups: grid(groups),
    };
    if indices.bindings.is_empty() {
        call.launch(&kernel)
    } else {
        call.launch_with_status(&kernel)
    }
}

/// The arrays of quantized weights, as a kernel sees them.
struct Weights {
    scheme: Scheme,
    /// The dtype of scales and biases.
    dtype: DType,
    /// The input of the codes.
    first: usize,
    /// What decoding looks up.
    table: Option<Arc<GpuBuffer>>,
    offsets: [u32; 3],
    key: String,
}

impl Weights {
    /// The weights that a call has from input `first` on.
    fn new(call: &mut GpuCall<'_>, scheme: Scheme, first: usize) -> Result<Weights> {
        let arrays = scheme.arrays();
        let metas = [0, 1, 2].map(|index: usize| call.meta(first + index.min(arrays - 1)));
        let table = match scheme.table() {
            [] => None,
            words => {
                let bytes: &[u8] = bytemuck::cast_slice(words);
                let buffer = call.gpu().alloc(bytes.len() as u64)?;
                call.gpu().upload(&buffer, 0, bytes)?;
                Some(Arc::new(buffer))
            }
        };
        Ok(Weights {
            scheme,
            dtype: metas[1].dtype,
            first,
            table,
            offsets: metas.map(|meta| meta.layout.offset as u32),
            key: metas[1].dtype.to_string(),
        })
    }

    /// How many there are.
    fn count(&self) -> usize {
        self.scheme.arrays() + self.table.is_some() as usize
    }

    fn bindings(&self) -> Vec<Bind<'_>> {
        let inputs = self.first..self.first + self.scheme.arrays();
        inputs.map(Bind::Input).chain(self.table.as_ref().map(Bind::Read)).collect()
    }

    /// The function `weights_of` on arrays that are bound from `binding` on; `product` is what becomes of a
    /// scale times a code, called `value`.
    fn text(&self, binding: usize, product: &str) -> String {
        let mut text = packed::PACKING.to_string();
        text += &format!(
            "@group(0) @binding({binding}) var<storage, read> w_data: array<u32>;\n\
             fn product(value: f32) -> f32 {{ return {product}; }}\n"
        );
        for (index, name) in ["scales", "biases"].iter().enumerate().take(self.scheme.arrays() - 1)
        {
            text += &packed::reader(name, binding + 1 + index, self.dtype);
        }
        if self.table.is_some() {
            let binding = binding + self.scheme.arrays();
            text +=
                &format!("@group(0) @binding({binding}) var<storage, read> w_table: array<u32>;\n");
        }
        text + &self.scheme.wgsl()
    }
}

/// Kernels decode 32 weights at a time, of one row.
fn expect_units(call: &GpuCall<'_>, weights: usize) -> Result<()> {
    if weights.is_multiple_of(32) {
        return Ok(());
    }
    Err(call.not_on_device("rows of nvfp4 weights must be a multiple of 32 there"))
}

fn word(value: usize) -> Result<u32> {
    u32::try_from(value).map_err(|_| Error::SizeOverflow {
        op: "quantized_matmul",
        argument: "inputs".into(),
        got: value.to_string(),
        limit: u32::MAX as u64,
    })
}
