//! Arrays that see regions of mapped files.

use super::*;
use crate::array::{DType, Meta};
use crate::cpu::CpuCall;
use crate::encoder::{Encoder, Workspace};
use crate::op::{Metas, Op};
use crate::ops::{
    Factor, Gate, addmm, gather_mm, matmul, matmul_each, matmul_glu, multiply, slice, take,
};
use crate::testing::{counters, devices};

/// A file with a few bytes before numbers.
fn numbers(skip: usize, count: usize) -> MappedFile {
    let numbers = (0..count).flat_map(|i| (i as f32 - 3.0).to_le_bytes());
    MappedFile::from_bytes("numbers", &vec![7; skip].into_iter().chain(numbers).collect::<Vec<_>>())
        .unwrap()
}

/// The file's numbers as a matrix of 40 columns.
fn matrix(file: &MappedFile, skip: usize, rows: usize, device: &Device) -> Array {
    file.array(skip..skip + rows * 160, &[rows, 40], DType::F32, device).unwrap()
}

#[test]
fn kernels_of_every_kind_read_a_file_at_any_offset() -> Result<()> {
    for device in devices() {
        for skip in [0, 1, 2, 4, 7] {
            let file = numbers(skip, 50 * 40);
            let x = matrix(&file, skip, 50, &device);
            let values: Vec<f32> = (0..2000).map(|i| i as f32 - 3.0).collect();
            let y = Array::from_slice_on(&values, &[50, 40], &device)?;
            type Made = fn(&Array) -> Result<Array>;
            let kernels: [Made; 9] = [
                |x| Ok(x.clone()),
                |x| Ok(&(x * 2.0) + 1.0),
                |x| x.transpose()?.contiguous(),
                |x| x.sum(-1),
                |x| matmul(&x.transpose()?, x),
                |x| crate::ops::softmax(&(x * 0.01), -1),
                |x| addmm(x, x, &slice(x, &[0, 0], &[40, 40], &[1, 1])?, 0.5, 2.0),
                |x| {
                    let rows = slice(x, &[7, 0], &[12, 40], &[1, 1])?.reshape(&[5, 1, 40])?;
                    let tables = x.reshape(&[5, 10, 40])?.swapaxes(-1, -2)?;
                    let chosen = Array::from_slice_on(&[3u32, 0, 3, 4, 1], &[5], x.device())?;
                    gather_mm(&rows, &tables, None, Some(&chosen), false)
                },
                |x| {
                    let (row, x) = (slice(x, &[9, 0], &[10, 40], &[1, 1])?, Factor::dense(x));
                    let each = matmul_each(&row, &[x, x])?;
                    multiply(&each[1], matmul_glu(&row, x, x, Gate::Silu)?)
                },
            ];
            for (number, kernel) in kernels.iter().enumerate() {
                let (got, want) = (kernel(&x)?.to_bytes()?, kernel(&y)?.to_bytes()?);
                assert_eq!(got, want, "kernel {number} at {skip} on {device}");
            }
        }
    }
    Ok(())
}

#[test]
fn a_file_is_never_written() -> Result<()> {
    let file = numbers(4, 2000);
    let before = file.bytes().to_vec();
    // Nobody else holds the input, so that its memory could become the output's.
    let y = &matrix(&file, 4, 50, &Device::cpu()) + 1.0;
    y.eval()?;
    assert_eq!(file.bytes(), before);
    let x = matrix(&file, 4, 50, &Device::cpu());
    let mut encoder = Encoder::new(&Device::cpu())?;
    let mut workspace = Workspace::none(&Device::cpu());
    let run = encoder.run(&crate::ops::Softmax, &[&y], &[&x], &mut workspace);
    assert_says(run, "expected memory that may be written, got memory of a mapped file");
    assert_eq!(file.bytes(), before);
    Ok(())
}

/// Tells how far its input is from an aligned address, read as bytes or as numbers.
#[derive(Debug)]
struct Distance {
    bytes: bool,
}

impl Op for Distance {
    fn name(&self) -> &'static str {
        "distance"
    }

    fn infer(&self, _: &[&Meta]) -> Result<Metas> {
        Ok([Meta::new(self.name(), &[], DType::U32)?].into_iter().collect())
    }

    fn reads_bytes(&self, _: usize) -> bool {
        self.bytes
    }

    fn cpu(&self, call: &mut CpuCall<'_>) -> Result<()> {
        let bytes = call.bytes(0)?;
        assert_eq!(bytes.len(), call.meta(0).bytes());
        if !self.bytes {
            assert_eq!(bytemuck::cast_slice::<f32, u8>(call.input::<f32>(0)?), bytes);
        }
        call.output::<u32>(0)?[0] = (bytes.as_ptr().addr() % 64) as u32;
        Ok(())
    }
}

#[test]
fn a_kernel_that_reads_bytes_gets_the_files_and_others_an_aligned_copy() -> Result<()> {
    let file = numbers(3, 2000);
    let x = matrix(&file, 3, 50, &Device::cpu());
    let distance = |x: &Array, bytes| Array::apply(Distance { bytes }, &[x])?.item::<u32>();
    assert_eq!(distance(&x, true)?, 3);
    assert_eq!(distance(&x, false)?, 0);
    // Rows of it are at the same distance, 160 bytes each.
    let rows = slice(&x, &[1, 0], &[3, 40], &[1, 1])?;
    assert_eq!((distance(&rows, true)?, distance(&rows, false)?), ((3 + 160) % 64, 160 % 64));
    let apart = numbers(8, 40);
    assert_eq!(distance(&matrix(&apart, 8, 1, &Device::cpu()), false)?, 8);
    Ok(())
}

#[test]
fn products_and_lookups_copy_nothing_of_a_file() -> Result<()> {
    let cpu = Device::cpu();
    for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
        let shape = [3, 24, 32];
        let count = shape.iter().product::<usize>() * dtype.size();
        // The high byte of every number makes it a small one.
        let bytes: Vec<u8> = (0..=count).map(|i| if i % 2 == 0 { 0x3c } else { i as u8 }).collect();
        let file = MappedFile::from_bytes("odd", &bytes)?;
        let experts = file.array(1..bytes.len(), &shape, dtype, &cpu)?;
        let aligned = Array::from_bytes_on(&bytes[1..], &shape, dtype, &cpu)?;
        for tokens in [1, 3, 20] {
            let x = Array::from_slice_on(&vec![1f32; tokens * 32], &[tokens, 32], &cpu)?;
            let x = x.astype(dtype)?;
            let run = |experts: &Array| -> Result<Vec<Vec<u8>>> {
                let (w, each) = (experts.index(1)?, experts.swapaxes(-1, -2)?);
                let turned = w.transpose()?;
                let chosen = Array::from_slice_on(&[2u32, 0], &[2], &cpu)?;
                let mut results = vec![
                    matmul(&x, &turned)?,
                    matmul(&w, &x.transpose()?)?,
                    addmm(&turned.index(3)?, &x, &turned, 0.5, 2.0)?,
                    gather_mm(&x, &each, None, Some(&chosen), false)?,
                    take(&w, &chosen, Some(0))?,
                ];
                if dtype != DType::F64 {
                    let w = Factor::dense(&w);
                    results.extend(matmul_each(&x, &[w, w])?);
                    results.push(matmul_glu(&x, w, w, Gate::Silu)?);
                }
                results.iter().map(Array::to_bytes).collect()
            };
            let before = counters();
            let got = run(&experts)?;
            assert_eq!(counters().since(&before).copied_bytes, 0, "{dtype}, {tokens} tokens");
            assert_eq!(got, run(&aligned)?, "{dtype}, {tokens} tokens");
        }
        // Others need the region aligned.
        let before = counters();
        experts.index(1)?.sum(-1)?.eval()?;
        assert_eq!(counters().since(&before).copied_bytes, count as u64, "{dtype}");
    }
    Ok(())
}

#[test]
fn regions_that_do_not_fit_are_errors() {
    let (file, cpu) = (numbers(0, 10), Device::cpu());
    assert_says(file.array(0..8, &[3], DType::F32, &cpu), "expected 12 bytes for shape [3]");
    assert_says(file.array(32..44, &[3], DType::F32, &cpu), "within the file's 40 bytes");
    #[allow(clippy::reversed_empty_ranges)]
    let reversed = file.array(4..0, &[0], DType::F32, &cpu);
    assert_says(reversed, "expected 0 bytes");
    assert!(file.array(40..40, &[0, 3], DType::F64, &cpu).unwrap().to_bytes().unwrap().is_empty());
    assert_says(MappedFile::open(std::env::temp_dir()), "director");
    assert!(MappedFile::from_bytes("empty", &[]).unwrap().bytes().is_empty());
}

/// Opening a pipe waits for somebody who writes into it: so this test would never end.
#[cfg(unix)]
#[test]
fn what_is_no_regular_file_is_refused_at_once() {
    let folder = super::Folder::new("pipes");
    for name in ["model.safetensors", "model.gguf"] {
        let pipe = folder.0.join(name);
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.is_ok_and(|status| status.success()), "mkfifo");
        let errors = [
            MappedFile::open(&pipe).map(drop).unwrap_err(),
            Safetensors::open(&pipe).map(drop).unwrap_err(),
            crate::io::gguf::Gguf::open(&pipe).map(drop).unwrap_err(),
        ];
        for error in errors.map(|error| error.to_string()) {
            assert!(error.contains(name) && error.contains("not a regular file"), "{error}");
        }
    }
}

#[cfg(unix)]
#[test]
fn a_file_that_was_cut_while_it_was_mapped_is_an_error() -> Result<()> {
    let folder = super::Folder::new("cut");
    let [one, two] = ["one.safetensors", "two.gguf"].map(|name| folder.0.join(name));
    let arrays = [("first", 1.0f32), ("second", 2.0)].map(|(name, value)| {
        Ok::<_, Error>((name.to_string(), crate::full(&[1 << 16], value, DType::F32)?))
    });
    let arrays = arrays.into_iter().collect::<Result<_>>()?;
    save_safetensors(&one, &arrays)?;
    save_gguf(&two, &arrays, &[])?;
    let (safetensors, gguf) = (Safetensors::open(&one)?, crate::io::gguf::Gguf::open(&two)?);
    for path in [&one, &two] {
        let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
        file.set_len(5 << 16).unwrap();
    }
    safetensors.tensor("first")?;
    gguf.tensor("first")?;
    assert_says(safetensors.tensor("second"), "tensor \"second\": was cut to 327680 bytes");
    assert_says(gguf.tensor("second").map(|t| t.data), "tensor \"second\": was cut to 327680");
    Ok(())
}

#[test]
fn tensors_that_a_device_does_not_hold_are_named() -> Result<()> {
    let folder = super::Folder::new("doubles");
    let [one, two] = ["one.safetensors", "two.gguf"].map(|name| folder.0.join(name));
    let wide = Array::from_slice_on(&[1.0f64, 2.0], &[2], &Device::cpu())?;
    let arrays = [("wide".to_string(), wide)].into_iter().collect();
    save_safetensors(&one, &arrays)?;
    save_gguf(&two, &arrays, &[])?;
    for device in devices().into_iter().filter(Device::is_gpu) {
        let named = "tensor \"wide\": float64 exists on the CPU only";
        assert_says(Safetensors::open(&one)?.tensor_on("wide", &device), named);
        let tensor = crate::io::gguf::Gguf::open(&two)?.tensor_on("wide", &device);
        assert_says(tensor.map(|tensor| tensor.data), named);
    }
    Ok(())
}
