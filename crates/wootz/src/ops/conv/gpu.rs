//! Convolutions on the GPU: tiles of a product of matrices whose left one is never stored, or where
//! groups are too narrow for tiles a thread for each word of the output.

use super::geometry::Geometry;
use crate::array::DType;
use crate::error::{Error, Result};
use crate::gpu::{Bind, GpuCall, Kernel, grid, packed};
use crate::ops::matmul::{Form, Tiles, cooperative, zeros};

const COMMON: &str = include_str!("common.wgsl");
const DIRECT: &str = include_str!("direct.wgsl");
const TILED: &str = include_str!("tiled.wgsl");

/// Rows, columns or products of a sum that are too few for a tile.
const FEW: usize = 8;

/// What the two kernels of an operation say.
struct Texts {
    direct: &'static str,
    tiled: &'static str,
}

const FORWARD: Texts =
    Texts { direct: include_str!("forward.wgsl"), tiled: include_str!("tiled_forward.wgsl") };
const BACKWARD_WEIGHT: Texts = Texts {
    direct: include_str!("backward_weight.wgsl"),
    tiled: include_str!("tiled_backward_weight.wgsl"),
};

pub(super) fn forward(call: &mut GpuCall<'_>, geometry: &Geometry) -> Result<()> {
    let Geometry { outputs, .. } = *geometry;
    let (m, k) = (geometry.positions(), geometry.depth());
    run(call, geometry, &FORWARD, Product { m, n: outputs, k, a_column: 1, b_column: k })
}

pub(super) fn backward_weight(call: &mut GpuCall<'_>, geometry: &Geometry) -> Result<()> {
    let Geometry { outputs, .. } = *geometry;
    let (m, k) = (geometry.depth(), geometry.positions());
    run(call, geometry, &BACKWARD_WEIGHT, Product { m, n: outputs, k, a_column: 0, b_column: 1 })
}

/// The sizes of a group's product of matrices, and along which axes elements are neighbours.
struct Product {
    m: usize,
    n: usize,
    k: usize,
    a_column: usize,
    b_column: usize,
}

fn run(
    call: &mut GpuCall<'_>,
    geometry: &Geometry,
    texts: &'static Texts,
    product: Product,
) -> Result<()> {
    if call.output_meta(0).size() == 0 {
        return Ok(());
    }
    if call.meta(0).size() == 0 || call.meta(1).size() == 0 {
        // What has no elements has no memory to bind, and all products are of zeros.
        return zeros(call);
    }
    let few = product.m.min(product.n).min(product.k) < FEW;
    if few { direct(call, geometry, texts) } else { tiled(call, geometry, texts, &product) }
}

/// A thread computes the elements of a word of the output.
fn direct(call: &mut GpuCall<'_>, geometry: &Geometry, texts: &'static Texts) -> Result<()> {
    let (dtype, flip) = (call.output_meta(0).dtype, geometry.window.flip);
    let source = || {
        format!(
            "{}const FLIP = {flip};\n{}{}{}{}{COMMON}{}{}",
            packed::PACKING,
            packed::reader("x", 0, dtype),
            packed::reader("w", 1, dtype),
            packed::word_writer("out", 2, dtype),
            DIRECT.replace("// MORE", FIELDS),
            texts.direct,
            packed::word_main(dtype, "p.n", "value"),
        )
    };
    let size = call.output_meta(0).size();
    let mut params = words(&[
        size,
        geometry.batch,
        geometry.window.groups,
        geometry.channels,
        geometry.outputs,
        call.meta(0).layout.offset,
        call.meta(1).layout.offset,
        geometry.kernel[0],
    ])?;
    params.extend(steps(geometry)?);
    let elements = size.div_ceil(packed::per_word(dtype));
    call.launch(&Kernel {
        variant: format!("direct/{dtype}/{flip}"),
        source: &source,
        bindings: &[Bind::Input(0), Bind::Input(1), Bind::Output(0)],
        params: &params,
        groups: grid(elements.div_ceil(packed::WORD_MAIN_GROUP)),
    })
}

/// Workgroups compute tiles of the product of a group.
fn tiled(
    call: &mut GpuCall<'_>,
    geometry: &Geometry,
    texts: &'static Texts,
    product: &Product,
) -> Result<()> {
    let Product { m, n, k, a_column, b_column } = *product;
    let (dtype, flip) = (call.output_meta(0).dtype, geometry.window.flip);
    let large = m > 32 && n > 32;
    let tiles = cooperative(call).filter(|_| large).unwrap_or(Tiles::Plain { large });
    let (down, across) = (m.div_ceil(tiles.side()), n.div_ceil(tiles.side()));
    let groups = geometry.window.groups.saturating_mul(down).saturating_mul(across);
    let [x, w] = [0, 1].map(|input| call.meta(input).layout.offset);
    let channels = geometry.channels;
    let mut params = words(&[m, n, k, channels, a_column, x])?;
    params.extend(words(&[
        geometry.window.groups,
        b_column,
        w,
        across,
        geometry.kernel[0],
        groups,
    ])?);
    params.extend(steps(geometry)?);
    let form = tiles.form(n, params, groups as u32);
    call.launch(&Kernel {
        variant: format!("{}/{dtype}/{flip}/{}", form.variant, form.even),
        source: &|| text(&form, dtype, flip, texts),
        bindings: &[Bind::Input(0), Bind::Input(1), Bind::Output(0)],
        params: &form.params,
        groups: grid(groups),
    })
}

/// The text of a kernel of tiles. A zero of the padding is multiplied, too.
fn text(form: &Form, dtype: DType, flip: bool, texts: &Texts) -> String {
    let factor = form.factor();
    let functions = format!(
        "const FLIP = {flip};\n{COMMON}{TILED}{}\
         fn a(i: u32) -> {factor} {{\nif (i == NOWHERE) {{ return {factor}(0.0); }}\n\
         return x(i);\n}}\n",
        texts.tiled
    );
    form.text_of(["x", "b"], dtype, FIELDS, &functions)
}

/// The texts with cooperative matrices, which few devices run.
#[cfg(test)]
pub(crate) fn cooperative_texts() -> Vec<String> {
    let mut all = Vec::new();
    for (dtype, native) in [(DType::F32, false), (DType::F16, true), (DType::BF16, false)] {
        let form = Tiles::Cooperative { native }.form(64, Vec::new(), 1);
        all.extend([FORWARD, BACKWARD_WEIGHT].map(|texts| text(&form, dtype, false, &texts)));
    }
    all
}

/// The parameters that all kernels have.
const FIELDS: &str = "input0: u32, input1: u32, input2: u32, kernel1: u32, kernel2: u32,
    output0: u32, output1: u32, output2: u32, stride0: u32, stride1: u32, stride2: u32,
    low0: i32, low1: i32, low2: i32,
    kernel_dilation0: u32, kernel_dilation1: u32, kernel_dilation2: u32,
    input_dilation0: u32, input_dilation1: u32, input_dilation2: u32,";

/// The values of [`FIELDS`].
fn steps(geometry: &Geometry) -> Result<Vec<u32>> {
    let window = &geometry.window;
    let mut all = words(&geometry.input)?;
    all.extend(words(&geometry.kernel[1..])?);
    all.extend(words(&geometry.output)?);
    all.extend(words(&window.stride)?);
    for axis in 0..3 {
        // All places that are computed on the way fit a signed word.
        let reach = (geometry.output[axis].max(1) - 1) as i128 * window.stride[axis] as i128
            + (geometry.kernel[axis].max(1) - 1) as i128 * window.kernel_dilation[axis] as i128;
        let low = window.low[axis] as i128;
        word(reach.max(reach - low).max(low.abs()))?;
        all.push(low as i32 as u32);
    }
    all.extend(words(&window.kernel_dilation)?);
    all.extend(words(&window.input_dilation)?);
    Ok(all)
}

/// Sizes as words of the parameters.
fn words(sizes: &[usize]) -> Result<Vec<u32>> {
    sizes.iter().map(|&size| word(size as i128)).collect()
}

fn word(value: i128) -> Result<u32> {
    match u32::try_from(value) {
        Ok(word) if word <= i32::MAX as u32 => Ok(word),
        _ => Err(Error::SizeOverflow {
            op: "conv",
            argument: "input".into(),
            got: value.to_string(),
            limit: i32::MAX as u64,
        }),
    }
}
