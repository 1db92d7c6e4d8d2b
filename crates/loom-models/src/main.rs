//! Models of the thread team and of the cache of memory: loom runs each in every order that its
//! threads can take (up to a number of preemptions) and with every value that a load may see.
//! A deadlock, a data race, a lost wake-up or a wrong result in any of them ends the program.

// The modelled sources have more in them than models use.
#![allow(dead_code)]

mod cpu;
mod memory;
mod team;

/// What the modelled sources name of their crate.
mod device {
    #[derive(Clone, Copy, Debug)]
    pub struct Memory {
        pub active: u64,
        pub peak: u64,
        pub cached: u64,
        pub limit: u64,
        pub mapped: u64,
    }
}

/// As [`device`].
mod error {
    pub type Result<T> = std::result::Result<T, Error>;

    #[derive(Debug)]
    pub enum Error {
        OutOfMemory { device: String, requested: u64, active: u64, limit: u64 },
    }
}

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// What a model says, the preemptions it is tried with (all without a number), and the model.
type Model = (&'static str, Option<usize>, fn());

fn main() {
    for (name, preemptions, model) in [memory::MODELS, team::MODELS].concat() {
        let (runs, start) = (Arc::new(AtomicUsize::new(0)), Instant::now());
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = preemptions;
        let counted = runs.clone();
        builder.check(move || {
            counted.fetch_add(1, Ordering::Relaxed);
            model();
        });
        let (runs, seconds) = (runs.load(Ordering::Relaxed), start.elapsed().as_secs_f64());
        println!("{name}: {runs} orders, {seconds:.1} s");
    }
}
