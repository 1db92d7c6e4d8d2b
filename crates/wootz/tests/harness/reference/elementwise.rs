//! Elementwise functions, one scalar function a name.

use wootz::DType;

use super::Function;
use super::tensor::{Tensor, broadcast};

/// The reference of an elementwise operation.
pub(crate) fn elementwise(name: &'static str) -> Option<Function> {
    if let Some(f) = unary(name) {
        return Some(Function::new(move |x, dtypes| {
            // The complement of a truth value is the other one.
            let f =
                if dtypes[0] == DType::Bool && name == "bitwise_invert" { |x| 1.0 - x } else { f };
            let data = x[0].data.iter().map(|&value| f(value)).collect();
            vec![Tensor { shape: x[0].shape.clone(), data }]
        }));
    }
    if let Some(f) = binary(name) {
        return Some(Function::new(move |x, dtypes| {
            let shape = broadcast(&x[0].shape, &x[1].shape);
            let value = |i: &[usize]| f(x[0].broadcast_at(i), x[1].broadcast_at(i), dtypes[0]);
            vec![Tensor::from_fn(&shape, value)]
        }));
    }
    if name == "where" {
        return Some(Function::new(|x, _| {
            let shape = broadcast(&broadcast(&x[0].shape, &x[1].shape), &x[2].shape);
            let value = |i: &[usize]| {
                let chosen = if x[0].broadcast_at(i) != 0.0 { &x[1] } else { &x[2] };
                chosen.broadcast_at(i)
            };
            vec![Tensor::from_fn(&shape, value)]
        }));
    }
    None
}

fn truth(value: bool) -> f64 {
    value as u8 as f64
}

fn unary(name: &str) -> Option<fn(f64) -> f64> {
    Some(match name {
        "abs" => |x| x.abs(),
        "arccos" => |x| x.acos(),
        "arccosh" => |x| x.acosh(),
        "arcsin" => |x| x.asin(),
        "arcsinh" => |x| if x < 0.0 { -(-x).asinh() } else { x.asinh() },
        "arctan" => |x| x.atan(),
        "arctanh" => |x| x.atanh(),
        "bitwise_invert" => |x| -x - 1.0,
        "ceil" => |x| x.ceil(),
        "copy" | "stop_gradient" => |x| x,
        "cos" => |x| x.cos(),
        "cosh" => |x| x.cosh(),
        "degrees" => |x| x * (180.0 / std::f64::consts::PI),
        "erf" => libm::erf,
        "erfinv" => erfinv,
        "exp" => |x| x.exp(),
        "expm1" => |x| x.exp_m1(),
        "floor" => |x| x.floor(),
        "gelu" => gelu,
        "gelu_approx" => gelu_approx,
        "gelu_fast_approx" => |x| x * sigmoid(1.702 * x),
        "isfinite" => |x| truth(x.is_finite()),
        "isinf" => |x| truth(x.is_infinite()),
        "isnan" => |x| truth(x.is_nan()),
        "isneginf" => |x| truth(x == f64::NEG_INFINITY),
        "isposinf" => |x| truth(x == f64::INFINITY),
        "log" | "log_c" => |x| x.ln(),
        "log10" => |x| x.log10(),
        "log1p" | "log1p_c" => |x| x.ln_1p(),
        "log2" => |x| x.log2(),
        "log_sigmoid" => |x| sigmoid(x).ln(),
        "logical_not" => |x| truth(x == 0.0),
        "mish" => |x| x * x.exp().ln_1p().tanh(),
        "negative" => |x| -x,
        "normal_cdf" => normal_cdf,
        "radians" => |x| x * (std::f64::consts::PI / 180.0),
        "reciprocal" => |x| 1.0 / x,
        "relu" => |x| x.max(0.0),
        "relu2" => |x| x.max(0.0) * x.max(0.0),
        "rint" => |x| x.round_ties_even(),
        "rsqrt" => |x| 1.0 / x.sqrt(),
        "sigmoid" => sigmoid,
        "sign" => |x| {
            if x > 0.0 {
                1.0
            } else if x < 0.0 {
                -1.0
            } else {
                x
            }
        },
        "silu" => |x| x * sigmoid(x),
        "sin" => |x| x.sin(),
        "sinh" => |x| x.sinh(),
        "softcap" => |x| 1.5 * (x / 1.5).tanh(),
        "softplus" => |x| x.exp().ln_1p(),
        "sqrt" => |x| x.sqrt(),
        "square" => |x| x * x,
        "tan" => |x| x.tan(),
        "trunc" => |x| x.trunc(),
        "tanh" => |x| x.tanh(),
        _ => return None,
    })
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn normal_cdf(x: f64) -> f64 {
    0.5 * libm::erfc(-x / std::f64::consts::SQRT_2)
}

fn gelu(x: f64) -> f64 {
    x * normal_cdf(x)
}

fn gelu_approx(x: f64) -> f64 {
    let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
    // Half of one and a hyperbolic tangent, without their cancellation.
    x / (1.0 + (-2.0 * inner).exp())
}

/// By Newton's method on `erf`.
fn erfinv(y: f64) -> f64 {
    let mut x: f64 = 0.0;
    for _ in 0..60 {
        let slope = 2.0 / std::f64::consts::PI.sqrt() * f64::exp(-x * x);
        x -= ((libm::erf(x) - y) / slope).clamp(-0.5, 0.5);
    }
    x
}

/// A float as the dtype has it, by way of a single as where it is computed.
pub(super) fn rounded(x: f64, dtype: DType) -> f64 {
    match dtype {
        DType::F16 => half::f16::from_f32(x as f32).to_f64(),
        DType::BF16 => half::bf16::from_f32(x as f32).to_f64(),
        DType::F32 => x as f32 as f64,
        _ => x,
    }
}

fn binary(name: &str) -> Option<fn(f64, f64, DType) -> f64> {
    Some(match name {
        "add" => |a, b, d| if d == DType::Bool { truth(a + b != 0.0) } else { a + b },
        "arctan2" => |a, b, _| a.atan2(b),
        "bitwise_and" => |a, b, _| (a as i64 & b as i64) as f64,
        "bitwise_or" => |a, b, _| (a as i64 | b as i64) as f64,
        "bitwise_xor" => |a, b, _| (a as i64 ^ b as i64) as f64,
        "divide" => |a, b, _| a / b,
        "equal" => |a, b, _| truth(a == b),
        "geglu" => |a, b, _| gelu(a) * b,
        "geglu_approx" => |a, b, _| gelu_approx(a) * b,
        "floor_divide" => |a, b, d| match b == 0.0 && !d.is_float() {
            true => 0.0,
            // As all results of the dtype, the quotient is rounded.
            false => rounded(a / b, d).floor(),
        },
        "greater" => |a, b, _| truth(a > b),
        "greater_equal" => |a, b, _| truth(a >= b),
        "left_shift" => |a, b, _| a * 2f64.powf(b),
        "less" => |a, b, _| truth(a < b),
        "less_equal" => |a, b, _| truth(a <= b),
        "logaddexp" => |a, b, _| {
            let top = a.max(b);
            top + ((a - top).exp() + (b - top).exp()).ln()
        },
        "logical_and" => |a, b, _| truth(a != 0.0 && b != 0.0),
        "logical_or" => |a, b, _| truth(a != 0.0 || b != 0.0),
        "logical_xor" => |a, b, _| truth((a != 0.0) != (b != 0.0)),
        "maximum" => |a, b, _| if a > b { a } else { b },
        "minimum" => |a, b, _| if a < b { a } else { b },
        "multiply" => |a, b, _| a * b,
        "not_equal" => |a, b, _| truth(a != b),
        "power" => |a, b, _| a.powf(b),
        "remainder" => |a, b, d| match b == 0.0 && !d.is_float() {
            true => a,
            false => a - b * (a / b).floor(),
        },
        "right_shift" => |a, b, _| (a / 2f64.powf(b)).floor(),
        "subtract" => |a, b, _| a - b,
        "swiglu" => |a, b, _| a * sigmoid(a) * b,
        _ => return None,
    })
}
