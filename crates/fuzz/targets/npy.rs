//! Whatever the bytes are, the reader returns, and an array has no more bytes than the file.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wootz::Device;
use wootz::io::{MappedFile, read_npy};

fuzz_target!(|bytes: &[u8]| {
    let Ok(file) = MappedFile::from_bytes("bytes", bytes) else { return };
    let Ok(array) = read_npy(&file, &Device::cpu()) else { return };
    let elements = array.to_bytes().expect("its elements");
    assert_eq!(elements.len(), array.nbytes());
    assert!(elements.len() < bytes.len());
});
