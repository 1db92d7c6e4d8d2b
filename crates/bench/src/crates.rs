//! Peers that are crates: candle, gemm and faer, each on two threads.

use anyhow::Result;
use candle_core::{DType, Device, Tensor};
use faer::{Accum, Mat, Par};

use crate::rows::{Peer, Row};
use crate::{Subject, THREADS, best_of};

/// What is linked, as pinned in Cargo.toml.
pub const VERSIONS: &str = "candle 0.11.1, faer 0.24.4, gemm 0.19.0";

/// How a peer runs a row; nothing if it does not offer it.
pub fn subject(peer: Peer, row: &Row) -> Result<Option<Subject>> {
    if peer == Peer::Single {
        return crate::wootz_side::subject(&row.single());
    }
    if row.name.starts_with("qm") {
        return match peer {
            Peer::Candle => crate::quantized::candle(row).map(Some),
            Peer::Fast => crate::quantized::wootz(row, wootz::quant::Activations::Fast).map(Some),
            _ => Ok(None),
        };
    }
    let &[m, k, n] = row.sizes else { return Ok(None) };
    match (peer, row.dtype) {
        (Peer::Candle, dtype) => candle(m, k, n, dtype).map(Some),
        (Peer::Gemm, "f32") => Ok(Some(gemm_crate(m, k, n))),
        (Peer::Faer, "f32") => Ok(Some(faer_crate(m, k, n))),
        _ => Ok(None),
    }
}

fn candle(m: usize, k: usize, n: usize, dtype: &str) -> Result<Subject> {
    let dtype = match dtype {
        "f16" => DType::F16,
        "bf16" => DType::BF16,
        _ => DType::F32,
    };
    let a = Tensor::randn(0f32, 1.0, (m, k), &Device::Cpu)?.to_dtype(dtype)?;
    let b = Tensor::randn(0f32, 1.0, (k, n), &Device::Cpu)?.to_dtype(dtype)?;
    a.matmul(&b)?;
    Ok(Box::new(move |reps| {
        Ok(best_of(reps, || {
            std::hint::black_box(a.matmul(&b).ok());
        }))
    }))
}

fn values(count: usize) -> Vec<f32> {
    (0..count).map(|i| (i * 7919 % 1000) as f32 / 500.0 - 1.0).collect()
}

fn gemm_crate(m: usize, k: usize, n: usize) -> Subject {
    let (a, b, mut c) = (values(m * k), values(k * n), vec![0f32; m * n]);
    let mut run = move || {
        // SAFETY: the three row-major matrices have the sizes and strides that are passed.
        unsafe {
            gemm::gemm(
                m,
                n,
                k,
                c.as_mut_ptr(),
                1,
                n as isize,
                false,
                a.as_ptr(),
                1,
                k as isize,
                b.as_ptr(),
                1,
                n as isize,
                0f32,
                1f32,
                false,
                false,
                false,
                gemm::Parallelism::Rayon(THREADS),
            );
        }
    };
    run();
    Box::new(move |reps| Ok(best_of(reps, &mut run)))
}

fn faer_crate(m: usize, k: usize, n: usize) -> Subject {
    let of = |rows: usize, columns: usize| {
        let v = values(rows * columns);
        Mat::<f32>::from_fn(rows, columns, |i, j| v[i * columns + j])
    };
    let (a, b, mut c) = (of(m, k), of(k, n), Mat::<f32>::zeros(m, n));
    let mut run = move || {
        faer::linalg::matmul::matmul(&mut c, Accum::Replace, &a, &b, 1f32, Par::rayon(THREADS));
    };
    run();
    Box::new(move |reps| Ok(best_of(reps, &mut run)))
}
