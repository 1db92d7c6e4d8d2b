//! Two threads at once: they build, differentiate, compile and evaluate graphs that share arrays,
//! and get the bits that one thread gets alone. A deadlock ends the program.
#![allow(missing_docs)]

use std::io::Write;
use std::sync::Barrier;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use wootz::{
    Array, Compiled, DType, Device, Result, async_eval, checkpoint, compile, grad, jvp, ops,
    random, value_and_grad, vmap,
};

/// Far more than a test here takes, also on a loaded machine.
const LIMIT: Duration = Duration::from_secs(300);

/// Ends the program, unless it is dropped in time.
fn watchdog(what: &'static str) -> Sender<()> {
    let (alive, ended) = channel();
    std::thread::spawn(move || {
        if ended.recv_timeout(LIMIT) == Err(RecvTimeoutError::Timeout) {
            // Not `eprintln!`: what the test runner captures is lost when the process ends.
            let _ = writeln!(std::io::stderr(), "error: no end of '{what}' after {LIMIT:?}");
            std::process::exit(3);
        }
    });
    alive
}

/// What threads share. `lazy` is evaluated by whoever comes first, and never in the same round.
struct Shared {
    x: Array,
    w: Array,
    lazy: Array,
}

impl Shared {
    fn new(device: &Device, round: u64) -> Result<Shared> {
        let normal = |seed, shape: &[usize]| {
            let x = random::normal(shape, DType::F32, 0.0, 1.0, Some(&random::key(seed)?))?;
            wootz::to_device(&x, device)
        };
        let (x, w) = (normal(2 * round, &[40, 33])?, normal(2 * round + 1, &[33, 24])?);
        let lazy = ops::softmax(&(&x * 1.5 + 0.25), -1)? * &x;
        Ok(Shared { x, w, lazy })
    }
}

/// A training step, recorded once and replayed by both threads.
fn step(x: &[Array]) -> Result<Vec<Array>> {
    let loss = |w: &[Array]| ops::matmul(&x[0], &w[0])?.tanh()?.square()?.mean(());
    let (value, gradients) = value_and_grad(loss)(&x[1..2])?;
    Ok(vec![value, &x[1] - &gradients[0] * &x[2]])
}

#[test]
fn a_transform_of_one_thread_does_not_hold_what_another_trains() -> Result<()> {
    let _alive = watchdog("a transform of another thread");
    let (started, wait_for_start) = channel();
    let (finish, wait_for_end) = channel::<()>();
    let other = std::thread::spawn(move || {
        grad(move |x: &[Array]| {
            let loss = x[0].square()?.sum(())?;
            started.send(loss.clone()).ok();
            wait_for_end.recv().ok();
            Ok(loss)
        })(&[Array::from_slice_on(&[1.0f32, 2.0], &[2], &Device::cpu())?])
    });
    let theirs = wait_for_start.recv().unwrap();
    let cpu = |values: &[f32]| Array::from_slice_on(values, &[values.len()], &Device::cpu());
    let x = cpu(&[3.0, 4.0])?;
    let trained = &x - &grad(|x: &[Array]| x[0].square()?.sum(()))(&[x.clone()])?[0] * 0.5;
    trained.eval()?;
    assert!(trained.producer().is_none(), "history is kept for nobody");
    let double = compile(|x: &[Array]| Ok(vec![&x[0] * 2.0]));
    assert_eq!(double.call(&[trained])?[0].to_vec::<f32>()?, [0.0, 0.0]);
    assert_eq!(double.stats().replays, 1);
    // What the other thread still looks at keeps its history, whoever evaluates it, and whatever else
    // it is made part of.
    let (_, along) = jvp(|x| Ok(vec![&x[0] * &theirs]), &[x.clone()], &[x.clone()])?;
    let joined = grad(|x: &[Array]| {
        let joined = (&x[0] * &theirs).sum(())?;
        finish.send(()).ok();
        while !other.is_finished() {
            std::thread::yield_now();
        }
        joined.eval()?;
        Ok(joined)
    })(&[x.clone()])?;
    assert_eq!(joined[0].to_vec::<f32>()?, [5.0, 5.0]);
    assert_eq!(along[0].to_vec::<f32>()?, [15.0, 20.0]);
    let theirs = other.join().unwrap()?;
    assert_eq!(theirs[0].to_vec::<f32>()?, [2.0, 4.0]);
    Ok(())
}

/// Everything at once, for one of the threads.
fn work<F>(shared: &Shared, compiled: &Compiled<F>, who: usize) -> Result<Vec<Vec<u8>>>
where
    F: Fn(&[Array]) -> Result<Vec<Array>>,
{
    let Shared { x, w, lazy } = shared;
    let scale = 0.5 + who as f64 / 4.0;
    let product = ops::matmul(lazy, w)? * scale;
    async_eval([&product])?;
    let gradients = grad(|x: &[Array]| {
        (ops::matmul(&(&x[0] * lazy), &x[1])? * scale).tanh()?.square()?.sum(())
    })(&[x.clone(), w.clone()])?;
    let rate = Array::from_slice_on(&[scale as f32], &[], x.device())?;
    let stepped = compiled.call(&[lazy.clone(), w.clone(), rate])?;
    let rows = vmap(|x: &[Array]| Ok(vec![ops::softmax(&x[0], -1)?]), 0, 0)(&[product.clone()])?;
    let (_, tangents) = jvp(|x| Ok(vec![x[0].exp()?]), &[lazy.clone()], &[x.clone()])?;
    let layer = checkpoint(|x: &[Array]| Ok(vec![ops::matmul(&x[0], &x[1])?.sin()?]));
    let again = grad(|w: &[Array]| layer(&[lazy.clone(), w[0].clone()])?[0].sum(()))(&[w.clone()])?;
    let arrays = [vec![product], gradients, stepped, rows, tangents, again].concat();
    // In another order for each thread.
    let turned = arrays.iter().cycle().skip(who * 3).take(arrays.len());
    wootz::eval(turned)?;
    arrays.iter().map(Array::to_bytes).collect()
}

/// Rounds in which both threads begin together, against what each of them gets alone.
fn race(device: &Device, rounds: u64) -> Result<()> {
    let compiled = compile(step);
    for round in 0..rounds {
        let alone = (0..2)
            .map(|who| work(&Shared::new(device, round)?, &compile(step), who))
            .collect::<Result<Vec<_>>>()?;
        let (shared, start) = (Shared::new(device, round)?, Barrier::new(2));
        let together = std::thread::scope(|scope| {
            let threads = [0, 1].map(|who| {
                let (shared, start, compiled) = (&shared, &start, &compiled);
                scope.spawn(move || {
                    start.wait();
                    work(shared, compiled, who)
                })
            });
            threads.map(|thread| thread.join().unwrap())
        });
        for (who, (alone, together)) in alone.iter().zip(together).enumerate() {
            for (index, (alone, together)) in alone.iter().zip(&together?).enumerate() {
                assert!(alone == together, "{device}, round {round}, thread {who}, array {index}");
            }
        }
    }
    let stats = compiled.stats();
    assert_eq!((stats.traces, stats.replays), (1, 2 * rounds));
    Ok(())
}

#[test]
fn threads_that_record_at_the_same_time_keep_one_plan() -> Result<()> {
    let _watchdog = watchdog("two recordings at once");
    // Neither recording ends before the other has begun.
    let both = Barrier::new(2);
    let double = compile(|x: &[Array]| {
        if x[0].size() == 2 {
            both.wait();
        }
        Ok(vec![&x[0] * 2.0])
    })
    .capacity(2);
    let call = |values: &[f32]| -> Result<Vec<f32>> {
        let x = Array::from_slice_on(values, &[values.len()], &Device::cpu())?;
        double.call(&[x])?[0].to_vec::<f32>()
    };
    assert_eq!(call(&[1.0])?, [2.0]);
    std::thread::scope(|scope| {
        let threads = [3.0, 5.0].map(|value| {
            scope.spawn({
                let call = &call;
                move || call(&[value, 1.0])
            })
        });
        for (thread, expected) in threads.into_iter().zip([[6.0, 2.0], [10.0, 2.0]]) {
            assert_eq!(thread.join().unwrap()?, expected);
        }
        Ok::<(), wootz::Error>(())
    })?;
    // A second copy would have taken the place of the first signature.
    assert_eq!(call(&[7.0])?, [14.0]);
    let stats = double.stats();
    assert_eq!((stats.traces, stats.replays), (2, 4));
    Ok(())
}

#[test]
fn two_threads_get_the_bits_of_one_on_the_cpu() -> Result<()> {
    let _watchdog = watchdog("two threads on the cpu");
    wootz::set_threads(2);
    race(&Device::cpu(), 200)
}

#[test]
fn two_threads_get_the_bits_of_one_on_a_gpu() -> Result<()> {
    let _watchdog = watchdog("two threads on a gpu");
    match Device::gpu() {
        Ok(gpu) => race(&gpu, 20),
        Err(error) if !wootz::testing::ci() => {
            eprintln!("SKIPPED: {error}");
            Ok(())
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn arrays_made_here_are_evaluated_and_dropped_there() -> Result<()> {
    let _watchdog = watchdog("arrays that change threads");
    let (sender, receiver) = channel::<(usize, Array)>();
    std::thread::scope(|scope| {
        let reader = scope.spawn(move || -> Result<usize> {
            let mut count = 0;
            for (i, array) in receiver {
                assert_eq!(array.to_vec::<f32>()?, vec![(2 * i) as f32 + 1.0; 100]);
                count += 1;
            }
            Ok(count)
        });
        for i in 0..300 {
            let x = Array::from_slice_on(&[i as f32; 100], &[100], &Device::cpu())?;
            let y = &x * 2.0 + 1.0;
            // A part of what is sent is evaluated here at the same time.
            sender.send((i, y.clone())).unwrap();
            assert_eq!(y.sum(())?.item::<f32>()?, 100.0 * ((2 * i) as f32 + 1.0));
        }
        drop(sender);
        assert_eq!(reader.join().unwrap()?, 300);
        Ok(())
    })
}
