//! What must hold of the readers of files, whatever the bytes are: they return, and what they tell of can be read. For
//! fuzzing, and for the tests of `wootz` that replay what was found. Each says whether the bytes were a file.

use wootz::io::gguf::{Gguf, TensorType};
use wootz::io::{MappedFile, Npz, Safetensors, read_npy};
use wootz::{Device, Error};

/// The check of a reader, by the name of its target.
pub fn check(reader: &str, bytes: &[u8]) -> bool {
    match reader {
        "safetensors" => safetensors(bytes),
        "safetensors_index" => safetensors_index(bytes),
        "gguf" => gguf(bytes),
        "gguf_parts" => gguf_parts(bytes),
        "npy" => npy(bytes),
        "npz" => npz(bytes),
        other => panic!("there is no reader {other}"),
    }
}

fn safetensors(bytes: &[u8]) -> bool {
    let Ok(file) = Safetensors::from_bytes(bytes) else { return false };
    assert!(tensors(&file) <= bytes.len());
    true
}

/// The bytes of an index, beside which lies a file of any short name: one with a tensor called so.
fn safetensors_index(bytes: &[u8]) -> bool {
    let beside = |name: &str| {
        assert!(!name.contains('/') && name != "..", "{name} is elsewhere");
        let plain =
            name.len() < 64 && name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"');
        if !plain {
            let reason = "there is no such file".to_string();
            return Err(Error::Format { path: name.to_string(), reason });
        }
        let header =
            format!("{{\"{name}\":{{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}}}");
        Ok([&(header.len() as u64).to_le_bytes(), header.as_bytes(), &[7]].concat())
    };
    let Ok(file) = Safetensors::from_indexed_bytes(bytes, beside) else { return false };
    assert_eq!(tensors(&file), file.names().count());
    true
}

/// Reads all tensors, and gives the bytes of all.
fn tensors(file: &Safetensors) -> usize {
    let mut all = 0;
    for name in file.names() {
        let raw = file.raw(name).expect("a tensor").to_bytes().expect("its bytes");
        all += raw.len();
        if file.dtype(name).is_some() {
            let tensor = file.tensor_on(name, &Device::cpu()).expect("a tensor");
            assert_eq!(tensor.to_bytes().expect("its elements"), raw, "{name}");
        }
    }
    all
}

fn gguf(bytes: &[u8]) -> bool {
    let Ok(file) = Gguf::from_bytes(bytes) else { return false };
    assert!(blocks_and_numbers(&file) <= bytes.len());
    true
}

/// Two files that a model is split into, one behind the other: the length of the first is in two bytes before it.
fn gguf_parts(bytes: &[u8]) -> bool {
    let Some((length, rest)) = bytes.split_first_chunk() else { return false };
    let length = usize::from(u16::from_le_bytes(*length));
    let Some((first, second)) = rest.split_at_checked(length) else { return false };
    let Ok(file) = Gguf::from_parts(&[first, second]) else { return false };
    assert!(blocks_and_numbers(&file) <= rest.len());
    true
}

/// Weights of a tensor that are decoded at most: a tensor of a byte may say that it has more than memory.
const DECODED: usize = 1 << 16;

/// Reads all of a file, decodes blocks, and gives the bytes of all tensors.
fn blocks_and_numbers(file: &Gguf) -> usize {
    for (key, value) in file.metadata() {
        assert!(file.get(key).is_some(), "{key}: {value}");
        drop(value.to_string());
    }
    let mut all = 0;
    for info in file.tensors() {
        let tensor = file.tensor_on(info.name, &Device::cpu()).expect("a tensor");
        let elements = tensor.data.to_bytes().expect("its elements");
        assert_eq!(elements.len(), info.bytes);
        all += info.bytes;
        if let TensorType::Blocks(format) = info.kind {
            assert_eq!(tensor.quantized().expect("blocks").shape(), info.shape);
            let blocks = elements.len() / format.block_bytes();
            let blocks = blocks.min(DECODED / format.block_elements());
            let mut weights = vec![0.0; blocks * format.block_elements()];
            let elements = &elements[..blocks * format.block_bytes()];
            format.decode(elements, &mut weights).expect("whole blocks");
        }
    }
    // ggml takes no others.
    let written = file.tensors().all(|info| info.shape.len() <= 4 && info.name.len() < 64);
    assert_eq!(file.to_writer().is_ok(), written, "what was read can be written");
    all
}

fn npy(bytes: &[u8]) -> bool {
    let Ok(file) = MappedFile::from_bytes("bytes", bytes) else { return false };
    let Ok(array) = read_npy(&file, &Device::cpu()) else { return false };
    let elements = array.to_bytes().expect("its elements");
    assert_eq!(elements.len(), array.nbytes());
    assert!(elements.len() < bytes.len());
    true
}

/// Arrays are no larger than deflate can make them; whether all of them could be read.
fn npz(bytes: &[u8]) -> bool {
    let Ok(file) = Npz::from_bytes(bytes) else { return false };
    let (mut all, mut read) = (0, true);
    for name in file.names() {
        let Ok(array) = file.array_on(name, &Device::cpu()) else {
            read = false;
            continue;
        };
        assert_eq!(array.to_bytes().expect("its elements").len(), array.nbytes());
        all += array.nbytes();
    }
    assert!(all <= 1032 * bytes.len());
    read
}
