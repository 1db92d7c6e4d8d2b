//! Quantized weights.

use wootz::quant::Scheme;
use wootz::{Array, DType, Quantized};

use super::{one, rows};
use crate::call::{Call, Refusal, unsayable};

rows! {
    "dequantize" => |c| one(match (global_scale(c)?, c.dtype_opt("dtype")?) {
        (None, dtype) => wootz::dequantize(&weights(c)?, dtype),
        (Some(scale), dtype) => wootz::dequantize_global(&weights(c)?, dtype, &scale),
    }),
    "gather_qmm" => |c| {
        if global_scale(c)?.is_some() {
            return unsayable("global_scale", "an array");
        }
        one(wootz::gather_qmm(
            &c.array("x")?,
            &weights(c)?,
            c.array_opt("lhs_indices")?.as_ref(),
            c.array_opt("rhs_indices")?.as_ref(),
            c.flag("transpose")?,
            c.flag("sorted_indices")?,
        ))
    },
    "qqmm" => |c| {
        let w = match c.has("scales") {
            true => weights(c)?,
            false => wootz::quantize(&c.array("w")?, scheme(c)?)?,
        };
        let [of_x, of_w] = [c.array_opt("global_scale_x")?, c.array_opt("global_scale_w")?];
        let scales = match (&of_x, &of_w) {
            (None, None) => None,
            (Some(of_x), Some(of_w)) => Some([of_x, of_w]),
            _ => return unsayable("global_scale_x", "one of two"),
        };
        one(wootz::qqmm(&c.array("x")?, &w, scales))
    },
    "quantize" => |c| {
        let (w, scheme) = (c.array("w")?, scheme(c)?);
        let quantized = match global_scale(c)? {
            None => wootz::quantize(&w, scheme)?,
            Some(scale) => wootz::quantize_global(&w, scheme, &scale)?,
        };
        Ok(quantized.arrays().to_vec())
    },
    "quantized_matmul" =>
        |c| one(wootz::quantized_matmul(&c.array("x")?, &weights(c)?, c.flag("transpose")?)),
}

/// What all weights share, where MLX takes it. In wootz, products other than `qqmm` have no such argument.
fn global_scale(c: &Call<'_>) -> Result<Option<Array>, Refusal> {
    let Some(scale) = c.array_opt("global_scale")? else { return Ok(None) };
    if c.word("mode")? != "nvfp4" || scale.dtype() != DType::F32 || scale.size() != 1 {
        return unsayable("global_scale", format!("{} in this mode", scale.dtype()));
    }
    Ok(Some(scale))
}

fn scheme(c: &Call<'_>) -> Result<Scheme, Refusal> {
    let size = |name: &str| if c.has(name) { c.size(name).map(Some) } else { Ok(None) };
    let (group_size, bits) = (size("group_size")?, size("bits")?);
    c.ignore("group_size");
    c.ignore("bits");
    Ok(Scheme::new(c.word("mode")?, group_size, bits)?)
}

fn weights(c: &Call<'_>) -> Result<Quantized, Refusal> {
    let [scales, biases] = [c.array_opt("scales")?, c.array_opt("biases")?];
    let (scales, biases): (Option<&Array>, Option<&Array>) = (scales.as_ref(), biases.as_ref());
    Ok(Quantized::new(scheme(c)?, &c.array("w")?, scales, biases)?)
}
