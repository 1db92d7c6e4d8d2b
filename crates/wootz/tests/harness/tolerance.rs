//! How close is close: one table by class and dtype, and the comparison that uses it.

use wootz::DType;
use wootz::op::Tolerance;

use super::data::Host;

/// What is compared decides how much of a class's figure is granted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Against {
    /// Doubles, computed from the same rounded inputs.
    Double,
    /// The same dtype on another device.
    Device,
    /// A gradient, which passes through several operations; each element sums so many terms.
    Gradient { terms: usize },
}

/// The relative error granted, in units of the dtype's rounding error. A wide result may be off by
/// some units; a narrow one is a wide one rounded ([`ROUNDED`]), but for what is narrow in between,
/// as in gradients.
fn units(class: Tolerance, dtype: DType) -> f64 {
    let (narrow, single, double) = match class {
        Tolerance::Exact => (0.0, 0.0, 0.0),
        Tolerance::Elementwise => (2.0, 16.0, 32.0),
        Tolerance::Reduction | Tolerance::Twice(_) => (3.0, 64.0, 64.0),
        Tolerance::Contraction => (4.0, 64.0, 64.0),
        Tolerance::Because(factor, _) => (2.0, factor * 16.0, factor * 32.0),
        Tolerance::Rounded(factor, _) => {
            (factor * 2.0, (factor * 16.0).max(64.0), (factor * 32.0).max(64.0))
        }
    };
    match dtype {
        DType::F16 | DType::BF16 => narrow,
        DType::F64 => double,
        _ => single,
    }
}

/// The error granted to a narrow result beside that of the single precision it is computed in, in units
/// of its rounding error: one each of two devices, or two of one that rounds twice. It is at most two units of
/// the last place.
const ROUNDED: f64 = 2.0;

/// The error granted to sums, in units of the rounding error of the arithmetic and relative to the
/// sum of the terms' magnitudes. Terms of both signs, as cases have them, err by less than one.
const SUM_UNITS: f64 = 4.0;

/// The error granted to gradients in single precision at most, relative to the largest element, or to 1.
const SINGLE_GRADIENT: f64 = 2e-5;

/// Half the distance between neighbours at 1.
pub(crate) fn rounding(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => f64::EPSILON / 2.0,
        DType::F32 => f32::EPSILON as f64 / 2.0,
        DType::F16 => 2f64.powi(-11),
        DType::BF16 => 2f64.powi(-8),
        _ => 0.0,
    }
}

/// Compares what came out with what should have. The error says where and how far. With the
/// `magnitudes` of what each element sums, the arithmetic's error is relative to them, and the
/// result is rounded once.
pub(crate) fn compare(
    got: &Host,
    want: &Host,
    magnitudes: Option<&Host>,
    class: Tolerance,
    against: Against,
    dtype: DType,
) -> Result<(), String> {
    if got.shape != want.shape {
        return Err(format!("shape {:?}, expected {:?}", got.shape, want.shape));
    }
    let same_kind = got.dtype == want.dtype || (got.dtype.is_float() && want.dtype == DType::F64);
    if !same_kind {
        return Err(format!("dtype {}, expected {}", got.dtype, want.dtype));
    }
    let (g, w) = (got.to_f64(), want.to_f64());
    if !got.dtype.is_float() {
        let place = got
            .bytes
            .chunks(got.dtype.size())
            .zip(want.bytes.chunks(got.dtype.size()))
            .position(|(a, b)| a != b);
        return match place {
            Some(i) => Err(format!("element {i} is {}, expected {}", g[i], w[i])),
            None => Ok(()),
        };
    }
    // A result cannot be better than its own dtype, nor than the arithmetic's.
    let coarse = if rounding(got.dtype) > rounding(dtype) { got.dtype } else { dtype };
    let exact_of_double = class == Tolerance::Exact && got.dtype != want.dtype;
    let mut relative = match class {
        Tolerance::Exact if exact_of_double => 1.01 * rounding(got.dtype),
        class => units(class, coarse) * rounding(coarse),
    };
    if matches!(against, Against::Gradient { .. }) {
        relative = 4.0 * relative.max(units(Tolerance::Reduction, coarse) * rounding(coarse));
    }
    // Sums cancel, so their error is relative to the largest element; functions have a floor.
    let largest = w.iter().filter(|x| x.is_finite()).fold(0.0, |m: f64, x| m.max(x.abs()));
    let floor = match (class, against) {
        (Tolerance::Exact, Against::Double | Against::Device) => 0.0,
        (Tolerance::Elementwise, Against::Double | Against::Device) => largest.min(0.05),
        // Factors and terms are about 1 and rounded, whatever they cancel to.
        (_, Against::Gradient { terms: 0 | 1 }) => largest.max(0.1),
        (_, Against::Gradient { terms }) => largest.max(0.25 * (terms as f64).sqrt()),
        _ => largest,
    };
    let once = !matches!(class, Tolerance::Exact | Tolerance::Rounded(..))
        && !matches!(against, Against::Gradient { .. });
    // Of two devices, both err.
    let both = if against == Against::Device { 2.0 } else { 1.0 };
    let arithmetic = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
    let magnitudes = magnitudes.map(Host::to_f64);
    let allowed = |i: usize| match &magnitudes {
        None if once && matches!(coarse, DType::F16 | DType::BF16) => {
            let roundings = if matches!(class, Tolerance::Twice(_)) { both } else { 1.0 };
            let own =
                if got.dtype == coarse { roundings * ROUNDED * rounding(coarse) } else { 0.0 };
            let single = units(class, arithmetic) * rounding(arithmetic);
            own * w[i].abs().max(smallest(got.dtype)) + single * (w[i].abs() + floor)
        }
        None => {
            let own = relative * (w[i].abs() + floor).max(smallest(got.dtype));
            let capped = coarse == DType::F32 && matches!(against, Against::Gradient { .. });
            if capped { own.min(SINGLE_GRADIENT * largest.max(1.0)) } else { own }
        }
        Some(magnitudes) => {
            let rounded = 1.01 * rounding(got.dtype) * w[i].abs().max(smallest(got.dtype));
            let scale = magnitudes[i].max(smallest(arithmetic));
            both * (rounded + SUM_UNITS * rounding(arithmetic) * scale)
        }
    };
    let limit = largest_finite(got.dtype);
    let mut worst: Option<(f64, usize)> = None;
    for (i, (&a, &b)) in g.iter().zip(&w).enumerate() {
        let same = a == b || (a.is_nan() && b.is_nan());
        // A double may be finite where the dtype overflows.
        let overflow = a.is_infinite() && a.signum() == b.signum() && b.abs() >= 0.99 * limit;
        if same || overflow {
            continue;
        }
        let error =
            if a.is_finite() && b.is_finite() { (a - b).abs() / allowed(i) } else { f64::INFINITY };
        if error > 1.0 && worst.is_none_or(|(w, _)| error > w) {
            worst = Some((error, i));
        }
    }
    match worst {
        Some((error, i)) => Err(format!(
            "element {i} is {:e}, expected {:e}: off by {:.3e}, {error:.2} times what is allowed",
            g[i],
            w[i],
            (g[i] - w[i]).abs(),
        )),
        None => Ok(()),
    }
}

/// Checks that no element is off by more than a fraction of the largest one.
pub(crate) fn within(limit: f64, got: &Host, want: &Host) -> Result<(), String> {
    let (g, w) = (got.to_f64(), want.to_f64());
    let largest = w.iter().fold(0.0, |m: f64, x| m.max(x.abs()));
    let off = g.iter().zip(&w).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    if off <= limit * largest {
        return Ok(());
    }
    Err(format!("off by {off:.3e}, more than {limit} of the largest element, {largest:.3e}"))
}

/// Compares which elements are NaN or infinite, and the others loosely.
pub(crate) fn compare_specials(got: &Host, want: &Host) -> Result<(), String> {
    if got.shape != want.shape {
        return Err(format!("shape {:?}, expected {:?}", got.shape, want.shape));
    }
    let kind = |x: f64| match x {
        x if x.is_nan() => "NaN",
        x if x == f64::INFINITY => "inf",
        x if x == f64::NEG_INFINITY => "-inf",
        _ => "finite",
    };
    let limit = largest_finite(got.dtype);
    for (i, (a, b)) in got.to_f64().into_iter().zip(want.to_f64()).enumerate() {
        // A double that the dtype does not hold is its largest number.
        let b = if a.is_finite() && b.is_finite() { b.clamp(-limit, limit) } else { b };
        let (a_kind, b_kind) = (kind(a), kind(b));
        let overflow = b.abs() >= 0.99 * limit && a.is_infinite();
        let far = a_kind == "finite" && b_kind == "finite" && (a - b).abs() > 0.1 * (1.0 + b.abs());
        if (a_kind != b_kind && !overflow) || far {
            return Err(format!("element {i} is {a}, expected {b}"));
        }
    }
    Ok(())
}

fn largest_finite(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 65504.0,
        DType::BF16 => half::bf16::MAX.to_f64(),
        DType::F32 => f32::MAX as f64,
        _ => f64::MAX,
    }
}

/// Below this, numbers lose digits or are flushed to zero by GPUs.
fn smallest(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 2f64.powi(-14),
        DType::F64 => f64::MIN_POSITIVE,
        _ => f32::MIN_POSITIVE as f64,
    }
}
