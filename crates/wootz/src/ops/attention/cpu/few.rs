//! A tile of the forward for very few queries, as when tokens are generated one by one: bound by
//! reading keys and values once. Scores lie as they are multiplied here, a row for each query.

use super::forward::State;
use super::{Wide, soften};
use crate::cpu::gemm::{Elements, MatrixRef, Product};
use crate::cpu::simd::Real;
use crate::cpu::simd::rows::{self, LANES, Lanes};

/// Queries up to which this pays: with more, vectors are full of queries.
pub(super) const MOST: usize = 4;
/// Keys of a tile.
pub(super) const KEYS: usize = 512;
/// Keys of a tile that is decoded first, so few that it stays in a near cache until it is read.
pub(super) const CODED_KEYS: usize = 128;

/// The scores of `keys` keys: `count` rows of them.
pub(super) fn scores<W: Wide>(
    q: &[W],
    k: &[W],
    [count, keys, dims, pitch]: [usize; 4],
    scores: &mut [W],
) {
    let [q, k] = [q, k].map(Elements::from);
    let q = |_| MatrixRef { data: q, offset: 0, row_stride: pitch as isize, column_stride: 1 };
    let k = |_| MatrixRef { data: k, offset: 0, row_stride: 1, column_stride: pitch as isize };
    multiply(&q, &k, [count, keys, dims], scores);
}

/// Adds values, each times its power, to `sums`, whose rows and those of the values are `pitch` apart.
pub(super) fn add_values<W: Wide>(
    powers: &[W],
    v: &[W],
    [count, keys, dims, pitch]: [usize; 4],
    sums: &mut [W],
) {
    let [powers, v] = [powers, v].map(Elements::from);
    let a = |_| MatrixRef { data: powers, offset: 0, row_stride: keys as isize, column_stride: 1 };
    let b = |_| MatrixRef { data: v, offset: 0, row_stride: pitch as isize, column_stride: 1 };
    let mut product = vec![W::ZERO; count * dims];
    multiply(&a, &b, [count, dims, keys], &mut product);
    for (sums, product) in
        sums.chunks_exact_mut(pitch.max(1)).zip(product.chunks_exact(dims.max(1)))
    {
        for (sum, &value) in sums.iter_mut().zip(product) {
            *sum = *sum + value;
        }
    }
}

fn multiply<'a, W: Wide>(
    a: &(dyn Fn(usize) -> MatrixRef<'a, W> + Sync),
    b: &(dyn Fn(usize) -> MatrixRef<'a, W> + Sync),
    [m, n, k]: [usize; 3],
    out: &mut [W],
) {
    let result = Product { batch: 1, m, n, k, rows: m, a, b, plus: None }.write(out);
    debug_assert!(result.is_ok(), "matrices lie inside their slices");
}

/// One tile's step of the softmax: scores become powers.
pub(super) struct Softmax<'a, W> {
    pub(super) scores: &'a mut [W],
    pub(super) keys: usize,
    pub(super) scale: W,
    pub(super) softcap: Option<W>,
    pub(super) state: &'a mut State<W>,
}

impl<W: Wide> pulp::WithSimd for Softmax<'_, W> {
    type Output = ();
    #[inline(always)]
    fn with_simd<S: pulp::Simd>(self, _: S) {
        let Softmax { scores, keys, scale, softcap, state } = self;
        for (row, line) in scores.chunks_exact_mut(keys).enumerate() {
            soften(line, scale, softcap, None);
            let before = state.most[row];
            let highest = rows::max(line);
            let most = if highest > before { highest } else { before };
            // Powers of what is below everything are taken from zero.
            let base = if most == W::NEG_INFINITY { W::ZERO } else { most };
            let factor = Real::exp_nonpositive(before - base);
            let mut total = Lanes::zero();
            let (whole, rest) = line.as_chunks_mut::<LANES>();
            for chunk in whole {
                for lane in 0..LANES {
                    chunk[lane] = Real::exp_nonpositive(chunk[lane] - base);
                    total.0[lane] = total.0[lane] + chunk[lane];
                }
            }
            for (value, total) in rest.iter_mut().zip(&mut total.0) {
                *value = Real::exp_nonpositive(*value - base);
                *total = *total + *value;
            }
            state.most[row] = most;
            state.shrink[row] = factor;
            state.total[row] = state.total[row] * factor + total.sum();
        }
    }
}
