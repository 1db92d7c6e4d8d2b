//! Quantized weights against what MLX and the gguf package decode, bit by bit on every device, and against
//! what they encode: see `xtask/goldens/quantized_record.py`.

use wootz::quant::{Format, Scheme};
use wootz::{Array, DType, Device, Quantized, dequantize, quantize, to_device};

use super::{Recorded, devices};

/// The bits of an array in single precision, of every NaN the same. GPUs may take what is smaller than the
/// smallest normal number for zero.
fn bits(array: &Array, flushed: bool) -> Vec<u32> {
    let array = to_device(&array.astype(DType::F32).unwrap(), &Device::cpu()).unwrap();
    let bits = |x: f32| match x {
        _ if x.is_nan() => f32::NAN.to_bits(),
        _ if flushed && !x.is_normal() && x.is_finite() => 0,
        _ => x.to_bits(),
    };
    array.to_vec::<f32>().unwrap().into_iter().map(bits).collect()
}

fn assert_same(what: &str, got: &Array, want: &Array) {
    let flushed = got.device().is_gpu();
    let device = got.device().clone();
    assert_eq!((got.shape(), got.dtype()), (want.shape(), want.dtype()), "{what} on {device}");
    let (got, want) = (bits(got, flushed), bits(want, flushed));
    if let Some(at) = got.iter().zip(&want).position(|(got, want)| got != want) {
        let [got, want] = [got[at], want[at]].map(f32::from_bits);
        panic!("{what} on {device}: {got:e} at {at}, expected {want:e}");
    }
}

fn names(recorded: &Recorded, key: &str) -> Vec<String> {
    recorded.0.keys().filter_map(|name| name.strip_suffix(key)).map(String::from).collect()
}

#[test]
fn blocks_decode_as_gguf_decodes_them() {
    let recorded = Recorded::load("quantized/blocks.safetensors");
    let formats = names(&recorded, ".blocks");
    // The package has no Q8_K.
    assert_eq!(formats.len() + 1, Format::ALL.len());
    for device in devices() {
        for name in &formats {
            let format: Format = name.parse().unwrap();
            let blocks = recorded.array(name, "blocks", &device);
            let q = Quantized::new(format, &blocks, None, None).unwrap();
            let weights = dequantize(&q, None).unwrap();
            assert_same(name, &weights, &recorded.array(name, "weights", &Device::cpu()));
        }
    }
}

#[test]
fn blocks_are_encoded_as_gguf_encodes_them() {
    let recorded = Recorded::load("quantized/blocks.safetensors");
    for device in devices() {
        for name in names(&recorded, ".encoded") {
            let format: Format = name.parse().unwrap();
            let q = quantize(&recorded.array(&name, "w", &device), format).unwrap();
            let want = recorded.array(&name, "encoded", &Device::cpu());
            assert_eq!(q.codes().to_bytes().unwrap(), want.to_bytes().unwrap(), "{name}");
        }
    }
}

#[test]
fn words_are_those_of_mlx_and_decode_as_it_decodes_them() {
    let recorded = Recorded::load("quantized/words.safetensors");
    for device in devices() {
        for name in names(&recorded, ".codes") {
            let parts: Vec<&str> = name.split('_').collect();
            let [mode, bits, group, _] = parts[..] else { panic!("{name}") };
            let (bits, group) = (bits.parse().unwrap(), group.parse().unwrap());
            let scheme = Scheme::new(mode, Some(group), Some(bits)).unwrap();
            let q = quantize(&recorded.array(&name, "w", &device), scheme).unwrap();
            for (key, got) in ["codes", "scales", "biases"].iter().zip(q.arrays()) {
                let want = recorded.array(&name, key, &Device::cpu());
                let (got, want) = (got.to_bytes().unwrap(), want.to_bytes().unwrap());
                assert!(got == want, "{name}.{key} on {device}");
            }
            let weights = dequantize(&q, None).unwrap();
            assert_same(&name, &weights, &recorded.array(&name, "weights", &Device::cpu()));
        }
    }
}
