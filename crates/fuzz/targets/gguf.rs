//! Whatever the bytes are, the reader returns, and a tensor that it tells of can be read.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wootz::Device;
use wootz::io::gguf::Gguf;

fuzz_target!(|bytes: &[u8]| {
    let Ok(file) = Gguf::from_bytes(bytes) else { return };
    for (key, value) in file.metadata() {
        assert!(file.get(key).is_some(), "{key}: {value}");
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
});
