//! Which kernels a GPU is given, and what becomes of those that it cannot bind all arrays of.

use std::sync::Arc;

use super::*;
use crate::gpu::{Collected, Collector, GpuOptions, fits_apple7};

/// A simulated device whose results are meaningless, and what tells which kernels it was given.
fn collecting() -> (Device, Arc<Collector>) {
    let collector = Arc::new(Collector::default());
    let options = GpuOptions { simulator: Some(collector.clone()), ..Default::default() };
    (Device::gpu_with(0, &options).unwrap(), collector)
}

/// The launch whose key has a name in it.
fn named<'l>(launched: &'l [Collected], name: &str) -> &'l Collected {
    let named = |one: &&Collected| one.launch.key.to_string().contains(name);
    launched.iter().find(named).unwrap_or_else(|| panic!("no {name}"))
}

#[test]
fn arrays_of_which_a_gpu_binds_too_few_are_an_error_or_decoded_before() {
    let cpu = Device::cpu();
    for best in devices().into_iter().filter(Device::is_gpu) {
        let index = best.as_gpu().unwrap().summary().index;
        let options = GpuOptions { max_storage_bindings: Some(8), ..Default::default() };
        let device = Device::gpu_with(index, &options).unwrap();
        let run = |device: &Device| {
            let x = given(device, [4, 2], [5, 300], 32);
            let (mask, sinks) = (numbers(5, &[5, 300], device), numbers(6, &[4], device));
            let length = Array::from_slice_on(&[200i32], &[1], device).unwrap();
            let options = AttentionOptions {
                causal: true,
                mask: Some(&mask),
                key_length: Some(&length),
                ..AttentionOptions::new(0.3)
            };
            let all = AttentionOptions { sinks: Some(&sinks), ..options };
            let (k, v) = (coded(&x.k, 8, 32), coded(&x.v, 8, 32));
            let fits = attention(&x.q, &x.k, &x.v, &options).unwrap();
            let decoded = quantized_attention(&x.q, &k, &v, &options).unwrap();
            let many = attention_with_lse(&x.q, &x.k, &x.v, &all).unwrap().0;
            (fits, decoded, many)
        };
        let (want, got) = (run(&cpu), run(&device));
        for (got, want) in [(&got.0, &want.0), (&got.1, &want.1)] {
            let off = error(&crate::to_device(got, &cpu).unwrap(), want);
            assert!(off < 2e-5, "{device}: off by {off:e}");
        }
        let text = got.2.eval().unwrap_err().to_string();
        assert!(text.contains("9 arrays") && text.contains("at most 8"), "{text}");
        let wrong = Array::from_slice_on(&[301i32], &[1], &device).unwrap();
        let x = given(&device, [4, 2], [5, 300], 32);
        let options = AttentionOptions { key_length: Some(&wrong), ..AttentionOptions::new(0.3) };
        let (k, v) = (coded(&x.k, 8, 32), coded(&x.v, 8, 32));
        let result = quantized_attention(&x.q, &k, &v, &options).unwrap();
        assert!(result.eval().unwrap_err().to_string().contains("301"));
    }
}

/// Checks that a kernel holds so many rows in tiles of cooperative matrices, or has none for 0, within the memory
/// of an M1's workgroup.
fn check_tile(kernel: &Collected, rows: usize, halves: bool) {
    let (key, source) = (&kernel.launch.key, &kernel.launch.source);
    if rows == 0 {
        assert!(!source.contains("coop"), "{key}");
    } else {
        assert!(source.contains(&format!("const R = {rows}u;")), "{key}: not {rows} rows");
        assert!(source.contains("coopMultiplyAdd"), "{key}");
    }
    assert_eq!(source.contains("coop_mat8x8<f16"), rows > 0 && halves, "{key}");
    fits_apple7(&kernel.cost().unwrap()).unwrap();
}

#[test]
fn tiles_are_of_cooperative_matrices_where_there_are_some() {
    let (device, collector) = collecting();
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        let halves = dtype == DType::F16;
        // What a workgroup holds: rows of the forward's tiles, of those of the two backward passes, and of those of the
        // mask's gradient. Of 512 dims there is no room for the two arrays that a backward holds.
        for (dims, rows) in [
            (8, [32; 4]),
            (64, [32; 4]),
            (80, if halves { [32; 4] } else { [32, 32, 16, 32] }),
            (96, if halves { [32; 4] } else { [32, 16, 16, 16] }),
            (128, if halves { [32, 32, 16, 32] } else { [32, 16, 16, 16] }),
            (256, if halves { [32, 16, 16, 16] } else { [16, 8, 8, 8] }),
            (512, if halves { [16, 0, 0, 0] } else { [8, 0, 0, 0] }),
            (33, [0; 4]),
        ] {
            let x = given(&device, [2, 1], [40, 40], dims).astype(dtype);
            let mask = numbers(5, &[40, 40], &device).astype(dtype).unwrap();
            eval([&x.q, &x.k, &x.v, &x.dout, &mask]).unwrap();
            collector.take();
            trained(&x, &AttentionOptions::new(0.1));
            trained_with_mask(&x, &mask, None);
            let launched = collector.take();
            let names =
                ["tiled", "backward_q", "backward_kv"].map(|name| format!("{name}/{dtype}"));
            for (name, rows) in names.iter().zip(rows) {
                check_tile(named(&launched, name), rows, halves);
            }
            check_tile(named(&launched, "backward_mask "), rows[3], halves);
        }
    }
}

/// Codes stand for numbers of 32 bits, whatever the queries' type.
#[test]
fn tiles_of_quantized_keys_are_of_cooperative_matrices_where_there_are_some() {
    let (device, collector) = collecting();
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        for (dims, rows) in [(32, 32), (64, 32), (96, 32), (128, 32), (256, 16), (512, 8)] {
            // A prompt, and a token of so many heads that they are as many rows.
            for (heads, queries, name) in [([2, 1], 40, "tiled/"), ([32, 1], 1, "decode/")] {
                let x = given(&device, heads, [queries, 600], dims).astype(dtype);
                let (k, v) = (coded(&x.k, 8, 32), coded(&x.v, 8, 32));
                let mut arrays: Vec<&Array> = vec![&x.q];
                arrays.extend(k.arrays().iter().chain(v.arrays()));
                eval(arrays).unwrap();
                collector.take();
                let options = AttentionOptions::new(0.1);
                quantized_attention(&x.q, &k, &v, &options).unwrap().eval().unwrap();
                check_tile(named(&collector.take(), name), rows, false);
            }
        }
    }
}

#[test]
fn few_queries_of_all_heads_that_share_keys_are_taken_together_and_keys_in_parts() {
    let (device, collector) = collecting();
    // Workgroups: blocks of rows times parts of the keys.
    for (heads, queries, keys, groups) in [
        ([32, 1], 1, 4096, 16),
        ([32, 1], 1, 255, 1),
        ([32, 8], 1, 4096, 8 * 8),
        ([32, 8], 8, 4096, 8 * 8),
        ([32, 1], 8, 4096, 8 * 8),
        ([8, 8], 1, 4096, 8 * 8),
        ([32, 8], 17, 4096, 32),
    ] {
        let x = given(&device, heads, [queries, keys], 64);
        eval([&x.q, &x.k, &x.v]).unwrap();
        collector.take();
        let options = AttentionOptions { causal: true, ..AttentionOptions::new(0.1) };
        attention(&x.q, &x.k, &x.v, &options).unwrap().eval().unwrap();
        let split = groups > 1 && queries < 17;
        let launched = collector.take();
        let kernel = named(&launched, if split { "decode/" } else { "tiled/" });
        let launched: u32 = kernel.launch.groups.iter().product();
        assert_eq!(launched, groups, "{heads:?} heads, {queries} queries of {keys} keys");
    }
}
