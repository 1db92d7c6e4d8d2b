//! Scaled frequencies against values recorded from mlx-lm 0.32.2, and several axes of positions
//! against plain loops.

use super::tests::{assert_close, numbers, turned};
use super::*;
use crate::nn::RotaryEmbedding;
use crate::testing::devices;

/// Checks wavelengths, as mlx-lm keeps them, and the size of rotated features.
fn check(scaling: RopeScaling, base: f64, positions: usize, wavelengths: &[f64], size: f64) {
    let found = scaling.frequencies(2 * wavelengths.len(), base, positions, None).unwrap();
    assert_eq!(found.frequencies.len(), wavelengths.len());
    for (frequency, wavelength) in found.frequencies.iter().zip(wavelengths) {
        let error = (frequency * wavelength - 1.0).abs();
        let still = *frequency == 0.0 && wavelength.is_infinite();
        assert!(error < 1e-6 || still, "{scaling:?}: 1 / {} is not {wavelength}", 1.0 / frequency);
    }
    assert!((found.attention_factor - size).abs() < 1e-12, "{}", found.attention_factor);
}

#[test]
fn frequencies_are_those_of_mlx_lm() {
    let llama3 = RopeScaling { factor: 8.0, ..RopeScaling::new(RopeType::Llama3) };
    let wavelengths =
        [1.0, 5.1566925, 26.5914803, 137.124084, 1905.32043, 29170.6582, 150424.125, 775691.0];
    check(llama3.clone(), 500000.0, 131072, &wavelengths, 1.0);
    let short = RopeScaling { factor: 32.0, original_max_position_embeddings: Some(64), ..llama3 };
    let wavelengths =
        [1.0, 4.22498703, 268.430786, 1011.92883, 3200.0, 10119.2881, 32000.0, 101192.883];
    check(short.clone(), 10000.0, 1024, &wavelengths, 1.0);
    let stepped = RopeScaling { low_freq_factor: 2.0, high_freq_factor: 2.0, ..short.clone() };
    let wavelengths = [1.0, 3.1622777, 320.0, 1011.92883, 3200.0, 10119.2881, 32000.0, 101192.883];
    check(stepped, 10000.0, 1024, &wavelengths, 1.0);
    let crossed = RopeScaling { low_freq_factor: 4.5, ..short.clone() };
    let error = crossed.frequencies(16, 10000.0, 1024, None).unwrap_err().to_string();
    assert!(error.contains("low_freq_factor") && error.contains("high_freq_factor, 4"), "{error}");
    let yarn = RopeScaling { factor: 4.0, ..RopeScaling::new(RopeType::Yarn) };
    let wavelengths = [1.0, 3.1622777, 10.0, 38.9203377, 160.0, 722.806335, 4000.0, 12649.1113];
    check(yarn.clone(), 10000.0, 16384, &wavelengths, 1.138629436111989);
    let deepseek = RopeScaling { factor: 40.0, mscale_all_dim: 0.707, ..yarn.clone() };
    assert!((deepseek.attention_scale(0.125) - 0.1987032706401092).abs() < 1e-15);
    let wavelengths =
        [1.0, 3.1622777, 10.0, 41.815239, 195.121948, 1176.66138, 40000.0, 126491.102];
    check(deepseek, 10000.0, 163840, &wavelengths, 1.0857263992561355);
    let wide = RopeScaling { factor: 32.0, ..yarn };
    let wavelengths =
        [1.0, 4.436203, 19.6798973, 128.94133, 1093.54834, 54980.2891, 243903.734, 1082006.38];
    check(wide, 150000.0, 131072, &wavelengths, 1.3465735902799727);
    let longrope = RopeScaling {
        original_max_position_embeddings: Some(4096),
        short_factor: vec![1.0, 1.1, 1.2, 1.3],
        long_factor: vec![1.5, 2.0, 4.0, 8.0],
        ..RopeScaling::new(RopeType::Longrope)
    };
    check(longrope.clone(), 10000.0, 131072, &[1.5, 20.0, 400.0, 8000.0], 1.1902380714238083);
    let short = longrope.frequencies(8, 10000.0, 131072, Some(4096)).unwrap().frequencies;
    assert_eq!(short, [1.0, 0.1 / 1.1, 0.01 / 1.2, 0.001 / 1.3]);
    let part = RopeScaling {
        factor: 2.0,
        partial_rotary_factor: 0.25,
        ..RopeScaling::new(RopeType::Proportional)
    };
    let still = f64::INFINITY;
    check(
        part.clone(),
        10000.0,
        4096,
        &[2.0, 6.3245554, still, still, still, still, still, still],
        1.0,
    );
    // 5 of 16 features: the pair of the last turns.
    let odd = RopeScaling { partial_rotary_factor: 0.32, ..part };
    check(odd, 10000.0, 4096, &[2.0, 6.3245554, 20.0, still, still, still, still, still], 1.0);
}

/// What mlx-lm's layers give for `x = i / 8 - 1.5` of shape [1, 1, 3, 8].
#[test]
fn encodings_are_those_of_mlx_lm() -> Result<()> {
    let stretched = |rope_type: RopeType, factor: f64| RopeScaling {
        factor,
        original_max_position_embeddings: Some(64),
        ..RopeScaling::new(rope_type)
    };
    let dynamic = stretched(RopeType::Dynamic, 2.0);
    let cases: [(RopeScaling, bool, usize, usize, [f64; 24]); 4] = [
        (
            dynamic.clone(),
            false,
            4,
            0,
            [
                -1.5,
                -1.375,
                -1.25,
                -1.125,
                -1.0,
                -0.875,
                -0.75,
                -0.625,
                -0.27015113830566406,
                -0.38560575246810913,
                -0.252487450838089,
                -0.1253749430179596,
                -0.4207354784011841,
                0.08693798631429672,
                0.24748754501342773,
                0.3748748302459717,
                -1.117370843887329,
                0.389038622379303,
                0.7248517274856567,
                0.8722482323646545,
                0.038501888513565063,
                1.226743221282959,
                1.2647490501403809,
                1.3767472505569458,
            ],
        ),
        (
            dynamic,
            false,
            4,
            6,
            [
                -1.7196708917617798,
                -0.9321720600128174,
                -1.2300578355789185,
                -1.1239268779754639,
                -0.5410470366477966,
                -1.3369014263153076,
                -0.7822771668434143,
                -0.6269276142120361,
                -0.3769511282444,
                -0.39145612716674805,
                -0.2574750483036041,
                -0.12574975192546844,
                -0.32849329710006714,
                -0.05488257110118866,
                0.24229444563388824,
                0.37474921345710754,
                -1.0621082782745361,
                -0.025491058826446533,
                0.706177294254303,
                0.8718549013137817,
                0.34917908906936646,
                1.2867013216018677,
                1.2752699851989746,
                1.376996397972107,
            ],
        ),
        (
            stretched(RopeType::Linear, 4.0),
            true,
            4,
            3,
            [
                -0.16027992963790894,
                -2.0285303592681885,
                -1.1621900796890259,
                -1.2154995203018188,
                -0.9934094548225403,
                -0.8824753165245056,
                -0.7495310306549072,
                -0.625562310218811,
                0.045400470495224,
                -0.6233488321304321,
                -0.23627185821533203,
                -0.1493338793516159,
                -0.0012499792501330376,
                0.12499374896287918,
                0.24962487816810608,
                0.37524983286857605,
                -0.43545418977737427,
                0.6715688109397888,
                0.6350578665733337,
                0.9616790413856506,
                0.985859751701355,
                1.1374118328094482,
                1.2482802867889404,
                1.3765614032745361,
            ],
        ),
        (
            stretched(RopeType::Yarn, 4.0),
            false,
            256,
            5,
            [
                -1.5763386487960815,
                -1.1834882497787476,
                -1.4125012159347534,
                -1.2800676822662354,
                1.3148030042648315,
                -1.4293783903121948,
                -0.8716959357261658,
                -0.7132440805435181,
                -0.546639084815979,
                -0.44944483041763306,
                -0.28889504075050354,
                -0.14296899735927582,
                0.15907534956932068,
                -0.023955345153808594,
                0.28035566210746765,
                0.4267720580101013,
                -0.3188566267490387,
                0.10190474987030029,
                0.8289350867271423,
                0.9935593605041504,
                1.2324473857879639,
                1.4618158340454102,
                1.4380125999450684,
                1.5673565864562988,
            ],
        ),
    ];
    let x: Vec<f32> = (0..24).map(|i| i as f32 / 8.0 - 1.5).collect();
    for device in devices() {
        let x = Array::from_slice_on(&x, &[1, 1, 3, 8], &device)?;
        for (scaling, traditional, positions, offset, want) in &cases {
            let rope = RotaryEmbedding::new(8, 10000.0, *traditional, scaling, *positions)?;
            assert_close(&rope.forward_from(&x, *offset)?, want, 2e-6)?;
        }
    }
    Ok(())
}

/// The formulas of Qwen2-VL's and Qwen3-VL's texts and of Qwen2-VL's images.
#[test]
fn pairs_take_positions_from_their_axes() -> Result<()> {
    let (heads, length, pairs) = (3, 5, 8);
    let places: Vec<i32> = (0..3 * 2 * length as i32).map(|i| i * 7 % 11).collect();
    let theta = |pair: usize, pairs: usize| 10000f64.powf(-(pair as f64) / pairs as f64) as f32;
    type AxisOf = fn(usize) -> usize;
    let texts: AxisOf = |pair| [0, 0, 0, 1, 1, 1, 2, 2][pair];
    let interleaved: AxisOf = |pair| [0, 1, 2, 0, 1, 2, 0, 1][pair];
    let images: AxisOf = |pair| pair / 4;
    let cases = [
        (RopeAxes::Sections(vec![3, 3, 2]), texts),
        (RopeAxes::Interleaved(vec![3, 3, 2]), interleaved),
        (RopeAxes::Spatial(2), images),
    ];
    let scaling = RopeScaling::new(RopeType::Default);
    let x = numbers(2 * heads * length * 16);
    for device in devices() {
        for (axes, axis_of) in &cases {
            let spatial = *axes == RopeAxes::Spatial(2);
            let count = axes.count();
            let rope = RotaryEmbedding::new(16, 10000.0, false, &scaling, 64)?;
            let rope = rope.with_axes(axes.clone())?;
            let angle = |row: usize, pair: usize| {
                let (batch, step) = (row / (heads * length), row % length);
                let place = places[(axis_of(pair) * 2 + batch) * length + step];
                let frequency = if spatial { theta(pair % 4, 4) } else { theta(pair, pairs) };
                place as f64 * frequency as f64
            };
            let want = turned(&x, 2 * heads * length, angle, &Rope::new(16));
            let x = Array::from_slice_on(&x, &[2, heads, length, 16], &device)?;
            let positions = &places[..count * 2 * length];
            let positions = Array::from_slice_on(positions, &[count, 2, length], &device)?;
            assert_close(&rope.forward_at(&x, &positions)?, &want, 4e-6)?;
            // In a text all axes count alike.
            if !spatial {
                let plain = super::rope(&x, 16, false, RopeBase::Base(10000.0), 1.0, 4)?;
                let plain: Vec<f64> = plain.to_vec::<f32>()?.into_iter().map(f64::from).collect();
                assert_close(&rope.forward_from(&x, 4)?, &plain, 4e-6)?;
            }
        }
    }
    Ok(())
}

#[test]
fn descriptions_that_do_not_fit_are_errors() -> Result<()> {
    assert!("exotic".parse::<RopeType>().is_err());
    assert_eq!("deepseek_yarn".parse::<RopeType>()?, RopeType::Yarn);
    let longrope = RopeScaling::new(RopeType::Longrope);
    let error = longrope.frequencies(8, 10000.0, 4096, None).unwrap_err().to_string();
    assert!(error.contains("long_factor") && error.contains("[4]"), "{error}");
    let nothing = RopeScaling { factor: 0.0, ..RopeScaling::new(RopeType::Linear) };
    assert!(nothing.frequencies(8, 10000.0, 4096, None).is_err());
    let original = |rope_type: RopeType, positions: usize| RopeScaling {
        original_max_position_embeddings: Some(positions),
        long_factor: vec![1.0; 4],
        ..RopeScaling::new(rope_type)
    };
    let of = |rope_type: RopeType| original(rope_type, 64);
    let (yarn, nan) = (of(RopeType::Yarn), f64::NAN);
    let factors = |last: f64| RopeScaling {
        long_factor: vec![1.0, 2.0, 3.0, last],
        ..of(RopeType::Longrope)
    };
    for (scaling, base, words) in [
        (
            original(RopeType::Longrope, 0),
            10.0,
            "original_max_position_embeddings: expected at least 2, got 0",
        ),
        (
            original(RopeType::Longrope, 1),
            10.0,
            "original_max_position_embeddings: expected at least 2, got 1",
        ),
        (
            original(RopeType::Yarn, 0),
            10.0,
            "original_max_position_embeddings: expected at least 1, got 0",
        ),
        (
            original(RopeType::Llama3, 0),
            10.0,
            "original_max_position_embeddings: expected at least 1, got 0",
        ),
        (yarn.clone(), 1.0, "base: expected a finite number above 1 for yarn, got 1"),
        (
            RopeScaling { beta_fast: 0.0, ..yarn.clone() },
            10.0,
            "beta_fast: expected a finite number above 0, got 0",
        ),
        (
            RopeScaling { beta_slow: -1.0, ..yarn.clone() },
            10.0,
            "beta_slow: expected a finite number above 0, got -1",
        ),
        (
            RopeScaling { mscale: nan, ..yarn.clone() },
            10.0,
            "mscale: expected a finite number, got NaN",
        ),
        (RopeScaling { attention_factor: Some(nan), ..yarn }, 10.0, "attention_factor"),
        (RopeScaling { low_freq_factor: nan, ..of(RopeType::Llama3) }, 10.0, "low_freq_factor"),
        (RopeScaling { partial_rotary_factor: 1.5, ..of(RopeType::Proportional) }, 10.0, "1.5"),
        (factors(0.0), 10.0, "long_factor: expected a finite number above 0, got 0"),
        (factors(nan), 10.0, "long_factor: expected a finite number above 0, got NaN"),
    ] {
        let error = scaling.frequencies(8, base, 4096, None).unwrap_err().to_string();
        assert!(error.contains(words), "{error}, not {words}");
    }
    // What a type does not use may be anything.
    let unused = RopeScaling { beta_fast: 0.0, ..original(RopeType::Linear, 0) };
    assert!(unused.frequencies(8, 1.0, 4096, None).is_ok());
    let plain = RopeScaling::new(RopeType::Default);
    assert!(plain.frequencies(7, 10000.0, 4096, None).is_err());
    let rope = RotaryEmbedding::new(16, 10000.0, false, &plain, 64)?;
    let error = rope.with_axes(RopeAxes::Sections(vec![3, 3])).unwrap_err().to_string();
    assert!(error.contains("[3, 3]") && error.contains('8'), "{error}");
    // Sums that come to 8 but for what overflows.
    for axes in [RopeAxes::Sections, RopeAxes::Interleaved] {
        let rope = RotaryEmbedding::new(16, 10000.0, false, &plain, 64)?;
        let error = rope.with_axes(axes(vec![usize::MAX, 9])).unwrap_err().to_string();
        assert!(error.contains(&usize::MAX.to_string()) && error.contains("8 pairs"), "{error}");
    }
    Ok(())
}
