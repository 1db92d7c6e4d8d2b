//! What attention is asked to do beside its arrays, the shapes it does it on, and which keys a
//! query sees by its position.

use std::ops::Range;

use crate::array::{DType, Meta};
use crate::error::{Error, Result};
use crate::op::{Op, expect_contiguous};
use crate::quant::Scheme;

/// The widest head that kernels take.
pub const MOST_DIMS: usize = 512;

/// Inputs of attention to quantized keys and values before the optional ones.
pub(super) const QUANTIZED: usize = 7;

/// The kind of an array of masks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaskKind {
    /// There is none.
    None,
    /// Keys are seen where it is true.
    Bool,
    /// It is added to the scores; −∞ hides a key.
    Additive,
}

/// What an attention operation does, and which arrays it takes after `q`, `k` and `v` (in the
/// backward also the output's gradient, the log-sum-exps and the row sums): the mask, then the
/// sinks (only forward), then how long the keys are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionSpec {
    /// What products of queries and keys are multiplied with.
    pub scale: f64,
    /// Whether a query sees keys up to its own position only. The last query is at the last key.
    pub causal: bool,
    /// How many keys up to its own position a query sees; needs `causal`.
    pub window: Option<usize>,
    /// Scores are softened to `softcap · tanh(score / softcap)`.
    pub softcap: Option<f64>,
    /// Whether there is a mask.
    pub mask: MaskKind,
    /// Whether there are sinks.
    pub sinks: bool,
    /// What tells how long the keys are.
    pub lengths: Lengths,
}

/// The arrays that tell how long the keys are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lengths {
    /// None: all are valid.
    All,
    /// How many are valid, one number for each batch, in `int32`.
    Valid,
    /// The ends of several sequences that lie one after the other, with a 0 before them, first of
    /// the queries and then of the keys, in `int32`. Queries see keys of their own sequence.
    Sequences,
}

impl Lengths {
    /// How many arrays these are.
    pub(super) fn count(self) -> usize {
        match self {
            Lengths::All => 0,
            Lengths::Valid => 1,
            Lengths::Sequences => 2,
        }
    }
}

/// The queries and keys of one sequence.
#[derive(Clone, Debug)]
pub(super) struct Sequence {
    pub(super) queries: Range<usize>,
    pub(super) keys: Range<usize>,
}

impl AttentionSpec {
    /// Every query sees every key.
    pub fn new(scale: f64) -> AttentionSpec {
        AttentionSpec {
            scale,
            causal: false,
            window: None,
            softcap: None,
            mask: MaskKind::None,
            sinks: false,
            lengths: Lengths::All,
        }
    }

    /// Every query sees the keys up to its own position.
    pub fn causal(scale: f64) -> AttentionSpec {
        AttentionSpec { causal: true, ..AttentionSpec::new(scale) }
    }

    /// How many optional arrays there are.
    fn optional(&self, sinks: bool) -> usize {
        (self.mask != MaskKind::None) as usize + sinks as usize + self.lengths.count()
    }

    /// The window, of which no more counts than there are keys: a larger one would not fit numbers of 32 bits.
    pub(super) fn reach(&self, keys: usize) -> Option<i64> {
        self.window.map(|window| window.min(keys) as i64)
    }

    /// The keys that query `row`, which is of this sequence, sees by its position.
    pub(super) fn sees(&self, row: usize, sequence: &Sequence) -> Range<usize> {
        let Sequence { queries, keys } = sequence;
        let length = keys.len() as i64;
        // One past the query's own position; there may be more queries than keys.
        let next = row as i64 + 1 + length - queries.end as i64;
        let end = if self.causal { next.clamp(0, length) } else { length };
        let start = self.reach(keys.len()).map_or(0, |window| (next - window).clamp(0, end));
        keys.start + start as usize..keys.start + end as usize
    }
}

/// Lengths of the axes of an attention whose arguments have been checked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) batch: usize,
    pub(super) heads: usize,
    pub(super) key_heads: usize,
    pub(super) queries: usize,
    pub(super) keys: usize,
    pub(super) dims: usize,
    pub(super) value_dims: usize,
    pub(super) dtype: DType,
    /// The shape of the mask: each axis is whole or 1.
    pub(super) mask: [usize; 4],
    /// Sequences that lie one after the other.
    pub(super) sequences: usize,
}

impl Sizes {
    /// Checks `q`, `k` and `v` and then the optional arrays, which begin at `optional`.
    pub(super) fn check(
        op: &dyn Op,
        spec: &AttentionSpec,
        inputs: &[&Meta],
        optional: usize,
        sinks: bool,
    ) -> Result<Sizes> {
        let count = optional + spec.optional(sinks);
        crate::op::expect_inputs(op, inputs, count)?;
        (0..count).try_for_each(|index| expect_contiguous(op, inputs, index))?;
        let sizes = Sizes::of_arrays(op.name(), inputs[0], inputs[1], inputs[2])?;
        check_numbers(op.name(), spec, sizes.dtype)?;
        sizes.with_optional(op.name(), spec, &inputs[optional..], sinks)
    }

    /// Checks `q` and the codes, scales and biases of `k` and of `v`, and then the optional arrays.
    pub(super) fn check_quantized(
        op: &dyn Op,
        spec: &AttentionSpec,
        [keys, values]: [Scheme; 2],
        inputs: &[&Meta],
    ) -> Result<Sizes> {
        let name = op.name();
        let count = QUANTIZED + spec.optional(spec.sinks);
        crate::op::expect_inputs(op, inputs, count)?;
        (0..count).try_for_each(|index| expect_contiguous(op, inputs, index))?;
        let q = inputs[0];
        let k = decoded(name, "k", keys, &inputs[1..4], q.dtype)?;
        let v = decoded(name, "v", values, &inputs[4..7], q.dtype)?;
        let sizes = Sizes::of_arrays(name, q, &k, &v)?;
        check_numbers(name, spec, sizes.dtype)?;
        sizes.with_optional(name, spec, &inputs[QUANTIZED..], spec.sinks)
    }

    /// Checks the optional arrays.
    fn with_optional(
        mut self,
        name: &'static str,
        spec: &AttentionSpec,
        inputs: &[&Meta],
        sinks: bool,
    ) -> Result<Sizes> {
        let Sizes { batch, heads, queries, keys, dtype, .. } = self;
        let mut next = 0;
        if spec.mask != MaskKind::None {
            let mask = inputs[next];
            let whole = [batch, heads, queries, keys];
            let fits = |(own, whole): (&usize, &usize)| own == whole || *own == 1;
            if mask.shape().len() != 4 || !mask.shape().iter().zip(&whole).all(fits) {
                let expected = format!("one that broadcasts to {whole:?}");
                return Err(Error::shape(name, "mask", expected, mask.shape()));
            }
            self.mask.copy_from_slice(mask.shape());
            let wanted = if spec.mask == MaskKind::Bool { DType::Bool } else { dtype };
            if mask.dtype != wanted {
                return Err(Error::dtype(name, "mask", wanted, mask.dtype));
            }
            next += 1;
        }
        if sinks {
            expect(name, "sinks", inputs[next], &[heads], dtype)?;
            next += 1;
        }
        match spec.lengths {
            Lengths::All => {}
            Lengths::Valid => expect(name, "key_length", inputs[next], &[batch], DType::I32)?,
            Lengths::Sequences => {
                let ends = inputs[next].shape();
                if ends.len() != 1 || ends[0] < 2 {
                    return Err(Error::shape(name, "query_ends", "[sequences + 1]", ends));
                }
                expect(name, "query_ends", inputs[next], ends, DType::I32)?;
                expect(name, "key_ends", inputs[next + 1], ends, DType::I32)?;
                self.sequences = ends[0] - 1;
            }
        }
        Ok(self)
    }

    fn of_arrays(op: &'static str, q: &Meta, k: &Meta, v: &Meta) -> Result<Sizes> {
        let &[batch, heads, queries, dims] = q.shape() else {
            return Err(Error::shape(op, "q", "[batch, heads, queries, dims]", q.shape()));
        };
        let &[key_batch, key_heads, keys, key_dims] = k.shape() else {
            return Err(Error::shape(op, "k", "[batch, heads, keys, dims]", k.shape()));
        };
        if (key_batch, key_dims) != (batch, dims) {
            let expected = format!("[{batch}, a divisor of {heads}, keys, {dims}]");
            return Err(Error::shape(op, "k", expected, k.shape()));
        }
        if key_heads == 0 || heads % key_heads != 0 {
            let expected = format!("a number of heads that divides the {heads} of q");
            return Err(Error::argument(op, "k", expected, key_heads));
        }
        let value_dims = match v.shape() {
            &[b, h, l, d] if (b, h, l) == (batch, key_heads, keys) => d,
            other => {
                let expected = format!("[{batch}, {key_heads}, {keys}, dims]");
                return Err(Error::shape(op, "v", expected, other));
            }
        };
        for (argument, dims) in [("q", dims), ("v", value_dims)] {
            if dims > MOST_DIMS {
                let expected = format!("heads of at most {MOST_DIMS} dims");
                return Err(Error::argument(op, argument, expected, dims));
            }
        }
        let dtype = q.dtype;
        if !dtype.is_float() {
            return Err(Error::dtype(op, "q", "a floating-point type", dtype));
        }
        for (argument, meta) in [("k", k), ("v", v)] {
            if meta.dtype != dtype {
                return Err(Error::dtype(op, argument, dtype, meta.dtype));
            }
        }
        Ok(Sizes {
            batch,
            heads,
            key_heads,
            queries,
            keys,
            dims,
            value_dims,
            dtype,
            mask: [1; 4],
            sequences: 1,
        })
    }

    /// Heads of queries for each head of keys.
    pub(super) fn group(&self) -> usize {
        self.heads / self.key_heads
    }

    /// The dtype that is summed in.
    pub(super) fn wide(&self) -> DType {
        wide(self.dtype)
    }

    /// The output's shape.
    pub(super) fn output(&self) -> [usize; 4] {
        [self.batch, self.heads, self.queries, self.value_dims]
    }

    /// One number for each query.
    pub(super) fn rows(&self) -> [usize; 3] {
        [self.batch, self.heads, self.queries]
    }

    /// The mask's strides, 0 along axes of which it has one.
    pub(super) fn mask_strides(&self) -> [usize; 4] {
        let [_, heads, queries, keys] = self.mask;
        let strides = [heads * queries * keys, queries * keys, keys, 1];
        std::array::from_fn(|axis| if self.mask[axis] == 1 { 0 } else { strides[axis] })
    }
}

/// What codes, scales and biases come to when they are decoded.
fn decoded(
    op: &'static str,
    argument: &str,
    scheme: Scheme,
    arrays: &[&Meta],
    dtype: DType,
) -> Result<Meta> {
    let Scheme::Affine { group_size, .. } = scheme else {
        let expected = "an affine scheme, with scales and biases";
        return Err(Error::argument(op, argument, expected, scheme));
    };
    scheme.check(op)?;
    let name = |part: &str| format!("{part} of {argument}");
    let [codes, scales, biases] = arrays else {
        return Err(Error::argument(op, argument, "three arrays", arrays.len()));
    };
    let whole = codes.shape().last().and_then(|&words| scheme.weights(words));
    let (&[batch, heads, keys, _], Some(dims)) = (codes.shape(), whole) else {
        let words = scheme.codes(group_size);
        let expected = format!("[batch, heads, keys, a multiple of {words} words] for {scheme}");
        return Err(Error::shape(op, name("codes"), expected, codes.shape()));
    };
    expect(op, &name("codes"), codes, codes.shape(), DType::U32)?;
    if !scales.dtype.is_float() {
        return Err(Error::dtype(op, name("scales"), "a floating-point type", scales.dtype));
    }
    let groups = [batch, heads, keys, dims / group_size];
    expect(op, &name("scales"), scales, &groups, scales.dtype)?;
    expect(op, &name("biases"), biases, &groups, scales.dtype)?;
    Meta::new(op, &[batch, heads, keys, dims], dtype)
}

/// The dtype that sums are kept in.
pub(super) fn wide(dtype: DType) -> DType {
    if dtype == DType::F64 { DType::F64 } else { DType::F32 }
}

/// Checks an array's shape and dtype.
pub(super) fn expect(
    op: &'static str,
    argument: &str,
    meta: &Meta,
    shape: &[usize],
    dtype: DType,
) -> Result<()> {
    if meta.shape() != shape {
        return Err(Error::shape(op, argument, format!("{shape:?}"), meta.shape()));
    }
    if meta.dtype != dtype {
        return Err(Error::dtype(op, argument, dtype, meta.dtype));
    }
    Ok(())
}

/// Checks numbers as they are computed with: in `float32` unless the arrays are wider.
fn check_numbers(op: &'static str, spec: &AttentionSpec, dtype: DType) -> Result<()> {
    let wide = wide(dtype);
    let (computed, least) = match wide {
        DType::F64 => ((|x| x) as fn(f64) -> f64, f64::MIN_POSITIVE),
        _ => ((|x| f64::from(x as f32)) as fn(f64) -> f64, f64::from(f32::MIN_POSITIVE)),
    };
    let scale = computed(spec.scale);
    if !scale.is_finite() {
        let expected = format!("a finite number in {wide}");
        return Err(Error::argument(op, "scale", expected, format!("{:?}", spec.scale)));
    }
    if let Some(softcap) = spec.softcap {
        let own = computed(softcap);
        if !(own.is_finite() && own >= least) {
            let expected = format!("a finite number of at least {least:e}, for {wide}");
            return Err(Error::argument(op, "softcap", expected, format!("{softcap:?}")));
        }
        if !computed(scale / own).is_finite() {
            let expected = format!("one that the scale, {:?}, can be divided by", spec.scale);
            return Err(Error::argument(op, "softcap", expected, format!("{softcap:?}")));
        }
    }
    match spec.window {
        Some(0) => Err(Error::argument(op, "window", "at least 1 key", 0)),
        Some(_) if !spec.causal => {
            Err(Error::argument(op, "window", "causal attention", "attention to all keys"))
        }
        _ => Ok(()),
    }
}
