//! The examples learn: a small GPT again to the last bit, and alike on both devices (the first steps, or with
//! `WOOTZ_STEPS=200` as many on a GPU, too), and a classifier.

use wootz::{Device, with_device};

#[path = "../../examples/char_gpt.rs"]
#[allow(dead_code)]
mod char_gpt;

// Both examples have their own copy of what they share.
#[path = "../../examples/mlp_classifier.rs"]
#[allow(dead_code, clippy::duplicate_mod)]
mod mlp_classifier;

const BATCH: usize = 4;

/// Steps of a whole training, which the CPU does in seconds.
const STEPS: usize = 200;

/// The losses of the first steps.
fn curve(device: &Device, steps: usize) -> Vec<f32> {
    let mut losses = Vec::new();
    let train = || char_gpt::train(steps, STEPS, BATCH, |_, loss| losses.push(loss));
    with_device(device, train).unwrap();
    losses
}

#[test]
fn a_classifier_tells_the_arms_of_spirals_apart() {
    let accuracy = with_device(&Device::cpu(), || mlp_classifier::train(150)).unwrap();
    println!("{:.1} % of points not seen in training", 100.0 * accuracy);
    // A guess is right for a third of them.
    assert!(accuracy > 0.9, "{accuracy}");
}

#[test]
fn a_gpt_learns_alike_on_both_devices_and_again() {
    let cpu = curve(&Device::cpu(), STEPS);
    assert_eq!(cpu, curve(&Device::cpu(), STEPS), "the same bits when repeated");
    let (first, last) = (cpu[0], cpu[cpu.len() - 1]);
    println!("{} steps, from a loss of {first} to {last}", cpu.len());
    assert!(last < 0.5 * first, "the loss went from {first} to {last}");
    #[cfg(feature = "gpu")]
    {
        let gpu = match Device::gpu() {
            Ok(gpu) => gpu,
            Err(error) => {
                assert!(!wootz::testing::ci(), "{error}");
                return println!("SKIPPED: {error}");
            }
        };
        // A software driver takes minutes for all of them.
        let steps = std::env::var("WOOTZ_STEPS").map_or(24, |steps| steps.parse().unwrap());
        let there = curve(&gpu, steps.min(STEPS));
        assert_eq!(there, curve(&gpu, there.len()), "the same bits when repeated on a GPU");
        let off = cpu.iter().zip(&there).map(|(here, there)| f64::from((here - there).abs()));
        let worst = wootz::testing::worst(off);
        println!("curves of both devices are {worst:e} apart at most in {} steps", there.len());
        for (step, (here, there)) in cpu.iter().zip(&there).enumerate() {
            assert!((here - there).abs() <= 1e-3, "step {}: {here} and {there}", step + 1);
        }
    }
}
