//! Quantized weights against what MLX and the gguf package decode, bit by bit on every device, and against
//! what they encode: see `xtask/goldens/quantized_record.py`.

use wootz::quant::{Format, Scheme};
use wootz::{Array, DType, Device, Quantized, dequantize, quantize, to_device};

use super::{Recorded, devices};

/// The bits of an array in single precision, of every NaN the same. GPUs may take what is smaller than the
/// smallest normal number for zero of its sign.
fn bits(array: &Array, flushed: bool) -> Vec<u32> {
    let array = to_device(&array.astype(DType::F32).unwrap(), &Device::cpu()).unwrap();
    let bits = |x: f32| match x {
        _ if x.is_nan() => f32::NAN.to_bits(),
        _ if flushed && !x.is_normal() && x.is_finite() => x.to_bits() & 1 << 31,
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
    // The package decodes neither Q8_K nor Q8_1 and Q1_0: see those that ggml decodes.
    assert_eq!(formats.len() + 3, Format::ALL.len());
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
fn blocks_that_gguf_does_not_know_decode_as_ggml_decodes_them() {
    let recorded = Recorded::load("quantized/decoded.safetensors");
    let decoded = |name: &str, device: &Device| {
        let blocks = recorded.array(name, "blocks", device);
        let format: Format = name.parse().unwrap();
        dequantize(&Quantized::new(format, &blocks, None, None).unwrap(), None).unwrap()
    };
    let formats = names(&recorded, ".weights");
    assert_eq!(formats, ["Q1_0", "Q8_K"]);
    for device in devices() {
        for name in &formats {
            let want = recorded.array(name, "weights", &Device::cpu());
            assert_same(name, &decoded(name, &device), &want);
        }
        // ggml only encodes this one: to the nearest of 127 steps, of a size that is rounded to half precision.
        let weights = decoded("Q8_1", &device).to_vec::<f32>().unwrap();
        let want = recorded.array("Q8_1", "encoded_of", &Device::cpu()).to_vec::<f32>().unwrap();
        for (weights, want) in weights.chunks(32).zip(want.chunks(32)) {
            let step = want.iter().fold(0f32, |most, w| most.max(w.abs())) / 127.0;
            let worst = weights.iter().zip(want).fold(0f32, |most, (a, b)| most.max((a - b).abs()));
            assert!(worst <= 0.5001 * step + 127.0 * step / 2048.0, "{worst} of steps of {step}");
        }
    }
}

#[test]
fn blocks_of_every_point_and_odd_scales_decode_as_gguf_decodes_them() {
    let recorded = Recorded::load("quantized/planted_blocks.safetensors");
    let formats = names(&recorded, ".blocks");
    assert_eq!(formats.len() + 3, Format::ALL.len());
    for name in &formats {
        let format: Format = name.parse().unwrap();
        let decoded = |device: &Device| {
            let blocks = recorded.array(name, "blocks", device);
            dequantize(&Quantized::new(format, &blocks, None, None).unwrap(), None).unwrap()
        };
        let want = decoded(&Device::cpu());
        let digests = recorded.array(name, "digests", &Device::cpu()).to_vec::<u32>().unwrap();
        let weights = bits(&want, false);
        let blocks = weights.chunks_exact(format.block_elements());
        assert_eq!(blocks.len(), digests.len(), "{name}");
        for (i, (block, &want)) in blocks.zip(&digests).enumerate() {
            assert_eq!(digest(block), want, "block {i} of {name}");
        }
        for device in devices() {
            assert_same(name, &decoded(&device), &want);
        }
    }
}

/// FNV-1a, a word at a time.
fn digest(words: &[u32]) -> u32 {
    words.iter().fold(0x811c_9dc5, |found: u32, word| (found ^ word).wrapping_mul(0x0100_0193))
}

#[test]
fn words_of_any_kind_and_odd_scales_decode_as_mlx_decodes_them() {
    let recorded = Recorded::load("quantized/planted_words.safetensors");
    let cases = names(&recorded, ".codes");
    // Seven widths in groups of three sizes, and three formats of floats, to three dtypes.
    assert_eq!(cases.len(), (7 * 3 + 3) * 3);
    for device in devices() {
        for name in &cases {
            let scheme = scheme(name);
            let array = |key| recorded.array(name, key, &device);
            let biases = matches!(scheme, Scheme::Affine { .. }).then(|| array("biases"));
            let (codes, scales) = (array("codes"), array("scales"));
            let q = Quantized::new(scheme, &codes, Some(&scales), biases.as_ref()).unwrap();
            let want = recorded.array(name, "weights", &Device::cpu());
            let weights = dequantize(&q, Some(want.dtype())).unwrap();
            assert_same(name, &weights, &want);
        }
    }
}

/// The scheme that a case's name begins with: mode, bits and group.
fn scheme(name: &str) -> Scheme {
    let parts: Vec<&str> = name.split('_').collect();
    let [mode, bits, group, _] = parts[..] else { panic!("{name}") };
    Scheme::new(mode, group.parse().ok(), bits.parse().ok()).unwrap()
}

#[test]
fn blocks_are_encoded_as_gguf_encodes_them() {
    let recorded = Recorded::load("quantized/blocks.safetensors");
    let formats = names(&recorded, ".encoded");
    let all = ["MXFP4", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "TQ1_0", "TQ2_0"];
    assert_eq!(formats, all);
    for device in devices() {
        for name in &formats {
            let format: Format = name.parse().unwrap();
            let q = quantize(&recorded.array(name, "w", &device), format).unwrap();
            let want = recorded.array(name, "encoded", &Device::cpu());
            assert_eq!(q.codes().to_bytes().unwrap(), want.to_bytes().unwrap(), "{name}");
        }
    }
}

#[test]
fn words_are_those_of_mlx_and_decode_as_it_decodes_them() {
    let recorded = Recorded::load("quantized/words.safetensors");
    let cases = names(&recorded, ".codes");
    // As above: every width with every size of groups, and three formats of floats, of three dtypes.
    assert_eq!(cases.len(), (7 * 3 + 3) * 3);
    for device in devices() {
        for name in cases.iter().map(String::as_str) {
            let q = quantize(&recorded.array(name, "w", &device), scheme(name)).unwrap();
            for (key, got) in ["codes", "scales", "biases"].iter().zip(q.arrays()) {
                let want = recorded.array(name, key, &Device::cpu());
                let (got, want) = (got.to_bytes().unwrap(), want.to_bytes().unwrap());
                assert!(got == want, "{name}.{key} on {device}");
            }
            let weights = dequantize(&q, None).unwrap();
            assert_same(name, &weights, &recorded.array(name, "weights", &Device::cpu()));
        }
    }
}
