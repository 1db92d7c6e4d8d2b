//! GGUF files.

use serde_json::json;

use super::*;
use crate::array::DType;
use crate::io::gguf::{Gguf, TensorType, Value, Values, Writer};
use crate::quant::Format;

const FILES: [&str; 5] =
    ["every.gguf", "blocks.gguf", "aligned.gguf", "older.gguf", "metadata.gguf"];

/// A value as the package `gguf` tells it: flat.
fn told(value: &Value) -> serde_json::Value {
    fn flat(values: &Values, into: &mut Vec<serde_json::Value>) {
        for value in values.iter() {
            match &value {
                Value::Array(inner) => flat(inner, into),
                _ => into.push(told(&value)),
            }
        }
    }
    match value {
        Value::Bool(value) => json!(value),
        Value::String(text) => json!(text),
        Value::F32(value) => json!(value),
        Value::F64(value) => json!(value),
        Value::U64(value) => json!(value),
        Value::Array(values) => {
            let mut all = Vec::new();
            flat(values, &mut all);
            json!(all)
        }
        _ => json!(value.as_i64().unwrap()),
    }
}

fn told_tensors(file: &Gguf) -> serde_json::Value {
    let tensor = |name: &str| {
        let tensor = file.tensor_on(name, &Device::cpu()).unwrap();
        let bytes = hex(&tensor.data.to_bytes().unwrap());
        json!({"type": tensor.kind.to_string(), "shape": tensor.shape, "bytes": bytes})
    };
    file.tensors().map(|info| (info.name.to_string(), tensor(info.name))).collect()
}

#[test]
fn files_are_read_as_by_the_gguf_package() {
    let expected = expected();
    for name in FILES {
        let file = Gguf::open(goldens().join(name)).unwrap();
        let metadata: serde_json::Value =
            file.metadata().iter().map(|(key, value)| (key.clone(), told(value))).collect();
        assert_eq!(metadata, expected[name]["metadata"], "{name}");
        assert_eq!(told_tensors(&file), expected[name]["tensors"], "{name}");
        assert_eq!(file.version(), if name == "older.gguf" { 2 } else { 3 });
    }
    let every = Gguf::open(goldens().join("every.gguf")).unwrap();
    let nested = Values::Array(vec![Values::I32(vec![1, 2, 3]), Values::I32(vec![4])]);
    assert_eq!(every.get("nested"), Some(&Value::Array(nested)));
    assert_eq!(every.get("not there"), None);
    let blocks = every.tensor_on("blocks.Q4_0", &Device::cpu()).unwrap();
    assert_eq!((&blocks.shape[..], blocks.data.shape()), (&[2, 256][..], &[2, 144][..]));
    assert_eq!(blocks.data.dtype(), DType::U8);
    assert_says(every.tensor("not there"), "the name of a tensor");
}

#[test]
fn what_was_read_is_written_to_the_last_byte() {
    let folder = Folder::new("gguf-again");
    for name in FILES {
        let again = folder.0.join(name);
        Gguf::open(goldens().join(name)).unwrap().to_writer().unwrap().write(&again).unwrap();
        assert!(std::fs::read(&again).unwrap() == golden(name), "{name}");
    }
    assert_eq!(folder.names().len(), FILES.len(), "nothing else is left");
}

#[test]
fn files_hold_every_type_that_the_gguf_package_has_a_size_for() {
    let files = ["every.gguf", "blocks.gguf"].map(|name| Gguf::open(goldens().join(name)).unwrap());
    let mut read = std::collections::BTreeSet::new();
    for info in files.iter().flat_map(Gguf::tensors) {
        read.insert(info.kind.ggml_type().unwrap());
    }
    let numbers = [0, 1].into_iter().chain(24..=28).chain([30]);
    let blocks = [2, 3].into_iter().chain(6..=23).chain([29, 34, 35, 39, 40, 41]);
    assert!(read.into_iter().eq(numbers.chain(blocks).collect::<std::collections::BTreeSet<_>>()));
    // Numbers that were types once, and one that is none yet.
    for kind in [4, 5, 31, 32, 33, 36, 37, 38, 42] {
        let said = format!("tensor \"a\": type {kind} is unknown");
        assert_says(Gguf::from_bytes(&Bytes::alone(&[0], kind, 0).0), &said);
    }
}

#[test]
fn q8_1_is_of_the_size_that_fills_its_room() {
    let block = [&[0x00, 0x38, 0x00, 0xc0], &[1u8; 30][..], &[0x80, 0x5e]].concat();
    // A scale of 0.5, and a sum of 30 - 128 + 94.
    assert_eq!(block.len(), 36);
    let with = |blocks: u64, data: Vec<u8>, next: Option<u64>| {
        let count = 1 + u64::from(next.is_some());
        let mut bytes = Bytes::header(count, 0).tensor("a", &[32, blocks], 9, 0);
        if let Some(next) = next {
            bytes = bytes.tensor("b", &[1], 0, next);
        }
        bytes.0.resize(bytes.0.len().next_multiple_of(32), 0);
        bytes.0.extend(data);
        let file = Gguf::from_bytes(&bytes.0).unwrap();
        let tensor = file.tensor_on("a", &Device::cpu()).unwrap();
        assert_eq!(tensor.shape, [blocks as usize, 32]);
        let shape = tensor.data.shape().to_vec();
        (tensor.kind, shape, tensor.data.to_bytes().unwrap())
    };
    let narrow = TensorType::Blocks(Format::Q8_1);
    // Eight blocks of 36 bytes are 288, and of 40 bytes 320.
    let data: Vec<u8> = (0..384).map(|i| i as u8).collect();
    let read = with(8, data.clone(), Some(288));
    assert_eq!(read, (narrow, vec![8, 36], data[..288].to_vec()));
    let read = with(8, data.clone(), Some(320));
    assert_eq!(read, (TensorType::Q8_1Single, vec![8, 40], data[..320].to_vec()));
    assert_eq!(with(8, data[..319].to_vec(), None).0, narrow);
    assert_eq!(with(8, data[..320].to_vec(), None).0, TensorType::Q8_1Single);
    // One block of either size is padded to 64 bytes.
    let padded = |block: &[u8]| [block, &vec![0; 96 - block.len()]].concat();
    let (kind, _, bytes) = with(1, padded(&block), Some(64));
    assert_eq!((kind, &bytes), (narrow, &block));
    let mut weights = [0.0; 32];
    Format::Q8_1.decode(&bytes, &mut weights).unwrap();
    assert_eq!((weights[0], weights[30], weights[31]), (0.5, -64.0, 47.0));
    let single = [&0.5f32.to_le_bytes(), &(-2f32).to_le_bytes(), &block[4..]].concat();
    assert_eq!(with(1, padded(&single), Some(64)).2, single);
    assert_eq!(with(0, Vec::new(), None).0, narrow);
}

#[test]
fn split_files_are_opened_by_the_first() {
    let [first, second] = [1, 2].map(|number| format!("split-0000{number}-of-00002.gguf"));
    let whole = Gguf::open(goldens().join(&first)).unwrap();
    let expected = expected();
    let mut tensors = expected[&first]["tensors"].as_object().unwrap().clone();
    tensors.append(&mut expected[&second]["tensors"].as_object().unwrap().clone());
    assert_eq!(told_tensors(&whole), serde_json::Value::Object(tensors));
    assert_eq!(whole.get("general.architecture").unwrap().as_str(), Some("llama"));

    let folder = Folder::new("gguf-split");
    let joined = folder.0.join("joined.gguf");
    whole.to_writer().unwrap().write(&joined).unwrap();
    let joined = Gguf::open(&joined).unwrap();
    assert_eq!(told_tensors(&joined), told_tensors(&whole));
    assert_eq!(joined.get("split.count"), None);

    assert_says(Gguf::open(goldens().join(&second)), "part 2 of 2; open ");
    assert_says(Gguf::from_bytes(&golden(&first)), "one of 2 files");
    let alone = folder.file(&first, golden(&first));
    assert_says(Gguf::open(&alone), &second);
    folder.file(&second, golden(&first));
    assert_says(Gguf::open(&alone), "do not say part 2 of 2");
    assert_says(
        Gguf::open(folder.file("other.gguf", golden(&first))),
        "name does not end in -00001",
    );
    let with = |number: u16, count: u16, tensors: i32| {
        let mut writer = Writer::new();
        writer.metadata("split.no", number).unwrap().metadata("split.count", count).unwrap();
        writer.metadata("split.tensors.count", tensors).unwrap();
        let array = Array::from_slice_on(&[1.0f32], &[1], &Device::cpu()).unwrap();
        writer.tensor("same", array).unwrap();
        let file = folder.0.join(format!("made-{:05}-of-{count:05}.gguf", number + 1));
        writer.write(&file).unwrap();
        Gguf::open(file)
    };
    assert_says(with(3, 2, 1), "split.no is 3, split.count 2");
    assert_says(with(1, 2, 3), "part 2 of 2; open ");
    assert_says(with(0, 2, 3), "3 tensors in 2 files, but they hold 2");
    assert_says(with(1, 2, 2), "part 2 of 2; open ");
    assert_says(with(0, 2, 2), "tensor \"same\" is in an earlier file, too");
}

/// A header by hand.
#[derive(Default)]
struct Bytes(Vec<u8>);

impl Bytes {
    fn header(tensors: u64, keys: u64) -> Bytes {
        Bytes(b"GGUF".to_vec()).u32(3).u64(tensors).u64(keys)
    }

    fn u32(mut self, value: u32) -> Bytes {
        self.0.extend(value.to_le_bytes());
        self
    }

    fn u64(mut self, value: u64) -> Bytes {
        self.0.extend(value.to_le_bytes());
        self
    }

    fn text(self, text: impl AsRef<[u8]>) -> Bytes {
        let mut bytes = self.u64(text.as_ref().len() as u64);
        bytes.0.extend(text.as_ref());
        bytes
    }

    /// A tensor's name, shape as files have it, type and offset.
    fn tensor(self, name: &str, lengths: &[u64], kind: u32, offset: u64) -> Bytes {
        let named = self.text(name).u32(lengths.len() as u32);
        lengths.iter().fold(named, |bytes, &length| bytes.u64(length)).u32(kind).u64(offset)
    }

    /// A tensor in a file with 64 bytes of data.
    fn alone(lengths: &[u64], kind: u32, offset: u64) -> Bytes {
        Bytes::header(1, 0).tensor("a", lengths, kind, offset).data()
    }

    fn data(mut self) -> Bytes {
        self.0.resize(self.0.len().next_multiple_of(32) + 64, 0);
        self
    }
}

#[test]
fn whatever_is_wrong_with_a_file_is_said() {
    let key = |kind: u32| Bytes::header(0, 1).text("k").u32(kind);
    let deep = |depth| (0..depth).fold(key(9), |bytes, _| bytes.u32(9).u64(1)).u32(0).u64(0);
    let alignment = |value| Bytes::header(0, 1).text("general.alignment").u32(4).u32(value);
    let twice = |offset| {
        let first = Bytes::header(2, 0).tensor("a", &[9], 0, 0);
        first.tensor("b", &[1], 0, offset).data()
    };
    const MOST: u64 = u64::MAX;
    let wrong = [
        (Bytes::default(), "the file ends in the magic number"),
        (Bytes(b"GGML1234".to_vec()), "not a GGUF file"),
        (Bytes(b"GGUF".to_vec()).u32(1).u64(0), "GGUF version 1;"),
        (Bytes(b"GGUF".to_vec()).u32(4).u64(0), "GGUF version 4;"),
        (Bytes(golden("big_endian.gguf")), "big-endian"),
        (Bytes(b"GGUF".to_vec()).u32(3).u64(0), "the number of keys"),
        (Bytes::header(MOST, 0), "the name of tensor 0 of 18446744073709551615"),
        (Bytes::header(0, MOST), "the file ends in key 0 of"),
        (Bytes::header(0, 1).u64(MOST), "the file ends in key 0 of 1"),
        (Bytes::header(0, 1).text([0xff]), "key 0 of 1 is not UTF-8"),
        (Bytes::header(0, 1).text("k"), "key \"k\": the file ends in the type"),
        (key(13), "key \"k\": type 13 is unknown"),
        (key(4), "key \"k\": the file ends in the value"),
        (key(8).u64(MOST), "key \"k\": the file ends in the value"),
        (key(8).text([0xc3]), "key \"k\": the value is not UTF-8"),
        (Bytes([&key(7).0[..], &[2]].concat()), "key \"k\": a truth value is 2"),
        (key(9).u32(0).u64(MOST), "key \"k\": 18446744073709551615 elements are beyond"),
        (key(9).u32(12).u64(1 << 61), "elements are beyond"),
        (key(9).u32(8).u64(1 << 40), "elements are beyond"),
        (key(9).u32(8).u64(2).text("x").u64(9), "the file ends in text 1 of 2"),
        (key(9).u32(14).u64(0), "the element type 14 is unknown"),
        (deep(17), "nested too deeply"),
        (deep(100_000), "nested too deeply"),
        (key(4).u32(0).text("k").u32(4).u32(0), ""),
        (alignment(0), "general.alignment: expected a power of two"),
        (alignment(24), "general.alignment: expected a power of two"),
        (alignment(1 << 31), "general.alignment: expected a power of two"),
        (
            Bytes::header(0, 1).text("general.alignment").u32(10).u64(32),
            "of type 4 (u32), got 32 of type 10",
        ),
        (Bytes::alone(&[1; 9], 0, 0), "tensor \"a\": 9 axes"),
        (Bytes::alone(&[1], 5, 0), "tensor \"a\": type 5 is unknown"),
        (Bytes::alone(&[33], 8, 0), "tensor \"a\": rows of 33 are not whole blocks of 32 (Q8_0)"),
        (Bytes::alone(&[], 8, 0), "tensor \"a\": a scalar cannot be Q8_0"),
        (Bytes::alone(&[1 << 40, 1 << 40], 0, 0), "tensor \"a\": shape [1099511627776, 10995"),
        (Bytes::alone(&[1 << 40, 1 << 40, 0], 0, 0), "overflows"),
        (Bytes::alone(&[MOST / 32 * 32], 8, 0), "overflow"),
        (Bytes::alone(&[1], 0, 4), "tensor \"a\": offset 4 is not a multiple of 32"),
        (Bytes::alone(&[17], 0, 0), "tensor \"a\": 68 bytes at offset 0"),
        (Bytes::alone(&[1], 0, 64), "are beyond the file's"),
        (Bytes::alone(&[1], 0, MOST - 31), "are beyond the file's"),
        (twice(32), "tensor \"b\" overlaps tensor \"a\""),
        (
            Bytes::header(2, 0).tensor("a", &[1], 0, 0).tensor("a", &[1], 0, 32),
            "\"a\" is there twice",
        ),
    ];
    for (bytes, words) in wrong {
        // This one is right, but for a key that the header does not count.
        if words.is_empty() {
            assert!(Gguf::from_bytes(&bytes.0).is_ok());
            continue;
        }
        assert_says(Gguf::from_bytes(&bytes.0), words);
    }
    let keys = Bytes::header(0, 2).text("k").u32(4).u32(0).text("k").u32(4).u32(0);
    assert_says(Gguf::from_bytes(&keys.0), "key \"k\" is there twice");
    assert_says(Gguf::open("not there"), "not there");
    assert!(Gguf::from_bytes(&deep(16).0).is_ok());
    assert!(Gguf::from_bytes(&Bytes::alone(&[16], 0, 0).0).is_ok());
    assert!(Gguf::from_bytes(&twice(64).0).is_err());
    assert!(Gguf::from_bytes(&Bytes::alone(&[0, 5], 0, 96).0).is_ok(), "nothing is nowhere");
}

#[test]
fn a_writer_refuses_what_cannot_be_read() {
    let array = |shape: &[usize], dtype| Array::empty_on(shape, dtype, &Device::cpu()).unwrap();
    let mut writer = Writer::new();
    writer.metadata("k", 1u8).unwrap().tensor("t", array(&[], DType::F32)).unwrap();
    assert_says(writer.version(1).map(drop), "expected 2 or 3, got 1");
    assert_says(writer.metadata("k", 1u8).map(drop), "k twice");
    assert_says(writer.metadata("general.alignment", 3u32).map(drop), "a power of two");
    assert_says(writer.tensor("t", array(&[], DType::F32)).map(drop), "t twice");
    assert_says(writer.tensor("u", array(&[1], DType::U8)).map(drop), "tensor u: expected dtype");
    // As ggml has it: four axes, and names with a zero behind them in 64 bytes.
    writer.tensor(&"n".repeat(63), array(&[1; 4], DType::F32)).unwrap();
    assert_says(writer.tensor("u", array(&[1; 5], DType::F32)).map(drop), "at most 4 axes");
    let long = "é".repeat(32);
    assert_says(
        writer.tensor(&long, array(&[1], DType::F32)).map(drop),
        "at most 63 bytes, got 64",
    );
    let format = Format::Q4_0;
    assert_says(writer.blocks("u", format, array(&[2, 19], DType::U8)).map(drop), "whole blocks");
    assert_says(writer.blocks("u", format, array(&[18], DType::I8)).map(drop), "expected dtype");
    let deep = (0..20).fold(Values::Bool(vec![]), |inner, _| Values::Array(vec![inner]));
    assert_says(writer.metadata("deep", Value::Array(deep)).map(drop), "nested at most 16 deep");
    let folder = Folder::new("gguf-writer");
    writer.blocks("v", format, array(&[3, 36], DType::U8)).unwrap();
    writer.write(folder.0.join("it")).unwrap();
    let read = Gguf::open(folder.0.join("it")).unwrap();
    assert_eq!(read.info("v").unwrap().shape, [3, 64]);
    assert_eq!((read.metadata().len(), read.tensors().count()), (1, 3));
}

#[test]
fn blocks_of_a_file_are_quantized_weights_and_errors_name_the_tensor() {
    let blocks = Gguf::open(goldens().join("blocks.gguf")).unwrap();
    let mut found = 0;
    for info in blocks.tensors() {
        let tensor = blocks.tensor_on(info.name, &Device::cpu()).unwrap();
        let TensorType::Blocks(format) = info.kind else { continue };
        let weights = crate::dequantize(&tensor.quantized().unwrap(), None).unwrap();
        assert_eq!(weights.shape(), info.shape, "{}", info.name);
        let mut expected = vec![0.0; weights.size()];
        format.decode(&tensor.data.to_bytes().unwrap(), &mut expected).unwrap();
        let same = (weights.to_vec::<f32>().unwrap().iter().zip(expected))
            .all(|(a, b)| a.to_bits() == b.to_bits());
        assert!(same, "{}", info.name);
        found += 1;
    }
    assert!(found > 10, "{found} tensors of blocks");
    let every = Gguf::open(goldens().join("every.gguf")).unwrap();
    let plain = every.tensors().find(|info| matches!(info.kind, TensorType::Numbers(_))).unwrap();
    let numbers = every.tensor_on(plain.name, &Device::cpu()).unwrap();
    let words = format!("tensor \"{}\": expected quantized blocks", plain.name);
    assert_says(numbers.quantized(), &words);
    let mut cut = blocks.tensor_on(blocks.tensors().next().unwrap().name, &Device::cpu()).unwrap();
    cut.data = cut.data.astype(DType::I8).unwrap();
    assert_says(cut.quantized(), &format!("tensor \"{}\": expected blocks of", cut.name));
}

#[test]
fn a_failure_leaves_the_old_file() {
    let folder = Folder::new("gguf-failure");
    let file = folder.file("a.gguf", b"old");
    let mut writer = Writer::new();
    writer.tensor("bad", failing()).unwrap();
    assert_says(writer.write(&file), "index 7 is out of range");
    assert_eq!(std::fs::read(&file).unwrap(), b"old");
    assert_eq!(folder.names(), ["a.gguf"]);
    assert_says(Writer::new().write(folder.0.join("none/a.gguf")), "a.gguf: No such file");
}
