//! What must hold of the readers of files, whatever the bytes are: they return, and what they tell of can be read. For
//! fuzzing, and for the tests of `wootz` that replay what was found. Each says whether the bytes were a file.

use wootz::Device;
use wootz::io::gguf::Gguf;
use wootz::io::{MappedFile, Npz, Safetensors, read_npy};

/// The check of a reader, by the name of its target.
pub fn check(reader: &str, bytes: &[u8]) -> bool {
    match reader {
        "safetensors" => safetensors(bytes),
        "gguf" => gguf(bytes),
        "npy" => npy(bytes),
        "npz" => npz(bytes),
        other => panic!("there is no reader {other}"),
    }
}

fn safetensors(bytes: &[u8]) -> bool {
    let Ok(file) = Safetensors::from_bytes(bytes) else { return false };
    let mut all = 0;
    for name in file.names() {
        let raw = file.raw(name).expect("a tensor").to_bytes().expect("its bytes");
        all += raw.len();
        if file.dtype(name).is_some() {
            let tensor = file.tensor_on(name, &Device::cpu()).expect("a tensor");
            assert_eq!(tensor.to_bytes().expect("its elements"), raw, "{name}");
        }
    }
    assert!(all <= bytes.len());
    true
}

fn gguf(bytes: &[u8]) -> bool {
    let Ok(file) = Gguf::from_bytes(bytes) else { return false };
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
    }
    assert!(all <= bytes.len());
    file.to_writer().expect("what was read can be written");
    true
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
