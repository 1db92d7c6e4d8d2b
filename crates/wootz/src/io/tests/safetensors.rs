//! Safetensors files.

use std::collections::BTreeMap;

use serde_json::json;

use super::*;
use crate::array::DType;

#[test]
fn files_are_read_as_by_the_safetensors_package() {
    let file = Safetensors::open(goldens().join("every.safetensors")).unwrap();
    let tensor = |name: &str| {
        let array = file.tensor_on(name, &Device::cpu()).unwrap();
        assert_eq!(
            (file.shape(name), file.dtype(name)),
            (Some(array.shape()), Some(array.dtype()))
        );
        let bytes = hex(&array.to_bytes().unwrap());
        json!({"type": file.stored_dtype(name), "shape": array.shape(), "bytes": bytes})
    };
    let tensors: serde_json::Value =
        file.names().map(|name| (name.to_string(), tensor(name))).collect();
    let expected = &expected()["every.safetensors"];
    assert_eq!(tensors, expected["tensors"]);
    assert_eq!(json!(file.metadata()), expected["metadata"]);
    assert_says(file.tensor("not there"), "expected the name of a tensor, got \"not there\"");
    assert_eq!((file.shape("not there"), file.dtype("not there")), (None, None));
}

#[test]
fn tensors_at_odd_offsets_are_read() {
    let file = Safetensors::open(goldens().join("odd.safetensors")).unwrap();
    let bytes = golden("odd.safetensors");
    let data = &bytes[bytes.len() - 16..];
    let cpu = |name| file.tensor_on(name, &Device::cpu());
    let words = cpu("words").unwrap();
    let expected: Vec<u32> =
        data[1..9].chunks(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect();
    assert_eq!(words.to_vec::<u32>().unwrap(), expected);
    assert_eq!((&words - &words).to_vec::<u32>().unwrap(), [0, 0]);
    assert_eq!(cpu("brain").unwrap().to_bytes().unwrap(), data[12..]);
    // As in MLX, floats of 8 bits are their bytes.
    assert_eq!(cpu("small").unwrap().to_vec::<u8>().unwrap(), data[9..12]);
    assert_eq!((file.dtype("small"), file.shape("small")), (Some(DType::U8), Some(&[3][..])));
    assert_eq!(file.stored_dtype("small").as_deref(), Some("F8_E4M3"));
    assert_eq!(file.raw("small").unwrap().to_vec::<u8>().unwrap(), data[9..12]);
    let all = load_safetensors(&goldens().join("odd.safetensors")).unwrap();
    assert_eq!(all["small"].to_vec::<u8>().unwrap(), data[9..12]);
}

#[test]
fn dtypes_that_arrays_cannot_have_are_said_when_a_tensor_is_asked_for() {
    let entries = [entry("a", "F8_E5M2", "[2]", "[0,2]"), entry("b", "U8", "[1]", "[2,3]")];
    let file = Safetensors::from_bytes(&made(&format!("{{{}}}", entries.join(",")), 3)).unwrap();
    let tensor = file.tensor_on("a", &Device::cpu());
    assert_says(tensor, "tensor \"a\" has the dtype F8_E5M2, which arrays cannot have");
    assert_eq!((file.dtype("a"), file.dtype("b")), (None, Some(DType::U8)));
    assert_eq!(file.raw("a").unwrap().size(), 2);
}

/// The file of a header and data.
fn made(header: &str, data: usize) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &vec![0; data]].concat()
}

/// The header's entry of a tensor.
fn entry(name: &str, dtype: &str, shape: &str, offsets: &str) -> String {
    format!(r#""{name}":{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}"#)
}

#[test]
fn whatever_is_wrong_with_a_file_is_said() {
    let one =
        |dtype, shape, offsets| made(&format!("{{{}}}", entry("a", dtype, shape, offsets)), 8);
    let two = |first: &str, second: &str| made(&format!("{{{first},{second}}}"), 8);
    let f32 = |name, offsets| entry(name, "F32", "[1]", offsets);
    let deep = format!("{{\"a\":{}", "[".repeat(100_000));
    // 2⁶⁴ - 1 bytes in all.
    let many: Vec<String> = (0..9u64)
        .map(|i| {
            let size = if i == 8 { 7 } else { (1 << 61) - 1 };
            let start = i * ((1 << 61) - 1);
            entry(
                &i.to_string(),
                "U8",
                &format!("[{size}]"),
                &format!("[{start},{}]", start + size),
            )
        })
        .collect();
    let wrong = [
        (vec![], "the file ends in the header"),
        (vec![0; 7], "the file ends in the header"),
        (vec![0xff; 64], "the header would have 18446744073709551615 bytes"),
        (100_000_000u64.to_le_bytes().to_vec(), "the file ends in the header"),
        (made("", 0), "header: EOF"),
        (made("[]", 0), "header: invalid type: sequence, expected tensors by name"),
        (made("\u{1}", 0), "header: expected value"),
        (made(&deep, 0), "tensor \"a\""),
        (made(r#"{"a":7}"#, 0), "tensor \"a\": invalid type"),
        (made(r#"{"__metadata__":{"k":1}}"#, 0), "__metadata__: invalid type"),
        (
            made(r#"{"__metadata__":{"k":"1"},"__metadata__":{"l":"2"}}"#, 0),
            "__metadata__ is there twice",
        ),
        (made(r#"{"__metadata__":null,"__metadata__":{}}"#, 0), "__metadata__ is there twice"),
        (
            made(r#"{"__metadata__":{"k":"1","k":"1"}}"#, 0),
            "__metadata__: key \"k\" is there twice",
        ),
        (made("{}", 1), "the tensors end at 0, but there are 1 bytes of data"),
        (one("F99", "[2]", "[0,8]"), "tensor \"a\": unknown variant `F99`"),
        (one("F32", "[-2]", "[0,8]"), "tensor \"a\": invalid value"),
        (one("F32", "[2]", "[0]"), "tensor \"a\""),
        (one("F32", "[2]", "[8,0]"), "tensor \"a\": begins at 8"),
        (one("F32", "[2]", "[0,7]"), "tensor \"a\": 8 bytes for shape [2] of F32"),
        (one("F32", "[3]", "[0,12]"), "tensor \"a\": ends at 12, but the file has 8 bytes"),
        (one("F32", "[4294967296,4294967296]", "[0,8]"), "tensor \"a\": shape [4294967296, 42"),
        (one("F32", "[0,4294967296,4294967296]", "[0,0]"), "overflows"),
        (one("F4", "[3]", "[0,8]"), "not whole bytes"),
        (two(&f32("a", "[0,4]"), &f32("b", "[0,4]")), "tensor \"b\": begins at 0, but"),
        (two(&f32("a", "[0,4]"), &f32("b", "[5,9]")), "tensor \"b\": begins at 5, but"),
        (two(&f32("a", "[0,4]"), &f32("a", "[4,8]")), "tensor \"a\" is there twice"),
        (made(&format!("{{{}}}", many.join(",")), 8), "tensor \"0\": ends at"),
    ];
    for (bytes, words) in wrong {
        assert_says(Safetensors::from_bytes(&bytes), words);
    }
    assert!(Safetensors::from_bytes(&two(&f32("a", "[4,8]"), &f32("b", "[0,4]"))).is_ok());
    assert!(Safetensors::from_bytes(&made(r#"{"__metadata__":null}   "#, 0)).is_ok());
    assert!(Safetensors::from_bytes(&made("{}", 0)).unwrap().names().next().is_none());
}

#[test]
fn a_checkpoint_in_several_files_is_one() {
    let folder = goldens().join("sharded");
    for path in [folder.clone(), folder.join("model.safetensors.index.json")] {
        let all = Safetensors::open(&path).unwrap();
        assert_eq!(all.names().collect::<Vec<_>>(), ["a", "b", "c"]);
        for (name, file) in [("a", 1), ("b", 2), ("c", 1)] {
            let file = folder.join(format!("model-0000{file}-of-00002.safetensors"));
            let alone = Safetensors::open(file).unwrap();
            let bytes = [&all, &alone].map(|of| of.tensor(name).unwrap().to_bytes().unwrap());
            assert_eq!(bytes[0], bytes[1]);
        }
    }
    // The files tell as much without an index.
    let parts = Folder::new("no-index");
    assert_says(Safetensors::open(&parts.0), "neither model.safetensors.index.json nor");
    for part in ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"] {
        parts.file(part, golden(&format!("sharded/{part}")));
    }
    parts.file("adapters.safetensors", "something else");
    assert_eq!(load_safetensors(&parts.0).unwrap().len(), 3);
    parts.file("model-copy.safetensors", golden("sharded/model-00002-of-00002.safetensors"));
    assert_says(Safetensors::open(&parts.0), "tensor \"b\" is in ");
}

#[test]
fn an_index_names_files_and_they_say_what_they_hold() {
    let folder = Folder::new("index");
    let file = |name: &str, tensors: &[&str]| {
        let one = |name: &&str| (name.to_string(), Array::zeros(&[1], DType::F32).unwrap());
        save_safetensors(&folder.0.join(name), &tensors.iter().map(one).collect()).unwrap();
    };
    file("one", &["a", "b"]);
    file("two", &["c"]);
    let open = |map: serde_json::Value| {
        let index = json!({"metadata": {"total_size": 12, "more": "x"}, "weight_map": map});
        Safetensors::open(folder.file("model.safetensors.index.json", index.to_string()))
    };
    file("copy", &["a"]);
    folder.file("cut", &std::fs::read(folder.0.join("one")).unwrap()[..40]);
    let right = json!({"a": "one", "b": "one", "c": "two"});
    // Older than its files: with a tensor in another file, with one too few, and with one that is in none.
    let moved = json!({"a": "one", "b": "two", "c": "two"});
    let unlisted = json!({"a": "one", "c": "two"});
    let absent = json!({"a": "one", "b": "one", "c": "two", "d": "two"});
    for map in [right, moved, unlisted, absent] {
        let opened = open(map).unwrap();
        assert_eq!(opened.names().collect::<Vec<_>>(), ["a", "b", "c"]);
        assert_eq!(opened.tensor("b").unwrap().shape(), [1]);
        assert_says(opened.tensor("d"), "\"d\"");
    }
    let wrong = [
        (json!({"a": "one", "c": "copy"}), "tensor \"a\" is in "),
        (json!({"a": "one", "c": "cut"}), "cut: "),
        (json!({"a": "three"}), "three: No such file"),
        (json!({"a": "../index/one"}), "\"../index/one\" is not the name of a file beside"),
        (json!({"a": "/etc/passwd"}), "is not the name of a file beside"),
        (json!({"a": ".."}), "is not the name of a file beside"),
        (json!({"a": ""}), "is not the name of a file beside"),
        (json!(["a"]), "invalid type: sequence, expected a map"),
    ];
    for (map, words) in wrong {
        assert_says(open(map), words);
    }
    assert_says(Safetensors::open(folder.file("none.json", "{}")), "missing field `weight_map`");
    assert_says(Safetensors::open(folder.file("bad.json", "{")), "EOF");
}

fn arrays(names: &[&str], shape: &[usize]) -> Vec<(String, Array)> {
    names.iter().map(|name| (name.to_string(), Array::ones(shape, DType::F16).unwrap())).collect()
}

#[test]
fn a_checkpoint_is_split_as_mlx_lm_does() {
    let folder = Folder::new("split");
    let metadata = BTreeMap::from([("format".to_string(), "pt".to_string())]);
    let mut sharding = Sharding { max_bytes: 24, metadata, ..Default::default() };
    let mut all = arrays(&["z", "y", "x"], &[2, 3]);
    all.extend(arrays(&["large"], &[100]));
    save_sharded(&folder.0, all, &sharding).unwrap();
    let part = |number: u32| format!("model-0000{number}-of-00003.safetensors");
    let index = "model.safetensors.index.json".to_string();
    assert_eq!(folder.names(), [part(1), part(2), part(3), index.clone()]);
    let told: serde_json::Value =
        serde_json::from_slice(&std::fs::read(folder.0.join(&index)).unwrap()).unwrap();
    let map = json!({"z": part(1), "y": part(1), "x": part(2), "large": part(3)});
    let sizes = json!({"total_size": 236, "total_parameters": 118});
    assert_eq!(told, json!({"metadata": sizes, "weight_map": map}));
    let opened = Safetensors::open(&folder.0).unwrap();
    assert_eq!(opened.names().collect::<Vec<_>>(), ["large", "x", "y", "z"]);
    assert_eq!(opened.metadata()["format"], "pt");

    // Into the same folder: the same parts are replaced, but others are not left beside.
    let again = arrays(&["z", "y"], &[2, 3]);
    let taken = "another checkpoint is in the way";
    assert_says(save_sharded(&folder.0, again.clone(), &sharding), taken);
    assert_eq!(folder.names().len(), 4);
    let alone = Folder::new("split-alone");
    sharding.total_parameters = Some(7);
    save_sharded(&alone.0, again, &sharding).unwrap();
    assert_eq!(alone.names(), ["model.safetensors".to_string(), index.clone()]);
    let told = std::fs::read_to_string(alone.0.join(&index)).unwrap();
    assert!(told.contains("\"total_parameters\": 7"), "{told}");
    save_sharded(&alone.0, [], &sharding).unwrap();
    assert_eq!(Safetensors::open(&alone.0).unwrap().names().count(), 0);
    let twice = save_sharded(&alone.0, arrays(&["a", "a"], &[1]), &sharding);
    assert_says(twice, "a twice");
}

#[test]
fn a_failure_leaves_the_old_file() {
    let folder = Folder::new("failure");
    let file = folder.0.join("a.safetensors");
    let old = BTreeMap::from([("x".to_string(), Array::ones(&[3], DType::F32).unwrap())]);
    save_safetensors(&file, &old).unwrap();
    let mapped = Safetensors::open(&file).unwrap();
    let new = BTreeMap::from([("bad".to_string(), failing())]);
    assert_says(save_safetensors(&file, &new), "index 7 is out of range");
    let sharded = save_sharded(&folder.0, new, &Sharding::default());
    assert_says(sharded, "index 7 is out of range");
    assert_eq!(folder.names(), ["a.safetensors"]);
    assert_eq!(load_safetensors(&file).unwrap()["x"].to_vec::<f32>().unwrap(), [1.0; 3]);
    let reserved = BTreeMap::from([("__metadata__".to_string(), old["x"].clone())]);
    assert_says(save_safetensors(&file, &reserved), "the format does not use itself");
    // What is mapped of a file stays when another takes its place.
    let zeros = BTreeMap::from([("x".to_string(), Array::zeros(&[3], DType::F32).unwrap())]);
    save_safetensors(&file, &zeros).unwrap();
    assert_eq!(mapped.tensor("x").unwrap().to_vec::<f32>().unwrap(), [1.0; 3]);
    assert_eq!(load_safetensors(&file).unwrap()["x"].to_vec::<f32>().unwrap(), [0.0; 3]);
}
