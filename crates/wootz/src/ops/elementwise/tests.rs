//! Every row on both devices, and the special values, dtypes and gradients of MLX.

use super::{Row, *};
use crate::autograd::vjp;
use crate::cpu::simd::{as_bfloat16, as_float16};
use crate::ops::*;
use DType::*;

const NAN: f32 = f32::NAN;
const INF: f32 = f32::INFINITY;

fn gpu() -> Option<Device> {
    crate::testing::devices().into_iter().find(Device::is_gpu)
}

/// Values that find edges, in any dtype.
fn edges(dtype: DType) -> Array {
    let cpu = Device::cpu();
    let floats = [
        NAN, INF, -INF, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.5, -2.5, 3.0, 7.25, 100.0, -100.0, 1e-3,
        -0.99, 20.0,
    ];
    let integers = [
        0i64,
        1,
        2,
        3,
        5,
        7,
        8,
        31,
        100,
        127,
        -1,
        -2,
        -3,
        -7,
        -100,
        -128,
        1 << 31,
        i64::MIN,
        i64::MAX,
        (1 << 31) - 1,
    ];
    let x = match dtype.is_float() {
        true => Array::from_slice_on(&floats, &[floats.len()], &cpu).unwrap(),
        false => Array::from_slice_on(&integers, &[integers.len()], &cpu).unwrap(),
    };
    let x = x.astype(dtype).unwrap();
    x.eval().unwrap();
    x
}

/// The inputs of a row: all combinations of edges.
fn inputs(row: &Row, dtype: DType) -> Vec<Array> {
    let x = edges(dtype);
    let column = x.reshape(&[x.size(), 1]).unwrap();
    match row.arguments.len() {
        2 => vec![x],
        3 => vec![column, x],
        4 if !row.conditional() => vec![x.reshape(&[x.size(), 1, 1]).unwrap(), column, x],
        // All combinations would be too many.
        5 => vec![column.clone(), column.clone(), column, x],
        _ => {
            let condition = Array::from_slice_on(&[true, false], &[2, 1, 1], &Device::cpu());
            vec![condition.unwrap(), column, x]
        }
    }
}

fn apply(row: &'static Row, inputs: &[Array]) -> Array {
    apply_kernel(row, &inputs.iter().collect::<Vec<_>>()).unwrap()
}

fn doubles(x: &Array) -> Vec<f64> {
    to_device(x, &Device::cpu()).unwrap().astype(F64).unwrap().to_vec().unwrap()
}

/// Whether values agree to the last bits of the dtype.
fn agree(a: f64, b: f64, dtype: DType) -> bool {
    let tolerance = match dtype {
        F16 => 1.1e-3,
        BF16 => 8e-3,
        _ => 2e-6,
    };
    a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= tolerance * a.abs().max(1e-30)
}

#[test]
fn gpu_agrees_with_cpu_for_every_row_and_dtype() {
    let Some(gpu) = gpu() else { return };
    let mut failures = Vec::new();
    for row in rows() {
        for dtype in [F32, F16, BF16, I32, U32, I64, U64, U8, I8, I16, U16, Bool] {
            if !row.accepts.allows(dtype) {
                continue;
            }
            let inputs = inputs(row, dtype);
            let there: Vec<Array> = inputs.iter().map(|x| to_device(x, &gpu).unwrap()).collect();
            let expected = apply(row, &inputs);
            let got = apply(row, &there);
            let label = format!("{} {dtype}", row.kernel.name);
            if let Err(error) = got.eval() {
                failures.push(format!("{label}: {error}"));
                continue;
            }
            let exact = !dtype.is_float() || row.output == Output::Bool;
            if exact {
                let (e, g) = (expected.to_bytes().unwrap(), got.to_bytes().unwrap());
                if e != g {
                    let at = e.iter().zip(&g).position(|(e, g)| e != g).unwrap();
                    let at = at / expected.dtype().size();
                    let (e, g) = (doubles(&expected)[at], doubles(&got)[at]);
                    failures.push(format!("{label}: element {at} is {g}, not {e}"));
                }
                continue;
            }
            let (e, g) = (doubles(&expected), doubles(&got));
            // Where logarithms cancel, the result is as good as what was cancelled.
            let near = |i: usize| row.kernel.name == "logaddexp" && (e[i] - g[i]).abs() < 1e-7;
            let bad = (0..e.len()).filter(|&i| !agree(e[i], g[i], dtype) && !near(i));
            let bad: Vec<String> = bad.map(|i| format!("{i}: {} not {}", g[i], e[i])).collect();
            if !bad.is_empty() {
                failures.push(format!("{label}: {} elements, {}", bad.len(), bad[0]));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn single_precision_agrees_with_double_for_every_row() {
    // Functions that round in the middle may step elsewhere.
    let smooth = |row: &&Row| row.narrow.is_none();
    for row in rows().filter(|row| row.accepts.allows(F64)).filter(smooth) {
        let single = inputs(row, F32);
        let wide = |x: &Array| if x.dtype() == Bool { x.clone() } else { x.astype(F64).unwrap() };
        let double: Vec<Array> = single.iter().map(wide).collect();
        let (s, d) = (doubles(&apply(row, &single)), doubles(&apply(row, &double)));
        for i in 0..s.len() {
            let overflow = d[i].abs() > f32::MAX as f64 && s[i] == d[i].signum() * f64::INFINITY;
            let underflow = d[i].abs() < 1e-37 && s[i].abs() < 1e-37;
            let fine = agree(s[i], d[i], F32) || overflow || underflow;
            assert!(fine, "{} at {i}: {} not {}", row.kernel.name, s[i], d[i]);
        }
    }
}

#[test]
fn results_have_the_dtypes_of_mlx() -> Result<()> {
    let of = |dtype| Array::zeros(&[2], dtype);
    for dtype in DType::ALL {
        let x = of(dtype)?;
        if dtype == C64 {
            assert!(floor(&x).is_err() && trunc(&x).is_err() && remainder(&x, &x).is_err());
            assert_eq!((abs(&x)?.dtype(), exp(&x)?.dtype(), isnan(&x)?.dtype()), (F32, C64, Bool));
            continue;
        }
        let float = dtype.to_float();
        for y in [exp(&x)?, sqrt(&x)?, reciprocal(&x)?, degrees(&x)?, divide(&x, &x)?, arctan(&x)?]
        {
            assert_eq!(y.dtype(), float, "{dtype}");
        }
        let same = [
            abs(&x)?,
            sign(&x)?,
            square(&x)?,
            floor(&x)?,
            round(&x, 0)?,
            round(&x, 2)?,
            trunc(&x)?,
            nan_to_num(&x, 0.0, None, None)?,
            positive(&x)?,
            stop_gradient(&x)?,
            add(&x, &x)?,
            subtract(&x, &x)?,
            power(&x, &x)?,
            remainder(&x, &x)?,
            floor_divide(&x, &x)?,
        ];
        for y in same {
            assert_eq!(y.dtype(), dtype);
        }
        for y in [isnan(&x)?, logical_not(&x)?, equal(&x, &x)?, isclose(&x, &x, 0.0, 0.0, true)?] {
            assert_eq!(y.dtype(), Bool);
        }
        assert_eq!(negative(&x).is_err(), dtype == Bool);
        assert_eq!(bitwise_and(&x, &x).is_err(), dtype.is_float());
        assert_eq!(bitwise_invert(&x).is_err(), dtype.is_float());
        match left_shift(&x, &x) {
            Ok(y) => assert_eq!(y.dtype(), if dtype == Bool { U8 } else { dtype }),
            Err(_) => assert!(dtype.is_float()),
        }
    }
    assert_eq!(maximum(of(U8)?, of(I8)?)?.dtype(), I16);
    assert_eq!(where_(true, of(F16)?, of(BF16)?)?.dtype(), F32);
    assert_eq!(where_(of(I32)?, 1, 2.5)?.dtype(), F32);
    assert_eq!(where_(of(I32)?, true, 2)?.dtype(), I32);
    assert_eq!(clip(of(I32)?, Some(1.5), Some(2))?.dtype(), F32);
    assert_eq!(clip(of(Bool)?, Some(1), Some(2))?.dtype(), I32);
    Ok(())
}

#[test]
fn scalars_that_do_not_fit_and_missing_bounds_are_errors() -> Result<()> {
    let x = Array::new([1u8, 2])?;
    assert!(add(&x, 300).is_err());
    assert!(less(&x, -1).is_err());
    assert!(where_(true, &x, -1).is_err());
    assert!(add(Array::new([1])?, 1i64 << 40).is_err());
    assert!(clip(&x, None::<i32>, None::<i32>).is_err());
    assert_eq!(add(astype(&x, F16)?, 1e6)?.astype(F32)?.to_vec::<f32>()?, [INF, INF]);
    Ok(())
}

#[test]
fn integer_edges_are_defined() -> Result<()> {
    let int = |values: &[i32]| Array::from_slice(values, &[values.len()]);
    let a = int(&[7, -7, 7, -7, 5, -5, i32::MIN])?;
    let b = int(&[2, 2, -2, -2, 0, 0, -1])?;
    assert_eq!(floor_divide(&a, &b)?.to_vec::<i32>()?, [3, -4, -4, 3, 0, 0, i32::MIN]);
    assert_eq!(remainder(&a, &b)?.to_vec::<i32>()?, [1, 1, -1, -1, 5, -5, 0]);
    let shifted = left_shift(int(&[1, 1, 1, -1])?, int(&[31, 32, 33, 1])?)?;
    assert_eq!(shifted.to_vec::<i32>()?, [i32::MIN, 1, 2, -2]);
    let shifted = right_shift(int(&[-8, 8, -1, 256])?, int(&[1, 1, 31, 40])?)?;
    assert_eq!(shifted.to_vec::<i32>()?, [-4, 4, -1, 1]);
    let powers = power(int(&[2, 0, -2, -1, 1, 3])?, int(&[-1, 0, 3, -3, -5, 40])?)?;
    assert_eq!(powers.to_vec::<i32>()?, [0, 1, -8, 0, 0, 689956897]);
    assert_eq!(abs(Array::new([-128i8])?)?.to_vec::<i8>()?, [-128]);
    assert_eq!(negative(Array::new([1u8, 2])?)?.to_vec::<u8>()?, [255, 254]);
    let bools = Array::new([true, false])?;
    assert_eq!(bitwise_invert(&bools)?.to_vec::<bool>()?, [false, true]);
    assert_eq!(subtract(&bools, true)?.to_vec::<bool>()?, [false, true]);
    assert_eq!(add(&bools, true)?.to_vec::<bool>()?, [true, true]);
    assert_eq!(round(int(&[125, 135, 15, 25])?, -1)?.to_vec::<i32>()?, [120, 140, 20, 20]);
    Ok(())
}

#[test]
fn float_edges_are_those_of_mlx() -> Result<()> {
    let f = |values: &[f32]| Array::from_slice(values, &[values.len()]);
    let same = |got: Array, expected: &[f32]| {
        let got = got.to_vec::<f32>().unwrap();
        let bits = |x: &f32| if x.is_nan() { 1 } else { x.to_bits() };
        assert!(got.iter().map(bits).eq(expected.iter().map(bits)), "{got:?} not {expected:?}");
    };
    same(sign(f(&[NAN, -0.0, INF])?)?, &[0.0, 0.0, 1.0]);
    same(maximum(f(&[NAN, 1.0, 0.0, -0.0])?, f(&[1.0, NAN, -0.0, 0.0])?)?, &[NAN, NAN, -0.0, 0.0]);
    same(minimum(f(&[NAN, 1.0, 0.0, -0.0])?, f(&[1.0, NAN, -0.0, 0.0])?)?, &[NAN, NAN, -0.0, 0.0]);
    let divisors = f(&[1.0, 0.0, 3.0, INF, INF, -INF, -INF])?;
    let modulo = remainder(f(&[NAN, 1.0, INF, 5.0, -5.0, 5.0, -5.0])?, divisors)?;
    same(modulo, &[NAN, NAN, NAN, 5.0, INF, -INF, -5.0]);
    same(
        remainder(f(&[-0.0, 0.0, 4.0, -4.0])?, f(&[3.0, -3.0, -2.0, 2.0])?)?,
        &[-0.0, 0.0, 0.0, -0.0],
    );
    let quotient = floor_divide(f(&[1.0, -1.0, 0.0, -5.0, 7.5])?, f(&[0.0, 0.0, 0.0, INF, -2.0])?)?;
    same(quotient, &[INF, -INF, NAN, -0.0, -4.0]);
    same(round(f(&[1.25, 1.35, 123.456])?, 1)?, &[1.2, 1.4, 123.5]);
    same(clip(f(&[1.0, NAN, 3.0])?, None::<i32>, Some(2))?, &[1.0, NAN, 2.0]);
    same(clip(f(&[1.0, 2.0])?, Some(2.5), Some(1.5))?, &[1.5, 1.5]);
    let sums = logaddexp(f(&[-INF, INF, INF, NAN])?, f(&[-INF, INF, -INF, 1.0])?)?;
    same(sums, &[-INF, INF, INF, NAN]);
    same(nan_to_num(f(&[NAN, INF, -INF])?, 0.0, None, None)?, &[0.0, f32::MAX, f32::MIN]);
    let a = f(&[1.0, INF, NAN, INF, 1.0])?;
    let close = isclose(&a, f(&[1.000001, INF, NAN, -INF, 1.1])?, 1e-5, 1e-8, false)?;
    assert_eq!(close.to_vec::<bool>()?, [true, true, false, false, false]);
    Ok(())
}

/// The gradients for cotangents of one.
fn gradients(
    function: impl Fn(&[Array]) -> Result<Vec<Array>>,
    inputs: &[&[f32]],
) -> Vec<Vec<f32>> {
    let arrays: Vec<Array> =
        inputs.iter().map(|values| Array::from_slice(values, &[values.len()]).unwrap()).collect();
    let ones = ones_like(&function(&arrays).unwrap()[0]).unwrap();
    let (_, gradients) = vjp(function, &arrays, &[ones]).unwrap();
    gradients.iter().map(|g| g.to_vec().unwrap()).collect()
}

#[test]
fn gradients_at_edges_are_those_of_mlx() {
    let check = |name: &str, got: Vec<Vec<f32>>, expected: &[&[f32]]| {
        for (got, expected) in got.iter().zip(expected) {
            for (g, e) in got.iter().zip(*expected) {
                let close = g == e || (g.is_nan() && e.is_nan()) || (g - e).abs() < 1e-6 * e.abs();
                assert!(close, "{name}: {got:?} not {expected:?}");
            }
        }
    };
    let pairs: [&[f32]; 2] = [&[1.0, 2.0, 3.0, NAN, 1.0], &[1.0, 3.0, 2.0, 1.0, NAN]];
    let got = gradients(|x| Ok(vec![maximum(&x[0], &x[1])?]), &pairs);
    check("maximum", got, &[&[0.0, 0.0, 1.0, 0.0, 0.0], &[1.0, 1.0, 0.0, 0.0, 0.0]]);
    let got = gradients(|x| Ok(vec![minimum(&x[0], &x[1])?]), &pairs);
    check("minimum", got, &[&[0.0, 1.0, 0.0, 0.0, 0.0], &[1.0, 0.0, 1.0, 0.0, 0.0]]);
    let got = gradients(|x| Ok(vec![abs(&x[0])?]), &[&[-1.0, 0.0, 2.0, NAN]]);
    check("abs", got, &[&[-1.0, 0.0, 1.0, 0.0]]);
    check("sqrt", gradients(|x| Ok(vec![sqrt(&x[0])?]), &[&[0.0, 4.0]]), &[&[INF, 0.25]]);
    check("rsqrt", gradients(|x| Ok(vec![rsqrt(&x[0])?]), &[&[0.0, 4.0]]), &[&[-INF, -0.0625]]);
    let got = gradients(
        |x| Ok(vec![clip(&x[0], Some(&ones_like(&x[0])?), Some(&full_like(&x[0], 2)?))?]),
        &[&[0.0, 1.0, 1.5, 2.0, 3.0, NAN]],
    );
    check("clip", got, &[&[0.0, 0.0, 1.0, 0.0, 0.0, 0.0]]);
    let got = gradients(|x| Ok(vec![remainder(&x[0], &x[1])?]), &[&[5.0, -5.0], &[3.0, 3.0]]);
    check("remainder", got, &[&[1.0, 1.0], &[-1.0, 2.0]]);
    let bases = [2.0, -2.0, 0.0, 0.0, 0.0, 0.0, -2.0];
    let exponents = [3.0, 2.0, 2.0, 1.0, 0.0, 0.5, 0.5];
    let got = gradients(|x| Ok(vec![power(&x[0], &x[1])?]), &[&bases, &exponents]);
    check(
        "power",
        got,
        &[&[12.0, -4.0, 0.0, 1.0, NAN, INF, NAN], &[5.545177, NAN, 0.0, 0.0, -INF, 0.0, NAN]],
    );
    let got = gradients(|x| Ok(vec![arctan2(&x[0], &x[1])?]), &[&[1.0, 0.0], &[2.0, 0.0]]);
    check("arctan2", got, &[&[0.4, NAN], &[-0.2, NAN]]);
    let got = gradients(|x| Ok(vec![logaddexp(&x[0], &x[1])?]), &[&[1.0, -INF], &[2.0, -INF]]);
    check("logaddexp", got, &[&[0.26894143, NAN], &[0.7310586, NAN]]);
    let got = gradients(|x| Ok(vec![divide(&x[0], &x[1])?]), &[&[1.0, 1.0], &[2.0, 0.0]]);
    check("divide", got, &[&[0.5, INF], &[-0.25, -INF]]);
    let got = gradients(|x| Ok(vec![nan_to_num(&x[0], 0.0, None, None)?]), &[&[0.5, NAN, INF]]);
    check("nan_to_num", got, &[&[1.0, 0.0, 0.0]]);
    let condition = Array::new([true, false]).unwrap();
    let got =
        gradients(|x| Ok(vec![where_(&condition, &x[0], &x[1])?]), &[&[1.0, 2.0], &[3.0, 4.0]]);
    check("where", got, &[&[1.0, 0.0], &[0.0, 1.0]]);
    let got = gradients(|x| Ok(vec![stop_gradient(&x[0])?]), &[&[1.0]]);
    check("stop_gradient", got, &[&[0.0]]);
}

#[test]
fn second_derivatives_are_those_of_mlx() {
    type Function = fn(&Array) -> Result<Array>;
    let table: [(&str, Function, f32, f32); 13] = [
        ("abs", |x| abs(x), 0.5, 0.0),
        ("sqrt", |x| sqrt(x), 0.5, -0.7071068),
        ("rsqrt", |x| rsqrt(x), 0.5, 4.242641),
        ("erf", |x| erf(x), 0.5, -0.8787826),
        ("erfinv", |x| erfinv(x), 0.5, 1.18075),
        ("log2", |x| log2(x), 0.5, -5.770781),
        ("tan", |x| tan(x), 0.5, 1.41869),
        ("arcsin", |x| arcsin(x), 0.5, 0.7698004),
        ("arctan", |x| arctan(x), 0.5, -0.64),
        ("arccosh", |x| arccosh(x), 1.5, -1.07331),
        ("sigmoid", |x| sigmoid(x), 0.5, -0.0575568),
        ("tanh", |x| tanh(x), 0.5, -0.726862),
        ("power", |x| power(x, 3.0), -2.0, -12.0),
    ];
    for (name, function, at, expected) in table {
        let first = |x: &[Array]| {
            let one = ones_like(&x[0])?;
            vjp(|x| Ok(vec![function(&x[0])?]), x, &[one]).map(|(_, gradients)| gradients)
        };
        let got = gradients(first, &[&[at]])[0][0];
        assert!((got - expected).abs() < 1e-5 * expected.abs().max(1.0), "{name}: {got}");
    }
}

#[test]
fn floats_that_no_integer_holds_become_what_they_are_in_mlx() -> Result<()> {
    let values = [INF, -INF, NAN, 300.0, -300.0, -1.5, 1e10, -1e10, 1e20, -1e20, 3e9, -3e9, 7e4];
    let low = i32::MIN as i64;
    let wide = i64::MIN;
    let expected: [(DType, [i64; 13]); 8] = [
        (U8, [0, 0, 0, 44, 212, 255, 0, 0, 0, 0, 0, 0, 112]),
        (I8, [0, 0, 0, 44, -44, -1, 0, 0, 0, 0, 0, 0, 112]),
        (U16, [0, 0, 0, 300, 65236, 65535, 0, 0, 0, 0, 0, 0, 4464]),
        (I16, [0, 0, 0, 300, -300, -1, 0, 0, 0, 0, 0, 0, 4464]),
        (I32, [low, low, low, 300, -300, -1, low, low, low, low, low, low, 70_000]),
        (U32, {
            let wrapped = 4294966996;
            [0, -low, -low, 300, wrapped, 4294967295, 0, -low, 0, -low, 3_000_000_000, -low, 70_000]
        }),
        (I64, {
            let (ten, three) = (10_000_000_000, 3_000_000_000);
            [wide, wide, wide, 300, -300, -1, ten, -ten, wide, wide, three, -three, 70_000]
        }),
        (U64, {
            let (ten, three) = (10_000_000_000, 3_000_000_000);
            [0, wide, wide, 300, -300, -1, ten, -ten, 0, wide, three, -three, 70_000]
        }),
    ];
    for device in crate::testing::devices() {
        let x = Array::from_slice_on(&values, &[13], &device)?;
        for (dtype, expected) in &expected {
            let bytes = |array: &Array| array.to_bytes();
            let want: Vec<u8> = (expected.iter())
                .flat_map(|value| value.to_le_bytes()[..dtype.size()].to_vec())
                .collect();
            assert_eq!(bytes(&astype(&x, *dtype)?)?, want, "{dtype} on {device}");
            for (index, &value) in values.iter().enumerate() {
                let one = full(&[], value as f64, *dtype)?;
                let (from, to) = (index * dtype.size(), (index + 1) * dtype.size());
                assert_eq!(bytes(&one)?, want[from..to], "{value} as {dtype}");
            }
        }
    }
    Ok(())
}

#[test]
fn steps_in_between_are_rounded_as_in_mlx() -> Result<()> {
    let x = Array::new([1000.0f32, 0.1234, 0.134985])?.astype(F16)?;
    let rounded: Vec<f32> = x.round(2)?.astype(F32)?.to_vec()?;
    assert_eq!(rounded, [INF, 0.11999512, 0.14001465]);
    let a = Array::new([2.999f32, -1e-7])?.astype(F16)?;
    let quotient: Vec<f32> =
        floor_divide(&a, &Array::new([1.0f32, 4.0])?.astype(F16)?)?.astype(F32)?.to_vec()?;
    assert_eq!(quotient, [2.0, 0.0]);
    Ok(())
}

#[test]
fn rounding_within_registers_is_that_of_storage() {
    // Every pattern of the high half, with low halves around ties of both types.
    for high in 0..=u16::MAX {
        for low in [0, 1, 0xfff, 0x1000, 0x1001, 0x2000, 0x3000, 0x7fff, 0x8000, 0x8001, 0xffff] {
            let x = f32::from_bits((high as u32) << 16 | low);
            let same = |a: f32, b: f32| a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan());
            assert!(same(as_float16(x), half::f16::from_f32(x).to_f32()), "{x:e}");
            assert!(same(as_bfloat16(x), half::bf16::from_f32(x).to_f32()), "{x:e}");
        }
    }
}

#[test]
fn two_steps_joined_give_the_bits_of_each_by_itself() -> Result<()> {
    type Call = fn(&Array, &Array) -> Result<Array>;
    let calls: [(&str, Call); 6] = [
        ("add", |a, b| add(a, b)),
        ("subtract", |a, b| subtract(a, b)),
        ("multiply", |a, b| multiply(a, b)),
        ("maximum", |a, b| maximum(a, b)),
        ("minimum", |a, b| minimum(a, b)),
        ("divide", |a, b| divide(a, b)),
    ];
    for count in [1, 63, 1024, 1500] {
        let array = |seed: usize, size: usize| {
            let values: Vec<f32> = (0..size)
                .map(|i| match (i * 7 + seed) % 11 {
                    0 => f32::NAN,
                    1 => f32::NEG_INFINITY,
                    2 => -0.0,
                    other => other as f32 * 1.3 - 7.7,
                })
                .collect();
            Array::from_slice_on(&values, &[size], &Device::cpu())
        };
        let (a, b, c) = (array(0, count)?, array(3, count)?, array(5, count)?);
        let (left, middle, right) = (array(2, 1)?, array(4, 1)?, array(7, 1)?);
        for (first_name, first) in calls {
            for (second_name, second) in calls {
                for (a, b, c) in [
                    (&a, &b, &c),
                    (&a, &middle, &c),
                    (&a, &b, &right),
                    (&a, &middle, &right),
                    (&left, &b, &c),
                ] {
                    let stepped = first(a, b)?;
                    stepped.eval()?;
                    for swapped in [false, true] {
                        let then = |x: &Array| if swapped { second(c, x) } else { second(x, c) };
                        let label = format!("{first_name} {second_name} {count} {swapped}");
                        let joined = then(&first(a, b)?)?;
                        assert_eq!(joined.to_bytes()?, then(&stepped)?.to_bytes()?, "{label}");
                    }
                }
            }
        }
    }
    Ok(())
}
