//! Attention, one score after the other, and rotary encoding, one pair after the other.

use wootz::fast::{RopeBase, rope};
use wootz::op::Tolerance;
use wootz::quant::Scheme;
use wootz::{
    AttentionOptions, DType, Quantized, attention, attention_backward_d, quantized_attention,
};

use super::Known;
use super::tensor::Tensor;

/// What a score is made of beside the product.
#[derive(Clone, Copy, Default)]
struct How {
    causal: bool,
    window: Option<usize>,
    softcap: Option<f64>,
    mask: bool,
    additive: bool,
    sinks: bool,
}

pub(crate) fn cases() -> Vec<Known> {
    const Q: &[usize] = &[2, 4, 9, 8];
    const K: &[usize] = &[2, 2, 11, 8];
    const V: &[usize] = &[2, 2, 11, 8];
    let known = |label: &str, how: How, more: Option<&[usize]>| {
        let shapes: Vec<&[usize]> = [Q, K, V].into_iter().chain(more).collect();
        Known::new(
            "scaled_dot_product_attention",
            &shapes,
            move |x| {
                let options = AttentionOptions {
                    causal: how.causal,
                    window: how.window.map(|window| window as i64),
                    softcap: how.softcap,
                    mask: x.get(3).filter(|_| how.mask),
                    sinks: x.get(3).filter(|_| how.sinks),
                    ..AttentionOptions::new(SCALE)
                };
                attention(&x[0], &x[1], &x[2], &options)
            },
            move |x| attend(x, how),
        )
        .label(label)
        .with(|case| case.tolerance(Tolerance::Reduction))
    };
    let none = How::default();
    let causal = How { causal: true, ..none };
    vec![
        known("all keys", none, None),
        known("causal", causal, None),
        known("window", How { window: Some(3), ..causal }, None),
        known("softcap", How { softcap: Some(1.5), ..none }, None),
        known("sinks", How { sinks: true, ..none }, Some(&[4])),
        known("additive mask", How { mask: true, additive: true, ..causal }, Some(&[4, 9, 1])),
        known("bool mask", How { mask: true, ..none }, Some(&[2, 1, 9, 11]))
            .with(|case| case.fixed(3, DType::Bool, 0.0..2.0)),
        quantized([8, 32], none),
        quantized([4, 64], causal),
        quantized([6, 32], How { window: Some(3), softcap: Some(1.5), ..causal }),
        rotary(false),
        rotary(true),
        Known::new(
            "attention_backward_d",
            &[&[1, 2, 3, 33], &[1, 2, 3, 33]],
            |x| attention_backward_d(&x[0], &x[1]),
            |x| {
                Tensor::from_fn(&[1, 2, 3], |i| {
                    let at = |d: usize| [i[0], i[1], i[2], d];
                    (0..33).map(|d| x[0].at(&at(d)) * x[1].at(&at(d))).sum()
                })
            },
        )
        .with(|case| case.tolerance(Tolerance::Reduction)),
    ]
}

const SCALE: f64 = 0.4;

fn attend(x: &[Tensor], how: How) -> Tensor {
    let (q, k, v) = (&x[0], &x[1], &x[2]);
    let (heads, queries, keys) = (q.shape[1], q.shape[2], k.shape[2]);
    let group = heads / k.shape[1];
    Tensor::from_fn(&[q.shape[0], heads, queries, v.shape[3]], |at| {
        let [b, h, i, d] = [at[0], at[1], at[2], at[3]];
        let position = (i + keys - queries) as i64;
        let mut powers = 0.0;
        let mut sum = 0.0;
        for j in 0..keys {
            let product: f64 =
                (0..q.shape[3]).map(|e| q.at(&[b, h, i, e]) * k.at(&[b, h / group, j, e])).sum();
            let mut score = SCALE * product;
            if let Some(softcap) = how.softcap {
                score = softcap * (score / softcap).tanh();
            }
            let mask = if how.mask { x[3].broadcast_at(&[b, h, i, j]) } else { 1.0 };
            let after = how.causal && j as i64 > position;
            let before = how.window.is_some_and(|window| position - j as i64 >= window as i64);
            if after || before || (how.mask && !how.additive && mask == 0.0) {
                continue;
            }
            if how.additive {
                score += mask;
            }
            powers += score.exp();
            sum += score.exp() * v.at(&[b, h / group, j, d]);
        }
        if how.sinks {
            powers += x[3].at(&[h]).exp();
        }
        if powers == 0.0 { 0.0 } else { sum / powers }
    })
}

/// Attention to codes of some bits, of which a word holds what fits and the next the rest.
fn quantized([bits, group]: [usize; 2], how: How) -> Known {
    const KEYS: [usize; 3] = [2, 2, 11];
    let dims = 64;
    let (words, groups) = (with_dims(&KEYS, dims * bits / 32), with_dims(&KEYS, dims / group));
    let shapes: [&[usize]; 7] =
        [&[2, 4, 9, dims], &words, &groups, &groups, &words, &groups, &groups];
    let known = Known::new(
        "quantized_attention",
        &shapes,
        move |x| {
            let scheme = Scheme::Affine { group_size: group, bits };
            let of = |x: &[wootz::Array]| Quantized::new(scheme, &x[0], Some(&x[1]), Some(&x[2]));
            let options = AttentionOptions {
                causal: how.causal,
                window: how.window.map(|window| window as i64),
                softcap: how.softcap,
                ..AttentionOptions::new(SCALE)
            };
            quantized_attention(&x[0], &of(&x[1..4])?, &of(&x[4..7])?, &options)
        },
        move |x| {
            let decode = |x: &[Tensor]| {
                Tensor::from_fn(&with_dims(&KEYS, dims), |at| {
                    let (row, e) = (&at[..3], at[3]);
                    let element = |tensor: &Tensor, last| tensor.at(&with_dims(row, last));
                    let code = (0..bits).fold(0.0, |code, bit| {
                        let place = e * bits + bit;
                        let word = element(&x[0], place / 32) as u64;
                        code + (word >> (place % 32) & 1) as f64 * f64::from(1u32 << bit)
                    });
                    element(&x[1], e / group) * code + element(&x[2], e / group)
                })
            };
            attend(&[x[0].clone(), decode(&x[1..4]), decode(&x[4..7])], how)
        },
    );
    let most = 2.0 / f64::from(1u32 << bits);
    known.label(&format!("{bits} bits")).with(|case| {
        let mut case = case.range(-1.0..1.0).tolerance(Tolerance::Reduction);
        for first in [1, 4] {
            case = case.fixed(first, DType::U32, 0.0..4294967295.0);
            case.inputs[first + 1].range = -most..most;
        }
        case
    })
}

fn with_dims(row: &[usize], last: usize) -> Vec<usize> {
    [row, &[last]].concat()
}

/// Six of nine features turned, from position 3 on.
fn rotary(traditional: bool) -> Known {
    const DIMS: usize = 6;
    let angle = |row: usize, pair: usize| {
        (3 + row) as f64 * 0.5 * 100f64.powf(-2.0 * pair as f64 / DIMS as f64)
    };
    Known::new(
        "rope",
        &[&[2, 3, 4, 9]],
        move |x| rope(&x[0], DIMS, traditional, RopeBase::Base(100.0), 0.5, 3),
        move |x| {
            Tensor::from_fn(&x[0].shape, |index| {
                let (row, feature) = (index[2], index[3]);
                let (pair, second) = match traditional {
                    true => (feature / 2, feature % 2 == 1),
                    false => (feature % (DIMS / 2), feature >= DIMS / 2),
                };
                let other = match (traditional, second) {
                    _ if feature >= DIMS => return x[0].at(index),
                    (true, false) => feature + 1,
                    (true, true) => feature - 1,
                    (false, false) => feature + DIMS / 2,
                    (false, true) => feature - DIMS / 2,
                };
                let there = x[0].at(&[index[0], index[1], row, other]);
                let sign = if second { 1.0 } else { -1.0 };
                let (sine, cosine) = angle(row, pair).sin_cos();
                x[0].at(index) * cosine + sign * there * sine
            })
        },
    )
    .label(if traditional { "traditional" } else { "split" })
    .with(|case| case.tolerance(Tolerance::Reduction))
}
