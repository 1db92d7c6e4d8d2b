//! npy and npz files, and `load` and `save`.

use std::collections::BTreeMap;
use std::io::Write;

use serde_json::json;

use super::*;
use crate::array::DType;

/// Files that NumPy and MLX wrote.
fn arrays() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../goldens/arrays")
}

fn told(array: &Array) -> serde_json::Value {
    let bytes = hex(&array.to_bytes().unwrap());
    json!({"dtype": array.dtype().name(), "shape": array.shape(), "bytes": bytes})
}

fn read(bytes: &[u8]) -> Result<Array> {
    read_npy(&MappedFile::from_bytes("bytes", bytes)?, &Device::cpu())
}

#[test]
fn files_of_numpy_and_mlx_hold_what_these_say() {
    let expected: serde_json::Value =
        serde_json::from_slice(&std::fs::read(arrays().join("expected.json")).unwrap()).unwrap();
    let expected = expected.as_object().unwrap();
    assert!(expected.len() >= 15);
    for (file, expected) in expected {
        let path = arrays().join(file);
        let found = crate::with_device(&Device::cpu(), || match load(&path).unwrap() {
            Contents::Array(array) => told(&array),
            Contents::Arrays(arrays) => {
                arrays.iter().map(|(name, array)| (name.clone(), told(array))).collect()
            }
        });
        assert_eq!(&found, expected, "{file}");
    }
}

#[test]
fn hostile_files_are_refused() {
    let entries = std::fs::read_dir(arrays().join("hostile")).unwrap();
    let paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    assert!(paths.len() >= 20);
    for path in paths {
        let refused = crate::with_device(&Device::cpu(), || load(&path));
        assert!(refused.is_err(), "{}: {refused:?}", path.display());
    }
}

#[test]
fn an_npy_file_is_mapped_and_not_copied() {
    let bytes = std::fs::read(arrays().join("mlx.npy")).unwrap();
    let file = MappedFile::from_bytes("mlx.npy", &bytes).unwrap();
    let array = read_npy(&file, &Device::cpu()).unwrap();
    assert!(matches!(
        array.buffer().map(|buffer| &**buffer),
        Some(crate::buffer::Buffer::Mapped(_))
    ));
}

/// An npy file of version 1.
fn npy(header: &str, data: &[u8]) -> Vec<u8> {
    let length = (header.len() as u16).to_le_bytes();
    [b"\x93NUMPY\x01\x00", &length[..], header.as_bytes(), data].concat()
}

#[test]
fn headers_may_be_written_in_other_ways() {
    let data = 7i32.to_le_bytes();
    for header in [
        "{'descr': '<i4', 'fortran_order': False, 'shape': (1,), }",
        "{'shape':(1L,),'descr':\"=i4\",'fortran_order':True}\n",
        " { \"fortran_order\" : False , 'shape' : ( 1 , ) , 'descr' : 'i4' } \t\r\n",
        "{'descr': '|i4', 'fortran_order': False, 'shape': (1, )}",
    ] {
        assert_eq!(read(&npy(header, &data)).unwrap().to_vec::<i32>().unwrap(), [7], "{header}");
    }
}

#[test]
fn whatever_is_wrong_with_an_npy_file_is_said() {
    let plain = |descr: &str, shape: &str| {
        let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}");
        npy(&header, &[0; 8])
    };
    let header = |text: &str| npy(text, &[]);
    let many = format!("({})", "1, ".repeat(65));
    let wrong = [
        (vec![], "not an npy file"),
        (b"PK\x03\x04".to_vec(), "not an npy file"),
        (b"\x93NUMPY".to_vec(), "ends in the header"),
        (b"\x93NUMPY\x01\x00\x01".to_vec(), "ends in the header"),
        (b"\x93NUMPY\x02\x00\xff\xff\xff\xff".to_vec(), "ends in the header"),
        (b"\x93NUMPY\x04\x00\x00\x00\x00\x00".to_vec(), "version 4.0; known are 1, 2 and 3"),
        (header("\u{1f600}"), "header: expected '{'"),
        (npy("", &[0xff; 3]), "header: expected '{'"),
        (header("{}"), "no key \"descr\""),
        (header("{'descr': '<i4', 'shape': ()}"), "no key \"fortran_order\""),
        (header("{'descr': '<i4', 'descr': '<i4'}"), "key \"descr\" is there twice"),
        (header("{'more': '<i4'}"), "unknown key \"more\""),
        (header("{'descr': [('a', '<i4')]}"), "expected a string, got \"[('a', '<i4')]}\""),
        (header("{'descr': '\\x41'}"), "has escapes"),
        (header("{'descr': '<i4"), "expected a string"),
        (header("{'fortran_order': 1}"), "expected True or False"),
        (header("{'descr': '<i4' 'shape'}"), "expected '}'"),
        (plain("<i4", "(2,) x"), "expected '}'"),
        (plain("<i4", "2"), "expected '('"),
        (plain("<i4", "(-2,)"), "expected the length of an axis"),
        (plain("<i4", "(2.0,)"), "expected ')'"),
        (plain("<i4", "(99999999999999999999,)"), "expected the length of an axis"),
        (plain("<i4", &many), "more than 64 axes"),
        (plain("<i4", "(3,)"), "12 bytes for shape [3] of int32, but there are 8"),
        (plain("<i4", "(1,)"), "4 bytes for shape [1] of int32, but there are 8"),
        (plain("<i4", "(4611686018427387904, 4)"), "overflows"),
        (plain("<i4", "(4611686018427387904, 4, 0)"), "overflows"),
        (plain("|O", "(1,)"), "the dtype \"|O\", which arrays cannot have"),
        (plain("<U2", "(1,)"), "the dtype \"<U2\""),
        (plain("<f16", "(1,)"), "the dtype \"<f16\""),
        (plain("", "(1,)"), "the dtype \"\""),
    ];
    for (bytes, words) in wrong {
        assert_says(read(&bytes), words);
    }
    let not_text = [b"\x93NUMPY\x01\x00\x02\x00".as_slice(), &[0xff, 0xfe]].concat();
    assert_says(read(&not_text), "header: invalid utf-8");
}

#[test]
fn what_is_written_is_read_again() {
    let folder = Folder::new("npy");
    let mut every = BTreeMap::new();
    for (number, dtype) in DType::ALL.into_iter().enumerate() {
        let shape = [[].as_slice(), &[3], &[2, 3], &[0, 2], &[2, 1, 2]][number % 5];
        let size = shape.iter().product::<usize>() as i64;
        let numbers = crate::ops::arange(0, size, 1, DType::F32).unwrap();
        let array = numbers.reshape(shape).unwrap().astype(dtype).unwrap();
        let file = folder.0.join(format!("{dtype}.npy"));
        save(&file, &array).unwrap();
        let length = std::fs::metadata(&file).unwrap().len() as usize;
        assert_eq!((length - array.nbytes()) % 64, 0, "elements begin at a multiple of 64");
        assert_eq!(told(&load(&file).unwrap().array().unwrap()), told(&array), "{dtype}");
        every.insert(dtype.name().to_string(), array.transpose().unwrap());
    }
    savez(folder.0.join("a.npz"), &every).unwrap();
    savez_compressed(folder.0.join("b.npz"), &every).unwrap();
    for name in ["a.npz", "b.npz"] {
        let again = load(folder.0.join(name)).unwrap().arrays().unwrap();
        assert_eq!(again.len(), every.len());
        again.iter().for_each(|(name, array)| assert_eq!(told(array), told(&every[name])));
    }
    assert_eq!(Npz::open(folder.0.join("a.npz")).unwrap().names().count(), DType::ALL.len());
}

/// An archive of these files.
fn archive(files: &[(&str, &[u8])], method: zip::CompressionMethod) -> Vec<u8> {
    let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    let options = zip::write::SimpleFileOptions::default().compression_method(method);
    for (name, bytes) in files {
        zip.start_file(*name, options).unwrap();
        zip.write_all(bytes).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

/// Where bytes are in others.
fn find(bytes: &[u8], what: &[u8]) -> Vec<usize> {
    (0..bytes.len()).filter(|&at| bytes[at..].starts_with(what)).collect()
}

#[test]
fn whatever_is_wrong_with_an_npz_file_is_said() {
    use zip::CompressionMethod::{Deflated, Stored};
    let good = npy("{'descr': '<i4', 'fortran_order': False, 'shape': (1,)}", &[1, 2, 3, 4]);
    let from = |bytes: &[u8]| Npz::from_bytes(bytes);
    assert_says(from(b""), "not a zip archive");
    assert_says(from(&good), "not a zip archive");
    assert_says(from(&archive(&[("x.txt", b"text")], Stored)), "\"x.txt\": not an npy file");
    let file = from(&archive(&[("x.npy", &good), ("y.npy", b"text")], Stored)).unwrap();
    assert_eq!(file.array("x").unwrap().to_bytes().unwrap(), [1, 2, 3, 4]);
    assert_says(file.array("y"), "array \"y\": not an npy file");
    assert_says(file.array("z"), "expected the name of an array, got \"z\"");
    assert!(from(&archive(&[], Stored)).unwrap().names().next().is_none());

    // A number that is damaged in the data.
    let mut damaged = archive(&[("x.npy", &good)], Stored);
    let place = find(&damaged, &[1, 2, 3, 4])[0];
    damaged[place] = 9;
    assert_says(from(&damaged).unwrap().array("x"), "array \"x\": Invalid checksum");

    // A size that so few bytes cannot have: the directory's and the local one are behind the sum.
    let packed = archive(&[("x.npy", &good)], Deflated);
    let directory = find(&packed, b"PK\x01\x02")[0];
    let mut bomb = packed.clone();
    bomb[directory + 24..directory + 28].copy_from_slice(&0x7fff_ffffu32.to_le_bytes());
    assert_says(from(&bomb), "\"x.npy\": 2147483647 bytes cannot be made of");
    let mut short = packed.clone();
    short[directory + 24..directory + 28].copy_from_slice(&3u32.to_le_bytes());
    assert!(from(&short).and_then(|file| file.array("x")).is_err());
    let mut other = packed;
    let local = find(&other, b"PK\x03\x04")[0];
    for method in [directory + 10, local + 8] {
        other[method] = 14;
    }
    assert!(from(&other).and_then(|file| file.array("x")).is_err());
}

#[test]
fn extensions_say_the_format() {
    let folder = Folder::new("extensions");
    let array = Array::new([1.5f32]).unwrap();
    let named = BTreeMap::from([("x".to_string(), array.clone())]);
    for name in ["a.npz", "a.safetensors", "a.gguf"] {
        let file = folder.0.join(name);
        save(&file, &named).unwrap();
        let again = load(&file).unwrap();
        assert_says(again.clone().array(), "expected one array without a name");
        assert_eq!(again.arrays().unwrap()["x"].item::<f32>().unwrap(), 1.5, "{name}");
    }
    let file = folder.0.join("a.npy");
    save(&file, &array).unwrap();
    assert_says(load(&file).unwrap().arrays(), "expected arrays by name");
    assert_says(save(&file, &named), "expected one array for ");
    assert_says(save(folder.0.join("b.gguf"), &array), "expected arrays by name for ");
    let alone = folder.0.join("b.npz");
    save(&alone, &array).unwrap();
    assert!(load(&alone).unwrap().arrays().unwrap().contains_key("arr_0"));
    for name in ["a", "a.txt", "a.NPY", ""] {
        let words = "expected a name that ends with .npy, .npz, .safetensors or .gguf";
        assert_says(load(folder.0.join(name)), words);
        assert_says(save(folder.0.join(name), &array), words);
    }
    assert_says(load(folder.0.join("none.npy")), "none.npy: No such file");
    let quantized = crate::quant::Format::Q8_0;
    let blocks =
        crate::ops::quantize(&Array::ones(&[1, 32], DType::F32).unwrap(), quantized).unwrap();
    let mut writer = crate::io::gguf::Writer::new();
    writer.blocks("w", quantized, blocks.codes().clone()).unwrap();
    let file = folder.0.join("q.gguf");
    writer.write(&file).unwrap();
    assert_says(load(&file), "\"w\" of Q8_0, which load_gguf reads");
}

#[test]
fn a_failure_leaves_the_old_archive() {
    let folder = Folder::new("npz-failure");
    let file = folder.0.join("a.npz");
    let good = BTreeMap::from([("x".to_string(), Array::new([1]).unwrap())]);
    savez(&file, &good).unwrap();
    let bad = BTreeMap::from([("bad".to_string(), failing())]);
    assert_says(savez_compressed(&file, &bad), "index 7 is out of range");
    assert_eq!(load_npz(&file).unwrap()["x"].item::<i32>().unwrap(), 1);
    assert_eq!(folder.names(), ["a.npz"]);
}

/// What Python's NumPy and MLX read in files of ours, where they are installed.
#[test]
fn python_reads_what_is_written() {
    let folder = Folder::new("npy-python");
    let numbers = crate::ops::arange(0, 6, 1, DType::F32).unwrap().reshape(&[2, 3]).unwrap();
    let half = numbers.astype(DType::BF16).unwrap();
    let both =
        BTreeMap::from([("t".to_string(), numbers.transpose().unwrap()), ("b".to_string(), half)]);
    save(folder.0.join("x.npy"), &numbers).unwrap();
    savez(folder.0.join("a.npz"), &both).unwrap();
    savez_compressed(folder.0.join("c.npz"), &both).unwrap();
    let script = "import sys, numpy as np\n\
        x = np.load('x.npy')\n\
        assert x.dtype == np.float32 and (x == np.arange(6).reshape(2, 3)).all()\n\
        for name in ['a.npz', 'c.npz']:\n    \
            z = np.load(name)\n    \
            assert (z['t'] == x.T).all() and z['b'].dtype == np.dtype('V2'), name\n\
        try:\n    import mlx.core as mx\n\
        except ImportError:\n    sys.exit(0)\n\
        for name in ['a.npz', 'c.npz']:\n    \
            z = mx.load(name)\n    \
            assert z['b'].dtype == mx.bfloat16 and (z['b'] == mx.array(x)).all().item(), name\n";
    let python = std::env::var("WOOTZ_PYTHON").unwrap_or("python3".into());
    let has = |what: &str| {
        let run = std::process::Command::new(&python).args(["-c", what]).output();
        run.is_ok_and(|output| output.status.success())
    };
    if !has("import numpy") {
        eprintln!("SKIPPED: {python} has no NumPy to read files with");
        return;
    }
    let run =
        std::process::Command::new(&python).args(["-c", script]).current_dir(&folder.0).output();
    let output = run.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
