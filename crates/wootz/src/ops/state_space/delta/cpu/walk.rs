//! The gated delta rule step by step: a block of the state's rows side by side in the lanes of
//! vectors, so that sums over the keys are plain loops.

use super::super::super::Wide;
use super::super::{CHUNK, Sizes};
use super::lent::Lent;
use super::{Gradients, Head, part};

/// Rows of a block.
const ROWS: usize = 32;

/// One number for each row of a block.
type Rows<W> = [W; ROWS];

/// Results and the next state of a head; `state` holds the first one.
pub(super) fn forward<W: Wide>(head: &Head<'_, W>, state: &mut [W], results: &mut [W]) {
    let Sizes { steps, keys, values, .. } = head.sizes;
    let mut block = Lent::<Rows<W>>::zeros(keys);
    for first in (0..values).step_by(ROWS) {
        let rows = ROWS.min(values - first);
        load_block(state, first, rows, keys, &mut block);
        W::run(Forward {
            head,
            steps: 0..steps,
            first,
            rows,
            state: &mut block,
            results: Some(results),
            states: None,
        });
        store_block(&block, first, rows, state);
    }
}

impl<W: Wide> Head<'_, W> {
    /// The key, the query and the gates of a step.
    #[inline(always)]
    fn step(&self, step: usize) -> (&[W], &[W], Gates<'_, W>) {
        let Sizes { keys, gates, .. } = self.sizes;
        let gates = part(self.g, step, gates);
        (part(&self.k, step, keys), part(&self.q, step, keys), Gates { gates, keys })
    }
}

impl<W: Wide> Head<'_, W> {
    /// What there is to learn about the values.
    #[inline(always)]
    fn wrong(&self, v: &Rows<W>, known: &Rows<W>) -> Rows<W> {
        let mut wrong = *v;
        if self.corrects {
            for row in 0..ROWS {
                wrong[row] = wrong[row] - known[row];
            }
        }
        wrong
    }
}

/// The gates of a step, by key.
#[derive(Clone, Copy)]
struct Gates<'a, W> {
    gates: &'a [W],
    keys: usize,
}

impl<W: Copy> Gates<'_, W> {
    #[inline(always)]
    fn of(&self, key: usize) -> W {
        self.gates[if self.gates.len() == self.keys { key } else { 0 }]
    }
}

/// The numbers of a block's rows, `stride` apart; zeros for rows behind the last.
#[inline(always)]
fn load<W: Wide>(x: &[W], first: usize, rows: usize, stride: usize) -> Rows<W> {
    let mut block = [W::ZERO; ROWS];
    for (row, value) in block.iter_mut().enumerate().take(rows) {
        *value = x[first + row * stride];
    }
    block
}

/// A matrix of a row for each value as blocks: for each key the rows side by side.
fn load_block<W: Wide>(
    matrix: &[W],
    first: usize,
    rows: usize,
    keys: usize,
    block: &mut [Rows<W>],
) {
    for (key, block) in block.iter_mut().enumerate() {
        *block = load(matrix, first * keys + key, rows, keys);
    }
}

fn store_block<W: Wide>(block: &[Rows<W>], first: usize, rows: usize, matrix: &mut [W]) {
    let keys = block.len();
    for (key, block) in block.iter().enumerate() {
        for (row, &value) in block.iter().enumerate().take(rows) {
            matrix[(first + row) * keys + key] = value;
        }
    }
}

/// One step of a block's state: forgets, and tells what it knows of the values.
#[inline(always)]
fn decay<W: Wide>(state: &mut [Rows<W>], k: &[W], g: Gates<'_, W>) -> Rows<W> {
    let mut known = [W::ZERO; ROWS];
    for (key, (state, &k)) in state.iter_mut().zip(k).enumerate() {
        let g = g.of(key);
        for row in 0..ROWS {
            state[row] = state[row] * g;
            known[row] = known[row] + state[row] * k;
        }
    }
    known
}

/// Learns, and tells what the query sees.
#[inline(always)]
fn learn<W: Wide>(state: &mut [Rows<W>], k: &[W], q: &[W], learnt: &Rows<W>) -> Rows<W> {
    let mut seen = [W::ZERO; ROWS];
    for ((state, &k), &q) in state.iter_mut().zip(k).zip(q) {
        for row in 0..ROWS {
            state[row] = state[row] + k * learnt[row];
            seen[row] = seen[row] + state[row] * q;
        }
    }
    seen
}

#[inline(always)]
fn scaled<W: Wide>(mut x: Rows<W>, by: W) -> Rows<W> {
    x.iter_mut().for_each(|x| *x = *x * by);
    x
}

/// The sum over the rows of a block, by halves.
#[inline(always)]
fn total<W: Wide>(mut rows: Rows<W>) -> W {
    let mut half = ROWS / 2;
    while half > 0 {
        for row in 0..half {
            rows[row] = rows[row] + rows[row + half];
        }
        half /= 2;
    }
    rows[0]
}

/// Some steps of a block of rows. May keep the results, and the states before each step and behind
/// the last.
struct Forward<'a, 'h, W> {
    head: &'a Head<'h, W>,
    steps: std::ops::Range<usize>,
    first: usize,
    rows: usize,
    state: &'a mut [Rows<W>],
    results: Option<&'a mut [W]>,
    states: Option<&'a mut [Rows<W>]>,
}

impl<W: Wide> pulp::WithSimd for Forward<'_, '_, W> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: pulp::Simd>(self, _: S) {
        let Forward { head, steps, first, rows, state, mut results, mut states } = self;
        let (values, keys) = (head.sizes.values, state.len());
        for (i, step) in steps.enumerate() {
            if let Some(states) = &mut states {
                states[i * keys..][..keys].copy_from_slice(state);
            }
            let (k, q, g) = head.step(step);
            let v = load(&head.v, step * values + first, rows, 1);
            let known = decay(state, k, g);
            let wrong = head.wrong(&v, &known);
            let learnt = scaled(wrong, head.beta[step]);
            let seen = learn(state, k, q, &learnt);
            if let Some(results) = &mut results {
                results[step * values + first..][..rows].copy_from_slice(&seen[..rows]);
            }
        }
        if let Some(states) = &mut states {
            let last = states.len() - keys;
            states[last..].copy_from_slice(state);
        }
    }
}

/// Adds the gradients of a head, given its first state and the gradient of the last, and writes that
/// of the first.
pub(super) fn backward<W: Wide>(
    head: &Head<'_, W>,
    dy: &[W],
    [first_state, dnext]: [&[W]; 2],
    gradients: &mut Gradients<'_, W>,
    dstate: &mut [W],
) {
    let Sizes { steps, keys, values, .. } = head.sizes;
    let chunks = steps.div_ceil(CHUNK);
    let mut state = Lent::<Rows<W>>::zeros(keys);
    let mut slope = Lent::<Rows<W>>::zeros(keys);
    let mut starts = Lent::<Rows<W>>::zeros(chunks * keys);
    let mut states = Lent::<Rows<W>>::zeros((CHUNK + 1) * keys);
    for first in (0..values).step_by(ROWS) {
        let rows = ROWS.min(values - first);
        let walk = |chunk: usize, state: &mut [Rows<W>], states: Option<&mut [Rows<W>]>| {
            let steps = chunk * CHUNK..((chunk + 1) * CHUNK).min(steps);
            W::run(Forward { head, steps, first, rows, state, results: None, states });
        };
        load_block(first_state, first, rows, keys, &mut state);
        for chunk in 0..chunks {
            starts[chunk * keys..][..keys].copy_from_slice(&state);
            if chunk + 1 < chunks {
                walk(chunk, &mut state, None);
            }
        }
        load_block(dnext, first, rows, keys, &mut slope);
        for chunk in (0..chunks).rev() {
            state.copy_from_slice(&starts[chunk * keys..][..keys]);
            let count = CHUNK.min(steps - chunk * CHUNK);
            let states = &mut states[..(count + 1) * keys];
            walk(chunk, &mut state, Some(states));
            let slope = &mut slope[..];
            let start = chunk * CHUNK;
            W::run(Backward { head, start, first, rows, states, dy, slope, gradients });
        }
        store_block(&slope, first, rows, dstate);
    }
}

/// The steps of a chunk from the last to the first.
struct Backward<'a, 'h, 'g, W> {
    head: &'a Head<'h, W>,
    /// The first step of the chunk.
    start: usize,
    first: usize,
    rows: usize,
    /// The states before each step and behind the last.
    states: &'a [Rows<W>],
    dy: &'a [W],
    /// The gradient of the state.
    slope: &'a mut [Rows<W>],
    gradients: &'a mut Gradients<'g, W>,
}

impl<W: Wide> pulp::WithSimd for Backward<'_, '_, '_, W> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: pulp::Simd>(self, _: S) {
        let Backward { head, start, first, rows, states, dy, slope, gradients } = self;
        let (values, keys, gates) = (head.sizes.values, slope.len(), head.sizes.gates);
        for i in (0..states.len() / keys - 1).rev() {
            let step = start + i;
            let (before, after) = (part(states, i, keys), part(states, i + 1, keys));
            let (k, q, g) = head.step(step);
            let beta = head.beta[step];
            let v = load(&head.v, step * values + first, rows, 1);
            let dy = load(dy, step * values + first, rows, 1);
            let dq = &mut gradients.q[step * keys..][..keys];
            let dk = &mut gradients.k[step * keys..][..keys];
            // Through the result, and to what was learnt.
            let (mut dlearnt, mut known) = ([W::ZERO; ROWS], [W::ZERO; ROWS]);
            for key in 0..keys {
                let (g, k, q) = (g.of(key), k[key], q[key]);
                let mut seen = [W::ZERO; ROWS];
                for row in 0..ROWS {
                    slope[key][row] = slope[key][row] + dy[row] * q;
                    dlearnt[row] = dlearnt[row] + slope[key][row] * k;
                    known[row] = known[row] + before[key][row] * g * k;
                    seen[row] = dy[row] * after[key][row];
                }
                dq[key] = dq[key] + total(seen);
            }
            let wrong = head.wrong(&v, &known);
            let (mut learnt, mut dknown, mut dbeta) = (wrong, [W::ZERO; ROWS], dlearnt);
            for row in 0..ROWS {
                learnt[row] = wrong[row] * beta;
                dbeta[row] = dlearnt[row] * wrong[row];
                if head.corrects {
                    dknown[row] = W::ZERO - dlearnt[row] * beta;
                }
            }
            gradients.beta[step] = gradients.beta[step] + total(dbeta);
            for row in 0..rows {
                gradients.v[step * values + first + row] = dlearnt[row] * beta;
            }
            // Through what was known, and what was forgotten.
            for key in 0..keys {
                let (gate, k) = (g.of(key), k[key]);
                let (mut dkey, mut dgate) = ([W::ZERO; ROWS], [W::ZERO; ROWS]);
                for row in 0..ROWS {
                    let decayed = before[key][row] * gate;
                    dkey[row] = learnt[row] * slope[key][row] + dknown[row] * decayed;
                    let ddecayed = slope[key][row] + dknown[row] * k;
                    dgate[row] = ddecayed * before[key][row];
                    slope[key][row] = ddecayed * gate;
                }
                dk[key] = dk[key] + total(dkey);
                let place = step * gates + if gates == keys { key } else { 0 };
                gradients.g[place] = gradients.g[place] + total(dgate);
            }
        }
    }
}
