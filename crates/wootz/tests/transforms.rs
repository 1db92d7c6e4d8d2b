//! Transforms of transforms, in any order, against what is known by hand or by loops.
#![allow(missing_docs)]

use wootz::nn::Module;
use wootz::op::{Batch, Metas, Op};
use wootz::{
    Array, CpuCall, DType, Error, Meta, Result, checkpoint, compile, custom, grad, jvp, random,
    stack, value_and_grad, value_and_grad_aux, vjp, vmap,
};

/// The example, which only has the public API; run here so that it stays right.
#[cfg(feature = "gpu")]
#[allow(dead_code)]
#[path = "../examples/custom_op.rs"]
mod custom_op;

#[cfg(feature = "gpu")]
#[test]
fn an_operation_of_another_crate_is_like_ours() -> Result<()> {
    custom_op::run(&wootz::Device::cpu())?;
    match wootz::Device::gpu() {
        Ok(gpu) => custom_op::run(&gpu),
        Err(error) if !wootz::testing::ci() => {
            eprintln!("SKIPPED: {error}");
            Ok(())
        }
        Err(error) => Err(error),
    }
}

#[test]
fn gradients_of_integers_are_refused_by_name() -> Result<()> {
    let (x, n) = (Array::new([0.5f32, 2.0])?, Array::new([1, 2])?);
    let function = |x: &[Array]| (&x[0] * x[1].astype(DType::F32)?).sum(());
    let one = Array::new(1.0f32)?;
    let arguments = [x.clone(), n.clone()];
    let errors = [
        ("grad", grad(function)(&arguments).unwrap_err()),
        ("grad", value_and_grad(function)(&arguments).unwrap_err()),
        ("vjp", vjp(|x| Ok(vec![function(x)?]), &arguments, &[one]).unwrap_err()),
    ];
    for (transform, error) in errors {
        let named = error.to_string().contains("argument 1") && error.to_string().contains("int32");
        assert!(named, "{error}");
        assert!(matches!(error, Error::Dtype { op, .. } if op == transform), "{error}");
    }
    // Captured, they are constants; a function that is run again takes them as arguments.
    let again = checkpoint(move |x: &[Array]| Ok(vec![function(x)?]));
    let dx = grad(|x: &[Array]| Ok(again(&[x[0].clone(), n.clone()])?.remove(0)))(&[x])?;
    assert_eq!(dx[0].to_vec::<f32>()?, [1.0, 2.0]);
    Ok(())
}

fn draw(seed: u64, shape: &[usize]) -> Result<Array> {
    let x = random::normal(shape, DType::F32, 0.0, 1.0, Some(&random::key(seed)?))?;
    x.astype(DType::F64)
}

#[track_caller]
fn assert_close(got: &Array, want: &Array) {
    assert_eq!((got.shape(), got.dtype()), (want.shape(), want.dtype()));
    let values = |x: &Array| x.astype(DType::F64).unwrap().to_vec::<f64>().unwrap();
    for (i, (a, b)) in values(got).iter().zip(values(want)).enumerate() {
        assert!((a - b).abs() <= 1e-9 * (1.0 + b.abs()), "element {i} is {a}, expected {b}");
    }
}

/// The elements of a batch, one after the other.
fn looped(
    function: impl Fn(&[Array]) -> Result<Vec<Array>>,
    inputs: &[Array],
    output: usize,
) -> Result<Array> {
    let size = inputs[0].shape()[0];
    let one = |i: usize| {
        let inputs =
            inputs.iter().map(|x| wootz::take(x, i as i64, Some(0))).collect::<Result<Vec<_>>>()?;
        Ok(function(&inputs)?.remove(output))
    };
    stack(&(0..size).map(one).collect::<Result<Vec<_>>>()?, 0)
}

/// A function of a vector and a matrix with many kinds of operations in it.
fn model(x: &[Array]) -> Result<Vec<Array>> {
    let [x, w] = x else { panic!("two arguments") };
    let hidden = x.matmul(w)?.tanh()?;
    let normal = wootz::rms_norm(&hidden, None, 0.1)?;
    let weights = normal.softmax(-1)?;
    let sorted = wootz::sort(&(&weights * &hidden), -1)?;
    let cut = wootz::slice(&sorted, &[1], &[sorted.size()], &[1])?;
    Ok(vec![wootz::cumsum(&cut, 0, false, true)?.square()?])
}

fn loss(x: &[Array]) -> Result<Array> {
    model(x)?[0].sum(())
}

fn gradients(x: &[Array]) -> Result<Vec<Array>> {
    grad(loss)(x)
}

fn inputs() -> Result<Vec<Array>> {
    Ok(vec![draw(1, &[5])?, draw(2, &[5, 6])?])
}

fn batch() -> Result<Vec<Array>> {
    Ok(vec![draw(3, &[4, 5])?, draw(4, &[4, 5, 6])?])
}

fn inner(a: &[Array], b: &[Array]) -> Result<Array> {
    let mut sum = Array::scalar(0.0, DType::F64)?;
    for (a, b) in a.iter().zip(b) {
        sum = sum + (a * b).sum(())?;
    }
    Ok(sum)
}

#[test]
fn vmap_of_grad_is_a_loop_of_gradients() -> Result<()> {
    let batch = batch()?;
    let got = vmap(gradients, 0, 0)(&batch)?;
    for (output, got) in got.iter().enumerate() {
        assert_close(got, &looped(gradients, &batch, output)?);
    }
    Ok(())
}

#[test]
fn grad_of_vmap_sums_over_what_the_batch_shares() -> Result<()> {
    let (xs, w) = (draw(3, &[4, 5])?, draw(2, &[5, 6])?);
    let total = |x: &[Array]| vmap(model, [Some(0), None], 0)(x)?[0].sum(());
    let got = grad(total)(&[xs.clone(), w.clone()])?;
    let each = vmap(gradients, [Some(0), None], 0)(&[xs, w])?;
    assert_close(&got[0], &each[0]);
    assert_close(&got[1], &each[1].sum(0)?);
    Ok(())
}

#[test]
fn grad_of_grad_and_forward_over_reverse_agree() -> Result<()> {
    let (x, direction) = (inputs()?, vec![draw(7, &[5])?, draw(8, &[5, 6])?]);
    let along = |x: &[Array]| inner(&gradients(x)?, &direction);
    let reverse = grad(along)(&x)?;
    let (_, forward) = jvp(gradients, &x, &direction)?;
    // And the gradient of a directional derivative.
    let slope = |x: &[Array]| jvp(|x| Ok(vec![loss(x)?]), x, &direction)?.1[0].sum(());
    let reverse_over_forward = grad(slope)(&x)?;
    for i in 0..2 {
        assert_close(&reverse[i], &forward[i]);
        assert_close(&reverse_over_forward[i], &forward[i]);
    }
    Ok(())
}

#[test]
fn jvp_of_jvp_is_the_second_derivative() -> Result<()> {
    let cube = |x: &[Array]| Ok(vec![&x[0] * &x[0] * &x[0]]);
    let one = Array::scalar(1.0, DType::F64)?;
    let first = |x: &[Array]| Ok(jvp(cube, x, std::slice::from_ref(&one))?.1);
    let (slope, second) = jvp(first, &[Array::scalar(2.0, DType::F64)?], &[one.clone()])?;
    assert_eq!((slope[0].item::<f64>()?, second[0].item::<f64>()?), (12.0, 12.0));
    Ok(())
}

#[test]
fn jvp_is_the_transpose_of_vjp() -> Result<()> {
    let (x, direction) = (inputs()?, vec![draw(7, &[5])?, draw(8, &[5, 6])?]);
    let (y, dy) = jvp(model, &x, &direction)?;
    let cotangent = vec![draw(9, y[0].shape())?];
    let (_, dx) = vjp(model, &x, &cotangent)?;
    assert_close(&inner(&dy, &cotangent)?, &inner(&dx, &direction)?);
    Ok(())
}

#[test]
fn vmap_of_vmap_and_other_axes() -> Result<()> {
    let (xs, ws) = (draw(1, &[3, 5])?, draw(2, &[5, 2, 6])?);
    // Every x with every w: the outer over x, the inner over w along its middle axis.
    let inner_map = |x: &[Array]| vmap(model, [None, Some(1)], -1)(x);
    let got = vmap(inner_map, [Some(0), None], 1)(&[xs.clone(), ws.clone()])?;
    assert_eq!(got[0].shape(), [5, 3, 2]);
    for i in 0..3 {
        for j in 0..2 {
            let x = wootz::take(&xs, i, Some(0))?;
            let w = wootz::take(&ws, j, Some(1))?;
            let part = wootz::take(&wootz::take(&got[0], i, Some(1))?, j, Some(1))?;
            assert_close(&part, &model(&[x, w])?[0]);
        }
    }
    Ok(())
}

#[test]
fn vmap_of_jvp_and_jvp_of_vmap_agree() -> Result<()> {
    let (batch, along) = (batch()?, vec![draw(5, &[4, 5])?, draw(6, &[4, 5, 6])?]);
    let (_, got) = jvp(|x| vmap(model, 0, 0)(x), &batch, &along)?;
    let one = |x: &[Array]| Ok(jvp(model, &x[..2], &x[2..])?.1);
    let want = vmap(one, 0, 0)(&[batch, along].concat())?;
    assert_close(&got[0], &want[0]);
    Ok(())
}

#[test]
fn checkpoint_inside_grad_inside_vmap() -> Result<()> {
    let batch = batch()?;
    let kept = checkpoint(model);
    let with = |x: &[Array]| grad(|x: &[Array]| kept(x)?[0].sum(()))(x);
    let (got, want) = (vmap(with, 0, 0)(&batch)?, vmap(gradients, 0, 0)(&batch)?);
    assert_close(&got[0], &want[0]);
    assert_close(&got[1], &want[1]);
    // The other way round, and once more differentiated.
    let inside = |x: &[Array]| vmap(&kept, [Some(0), None], 0)(x)?[0].sum(());
    let shared = [batch[0].clone(), draw(2, &[5, 6])?];
    let got = grad(inside)(&shared)?;
    let want = grad(|x: &[Array]| vmap(model, [Some(0), None], 0)(x)?[0].sum(()))(&shared)?;
    assert_close(&got[0], &want[0]);
    assert_close(&got[1], &want[1]);
    let x = inputs()?;
    let second = |f: &dyn Fn(&[Array]) -> Result<Vec<Array>>| {
        grad(|x: &[Array]| grad(|x: &[Array]| f(x)?[0].sum(()))(x)?[0].square()?.sum(()))(&x)
    };
    assert_close(&second(&kept)?[1], &second(&model)?[1]);
    let direction = vec![draw(7, &[5])?, draw(8, &[5, 6])?];
    assert_close(&jvp(&kept, &x, &direction)?.1[0], &jvp(model, &x, &direction)?.1[0]);
    Ok(())
}

#[test]
fn a_checkpoint_that_runs_again_draws_the_same_random_numbers() -> Result<()> {
    let dropout = wootz::nn::Dropout::new(0.5)?;
    let kept = checkpoint(move |x: &[Array]| Ok(vec![dropout.forward(&x[0])?]));
    let ones = Array::ones(&[64], DType::F32)?;
    // The function is linear: from ones, its gradient for ones and its change along ones are its values.
    random::seed(3);
    let (values, gradients) = vjp(&kept, &[ones.clone()], &[ones.clone()])?;
    assert_eq!(gradients[0].to_vec::<f32>()?, values[0].to_vec::<f32>()?);
    let after_gradient = random::bits(&[2], DType::U32, None)?.to_vec::<u32>()?;
    let (values, changes) = jvp(&kept, &[ones.clone()], &[ones.clone()])?;
    assert_eq!(changes[0].to_vec::<f32>()?, values[0].to_vec::<f32>()?);
    // The second run takes no keys from the sequence.
    random::seed(3);
    kept(&[ones])?;
    assert_eq!(random::bits(&[2], DType::U32, None)?.to_vec::<u32>()?, after_gradient);
    Ok(())
}

#[test]
fn the_number_of_nodes_does_not_depend_on_the_batch() -> Result<()> {
    let count = |size: usize| {
        let inputs = [draw(1, &[size, 5])?, draw(2, &[size, 5, 6])?];
        wootz::eval(&inputs)?;
        let outputs = vmap(gradients, 0, 0)(&inputs)?;
        let mut seen: Vec<String> = Vec::new();
        let mut pending = outputs;
        while let Some(array) = pending.pop() {
            if let Some((op, inputs)) = array.producer() {
                seen.push(op.name().into());
                pending.extend(inputs);
            }
        }
        Ok::<_, Error>(seen.len())
    };
    assert_eq!(count(2)?, count(1000)?);
    Ok(())
}

#[test]
fn results_that_do_not_depend_on_the_batch_are_repeated_or_returned() -> Result<()> {
    let (x, c) = (draw(1, &[3])?, draw(2, &[2])?);
    let both = |x: &[Array]| Ok(vec![&x[0] * 2.0, x[1].exp()?]);
    let y = vmap(both, [Some(0), None], [Some(0), None])(&[x.clone(), c.clone()])?;
    assert_eq!((y[0].shape(), y[1].shape()), (&[3][..], &[2][..]));
    let y = vmap(both, [Some(0), None], [0, 1])(&[x.clone(), c.clone()])?;
    assert_eq!(y[1].shape(), [2, 3]);
    let error = vmap(both, [Some(0), None], [None, None])(&[x, c]).err();
    assert!(matches!(error, Some(Error::Transform { transform: "vmap", .. })), "{error:?}");
    Ok(())
}

#[test]
fn misuse_is_an_error_that_names_the_transform() -> Result<()> {
    let x = draw(1, &[3])?;
    let transform = |error: Option<Error>| match error {
        Some(Error::Transform { transform, .. }) => transform.to_string(),
        other => format!("{other:?}"),
    };
    let asks = |x: &[Array]| Ok(vec![&x[0] * x[0].item::<f64>()?]);
    assert_eq!(transform(vmap(asks, 0, 0)(&[x.clone()]).err()), "vmap");
    let short = vmap(model, 0, 0)(&[x.clone(), draw(2, &[4, 3])?]).err();
    assert_eq!(transform(short), "vmap");
    let none = vmap(model, [None, None], 0)(&[x.clone(), x.clone()]).err();
    assert_eq!(transform(none), "vmap");
    let axes = vmap(model, [0], 0)(&[x.clone(), x.clone()]).err();
    assert_eq!(transform(axes), "vmap");
    let wrong = jvp(|x| Ok(x.to_vec()), &[x.clone()], &[draw(1, &[2])?]).err();
    assert_eq!(transform(wrong), "jvp");
    // What is differentiated must be an argument of a custom function.
    let captured = |y: &[Array]| {
        let y = y[0].clone();
        custom(move |x: &[Array]| Ok(vec![&x[0] * &y])).call(&[x.clone()])?[0].sum(())
    };
    assert_eq!(transform(grad(captured)(&[x.clone()]).err()), "custom");
    // The gradient of a whole number is nothing that somebody wants.
    let error = grad(|x: &[Array]| x[0].argmax(0))(&[x]).unwrap_err();
    let text = "[grad] the function must return a floating-point number, got uint32";
    assert_eq!(error.to_string(), text);
    Ok(())
}

/// The sum of two arrays, with a rule that gives too few.
#[derive(Debug)]
struct Forgetful {
    in_transform: &'static str,
}

impl Op for Forgetful {
    fn name(&self) -> &'static str {
        "forgetful"
    }

    fn infer(&self, inputs: &[&Meta]) -> Result<Metas> {
        Ok(Metas::from_elem(inputs[0].clone(), 1))
    }

    fn cpu(&self, call: &mut CpuCall<'_>) -> Result<()> {
        let (a, b) = (call.input::<f64>(0)?, call.input::<f64>(1)?);
        for (y, (a, b)) in call.output::<f64>(0)?.iter_mut().zip(a.iter().zip(b)) {
            *y = a + b;
        }
        Ok(())
    }

    fn vjp(
        &self,
        _: &[Array],
        _: &[Array],
        cotangents: &[Option<Array>],
    ) -> Result<Vec<Option<Array>>> {
        Ok(vec![cotangents[0].clone(); if self.in_transform == "vjp" { 1 } else { 2 }])
    }

    fn vmap(&self, batch: &Batch<'_>) -> Result<Vec<Array>> {
        match self.in_transform {
            "vmap" => Ok(Vec::new()),
            _ => batch.again(&batch.dense()?),
        }
    }
}

#[test]
fn a_rule_that_gives_too_few_or_too_many_is_an_error() -> Result<()> {
    let pair = [draw(1, &[4])?, draw(2, &[4])?];
    let apply = |in_transform| {
        move |x: &[Array]| Ok(vec![Array::apply(Forgetful { in_transform }, &[&x[0], &x[1]])?])
    };
    let text = |result: Result<Vec<Array>>| result.unwrap_err().to_string();
    let ones = wootz::ones_like(&pair[0])?;
    let gradients = |f| vjp(apply(f), &pair, &[ones.clone()]).map(|(_, gradients)| gradients);
    let along = |f| jvp(apply(f), &pair, &pair).map(|(_, along)| along);
    let batch = |f| vmap(apply(f), 0, 0)(&pair);
    let lost = "the rule of forgetful gave 1 gradients for 2 inputs";
    assert_eq!(text(gradients("vjp")), format!("[vjp] {lost}"));
    assert_eq!(text(along("vjp")), format!("[jvp] {lost}"));
    let lost = "the rule of forgetful gave 0 results for 1 outputs";
    assert_eq!(text(batch("vmap")), format!("[vmap] {lost}"));
    // The rules that are right are used.
    assert_close(&gradients("vmap")?[1], &ones);
    assert_close(&along("vmap")?[0], &(&pair[0] + &pair[1]));
    assert_close(&batch("vjp")?[0], &(&pair[0] + &pair[1]));
    // Rules of custom functions.
    let double = || custom(|x: &[Array]| Ok(vec![&x[0] * 2.0]));
    let both = double().with_jvp(|_, along| Ok([along, along].concat()));
    let along = jvp(|x| both.call(x), &pair[..1], &pair[..1]).map(|(_, along)| along);
    assert_eq!(text(along), "[jvp] the rule of custom gave 2 tangents for 1 outputs");
    let none = double().with_vmap(|_, _| Ok(Vec::new()));
    let batch = vmap(|x: &[Array]| none.call(x), 0, 0)(&pair[..1]);
    assert_eq!(text(batch), "[vmap] the rule of custom gave 0 results for 1 outputs");
    Ok(())
}

/// An operation with a kernel, and nothing else.
#[derive(Debug)]
struct Bare;

impl Op for Bare {
    fn name(&self) -> &'static str {
        "bare"
    }

    fn infer(&self, inputs: &[&Meta]) -> Result<Metas> {
        Ok(Metas::from_elem(inputs[0].clone(), 1))
    }

    fn cpu(&self, call: &mut CpuCall<'_>) -> Result<()> {
        let x = call.input::<f64>(0)?;
        call.output::<f64>(0)?.copy_from_slice(x);
        Ok(())
    }
}

#[test]
fn an_operation_without_rules_is_an_error_that_names_it_and_the_transform() -> Result<()> {
    let x = [draw(1, &[4])?];
    let bare = |x: &[Array]| Ok(vec![Array::apply(Bare, &[&x[0]])?]);
    assert_close(&bare(&x)?[0], &x[0]);
    let reason = "it has neither a rule nor a composition";
    let error = vjp(bare, &x, &x).unwrap_err();
    assert_eq!(error.to_string(), format!("[bare] not differentiable by vjp: {reason}"));
    let error = jvp(bare, &x, &x).unwrap_err();
    assert_eq!(error.to_string(), format!("[bare] not differentiable by jvp: {reason}"));
    let error = vmap(bare, 0, 0)(&x).unwrap_err();
    let text = "[vmap] bare has neither a rule for batches nor a composition";
    assert_eq!(error.to_string(), text);
    Ok(())
}

#[test]
fn what_training_left_is_not_part_of_it() -> Result<()> {
    let (x, w) = (draw(1, &[3, 5])?, draw(2, &[5, 6])?);
    let loss = |w: &[Array]| x.matmul(&w[0])?.tanh()?.sum(());
    let trained = &w - &grad(loss)(&[w.clone()])?[0] * 0.1;
    let want = x.matmul(&trained)?;
    // Captured while it is lazy, and when it has a value, also inside of another transform.
    for _ in 0..2 {
        let captured = trained.clone();
        let layer = checkpoint(move |x: &[Array]| Ok(vec![x[0].matmul(&captured)?]));
        assert_close(&layer(&[x.clone()])?[0], &want);
        let dx = grad(|x: &[Array]| layer(x)?[0].sum(()))(&[x.clone()])?;
        assert_close(&dx[0], &grad(|x: &[Array]| x[0].matmul(&trained)?.sum(()))(&[x.clone()])?[0]);
        // A compiled function replays with it.
        let product = compile(|x: &[Array]| Ok(vec![x[0].matmul(&x[1])?]));
        assert_close(&product.call(&[x.clone(), trained.clone()])?[0], &want);
        assert_eq!(product.stats().replays, 1);
        trained.eval()?;
    }
    Ok(())
}

#[test]
fn keys_of_a_scope_are_drawn_from_in_every_transform() -> Result<()> {
    let draws = || random::uniform(0.0, 1.0, &[4], DType::F32, None)?.astype(DType::F64);
    let key = |seed| random::key(seed);
    let alone = |seed: u64| random::with_key(&key(seed)?, draws);
    assert_ne!(alone(1)?.to_vec::<f64>()?, alone(2)?.to_vec::<f64>()?);
    // The thread's own sequence goes on where it was, and scopes nest.
    random::seed(5);
    let next = random::bits(&[2], DType::U32, None)?.to_vec::<u32>()?;
    random::seed(5);
    let (first, inner, second) = random::with_key(&key(1)?, || {
        let first = draws()?;
        let inner = random::with_key(&key(2)?, draws)?;
        Ok::<_, Error>((first, inner, draws()?))
    })?;
    assert_close(&first, &alone(1)?);
    assert_close(&inner, &alone(2)?);
    assert_ne!(first.to_vec::<f64>()?, second.to_vec::<f64>()?);
    assert_eq!(random::bits(&[2], DType::U32, None)?.to_vec::<u32>()?, next);
    // A key for each element of a batch.
    let keys = stack(&[key(1)?, key(2)?], 0)?;
    let each = vmap(|x: &[Array]| random::with_key(&x[0], || Ok(vec![draws()?])), 0, 0);
    assert_close(&each(&[keys.clone()])?[0], &stack(&[alone(1)?, alone(2)?], 0)?);
    // A checkpoint draws the same when it runs again, also where the key is a transform's argument.
    let kept = checkpoint(move |x: &[Array]| Ok(vec![&x[0] * draws()?]));
    let ones = Array::ones(&[4], DType::F64)?;
    let step = |x: &[Array]| {
        random::with_key(&x[0], || {
            let (values, gradients) = vjp(&kept, &[ones.clone()], &[ones.clone()])?;
            let (_, along) = jvp(&kept, &[ones.clone()], &[ones.clone()])?;
            Ok(vec![values[0].clone(), gradients[0].clone(), along[0].clone()])
        })
    };
    let compiled = compile(step);
    for seed in [1, 2] {
        let plain = step(&[key(seed)?])?;
        assert_close(&plain[1], &plain[0]);
        assert_ne!(plain[2].to_vec::<f64>()?, plain[0].to_vec::<f64>()?);
        for (got, want) in compiled.call(&[key(seed)?])?.iter().zip(&plain) {
            assert_close(got, want);
        }
    }
    assert_eq!(compiled.stats().traces, 1);
    let batched = vmap(step, 0, 0)(&[keys])?;
    assert_close(&batched[1], &batched[0]);
    assert_close(&wootz::take(&batched[0], 1, Some(0))?, &step(&[key(2)?])?[0]);
    // A scope around a compiled function is not one of its arguments.
    let outside = compile(move |x: &[Array]| Ok(vec![&x[0] * draws()?]));
    let error = random::with_key(&key(1)?, || outside.call(&[ones.clone()])).unwrap_err();
    assert!(error.to_string().contains("without a key"), "{error}");
    Ok(())
}

#[test]
fn custom_rules_are_used_by_every_transform() -> Result<()> {
    let x = draw(1, &[4])?;
    let ruled = custom(|x: &[Array]| Ok(vec![x[0].square()?]))
        .with_vjp(|_, cotangents, outputs| Ok(vec![&cotangents[0] * &outputs[0] * 10.0]))
        .with_jvp(|_, tangents| Ok(vec![&tangents[0] * 7.0]));
    let squares = x.square()?;
    assert_close(&ruled.call(&[x.clone()])?[0], &squares);
    let total = |x: &[Array]| ruled.call(x)?[0].sum(());
    assert_close(&grad(total)(&[x.clone()])?[0], &(&squares * 10.0));
    let ones = wootz::ones_like(&x)?;
    assert_close(&jvp(|x| ruled.call(x), &[x.clone()], &[ones.clone()])?.1[0], &(&ones * 7.0));
    // The rules also hold for each element of a batch.
    let each = |x: &[Array]| vmap(|x: &[Array]| ruled.call(x), 0, 0)(x);
    assert_close(&each(&[x.clone()])?[0], &squares);
    let total = |x: &[Array]| each(x)?[0].sum(());
    assert_close(&grad(total)(&[x.clone()])?[0], &(&squares * 10.0));
    assert_close(&jvp(each, &[x.clone()], &[ones.clone()])?.1[0], &(&ones * 7.0));
    let batched = ruled.with_vmap(|x, batched| {
        assert_eq!(batched, [true]);
        Ok(vec![&x[0] * 3.0])
    });
    let tripled = vmap(|x: &[Array]| batched.call(x), 0, 0)(&[x.clone()])?;
    assert_close(&tripled[0], &(&x * 3.0));
    Ok(())
}

#[test]
fn something_beside_the_loss_is_handed_through() -> Result<()> {
    let x = inputs()?;
    let with = |x: &[Array]| Ok((loss(x)?, ("anything", model(x)?)));
    let ((_, (word, outputs)), gradient) = value_and_grad_aux(with)(&x)?;
    assert_eq!(word, "anything");
    assert_close(&outputs[0], &model(&x)?[0]);
    assert_close(&gradient[1], &gradients(&x)?[1]);
    Ok(())
}

#[test]
fn forward_mode_of_a_long_chain_is_fast_enough() -> Result<()> {
    // The walk of one operation's rule must not walk the whole graph behind it.
    let steps = |x: &[Array]| {
        let mut x = x[0].clone();
        for _ in 0..20_000 {
            x = x.sin()?;
        }
        Ok(vec![x])
    };
    let one = Array::scalar(1.0, DType::F64)?;
    let (_, slope) = jvp(steps, &[one.clone()], &[one])?;
    assert!(slope[0].item::<f64>()?.abs() < 1.0);
    Ok(())
}
