//! Quantized weights.

use wootz::quant::Scheme;
use wootz::{Array, DType, Quantized};

use super::{one, rows};
use crate::call::{Call, Refusal, unsayable};

rows! {
    "dequantize" => |c| match (global_scale(c)?, c.dtype_opt("dtype")?) {
        (None, dtype) => one(wootz::dequantize(&weights(c)?, dtype)),
        // The scale is float32, and what it multiplies becomes so.
        (Some(scale), dtype) => {
            let plain = wootz::dequantize(&weights(c)?, Some(dtype.unwrap_or(DType::BF16)))?;
            one(wootz::multiply(plain, wootz::multiply(scale, 1.0 / LARGEST)?))
        }
    },
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
        let (mut w, scheme) = (c.array("w")?, scheme(c)?);
        if let Some(scale) = global_scale(c)? {
            w = wootz::multiply(&w.astype(DType::F32)?, wootz::divide(LARGEST, &scale)?)?;
        }
        Ok(wootz::quantize(&w, scheme)?.arrays().to_vec())
    },
    "quantized_matmul" =>
        |c| one(wootz::quantized_matmul(&c.array("x")?, &weights(c)?, c.flag("transpose")?)),
}

/// The largest weight that nvfp4 holds, times the largest scale.
const LARGEST: f64 = 2688.0;

/// What all weights share, where MLX takes it. In wootz it is an argument of `qqmm` only: weights are multiplied by it.
fn global_scale(c: &Call<'_>) -> Result<Option<Array>, Refusal> {
    let Some(scale) = c.array_opt("global_scale")? else { return Ok(None) };
    if c.word("mode")? != "nvfp4" || scale.dtype() != DType::F32 || scale.size() != 1 {
        return unsayable("global_scale", format!("{} in this mode", scale.dtype()));
    }
    Ok(Some(wootz::reshape(&scale, &[])?))
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
