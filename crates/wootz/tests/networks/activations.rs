//! Activations element by element: the smallest results have as many right digits as the largest.

use std::slice::from_ref;

use wootz::nn::{geglu, geglu_approx, gelu, gelu_approx, gelu_fast_approx, silu, swiglu};
use wootz::{Array, DType, Device, Result, vjp};

/// A function of a gate: its value, its derivative, and the magnitude of the terms that this is the sum of.
type Exact = fn(f64) -> (f64, f64, f64);

const UP: f64 = 1.25;

fn by_error_function(x: f64) -> (f64, f64, f64) {
    let below = 0.5 * libm::erfc(-x / std::f64::consts::SQRT_2);
    let slope = x * (-x * x / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
    (x * below, below + slope, below + slope.abs())
}

/// `x · sigmoid(inner)`, with the derivative of `inner`.
fn by_sigmoid(x: f64, inner: f64, slope: f64) -> (f64, f64, f64) {
    let y = 1.0 / (1.0 + (-inner).exp());
    let change = x * slope * y / (1.0 + inner.exp());
    (x * y, y + change, y + change.abs())
}

fn by_tangent(x: f64) -> (f64, f64, f64) {
    let scale = 2.0 * (2.0 / std::f64::consts::PI).sqrt();
    by_sigmoid(x, scale * (x + 0.044715 * x * x * x), scale * (1.0 + 3.0 * 0.044715 * x * x))
}

/// The distance between neighbours of a narrow dtype at `x`, where a GPU keeps all digits.
fn ulp(x: f64, dtype: DType) -> f64 {
    let (digits, smallest) = if dtype == DType::F16 { (10, -14) } else { (7, -126) };
    let exponent = x.abs().log2().floor().max(smallest as f64);
    (exponent - digits as f64).exp2()
}

#[test]
fn gated_units_have_all_digits_of_small_results_and_gradients() -> Result<()> {
    let mut devices = vec![Device::cpu()];
    devices.extend(Device::gpu().ok());
    let units: [(&str, fn(&[Array]) -> Result<Array>, Exact, bool); 7] = [
        ("gelu", |x| gelu(&x[0]), by_error_function, false),
        ("gelu_approx", |x| gelu_approx(&x[0]), by_tangent, false),
        (
            "gelu_fast_approx",
            |x| gelu_fast_approx(&x[0]),
            |x| by_sigmoid(x, 1.702 * x, 1.702),
            false,
        ),
        ("geglu", |x| geglu(&x[0], &x[1]), by_error_function, true),
        ("geglu_approx", |x| geglu_approx(&x[0], &x[1]), by_tangent, true),
        ("silu", |x| silu(&x[0]), |x| by_sigmoid(x, x, 1.0), false),
        ("swiglu", |x| swiglu(&x[0], &x[1]), |x| by_sigmoid(x, x, 1.0), true),
    ];
    let points: Vec<f32> = (-384..=384).map(|i| i as f32 / 64.0).collect();
    for device in &devices {
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            let on = |values: &[f32]| {
                Array::from_slice_on(values, &[values.len()], device)?.astype(dtype)
            };
            let x = on(&points)?;
            let exact = x.astype(DType::F32)?.to_vec::<f32>()?;
            let (one, up) = (on(&vec![1.0; points.len()])?, on(&vec![UP as f32; points.len()])?);
            for (name, unit, of, gated) in units {
                let arguments = if gated { vec![x.clone(), up.clone()] } else { vec![x.clone()] };
                let (values, gradients) = vjp(|x| Ok(vec![unit(x)?]), &arguments, from_ref(&one))?;
                let up = if gated { UP } else { 1.0 };
                for (what, got) in [("value", &values[0]), ("gradient", &gradients[0])]
                    .into_iter()
                    .chain(gradients.get(1).map(|g| ("gradient of up", g)))
                {
                    assert_eq!(got.dtype(), dtype, "{name}");
                    for (&x, got) in exact.iter().zip(got.astype(DType::F32)?.to_vec::<f32>()?) {
                        let (value, slope, terms) = of(f64::from(x));
                        let (want, terms) = match what {
                            "value" => (up * value, up * value.abs()),
                            "gradient" => (up * slope, up * terms),
                            _ => (value, value.abs()),
                        };
                        // What single precision makes of exponents of up to 25, and one rounding.
                        let single = 64.0 * f64::from(f32::EPSILON) * terms;
                        let narrow = if dtype == DType::F32 { 0.0 } else { 2.0 * ulp(want, dtype) };
                        let off = (f64::from(got) - want).abs();
                        assert!(
                            off <= single + narrow,
                            "{device} {dtype}: {what} of {name} at {x} is {got:e}, not {want:e}"
                        );
                    }
                }
            }
        }
    }
    Ok(())
}
