//! Whatever the bytes are, the reader returns, and arrays are no larger than deflate can make them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wootz::Device;
use wootz::io::Npz;

fuzz_target!(|bytes: &[u8]| {
    let Ok(file) = Npz::from_bytes(bytes) else { return };
    let mut all = 0;
    for name in file.names() {
        let Ok(array) = file.array_on(name, &Device::cpu()) else { continue };
        assert_eq!(array.to_bytes().expect("its elements").len(), array.nbytes());
        all += array.nbytes();
    }
    assert!(all <= 1032 * bytes.len());
});
