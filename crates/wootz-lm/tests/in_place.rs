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
    let quantized = CacheOptions { kv_bits: Some(8), kv_group_size: 32, ..CacheOptions::default() };
    let rotating = CacheOptions { max_kv_size: Some(2_048), ..CacheOptions::default() };
    let both = CacheOptions { max_kv_size: Some(2_048), ..quantized.clone() };
    for (kind, options) in [
        ("growing", CacheOptions::default()),
        ("quantized", quantized),
        ("rotating", rotating),
        ("rotating and quantized", both),
    ] {
        check(kind, Session::new(model.clone(), &options).unwrap(), &cpu);
    }
}

fn check(kind: &str, mut session: Session, cpu: &Device) {
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
    println!("{kind}: cache {cache} bytes; beside it a step takes {step}");
    assert!(step < cache / 8, "{kind}: {step} bytes beside a cache of {cache}");
    // A chunk puts a ring in order, which copies it.
    if kind.contains("rotating") {
        return;
    }
    let chunk = peak_of(&mut |session| {
        session.prefill(&[5; 8], 8, &mut |_, _| ()).unwrap();
    });
    println!("{kind}: a chunk of 8 tokens takes {chunk}");
    assert!(chunk < cache / 8, "{kind}: {chunk} bytes beside a cache of {cache}");
}
