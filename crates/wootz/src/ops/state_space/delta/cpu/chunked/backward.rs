//! The gradients of a chunk, from the gradient of the state behind it to that of the state before.
//!
//! With `e = d ∘ (dw uᵀ)` below the diagonal and `f = d ∘ (dy uᵀ)` up to it, where `dw` solves the
//! transposed system, `dq = c (dy S) + f k` and `dk = fᵀ q - (e + eᵀ) k - c (dw S) + d[last] (u dS)`. A
//! gate's gradient sums over all pairs of a step before it and one that is not, by the other gates
//! between them: small sums that need no division.

use std::ops::Range;

use super::super::{Gradients, Head, part};
use super::*;
use crate::cpu::simd::rows::dot;

/// Adds the gradients of a head, given its first state and the gradient of the last, and writes that
/// of the first.
pub(in super::super) fn backward<W: Wide>(
    head: &Head<'_, W>,
    dy: &[W],
    [first_state, dnext]: [&[W]; 2],
    gradients: &mut Gradients<'_, W>,
    dstate: &mut [W],
) {
    let rule = Rule::new(head);
    let (keys, values, pitch) = (rule.keys(), rule.values(), rule.value_pitch);
    let count = head.sizes.steps.div_ceil(STEPS);
    let (state_size, rows) = (keys * pitch, STEPS * pitch);
    // The states before chunks, and what was wrong and what was learnt in each.
    let mut starts = Lent::zeros(count * state_size);
    let mut wrong = Lent::zeros(count * rows);
    let mut learnt = Lent::zeros(count * rows);
    let mut chunk = Chunk::new(&rule);
    let mut state = Lent::zeros(state_size);
    transpose(first_state, keys, keys, &mut state, pitch);
    for i in 0..count {
        starts[i * state_size..][..state_size].copy_from_slice(&state);
        let (w, u) = (&mut wrong[i * rows..][..rows], &mut learnt[i * rows..][..rows]);
        chunk.begin(&rule, i * STEPS);
        chunk.learn(&rule, &state, w, u);
        if i + 1 < count {
            chunk.advance(&rule, u, &mut state);
        }
    }
    let dy = padded(dy, values, pitch);
    let mut slope = state;
    slope.fill(W::ZERO);
    transpose(dnext, keys, keys, &mut slope, pitch);
    let mut memory = Memory::new(&rule);
    for i in (0..count).rev() {
        chunk.begin(&rule, i * STEPS);
        chunk.see(&rule);
        let back = Back {
            rule: &rule,
            chunk: &chunk,
            state: part(&starts, i, state_size),
            w: part(&wrong, i, rows),
            u: part(&learnt, i, rows),
            dy: chunk.rows(&dy, pitch),
        };
        back.run(&mut memory, &mut slope, gradients);
    }
    transpose(&slope, pitch, values, dstate, keys);
}

/// Memory for one chunk at a time.
struct Memory<W> {
    /// The gradients of what is learnt and of what was wrong.
    du: Lent<W>,
    dw: Lent<W>,
    /// What was learnt, the state before and the gradient of that behind, each with rows and columns
    /// exchanged.
    turned_u: Lent<W>,
    state: Lent<W>,
    slope: Lent<W>,
    /// `dw uᵀ` and `dy uᵀ`, then `e` and `f`.
    e: Lent<W>,
    f: Lent<W>,
    /// The gradients of `d` and `c`.
    ddecays: Lent<W>,
    dfrom_start: [W; STEPS],
    /// `dy S`, `dw S` and `u dS`.
    dy_state: Lent<W>,
    dw_state: Lent<W>,
    u_slope: Lent<W>,
    /// Keys and queries by what is left of the first state.
    scaled: Lent<W>,
}

impl<W: Wide> Memory<W> {
    fn new(rule: &Rule<'_, W>) -> Memory<W> {
        let square = || Lent::zeros(STEPS * STEPS);
        let state = || Lent::zeros(rule.values() * rule.key_pitch);
        Memory {
            du: rule.value_rows(),
            dw: rule.value_rows(),
            turned_u: Lent::zeros(rule.value_pitch * STEPS),
            state: state(),
            slope: state(),
            e: square(),
            f: square(),
            ddecays: square(),
            dfrom_start: [W::ZERO; STEPS],
            dy_state: rule.key_rows(),
            dw_state: rule.key_rows(),
            u_slope: rule.key_rows(),
            scaled: rule.key_rows(),
        }
    }
}

/// What is known of a chunk.
struct Back<'a, W> {
    rule: &'a Rule<'a, W>,
    chunk: &'a Chunk<W>,
    /// The state before, a row for each key.
    state: &'a [W],
    w: &'a [W],
    u: &'a [W],
    dy: &'a [W],
}

impl<W: Wide> Back<'_, W> {
    fn run(&self, memory: &mut Memory<W>, slope: &mut [W], gradients: &mut Gradients<'_, W>) {
        let Back { rule, chunk, .. } = *self;
        let Chunk { start, count, .. } = *chunk;
        let (values, keys, pitch) = (rule.values(), rule.keys(), rule.value_pitch);
        self.unlearn(slope, &mut memory.du, &mut memory.dw);
        for t in 0..count {
            let (w, du) = (part(self.w, t, pitch), part(&memory.du, t, pitch));
            gradients.beta[start + t] = gradients.beta[start + t] + dispatch(|| dot(w, du));
            let dv = &mut gradients.v[(start + t) * values..][..values];
            dv.copy_from_slice(&memory.dw[t * pitch..][..values]);
        }
        let u = &self.u[..count * pitch];
        transpose(u, pitch, pitch, &mut memory.turned_u, STEPS);
        transpose(self.state, pitch, values, &mut memory.state, rule.key_pitch);
        transpose(slope, pitch, values, &mut memory.slope, rule.key_pitch);
        self.of_values(self.dy, &memory.state, &mut memory.dy_state);
        if rule.head.corrects {
            self.of_values(&memory.dw, &memory.state, &mut memory.dw_state);
        }
        self.of_values(u, &memory.slope, &mut memory.u_slope);
        let whole = dispatch(|| dot(self.state, slope));
        self.decays(memory, whole);
        self.gates(memory, &mut gradients.g[start..start + count]);
        let dq = &mut gradients.q[start * keys..][..count * keys];
        let dk = &mut gradients.k[start * keys..][..count * keys];
        self.keys(memory, dq, dk);
        // To the state before.
        let decay = chunk.whole();
        dispatch(|| slope.iter_mut().for_each(|s| *s = *s * decay));
        self.scaled(&rule.q, W::ONE, &mut memory.scaled);
        chunk.add_outer(rule, &memory.scaled, self.dy, slope);
        if rule.head.corrects {
            self.scaled(&rule.k, W::ZERO - W::ONE, &mut memory.scaled);
            chunk.add_outer(rule, &memory.scaled, &memory.dw, slope);
        }
    }

    /// The gradients of what is learnt, and of what was wrong: the triangular system, transposed.
    fn unlearn(&self, slope: &[W], du: &mut [W], dw: &mut [W]) {
        let Back { rule, chunk, .. } = *self;
        let (count, pitch) = (chunk.count, rule.value_pitch);
        let of_end = Block {
            m: count,
            n: rule.values(),
            k: rule.keys(),
            a: &chunk.kept,
            a_rows: rule.key_pitch,
            a_columns: 1,
            b: slope,
            b_rows: pitch,
        };
        of_end.write(du, pitch, false);
        // Sums over steps from `first` on, of rows of `from` by columns of a matrix.
        let upper = |matrix: &[W], rows: Range<usize>, first: usize, from: &[W], to: &mut [W]| {
            let product = Block {
                m: rows.len(),
                n: rule.values(),
                k: count - first,
                a: &matrix[first * STEPS + rows.start..],
                a_rows: 1,
                a_columns: STEPS,
                b: &from[first * pitch..],
                b_rows: pitch,
            };
            product.write(&mut to[rows.start * pitch..], pitch, true);
        };
        let beta = chunk.rows(rule.head.beta, 1);
        for first in (0..count).step_by(CUT).rev() {
            let end = count.min(first + CUT);
            if end < count {
                upper(&chunk.seen, first..end, end, self.dy, du);
            }
            if rule.head.corrects && end < count {
                upper(&chunk.known, first..end, end, dw, du);
            }
            dispatch(|| {
                for t in (first..end).rev() {
                    let du = &mut du[t * pitch..][..pitch];
                    for s in t..end {
                        add_scaled(du, chunk.seen[s * STEPS + t], &self.dy[s * pitch..][..pitch]);
                    }
                    if rule.head.corrects {
                        for s in t + 1..end {
                            add_scaled(du, chunk.known[s * STEPS + t], &dw[s * pitch..][..pitch]);
                        }
                    }
                    scale_into(&mut dw[t * pitch..][..pitch], beta[t], du);
                }
            });
        }
    }

    /// Products of rows of values with a state that has a row for each value.
    fn of_values(&self, rows: &[W], state: &[W], to: &mut [W]) {
        let Back { rule, chunk, .. } = *self;
        let product = Block {
            m: chunk.count,
            n: rule.keys(),
            k: rule.values(),
            a: rows,
            a_rows: rule.value_pitch,
            a_columns: 1,
            b: state,
            b_rows: rule.key_pitch,
        };
        product.write(to, rule.key_pitch, false);
    }

    /// `e`, `f`, and the gradients of decays; `whole` is that of the first state's decay to behind the
    /// last step, by way of the last state.
    fn decays(&self, memory: &mut Memory<W>, whole: W) {
        let Back { rule, chunk, .. } = *self;
        let (count, pitch) = (chunk.count, rule.value_pitch);
        let by_learnt = |rows: &[W], to: &mut [W]| {
            let product = Block {
                m: count,
                n: count,
                k: rule.values(),
                a: rows,
                a_rows: pitch,
                a_columns: 1,
                b: &memory.turned_u,
                b_rows: STEPS,
            };
            product.write(to, STEPS, false);
        };
        by_learnt(self.dy, &mut memory.f);
        if rule.head.corrects {
            by_learnt(&memory.dw, &mut memory.e);
        }
        let (keys, width) = (rule.keys(), rule.key_pitch);
        let (q, k) = (chunk.rows(&rule.q, width), chunk.rows(&rule.k, width));
        for t in 0..count {
            for j in 0..STEPS {
                let at = t * STEPS + j;
                let mut ddecay = W::ZERO;
                if j < t {
                    ddecay = memory.f[at] * chunk.queries_by_keys[at];
                    if rule.head.corrects {
                        ddecay = ddecay - memory.e[at] * chunk.keys_by_keys[at];
                    }
                }
                memory.ddecays[at] = ddecay;
                let decay = chunk.decays[at];
                memory.f[at] = if j <= t { memory.f[at] * decay } else { W::ZERO };
                memory.e[at] = if j < t { memory.e[at] * decay } else { W::ZERO };
            }
            let (dy, q) = (&memory.dy_state[t * width..][..keys], &q[t * width..][..keys]);
            memory.dfrom_start[t] = dispatch(|| dot(dy, q));
        }
        let last = (count - 1) * STEPS;
        for t in 0..count {
            let of_key =
                |x: &[W]| dispatch(|| dot(&x[t * width..][..keys], &k[t * width..][..keys]));
            if rule.head.corrects {
                memory.dfrom_start[t] = memory.dfrom_start[t] - of_key(&memory.dw_state);
            }
            if t + 1 < count {
                memory.ddecays[last + t] = memory.ddecays[last + t] + of_key(&memory.u_slope);
            }
        }
        memory.dfrom_start[count - 1] = memory.dfrom_start[count - 1] + whole;
    }

    /// The gradients of gates, from those of all decays that they are in.
    fn gates(&self, memory: &Memory<W>, dg: &mut [W]) {
        let Chunk { count, ref decays, ref from_start, .. } = *self.chunk;
        for (i, dg) in dg.iter_mut().enumerate() {
            // What is left just before this gate of the steps before it, and of the first state.
            let (before, start) = match i.checked_sub(1) {
                Some(above) => (&decays[above * STEPS..][..i], from_start[above]),
                None => (&[][..], W::ONE),
            };
            let mut sum = W::ZERO;
            for t in i..count {
                let mut of_step = start * memory.dfrom_start[t];
                for (&decay, &slope) in before.iter().zip(&memory.ddecays[t * STEPS..]) {
                    of_step = of_step + decay * slope;
                }
                sum = sum + decays[t * STEPS + i] * of_step;
            }
            *dg = *dg + sum;
        }
    }

    /// Adds the gradients of queries and keys.
    fn keys(&self, memory: &mut Memory<W>, dq: &mut [W], dk: &mut [W]) {
        let Back { rule, chunk, .. } = *self;
        let (keys, pitch, count) = (rule.keys(), rule.key_pitch, chunk.count);
        let (q, k) = (chunk.rows(&rule.q, pitch), chunk.rows(&rule.k, pitch));
        let Memory { dy_state, dw_state, u_slope, e, f, .. } = memory;
        let last = &chunk.decays[(count - 1) * STEPS..];
        dispatch(|| {
            for t in 0..count {
                let row = t * pitch..(t + 1) * pitch;
                let (decay, kept) = (chunk.from_start[t], last[t]);
                dy_state[row.clone()].iter_mut().for_each(|x| *x = *x * decay);
                let both = u_slope[row.clone()].iter_mut().zip(&dw_state[row]);
                if rule.head.corrects {
                    both.for_each(|(to, &x)| *to = *to * kept - x * decay);
                } else {
                    both.for_each(|(to, _)| *to = *to * kept);
                }
            }
        });
        if rule.head.corrects {
            e.iter_mut().for_each(|e| *e = W::ZERO - *e);
        }
        // Only what is before a step, or behind it: zeros elsewhere would meet infinities.
        for first in (0..count).step_by(CUT) {
            let rows = first..count.min(first + CUT);
            self.before(f, k, &rows, true, dy_state);
            self.behind(f, q, &rows, true, u_slope);
            if rule.head.corrects {
                self.before(e, k, &rows, false, u_slope);
                self.behind(e, k, &rows, false, u_slope);
            }
        }
        for (to, from) in [(dq, &*dy_state), (dk, &*u_slope)] {
            for (to, from) in to.chunks_exact_mut(keys).zip(from.chunks_exact(pitch)) {
                for (to, &from) in to.iter_mut().zip(from) {
                    *to = *to + from;
                }
            }
        }
    }

    /// Adds to some rows what a matrix has of the steps before them, and of themselves if `own`.
    fn before(&self, matrix: &[W], from: &[W], rows: &Range<usize>, own: bool, to: &mut [W]) {
        let pitch = self.rule.key_pitch;
        let product = Block {
            m: rows.len(),
            n: self.rule.keys(),
            k: rows.start,
            a: &matrix[rows.start * STEPS..],
            a_rows: STEPS,
            a_columns: 1,
            b: from,
            b_rows: pitch,
        };
        product.write(&mut to[rows.start * pitch..], pitch, true);
        dispatch(|| {
            for t in rows.clone() {
                for j in rows.start..t + own as usize {
                    let row = &from[j * pitch..][..pitch];
                    add_scaled(&mut to[t * pitch..][..pitch], matrix[t * STEPS + j], row);
                }
            }
        });
    }

    /// As [`Back::before`], of the transposed matrix and the steps behind them.
    fn behind(&self, matrix: &[W], from: &[W], rows: &Range<usize>, own: bool, to: &mut [W]) {
        let (pitch, count) = (self.rule.key_pitch, self.chunk.count);
        if rows.end < count {
            let product = Block {
                m: rows.len(),
                n: self.rule.keys(),
                k: count - rows.end,
                a: &matrix[rows.end * STEPS + rows.start..],
                a_rows: 1,
                a_columns: STEPS,
                b: &from[rows.end * pitch..],
                b_rows: pitch,
            };
            product.write(&mut to[rows.start * pitch..], pitch, true);
        }
        dispatch(|| {
            for j in rows.clone() {
                for t in j + !own as usize..rows.end {
                    let row = &from[t * pitch..][..pitch];
                    add_scaled(&mut to[j * pitch..][..pitch], matrix[t * STEPS + j], row);
                }
            }
        });
    }

    /// This chunk's rows by what is left of the first state.
    fn scaled(&self, rows: &[W], by: W, to: &mut [W]) {
        let pitch = self.rule.key_pitch;
        let rows = self.chunk.rows(rows, pitch);
        dispatch(|| {
            let both = to.chunks_exact_mut(pitch).zip(rows.chunks_exact(pitch));
            for ((to, row), &decay) in both.zip(&self.chunk.from_start) {
                scale_into(to, decay * by, row);
            }
        });
    }
}
