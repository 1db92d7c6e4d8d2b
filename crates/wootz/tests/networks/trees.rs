//! Trees: the derive's names, mapping, freezing, gradients of structures.

use std::collections::{BTreeMap, HashMap};

use wootz::nn::{
    BatchNorm, Dropout, Function, GELU, Linear, MaxPool1d, Module, MoeDims, RMSNorm, ReLU,
    RotaryEmbedding, Sequential, SiLU, SinusoidalPositionalEncoding, SparseMoe, relu,
};
use wootz::tree::State;
use wootz::{
    Array, DType, Error, Parameter, Result, RopeScaling, RopeType, Router, Tree, checkpoint_of,
    compile, compile_of, grad_of, jvp_of, random, tree_flatten, tree_map, tree_unflatten,
    value_and_grad_of, vmap, vmap_of,
};

#[derive(Clone, Tree)]
struct Everything<T> {
    plain: Array,
    parameter: Parameter,
    state: State,
    list: Vec<Array>,
    fixed: [Array; 2],
    tuple: (Array, Option<Array>),
    absent: Option<Array>,
    boxed: Box<Pair>,
    hashed: HashMap<String, Array>,
    ordered: BTreeMap<String, Vec<Array>>,
    choice: Choice,
    generic: T,
    #[wootz(rename = "self_attn.q")]
    renamed: Array,
    #[wootz(skip)]
    skipped: Array,
    r#type: Array,
    width: usize,
    label: String,
    dtype: DType,
}

#[derive(Clone, Tree)]
struct Pair(Array, Array);

#[derive(Clone, Tree)]
struct Wrapper(Array);

#[derive(Clone, Tree)]
enum Choice {
    Nothing,
    One(Wrapper),
    Named { inner: Array },
}

fn array(value: f32) -> Array {
    Array::new([value]).unwrap()
}

fn everything() -> Everything<Wrapper> {
    let map = ["z", "a", "m"].map(|name| (name.to_string(), array(5.0)));
    Everything {
        plain: array(0.0),
        parameter: array(1.0).into(),
        state: State::new(array(2.0)),
        list: vec![array(3.0), array(4.0)],
        fixed: [array(3.0), array(4.0)],
        tuple: (array(1.0), Some(array(2.0))),
        absent: None,
        boxed: Box::new(Pair(array(1.0), array(2.0))),
        hashed: map.into(),
        ordered: BTreeMap::from([("k".to_string(), vec![array(1.0)])]),
        choice: Choice::One(Wrapper(array(7.0))),
        generic: Wrapper(array(8.0)),
        renamed: array(9.0),
        skipped: array(10.0),
        r#type: array(11.0),
        width: 3,
        label: "label".into(),
        dtype: DType::F32,
    }
}

fn names<T: Tree>(tree: &T) -> Vec<String> {
    tree_flatten(tree).into_iter().map(|(name, _)| name).collect()
}

#[test]
fn leaves_are_named_by_fields_numbers_and_keys() {
    let expected = [
        "plain",
        "parameter",
        "state",
        "list.0",
        "list.1",
        "fixed.0",
        "fixed.1",
        "tuple.0",
        "tuple.1",
        "boxed.0",
        "boxed.1",
        "hashed.a",
        "hashed.m",
        "hashed.z",
        "ordered.k.0",
        "choice",
        "generic",
        "self_attn.q",
        "type",
    ];
    let mut tree = everything();
    assert_eq!(names(&tree), expected);
    assert_eq!((tree.width, tree.label.as_str(), tree.dtype), (3, "label", DType::F32));
    assert_eq!(tree.skipped.item::<f32>().unwrap(), 10.0);
    tree.choice = Choice::Named { inner: array(0.0) };
    assert!(names(&tree).contains(&"choice.inner".to_string()));
    tree.choice = Choice::Nothing;
    assert_eq!(names(&tree).len(), expected.len() - 1);
}

#[test]
fn flattening_and_unflattening_are_inverse() -> Result<()> {
    let tree = everything();
    let doubled = tree_map(&tree, |_, x| wootz::multiply(x, 2))?;
    let back = tree_unflatten(&tree, tree_flatten(&doubled))?;
    for ((name, a), (other, b)) in tree_flatten(&doubled).into_iter().zip(tree_flatten(&back)) {
        assert_eq!((name, a.to_vec::<f32>()?), (other, b.to_vec::<f32>()?));
    }
    assert_eq!(back.renamed.item::<f32>()?, 18.0);
    assert_eq!(back.skipped.item::<f32>()?, 10.0);
    // Mapping makes new state: that of the first tree is as it was.
    assert_eq!((tree.state.get().item::<f32>()?, back.state.get().item::<f32>()?), (2.0, 4.0));
    Ok(())
}

#[test]
fn unflattening_names_every_key_that_does_not_fit() {
    let tree = (array(1.0), array(2.0), array(3.0));
    let leaves = [("0", array(1.0)), ("2", Array::new([1.0f32, 2.0]).unwrap()), ("x", array(1.0))];
    let leaves = leaves.map(|(name, array)| (name.to_string(), array));
    match tree_unflatten(&tree, leaves) {
        Err(Error::Keys { missing, unexpected, mismatched, .. }) => {
            assert_eq!(missing, ["1"]);
            assert_eq!(unexpected, ["x"]);
            assert_eq!(mismatched, ["2: expected [1], got [2]"]);
        }
        other => panic!("{:?}", other.err()),
    }
}

#[test]
fn a_failed_update_changes_nothing() -> Result<()> {
    let mut layer = Linear::new(2, 2, true)?;
    let before = layer.weight.to_vec::<f32>()?;
    let arrays = [("weight", Array::zeros(&[2, 2], DType::F32)?), ("gone", array(1.0))];
    let arrays = arrays.map(|(name, array)| (name.to_string(), array)).into();
    assert!(layer.update(&arrays).is_err());
    assert_eq!(layer.weight.to_vec::<f32>()?, before);
    Ok(())
}

#[test]
fn frozen_parameters_get_no_gradients() -> Result<()> {
    let mut model = vec![Linear::new(2, 3, true)?, Linear::new(3, 1, true)?];
    model[0].freeze()?;
    let trainable: Vec<String> = model.trainable_parameters().into_keys().collect();
    assert_eq!(trainable, ["1.bias", "1.weight"]);
    let x = Array::new([[1.0f32, 2.0]])?;
    let loss = |model: &Vec<Linear>| model[1].forward(&model[0].forward(&x)?)?.sum(());
    let gradients = grad_of(loss)(&model)?;
    assert_eq!(gradients[0].weight.to_vec::<f32>()?, [0.0; 6]);
    assert_eq!(gradients[0].weight.strides(), [0, 0], "zeros take the memory of one");
    assert_eq!(gradients[1].bias.as_ref().map(|bias| bias.item::<f32>()).transpose()?, Some(1.0));
    assert!(gradients.trainable_parameters().into_keys().eq(trainable));
    model.unfreeze()?;
    assert_eq!(model.trainable_parameters().len(), 4);
    model.freeze_keys(&["bias"])?;
    assert!(model.trainable_parameters().into_keys().eq(["0.weight", "1.weight"]));
    Ok(())
}

#[test]
fn freezing_what_cannot_be_frozen_is_an_error() -> Result<()> {
    let mut layer = Linear::new(2, 2, true)?;
    assert!(layer.freeze_keys(&["biass"]).unwrap_err().to_string().contains("biass"));
    let text = vec![array(1.0)].freeze().unwrap_err().to_string();
    assert!(text.contains("plain array"), "{text}");
    // State is never trained, so there is nothing to say about it.
    let mut norm = BatchNorm::new(3)?;
    norm.freeze()?;
    norm.unfreeze()?;
    assert!(norm.trainable_parameters().into_keys().eq(["bias", "weight"]));
    Ok(())
}

#[test]
fn gradients_of_gradients_of_structures() -> Result<()> {
    // f = a³ b: ∂f/∂a = 3a²b, and the derivative of that by a is 6ab.
    let cube = |p: &(Array, Array)| p.0.square()?.multiply(&p.0)?.multiply(&p.1)?.sum(());
    let slope = |p: &(Array, Array)| grad_of(cube)(p)?.0.sum(());
    let second = grad_of(slope)(&(array(2.0), array(5.0)))?;
    assert_eq!((second.0.item::<f32>()?, second.1.item::<f32>()?), (60.0, 12.0));
    Ok(())
}

#[test]
fn state_changed_inside_a_gradient_is_kept() -> Result<()> {
    let model = BatchNorm::new(1)?;
    let copy = model.clone();
    let x = Array::new([[1.0f32], [3.0]])?;
    let (_, gradients) =
        value_and_grad_of(|m: &BatchNorm| m.forward(&x)?.square()?.sum(()))(&model)?;
    assert_eq!(mean(&model)?, Some(0.2));
    assert_eq!(mean(&copy)?, Some(0.0), "a clone has state of its own");
    assert_eq!(mean(&gradients)?, Some(0.0));
    assert!(!model.parameters()["running_var"].is_evaluated());
    wootz::eval(model.parameters().values())
}

#[test]
fn forward_mode_of_structures_leaves_alone_what_is_frozen() -> Result<()> {
    let mut layer = Linear::new(3, 2, true)?;
    let along = tree_map(&layer, |_, x| wootz::ones_like(x))?;
    let x = Array::new([[1.0f32, 2.0, 3.0]])?;
    let forward = |layer: &Linear| Ok(vec![layer.forward(&x)?]);
    let (value, change) = jvp_of(forward, &layer, &along)?;
    assert_eq!(value[0].to_bytes()?, layer.forward(&x)?.to_bytes()?);
    assert_eq!(change[0].to_vec::<f32>()?, [7.0, 7.0]);
    layer.freeze_keys(&["weight"])?;
    assert_eq!(jvp_of(forward, &layer, &along)?.1[0].to_vec::<f32>()?, [1.0, 1.0]);
    // A tangent of nothing is not left out.
    let (one, two) = (vec![array(1.0)], vec![array(1.0), array(2.0)]);
    let sum = |x: &Vec<Array>| x[0].sum(());
    let text = jvp_of(sum, &one, &two).unwrap_err().to_string();
    assert_eq!(text, r#"[jvp] primals have the arrays ["0"], tangents ["0", "1"]"#);
    Ok(())
}

/// A part whose field has a name that another structure gives as well.
#[derive(Clone, Tree)]
struct Ambiguous {
    inner: Sum,
    #[wootz(rename = "inner.weight")]
    other: Array,
}

#[derive(Clone, Tree)]
struct Sum {
    weight: Array,
}

#[test]
fn two_arrays_with_one_name_are_an_error_where_one_would_be_lost() -> Result<()> {
    use wootz::optim::{Optimizer, SGD};
    let mut tree = Ambiguous { inner: Sum { weight: array(1.0) }, other: array(2.0) };
    let file = std::env::temp_dir().join("wootz-networks-ambiguous.safetensors");
    let error = |op: &str| format!("[{op}] inner.weight: expected one array of this name, got two");
    assert_eq!(tree.save_weights(&file).unwrap_err().to_string(), error("save_weights"));
    assert!(!file.exists());
    assert_eq!(tree.load_weights(&file, true).unwrap_err().to_string(), error("load_weights"));
    let gradients = BTreeMap::from([("inner.weight".to_string(), array(1.0))]);
    assert_eq!(tree.update(&gradients).unwrap_err().to_string(), error("update"));
    let stepped = SGD::new(0.1)?.update(&mut tree, &gradients);
    assert_eq!(stepped.unwrap_err().to_string(), error("update"));
    let text = tree_unflatten(&tree, gradients).err().map(|error| error.to_string());
    assert_eq!(text, Some(error("tree_unflatten")));
    assert_eq!((tree.inner.weight.item::<f32>()?, tree.other.item::<f32>()?), (1.0, 2.0));
    Ok(())
}

/// The running mean of a batch normalisation.
fn mean(norm: &BatchNorm) -> Result<Option<f32>> {
    norm.running_mean.as_ref().map(|state| state.get().item::<f32>()).transpose()
}

#[test]
fn state_of_a_captured_module_cannot_change_without_values() -> Result<()> {
    let x = Array::new([[1.0f32], [3.0]])?;
    let batch = wootz::stack(&[&x, &x], 0)?;
    let mut norm = BatchNorm::new(1)?;
    let refused = |result: Result<Vec<Array>>, name: &str| match result {
        Err(Error::Transform { transform, reason }) => {
            assert_eq!(transform, name);
            assert!(reason.contains("make the module an argument"), "{reason}");
        }
        other => panic!("{other:?}"),
    };
    refused(compile(|x: &[Array]| Ok(vec![norm.forward(&x[0])?])).call(&[x.clone()]), "compile");
    refused(vmap(|x: &[Array]| Ok(vec![norm.forward(&x[0])?]), 0, 0)(&[batch.clone()]), "vmap");
    // Also where another transform would store it.
    let layer = checkpoint_of(|(norm, x): &(BatchNorm, Array)| norm.forward(x));
    let again = compile(|x: &[Array]| Ok(vec![layer(&(norm.clone(), x[0].clone()))?]));
    refused(again.call(&[x.clone()]), "compile");
    let loss = |x: &Array| {
        let x = x.clone();
        move |norm: &BatchNorm| norm.forward(&x)?.sum(())
    };
    let step = compile(|x: &[Array]| Ok(vec![value_and_grad_of(loss(&x[0]))(&norm)?.0]));
    refused(step.call(&[x.clone()]), "compile");
    assert_eq!(mean(&norm)?, Some(0.0));
    // A transform with values may, and so may one whose argument the module is.
    let shared = vmap_of(
        |(norm, x): &(BatchNorm, Array)| norm.forward(x),
        [None, None, None, None, Some(0)],
        0,
    );
    let input = (norm.clone(), batch.clone());
    assert_eq!(shared(&input)?.shape(), [2, 2, 1]);
    assert_eq!(mean(&input.0)?, Some(0.0), "what becomes of a batch's state is not stored");
    let dx = wootz::grad(|x: &[Array]| norm.forward(&x[0])?.square()?.sum(()))(&[x.clone()])?;
    assert_eq!((dx[0].shape(), mean(&norm)?), (&[2, 1][..], Some(0.2)));
    // At rest nothing changes.
    norm.eval()?;
    let at_rest = compile(|x: &[Array]| Ok(vec![norm.forward(&x[0])?]));
    assert_eq!(at_rest.call(&[x.clone()])?[0].to_bytes()?, norm.forward(&x)?.to_bytes()?);
    Ok(())
}

#[test]
fn a_compiled_function_of_a_structure_has_its_names_modes_and_state() -> Result<()> {
    type Input = (BatchNorm, Array);
    let forward = |(norm, x): &Input| Ok(vec![norm.forward(x)?]);
    let (compiled, x) = (compile_of(forward), Array::new([[1.0f32], [3.0]])?);
    let mut input = (BatchNorm::new(1)?, x.clone());
    let plain = input.clone();
    for _ in 0..3 {
        assert_eq!(compiled.call(&input)?[0].to_bytes()?, forward(&plain)?[0].to_bytes()?);
        assert_eq!(mean(&input.0)?, mean(&plain.0)?);
    }
    assert_eq!((compiled.stats().traces, compiled.stats().replays), (1, 3));
    // At rest it is another function, and so is one of other parameters.
    input.0.eval()?;
    let before = mean(&input.0)?;
    assert_eq!(compiled.call(&input)?[0].to_bytes()?, forward(&input)?[0].to_bytes()?);
    assert_eq!((compiled.stats().traces, mean(&input.0)?), (2, before));
    input.0.bias = None;
    assert_eq!(compiled.call(&input)?[0].to_bytes()?, forward(&input)?[0].to_bytes()?);
    assert_eq!(compiled.stats().traces, 3);
    // The same shapes under other names.
    let maps = compile_of(|x: &BTreeMap<String, Array>| Ok(x.clone()));
    for name in ["a", "b", "a"] {
        let tree = BTreeMap::from([(name.to_string(), array(1.0))]);
        assert!(maps.call(&tree)?.into_keys().eq([name]));
    }
    assert_eq!(maps.stats().traces, 2);
    // Transforms go through it, and frozen parameters stay so.
    let loss = |input: &Input| compiled.call(input)?[0].square()?.sum(());
    let gradients = grad_of(loss)(&input)?;
    let expected = grad_of(|input: &Input| forward(input)?[0].square()?.sum(()))(&input)?;
    assert_eq!(gradients.1.to_bytes()?, expected.1.to_bytes()?);
    input.0.freeze()?;
    let copies = compile_of(|input: &Input| Ok(input.clone()));
    assert!(copies.call(&input)?.trainable_parameters().into_keys().eq(["1"]));
    Ok(())
}

#[test]
fn a_compiled_function_of_a_structure_sees_values_that_are_no_arrays() -> Result<()> {
    /// Calls with each, twice over, and checks results and how many plans there are.
    fn check<T: Tree + Clone>(
        what: &str,
        function: fn(&(T, Array)) -> Result<Array>,
        values: &[T],
    ) -> Result<()> {
        let x = Array::new([[-1.5f32, 0.25, 1.0, 2.0]])?;
        let compiled = compile_of(function);
        let mut seen = Vec::new();
        for value in values.iter().chain(values) {
            let input = (value.clone(), x.clone());
            let got = compiled.call(&input)?.to_bytes()?;
            assert_eq!(got, function(&input)?.to_bytes()?, "{what}");
            seen.push(got);
        }
        assert!(seen.iter().take(values.len()).skip(1).all(|other| *other != seen[0]), "{what}");
        assert_eq!(compiled.stats().traces, values.len() as u64, "{what}");
        Ok(())
    }
    check("f64", |(rate, x)| Ok(x * *rate), &[0.1f64, 0.5])?;
    check("usize", |(n, x)| Ok(x * *n as f64), &[2usize, 3])?;
    check("bool", |(up, x)| Ok(x + if *up { 1.0 } else { -1.0 }), &[false, true])?;
    check("words", |(word, x)| Ok(x + word.len() as f64), &["a".to_string(), "bcd".to_string()])?;
    check("option", |(n, x)| Ok(x + n.unwrap_or(0.5)), &[None, Some(0.0f64)])?;
    check("list", |(list, x)| Ok(x + list.len() as f64), &[vec![0u32], vec![0, 0], vec![]])?;
    check("enum", |(gelu, x)| gelu.forward(x), &[GELU::None, GELU::Precise, GELU::Fast])?;
    check("field", |(norm, x)| norm.forward(x), &[RMSNorm::new(4, 1e-5)?, RMSNorm::new(4, 0.5)?])?;
    let boxed = [Box::new(ReLU) as Box<dyn Module>, Box::new(SiLU)].map(|one| vec![one]);
    let dynamic: fn(&(Vec<Box<dyn Module>>, Array)) -> Result<Array> = |(m, x)| m[0].forward(x);
    check("boxed", dynamic, &boxed)?;
    let functions = [relu, wootz::nn::silu].map(Function::new);
    check("function", |(function, x)| function.call(x), &functions)?;
    let pools = [MaxPool1d::new(1, None, 0)?, MaxPool1d::new(2, None, 0)?];
    check("value", |(pool, x)| pool.forward(&x.reshape(&[1, 4, 1])?), &pools)?;
    // Layers that keep something beside their arrays.
    let sines = |max, turns| SinusoidalPositionalEncoding::with(4, 1e-2, max, None, false, turns);
    let encodings = [sines(1.0, false)?, sines(2.0, false)?, sines(1.0, true)?];
    check("frequencies", |(encoding, x)| encoding.forward(x), &encodings)?;
    let dynamic = |factor| {
        let scaling = RopeScaling { factor, ..RopeScaling::new(RopeType::Dynamic) };
        RotaryEmbedding::new(4, 10000.0, false, &scaling, 2)
    };
    let rotated: fn(&(RotaryEmbedding, Array)) -> Result<Array> =
        |(rope, x)| rope.forward_from(&x.reshape(&[1, 1, 1, 4])?, 9);
    check("rotary", rotated, &[dynamic(2.0)?, dynamic(4.0)?])?;
    let dims = MoeDims { dims: 4, hidden: 8, experts: 6, shared: 0 };
    let experts = SparseMoe::new(dims, Router::new(2))?;
    let routers = [Router::new(2), Router::new(3), Router { scale: 0.5, ..Router::new(2) }];
    let experts = routers.map(|router| SparseMoe { router, ..experts.clone() });
    check("router", |(experts, x)| experts.forward(x), &experts)
}

#[test]
fn a_model_with_dropout_is_compiled_with_its_key() -> Result<()> {
    let model = Sequential::new().then(Linear::new(4, 32, true)?).then(Dropout::new(0.5)?);
    let x = Array::ones(&[8, 4], DType::F32)?;
    let forward =
        |(model, x, key): &(Sequential, Array, Array)| random::with_key(key, || model.forward(x));
    let compiled = compile_of(forward);
    let mut seen = Vec::new();
    for seed in [1, 2, 1] {
        let input = (model.clone(), x.clone(), random::key(seed)?);
        let y = compiled.call(&input)?.to_bytes()?;
        assert_eq!(y, forward(&input)?.to_bytes()?);
        seen.push(y);
    }
    assert!(seen[0] == seen[2] && seen[0] != seen[1]);
    assert_eq!(compiled.stats().traces, 1);
    Ok(())
}

#[test]
fn a_batch_of_structures_is_one_with_batches() -> Result<()> {
    let layers = [Linear::new(3, 2, true)?, Linear::new(3, 2, true)?];
    let x = Array::new([[1.0f32, 2.0, 3.0]])?;
    let others = layers[1].parameters();
    let all = tree_map(&layers[0], |name, x| wootz::stack(&[x, &others[name]], 0))?;
    let got = vmap_of(|layer: &Linear| layer.forward(&x), 0, 0)(&all)?;
    for (index, layer) in layers.iter().enumerate() {
        let (got, want) = (got.index(index as i64)?, layer.forward(&x)?);
        assert!(wootz::allclose(got, want, 1e-5, 1e-6, false)?.item::<bool>()?);
    }
    Ok(())
}

#[test]
fn a_checkpoint_of_a_structure_stores_its_state_once() -> Result<()> {
    let (model, plain) = (BatchNorm::new(1)?, BatchNorm::new(1)?);
    let x = Array::new([[1.0f32], [3.0]])?;
    let layer = checkpoint_of(|(m, x): &(BatchNorm, Array)| m.forward(x)?.sin());
    let loss = |input: &(BatchNorm, Array)| layer(input)?.square()?.sum(());
    let input = (model, x.clone());
    let gradients = grad_of(loss)(&input)?;
    let expected = grad_of(|i: &(BatchNorm, Array)| i.0.forward(&i.1)?.sin()?.square()?.sum(()))(
        &(plain.clone(), x),
    )?;
    assert_eq!(gradients.1.to_bytes()?, expected.1.to_bytes()?);
    assert_eq!(mean(&input.0)?, Some(0.2));
    Ok(())
}

#[test]
fn training_mode_reaches_boxed_modules() -> Result<()> {
    let mut model =
        Sequential::new().then(Linear::new(4, 64, true)?).then_fn(relu).then(Dropout::new(0.9)?);
    let x = Array::ones(&[8, 4], DType::F32)?;
    let zeros = |model: &Sequential| {
        let y = model.forward(&x)?.to_vec::<f32>()?;
        Ok::<usize, Error>(y.iter().filter(|y| **y == 0.0).count())
    };
    model.eval()?;
    let at_rest = zeros(&model)?;
    assert_eq!(zeros(&model)?, at_rest);
    model.train()?;
    assert!(zeros(&model)? > at_rest);
    Ok(())
}

#[test]
fn a_submodule_can_be_replaced_by_name() -> Result<()> {
    let inner = Sequential::new().then(Linear::new(3, 2, false)?);
    let mut model = Sequential::new().then(inner).then_fn(relu);
    model.replace_module("layers.0.layers.0", Linear::new(3, 7, true)?)?;
    assert_eq!(model.parameters()["layers.0.layers.0.bias"].shape(), [7]);
    assert_eq!(model.forward(&Array::ones(&[1, 3], DType::F32)?)?.shape(), [1, 7]);
    let error = model.replace_module("layers.5", Linear::new(3, 7, true)?).unwrap_err();
    assert!(error.to_string().contains("layers.5"));
    let module: &dyn std::any::Any = &*model.layers[0];
    assert!(module.downcast_ref::<Sequential>().is_some());
    Ok(())
}

#[derive(Clone, Tree)]
struct Block {
    norm: Option<Linear>,
    none: Option<Linear>,
    experts: Vec<Linear>,
    wrapped: (Wrapper, Array),
    #[wootz(skip)]
    _hidden: Wrapper,
}

#[test]
fn parts_are_told_with_their_names_and_in_what_they_are() -> Result<()> {
    let linear = || Linear::new(2, 2, true);
    let array = || Array::new([1.0f32]);
    let block = Block {
        norm: Some(linear()?),
        none: None,
        experts: vec![linear()?, linear()?],
        wrapped: (Wrapper(array()?), array()?),
        _hidden: Wrapper(array()?),
    };
    let tree = BTreeMap::from([("first".to_string(), block)]);
    let names = |parts: Vec<(String, wootz::tree::Part<'_>)>| -> Vec<String> {
        parts.into_iter().map(|(name, _)| name).collect()
    };
    let inside = ["first.norm", "first.experts.0", "first.experts.1", "first.wrapped.0"];
    assert_eq!(names(tree.named_modules()), [&["first"], &inside[..]].concat());
    // A map is no part itself.
    assert_eq!(names(tree.children()), ["first"]);
    assert_eq!(names(tree.leaf_modules()), inside);
    assert_eq!(names(tree["first"].children()), inside.map(|name| &name["first.".len()..]));
    assert_eq!(tree["first"].modules().len(), 5);
    let (_, norm) = &tree["first"].children()[0];
    assert!(norm.type_name().ends_with("::Linear"), "{norm:?}");
    assert!(norm.parameters().into_keys().eq(["bias", "weight"]));
    Ok(())
}

#[test]
fn modules_are_replaced_all_or_none() -> Result<()> {
    let boxed = |width| Ok::<Box<dyn Module>, Error>(Box::new(Linear::new(3, width, false)?));
    let inner = Sequential::new().then(Linear::new(3, 2, false)?);
    let mut model = Sequential::new().then(inner).then(Linear::new(3, 3, false)?);
    let mut update = |names: [&str; 2]| {
        let modules = [(names[0].to_string(), boxed(7)?), (names[1].to_string(), boxed(8)?)];
        let outcome = model.update_modules(BTreeMap::from(modules));
        let widths = model.parameters().into_values().map(|weight| weight.shape()[0]);
        outcome.map(|()| widths.collect::<Vec<_>>())
    };
    assert!(update(["layers.0.layers.0", "layers.9"]).is_err());
    let error = update(["layers.0", "layers.0.layers.0"]).unwrap_err().to_string();
    assert!(error.contains("inside of"), "{error}");
    assert_eq!(update(["layers.0.layers.0", "layers.1"])?, [7, 8]);
    Ok(())
}
