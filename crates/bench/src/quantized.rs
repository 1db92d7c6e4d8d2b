//! Products with quantized weights: wootz's side at both levels, and candle's.

use anyhow::{Context, Result, bail};
use candle_core::quantized::{GgmlDType, QMatMul, ggml_file};
use candle_core::{Device as CandleDevice, Module, Tensor};
use wootz::op::Op;
use wootz::quant::{Activations, Format, Scheme};
use wootz::{Array, DType, Device, Encoder, Workspace, ops, random};

use crate::rows::Row;
use crate::{Subject, best_of};

/// Distinct weights that products with one row go through: more than caches hold.
const CYCLE: usize = 256 << 20;

/// Bytes of one matrix.
fn bytes(dtype: &str, sizes: &[usize]) -> usize {
    let (&[n, k] | &[_, n, k]) = sizes else { return 0 };
    match dtype.parse::<Format>() {
        Ok(format) => n * k / format.block_elements() * format.block_bytes(),
        // Codes of four bits, and a scale and a bias of sixteen for each 64.
        Err(_) => n * k / 64 * 36,
    }
}

/// Matrices of a row.
fn count(dtype: &str, sizes: &[usize]) -> usize {
    match sizes.len() {
        2 => CYCLE.div_ceil(bytes(dtype, sizes).max(1)),
        _ => 1,
    }
}

/// Bytes that a run with one row of activations reads.
pub fn bytes_of_cycle(dtype: &str, sizes: &[usize]) -> f64 {
    (count(dtype, sizes) * bytes(dtype, sizes)) as f64
}

/// Rows of activations, rows of weights and columns.
fn shape(row: &Row) -> Result<[usize; 3]> {
    match *row.sizes {
        [n, k] => Ok([1, n, k]),
        [m, n, k] => Ok([m, n, k]),
        _ => bail!("{} has no sizes of a product", row.title()),
    }
}

/// Blocks of random codes with small scales. Peers in Python make the same: every word is a hash of its number (SplitMix64),
/// so that NumPy makes all at once.
fn blocks(format: Format, [n, k]: [usize; 2], seed: u64) -> Vec<u8> {
    let bytes = n * k / format.block_elements() * format.block_bytes();
    let mut blocks = vec![0u8; bytes];
    for (number, eight) in (1u64..).zip(blocks.chunks_mut(8)) {
        let from = seed.wrapping_mul(0xd134_2543_de82_ef95);
        let word = from.wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        eight.copy_from_slice(&(word ^ word >> 31).to_le_bytes()[..eight.len()]);
    }
    let scale = half::f16::from_f32(0.01).to_le_bytes();
    for block in blocks.chunks_exact_mut(format.block_bytes()) {
        block[..2].copy_from_slice(&scale);
        if format == Format::Q4_K {
            block[2..4].copy_from_slice(&scale);
        }
    }
    blocks
}

/// wootz, into memory that is there already.
pub fn wootz(row: &Row, activations: Activations) -> Result<Subject> {
    let ([m, n, k], device) = (shape(row)?, Device::cpu());
    let mut matrices = Vec::new();
    let mut scheme = Scheme::new("affine", Some(64), Some(4))?;
    for i in 0..count(row.dtype, row.sizes) {
        matrices.push(match row.dtype.parse::<Format>() {
            Ok(format) => {
                scheme = format.into();
                let blocks = blocks(format, [n, k], i as u64);
                vec![Array::from_slice(&blocks, &[1, n, blocks.len() / n])?]
            }
            Err(_) => {
                let codes = blocks(Format::Q8_0, [n, k], i as u64);
                let words: Vec<u32> = codes[..n * k / 2]
                    .chunks_exact(4)
                    .map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
                    .collect();
                let numbers = || {
                    let shape = [1, n, k / 64];
                    let key = random::key(i as u64)?;
                    random::uniform(0.005, 0.01, &shape, DType::BF16, Some(&key))
                };
                vec![Array::from_slice(&words, &[1, n, k / 8])?, numbers()?, numbers()?]
            }
        });
    }
    wootz::eval(matrices.iter().flatten())?;
    let x = random::uniform(-1.0, 1.0, &[1, m, k], DType::F32, Some(&random::key(7)?))?;
    x.eval()?;
    let output = Array::empty_on(&[1, m, n], DType::F32, &device)?;
    let op = ops::QuantizedMatmul { scheme, transpose: true, activations };
    let first: Vec<_> = [&x].into_iter().chain(&matrices[0]).map(Array::meta).collect();
    let mut workspace = Workspace::new(&device, op.scratch(&first, false))?;
    Ok(Box::new(move |reps| {
        let mut best = f64::INFINITY;
        for _ in 0..reps {
            let start = std::time::Instant::now();
            for arrays in &matrices {
                let mut encoder = Encoder::new(&device)?;
                let inputs: Vec<&Array> = [&x].into_iter().chain(arrays).collect();
                encoder.run(&op, &inputs, &[&output], &mut workspace)?;
                encoder.submit()?.wait()?;
            }
            best = best.min(start.elapsed().as_secs_f64());
        }
        Ok(best)
    }))
}

/// candle's quantized product.
pub fn candle(row: &Row) -> Result<Subject> {
    let [m, n, k] = shape(row)?;
    let format: Format = row.dtype.parse()?;
    let dtype = match format {
        Format::Q4_0 => GgmlDType::Q4_0,
        Format::Q4_K => GgmlDType::Q4K,
        Format::Q8_0 => GgmlDType::Q8_0,
        other => bail!("candle is not asked for {other}"),
    };
    let mut matrices = Vec::new();
    for i in 0..count(row.dtype, row.sizes) {
        let blocks = blocks(format, [n, k], i as u64);
        let weights = ggml_file::qtensor_from_ggml(dtype, &blocks, vec![n, k], &CandleDevice::Cpu)?;
        matrices.push(QMatMul::from_qtensor(weights).context("candle's weights")?);
    }
    let x = Tensor::rand(-1f32, 1.0, (m, k), &CandleDevice::Cpu)?;
    Ok(Box::new(move |reps| {
        Ok(best_of(reps, || {
            for matrix in &matrices {
                std::hint::black_box(matrix.forward(&x).ok());
            }
        }))
    }))
}
