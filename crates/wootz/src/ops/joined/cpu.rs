//! Several products on the CPU: activations are rounded once, and the rows of all matrices are the tasks of one
//! hand-off to the team.

use bytemuck::Pod;
use half::{bf16, f16};
use smallvec::SmallVec;

use super::{Gate, Joined, Place};
use crate::array::{DType, Meta};
use crate::cpu::gemm::{Elements, GemmElement, MatrixRef, Plus, Product};
use crate::cpu::quant::{Activations, Weights, multiply_each};
use crate::cpu::simd::{self, Real};
use crate::cpu::tile::Storage;
use crate::cpu::{CpuCall, CpuInput, CpuOutput, typed};
use crate::error::{Error, Result};
use crate::op::Op;
use crate::ops::QuantizedMatmul;
use crate::ops::quantized::cpu::products;
use crate::quant::{Activations as Level, Scheme};

/// Elements that are widened at a time.
const CHUNK: usize = 64;

/// Bytes of scratch memory for products by themselves, and then for the results that a gate puts together.
fn sizes(joined: &Joined, inputs: &[&Meta]) -> [usize; 2] {
    let level = joined.activations;
    let own = joined.places().map(|place| match place.scheme {
        Some(scheme) => products::scratch_from(scheme, level, inputs, place.first),
        None => 0,
    });
    let own = own.max().unwrap_or(0).next_multiple_of(64);
    let rows = inputs[0].shape().get(1).copied().unwrap_or(0);
    let results = match (joined.gate, joined.places().next()) {
        (Some(_), Some(place)) => {
            let n = place.shape(inputs).get(1).copied().unwrap_or(0);
            2 * (rows * n * inputs[0].dtype.size()).next_multiple_of(64)
        }
        _ => 0,
    };
    [own, results]
}

pub(super) fn scratch(joined: &Joined, inputs: &[&Meta]) -> usize {
    sizes(joined, inputs).iter().sum()
}

pub(super) fn run(call: &mut CpuCall<'_>, joined: &Joined) -> Result<()> {
    match call.output_meta(0).dtype {
        DType::F32 => run_as::<f32>(call, joined),
        DType::F16 => run_as::<f16>(call, joined),
        DType::BF16 => run_as::<bf16>(call, joined),
        other => Err(Error::dtype(joined.name(), "x", "at most 32 bits", other)),
    }
}

fn run_as<T>(call: &mut CpuCall<'_>, joined: &Joined) -> Result<()>
where
    T: Storage<Wide = f32> + GemmElement + Pod + Send + Sync,
{
    let op = joined.name();
    let metas: SmallVec<[&Meta; 16]> = call.inputs.iter().map(|input| input.meta).collect();
    let [own, results] = sizes(joined, &metas);
    let got = call.scratch.len();
    let CpuCall { inputs, outputs, scratch, .. } = call;
    let Some((own, results)) =
        scratch.get_mut(..own + results).map(|memory| memory.split_at_mut(own))
    else {
        return Err(Error::argument(op, "workspace", format!("{} bytes", own + results), got));
    };
    let Some(by) = joined.gate else {
        let places = outputs.iter_mut().map(|output| typed(joined, output.bytes));
        let mut places = places.collect::<Result<SmallVec<[&mut [T]; 4]>>>()?;
        return multiply::<T>(joined, inputs, own, &mut places);
    };
    let Some(output) = outputs.first_mut() else { return Ok(()) };
    let output: &mut [T] = typed(joined, output.bytes)?;
    let (gate, up) = results.split_at_mut(results.len() / 2);
    let (gate, up) = (typed::<T>(joined, gate)?, typed::<T>(joined, up)?);
    let (gate, up) = (&mut gate[..output.len()], &mut up[..output.len()]);
    multiply::<T>(joined, inputs, own, &mut [&mut *gate, &mut *up])?;
    simd::run(Through { by, gate, up, output });
    Ok(())
}

/// Writes the products to their places.
fn multiply<T>(
    joined: &Joined,
    inputs: &[CpuInput<'_>],
    memory: &mut [u8],
    places: &mut [&mut [T]],
) -> Result<()>
where
    T: Storage<Wide = f32> + GemmElement + Pod + Send + Sync,
{
    let op = joined.name();
    let (level, x_meta) = (joined.activations, inputs[0].meta);
    let (m, k) = (x_meta.shape()[1], x_meta.shape()[2]);
    let none = SmallVec::new();
    let reader = CpuCall {
        op: joined,
        inputs: inputs.iter().map(same).collect(),
        outputs: none,
        scratch: &mut [],
    };
    let x = reader.input::<T>(0)?;
    // Matrices whose products are sums of integers, by number, are multiplied together if they want activations to lie
    // alike.
    let mut order = None;
    let mut integers: SmallVec<[(usize, Weights<'_>); 4]> = SmallVec::new();
    let mut others: SmallVec<[(usize, usize, Scheme); 4]> = SmallVec::new();
    for (number, Place { first, scheme, bias }) in joined.places().enumerate() {
        let n = places[number].len() / m.max(1);
        let Some(scheme) = scheme else {
            let (x, w) = (Elements::from(x), Elements::in_bytes(reader.bytes(first)?));
            let a = |_| MatrixRef { data: x, offset: 0, row_stride: k as isize, column_stride: 1 };
            let b = |_| MatrixRef { data: w, offset: 0, row_stride: 1, column_stride: k as isize };
            let bias = bias.map(|bias| reader.input::<T>(bias)).transpose()?;
            let data = Elements::from(bias.unwrap_or_default());
            // The same row for all.
            let c = |_| MatrixRef { data, offset: 0, row_stride: 0, column_stride: 1 };
            let plus = bias.map(|_| Plus { alpha: 1.0, beta: 1.0, c: &c });
            Product { batch: 1, m, n, k, rows: m, a: &a, b: &b, plus }.write(places[number])?;
            continue;
        };
        match products::integers(&reader, scheme, level, first, [m, n, k])? {
            Some(weights) if *order.get_or_insert(weights.order(level)) == weights.order(level) => {
                integers.push((number, weights));
            }
            _ => others.push((number, first, scheme)),
        }
    }
    // Activations that are not finite are not integers, either.
    let rounded = match order {
        None => None,
        Some(order) => Activations::round(op, (level, order), x, k, memory)?,
    };
    if let Some(x) = rounded {
        let mut wanted = SmallVec::<[(&Weights<'_>, &mut [T]); 4]>::new();
        for (number, place) in places.iter_mut().enumerate() {
            let found = integers.iter().find(|(of, _)| *of == number);
            wanted.extend(found.map(|(_, weights)| (weights, &mut **place)));
        }
        multiply_each(op, &x, &mut wanted)?;
    } else {
        for (number, Place { first, scheme, .. }) in joined.places().enumerate() {
            if let (Some(scheme), true) = (scheme, integers.iter().any(|(of, _)| *of == number)) {
                others.push((number, first, scheme));
            }
        }
    }
    for (number, first, scheme) in others {
        alone(joined, inputs, memory, (first, scheme, level), places[number])?;
    }
    for (place, products) in joined.places().zip(places) {
        if let (Some(_), Some(bias)) = (place.scheme, place.bias) {
            simd::run(AddBias { bias: reader.input::<T>(bias)?, products });
        }
    }
    Ok(())
}

/// One product as the operation for one does it.
fn alone<T: Pod>(
    joined: &Joined,
    inputs: &[CpuInput<'_>],
    scratch: &mut [u8],
    (first, scheme, activations): (usize, Scheme, Level),
    place: &mut [T],
) -> Result<()> {
    let op = QuantizedMatmul { scheme, transpose: true, activations };
    let m = inputs[0].meta.shape()[1];
    let meta = Meta::new(joined.name(), &[1, m, place.len() / m.max(1)], inputs[0].meta.dtype)?;
    let weights = &inputs[first..first + scheme.arrays()];
    let output = CpuOutput { meta: &meta, bytes: bytemuck::cast_slice_mut(place) };
    op.cpu(&mut CpuCall {
        op: &op,
        inputs: inputs[..1].iter().chain(weights).map(same).collect(),
        outputs: smallvec::smallvec![output],
        scratch,
    })
}

fn same<'a>(input: &CpuInput<'a>) -> CpuInput<'a> {
    CpuInput { meta: input.meta, bytes: input.bytes, alias: input.alias }
}

/// Adds a bias to every row of products, which are rounded already.
struct AddBias<'a, T> {
    bias: &'a [T],
    products: &'a mut [T],
}

impl<T: Storage<Wide = f32>> pulp::WithSimd for AddBias<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: pulp::Simd>(self, _: S) {
        let AddBias { bias, products } = self;
        let (mut a, mut b) = ([0f32; CHUNK], [0f32; CHUNK]);
        for row in products.chunks_mut(bias.len().max(1)) {
            for (bias, products) in bias.chunks(CHUNK).zip(row.chunks_mut(CHUNK)) {
                T::widen_slice(products, &mut a[..products.len()]);
                T::widen_slice(bias, &mut b[..bias.len()]);
                a.iter_mut().zip(&b).for_each(|(product, bias)| *product += bias);
                T::narrow_slice(&a[..products.len()], products);
            }
        }
    }
}

/// What a gate lets through.
struct Through<'a, T> {
    by: Gate,
    gate: &'a [T],
    up: &'a [T],
    output: &'a mut [T],
}

impl<T: Storage<Wide = f32>> pulp::WithSimd for Through<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: pulp::Simd>(self, _: S) {
        let Through { by, gate, up, output } = self;
        let (mut a, mut b) = ([0f32; CHUNK], [0f32; CHUNK]);
        let parts = gate.chunks(CHUNK).zip(up.chunks(CHUNK)).zip(output.chunks_mut(CHUNK));
        for ((gate, up), output) in parts {
            T::widen_slice(gate, &mut a[..gate.len()]);
            T::widen_slice(up, &mut b[..up.len()]);
            match by {
                Gate::Silu => {
                    a.iter_mut().zip(&b).for_each(|(x, up)| *x = *x * Real::sigmoid(*x) * up)
                }
                Gate::GeluTanh => a.iter_mut().zip(&b).for_each(|(x, up)| *x = gelu_tanh(*x) * up),
            }
            T::narrow_slice(&a[..gate.len()], output);
        }
    }
}

/// As [`nn::gelu_approx`](crate::nn::gelu_approx).
#[inline(always)]
fn gelu_tanh(x: f32) -> f32 {
    x * Real::sigmoid(1.595_769_1 * (x + 0.044715 * (x * x * x)))
}
