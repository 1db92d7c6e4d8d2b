//! Functions of complex numbers and Fourier transforms. Arguments and results are parts; formulas are the
//! plain ones by which the functions are defined, in doubles.

use wootz::fft::{self, Norm};
use wootz::op::{Case, Gradient, Tolerance};
use wootz::{Array, DType, Result, complex, imag, real};

use super::tensor::Tensor;
use super::{Function, Known};

/// A complex number.
#[derive(Clone, Copy)]
struct Z(f64, f64);

const ONE: Z = Z(1.0, 0.0);
const I: Z = Z(0.0, 1.0);

impl std::ops::Add for Z {
    type Output = Z;
    fn add(self, other: Z) -> Z {
        Z(self.0 + other.0, self.1 + other.1)
    }
}

impl std::ops::Sub for Z {
    type Output = Z;
    fn sub(self, other: Z) -> Z {
        Z(self.0 - other.0, self.1 - other.1)
    }
}

impl std::ops::Mul for Z {
    type Output = Z;
    fn mul(self, other: Z) -> Z {
        Z(self.0 * other.0 - self.1 * other.1, self.0 * other.1 + self.1 * other.0)
    }
}

impl std::ops::Div for Z {
    type Output = Z;
    fn div(self, other: Z) -> Z {
        let norm = other.0 * other.0 + other.1 * other.1;
        self * Z(other.0 / norm, -other.1 / norm)
    }
}

impl Z {
    fn times(self, factor: f64) -> Z {
        Z(self.0 * factor, self.1 * factor)
    }

    fn exp(self) -> Z {
        Z(self.1.cos(), self.1.sin()).times(self.0.exp())
    }

    fn log(self) -> Z {
        Z(self.0.hypot(self.1).ln(), self.1.atan2(self.0))
    }

    fn sqrt(self) -> Z {
        self.log().times(0.5).exp()
    }

    fn sinh(self) -> Z {
        (self.exp() - self.times(-1.0).exp()).times(0.5)
    }

    fn cosh(self) -> Z {
        (self.exp() + self.times(-1.0).exp()).times(0.5)
    }

    fn sin(self) -> Z {
        (self * I).sinh() / I
    }

    fn cos(self) -> Z {
        (self * I).cosh()
    }

    fn arcsin(self) -> Z {
        (self * I + (ONE - self * self).sqrt()).log() / I
    }

    fn arctanh(self) -> Z {
        ((ONE + self).log() - (ONE - self).log()).times(0.5)
    }
}

/// Cases.
pub(super) fn cases() -> Vec<Known> {
    let mut cases = functions();
    cases.extend(of_two());
    cases.extend(transforms());
    cases
}

/// The parts of a result as tensors of one shape.
fn parts(shape: &[usize], values: &[Z]) -> Vec<Tensor> {
    let part = |part: fn(&Z) -> f64| Tensor {
        shape: shape.to_vec(),
        data: values.iter().map(part).collect(),
    };
    vec![part(|z| z.0), part(|z| z.1)]
}

fn numbers(x: &[Tensor]) -> Vec<Z> {
    x[0].data.iter().zip(&x[1].data).map(|(&re, &im)| Z(re, im)).collect()
}

fn split(y: Array) -> Result<Vec<Array>> {
    Ok(if y.dtype().is_complex() { vec![real(&y)?, imag(&y)?] } else { vec![y] })
}

fn known(op: &'static str, label: &str, case: Case, function: Function) -> Known {
    let case = case.dtypes(&[DType::F32]).gradient(Gradient::Single);
    Known { op, case, function }.label(label)
}

fn functions() -> Vec<Known> {
    type Call = fn(&Array) -> Result<Array>;
    let table: &[(&'static str, Call, fn(Z) -> Z)] = &[
        ("arccos", |z| z.arccos(), |z| Z(std::f64::consts::FRAC_PI_2, 0.0) - z.arcsin()),
        ("arccosh", |z| z.arccosh(), |z| (z + (z + ONE).sqrt() * (z - ONE).sqrt()).log()),
        ("arcsin", |z| z.arcsin(), Z::arcsin),
        ("arcsinh", |z| z.arcsinh(), |z| (z * I).arcsin() / I),
        ("arctan", |z| z.arctan(), |z| (z * I).arctanh() / I),
        ("arctanh", |z| z.arctanh(), Z::arctanh),
        ("conjugate", |z| z.conjugate(), |z| Z(z.0, -z.1)),
        ("cos", |z| z.cos(), Z::cos),
        ("cosh", |z| z.cosh(), Z::cosh),
        ("degrees", |z| wootz::degrees(z), |z| z.times(180.0 / std::f64::consts::PI)),
        ("exp", |z| z.exp(), Z::exp),
        ("log", |z| z.log(), Z::log),
        ("log10", |z| z.log10(), |z| z.log().times(std::f64::consts::LOG10_E)),
        ("log1p", |z| z.log1p(), |z| (z + ONE).log()),
        ("log2", |z| z.log2(), |z| z.log().times(std::f64::consts::LOG2_E)),
        ("negative", |z| z.negative(), |z| z.times(-1.0)),
        ("reciprocal", |z| z.reciprocal(), |z| ONE / z),
        ("rsqrt", |z| z.rsqrt(), |z| ONE / z.sqrt()),
        ("sin", |z| z.sin(), Z::sin),
        ("sinh", |z| z.sinh(), Z::sinh),
        ("sqrt", |z| z.sqrt(), Z::sqrt),
        ("square", |z| z.square(), |z| z * z),
        ("tan", |z| z.tan(), |z| z.sin() / z.cos()),
        ("tanh", |z| z.tanh(), |z| z.sinh() / z.cosh()),
    ];
    let row = |&(op, call, function): &(&'static str, Call, fn(Z) -> Z)| {
        let case =
            Case::new("", &[&[3, 5], &[3, 5]], move |x| split(call(&complex(&x[0], &x[1])?)?));
        // Away from branch cuts, which finite differences would step over.
        let case = case.fixed(1, DType::F32, 0.2..2.0);
        let want = Function::new(move |x, _| {
            parts(&x[0].shape, &numbers(x).into_iter().map(function).collect::<Vec<_>>())
        });
        known(op, "complex", case, want)
    };
    let mut cases: Vec<Known> = table.iter().map(row).collect();
    let part = |op, call: fn(&Array) -> Result<Array>, function: fn(Z) -> f64| {
        let case =
            Case::new("", &[&[3, 5], &[5]], move |x| Ok(vec![call(&complex(&x[0], &x[1])?)?]));
        let want = Function::new(move |x, _| {
            let row = x[1].data.iter().cycle();
            let data = x[0].data.iter().zip(row).map(|(&re, &im)| function(Z(re, im))).collect();
            vec![Tensor { shape: x[0].shape.clone(), data }]
        });
        known(op, "complex", case, want)
    };
    cases.push(part("abs", |z| z.abs(), |z| z.0.hypot(z.1)));
    cases.push(part("imag", |z| z.imag(), |z| z.1));
    cases.push(part("real", |z| z.real(), |z| z.0));
    let joined = Case::new("", &[&[3, 5], &[3, 5]], |x| split(complex(&x[0], &x[1])?));
    let same = Function::new(|x, _| x.to_vec());
    cases.push(known("complex", "parts", joined.tolerance(Tolerance::Exact), same));
    cases
}

fn of_two() -> Vec<Known> {
    type Call = fn(&Array, &Array) -> Result<Array>;
    let table: &[(&'static str, Call, fn(Z, Z) -> Z)] = &[
        ("add", |a, b| a.add(b), |a, b| a + b),
        ("divide", |a, b| a.divide(b), |a, b| a / b),
        ("logaddexp", |a, b| a.logaddexp(b), |a, b| (a.exp() + b.exp()).log()),
        ("multiply", |a, b| a.multiply(b), |a, b| a * b),
        ("power", |a, b| a.power(b), |a, b| (b * a.log()).exp()),
        ("subtract", |a, b| a.subtract(b), |a, b| a - b),
    ];
    let row = |&(op, call, function): &(&'static str, Call, fn(Z, Z) -> Z)| {
        let shape: &[usize] = &[3, 5];
        let case = Case::new("", &[shape; 4], move |x| {
            split(call(&complex(&x[0], &x[1])?, &complex(&x[2], &x[3])?)?)
        });
        let case = case.fixed(1, DType::F32, 0.3..1.4).fixed(3, DType::F32, 0.3..1.4);
        let want = Function::new(move |x, _| {
            let pairs = numbers(x).into_iter().zip(numbers(&x[2..]));
            parts(&x[0].shape, &pairs.map(|(a, b)| function(a, b)).collect::<Vec<_>>())
        });
        known(op, "complex", case, want)
    };
    table.iter().map(row).collect()
}

/// The sums by which transforms of rows are defined: `count` results of rows of `length`.
fn transformed(rows: &[Z], length: usize, count: usize, sign: f64) -> Vec<Z> {
    let turn = sign * 2.0 * std::f64::consts::PI;
    let sum = |row: &[Z], k: usize, n: usize| {
        let term = |(t, z): (usize, &Z)| *z * Z(0.0, turn * (k * t) as f64 / n as f64).exp();
        row.iter().enumerate().map(term).fold(Z(0.0, 0.0), |a, b| a + b)
    };
    rows.chunks(length).flat_map(|row| (0..count).map(move |k| sum(row, k, length))).collect()
}

fn transforms() -> Vec<Known> {
    let of_complex = |op, call: fn(&Array) -> Result<Array>, sign: f64, scale: f64| {
        let case =
            Case::new("", &[&[2, 7], &[2, 7]], move |x| split(call(&complex(&x[0], &x[1])?)?));
        let want = Function::new(move |x, _| {
            let sums = transformed(&numbers(x), 7, 7, sign);
            parts(&[2, 7], &sums.into_iter().map(|z| z.times(scale)).collect::<Vec<_>>())
        });
        known(op, "sums", case.tolerance(Tolerance::Contraction), want)
    };
    let of_real = Case::new("", &[&[2, 6]], |x| split(fft::rfft(&x[0], None, -1, Norm::Ortho)?));
    let sums = Function::new(|x, _| {
        let rows: Vec<Z> = x[0].data.iter().map(|&x| Z(x, 0.0)).collect();
        let sums = transformed(&rows, 6, 4, -1.0);
        parts(&[2, 4], &sums.into_iter().map(|z| z.times(6f64.sqrt().recip())).collect::<Vec<_>>())
    });
    let to_real = Case::new("", &[&[2, 4], &[2, 4]], |x| {
        Ok(vec![fft::irfft(&complex(&x[0], &x[1])?, Some(7), -1, Norm::Backward)?])
    });
    let whole = Function::new(|x, _| {
        // The other half of the spectrum are conjugates; the first number counts as real.
        let row = |half: &[Z]| -> Vec<Z> {
            let mirrored = half[1..].iter().rev().map(|z| Z(z.0, -z.1));
            [Z(half[0].0, 0.0)]
                .into_iter()
                .chain(half[1..].iter().copied())
                .chain(mirrored)
                .collect()
        };
        let rows: Vec<Z> = numbers(x).chunks(4).flat_map(row).collect();
        let data = transformed(&rows, 7, 7, 1.0).iter().map(|z| z.0 / 7.0).collect();
        vec![Tensor { shape: vec![2, 7], data }]
    });
    let contraction = |case: Case| case.tolerance(Tolerance::Contraction);
    vec![
        of_complex("fft", |z| fft::fft(z, None, -1, Norm::Backward), -1.0, 1.0),
        of_complex("ifft", |z| fft::ifft(z, None, -1, Norm::Backward), 1.0, 1.0 / 7.0),
        known("rfft", "sums", contraction(of_real), sums),
        known("irfft", "sums", contraction(to_real), whole),
    ]
}
