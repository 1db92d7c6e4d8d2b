//! The gated delta rule by chunks of steps: products of small matrices instead of one pass over the
//! state for each step.
//!
//! Within a chunk let `d[t][j]` be the product of the gates behind step `j` up to step `t`, and
//! `c[t]` that of all gates up to `t`. What is learnt, `u = beta w`, solves a triangular system, `w =
//! v - c (k S) - (d ∘ k kᵀ) u` below the diagonal; then `y = c (q S) + (d ∘ q kᵀ) u`, and the state
//! `S` behind the chunk is `c[last] S + (d[last] k)ᵀ u`. Gates are only ever multiplied, so that none
//! is too small. States are kept as a row for each key here.

mod backward;

pub(super) use backward::backward;

use super::super::super::Wide;
use super::Head;
use super::lent::{Lent, Numbers};
use crate::cpu::gemm::Block;
use crate::cpu::simd::dispatch;

/// Steps of a chunk.
const STEPS: usize = 32;
/// Steps that triangles are cut into: what lies beside them are products.
const CUT: usize = 8;
/// Rows of matrices have room for multiples of this.
const PAD: usize = 8;
/// Steps from which on chunks pay.
const LEAST: usize = 16;

/// Whether a head is computed by chunks: with one gate a step, and enough steps.
pub(super) fn fits<W>(head: &Head<'_, W>) -> bool {
    head.sizes.gates == 1 && head.sizes.steps >= LEAST
}

/// Results and the next state of a head; `state` holds the first one.
pub(super) fn forward<W: Wide>(head: &Head<'_, W>, state: &mut [W], results: &mut [W]) {
    let rule = Rule::new(head);
    let (values, pitch) = (rule.values(), rule.value_pitch);
    let mut chunk = Chunk::new(&rule);
    let mut turned = Lent::zeros(rule.keys() * pitch);
    transpose(state, rule.keys(), rule.keys(), &mut turned, pitch);
    let [mut w, mut u, mut y] = [(); 3].map(|()| rule.value_rows());
    for start in (0..head.sizes.steps).step_by(STEPS) {
        chunk.begin(&rule, start);
        chunk.learn(&rule, &turned, &mut w, &mut u);
        chunk.see(&rule);
        chunk.results(&rule, &turned, &u, &mut y);
        chunk.advance(&rule, &u, &mut turned);
        for (row, y) in y.chunks_exact(pitch).take(chunk.count).enumerate() {
            results[(start + row) * values..][..values].copy_from_slice(&y[..values]);
        }
    }
    transpose(&turned, pitch, values, state, rule.keys());
}

/// The inputs of a head, with rows that vectors can be read from.
struct Rule<'a, W> {
    head: &'a Head<'a, W>,
    key_pitch: usize,
    value_pitch: usize,
    q: Numbers<'a, W>,
    k: Numbers<'a, W>,
    v: Numbers<'a, W>,
}

impl<'a, W: Wide> Rule<'a, W> {
    fn new(head: &'a Head<'a, W>) -> Rule<'a, W> {
        let (keys, values) = (head.sizes.keys, head.sizes.values);
        let [key_pitch, value_pitch] = [keys, values].map(|width| width.next_multiple_of(PAD));
        Rule {
            head,
            key_pitch,
            value_pitch,
            q: padded(&head.q, keys, key_pitch),
            k: padded(&head.k, keys, key_pitch),
            v: padded(&head.v, values, value_pitch),
        }
    }

    fn keys(&self) -> usize {
        self.head.sizes.keys
    }

    fn values(&self) -> usize {
        self.head.sizes.values
    }

    /// A row of values, or of keys, for each step of a chunk.
    fn value_rows(&self) -> Lent<W> {
        Lent::zeros(STEPS * self.value_pitch)
    }

    fn key_rows(&self) -> Lent<W> {
        Lent::zeros(STEPS * self.key_pitch)
    }
}

/// What a chunk's steps have to do with each other.
struct Chunk<W> {
    start: usize,
    /// Steps, at most [`STEPS`].
    count: usize,
    /// `d` and `c`.
    decays: Lent<W>,
    from_start: [W; STEPS],
    /// The keys, a row for each key.
    turned: Lent<W>,
    /// `k kᵀ` and `q kᵀ`.
    keys_by_keys: Lent<W>,
    queries_by_keys: Lent<W>,
    /// `-d ∘ k kᵀ` below the diagonal, and `d ∘ q kᵀ` up to it; zeros elsewhere.
    known: Lent<W>,
    seen: Lent<W>,
    /// Keys by what is left of them behind the last step.
    kept: Lent<W>,
}

impl<W: Wide> Chunk<W> {
    fn new(rule: &Rule<'_, W>) -> Chunk<W> {
        let square = || Lent::zeros(STEPS * STEPS);
        Chunk {
            start: 0,
            count: 0,
            decays: square(),
            from_start: [W::ONE; STEPS],
            turned: Lent::zeros(rule.key_pitch * STEPS),
            keys_by_keys: square(),
            queries_by_keys: square(),
            known: square(),
            seen: square(),
            kept: rule.key_rows(),
        }
    }

    /// What is left of the first state behind the last step.
    fn whole(&self) -> W {
        self.from_start[self.count - 1]
    }

    /// This chunk's rows.
    fn rows<'x>(&self, x: &'x [W], pitch: usize) -> &'x [W] {
        &x[self.start * pitch..(self.start + self.count) * pitch]
    }

    /// Goes to the chunk at `start`: its decays, and products of its keys.
    fn begin(&mut self, rule: &Rule<'_, W>, start: usize) {
        self.start = start;
        self.count = STEPS.min(rule.head.sizes.steps - start);
        let mut product = W::ONE;
        for (t, &gate) in self.rows(rule.head.g, 1).iter().enumerate() {
            product = product * gate;
            self.from_start[t] = product;
            let (before, row) = self.decays.split_at_mut(t * STEPS);
            for j in 0..t {
                row[j] = before[(t - 1) * STEPS + j] * gate;
            }
            row[t] = W::ONE;
            row[t + 1..STEPS].fill(W::ZERO);
        }
        let pitch = rule.key_pitch;
        let k = self.rows(&rule.k, pitch);
        transpose(k, pitch, pitch, &mut self.turned, STEPS);
        let last = &self.decays[(self.count - 1) * STEPS..];
        let kept = &mut self.kept;
        dispatch(|| {
            let rows = kept.chunks_exact_mut(pitch).zip(k.chunks_exact(pitch));
            for ((kept, k), &decay) in rows.zip(last) {
                scale_into(kept, decay, k);
            }
        });
        if rule.head.corrects {
            let raw = &mut self.keys_by_keys;
            by_keys(k, rule, &self.turned, self.count, raw);
            for t in 0..self.count {
                let row = t * STEPS..(t + 1) * STEPS;
                let both = self.decays[row.clone()].iter().zip(&raw[row.clone()]);
                for (j, (to, (&decay, &raw))) in self.known[row].iter_mut().zip(both).enumerate() {
                    *to = if j < t { W::ZERO - decay * raw } else { W::ZERO };
                }
            }
        }
    }

    /// Products of queries with keys.
    fn see(&mut self, rule: &Rule<'_, W>) {
        let q = self.rows(&rule.q, rule.key_pitch);
        let raw = &mut self.queries_by_keys;
        by_keys(q, rule, &self.turned, self.count, raw);
        for t in 0..self.count {
            let row = t * STEPS..(t + 1) * STEPS;
            let both = self.decays[row.clone()].iter().zip(&raw[row.clone()]);
            for (j, (to, (&decay, &raw))) in self.seen[row].iter_mut().zip(both).enumerate() {
                *to = if j <= t { decay * raw } else { W::ZERO };
            }
        }
    }

    /// What was wrong, and what is learnt.
    fn learn(&self, rule: &Rule<'_, W>, state: &[W], w: &mut [W], u: &mut [W]) {
        let pitch = rule.value_pitch;
        let v = self.rows(&rule.v, pitch);
        let beta = self.rows(rule.head.beta, 1);
        if !rule.head.corrects {
            w[..v.len()].copy_from_slice(v);
            return dispatch(|| {
                let rows = u.chunks_exact_mut(pitch).zip(v.chunks_exact(pitch));
                for ((u, v), &beta) in rows.zip(beta) {
                    scale_into(u, beta, v);
                }
            });
        }
        self.of_state(rule, &rule.k, state, w);
        dispatch(|| {
            let rows = w.chunks_exact_mut(pitch).zip(v.chunks_exact(pitch));
            for ((w, v), &decay) in rows.zip(&self.from_start) {
                for (w, &v) in w.iter_mut().zip(v) {
                    *w = v - decay * *w;
                }
            }
        });
        for first in (0..self.count).step_by(CUT) {
            let end = self.count.min(first + CUT);
            self.lower(&self.known, rule, first..end, u, w);
            dispatch(|| {
                for t in first..end {
                    let w = &mut w[t * pitch..][..pitch];
                    for j in first..t {
                        add_scaled(w, self.known[t * STEPS + j], &u[j * pitch..][..pitch]);
                    }
                    scale_into(&mut u[t * pitch..][..pitch], beta[t], w);
                }
            });
        }
    }

    /// The results, given what was learnt.
    fn results(&self, rule: &Rule<'_, W>, state: &[W], u: &[W], y: &mut [W]) {
        let pitch = rule.value_pitch;
        self.of_state(rule, &rule.q, state, y);
        dispatch(|| {
            for (y, &decay) in y.chunks_exact_mut(pitch).zip(&self.from_start) {
                y.iter_mut().for_each(|y| *y = *y * decay);
            }
        });
        for first in (0..self.count).step_by(CUT) {
            let end = self.count.min(first + CUT);
            self.lower(&self.seen, rule, first..end, u, y);
            dispatch(|| {
                for t in first..end {
                    let y = &mut y[t * pitch..][..pitch];
                    for j in first..=t {
                        add_scaled(y, self.seen[t * STEPS + j], &u[j * pitch..][..pitch]);
                    }
                }
            });
        }
    }

    /// The state behind the chunk.
    fn advance(&self, rule: &Rule<'_, W>, u: &[W], state: &mut [W]) {
        let whole = self.whole();
        dispatch(|| state.iter_mut().for_each(|s| *s = *s * whole));
        self.add_outer(rule, &self.kept, u, state);
    }

    /// What the state tells of rows of keys.
    fn of_state(&self, rule: &Rule<'_, W>, rows: &[W], state: &[W], to: &mut [W]) {
        let (keys, values) = (rule.key_pitch, rule.value_pitch);
        let product = Block {
            m: self.count,
            n: rule.values(),
            k: rule.keys(),
            a: self.rows(rows, keys),
            a_rows: keys,
            a_columns: 1,
            b: state,
            b_rows: values,
        };
        product.write(to, values, false);
    }

    /// Adds to some rows what a matrix has of those before them.
    fn lower(
        &self,
        matrix: &[W],
        rule: &Rule<'_, W>,
        rows: std::ops::Range<usize>,
        from: &[W],
        to: &mut [W],
    ) {
        let pitch = rule.value_pitch;
        let product = Block {
            m: rows.len(),
            n: rule.values(),
            k: rows.start,
            a: &matrix[rows.start * STEPS..],
            a_rows: STEPS,
            a_columns: 1,
            b: from,
            b_rows: pitch,
        };
        product.write(&mut to[rows.start * pitch..], pitch, true);
    }

    /// Adds products of this chunk's rows of keys with its rows of values to a state.
    fn add_outer(&self, rule: &Rule<'_, W>, keys: &[W], values: &[W], state: &mut [W]) {
        let product = Block {
            m: rule.keys(),
            n: rule.values(),
            k: self.count,
            a: keys,
            a_rows: 1,
            a_columns: rule.key_pitch,
            b: values,
            b_rows: rule.value_pitch,
        };
        product.write(state, rule.value_pitch, true);
    }
}

/// Products of rows with keys.
fn by_keys<W: Wide>(rows: &[W], rule: &Rule<'_, W>, turned_keys: &[W], count: usize, to: &mut [W]) {
    let (a_rows, k) = (rule.key_pitch, rule.keys());
    let b = turned_keys;
    Block { m: count, n: count, k, a: rows, a_rows, a_columns: 1, b, b_rows: STEPS }
        .write(to, STEPS, false);
}

/// Rows with room for whole vectors, with zeros in it.
fn padded<'a, W: Wide>(x: &'a [W], width: usize, pitch: usize) -> Numbers<'a, W> {
    if width == pitch {
        return Numbers::Given(x);
    }
    let mut wide = Lent::zeros(x.len() / width * pitch);
    for (wide, x) in wide.chunks_exact_mut(pitch).zip(x.chunks_exact(width)) {
        wide[..width].copy_from_slice(x);
    }
    Numbers::Made(wide)
}

/// The first `width` columns of rows that are `pitch` apart become rows that are `to_pitch` apart.
fn transpose<W: Copy>(from: &[W], pitch: usize, width: usize, to: &mut [W], to_pitch: usize) {
    // Squares that stay in the nearest cache, whichever way they are read.
    const SQUARE: usize = 16;
    let rows = from.len() / pitch;
    for top in (0..rows).step_by(SQUARE) {
        for left in (0..width).step_by(SQUARE) {
            for column in left..width.min(left + SQUARE) {
                for row in top..rows.min(top + SQUARE) {
                    to[column * to_pitch + row] = from[row * pitch + column];
                }
            }
        }
    }
}

#[inline(always)]
fn scale_into<W: Wide>(to: &mut [W], by: W, x: &[W]) {
    for (to, &x) in to.iter_mut().zip(x) {
        *to = by * x;
    }
}

#[inline(always)]
fn add_scaled<W: Wide>(to: &mut [W], by: W, x: &[W]) {
    for (to, &x) in to.iter_mut().zip(x) {
        *to = *to + by * x;
    }
}
