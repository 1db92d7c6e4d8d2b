//! Sweeps over bit patterns and edge values, measured against f64.

use super::*;

const EDGES: [f32; 28] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    2.0,
    -2.0,
    3.0,
    -3.0,
    0.5,
    -0.5,
    1.5,
    -1.5,
    f32::INFINITY,
    f32::NEG_INFINITY,
    f32::NAN,
    f32::MAX,
    f32::MIN,
    f32::MIN_POSITIVE,
    1e-45,
    -1e-45,
    0.99999994,
    1.0000001,
    -0.99999994,
    16_777_215.0,
    -16_777_215.0,
    88.72283,
    -87.4,
    -103.9,
];

/// Distance in units of the last place of the right result; huge if a NaN, an infinity or the
/// sign of a zero is wrong.
fn ulps(got: f32, want: f64) -> f64 {
    let near = want as f32;
    if got.is_nan() && near.is_nan() || got == near && near.is_infinite() {
        return 0.0;
    }
    let zeros = got == 0.0 && near == 0.0;
    if !got.is_finite() || !near.is_finite() || zeros && got.to_bits() != near.to_bits() {
        return f64::INFINITY;
    }
    let exponent = (near.abs().max(f32::MIN_POSITIVE).to_bits() >> 23) as i32 - 150;
    (got as f64 - want).abs() / 2f64.powi(exponent)
}

fn sweep(name: &str, limit: f64, got: fn(f32) -> f32, want: fn(f64) -> f64) {
    let spread = (0..=u32::MAX).step_by(1009).map(f32::from_bits);
    let middle = (-20_000..20_000).map(|i| i as f32 * 7.3e-4);
    for x in EDGES.into_iter().chain(spread).chain(middle) {
        let (got, want) = (got(x), want(x as f64));
        let off = ulps(got, want);
        assert!(off <= limit, "{name}({x:e}) is {got:e}, not {want:e}: {off} ulp");
    }
}

fn sweep2(name: &str, limit: f64, got: fn(f32, f32) -> f32, want: fn(f64, f64) -> f64) {
    let check = |x: f32, y: f32| {
        let (got, want) = (got(x, y), want(x as f64, y as f64));
        let off = ulps(got, want);
        assert!(off <= limit, "{name}({x:e}, {y:e}) is {got:e}, not {want:e}: {off} ulp");
    };
    EDGES.iter().for_each(|&x| EDGES.iter().for_each(|&y| check(x, y)));
    let mut state = 7u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (state >> 32) as u32
    };
    for _ in 0..100_000 {
        check(f32::from_bits(next()), f32::from_bits(next()));
        let (x, y) = (next() as f32 * 1e-8 - 20.0, next() as f32 * 1e-8 - 20.0);
        check(x, y);
        check(x, y.round());
        check(x.abs(), y);
    }
}

#[test]
fn f32_functions_of_one_argument_are_within_their_ulps_for_all_kinds_of_numbers() {
    sweep("exp", 1.01, exp, double::exp);
    let nonpositive =
        |x: f32| if !(-87.0..=0.0).contains(&x) { exp(x) } else { exp_nonpositive(x) };
    sweep("exp_nonpositive", 1.01, nonpositive, double::exp);
    assert_eq!([-88.0, -1e30, f32::NEG_INFINITY].map(exp_nonpositive), [0.0; 3]);
    assert!(exp_nonpositive(f32::from_bits(0x7fc0_0001)).is_nan());
    sweep("expm1", 0.51, expm1, double::expm1);
    sweep("log", 0.8, log, double::log);
    sweep("log2", 0.51, log2, double::log2);
    sweep("log10", 0.51, log10, double::log10);
    sweep("log1p", 0.51, log1p, double::log1p);
    sweep("tanh", 2.0, tanh, double::tanh);
    sweep("sigmoid", 1.8, sigmoid, double::sigmoid);
    sweep("erf", 1.4, erf, double::erf);
    sweep("normal_cdf", 8.0, normal_cdf, double::normal_cdf);
    sweep("erfinv", 2.5, erfinv, double::erfinv);
    sweep("sin", 0.51, sin, double::sin);
    sweep("cos", 0.51, cos, double::cos);
    sweep("tan", 0.51, tan, double::tan);
    sweep("arcsin", 0.51, arcsin, double::arcsin);
    sweep("arccos", 0.51, arccos, double::arccos);
    sweep("arctan", 0.51, arctan, double::arctan);
    sweep("sinh", 0.51, sinh, double::sinh);
    sweep("cosh", 0.51, cosh, double::cosh);
    sweep("arcsinh", 0.51, arcsinh, double::arcsinh);
    sweep("arccosh", 0.51, arccosh, double::arccosh);
    sweep("arctanh", 0.51, arctanh, double::arctanh);
    sweep("sqrt", 0.51, sqrt, double::sqrt);
    sweep("rsqrt", 1.5, rsqrt, double::rsqrt);
    sweep("floor", 0.0, floor, double::floor);
    sweep("ceil", 0.0, ceil, double::ceil);
    sweep("round", 0.0, round, double::round);
    sweep("trunc", 0.0, trunc, double::trunc);
}

#[test]
fn f32_functions_of_two_arguments_are_within_their_ulps_for_all_kinds_of_numbers() {
    sweep2("power", 0.51, power, double::power);
    sweep2("arctan2", 0.51, arctan2, double::arctan2);
}

#[test]
fn logaddexp_is_exact_beside_its_larger_argument() {
    // Where the two terms cancel, only the distance measured against the argument is small.
    let pairs = EDGES.iter().flat_map(|&a| EDGES.iter().map(move |&b| (a, b)));
    let steps =
        (-300..300).flat_map(|i| (-300..300).map(move |j| (i as f32 * 0.11, j as f32 * 0.13)));
    for (a, b) in pairs.chain(steps) {
        let (got, want) = (logaddexp(a, b), double::logaddexp(a as f64, b as f64));
        let close = (got as f64 - want).abs() <= 1e-9 * a.max(b).abs() as f64;
        assert!(
            close || ulps(got, want) <= 0.51,
            "logaddexp({a:e}, {b:e}) is {got:e}, not {want:e}"
        );
    }
}

#[test]
fn erfinv_has_the_bits_of_mlx() {
    let recorded = [
        (0x00000000, 0x00000000),
        (0x0da24260, 0x0d8fcc6d),
        (0x3a83126f, 0x3a6851b3),
        (0xbdcccccd, 0xbdb5fa21),
        (0x3e99999a, 0x3e8b803d),
        (0xbf000000, 0xbef430fe),
        (0x3f333333, 0x3f3b9d4d),
        (0x3f666666, 0x3f94e009),
        (0xbf733333, 0xbfb1654b),
        (0x3f7d70a4, 0x3fe92331),
        (0x3f7f3b64, 0x40064dec),
        (0xbf7fbe77, 0xc014e994),
        (0x3f7fff58, 0x4047e29b),
        (0x3f7ffffe, 0x406f9c68),
        (0xbf7fffff, 0xc07547ca),
        (0x3f800000, 0x7f800000),
        (0xbf800000, 0xff800000),
    ];
    for (a, want) in recorded {
        assert_eq!(erfinv(f32::from_bits(a)).to_bits(), want, "{a:#x}");
    }
}

#[test]
fn erfinv_in_f64_inverts_erf() {
    for i in -999..1000 {
        let a = i as f64 / 1000.0;
        assert!((libm::erf(double::erfinv(a)) - a).abs() < 4e-16, "{a}");
    }
    assert_eq!(double::erfinv(1.0), f64::INFINITY);
    assert!(double::erfinv(1.1).is_nan());
    assert!((double::erfinv(1e-20) / 8.862269254527581e-21 - 1.0).abs() < 1e-15);
}
