//! The gated delta rule on the CPU: by chunks of steps where there are many, else step by step.

mod chunked;
mod lent;
mod walk;

use bytemuck::{cast_slice_mut, fill_zeroes};

use self::lent::{Lent, Numbers, widened};
use super::super::{Element, for_dtype};
use super::Sizes;
use crate::cpu::{CpuCall, CpuOutput, threads};
use crate::error::Result;

pub(super) fn forward(call: &mut CpuCall<'_>, corrects: bool) -> Result<()> {
    for_dtype!(call, forward_as(corrects))
}

pub(super) fn backward(call: &mut CpuCall<'_>, corrects: bool) -> Result<()> {
    for_dtype!(call, backward_as(corrects))
}

fn sizes(call: &CpuCall<'_>) -> Sizes {
    Sizes::new(&(0..call.inputs.len()).map(|input| call.meta(input)).collect::<Vec<_>>())
}

/// The inputs of all heads.
struct Inputs<'a, T: Element> {
    sizes: Sizes,
    corrects: bool,
    q: &'a [T],
    k: &'a [T],
    v: &'a [T],
    g: &'a [T::Wide],
    beta: &'a [T::Wide],
}

impl<'a, T: Element> Inputs<'a, T> {
    fn new(call: &CpuCall<'a>, corrects: bool) -> Result<Inputs<'a, T>> {
        Ok(Inputs {
            sizes: sizes(call),
            corrects,
            q: call.input(0)?,
            k: call.input(1)?,
            v: call.input(2)?,
            g: call.input(3)?,
            beta: call.input(4)?,
        })
    }

    /// The inputs of a value head, counted through the batch.
    fn head(&self, head: usize) -> Head<'a, T::Wide> {
        let Sizes { steps, keys, values, gates, .. } = self.sizes;
        let key_head = head / self.sizes.shared();
        Head {
            sizes: self.sizes,
            corrects: self.corrects,
            q: widened(part(self.q, key_head, steps * keys)),
            k: widened(part(self.k, key_head, steps * keys)),
            v: widened(part(self.v, head, steps * values)),
            g: part(self.g, head, steps * gates),
            beta: part(self.beta, head, steps),
        }
    }
}

/// Piece `i` of equal ones.
fn part<T>(x: &[T], i: usize, length: usize) -> &[T] {
    &x[i * length..(i + 1) * length]
}

/// The inputs of one head.
struct Head<'a, W> {
    sizes: Sizes,
    corrects: bool,
    q: Numbers<'a, W>,
    k: Numbers<'a, W>,
    v: Numbers<'a, W>,
    g: &'a [W],
    beta: &'a [W],
}

fn forward_as<T: Element>(call: &mut CpuCall<'_>, corrects: bool) -> Result<()> {
    let inputs = Inputs::<T>::new(call, corrects)?;
    let Sizes { steps, keys, values, .. } = inputs.sizes;
    // The state may be in the memory of the next one.
    let state = if call.aliased(5) { None } else { Some(call.input::<T::Wide>(5)?) };
    let (y, next) = call.outputs2::<T, T::Wide>()?;
    if inputs.sizes.none() {
        fill_zeroes(y);
        return Ok(());
    }
    let run = |head: usize, y: &mut [T], next: &mut [T::Wide]| {
        let inputs = inputs.head(head);
        if let Some(state) = state {
            next.copy_from_slice(part(state, head, values * keys));
        }
        let forward = if chunked::fits(&inputs) { chunked::forward } else { walk::forward };
        if size_of::<T>() == size_of::<T::Wide>() {
            return forward(&inputs, next, cast_slice_mut(y));
        }
        let mut results = Lent::zeros(steps * values);
        forward(&inputs, next, &mut results);
        T::narrow_slice(&results, y);
    };
    if steps == 0 {
        threads::chunks_mut(next, values * keys, |head, next| run(head, &mut [], next));
    } else {
        threads::chunks2_mut(y, steps * values, next, values * keys, run);
    }
    Ok(())
}

/// Where the gradients of a head are summed up.
struct Gradients<'a, W> {
    q: &'a mut [W],
    k: &'a mut [W],
    v: &'a mut [W],
    g: &'a mut [W],
    beta: &'a mut [W],
}

fn backward_as<T: Element>(call: &mut CpuCall<'_>, corrects: bool) -> Result<()> {
    let inputs = Inputs::<T>::new(call, corrects)?;
    let Sizes { steps, keys, values, gates, .. } = inputs.sizes;
    let dy = call.input::<T>(6)?;
    let (state, dnext) = (call.input::<T::Wide>(5)?, call.input::<T::Wide>(7)?);
    let shared = inputs.sizes.shared();
    if inputs.sizes.none() || steps == 0 {
        for CpuOutput { bytes, .. } in &mut call.outputs {
            fill_zeroes(bytes);
        }
        call.output::<T::Wide>(5)?.copy_from_slice(dnext);
        return Ok(());
    }
    // A task is a key head with all heads that share it: gradients of keys and queries sum over
    // them.
    let (narrow, wide) = (size_of::<T>(), size_of::<T::Wide>());
    let chunks = [
        narrow * steps * keys,
        narrow * steps * keys,
        narrow * shared * steps * values,
        wide * shared * steps * gates,
        wide * shared * steps,
        wide * shared * values * keys,
    ];
    let outputs = call.outputs.iter_mut().map(|output| &mut *output.bytes);
    threads::chunks_all_mut(outputs.zip(chunks), |key_head, outputs| {
        let [q_out, k_out, v_out, g_out, beta_out, state_out] = outputs else { return };
        let (mut dq, mut dk, mut dv) = (
            Lent::zeros(steps * keys),
            Lent::zeros(steps * keys),
            Lent::zeros(shared * steps * values),
        );
        let dg = cast_slice_mut::<u8, T::Wide>(g_out);
        let dbeta = cast_slice_mut::<u8, T::Wide>(beta_out);
        let dstate = cast_slice_mut::<u8, T::Wide>(state_out);
        fill_zeroes(dg);
        fill_zeroes(dbeta);
        for i in 0..shared {
            let head = key_head * shared + i;
            let mut gradients = Gradients {
                q: &mut dq,
                k: &mut dk,
                v: &mut dv[i * steps * values..][..steps * values],
                g: &mut dg[i * steps * gates..][..steps * gates],
                beta: &mut dbeta[i * steps..][..steps],
            };
            let dy = widened(part(dy, head, steps * values));
            let ends = [state, dnext].map(|x| part(x, head, values * keys));
            let dstate = &mut dstate[i * values * keys..][..values * keys];
            let head = inputs.head(head);
            let backward = if chunked::fits(&head) { chunked::backward } else { walk::backward };
            backward(&head, &dy, ends, &mut gradients, dstate);
        }
        T::narrow_slice(&dq, cast_slice_mut(q_out));
        T::narrow_slice(&dk, cast_slice_mut(k_out));
        T::narrow_slice(&dv, cast_slice_mut(v_out));
    });
    Ok(())
}
