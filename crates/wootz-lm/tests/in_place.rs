//! A step appends to the cache where it lies. Alone in its program, because memory is counted for all of it.

use std::path::Path;

use wootz::{Array, Device};
use wootz_lm::cache::CacheOptions;
use wootz_lm::checkpoint::Checkpoint;
use wootz_lm::generate::Session;
use wootz_lm::models::{LoadOptions, load};

#[test]
fn neither_a_step_nor_a_chunk_copies_the_cache() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../goldens/tiny-models");
    let checkpoint = Checkpoint::open(folder.join("llama-4bit-f32")).unwrap();
    let cpu = Device::cpu();
    let model = load(&checkpoint, &LoadOptions { device: cpu.clone() }).unwrap();
    let mut session = Session::new(model, &CacheOptions::default()).unwrap();
    session.prefill(&vec![9; 3_000], 512, &mut |_, _| ()).unwrap();
    let token = Array::from_slice(&[7u32], &[1, 1]).unwrap();
    session.decode(&token).unwrap();
    let cache = session.cache().bytes() as u64;
    let mut peak_of = |work: &mut dyn FnMut(&mut Session)| {
        cpu.reset_peak_memory();
        let before = cpu.memory().active;
        work(&mut session);
        cpu.memory().peak - before
    };
    let step = peak_of(&mut |session| drop(session.decode(&token).unwrap()));
    let chunk = peak_of(&mut |session| {
        session.prefill(&[5; 8], 8, &mut |_, _| ()).unwrap();
    });
    println!("cache {cache} bytes; beside it a step takes {step}, a chunk of 8 tokens {chunk}");
    assert!(step < cache / 8, "{step} bytes beside a cache of {cache}");
    assert!(chunk < cache / 8, "{chunk} bytes beside a cache of {cache}");
}
