//! Cases: matrices of every kind beside each other, of lengths that fill no workgroup.

use super::{Factor, Gate, matmul_each, matmul_glu};
use crate::array::{Array, DType};
use crate::error::Result;
use crate::op::{Case, Entry, Tolerance};
use crate::ops::Quantized;
use crate::quant::{Format, Scheme};

const AFFINE: Scheme = Scheme::Affine { group_size: 32, bits: 4 };
const WORDS: std::ops::Range<f64> = 0.0..4294967295.0;
/// As the high byte of a `float16`, it is less than an eighth.
const BYTES: std::ops::Range<f64> = 0.0..48.0;

/// A sum's error twice, and three roundings more.
const GATED: Tolerance =
    Tolerance::Rounded(6.0, "two products are rounded, and multiplied behind a gate");

/// As the sum of a product and an array.
const PRODUCT_ROUNDED: Tolerance =
    Tolerance::Rounded(1.0, "products of quantized weights are rounded before biases are added");

/// Affine weights of 64 columns of the arrays that are given.
fn affine(x: &[Array]) -> Result<Quantized> {
    Quantized::new(AFFINE, &x[0], Some(&x[1]), Some(&x[2]))
}

pub(crate) fn entries() -> Vec<Entry> {
    let dense = |label: &str, x: &[usize], rows: [usize; 3]| {
        let columns = x[x.len() - 1];
        let [a, b, c] = rows.map(|rows| [rows, columns]);
        Case::new(label, &[x, &a, &b, &c], |x| {
            matmul_each(&x[0], &[&x[1], &x[2], &x[3]].map(Factor::dense))
        })
        .tolerance(Tolerance::Contraction)
    };
    let three = Case::new(
        "affine",
        &[
            &[1, 64],
            &[5, 8],
            &[5, 2],
            &[5, 2],
            &[1, 8],
            &[1, 2],
            &[1, 2],
            &[9, 8],
            &[9, 2],
            &[9, 2],
        ],
        |x| {
            let weights = [affine(&x[1..4])?, affine(&x[4..7])?, affine(&x[7..])?];
            matmul_each(&x[0], &weights.each_ref().map(Factor::quantized))
        },
    );
    let three = [1, 4, 7]
        .into_iter()
        .fold(three.range(-0.5..0.5), |case, input| case.fixed(input, DType::U32, WORDS));
    let kinds = Case::new(
        "of all kinds",
        &[&[2, 3, 64], &[7, 64], &[6, 8], &[6, 2], &[6, 2], &[5, 40]],
        |x| {
            let (words, blocks) =
                (affine(&x[2..5])?, Quantized::new(Format::Q4_1, &x[5], None, None)?);
            let weights =
                [Factor::dense(&x[1]), Factor::quantized(&words), Factor::quantized(&blocks)];
            matmul_each(&x[0], &weights)
        },
    )
    .range(-0.5..0.5)
    .fixed(2, DType::U32, WORDS)
    .fixed(5, DType::U8, BYTES);
    // A bias for a dense matrix and for a quantized one; beside them one that has none.
    let biased = Case::new(
        "biases",
        &[&[3, 64], &[7, 64], &[7], &[6, 8], &[6, 2], &[6, 2], &[6], &[5, 40]],
        |x| {
            let (words, blocks) =
                (affine(&x[3..6])?, Quantized::new(Format::Q4_1, &x[7], None, None)?);
            let weights = [
                Factor::dense(&x[1]).plus(&x[2]),
                Factor::quantized(&words).plus(&x[6]),
                Factor::quantized(&blocks),
            ];
            matmul_each(&x[0], &weights)
        },
    )
    .range(-0.5..0.5)
    .fixed(3, DType::U32, WORDS)
    .fixed(7, DType::U8, BYTES);
    let alone = |label: &str, rows: usize| {
        let shapes: [&[usize]; 5] = [&[rows, 64], &[9, 8], &[9, 2], &[9, 2], &[9]];
        Case::new(label, &shapes, |x| {
            matmul_each(&x[0], &[Factor::quantized(&affine(&x[1..4])?).plus(&x[4])])
        })
        .range(-0.5..0.5)
        .fixed(1, DType::U32, WORDS)
        .tolerance(PRODUCT_ROUNDED)
    };
    let dense_bias = Case::new("a bias of a dense matrix", &[&[3, 33], &[7, 33], &[7]], |x| {
        matmul_each(&x[0], &[Factor::dense(&x[1]).plus(&x[2])])
    });
    let each = vec![
        dense("vector", &[37], [6, 1, 5]),
        dense("rows", &[2, 1, 70], [33, 4, 2]),
        three.tolerance(Tolerance::Contraction),
        kinds.tolerance(Tolerance::Contraction),
        dense("many rows", &[9, 5], [3, 2, 1]),
        biased.tolerance(PRODUCT_ROUNDED),
        dense_bias.tolerance(Tolerance::Contraction),
        alone("a bias", 1),
        alone("a bias for many rows", 9),
    ];
    let glu = |label: &str, x: &[usize], rows: usize, by: Gate| {
        let weights = [rows, x[x.len() - 1]];
        Case::new(label, &[x, &weights, &weights], move |x| {
            Ok(vec![matmul_glu(&x[0], Factor::dense(&x[1]), Factor::dense(&x[2]), by)?])
        })
        .range(-0.5..0.5)
        .tolerance(GATED)
    };
    let quantized = Case::new(
        "affine",
        &[&[1, 64], &[6, 8], &[6, 2], &[6, 2], &[6, 8], &[6, 2], &[6, 2]],
        |x| {
            let (gate, up) = (affine(&x[1..4])?, affine(&x[4..])?);
            let (gate, up) = (Factor::quantized(&gate), Factor::quantized(&up));
            Ok(vec![matmul_glu(&x[0], gate, up, Gate::Silu)?])
        },
    )
    // Sums of sixteen codes and scales of a tenth stay where the gate is smooth.
    .range(-0.1..0.1)
    .fixed(1, DType::U32, WORDS)
    .fixed(4, DType::U32, WORDS);
    // One bias of a quantized matrix, and one of a dense one.
    let biased =
        Case::new("biases", &[&[2, 64], &[6, 8], &[6, 2], &[6, 2], &[6], &[6, 64], &[6]], |x| {
            let gate = affine(&x[1..4])?;
            let gate = Factor::quantized(&gate).plus(&x[4]);
            Ok(vec![matmul_glu(&x[0], gate, Factor::dense(&x[5]).plus(&x[6]), Gate::GeluTanh)?])
        })
        .range(-0.1..0.1)
        .fixed(1, DType::U32, WORDS);
    let glus = vec![
        glu("silu", &[2, 33], 7, Gate::Silu),
        glu("gelu", &[1, 5], 4, Gate::GeluTanh),
        glu("many rows", &[3, 3, 4], 3, Gate::Silu),
        quantized.tolerance(GATED),
        biased.tolerance(GATED),
    ];
    vec![Entry { name: "matmul_each", cases: each }, Entry { name: "matmul_glu", cases: glus }]
}
