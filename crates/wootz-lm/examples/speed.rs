//! Reads a prompt and generates greedily from a checkpoint, and tells the speed: `speed PATH [TOKENS] [THREADS]`.

use std::time::Instant;

use wootz::Array;
use wootz_lm::cache::CacheOptions;
use wootz_lm::checkpoint::Checkpoint;
use wootz_lm::generate::Session;
use wootz_lm::models::{LoadOptions, load};

fn main() -> wootz_lm::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize, usual: usize| {
        words.get(index).and_then(|word| word.parse().ok()).unwrap_or(usual)
    };
    wootz::set_threads(number(2, 2));
    let device = match words.get(3) {
        Some(name) => wootz::Device::from_name(name)?,
        None => wootz::Device::cpu(),
    };
    let start = Instant::now();
    let path = words.first().map_or("model.gguf", String::as_str);
    let model = load(&Checkpoint::open(path)?, &LoadOptions { device: device.clone() })?;
    let mut session = Session::new(model, &CacheOptions::default())?;
    let mut logits = session.prefill(&[504, 3575, 282, 4649, 314], 512, &mut |_, _| ())?;
    let mut ids = vec![wootz::argmax(&logits, -1, false)?.to_vec::<u32>()?[0]];
    println!("first token {} after {:?}", ids[0], start.elapsed());
    let count = number(1, 64);
    let start = Instant::now();
    for _ in 0..count {
        let token = Array::from_slice_on(&[ids[ids.len() - 1]], &[1, 1], &device)?;
        logits = session.decode(&token)?;
        ids.push(wootz::argmax(&logits, -1, false)?.to_vec::<u32>()?[0]);
    }
    let took = start.elapsed().as_secs_f64();
    println!("{ids:?}");
    println!("{:.1} tokens/s, {:?}, {:?}", count as f64 / took, session.plan()?, session.stats());
    let mut session = Session::new(session.model().clone(), &CacheOptions::default())?;
    let prompt: Vec<u32> = (0..512).map(|i| 100 + i * 37 % 5000).collect();
    let start = Instant::now();
    session.prefill(&prompt, 512, &mut |_, _| ())?.eval()?;
    println!("prompt of 512: {:.1} tokens/s", 512.0 / start.elapsed().as_secs_f64());
    Ok(())
}
