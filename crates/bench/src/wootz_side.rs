//! wootz's side of each row: operations into given memory through an encoder, chains and products
//! through lazy arrays whose memory comes from the cache.

use std::time::Instant;

use anyhow::{Result, bail};
use wootz::op::Op;
use wootz::quant::{Activations, Scheme};
use wootz::sample::{self, Sampler};
use wootz::{Array, DType, Device, Encoder, Mask, Workspace, ops, random};

use crate::rows::{Goal, Peer, Row};
use crate::table::Bytes;
use crate::training::step;
use crate::{Subject, THREADS};

/// How wootz runs a row; nothing while it cannot.
pub fn subject(row: &Row) -> Result<Option<Subject>> {
    wootz::set_threads(THREADS);
    match row.name {
        "qmv_fast" | "qmm_fast" => {
            return crate::quantized::wootz(row, Activations::Fast).map(Some);
        }
        "qmv_exact" | "qmm_exact" => {
            return crate::quantized::wootz(row, Activations::Exact).map(Some);
        }
        _ => {}
    }
    let dtype = match row.dtype {
        "f32" => DType::F32,
        "f16" => DType::F16,
        "bf16" => DType::BF16,
        other => bail!("unknown dtype {other}"),
    };
    let data = |seed: u64, shape: &[usize]| -> Result<Array> {
        let values = random::uniform(-1.0, 1.0, shape, dtype, Some(&random::key(seed)?))?;
        values.eval()?;
        Ok(values)
    };
    let square = |seed| data(seed, row.sizes);
    Ok(Some(match row.name {
        "softmax" => explicit(ops::Softmax, vec![square(1)?], &[row.sizes])?,
        "softmax_backward" => {
            let y = ops::softmax(&square(1)?, -1)?;
            y.eval()?;
            explicit(ops::SoftmaxBackward, vec![y, square(2)?], &[row.sizes])?
        }
        "rms_norm" => {
            let op = ops::RmsNorm::new(1e-5);
            explicit(op, vec![square(1)?, data(2, &row.sizes[1..])?], &[row.sizes])?
        }
        "rms_norm_backward" => {
            let op = ops::RmsNormBackward::new(1e-5);
            let inputs = vec![square(1)?, data(2, &row.sizes[1..])?, square(3)?];
            explicit(op, inputs, &[row.sizes, &row.sizes[1..]])?
        }
        "layer_norm" => {
            let op = ops::LayerNorm::new(1e-5, true, true);
            let inputs = vec![square(1)?, data(2, &row.sizes[1..])?, data(3, &row.sizes[1..])?];
            explicit(op, inputs, &[row.sizes])?
        }
        "layer_norm_backward" => {
            let op = ops::LayerNormBackward::new(1e-5, true, true);
            let inputs = vec![square(1)?, data(2, &row.sizes[1..])?, square(3)?];
            explicit(op, inputs, &[row.sizes, &row.sizes[1..], &row.sizes[1..]])?
        }
        "chain8" => {
            let x = square(1)?;
            lazy(move || {
                let half = |y: Array| Ok(ops::maximum((y + 0.5) * 1.5, &x)? + 0.25);
                half(half(x.clone())?)
            })
        }
        "chain_exp_tanh" => {
            let x = square(1)?;
            lazy(move || Ok((ops::exp(&x * 0.5)? + 0.25).tanh()? * &x))
        }
        "matmul" => {
            let (a, b) = (data(1, &row.sizes[..2])?, data(2, &row.sizes[1..])?);
            lazy(move || ops::matmul(&a, &b))
        }
        "quantize" => {
            let (w, scheme) = (square(1)?, Scheme::new("affine", Some(64), Some(4))?);
            let shapes = [(8, DType::U32), (64, dtype), (64, dtype)];
            let outputs = shapes.map(|(per, dtype)| ([row.sizes[0], row.sizes[1] / per], dtype));
            let op = ops::Quantize { scheme };
            explicit_with(
                op,
                vec![w],
                &outputs.each_ref().map(|(shape, dtype)| (&shape[..], *dtype)),
            )?
        }
        "attention" => {
            let [q, k, v] = [square(1)?, square(2)?, square(3)?];
            lazy(move || ops::scaled_dot_product_attention(&q, &k, &v, 0.125, Mask::Causal, None))
        }
        "attention_train" => {
            let inputs = [square(1)?, square(2)?, square(3)?];
            let dout = square(4)?;
            let attend = |x: &[Array]| {
                let y = ops::scaled_dot_product_attention(
                    &x[0],
                    &x[1],
                    &x[2],
                    0.125,
                    Mask::Causal,
                    None,
                );
                Ok(vec![y?])
            };
            Box::new(move |reps| {
                best(reps, || {
                    let (outputs, gradients) =
                        wootz::vjp(attend, &inputs, std::slice::from_ref(&dout))?;
                    wootz::eval(outputs.iter().chain(&gradients))
                })
            })
        }
        "attention_decode" => {
            let (q, k, v) = (data(1, &[1, row.sizes[1], 1, row.sizes[3]])?, square(2)?, square(3)?);
            // A short one is over before a team is awake, and caches have settled after some.
            let times = if row.sizes[2] < 1024 { 50 } else { 10 };
            let attend = move || {
                ops::scaled_dot_product_attention(&q, &k, &v, 0.125, Mask::None, None)?.eval()
            };
            Box::new(move |reps| best(times * reps, &attend))
        }
        "cross_entropy_train" => {
            let logits = [square(1)?];
            let classes = row.sizes[1] as i32;
            let labels: Vec<i32> = (0..row.sizes[0] as i32).map(|i| i * 7919 % classes).collect();
            let labels = Array::from_slice(&labels, &row.sizes[..1])?;
            let g = data(2, &row.sizes[..1])?;
            Box::new(move |reps| {
                best(reps, || {
                    let loss = |x: &[Array]| Ok(vec![ops::cross_entropy(&x[0], &labels)?]);
                    let (outputs, gradients) = wootz::vjp(loss, &logits, std::slice::from_ref(&g))?;
                    wootz::eval(outputs.iter().chain(&gradients))
                })
            })
        }
        "conv2d" | "conv2d_depthwise" => {
            let [height, width, from, to, side] = <[usize; 5]>::try_from(row.sizes)?;
            let groups = if row.name == "conv2d" { 1 } else { from };
            let x = data(1, &[1, height, width, from])?;
            let weight = data(2, &[to, side, side, from / groups])?;
            lazy(move || ops::conv2d(&x, &weight, 1, side / 2, 1, groups))
        }
        "sample_top_p" => {
            let logits = ops::multiply(random::normal(row.sizes, dtype, 0.0, 1.0, None)?, 3.0)?;
            logits.eval()?;
            let key = random::key(7)?;
            let sampler = Sampler { temperature: 0.8, top_p: 0.9, ..Sampler::default() };
            let draw = wootz::compile(move |x: &[Array]| {
                let logprobs = sample::log_probabilities(&x[0])?;
                Ok(vec![sampler.sample(&logprobs, Some(&x[1]))?])
            });
            let arguments = [logits, key];
            Box::new(move |reps| best(20 * reps, || draw.call(&arguments).map(drop)))
        }
        "sort" => {
            let x = square(1)?;
            lazy(move || ops::sort(&x, -1))
        }
        "argsort" => {
            let x = square(1)?;
            lazy(move || ops::argsort(&x, -1))
        }
        "topk" => {
            let (x, k) = (data(1, &row.sizes[..1])?, row.sizes[1]);
            lazy(move || ops::topk(&x, k, -1))
        }
        "rope" => {
            let x = ops::swapaxes(&square(1)?, 1, 2)?;
            let dims = row.sizes[3];
            lazy(move || ops::rope(&x, dims, false, ops::RopeBase::Base(10000.0), 1.0, 0))
        }
        "mlp_step" | "mlp_step_compiled" | "gpt_step" | "gpt_step_compiled" => {
            let mut step = step(row, dtype)?;
            Box::new(move |reps| best(reps, || step.run()))
        }
        // Kernels that cannot be fused, because a view lies between them; in the first of these the
        // views are nodes that count, too.
        "replay_node" | "replay_kernel" => {
            let kernels = row.sizes[0] / if row.name == "replay_node" { 2 } else { 1 };
            let chain = wootz::compile(move |x: &[Array]| {
                let shapes: [&[usize]; 2] = [&[64], &[8, 8]];
                let other = [x[1].reshape(shapes[0])?, x[1].clone()];
                let add = |y: Array, i: usize| ops::add(y.reshape(shapes[i % 2])?, &other[i % 2]);
                Ok(vec![(0..kernels).try_fold(x[0].clone(), add)?])
            });
            replays(chain, Some(kernels), &data)?
        }
        "replay_fused_node" => {
            let count = row.sizes[0];
            let add =
                move |x: &[Array]| (0..count).try_fold(x[0].clone(), |y, _| ops::add(y, &x[1]));
            replays(wootz::compile(move |x: &[Array]| Ok(vec![add(x)?])), None, &data)?
        }
        // Nodes of two inputs; what they hold is let go outside the time taken.
        "lazy_node" => {
            let (x, y) = (data(1, &[4])?, data(2, &[4])?);
            let count = row.sizes[0];
            Box::new(move |reps| {
                let mut best = f64::INFINITY;
                for _ in 0..50 * reps {
                    let mut nodes = Vec::with_capacity(count + 1);
                    nodes.push(x.clone());
                    let start = Instant::now();
                    for i in 0..count {
                        nodes.push(ops::add(&nodes[i], &y)?);
                    }
                    best = best.min(start.elapsed().as_secs_f64());
                }
                Ok(best)
            })
        }
        _ => return Ok(None),
    }))
}

/// Bytes that wootz takes at most for one run of a row, where that is compared, and those of its peer if
/// that is wootz itself.
pub fn peak_bytes(row: &Row) -> Result<Bytes> {
    let peer = row.goals.iter().find_map(|goal| match goal {
        Goal::Memory(peer, _) => Some(*peer),
        _ => None,
    });
    Ok(Bytes {
        own: peer.map(|_| peak_of(row)).transpose()?,
        peer: (peer == Some(Peer::Single)).then(|| peak_of(&row.single())).transpose()?,
    })
}

fn peak_of(row: &Row) -> Result<f64> {
    let cpu = Device::cpu();
    let before = cpu.memory().active;
    let mut step = step(row, if row.dtype == "bf16" { DType::BF16 } else { DType::F32 })?;
    (0..3).try_for_each(|_| step.run())?;
    cpu.reset_peak_memory();
    step.run()?;
    Ok((cpu.memory().peak - before) as f64)
}

/// Replays of a function of two small arrays, which must be so many kernels if that is told.
fn replays<F: Fn(&[Array]) -> wootz::Result<Vec<Array>> + 'static>(
    function: wootz::Compiled<F>,
    kernels: Option<usize>,
    data: &dyn Fn(u64, &[usize]) -> Result<Array>,
) -> Result<Subject> {
    let arguments = [data(1, &[8, 8])?, data(2, &[8, 8])?];
    let planned = function.plan(&arguments)?.kernels;
    if kernels.is_some_and(|kernels| kernels != planned) {
        bail!("{planned} kernels instead of {kernels:?}");
    }
    Ok(Box::new(move |reps| best(50 * reps, || function.call(&arguments).map(drop))))
}

/// An operation into memory that is there already.
fn explicit(op: impl Op, inputs: Vec<Array>, outputs: &[&[usize]]) -> Result<Subject> {
    let dtype = inputs[0].dtype();
    let outputs: Vec<_> = outputs.iter().map(|&shape| (shape, dtype)).collect();
    explicit_with(op, inputs, &outputs)
}

/// The same with outputs of any dtypes.
fn explicit_with(
    op: impl Op,
    inputs: Vec<Array>,
    outputs: &[(&[usize], DType)],
) -> Result<Subject> {
    let device = Device::cpu();
    let outputs = outputs
        .iter()
        .map(|&(shape, dtype)| Array::empty_on(shape, dtype, &device))
        .collect::<wootz::Result<Vec<_>>>()?;
    let metas: Vec<_> = inputs.iter().map(Array::meta).collect();
    let mut workspace = Workspace::new(&device, op.scratch(&metas, false))?;
    Ok(Box::new(move |reps| {
        best(reps, || {
            let mut encoder = Encoder::new(&device)?;
            let inputs: Vec<&Array> = inputs.iter().collect();
            let outputs: Vec<&Array> = outputs.iter().collect();
            encoder.run(&op, &inputs, &outputs, &mut workspace)?;
            encoder.submit()?.wait()
        })
    }))
}

/// A lazy expression, evaluated.
fn lazy(build: impl Fn() -> wootz::Result<Array> + 'static) -> Subject {
    Box::new(move |reps| best(reps, || build()?.eval()))
}

fn best(reps: usize, mut run: impl FnMut() -> wootz::Result<()>) -> Result<f64> {
    let mut best = f64::INFINITY;
    for _ in 0..reps {
        let start = Instant::now();
        run()?;
        best = best.min(start.elapsed().as_secs_f64());
    }
    Ok(best)
}
