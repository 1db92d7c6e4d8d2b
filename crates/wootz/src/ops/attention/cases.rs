//! Cases of attention and its backward for the harness.

use super::backward::{AttentionBackward, AttentionBackwardMask};
use super::{
    AttentionOptions, AttentionSpec, Lengths, MaskKind, attention, attention_backward_d,
    attention_with_lse, quantized_attention,
};
use crate::array::{Array, DType};
use crate::device::{Device, with_device};
use crate::error::Result;
use crate::op::{Case, CaseCall, Entry, Tolerance, evaluate_argument};
use crate::ops::{Quantized, arange, full, less, where_};
use crate::quant::Scheme;

/// For cases whose kernels differ from others' by little: every text takes a while to compile.
const SINGLE: &[DType] = &[DType::F32];
const TWO: &[DType] = &[DType::F32, DType::BF16];
const HALF: &[DType] = &[DType::F32, DType::F16];

/// Cases of all operations.
pub(crate) fn entries() -> Vec<Entry> {
    let forward = forward().into_iter().map(|case| case.narrow_gradient(1e-2)).collect();
    vec![
        Entry { name: "scaled_dot_product_attention", cases: forward },
        Entry { name: "attention_backward_d", cases: backward_d() },
        Entry { name: "attention_backward", cases: backward() },
        Entry { name: "attention_backward_mask", cases: backward_mask() },
        Entry { name: "quantized_attention", cases: quantized() },
    ]
}

/// The shapes of `q`, `k` and `v`.
struct Shapes {
    batch: usize,
    heads: [usize; 2],
    lengths: [usize; 2],
    dims: [usize; 2],
}

impl Shapes {
    fn list(&self, more: &[&[usize]]) -> Vec<Vec<usize>> {
        let Shapes { batch, heads: [heads, key_heads], lengths: [queries, keys], dims } = *self;
        let mut all = vec![
            vec![batch, heads, queries, dims[0]],
            vec![batch, key_heads, keys, dims[0]],
            vec![batch, key_heads, keys, dims[1]],
        ];
        all.extend(more.iter().map(|shape| shape.to_vec()));
        all
    }

    fn case(
        &self,
        label: &str,
        more: &[&[usize]],
        call: impl Fn(&[Array]) -> Result<Vec<Array>> + Send + Sync + 'static,
    ) -> Case {
        let shapes = self.list(more);
        let shapes: Vec<&[usize]> = shapes.iter().map(Vec::as_slice).collect();
        Case::new(label, &shapes, call).tolerance(Tolerance::Reduction)
    }
}

const SCALE: f64 = 0.3;

const fn shapes(batch: usize, heads: [usize; 2], lengths: [usize; 2], dims: [usize; 2]) -> Shapes {
    Shapes { batch, heads, lengths, dims }
}

/// Attention to all keys with options that are no arrays.
fn plain(
    change: fn(&mut AttentionOptions<'_>),
) -> impl Fn(&[Array]) -> Result<Vec<Array>> + Send + Sync + 'static {
    move |x| {
        let mut options = AttentionOptions::new(SCALE);
        change(&mut options);
        Ok(vec![attention(&x[0], &x[1], &x[2], &options)?])
    }
}

fn masked(x: &[Array]) -> Result<Vec<Array>> {
    let options = AttentionOptions { mask: Some(&x[3]), ..AttentionOptions::new(SCALE) };
    Ok(vec![attention(&x[0], &x[1], &x[2], &options)?])
}

/// Attention to the first 32 keys.
fn first_keys(x: &[Array]) -> Result<Vec<Array>> {
    let keys = x[1].shape()[2];
    let numbers = with_device(x[0].device(), || arange(0, keys, 1, DType::I32))?;
    let mask = less(&numbers, 32)?;
    evaluate_argument(&mask)?;
    let options = AttentionOptions { mask: Some(&mask), ..AttentionOptions::new(SCALE) };
    Ok(vec![attention(&x[0], &x[1], &x[2], &options)?])
}

/// Attention with the lowest `float32` added to the scores of the first keys, as masks of padding have it: they
/// count for nothing beside the others, though whole tiles hold nothing else.
fn after_padding(x: &[Array], hidden: usize, sinks: Option<&Array>) -> Result<Array> {
    let mask = padding(x[0].device(), hidden, x[1].shape()[2])?;
    let options = AttentionOptions { mask: Some(&mask), sinks, ..AttentionOptions::new(SCALE) };
    attention(&x[0], &x[1], &x[2], &options)
}

/// The mask of [`after_padding`].
fn padding(device: &Device, hidden: usize, keys: usize) -> Result<Array> {
    let numbers = with_device(device, || arange(0, keys, 1, DType::I32))?;
    let mask = where_(&less(&numbers, hidden as i32)?, f32::MIN, 0.0f32)?;
    evaluate_argument(&mask)?;
    Ok(mask)
}

fn forward() -> Vec<Case> {
    let all = || plain(|_| {});
    let causal = || plain(|options| options.causal = true);
    let window = || {
        plain(|options| {
            options.causal = true;
            options.window = Some(6);
        })
    };
    vec![
        shapes(2, [4, 2], [1, 17], [8, 8]).case("one query", &[], all()),
        // Keys and values once, for all heads that share them.
        shapes(1, [2, 1], [1, 512], [64, 64])
            .case("one query of many keys", &[], all())
            .moves(2 * 512 * 64, 1.1),
        // As many heads as a tile has rows: keys and values once, and what becomes of each part of the keys, which is
        // written and read in `float32`.
        shapes(1, [32, 1], [1, 1024], [64, 64])
            .case("one query of many heads", &[], all())
            .dtypes(SINGLE)
            .moves(2 * 1024 * 64 + 2 * 32 * 64 + 2 * 4 * 32 * 66, 1.1),
        // Queries that are guessed: rows of four heads are a tile.
        shapes(1, [8, 2], [8, 512], [64, 64])
            .case("eight queries of many keys", &[], causal())
            .dtypes(SINGLE)
            .moves(2 * 2 * 512 * 64 + 2 * 8 * 8 * 64 + 2 * 2 * 64 * 66, 1.1),
        // More rows than a tile has, of keys in parts.
        shapes(2, [32, 1], [3, 300], [8, 8])
            .case("many heads of few queries", &[&[2, 1, 3, 300], &[32], &[2]], |x| {
                let options = AttentionOptions {
                    causal: true,
                    window: Some(200),
                    softcap: Some(3.0),
                    mask: Some(&x[3]),
                    sinks: Some(&x[4]),
                    key_length: Some(&x[5]),
                    ..AttentionOptions::new(SCALE)
                };
                Ok(vec![attention(&x[0], &x[1], &x[2], &options)?])
            })
            .fixed(5, DType::I32, 100.0..300.0)
            .dtypes(TWO),
        shapes(2, [32, 1], [1, 255], [8, 8])
            .case("32 heads, 255 keys", &[&[2, 32, 1, 255]], masked)
            .fixed(3, DType::Bool, 0.0..2.0)
            .dtypes(TWO),
        shapes(2, [8, 2], [8, 255], [16, 8])
            .case("eight queries, 255 keys", &[], causal())
            .dtypes(HALF),
        shapes(1, [8, 2], [12, 270], [8, 8])
            .case("few queries of several sequences", &[], |x| {
                let ends = |ends: &[i32]| Array::from_slice_on(ends, &[4], x[0].device());
                let (queries, keys) = (ends(&[0, 5, 5, 12])?, ends(&[0, 90, 130, 270])?);
                let options = AttentionOptions {
                    causal: true,
                    sequences: Some((&queries, &keys)),
                    ..AttentionOptions::new(SCALE)
                };
                Ok(vec![attention(&x[0], &x[1], &x[2], &options)?])
            })
            .dtypes(SINGLE),
        shapes(2, [4, 1], [17, 17], [8, 8]).case("causal, one head of keys", &[], causal()),
        shapes(1, [2, 2], [17, 29], [8, 8]).case("causal, more keys", &[], causal()),
        shapes(2, [2, 1], [9, 5], [8, 8]).case("causal, queries that see nothing", &[], causal()),
        // Keys and values for each tile of 32 queries, where they are counted.
        shapes(1, [1, 1], [255, 255], [8, 8])
            .case("255, all keys", &[], all())
            .moves(255 * 8 * (2 + 8 * 2), 1.5),
        // Of keys and values those that a tile of 32 queries sees: 5 before its own, and those up to its last.
        shapes(1, [1, 1], [255, 255], [8, 8])
            .case("255, window", &[], window())
            .moves(8 * (2 * 255 + 2 * (255 + 7 * 5)), 1.5),
        shapes(2, [4, 2], [255, 255], [8, 8])
            .case("255, causal", &[], causal())
            .dtypes(TWO)
            .moves(2 * 4 * 8 * (2 * 255 + 2 * (28 * 32 + 255)), 1.3),
        shapes(2, [2, 1], [17, 40], [8, 8]).case("window, more keys", &[], window()),
        shapes(1, [1, 1], [3, 5], [80, 33]).case("odd dims", &[], all()),
        shapes(1, [2, 1], [3, 3], [256, 96]).case("256 dims", &[], causal()).dtypes(SINGLE),
        shapes(1, [1, 1], [2, 33], [512, 512]).case("512 dims", &[], all()).dtypes(TWO),
        // Tiles of several sizes where there are cooperative matrices.
        shapes(1, [1, 1], [96, 96], [64, 64])
            .case("64 dims, whole tiles", &[], all())
            .dtypes(TWO)
            .moves(96 * 64 * (2 + 3 * 2), 1.5),
        // So large that the largest of a row grows from tile to tile.
        shapes(1, [2, 1], [33, 70], [64, 64])
            .case("64 dims, large scores", &[], causal())
            .range(-3.0..3.0)
            .dtypes(HALF),
        shapes(1, [2, 1], [33, 40], [80, 80])
            .case("80 dims, additive mask", &[&[2, 33, 40]], masked)
            .dtypes(HALF),
        shapes(1, [1, 1], [33, 40], [96, 96])
            .case("96 dims, bool mask", &[&[33, 40]], masked)
            .fixed(3, DType::Bool, 0.0..2.0)
            .dtypes(TWO),
        shapes(1, [1, 1], [33, 40], [128, 128]).case("128 dims", &[], window()).dtypes(HALF),
        // Of so many dims that larger numbers would make a softmax of ones and zeros.
        shapes(1, [1, 1], [17, 40], [256, 256])
            .case("256 dims, queries", &[], all())
            .range(-0.5..0.5)
            .dtypes(HALF),
        shapes(1, [1, 1], [17, 33], [512, 512])
            .case("512 dims, queries", &[], all())
            .range(-0.5..0.5)
            .dtypes(TWO),
        shapes(1, [1, 1], [17, 40], [64, 512]).case("wide values", &[], all()).dtypes(SINGLE),
        shapes(1, [2, 1], [0, 3], [8, 8]).case("no queries", &[], all()),
        shapes(1, [2, 1], [2, 0], [8, 8]).case("no keys", &[], all()),
        shapes(2, [2, 2], [17, 3], [8, 8])
            .case("bool mask, queries that see nothing", &[&[2, 1, 17, 3]], masked)
            .fixed(3, DType::Bool, 0.0..2.0),
        shapes(2, [4, 2], [17, 35], [8, 8])
            .case("bool mask of keys", &[&[2, 1, 1, 35]], masked)
            .fixed(3, DType::Bool, 0.0..2.0),
        shapes(2, [2, 1], [17, 35], [8, 8]).case("additive mask", &[&[17, 35]], masked),
        // Keys and values that a mask does not hide, for each of three tiles of 32 queries.
        shapes(1, [1, 1], [96, 256], [64, 64])
            .case("keys that a mask hides", &[], first_keys)
            .dtypes(TWO)
            .moves(96 * 64 * 2 + 3 * 32 * 64 * 2, 1.5),
        shapes(1, [2, 1], [17, 96], [8, 8])
            .case("padding of the lowest number", &[], |x| Ok(vec![after_padding(x, 40, None)?]))
            .dtypes(SINGLE),
        shapes(1, [2, 1], [17, 96], [5, 5])
            .case("padding and sinks, odd dims", &[&[2]], |x| {
                Ok(vec![after_padding(x, 40, Some(&x[3]))?])
            })
            .dtypes(SINGLE),
        shapes(1, [1, 1], [1, 700], [8, 8])
            .case("padding, one query of many keys", &[], |x| {
                Ok(vec![after_padding(x, 330, None)?])
            })
            .dtypes(SINGLE),
        shapes(2, [2, 1], [5, 18], [8, 8])
            .case("additive mask of heads", &[&[2, 1, 1]], masked)
            .dtypes(SINGLE),
        shapes(2, [4, 2], [255, 255], [8, 8])
            .case("255, bool mask", &[&[2, 1, 255, 255]], masked)
            .fixed(3, DType::Bool, 0.0..2.0)
            .dtypes(SINGLE),
        shapes(2, [2, 1], [255, 255], [8, 8])
            .case("255, additive mask and sinks", &[&[2, 1, 1, 255], &[2]], |x| {
                let options = AttentionOptions {
                    mask: Some(&x[3]),
                    sinks: Some(&x[4]),
                    ..AttentionOptions::new(SCALE)
                };
                Ok(vec![attention(&x[0], &x[1], &x[2], &options)?])
            })
            .dtypes(TWO),
        shapes(2, [4, 2], [17, 255], [8, 8])
            .case("255 keys, softcap", &[], plain(|options| options.softcap = Some(2.5)))
            .dtypes(TWO),
        shapes(2, [4, 2], [17, 17], [8, 8]).case("sinks", &[&[4]], |x| {
            let options = AttentionOptions { sinks: Some(&x[3]), ..AttentionOptions::new(SCALE) };
            Ok(vec![attention(&x[0], &x[1], &x[2], &options)?])
        }),
        shapes(2, [2, 2], [17, 19], [8, 8]).case("softcap", &[&[2, 2, 17, 19]], |x| {
            let options = AttentionOptions {
                mask: Some(&x[3]),
                softcap: Some(2.5),
                ..AttentionOptions::new(SCALE)
            };
            Ok(vec![attention(&x[0], &x[1], &x[2], &options)?])
        }),
        shapes(3, [2, 1], [3, 40], [8, 8])
            .case("valid lengths", &[&[3]], |x| {
                let options = AttentionOptions {
                    causal: true,
                    key_length: Some(&x[3]),
                    ..AttentionOptions::new(SCALE)
                };
                Ok(vec![attention(&x[0], &x[1], &x[2], &options)?])
            })
            .fixed(3, DType::I32, 0.0..40.0),
        shapes(1, [1, 1], [17, 21], [8, 8])
            .case("sequences", &[], |x| {
                let [queries, keys] = sequences(x[0].device())?;
                let options = AttentionOptions {
                    causal: true,
                    sequences: Some((&queries, &keys)),
                    ..AttentionOptions::new(SCALE)
                };
                Ok(vec![attention(&x[0], &x[1], &x[2], &options)?])
            })
            .dtypes(TWO),
        shapes(2, [4, 2], [255, 255], [8, 8])
            .case("255, sequences", &[], |x| {
                let [queries, keys] = long_sequences(x[0].device())?;
                let options = AttentionOptions {
                    causal: true,
                    sequences: Some((&queries, &keys)),
                    ..AttentionOptions::new(SCALE)
                };
                Ok(vec![attention(&x[0], &x[1], &x[2], &options)?])
            })
            .dtypes(SINGLE),
        shapes(2, [4, 2], [255, 255], [8, 8])
            .case("255, valid lengths", &[&[2]], |x| {
                let options = AttentionOptions {
                    causal: true,
                    key_length: Some(&x[3]),
                    ..AttentionOptions::new(SCALE)
                };
                Ok(vec![attention(&x[0], &x[1], &x[2], &options)?])
            })
            .fixed(3, DType::I32, 100.0..256.0)
            .dtypes(SINGLE),
        shapes(1, [2, 1], [1, 300], [8, 8])
            .case("everything", &[&[1, 2, 1, 300], &[2], &[1]], |x| {
                let options = AttentionOptions {
                    causal: true,
                    window: Some(250),
                    softcap: Some(3.0),
                    mask: Some(&x[3]),
                    sinks: Some(&x[4]),
                    key_length: Some(&x[5]),
                    ..AttentionOptions::new(SCALE)
                };
                Ok(vec![attention(&x[0], &x[1], &x[2], &options)?])
            })
            .fixed(5, DType::I32, 260.0..300.0),
        shapes(2, [2, 1], [9, 5], [8, 8])
            .case("log-sum-exp", &[], |x| {
                let options = AttentionOptions { causal: true, ..AttentionOptions::new(SCALE) };
                let (out, lse) = attention_with_lse(&x[0], &x[1], &x[2], &options)?;
                Ok(vec![out, lse])
            })
            .dtypes(TWO),
    ]
}

/// The ends of three sequences of 17 queries and 21 keys, of which one has no queries.
fn sequences(device: &Device) -> Result<[Array; 2]> {
    let ends = |ends: &[i32]| Array::from_slice_on(ends, &[4], device);
    Ok([ends(&[0, 5, 5, 17])?, ends(&[0, 7, 10, 21])?])
}

/// The ends of four sequences of 255 queries and keys, with ends inside tiles, and one without keys.
fn long_sequences(device: &Device) -> Result<[Array; 2]> {
    let ends = |ends: &[i32]| Array::from_slice_on(ends, &[5], device);
    Ok([ends(&[0, 37, 40, 170, 255])?, ends(&[0, 50, 50, 129, 255])?])
}

fn backward_d() -> Vec<Case> {
    let case = |(queries, dims): (usize, usize)| {
        let shape = [2, 3, queries, dims];
        Case::new(format!("{shape:?}"), &[&shape, &shape], |x| {
            Ok(vec![attention_backward_d(&x[0], &x[1])?])
        })
        .tolerance(Tolerance::Reduction)
    };
    let mut cases: Vec<Case> =
        [(17, 1), (1, 64), (5, 80), (3, 256), (1, 512), (0, 4)].map(case).into();
    // Both arrays once, and a sum for each row.
    cases.push(case((64, 64)).moves(2 * 2 * 3 * 64 * 64, 1.1));
    cases
}

const GIVEN: Tolerance =
    Tolerance::Rounded(1.5, "the output whose products with its gradient are summed was rounded");

/// What the backward takes before its optional inputs. Only `q`, `k`, `v` and the output's gradient
/// are drawn: the rest must belong to them.
fn given(
    spec: AttentionSpec,
    x: &[Array],
    mask: Option<&Array>,
    lengths: &[Array],
) -> Result<Vec<Array>> {
    let mut options = AttentionOptions {
        causal: spec.causal,
        window: spec.window.map(|window| window as i64),
        softcap: spec.softcap,
        mask,
        ..AttentionOptions::new(spec.scale)
    };
    match lengths {
        [length] => options.key_length = Some(length),
        [queries, keys] => options.sequences = Some((queries, keys)),
        _ => {}
    }
    let (out, lse) = attention_with_lse(&x[0], &x[1], &x[2], &options)?;
    let d = attention_backward_d(&out, &x[3])?;
    let mut all = Vec::new();
    for array in x[..4].iter().chain([&lse, &d]).chain(mask).chain(lengths) {
        all.push(array.contiguous()?);
    }
    all.iter().try_for_each(evaluate_argument)?;
    Ok(all)
}

fn backward() -> Vec<Case> {
    let call = |spec: AttentionSpec| {
        move |x: &[Array]| {
            let mask = x.get(4).filter(|_| spec.mask != MaskKind::None);
            let lengths = match spec.lengths {
                Lengths::All => Vec::new(),
                Lengths::Valid => x[4..5].to_vec(),
                Lengths::Sequences if x[0].shape()[2] == 255 => {
                    long_sequences(x[0].device())?.into()
                }
                Lengths::Sequences => sequences(x[0].device())?.into(),
            };
            let given = given(spec, x, mask, &lengths)?;
            let op = AttentionBackward::new(spec);
            Ok(Array::apply_all(op, &given.iter().collect::<Vec<_>>())?.into_vec())
        }
    };
    let spec = AttentionSpec::causal(SCALE);
    let window = AttentionSpec { window: Some(4), ..spec };
    let mask = AttentionSpec { mask: MaskKind::Bool, ..AttentionSpec::new(SCALE) };
    let valid = AttentionSpec { lengths: Lengths::Valid, ..spec };
    let several = AttentionSpec { lengths: Lengths::Sequences, ..spec };
    let added = AttentionSpec { mask: MaskKind::Additive, ..AttentionSpec::new(SCALE) };
    let soft = AttentionSpec { softcap: Some(2.5), ..AttentionSpec::new(SCALE) };
    [
        shapes(2, [4, 2], [17, 17], [8, 8]).case("causal", &[&[2, 4, 17, 8]], call(spec)),
        shapes(1, [2, 2], [5, 17], [8, 8]).case("window", &[&[1, 2, 5, 8]], call(window)),
        shapes(1, [2, 1], [17, 3], [8, 8])
            .case("bool mask", &[&[1, 2, 17, 8], &[1, 2, 17, 3]], call(mask))
            .fixed(4, DType::Bool, 0.0..2.0),
        shapes(1, [1, 1], [3, 7], [8, 8])
            .case("softcap", &[&[1, 1, 3, 8]], call(soft))
            .dtypes(SINGLE),
        shapes(3, [2, 1], [9, 40], [8, 8])
            .case("valid lengths", &[&[3, 2, 9, 8], &[3]], call(valid))
            .fixed(4, DType::I32, 0.0..40.0)
            .dtypes(TWO),
        shapes(1, [1, 1], [17, 21], [8, 8])
            .case("sequences", &[&[1, 1, 17, 8]], call(several))
            .dtypes(TWO),
        shapes(2, [4, 2], [255, 255], [8, 8])
            .case("255, sequences", &[&[2, 4, 255, 8]], call(several))
            .dtypes(SINGLE),
        shapes(2, [4, 2], [255, 255], [8, 8])
            .case("255, valid lengths", &[&[2, 4, 255, 8], &[2]], call(valid))
            .fixed(4, DType::I32, 100.0..256.0)
            .dtypes(SINGLE),
        shapes(2, [2, 1], [255, 17], [8, 8])
            .case("255 queries, bool mask", &[&[2, 2, 255, 8], &[2, 1, 255, 17]], call(mask))
            .fixed(4, DType::Bool, 0.0..2.0)
            .dtypes(TWO),
        shapes(2, [2, 1], [17, 255], [8, 8])
            .case("255 keys, softcap", &[&[2, 2, 17, 8]], call(soft))
            .dtypes(SINGLE),
        // Keys and values for each of three tiles of 32 queries, queries and the output's gradient for each of
        // three tiles of keys, and what is held and written once; the forward and the sums of its rows before.
        shapes(1, [1, 1], [96, 96], [64, 64])
            .case("64 dims, whole tiles", &[&[1, 1, 96, 64]], call(AttentionSpec::new(SCALE)))
            .dtypes(TWO)
            .moves(96 * 64 * ((3 + 3 * 2) + (4 + 3 * 2) + (2 + 3 * 2) + 2), 1.5),
        // Tiles of several sizes where there are cooperative matrices.
        shapes(1, [1, 1], [70, 70], [8, 8]).case("70", &[&[1, 1, 70, 8]], call(spec)).dtypes(TWO),
        shapes(1, [2, 1], [33, 40], [64, 64])
            .case("64 dims", &[&[1, 2, 33, 64]], call(spec))
            .dtypes(HALF),
        shapes(1, [1, 1], [33, 36], [80, 96])
            .case("80 and 96 dims", &[&[1, 1, 33, 96], &[1, 1, 33, 36]], call(mask))
            .fixed(4, DType::Bool, 0.0..2.0)
            .dtypes(HALF),
        shapes(1, [1, 1], [17, 33], [128, 128])
            .case("128 dims, additive mask", &[&[1, 1, 17, 128], &[1, 1, 17, 33]], call(added))
            .dtypes(TWO),
        shapes(1, [1, 1], [9, 35], [256, 256])
            .case("256 dims", &[&[1, 1, 9, 256]], call(window))
            .range(-0.5..0.5)
            .dtypes(HALF),
        shapes(1, [1, 1], [5, 9], [80, 33])
            .case("odd dims", &[&[1, 1, 5, 33]], call(spec))
            .dtypes(TWO),
    ]
    .map(|case| case.tolerance(GIVEN))
    .into()
}

fn backward_mask() -> Vec<Case> {
    let call_of = |spec: AttentionSpec| {
        move |x: &[Array]| {
            let given = given(spec, x, x.get(4), &[])?;
            let op = AttentionBackwardMask::new(spec);
            Ok(vec![Array::apply(op, &given.iter().collect::<Vec<_>>())?])
        }
    };
    let all = AttentionSpec { mask: MaskKind::Additive, ..AttentionSpec::new(SCALE) };
    let window = AttentionSpec { causal: true, window: Some(9), softcap: Some(2.5), ..all };
    let call = call_of(all);
    // What is added to all keys has no gradient where the sums of rows belong to the output, so they are drawn.
    let drawn = move |x: &[Array]| {
        let mut given = given(all, x, x.get(4), &[])?;
        given[5] = x[5].contiguous()?;
        let op = AttentionBackwardMask::new(all);
        Ok(vec![Array::apply(op, &given.iter().collect::<Vec<_>>())?])
    };
    let one = |x: &[Array]| {
        let spec = AttentionSpec { mask: MaskKind::Additive, ..AttentionSpec::new(SCALE) };
        let mask = with_device(x[0].device(), || full(&[1, 1, 1, 1], 0.25, x[0].dtype()))?;
        evaluate_argument(&mask)?;
        let mut given = given(spec, x, Some(&mask), &[])?;
        given[5] = x[4].contiguous()?;
        let op = AttentionBackwardMask::new(spec);
        Ok(vec![Array::apply(op, &given.iter().collect::<Vec<_>>())?])
    };
    const MANY: Tolerance = Tolerance::Rounded(4.0, "hundreds of thousands of numbers are summed");
    let parts = [
        shapes(1, [2, 1], [400, 400], [2, 2])
            .case("one for all", &[&[1, 2, 400, 2], &[1, 2, 400]], one)
            .dtypes(SINGLE),
        shapes(1, [1, 1], [2, 9000], [1, 1])
            .case("one for many keys", &[&[1, 1, 2, 1], &[1, 1, 2]], one)
            .dtypes(SINGLE),
    ];
    let cases = [
        shapes(2, [2, 1], [5, 17], [8, 8]).case(
            "of queries and keys",
            &[&[2, 2, 5, 8], &[1, 1, 5, 17]],
            call,
        ),
        shapes(2, [2, 1], [5, 7], [8, 8]).case(
            "of batches and keys",
            &[&[2, 2, 5, 8], &[2, 1, 1, 7]],
            call,
        ),
        shapes(2, [2, 1], [17, 255], [8, 8])
            .case("255 keys", &[&[2, 2, 17, 8], &[1, 1, 17, 255]], call)
            .dtypes(SINGLE),
        shapes(1, [1, 1], [2, 1025], [4, 4])
            .case("1025 keys", &[&[1, 1, 2, 4], &[1, 1, 2, 1025]], call)
            .dtypes(SINGLE),
        shapes(2, [2, 1], [255, 5], [4, 4])
            .case("of few keys", &[&[2, 2, 255, 4], &[1, 1, 1, 5]], call)
            .dtypes(TWO),
        shapes(2, [4, 2], [17, 40], [8, 8])
            .case("whole", &[&[2, 4, 17, 8], &[2, 4, 17, 40]], call)
            .dtypes(TWO),
        shapes(2, [2, 1], [70, 33], [16, 8])
            .case("of heads and queries", &[&[2, 2, 70, 8], &[1, 2, 70, 1], &[2, 2, 70]], drawn)
            .dtypes(SINGLE),
        shapes(2, [2, 1], [40, 70], [80, 96])
            .case("window, softcap", &[&[2, 2, 40, 96], &[2, 1, 40, 70]], call_of(window))
            .range(-0.5..0.5)
            .dtypes(HALF),
        shapes(1, [1, 1], [5, 9], [80, 33])
            .case("odd dims", &[&[1, 1, 5, 33], &[1, 1, 5, 9]], call)
            .dtypes(TWO),
        // Queries, the output's gradient, keys and values for each tile of 32 queries and keys of both heads, and the
        // mask; the forward and the sums of its rows before, with keys, values and mask for each tile of queries.
        shapes(1, [2, 1], [96, 256], [64, 64])
            .case("64 dims, whole tiles", &[&[1, 2, 96, 64], &[1, 1, 96, 256]], call)
            .dtypes(TWO)
            .moves(2 * 3 * (8 * 4 * 32 * 64 + 2 * 256 * 64) + 4 * 2 * 96 * 64 + 5 * 96 * 256, 1.5),
    ];
    let cases = cases.into_iter().map(|case| case.tolerance(GIVEN));
    cases.chain(parts.into_iter().map(|case| case.tolerance(MANY))).collect()
}

/// Bits of codes and elements of a group.
type Affine = [usize; 2];

/// Drawn words, scales and biases as keys or values.
fn weights([bits, group_size]: Affine, x: &[Array]) -> Result<Quantized> {
    Quantized::new(Scheme::Affine { group_size, bits }, &x[0], Some(&x[1]), Some(&x[2]))
}

impl Shapes {
    /// A case of quantized keys and values; the options take arrays from the seventh on.
    fn quantized(
        &self,
        label: &str,
        [keys, values]: [Affine; 2],
        more: &[&[usize]],
        options: impl for<'a> Fn(&'a [Array]) -> AttentionOptions<'a> + Send + Sync + 'static,
    ) -> Case {
        let plain = self.list(&[]);
        let mut shapes = vec![plain[0].clone()];
        for (shape, [bits, group]) in plain[1..].iter().zip([keys, values]) {
            let with = |last: usize| [&shape[..3], &[last]].concat();
            let groups = with(shape[3] / group);
            shapes.extend([with(shape[3] * bits / 32), groups.clone(), groups]);
        }
        shapes.extend(more.iter().map(|shape| shape.to_vec()));
        let shapes: Vec<&[usize]> = shapes.iter().map(Vec::as_slice).collect();
        let mut case = Case::new(label, &shapes, move |x| {
            let (k, v) = (weights(keys, &x[1..4])?, weights(values, &x[4..7])?);
            Ok(vec![quantized_attention(&x[0], &k, &v, &options(&x[7..]))?])
        })
        .range(-1.0..1.0)
        .tolerance(Tolerance::Reduction);
        for (first, [bits, _]) in [(1, keys), (4, values)] {
            case = case.fixed(first, DType::U32, 0.0..4294967295.0);
            // The largest codes come to about 2.
            let most = 2.0 / f64::from(1u32 << bits);
            case.inputs[first + 1].range = -most..most;
        }
        case
    }
}

fn quantized() -> Vec<Case> {
    fn all(_: &[Array]) -> AttentionOptions<'_> {
        AttentionOptions::new(SCALE)
    }
    fn causal(_: &[Array]) -> AttentionOptions<'_> {
        AttentionOptions { causal: true, ..AttentionOptions::new(SCALE) }
    }
    let eight = [[8, 32]; 2];
    let mut padded = shapes(1, [2, 1], [17, 96], [32, 32])
        .quantized("padding of the lowest number", eight, &[], all)
        .dtypes(SINGLE);
    padded.call = CaseCall(Box::new(move |x| {
        let mask = padding(x[0].device(), 40, 96)?;
        let options = AttentionOptions { mask: Some(&mask), ..AttentionOptions::new(SCALE) };
        let (k, v) = (weights(eight[0], &x[1..4])?, weights(eight[1], &x[4..7])?);
        Ok(vec![quantized_attention(&x[0], &k, &v, &options)?])
    }));
    vec![
        shapes(2, [4, 2], [1, 17], [64, 32]).quantized("8 bits, one query", eight, &[], all),
        shapes(1, [2, 1], [17, 29], [64, 64]).quantized("4 bits", [[4, 64]; 2], &[], causal),
        shapes(1, [2, 2], [3, 7], [96, 32]).quantized("6 bits", [[6, 32]; 2], &[], all),
        shapes(1, [1, 1], [2, 5], [128, 128])
            .quantized("keys of 8 bits, values of 4", [[8, 128], [4, 32]], &[], all)
            .dtypes(TWO),
        shapes(1, [1, 1], [3, 5], [32, 96])
            .quantized("3 and 5 bits", [[3, 32], [5, 32]], &[], all)
            .dtypes(SINGLE),
        shapes(1, [2, 1], [2, 0], [32, 32]).quantized("no keys", eight, &[], all).dtypes(SINGLE),
        shapes(1, [2, 1], [17, 40], [32, 32]).quantized("window, softcap", eight, &[], |_| {
            AttentionOptions {
                causal: true,
                window: Some(6),
                softcap: Some(2.5),
                ..AttentionOptions::new(SCALE)
            }
        }),
        shapes(2, [2, 1], [5, 18], [32, 32])
            .quantized("bool mask", eight, &[&[2, 1, 1, 18]], |x| AttentionOptions {
                mask: Some(&x[0]),
                ..AttentionOptions::new(SCALE)
            })
            .fixed(7, DType::Bool, 0.0..2.0)
            .dtypes(TWO),
        padded,
        shapes(3, [2, 1], [3, 40], [32, 32])
            .quantized("valid lengths", [[4, 32]; 2], &[&[3]], |x| AttentionOptions {
                causal: true,
                key_length: Some(&x[0]),
                ..AttentionOptions::new(SCALE)
            })
            .fixed(7, DType::I32, 0.0..40.0),
        shapes(1, [32, 1], [1, 512], [64, 64])
            .quantized("one query of many heads", eight, &[], all)
            .dtypes(SINGLE),
        shapes(1, [8, 2], [8, 255], [32, 32])
            .quantized("eight queries, 255 keys", [[4, 32]; 2], &[], causal)
            .dtypes(TWO),
        shapes(1, [2, 1], [1, 300], [32, 32])
            .quantized("everything", eight, &[&[1, 2, 1, 300], &[2], &[1]], |x| AttentionOptions {
                causal: true,
                window: Some(250),
                softcap: Some(3.0),
                mask: Some(&x[0]),
                sinks: Some(&x[1]),
                key_length: Some(&x[2]),
                ..AttentionOptions::new(SCALE)
            })
            .fixed(9, DType::I32, 260.0..300.0),
    ]
}
