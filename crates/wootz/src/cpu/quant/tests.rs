//! Every format, level and instruction set beside weights that are decoded one by one in f64.

use half::{bf16, f16};

use super::*;
use crate::testing::worst;

const FORMATS: [Format; 22] = [
    Format::Q4_0,
    Format::Q4_1,
    Format::Q5_0,
    Format::Q5_1,
    Format::Q8_0,
    Format::Q2K,
    Format::Q3K,
    Format::Q4K,
    Format::Q5K,
    Format::Q6K,
    Format::Iq4Nl,
    Format::Iq4Xs,
    Format::Mxfp4Blocks,
    Format::Affine1,
    Format::Affine2,
    Format::Affine3,
    Format::Affine4,
    Format::Affine5,
    Format::Affine6,
    Format::Affine8,
    Format::Mxfp4,
    Format::Nvfp4,
];

/// Numbers that look random and are the same every time.
struct Random(u64);

impl Random {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        self.0 >> 33
    }

    fn unit(&mut self) -> f32 {
        self.bits() as f32 / (1u64 << 30) as f32 - 1.0
    }

    /// About normal.
    fn normal(&mut self) -> f32 {
        (0..6).map(|_| self.unit()).sum::<f32>() / 2f32.sqrt()
    }
}

/// A matrix with memory of its own, which begins at an odd address.
struct Matrix {
    format: Format,
    shape: [usize; 2],
    codes: Vec<u8>,
    scales: Vec<u8>,
    biases: Vec<u8>,
    numbers: Numbers,
    group: usize,
}

/// Where the f16 of a block are.
fn halves_of(format: Format) -> &'static [usize] {
    match format {
        Format::Q4_0 | Format::Q5_0 | Format::Q8_0 | Format::Iq4Nl | Format::Iq4Xs => &[0],
        Format::Q4_1 | Format::Q5_1 | Format::Q4K | Format::Q5K => &[0, 2],
        Format::Q2K => &[80, 82],
        Format::Q3K => &[108],
        Format::Q6K => &[208],
        _ => &[],
    }
}

impl Matrix {
    fn random(
        format: Format,
        [rows, columns]: [usize; 2],
        numbers: Numbers,
        group: usize,
        random: &mut Random,
    ) -> Matrix {
        let Shape { weights, bytes, arrays } = format.shape();
        let mut codes = vec![0u8; 1 + rows * columns / weights * bytes];
        codes.iter_mut().for_each(|byte| *byte = random.bits() as u8);
        for block in codes[1..].chunks_exact_mut(bytes) {
            for &at in halves_of(format) {
                let scale = f16::from_f32(0.01 + 0.02 * random.unit().abs());
                block[at..at + 2].copy_from_slice(&scale.to_le_bytes());
            }
            if format == Format::Mxfp4Blocks {
                block[0] = 120 + block[0] % 4;
            }
        }
        let mut array = |wanted: bool| {
            let mut bytes = vec![0u8];
            for _ in 0..if wanted { rows * columns / group } else { 0 } {
                let x = 0.03 * random.unit();
                match numbers {
                    Numbers::F32 => bytes.extend(x.to_le_bytes()),
                    Numbers::F16 => bytes.extend(f16::from_f32(x).to_le_bytes()),
                    Numbers::Bf16 => bytes.extend(bf16::from_f32(x).to_le_bytes()),
                    Numbers::Byte if format == Format::Nvfp4 => {
                        bytes.push(random.bits() as u8 & 0x3f)
                    }
                    Numbers::Byte => bytes.push(120 + random.bits() as u8 % 4),
                }
            }
            bytes
        };
        let (scales, biases) = (array(arrays > 0), array(arrays > 1));
        Matrix { format, shape: [rows, columns], codes, scales, biases, numbers, group }
    }

    /// With bytes of any kind everywhere: scales are NaN, infinite, subnormal and zero, too.
    fn noise(mut self, random: &mut Random) -> Matrix {
        for bytes in [&mut self.codes, &mut self.scales, &mut self.biases] {
            bytes[1..].iter_mut().for_each(|byte| *byte = random.bits() as u8);
        }
        self
    }

    /// What `dequantize` makes of the weights.
    fn dequantized(&self, scheme: Scheme) -> Vec<f32> {
        let mut weights = vec![0f32; self.shape.iter().product()];
        let (codes, scales) = (&self.codes[1..], &self.scales[1..]);
        let floats = |from: &[u8]| -> Vec<f32> {
            let count = (from.len() - 1) / self.numbers.bytes();
            (0..count).map(|i| self.number(&from[1..], i) as f32).collect()
        };
        match scheme {
            Scheme::Blocks(format) => format.decode(codes, &mut weights).unwrap(),
            Scheme::Affine { group_size: group, bits } => {
                let affine = quant::Affine { bits, group };
                affine.decode(codes, &floats(&self.scales), &floats(&self.biases), &mut weights);
            }
            _ => scheme.floats().unwrap().decode(codes, scales, |x| x, &mut weights),
        }
        weights
    }

    fn weights(&self) -> Weights<'_> {
        let apart = Apart {
            scales: &self.scales[1..],
            biases: &self.biases[1..],
            numbers: self.numbers,
            group: self.group,
        };
        Weights::new("test", self.format, self.shape, &self.codes[1..], apart).unwrap()
    }

    fn number(&self, from: &[u8], i: usize) -> f64 {
        let at = i * self.numbers.bytes();
        let pair = || [from[at], from[at + 1]];
        match self.numbers {
            Numbers::F32 => f32::from_le_bytes(from[at..at + 4].try_into().unwrap()).into(),
            Numbers::F16 => f16::from_le_bytes(pair()).into(),
            Numbers::Bf16 => bf16::from_le_bytes(pair()).into(),
            Numbers::Byte if self.format == Format::Nvfp4 => {
                let (exponent, mantissa) = ((from[at] >> 3) as i32 & 15, (from[at] & 7) as f64);
                match exponent {
                    0 => mantissa * 2f64.powi(-9),
                    _ => (8.0 + mantissa) * 2f64.powi(exponent - 10),
                }
            }
            Numbers::Byte => 2f64.powi(from[at] as i32 - 127),
        }
    }

    /// All weights, from the formats' descriptions.
    fn decoded(&self) -> Vec<f64> {
        let [rows, columns] = self.shape;
        let Shape { weights, bytes, .. } = self.format.shape();
        (0..rows * columns)
            .map(|i| {
                let block = &self.codes[1 + i / weights * bytes..][..bytes];
                let apart = (&self.scales[1..], &self.biases[1..]);
                match self.format.shape().arrays {
                    0 => block_weight(self.format, block, i % weights),
                    arrays => {
                        let scale = self.number(apart.0, i / self.group);
                        let code = stream_code(block, bytes * 8 / weights, i % weights);
                        let product = match (arrays, self.numbers) {
                            (1, _) => return scale * e2m1(code),
                            // Of single scales, products are rounded as well.
                            (_, Numbers::F32) => (scale * code as f64) as f32 as f64,
                            _ => scale * code as f64,
                        };
                        product + self.number(apart.1, i / self.group)
                    }
                }
            })
            .collect()
    }
}

fn stream_code(block: &[u8], bits: usize, i: usize) -> u8 {
    (0..bits).map(|b| (block[(i * bits + b) / 8] >> ((i * bits + b) % 8) & 1) << b).sum()
}

fn e2m1(code: u8) -> f64 {
    let magnitude = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0][code as usize & 7];
    if code & 8 == 0 { magnitude } else { -magnitude }
}

fn uneven(code: u8) -> f64 {
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113][code as usize] as f64
}

fn block_weight(format: Format, block: &[u8], i: usize) -> f64 {
    let half = |at: usize| f64::from(f16::from_le_bytes([block[at], block[at + 1]]));
    let nibble = |at: usize| block[at + i % 16] >> (4 * (i / 16)) & 15;
    let bit = |at: usize| (block[at + i / 8] >> (i % 8) & 1) as f64;
    // For blocks of 256: group of 32 and place in it.
    let (group, lane) = (i / 32, i % 32);
    let pair = || {
        let s = &block[4..16];
        match group {
            0..4 => (s[group] & 63, s[group + 4] & 63),
            _ => {
                (s[group + 4] & 15 | s[group - 4] >> 6 << 4, s[group + 4] >> 4 | s[group] >> 6 << 4)
            }
        }
    };
    let wide_nibble =
        |at: usize| (block[at + group / 2 * 32 + lane] >> (4 * (group % 2)) & 15) as f64;
    let crumb = |at: usize| (block[at + group / 4 * 32 + lane] >> (2 * (group % 4)) & 3) as f64;
    match format {
        Format::Q4_0 => half(0) * (nibble(2) as f64 - 8.0),
        Format::Q4_1 => half(0) * nibble(4) as f64 + half(2),
        Format::Q5_0 => half(0) * (nibble(6) as f64 + 16.0 * bit(2) - 16.0),
        Format::Q5_1 => half(0) * (nibble(8) as f64 + 16.0 * bit(4)) + half(2),
        Format::Q8_0 => half(0) * block[2 + i] as i8 as f64,
        Format::Iq4Nl => half(0) * uneven(nibble(2)),
        Format::Mxfp4Blocks => 2f64.powi(block[0] as i32 - 127) * e2m1(nibble(1)),
        Format::Iq4Xs => {
            let low = block[4 + group / 2] >> (4 * (group % 2)) & 15;
            let high = u16::from_le_bytes([block[2], block[3]]) >> (2 * group) & 3;
            let code = block[8 + 16 * group + lane % 16] >> (4 * (lane / 16)) & 15;
            half(0) * (low as f64 + 16.0 * high as f64 - 32.0) * uneven(code)
        }
        Format::Q2K => {
            let scales = block[i / 16];
            half(80) * (scales & 15) as f64 * crumb(16) - half(82) * (scales >> 4) as f64
        }
        Format::Q3K => {
            let sixteen = i / 16;
            let low = block[96 + sixteen % 8] >> (4 * (sixteen / 8)) & 15;
            let high = block[104 + sixteen % 4] >> (2 * (sixteen / 4)) & 3;
            let scale = low as f64 + 16.0 * high as f64 - 32.0;
            let top = (block[lane] >> group & 1) as f64;
            half(108) * scale * (crumb(32) + 4.0 * top - 4.0)
        }
        Format::Q4K => half(0) * pair().0 as f64 * wide_nibble(16) - half(2) * pair().1 as f64,
        Format::Q5K => {
            let code = wide_nibble(48) + 16.0 * (block[16 + lane] >> group & 1) as f64;
            half(0) * pair().0 as f64 * code - half(2) * pair().1 as f64
        }
        Format::Q6K => {
            let (part, quarter) = (group / 4, group % 4);
            let low = block[64 * part + 32 * (quarter % 2) + lane] >> (4 * (quarter / 2)) & 15;
            let high = block[128 + 32 * part + lane] >> (2 * quarter) & 3;
            let code = low as f64 + 16.0 * high as f64 - 32.0;
            half(208) * block[192 + i / 16] as i8 as f64 * code
        }
        other => panic!("{other:?} has no blocks"),
    }
}

/// The types and groups that a format is tried with.
fn sides(format: Format) -> Vec<(Numbers, usize)> {
    match (format, format.shape().arrays) {
        (Format::Nvfp4, _) => vec![(Numbers::Byte, 16)],
        (_, 2) => [Numbers::F32, Numbers::F16, Numbers::Bf16]
            .into_iter()
            .flat_map(|numbers| [32, 64, 128].map(|group| (numbers, group)))
            .collect(),
        _ => vec![(Numbers::Byte, 32)],
    }
}

/// The two ways of multiplying: rows with rows, and tiles.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Few,
    Many,
}

const WAYS: [Way; 2] = [Way::Few, Way::Many];

/// The product with one matrix, of activations that integers stand for.
fn multiply(weights: &Weights<'_>, way: Way, level: Level, x: &[f32]) -> Option<Vec<f32>> {
    let rows = x.len() / weights.columns;
    let bytes = Activations::bytes(level, rows, weights.columns);
    // A workspace holds what was there before: all bits set are NaN.
    let mut memory = vec![u128::MAX; bytes.div_ceil(16) + 4];
    let memory = bytemuck::cast_slice_mut::<u128, u8>(&mut memory);
    let start = memory.as_ptr().align_offset(64);
    let memory = &mut memory[start..];
    let how = (level, weights.order(level));
    let x = Activations::round("test", how, x, weights.columns, memory).unwrap()?;
    let mut results = vec![f32::NAN; rows * weights.rows];
    match way {
        Way::Few => weights.multiply("test", weights.rows, &x, Pairs::Each, &mut results),
        Way::Many => {
            let mut memory = memory_for_many(weights, level, rows);
            let memory = bytemuck::cast_slice_mut(&mut memory);
            weights.multiply_many("test", weights.rows, &x, Pairs::Each, memory, &mut results)
        }
    }
    .unwrap();
    Some(results)
}

/// What activations of some rows are laid in; a workspace holds what was there before.
fn memory_for_many(weights: &Weights<'_>, level: Level, rows: usize) -> Vec<u128> {
    let bytes = Weights::bytes_for_many(weights.format, level, rows, weights.columns);
    vec![u128::MAX; bytes.div_ceil(16)]
}

fn activations(rows: usize, columns: usize, random: &mut Random) -> Vec<f32> {
    (0..rows * columns).map(|_| random.normal()).collect()
}

/// The largest difference as a part of the largest result.
fn error(results: &[f32], weights: &[f64], x: &[f32], columns: usize) -> f64 {
    let rows = weights.len() / columns;
    let mut largest = 0f64;
    let differences = results.iter().enumerate().map(|(i, &result)| {
        let weights = &weights[i % rows * columns..][..columns];
        let x = &x[i / rows * columns..][..columns];
        let exact: f64 = weights.iter().zip(x).map(|(w, &x)| w * x as f64).sum();
        largest = largest.max(exact.abs());
        (result as f64 - exact).abs()
    });
    let most = worst(differences);
    most / largest
}

#[test]
fn decoded_weights_are_those_of_the_descriptions() {
    let mut random = Random(1);
    for format in FORMATS {
        for (numbers, group) in sides(format) {
            let matrix = Matrix::random(format, [3, 768], numbers, group, &mut random);
            let expected = matrix.decoded();
            for set in format.sets() {
                let weights = Weights { set, ..matrix.weights() };
                let mut got = vec![f32::NAN; 768];
                weights.decode("test", 1, 0, &mut got[..512]).unwrap();
                weights.decode("test", 1, 512, &mut got[512..]).unwrap();
                for (i, (&got, &expected)) in got.iter().zip(&expected[768..]).enumerate() {
                    let same = got == expected as f32;
                    assert!(same, "{format:?} {numbers:?} {group} {i}: {got}, not {expected}");
                }
            }
        }
    }
}

#[test]
fn bytes_of_any_kind_decode_as_dequantize_decodes_them() {
    let mut random = Random(9);
    let mut seen = Vec::new();
    for scheme in schemes() {
        let Some(format) = Format::of(scheme, 768) else { continue };
        seen.push(format);
        let group = scheme.group_size().unwrap_or(GROUP);
        for (numbers, group) in sides(format).into_iter().filter(|side| side.1 == group) {
            let matrix = Matrix::random(format, [64, 768], numbers, group, &mut random);
            let matrix = matrix.noise(&mut random);
            let expected = matrix.dequantized(scheme);
            for (number, set) in format.sets().into_iter().enumerate() {
                let weights = Weights { set, ..matrix.weights() };
                for (row, expected) in expected.chunks_exact(768).enumerate() {
                    let mut got = vec![f32::NAN; 768];
                    weights.decode("test", row, 0, &mut got).unwrap();
                    for (i, (got, expected)) in got.iter().zip(expected).enumerate() {
                        // Products do not show the sign of a zero, nor which NaN it was.
                        let same = got == expected && (*got != 0.0 || scheme.floats().is_some())
                            || got.to_bits() == expected.to_bits()
                            || got.is_nan() && expected.is_nan();
                        let which = format!("{scheme} {numbers:?} of set {number} at {row}, {i}");
                        assert!(same, "{which}: {got:e}, not {expected:e}");
                    }
                }
            }
        }
    }
    assert!(FORMATS.iter().all(|format| seen.contains(format)));
}

/// Every scheme that there is.
fn schemes() -> Vec<Scheme> {
    let mut schemes: Vec<Scheme> = quant::Format::ALL.iter().copied().map(Scheme::Blocks).collect();
    for bits in quant::Affine::BITS {
        schemes.extend(quant::Affine::GROUPS.map(|group_size| Scheme::Affine { group_size, bits }));
    }
    schemes.extend([Scheme::Mxfp4, Scheme::Mxfp8, Scheme::Nvfp4]);
    schemes
}

#[test]
fn the_sets_that_this_processor_lacks_are_named() {
    let sets = Format::Q4_0.sets().len();
    let names: &[&str] = match () {
        #[cfg(target_arch = "x86_64")]
        () => &["portable", "AVX2", "AVX-512 VNNI"],
        #[cfg(target_arch = "aarch64")]
        () => &["portable", "NEON with dot products"],
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        () => &["portable"],
    };
    println!("kernels of these sets are tested here: {}", names[..sets].join(", "));
    for name in &names[sets..] {
        println!("SKIPPED: this processor lacks {name}");
    }
    assert!(sets <= names.len());
}

#[test]
fn products_of_every_format_and_set_are_near_those_in_f64() {
    let mut random = Random(2);
    for format in FORMATS {
        for (numbers, group) in sides(format) {
            // Not a whole number of times eight groups, where the format allows it.
            let unit = format.shape().weights.max(group);
            let columns = if unit == 256 { 512 } else { 256 + unit };
            let matrix = Matrix::random(format, [9, columns], numbers, group, &mut random);
            let decoded = matrix.decoded();
            let x = activations(7, columns, &mut random);
            for (level, tolerance) in [(Level::Exact, 1e-4), (Level::Fast, 1.5e-2)] {
                for (number, set) in format.sets().into_iter().enumerate() {
                    for way in WAYS {
                        let weights = Weights { set, ..matrix.weights() };
                        let results = multiply(&weights, way, level, &x).unwrap();
                        let error = error(&results, &decoded, &x, columns);
                        assert!(
                            error < tolerance,
                            "{format:?} {numbers:?} {group} {level:?} {number} {way:?}: {error}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn tiles_of_every_height_in_several_panels_are_near_products_in_f64() {
    let mut random = Random(7);
    // Four kinds of scales and offsets, and every kind of codes.
    for format in [
        Format::Q4_0,
        Format::Q2K,
        Format::Q5_1,
        Format::Q6K,
        Format::Q8_0,
        Format::Nvfp4,
        Format::Affine4,
        Format::Affine8,
    ] {
        let (numbers, group) = sides(format)[0];
        // Several times the depth of a panel, and in some formats a rest.
        let columns = if format.shape().weights == 256 { 1536 } else { 1536 + 64 };
        let matrix = Matrix::random(format, [83, columns], numbers, group, &mut random);
        let decoded = matrix.decoded();
        for set in format.sets() {
            let weights = Weights { set, ..matrix.weights() };
            for rows in [1, 2, 3, 4, 5, 6, 11, 17] {
                let x = activations(rows, columns, &mut random);
                for (level, tolerance) in [(Level::Exact, 1e-4), (Level::Fast, 1.5e-2)] {
                    let results = multiply(&weights, Way::Many, level, &x).unwrap();
                    let error = error(&results, &decoded, &x, columns);
                    assert!(error < tolerance, "{format:?} {rows} {level:?}: {error}");
                }
            }
        }
    }
}

#[test]
fn tiles_of_all_sets_have_the_same_bits_where_codes_count_from_the_same_number() {
    let mut random = Random(10);
    for format in FORMATS {
        let (numbers, group) = sides(format)[0];
        let columns = if format.shape().weights == 256 { 1536 } else { 1024 + 128 };
        let matrix = Matrix::random(format, [37, columns], numbers, group, &mut random);
        let mut x = activations(13, columns, &mut random);
        // Groups of nothing, of large and of small numbers.
        x[..64].fill(0.0);
        x[2 * columns + 64..][..128].iter_mut().for_each(|x| *x *= 1e20);
        x[3 * columns + 64..][..128].iter_mut().for_each(|x| *x *= 1e-25);
        [4, 5, 12].iter().for_each(|&row| x[row * columns + 77 * row] = 90.0);
        for level in [Level::Exact, Level::Fast] {
            // Of bytes, sets move those with a sign, and those without an offset are counted in another order.
            let same = matches!(
                format,
                Format::Q4_1 | Format::Q5_1 | Format::Q2K | Format::Q4K | Format::Q5K
            ) || format.shape().arrays == 2 && format != Format::Affine8;
            if level == Level::Fast && !same {
                continue;
            }
            let products = |set| {
                let weights = Weights { set, ..matrix.weights() };
                let products = multiply(&weights, Way::Many, level, &x).unwrap();
                products.into_iter().map(f32::to_bits).collect::<Vec<_>>()
            };
            let sets = format.sets();
            let first = products(sets[0]);
            for (number, &set) in sets.iter().enumerate().skip(1) {
                assert!(products(set) == first, "{format:?} {level:?} of set {number}");
            }
        }
    }
}

#[test]
fn exact_products_hold_their_promise_where_one_activation_stands_out() {
    let mut random = Random(3);
    let columns = 11008;
    for format in FORMATS {
        for (numbers, group) in sides(format) {
            let matrix = Matrix::random(format, [24, columns], numbers, group, &mut random);
            let decoded = matrix.decoded();
            let mut x = activations(2, columns, &mut random);
            for outlier in [1.0, 100.0] {
                x[4097] = outlier;
                for (number, set) in format.sets().into_iter().enumerate() {
                    let weights = Weights { set, ..matrix.weights() };
                    for way in WAYS {
                        let results = multiply(&weights, way, Level::Exact, &x).unwrap();
                        let error = error(&results, &decoded, &x, columns);
                        let which = format!("{format:?} {numbers:?} {group} {outlier} {way:?}");
                        assert!(error < 1e-4, "{which} of set {number}: {error}");
                    }
                }
            }
        }
    }
}

#[test]
fn activations_that_stand_out_leave_the_others_their_digits_in_every_format_and_set() {
    let mut random = Random(11);
    for format in FORMATS {
        let (numbers, group) = sides(format)[0];
        let columns = if format.shape().weights == 256 { 256 } else { 128 };
        let matrix = Matrix::random(format, [40, columns], numbers, group, &mut random);
        let decoded = matrix.decoded();
        // One, and three of a group; a group of nothing else, and one of very small ones; one in every group.
        let mut x = activations(7, columns, &mut random);
        x[columns / 3] = 300.0;
        [0, 1, 31].iter().for_each(|&i| x[i] = 300.0);
        x[2 * columns + 64..][..32].fill(0.0);
        x[2 * columns + 70] = -40.0;
        x[3 * columns + 32..][..32].fill(1e-29);
        x[3 * columns + 33] = 50.0;
        x[4 * columns..].iter_mut().step_by(32).for_each(|x| *x = -30.0);
        for (number, set) in format.sets().into_iter().enumerate() {
            let weights = Weights { set, ..matrix.weights() };
            for way in WAYS {
                let results = multiply(&weights, way, Level::Exact, &x).unwrap();
                for (row, (results, x)) in results.chunks(40).zip(x.chunks(columns)).enumerate() {
                    let difference = error(results, &decoded, x, columns);
                    // As a part of what the others bring: those that stand out are known to many digits.
                    let others: Vec<f32> =
                        x.iter().map(|&x| if x.abs() < 20.0 { x } else { 0.0 }).collect();
                    let products = |x: &[f32]| {
                        let of = |weights: &[f64]| -> f64 {
                            weights.iter().zip(x).map(|(w, &x)| w * x as f64).sum()
                        };
                        decoded.chunks(columns).map(|w| of(w).abs()).fold(0.0, f64::max)
                    };
                    let error = difference * products(x) / products(&others);
                    assert!(error < 6e-5, "{format:?} {number} {way:?} row {row}: {error}");
                }
            }
        }
    }
}

#[test]
fn the_largest_codes_do_not_overflow() {
    for format in FORMATS {
        let (numbers, group) = sides(format)[0];
        let mut random = Random(4);
        for fill in [0u8, 0x80, 0xff] {
            let mut matrix = Matrix::random(format, [1, 256], numbers, group, &mut random);
            let Shape { bytes, .. } = format.shape();
            for block in matrix.codes[1..].chunks_exact_mut(bytes) {
                let kept: Vec<u8> = block.to_vec();
                block.fill(fill);
                for &at in halves_of(format) {
                    block[at..at + 2].copy_from_slice(&kept[at..at + 2]);
                }
                if format == Format::Mxfp4Blocks {
                    block[0] = kept[0];
                }
            }
            let decoded = matrix.decoded();
            if decoded.iter().all(|&w| w == 0.0) {
                continue;
            }
            for set in format.sets() {
                let weights = Weights { set, ..matrix.weights() };
                for (sign, level) in [
                    (1.0, Level::Exact),
                    (-1.0, Level::Exact),
                    (1.0, Level::Fast),
                    (-1.0, Level::Fast),
                ] {
                    for way in WAYS {
                        let x = [sign; 256];
                        let results = multiply(&weights, way, level, &x).unwrap();
                        let error = error(&results, &decoded, &x, 256);
                        assert!(error < 1e-4, "{format:?} {fill} {level:?} {way:?}: {error}");
                    }
                }
            }
        }
    }
}

#[test]
fn a_product_has_the_same_bits_whatever_is_computed_beside_it() {
    let mut random = Random(5);
    for format in [Format::Q4_0, Format::Q6K, Format::Q8_0, Format::Affine4] {
        let matrix =
            Matrix::random(format, [70, 1024], sides(format)[0].0, sides(format)[0].1, &mut random);
        let mut x = activations(11, 1024, &mut random);
        // What stands out in a row is nobody else's.
        [5, 2 * 1024 + 700, 7 * 1024, 7 * 1024 + 999].iter().for_each(|&i| x[i] = 90.0);
        for set in format.sets() {
            for (level, way) in
                [Level::Exact, Level::Fast].into_iter().flat_map(|l| WAYS.map(|w| (l, w)))
            {
                let weights = Weights { set, ..matrix.weights() };
                let multiply = |x: &[f32]| multiply(&weights, way, level, x).unwrap();
                let together = multiply(&x);
                for (rows, together) in [
                    (0..1, &together[..70]),
                    (2..4, &together[140..280]),
                    (6..9, &together[420..630]),
                ] {
                    assert_eq!(multiply(&x[rows.start * 1024..rows.end * 1024]), together);
                }
            }
        }
    }
}

#[test]
fn chosen_products_have_the_bits_of_single_ones() {
    let mut random = Random(8);
    let (n, columns) = (40, 512);
    // Three matrices of forty rows.
    let matrix = Matrix::random(Format::Q4K, [3 * n, columns], Numbers::Byte, 32, &mut random);
    let mut x = activations(5, columns, &mut random);
    [3 * columns + 7, 4 * columns + 500].iter().for_each(|&i| x[i] = 90.0);
    let chosen = [(4, 2), (0, 0), (3, 2), (4, 0), (1, 2), (4, 2)];
    for (level, way) in [Level::Exact, Level::Fast].into_iter().flat_map(|l| WAYS.map(|w| (l, w))) {
        let all = multiply(&matrix.weights(), way, level, &x).unwrap();
        let bytes = Activations::bytes(level, 5, columns);
        let mut memory = vec![0u128; bytes.div_ceil(16) + 4];
        let memory = bytemuck::cast_slice_mut::<u128, u8>(&mut memory);
        let start = memory.as_ptr().align_offset(64);
        let rounded = Activations::round(
            "test",
            (level, matrix.weights().order(level)),
            &x,
            columns,
            &mut memory[start..],
        );
        let rounded = rounded.unwrap().unwrap();
        let mut pairs = chosen.map(|(left, right)| Pair::new(left, right));
        let pairs = Pairs::Chosen { rows: 1, pairs: &mut pairs };
        let mut results = vec![f32::NAN; chosen.len() * n];
        match way {
            Way::Few => matrix.weights().multiply("test", n, &rounded, pairs, &mut results),
            Way::Many => {
                let mut memory = memory_for_many(&matrix.weights(), level, chosen.len());
                let memory = bytemuck::cast_slice_mut(&mut memory);
                matrix.weights().multiply_many("test", n, &rounded, pairs, memory, &mut results)
            }
        }
        .unwrap();
        for ((left, right), results) in chosen.into_iter().zip(results.chunks_exact(n)) {
            let expected = &all[(left as usize * 3 + right as usize) * n..][..n];
            assert_eq!(results, expected, "{level:?} {way:?} {left} {right}");
        }
    }
}

#[test]
fn what_integers_do_not_stand_for_is_left_to_others_and_zeros_give_zero() {
    let mut random = Random(6);
    let matrix = Matrix::random(Format::Q4_0, [5, 512], Numbers::Byte, 32, &mut random);
    for level in [Level::Exact, Level::Fast] {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, -1e31] {
            let mut x = activations(2, 512, &mut random);
            x[777] = bad;
            assert_eq!(multiply(&matrix.weights(), Way::Few, level, &x), None, "{level:?} {bad}");
        }
        assert_eq!(multiply(&matrix.weights(), Way::Few, level, &[1e-38; 512]), None, "{level:?}");
        for way in WAYS {
            let results = multiply(&matrix.weights(), way, level, &[0.0; 512]);
            assert_eq!(results, Some(vec![0.0; 5]));
        }
    }
}

#[test]
fn sizes_that_do_not_fit_are_errors() {
    const EXACT: (Level, Order) = (Level::Exact, Order::Plain);
    let codes = [0u8; 36];
    let new = |shape, bytes: usize| {
        Weights::new("quantized_matmul", Format::Q4_0, shape, &codes[..bytes], Apart::NONE)
    };
    assert!(new([1, 64], 36).is_ok());
    assert!(new([1, 64], 35).is_err());
    assert!(new([usize::MAX, 64], 36).is_err());
    assert!(new([1, 65], 36).is_err());
    let weights = new([1, 64], 36).unwrap();
    let product = |weights: &Weights<'_>, columns: usize, pairs: Pairs<'_>, to: &mut [f32]| {
        let mut memory = AlignedMemory([0; 1024]);
        let x = &[0.0f32; 64][..columns];
        let x = Activations::round("test", EXACT, x, columns, &mut memory.0)?;
        weights.multiply("quantized_matmul", weights.rows, &x.unwrap(), pairs, to)
    };
    for (row, first, count) in [(1, 0, 32), (0, 0, 96), (0, 32, 32), (0, 0, 16)] {
        assert!(weights.decode("test", row, first, &mut vec![0.0; count]).is_err());
    }
    // What lies in another order is refused beside what fits.
    for order in [Order::Plain, Order::EvenFirst] {
        let mut memory = AlignedMemory([0; 1024]);
        let how = (Level::Exact, order);
        let x = Activations::round("test", how, &[0.0f32; 64], 64, &mut memory.0).unwrap();
        let mut to = [0.0f32];
        let done = multiply_each("test", &x.unwrap(), &mut [(&weights, &mut to[..])]);
        assert_eq!(done.is_ok(), weights.order(Level::Exact) == order);
    }
    assert!(product(&weights, 32, Pairs::Each, &mut [0.0]).is_err());
    assert!(product(&weights, 64, Pairs::Each, &mut [0.0; 2]).is_err());
    assert!(product(&weights, 64, Pairs::Each, &mut [0.0]).is_ok());
    for (left, right) in [(1, 0), (0, 1)] {
        let pairs = Pairs::Chosen { rows: 1, pairs: &mut [Pair::new(left, right)] };
        assert!(product(&weights, 64, pairs, &mut [0.0]).is_err());
    }
    // Many rows are laid in memory that must have room for them.
    let mut memory = AlignedMemory([0; 1024]);
    let x = Activations::round("test", EXACT, &[0.0f32; 64], 64, &mut memory.0).unwrap().unwrap();
    for (bytes, fits) in [(1024, true), (100, false)] {
        let memory = &mut AlignedMemory([0; 1024]).0[..bytes];
        let done = weights.multiply_many("test", 1, &x, Pairs::Each, memory, &mut [0.0f32]);
        assert_eq!(done.is_ok(), fits && weights.order(Level::Exact) == Order::Plain);
    }
    let mut short = AlignedMemory([0; 1024]);
    let short = Activations::round("test", EXACT, &[0.0f32; 64], 64, &mut short.0[..64]);
    assert!(short.is_err());
    let affine =
        Apart { scales: &codes[..2], biases: &codes[..2], numbers: Numbers::F16, group: 48 };
    assert!(Weights::new("dequantize", Format::Affine4, [1, 96], &codes, affine).is_err());
    let none = new([0, 64], 0).unwrap();
    product(&none, 64, Pairs::Each, &mut []).unwrap();
}

/// Memory that begins at a line.
#[repr(align(64))]
struct AlignedMemory([u8; 1024]);
