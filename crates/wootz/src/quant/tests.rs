//! Formats: names, sizes and errors, and how far encoded weights are from what they were.

use super::*;
use crate::error::Result;

/// Weights that look random, in bell shape.
fn weights(count: usize) -> Vec<f32> {
    let mut state = 1u32;
    let mut uniform = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 24) as f32 - 0.5
    };
    (0..count).map(|_| (0..6).map(|_| uniform()).sum()).collect()
}

#[test]
fn names_and_numbers_lead_back_to_the_format() -> Result<()> {
    for &format in Format::ALL {
        assert_eq!(format.to_string().to_lowercase().parse::<Format>()?, format);
        assert_eq!(Format::from_ggml_type(format.ggml_type()), Some(format));
        assert!(format.block_elements() % 32 == 0 && format.block_elements() <= 256);
    }
    assert_eq!(Format::from_ggml_type(30), None);
    assert!("Q9_9".parse::<Format>().unwrap_err().to_string().contains("IQ4_XS"));
    Ok(())
}

#[test]
fn bits_of_q1_0_are_signs() -> Result<()> {
    let mut block = [0; 18];
    (block[1], block[2], block[17]) = (0xbc, 0b101, 0x80);
    let mut weights = [0.0; 128];
    Format::Q1_0.decode(&block, &mut weights)?;
    let negative = weights.iter().enumerate().filter(|(_, w)| **w == -1.0).map(|(i, _)| i);
    // The scale is -1.
    assert!(negative.eq([0, 2, 127]), "{weights:?}");
    assert!(weights.iter().all(|w| w.abs() == 1.0));
    Ok(())
}

#[test]
fn encoded_weights_are_as_near_as_the_bits_allow() -> Result<()> {
    let weights = weights(4096);
    let scale = weights.iter().map(|w| w * w).sum::<f32>();
    // Root mean square errors relative to the weights', measured, with a margin of 2 %.
    let bounds = [
        (Format::Q4_0, 0.0841),
        (Format::Q4_1, 0.0779),
        (Format::Q5_0, 0.0424),
        (Format::Q5_1, 0.0379),
        (Format::Q8_0, 0.00527),
        (Format::Q2_K, 0.267),
        (Format::Q3_K, 0.144),
        (Format::Q4_K, 0.0703),
        (Format::Q5_K, 0.0347),
        (Format::Q6_K, 0.017),
        (Format::Q8_K, 0.00658),
        (Format::IQ4_NL, 0.074),
        (Format::IQ4_XS, 0.0748),
        (Format::MXFP4, 0.1197),
        (Format::NVFP4, 0.0982),
        (Format::TQ1_0, 0.796),
        (Format::TQ2_0, 0.796),
    ];
    assert_eq!(bounds.len(), Format::ALL.iter().filter(|format| format.encodes()).count());
    for (format, bound) in bounds {
        let mut blocks = vec![0; weights.len() / format.block_elements() * format.block_bytes()];
        let mut back = vec![0.0; weights.len()];
        format.encode(&weights, &mut blocks)?;
        format.decode(&blocks, &mut back)?;
        let error = weights.iter().zip(&back).map(|(a, b)| (a - b) * (a - b)).sum::<f32>();
        let error = (error / scale).sqrt();
        assert!(error < bound && error > 0.96 * bound, "{format}: {error}");
    }
    Ok(())
}

/// The root mean square error of what blocks decode to, relative to the weights'.
fn error_of(format: Format, weights: &[f32], blocks: &[u8]) -> Result<f64> {
    let mut back = vec![0.0; weights.len()];
    format.decode(blocks, &mut back)?;
    let square = |x: f32| f64::from(x) * f64::from(x);
    let error = weights.iter().zip(&back).map(|(a, b)| square(a - b)).sum::<f64>();
    Ok((error / weights.iter().map(|&w| square(w)).sum::<f64>()).sqrt())
}

#[test]
fn encoded_weights_are_as_near_as_llama_cpp_brings_them() -> Result<()> {
    // See xtask/goldens/ggml_record.py.
    let file = "../../goldens/quantized/encoders.safetensors";
    let recorded =
        crate::io::Safetensors::open(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(file))?;
    let cpu = crate::Device::cpu();
    let mut compared = 0;
    for name in recorded.names() {
        let Some((format, set)) = name.split_once('.') else { continue };
        let format: Format = format.parse()?;
        let weights = recorded.tensor_on(set, &cpu)?.to_vec::<f32>()?;
        let theirs = recorded.tensor_on(name, &cpu)?.to_vec::<u8>()?;
        let mut ours = vec![0; theirs.len()];
        format.encode(&weights, &mut ours)?;
        if format == Format::Q8_K {
            // No other record has it: what was read wrong would be off by more than half a step.
            let mut back = vec![0.0; weights.len()];
            format.decode(&theirs, &mut back)?;
            for (weights, back) in weights.chunks(256).zip(back.chunks(256)) {
                let largest = weights.iter().fold(0f32, |most, w| most.max(w.abs()));
                let worst =
                    (weights.iter().zip(back)).fold(0f32, |most, (a, b)| most.max((a - b).abs()));
                assert!(worst <= 0.5001 * largest / 127.0, "{name}: {worst} of {largest}");
            }
        }
        let [ours, theirs] =
            [error_of(format, &weights, &ours)?, error_of(format, &weights, &theirs)?];
        assert!(ours <= 1.0001 * theirs, "{name}: {ours}, llama.cpp's {theirs}");
        compared += 1;
    }
    // Nine formats that the gguf package does not encode, four sets of weights.
    assert_eq!(compared, 9 * 4);
    Ok(())
}

#[test]
fn odd_weights_do_not_spoil_their_block() -> Result<()> {
    for &format in Format::ALL.iter().filter(|format| format.encodes()) {
        let elements = format.block_elements();
        let (mut blocks, mut back) = (vec![1; format.block_bytes()], vec![1.0; elements]);
        format.encode(&vec![0.0; elements], &mut blocks)?;
        format.decode(&blocks, &mut back)?;
        assert!(back.iter().all(|&w| w == 0.0), "{format}");

        let mut odd = weights(elements);
        (odd[3], odd[7]) = (f32::NAN, f32::INFINITY);
        format.encode(&odd, &mut blocks)?;
        format.decode(&blocks, &mut back)?;
        assert!(back.iter().all(|w| w.is_finite()), "{format}");
        assert!(back[3].abs() < 5000.0 && back[7] > 2000.0, "{format}: {} {}", back[3], back[7]);
    }
    Ok(())
}

#[test]
fn what_is_no_whole_block_is_an_error() {
    let error = Format::Q4_0.decode(&[0; 19], &mut [0.0; 32]).unwrap_err().to_string();
    assert!(error.contains("18 bytes for 32 weights of Q4_0 each, got 19 for 32"), "{error}");
    assert!(Format::Q4_K.encode(&[0.0; 128], &mut [0; 144]).is_err());
    let error = Format::IQ1_S.encode(&[0.0; 256], &mut [0; 50]).unwrap_err().to_string();
    assert!(error.contains("IQ1_S"), "{error}");
}
