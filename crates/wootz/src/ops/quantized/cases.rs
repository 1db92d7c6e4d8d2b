//! Cases of the operations on quantized weights: words of codes drawn at random, and blocks of bytes so
//! small that the scales among them are, too. Other bytes, and rounding as MLX does it in narrow dtypes,
//! are compared with recorded values.

use super::{Quantized, dequantize, gather_qmm, quantize, quantized_matmul};
use crate::array::{Array, DType};
use crate::error::Result;
use crate::op::{Case, Entry, Gradient, Tolerance};
use crate::quant::{Format, Scheme};

pub(crate) fn entries() -> Vec<Entry> {
    vec![
        Entry { name: "quantize", cases: quantize_cases() },
        Entry { name: "dequantize", cases: dequantize_cases() },
        Entry { name: "quantized_matmul", cases: matmul_cases() },
        Entry { name: "gather_qmm", cases: gather_cases() },
    ]
}

const AFFINE: fn(usize, usize) -> Scheme = |bits, group_size| Scheme::Affine { group_size, bits };

fn quantize_cases() -> Vec<Case> {
    let case = |scheme: Scheme, shape: &[usize]| {
        Case::new(format!("{scheme} {shape:?}"), &[shape], move |x| {
            Ok(quantize(&x[0], scheme)?.arrays().to_vec())
        })
        .dtypes(&[DType::F32])
        // A dtype of its own, so that no infinities are among it: they leave the others in the middle
        // between two codes, of which fast math may take either.
        .fixed(0, DType::F32, -2.0..2.0)
        .tolerance(Tolerance::Exact)
        .gradient(Gradient::None)
    };
    vec![
        case(AFFINE(4, 64), &[3, 128]),
        case(AFFINE(3, 32), &[2, 2, 96]),
        case(AFFINE(1, 32), &[1, 32]),
        case(AFFINE(8, 128), &[0, 128]),
        case(Scheme::Mxfp4, &[3, 64]),
        case(Scheme::Mxfp8, &[3, 32]),
        case(Scheme::Nvfp4, &[2, 96]),
    ]
}

/// Inputs that hold affine weights of a shape, for [`affine`].
fn affine_shapes(bits: usize, group: usize, shape: &[usize]) -> [Vec<usize>; 2] {
    let (rows, width) = shape.split_at(shape.len() - 1);
    [[rows, &[width[0] * bits / 32]].concat(), [rows, &[width[0] / group]].concat()]
}

/// Weights of drawn words, scales and biases.
fn affine(bits: usize, group: usize, x: &[Array]) -> Result<Quantized> {
    Quantized::new(AFFINE(bits, group), &x[0], Some(&x[1]), Some(&x[2]))
}

const WORDS: std::ops::Range<f64> = 0.0..4294967295.0;

fn dequantize_cases() -> Vec<Case> {
    let case = |bits: usize, group: usize, shape: &[usize]| {
        let [words, groups] = affine_shapes(bits, group, shape);
        let label = format!("{} {shape:?}", AFFINE(bits, group));
        Case::new(label, &[&words, &groups, &groups], move |x| {
            Ok(vec![dequantize(&affine(bits, group, x)?, None)?])
        })
        .dtypes(&[DType::F32])
        .fixed(0, DType::U32, WORDS)
    };
    vec![
        case(4, 64, &[3, 128]),
        case(3, 32, &[2, 2, 96]),
        case(5, 32, &[70, 32]),
        case(6, 32, &[1, 64]),
        case(8, 128, &[2, 128]),
        case(2, 64, &[0, 64]),
    ]
}

/// The shape of the blocks that hold weights of a shape.
fn blocks_shape(format: Format, shape: &[usize]) -> Vec<usize> {
    let (rows, width) = shape.split_at(shape.len() - 1);
    [rows, &[Scheme::Blocks(format).codes(width[0])]].concat()
}

/// As the high byte of a `float16`, it is less than an eighth.
const BYTES: std::ops::Range<f64> = 0.0..48.0;

fn matmul_cases() -> Vec<Case> {
    let words = |label: &str, [bits, group]: [usize; 2], x: &[usize], w: &[usize], transpose| {
        let [codes, groups] = affine_shapes(bits, group, w);
        Case::new(label, &[x, &codes, &groups, &groups], move |x| {
            Ok(vec![quantized_matmul(&x[0], &affine(bits, group, &x[1..])?, transpose)?])
        })
        .range(-0.5..0.5)
        .fixed(1, DType::U32, WORDS)
        .tolerance(Tolerance::Contraction)
    };
    let raw = |format: Format, x: &[usize], w: &[usize], transpose: bool| {
        let label = format!("{format}, {transpose}");
        Case::new(label, &[x, &blocks_shape(format, w)], move |x| {
            let w = Quantized::new(format, &x[1], None, None)?;
            Ok(vec![quantized_matmul(&x[0], &w, transpose)?])
        })
        .fixed(1, DType::U8, BYTES)
        .tolerance(Tolerance::Contraction)
    };
    vec![
        words("affine", [4, 32], &[3, 64], &[5, 64], true),
        words("rows of weights", [3, 32], &[2, 5], &[5, 64], false),
        words("many rows", [5, 32], &[35, 32], &[66, 32], true),
        words("many rows of weights", [2, 64], &[35, 33], &[33, 128], false),
        // In words of four bytes: a row, codes once, and scales and biases of 32 each.
        words("weights that are read once", [4, 32], &[1, 128], &[512, 128], true)
            .dtypes(&[DType::F32])
            .moves(512 * (128 / 8 + 2 * 128 / 32) + 128 + 512, 1.5),
        words("batch", [6, 32], &[2, 1, 3, 32], &[2, 7, 32], true),
        words("vector", [4, 64], &[64], &[9, 64], true),
        words("no rows", [4, 32], &[0, 32], &[3, 32], true),
        // Of such bytes, formats with signed codes would make sums that cancel.
        raw(Format::Q4_1, &[2, 3, 64], &[9, 64], true),
        raw(Format::Q5_1, &[10, 64], &[5, 64], true),
        raw(Format::Q8_0, &[3, 5], &[5, 96], false),
    ]
}

fn gather_cases() -> Vec<Case> {
    let words = |label: &str, x: &[usize], w: &[usize], [lhs, rhs]: [&[usize]; 2], transpose| {
        let [codes, groups] = affine_shapes(4, 32, w);
        let (lefts, rights) = (x[0] as f64, w[0] as f64);
        Case::new(label, &[x, &codes, &groups, &groups, lhs, rhs], move |x| {
            let w = affine(4, 32, &x[1..4])?;
            Ok(vec![gather_qmm(&x[0], &w, Some(&x[4]), Some(&x[5]), transpose, false)?])
        })
        .range(-0.5..0.5)
        .fixed(1, DType::U32, WORDS)
        .fixed(4, DType::U32, 0.0..lefts)
        .fixed(5, DType::U32, 0.0..rights)
        .tolerance(Tolerance::Contraction)
    };
    let blocks = blocks_shape(Format::Q8_0, &[3, 6, 64]);
    let experts = Case::new("experts", &[&[4, 1, 1, 64], &blocks, &[4, 2]], |x| {
        let w = Quantized::new(Format::Q8_0, &x[1], None, None)?;
        Ok(vec![gather_qmm(&x[0], &w, None, Some(&x[2]), true, false)?])
    })
    .fixed(1, DType::U8, BYTES);
    vec![
        words("matrices", &[2, 3, 64], &[4, 5, 64], [&[7], &[7]], true),
        words("many rows", &[2, 9, 32], &[2, 70, 32], [&[3], &[3]], true).fixed(
            5,
            DType::I32,
            0.0..2.0,
        ),
        words("many products", &[20, 4, 32], &[2, 40, 32], [&[20], &[20]], true),
        words("rows of weights", &[2, 3, 5], &[4, 5, 32], [&[3, 1], &[1, 2]], false),
        words("no products", &[2, 3, 32], &[4, 5, 32], [&[0], &[0]], true),
        experts.fixed(2, DType::U32, 0.0..3.0).tolerance(Tolerance::Contraction),
    ]
}
