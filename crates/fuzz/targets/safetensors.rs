//! Whatever the bytes are, the reader returns, and a tensor that it tells of can be read.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wootz::Device;
use wootz::io::Safetensors;

fuzz_target!(|bytes: &[u8]| {
    let Ok(file) = Safetensors::from_bytes(bytes) else { return };
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
});
