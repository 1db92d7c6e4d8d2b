//! Optimizers: state that comes back, errors, and how many kernels a step takes.

use std::collections::BTreeMap;

use wootz::nn::losses::{Reduction, mse_loss};
use wootz::nn::{Linear, Module, QuantizedLinear, Sequential, tanh};
use wootz::optim::*;
use wootz::quant::Scheme;
use wootz::{Array, DType, Error, Result, Tree, io, random, value_and_grad_of};

#[derive(Clone, Tree)]
struct Model {
    layers: Vec<Linear>,
}

impl Model {
    fn new() -> Result<Model> {
        random::seed(3);
        Ok(Model { layers: vec![Linear::new(3, 8, true)?, Linear::new(8, 2, true)?] })
    }
}

impl Module for Model {
    fn forward(&self, x: &Array) -> Result<Array> {
        self.layers[1].forward(&tanh(&self.layers[0].forward(x)?)?)
    }
}

/// Takes steps on a fixed task and returns the last loss.
fn train(model: &mut Model, optimizer: &mut dyn Optimizer, steps: usize) -> Result<f32> {
    let key = random::key(5)?;
    let x = random::normal(&[16, 3], DType::F32, 0.0, 1.0, Some(&key))?;
    let y = x.index((.., ..2))?.square()?;
    let loss = value_and_grad_of(|m: &Model| mse_loss(&m.forward(&x)?, &y, Reduction::Mean));
    let mut last = f32::NAN;
    for _ in 0..steps {
        let (value, gradients) = loss(model)?;
        optimizer.update(model, &gradients)?;
        wootz::eval(optimizer.arrays(model).iter().chain([&value]))?;
        last = value.item()?;
    }
    Ok(last)
}

type Make = fn() -> Result<Box<dyn Optimizer>>;

fn all() -> Vec<(&'static str, Make)> {
    fn boxed(optimizer: impl Optimizer + 'static) -> Result<Box<dyn Optimizer>> {
        Ok(Box::new(optimizer))
    }
    vec![
        ("SGD", || boxed(SGD::new(0.05)?)),
        ("SGD with momentum", || {
            boxed(SGD::new(0.05)?.momentum(0.9, 0.0, true)?.weight_decay(1e-3))
        }),
        ("Adam", || boxed(Adam::new(0.01)?.bias_correction(true))),
        ("AdamW", || boxed(AdamW::new(cosine_decay(0.01, 50, 0.0)?)?.betas([0.9, 0.95])?)),
        ("Adamax", || boxed(Adamax::new(0.02)?)),
        ("Adafactor", || boxed(Adafactor::new(None)?.beta_1(Some(0.9)))),
        ("Adagrad", || boxed(Adagrad::new(0.1)?)),
        ("AdaDelta", || boxed(AdaDelta::new(1.0)?)),
        ("RMSprop", || boxed(RMSprop::new(0.003)?)),
        ("Lion", || boxed(Lion::new(0.003)?.weight_decay(0.1))),
        ("Muon", || boxed(Muon::new(exponential_decay(0.02, 0.99))?)),
        ("MultiOptimizer", || {
            let rest = AdamW::new(0.01)?;
            boxed(MultiOptimizer::new(rest).first(Muon::new(0.02)?, |_, x| x.rank() == 2))
        }),
    ]
}

fn bits(arrays: &BTreeMap<String, Array>) -> Result<BTreeMap<String, Vec<u8>>> {
    arrays.iter().map(|(name, array)| Ok((name.clone(), array.to_bytes()?))).collect()
}

#[test]
fn every_optimizer_learns() -> Result<()> {
    for (name, make) in all() {
        let (mut model, mut optimizer) = (Model::new()?, make()?);
        let first = train(&mut model, &mut *optimizer, 1)?;
        let last = train(&mut model, &mut *optimizer, 60)?;
        assert!(last < 0.97 * first, "{name}: from {first} to {last}");
    }
    Ok(())
}

#[test]
fn training_goes_on_from_saved_state_to_the_last_bit() -> Result<()> {
    for (name, make) in all() {
        let (mut model, mut optimizer) = (Model::new()?, make()?);
        train(&mut model, &mut *optimizer, 4)?;
        let file = |what: &str| {
            let name = name.replace(' ', "-");
            std::env::temp_dir().join(format!("wootz-{}-{name}-{what}", std::process::id()))
        };
        model.save_weights(&file("model"))?;
        io::save_safetensors(&file("state"), &optimizer.state())?;

        let (mut again, mut resumed) = (Model::new()?, make()?);
        again.load_weights(&file("model"), true)?;
        resumed.set_state(&io::load_safetensors(&file("state"))?)?;
        train(&mut model, &mut *optimizer, 4)?;
        train(&mut again, &mut *resumed, 4)?;
        assert_eq!(bits(&model.parameters())?, bits(&again.parameters())?, "{name}");
        assert_eq!(bits(&optimizer.state())?, bits(&resumed.state())?, "{name}");
        std::fs::remove_file(file("model")).ok();
        std::fs::remove_file(file("state")).ok();
    }
    Ok(())
}

#[test]
fn state_has_mlx_names() -> Result<()> {
    let (mut model, mut optimizer) = (Model::new()?, Adam::new(0.1)?);
    train(&mut model, &mut optimizer, 2)?;
    let state = optimizer.state();
    assert_eq!((state["step"].dtype(), state["step"].item::<u64>()?), (DType::U64, 2));
    assert_eq!(state["learning_rate"].item::<f32>()?, 0.1);
    assert_eq!(state["layers.0.weight.m"].shape(), [8, 3]);
    assert_eq!(state.len(), 2 + 2 * 4);
    Ok(())
}

#[test]
fn state_that_does_not_fit_is_refused() -> Result<()> {
    let (mut model, mut optimizer) = (Model::new()?, Adam::new(0.1)?);
    train(&mut model, &mut optimizer, 1)?;
    let good = optimizer.state();
    let without = |name: &str| {
        let mut state = good.clone();
        state.remove(name);
        state
    };
    let text = Adam::new(0.1)?.set_state(&without("step")).unwrap_err().to_string();
    assert_eq!(text, "[set_state] missing: step");
    let refused = |state: &BTreeMap<String, Array>| {
        let (mut model, mut optimizer) = (Model::new()?, Adam::new(0.1)?);
        optimizer.set_state(state)?;
        train(&mut model, &mut optimizer, 1)
    };
    assert!(matches!(refused(&without("layers.0.weight.m")), Err(Error::Keys { missing, .. })
        if missing == ["layers.0.weight.m"]));
    let mut state = good.clone();
    state.insert("layers.9.weight.m".into(), Array::zeros(&[1], DType::F32)?);
    assert!(matches!(refused(&state), Err(Error::Keys { unexpected, .. })
        if unexpected == ["layers.9.weight"]));
    let mut state = good.clone();
    state.insert("layers.0.weight.m".into(), Array::zeros(&[1], DType::F32)?);
    assert!(
        matches!(refused(&state), Err(Error::Keys { mismatched, .. }) if mismatched.len() == 1)
    );
    let mismatch = |name: &str, dtype: DType| {
        let mut state = good.clone();
        state.insert(name.into(), good[name].astype(dtype)?);
        match refused(&state) {
            Err(Error::Keys { mismatched, .. }) => Ok(mismatched),
            other => panic!("{other:?}"),
        }
    };
    let expected = "layers.0.weight.m: expected float32, got float16";
    assert_eq!(mismatch("layers.0.weight.m", DType::F16)?, [expected]);
    assert_eq!(mismatch("step", DType::F32)?, ["step: expected uint64, got float32"]);
    assert!(refused(&good).is_ok());
    Ok(())
}

#[test]
fn several_optimizers_change_together_or_not_at_all() -> Result<()> {
    let make = || {
        let first = AdamW::new(0.1)?;
        Ok::<_, Error>(MultiOptimizer::new(Adam::new(0.1)?).first(first, |_, x| x.rank() == 2))
    };
    let mut optimizer = make()?;
    let array = |shape: &[usize]| Array::ones(shape, DType::F32);
    let parameters =
        BTreeMap::from([("w".to_string(), array(&[2, 2])?), ("b".to_string(), array(&[2])?)]);
    optimizer.apply_gradients(&parameters, &parameters)?;
    let before = bits(&optimizer.state())?;
    // The first takes `w`; the last has no such parameter.
    let wrong =
        BTreeMap::from([("w".to_string(), array(&[2, 2])?), ("gone".to_string(), array(&[2])?)]);
    assert!(optimizer.apply_gradients(&wrong, &parameters).is_err());
    assert_eq!(bits(&optimizer.state())?, before);
    let mut state = make()?.state();
    state.remove("states.1.step");
    assert!(optimizer.set_state(&state).is_err());
    assert_eq!(bits(&optimizer.state())?, before);
    // They go on as if nothing had been.
    let mut other = make()?;
    other.apply_gradients(&parameters, &parameters)?;
    let [got, want] =
        [&mut optimizer, &mut other].map(|o| o.apply_gradients(&parameters, &parameters));
    assert_eq!(bits(&got?)?, bits(&want?)?);
    assert_eq!(bits(&optimizer.state())?, bits(&other.state())?);
    Ok(())
}

#[test]
fn frozen_parameters_stay_and_have_no_state() -> Result<()> {
    let (mut model, mut optimizer) = (Model::new()?, AdamW::new(0.1)?);
    model.layers[0].freeze()?;
    let before = bits(&model.layers[0].parameters())?;
    train(&mut model, &mut optimizer, 3)?;
    assert_eq!(bits(&model.layers[0].parameters())?, before);
    assert!(!optimizer.state().keys().any(|name| name.starts_with("layers.0")));
    assert!(!model.layers[0].weight.is_trainable());
    Ok(())
}

#[test]
fn quantized_weights_stay_what_they_are() -> Result<()> {
    let scheme = Scheme::new("affine", Some(32), Some(4))?;
    let quantized = QuantizedLinear::from_linear(&Linear::new(32, 8, true)?, scheme)?;
    let mut model = Sequential::new().then(Linear::new(4, 32, true)?).then(quantized);
    model.freeze()?;
    model.unfreeze()?;
    let names = ["layers.0.bias", "layers.0.weight", "layers.1.bias"];
    assert!(model.trainable_parameters().into_keys().eq(names));
    let before = model.parameters();
    let mut optimizer = AdamW::new(0.1)?;
    let x = Array::ones(&[2, 4], DType::F32)?;
    for _ in 0..2 {
        let loss = |model: &Sequential| model.forward(&x)?.square()?.mean(());
        let (_, gradients) = value_and_grad_of(loss)(&model)?;
        optimizer.update(&mut model, &gradients)?;
    }
    for (name, now) in model.parameters() {
        assert_eq!(now.dtype(), before[&name].dtype(), "{name}");
        let same = now.to_bytes()? == before[&name].to_bytes()?;
        assert_eq!(same, !names.contains(&&*name), "{name}");
    }
    // By name they can be trained, except codes.
    let mut layer = QuantizedLinear::new(32, 8, false, scheme)?;
    layer.unfreeze_keys(&["scales", "weight"])?;
    assert!(layer.trainable_parameters().into_keys().eq(["scales"]));
    Ok(())
}

#[test]
fn a_gradient_for_integers_is_refused_by_name() -> Result<()> {
    for (what, make) in all() {
        let mut optimizer = make()?;
        let mut model = vec![Array::new([[1.0f32, 2.0]])?, Array::new([[3u32, 4]])?];
        let gradients = vec![Array::new([[1.0f32, 1.0]])?, Array::new([[1.0f32, 1.0]])?];
        let error = optimizer.update(&mut model, &gradients).unwrap_err().to_string();
        assert!(error.contains("1: expected") && error.contains("uint32"), "{what}: {error}");
        assert_eq!(model[1].to_vec::<u32>()?, [3, 4], "{what}");
        // Without one they stay.
        let gradients = BTreeMap::from([("0".to_string(), gradients[0].clone())]);
        optimizer.update(&mut model, &gradients)?;
        assert_eq!(model[1].to_vec::<u32>()?, [3, 4], "{what}");
        assert_ne!(model[0].to_vec::<f32>()?, [1.0, 2.0], "{what}");
    }
    Ok(())
}

#[test]
fn gradients_that_do_not_fit_change_nothing() -> Result<()> {
    let (mut model, mut optimizer) = (Model::new()?, Adam::new(0.1)?);
    let before = bits(&model.parameters())?;
    let wrong = BTreeMap::from([("layers.0.wait".to_string(), Array::zeros(&[8, 3], DType::F32)?)]);
    assert!(optimizer.update(&mut model, &wrong).is_err());
    let wrong = BTreeMap::from([("layers.0.weight".to_string(), Array::zeros(&[3], DType::F32)?)]);
    assert!(optimizer.update(&mut model, &wrong).is_err());
    assert_eq!(bits(&model.parameters())?, before);
    assert_eq!(optimizer.state()["step"].item::<u64>()?, 0);
    Ok(())
}

#[test]
fn numbers_out_of_range_are_refused() {
    assert!(Adam::new(0.1).unwrap().betas([0.9, 1.0]).is_err());
    assert!(Adam::new(0.1).unwrap().eps(-1.0).is_err());
    assert!(Lion::new(0.1).unwrap().betas([-0.1, 0.9]).is_err());
    assert!(RMSprop::new(0.1).unwrap().eps(0.0).is_err());
    assert!(AdaDelta::new(0.1).unwrap().rho(-1.0).is_err());
    assert!(SGD::new(0.1).unwrap().momentum(0.0, 0.0, true).is_err());
    assert!(cosine_decay(0.1, 0, 0.0).is_err());
    assert!(join_schedules(vec![exponential_decay(0.1, 0.9)], vec![3]).is_err());
    let without_rate = Adafactor::new(None).unwrap().relative_step(false, false);
    let mut w = vec![Array::new([1.0f32]).unwrap()];
    let gradient = w.clone();
    assert!({ without_rate }.update(&mut w, &gradient).is_err());
}

#[test]
fn the_learning_rate_follows_its_schedule() -> Result<()> {
    let rate =
        join_schedules(vec![linear_schedule(0.0, 0.1, 2)?, step_decay(0.1, 0.5, 2)?], vec![2])?;
    let mut optimizer = SGD::new(rate)?;
    let mut w = vec![Array::new([0.0f32])?];
    let gradient = vec![Array::new([1.0f32])?];
    let mut rates = Vec::new();
    for _ in 0..6 {
        optimizer.update(&mut w, &gradient)?;
        rates.push(optimizer.learning_rate().map(|rate| rate.item::<f32>()).transpose()?);
    }
    assert_eq!(rates, [0.0, 0.05, 0.1, 0.1, 0.05, 0.05].map(Some));
    optimizer.set_learning_rate(0.5.into())?;
    optimizer.update(&mut w, &gradient)?;
    assert!((w[0].item::<f32>()? + 0.85).abs() < 1e-6);
    Ok(())
}

#[test]
fn narrow_parameters_stay_narrow() -> Result<()> {
    for (name, make) in all() {
        let mut w = vec![Array::new([[1.0f32, -2.0], [0.5, 3.0]])?.astype(DType::BF16)?];
        let gradient = w.clone();
        let mut optimizer = make()?;
        for _ in 0..2 {
            optimizer.update(&mut w, &gradient)?;
        }
        assert_eq!(w[0].dtype(), DType::BF16, "{name}");
        let states = optimizer.state();
        let narrow = states.iter().filter(|(name, _)| name.ends_with(['m', 'v']));
        assert!(narrow.into_iter().all(|(_, x)| x.dtype() == DType::BF16), "{name}");
    }
    Ok(())
}
