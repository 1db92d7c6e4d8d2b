//! Layers: gradients against finite differences, and errors.

use wootz::fast::Mask;
use wootz::nn::losses::{Reduction, cross_entropy};
use wootz::nn::*;
use wootz::{
    Array, ConvOptions, DType, Device, Padding, Result, RopeScaling, RopeType, Router, Tree,
    grad_of, random, tree_map, with_device,
};

/// Checks the gradient of a layer's parameters and inputs along one random direction, in double
/// precision on the CPU.
fn check<T: Tree + Clone>(
    what: &str,
    layer: Result<T>,
    inputs: &[&[usize]],
    call: impl Fn(&T, &[Array]) -> Result<Array>,
) {
    let work = || -> Result<(f64, f64)> {
        let wide =
            |x: &Array| if x.dtype().is_float() { x.astype(DType::F64) } else { Ok(x.clone()) };
        let draw = |shape: &[usize]| random::normal(shape, DType::F32, 0.0, 0.7, None);
        let layer = tree_map(&layer?, |_, x| wide(x))?;
        let inputs = inputs.iter().map(|shape| wide(&draw(shape)?)).collect::<Result<Vec<_>>>()?;
        let point = (layer, inputs);
        let weights = wide(&draw(call(&point.0, &point.1)?.shape())?)?;
        let loss = |p: &(T, Vec<Array>)| call(&p.0, &p.1)?.multiply(&weights)?.sum(());
        let direction = tree_map(&point, |_, x| wide(&draw(x.shape())?))?.parameters();
        let step = 1e-5;
        let along = |sign: f64| {
            let moved = tree_map(&point, |name, x| {
                wootz::add(x, wootz::multiply(sign * step, &direction[name])?)
            })?;
            loss(&moved)?.item::<f64>()
        };
        let expected = (along(1.0)? - along(-1.0)?) / (2.0 * step);
        let mut got = 0.0;
        // State is moved too, but has no gradient; its direction must not count.
        for (name, gradient) in grad_of(loss)(&point)?.trainable_parameters() {
            got += gradient.multiply(&direction[&name])?.sum(())?.item::<f64>()?;
        }
        Ok((expected, got))
    };
    random::seed(11);
    match with_device(&Device::cpu(), work) {
        Ok((expected, got)) => {
            let tolerance = 1e-6 * (1.0 + expected.abs());
            assert!(expected.abs() > 1e-3, "{what}: nothing depends on anything");
            assert!((expected - got).abs() < tolerance, "{what}: {expected} by differences, {got}");
        }
        Err(error) => panic!("{what}: {error}"),
    }
}

fn module<M: Module + Clone>(what: &str, layer: Result<M>, shape: &[usize]) {
    check(what, layer, &[shape], |layer, x| layer.forward(&x[0]));
}

#[test]
fn gradients_of_modules_are_right() {
    module("Linear", Linear::new(4, 3, true), &[5, 4]);
    module("Linear without bias", Linear::new(4, 3, false), &[2, 5, 4]);
    module("RMSNorm", RMSNorm::new(6, 1e-5), &[3, 6]);
    module("LayerNorm", LayerNorm::new(6), &[3, 6]);
    module("LayerNorm without bias", LayerNorm::with(6, 1e-3, true, false), &[2, 3, 6]);
    module("InstanceNorm", InstanceNorm::new(3, 1e-5, true), &[2, 4, 5, 3]);
    module("GroupNorm", GroupNorm::new(2, 6), &[2, 5, 6]);
    module("GroupNorm, PyTorch's", GroupNorm::with(2, 6, 1e-5, true, true), &[2, 5, 6]);
    module("BatchNorm", BatchNorm::with(3, 1e-5, 0.1, true, false), &[7, 3]);
    module("PReLU", PReLU::new(4, 0.25), &[5, 4]);
    module("RoPE", Ok(RoPE::new(6)), &[1, 2, 5, 8]);
    module("ALiBi", Ok(ALiBi), &[1, 3, 4, 4]);
    module("SinusoidalPositionalEncoding", SinusoidalPositionalEncoding::new(6), &[5]);
    module("RNN", RNN::new(4, 3, true), &[2, 5, 4]);
    module("GRU", GRU::new(4, 3, true), &[2, 5, 4]);
    let experts = MoeDims { dims: 4, hidden: 3, experts: 5, shared: 3 };
    let router = Router { renormalise: true, ..Router::new(2) };
    module("SparseMoe", SparseMoe::new(experts, router), &[2, 3, 4]);
    let heads =
        DeltaDims { dims: 4, key_heads: 1, value_heads: 2, key_dims: 3, value_dims: 2, taps: 3 };
    module("GatedDeltaNet", GatedDeltaNet::new(heads), &[2, 5, 4]);
    let model = || {
        Ok(Sequential::new()
            .then(Linear::new(4, 5, true)?)
            .then_fn(gelu)
            .then(Linear::new(5, 2, true)?))
    };
    module("Sequential", model(), &[3, 4]);
}

#[test]
fn gradients_of_convolutions_are_right() {
    for (stride, padding, dilation, groups) in
        [(1, 0, 1, 1), (2, 1, 1, 1), (1, 2, 2, 2), (3, 4, 3, 4)]
    {
        let options = Conv1dOptions { stride, padding, dilation, groups };
        module(&format!("{options:?}"), Conv1d::new(4, 8, 3, options, true), &[2, 9, 4]);
    }
    let options = ConvOptions {
        stride: (1, 2).into(),
        padding: Padding::sides(&[1, 0], &[0, 2]),
        groups: 2,
        ..Default::default()
    };
    module("Conv2d", Conv2d::new(4, 6, (3, 2), options, true), &[2, 5, 6, 4]);
    module("Conv3d", Conv3d::new(2, 3, 2, ConvOptions::default(), true), &[1, 3, 4, 3, 2]);
    let options = ConvTransposeOptions {
        stride: 2.into(),
        padding: 1.into(),
        output_padding: 1.into(),
        ..Default::default()
    };
    module("ConvTranspose1d", ConvTranspose1d::new(3, 4, 3, options.clone(), true), &[2, 5, 3]);
    module("ConvTranspose2d", ConvTranspose2d::new(3, 4, 2, options.clone(), true), &[1, 4, 3, 3]);
    module("ConvTranspose3d", ConvTranspose3d::new(2, 3, 3, options, true), &[1, 2, 3, 2, 2]);
}

#[test]
fn gradients_of_pools_and_upsampling_are_right() {
    module("MaxPool1d", MaxPool1d::new(3, Some(2.into()), 1), &[2, 9, 3]);
    module("MaxPool2d", MaxPool2d::new((2, 3), None, (1, 0)), &[2, 5, 6, 2]);
    module("MaxPool3d", MaxPool3d::new(2, None, 0), &[1, 2, 4, 2, 2]);
    module("AvgPool1d", AvgPool1d::new(3, Some(1.into()), 1), &[2, 6, 3]);
    module("AvgPool2d", AvgPool2d::new(2, Some((1, 2).into()), 0), &[2, 5, 6, 2]);
    module("AvgPool3d", AvgPool3d::new(2, None, 1), &[1, 2, 4, 2, 2]);
    for mode in [UpsampleMode::Nearest, UpsampleMode::Linear, UpsampleMode::Cubic] {
        for corners in [false, true] {
            let what = format!("Upsample {mode:?} {corners}");
            module(&what, Upsample::new([2.0, 1.5], mode, corners, false), &[2, 3, 4, 2]);
        }
    }
    let smoothed = Upsample::new(0.5, UpsampleMode::Cubic, false, true);
    module("Upsample, smoothed", smoothed, &[1, 6, 5, 2]);
}

#[test]
fn gradients_of_layers_with_several_inputs_are_right() {
    let state: &[&[usize]] = &[&[2, 5, 4], &[2, 3], &[2, 3]];
    check("RNN from a state", RNN::new(4, 3, false), state, |layer, x| {
        layer.forward_from(&x[0], Some(&x[1]))
    });
    check("GRU from a state", GRU::new(4, 3, true), state, |layer, x| {
        layer.forward_from(&x[0], Some(&x[1]))
    });
    check("LSTM", LSTM::new(4, 3, true), &[&[2, 5, 4]], |layer, x| {
        let (hidden, cell) = layer.forward(&x[0], None, None)?;
        wootz::add(hidden, cell)
    });
    check("LSTM from a state", LSTM::new(4, 3, false), state, |layer, x| {
        Ok(layer.forward(&x[0], Some(&x[1]), Some(&x[2]))?.0)
    });
    check("Bilinear", Bilinear::new(2, 3, 4, true), &[&[5, 2], &[5, 3]], |layer, x| {
        layer.forward(&x[0], &x[1])
    });
    let inputs: &[&[usize]] = &[&[2, 3, 8], &[2, 5, 8], &[2, 5, 8], &[3, 5]];
    check("MultiHeadAttention", MultiHeadAttention::new(8, 2, true), inputs, |layer, x| {
        layer.forward(&x[0], &x[1], &x[2], Mask::Array(&x[3]))
    });
    check("causal", MultiHeadAttention::new(8, 2, false), &[&[2, 4, 8]], |layer, x| {
        layer.forward(&x[0], &x[0], &x[0], Mask::Causal)
    });
    check("encoder", TransformerEncoderLayer::new(8, 2), &[&[2, 4, 8]], |layer, x| {
        layer.forward(&x[0], Mask::None)
    });
    for checkpoint in [true, false] {
        let options = TransformerOptions {
            mlp_dims: Some(6),
            dropout: 0.25,
            checkpoint,
            ..Default::default()
        };
        let model = Transformer::new(8, 2, 2, 2, &options);
        check("transformer", model, &[&[2, 4, 8], &[2, 3, 8], &[3, 4]], |model, x| {
            // The same elements are dropped at every point.
            random::seed(5);
            model.forward(&x[0], &x[1], Mask::None, Mask::Causal, Mask::Array(&x[2]))
        });
    }
}

#[test]
fn gradients_of_tables_and_losses_are_right() {
    let tokens = Array::new([[1, 3, 1], [0, 4, 2]]).unwrap();
    check("Embedding", Embedding::new(5, 4), &[], |layer, _| layer.forward(&tokens));
    check("tied", Embedding::new(5, 4), &[&[3, 4]], |layer, x| layer.as_linear(&x[0]));
    check("cross entropy", Embedding::new(5, 5), &[], |layer, _| {
        let logits = layer.forward(&tokens)?;
        cross_entropy(&logits, &tokens, None, -1, 0.1, Reduction::None)
    });
}

#[test]
fn classes_of_any_axis_are_checked_and_padding_has_no_weight() -> Result<()> {
    let logits = Array::new([[2.0f32, -1.0, 0.5], [0.0, 1.0, 3.0]])?;
    let weights = Array::new([1.0f32, 0.0])?;
    let mean = |logits: &Array, targets: [i32; 2], axis: i64| {
        let targets = Array::new(targets)?;
        cross_entropy(logits, &targets, Some(&weights), axis, 0.1, Reduction::Sum)?.item::<f32>()
    };
    let turned = logits.transpose()?;
    let loss = mean(&logits, [1, 0], -1)?;
    assert_eq!(loss, mean(&turned, [1, 0], 0)?);
    assert_eq!(loss, mean(&logits, [1, 2], -1)?);
    for (logits, axis) in [(&logits, -1), (&turned, 0)] {
        for label in [-1, -100, 3] {
            let error = mean(logits, [1, label], axis).unwrap_err().to_string();
            assert!(error.contains(&label.to_string()), "{error}");
        }
    }
    Ok(())
}

#[test]
fn running_statistics_are_used_when_not_training() -> Result<()> {
    let mut layer = BatchNorm::new(2)?;
    let x = Array::new([[1.0f32, 2.0], [3.0, 6.0]])?;
    for _ in 0..200 {
        layer.forward(&x)?;
        wootz::eval(layer.parameters().values())?;
    }
    layer.eval()?;
    // The running variance divides by one less than the batch.
    let y = layer.forward(&x)?.to_vec::<f32>()?;
    for (y, expected) in y.iter().zip([-0.70711, -0.70711, 0.70711, 0.70711]) {
        assert!((y - expected).abs() < 1e-4, "{y}");
    }
    Ok(())
}

#[test]
fn wrong_arguments_are_errors() -> Result<()> {
    let three = Array::ones(&[2, 3], DType::F32)?;
    let zero = Linear::new(0, 2, true).unwrap_err().to_string();
    assert_eq!(zero, "[Linear] input_dims: expected a positive number, got 0");
    assert!(Bilinear::new(0, 2, 3, true).is_err());
    assert!(Linear::new(4, 2, true)?.forward(&three).is_err());
    assert!(GroupNorm::new(4, 6).is_err());
    assert!(GroupNorm::new(2, 6)?.forward(&three).is_err());
    assert!(LayerNorm::new(4)?.forward(&three).is_err());
    assert!(LayerNorm::with(4, 0.0, true, true).is_err());
    assert!(BatchNorm::new(3)?.forward(&Array::ones(&[1, 3], DType::F32)?).is_err());
    assert!(Dropout::new(1.0).is_err());
    assert!(Dropout::new_2d(0.5)?.forward(&three).is_err());
    assert!(MultiHeadAttention::new(8, 3, false).is_err());
    assert!(RNN::new(3, 2, true)?.forward(&Array::ones(&[2, 0, 3], DType::F32)?).is_err());
    let options = Conv1dOptions { groups: 2, ..Default::default() };
    assert!(Conv1d::new(3, 4, 2, options, true).is_err());
    assert!(
        Conv1d::new(4, 4, 9, options, true)?
            .forward(&Array::ones(&[1, 5, 4], DType::F32)?)
            .is_err()
    );
    assert!(Conv2d::new(4, 6, (1, 2, 3), ConvOptions::default(), true).is_err());
    assert!(Conv2d::new(3, 4, 1, ConvOptions::default(), true)?.forward(&three).is_err());
    assert!(MaxPool2d::new(0, None, 0).is_err() && AvgPool1d::new(2, Some(0.into()), 0).is_err());
    let message =
        MaxPool1d::new(9, Some(1.into()), 1)?.forward(&Array::ones(&[1, 5, 4], DType::F32)?);
    assert!(message.is_err_and(|error| error.to_string().contains("at most 7")));
    assert!(Upsample::new(-1.0, UpsampleMode::Nearest, false, false).is_err());
    assert!(Upsample::new(2.0, UpsampleMode::Linear, true, true).is_err());
    let each = Upsample::new([2.0, 2.0], UpsampleMode::Linear, false, false)?;
    assert!(each.forward(&Array::ones(&[1, 5, 4], DType::F32)?).is_err());
    assert!(Embedding::new(3, 2)?.forward(&Array::new([3])?)?.eval().is_err());
    Ok(())
}

#[test]
fn dynamic_rotary_frequencies_need_a_known_length() -> Result<()> {
    let rope = |rope_type| {
        let scaling = RopeScaling { factor: 2.0, ..RopeScaling::new(rope_type) };
        RotaryEmbedding::new(8, 10000.0, false, &scaling, 4)
    };
    let x = Array::ones(&[1, 2, 3, 8], DType::F32)?;
    let (offset, positions) = (Array::new(7)?, Array::new([[7, 8, 9]])?);
    let stretched = rope(RopeType::Dynamic)?;
    let error = stretched.forward_from(&x, &offset).unwrap_err().to_string();
    assert!(error.contains("offset") && error.contains("dynamic"), "{error}");
    let error = stretched.forward_at(&x, &positions).unwrap_err().to_string();
    assert!(error.contains("positions") && error.contains("dynamic"), "{error}");
    let plain = rope(RopeType::Linear)?;
    let known = plain.forward_from(&x, 7)?.to_bytes()?;
    assert_eq!(plain.forward_from(&x, &offset)?.to_bytes()?, known);
    assert_eq!(plain.forward_at(&x, &positions)?.to_bytes()?, known);
    assert_ne!(stretched.forward_from(&x, 7)?.to_bytes()?, known);
    // Beyond what a length can be.
    for rope in [plain, stretched] {
        let far = rope.forward_from(&x, 1e30)?;
        assert_eq!(far.to_vec::<f32>()?.len(), 48);
        let error = rope.forward_from(&x, f64::INFINITY).unwrap_err().to_string();
        assert!(error.contains("offset") && error.contains("inf"), "{error}");
    }
    Ok(())
}

#[test]
fn a_layer_that_cannot_be_quantized_is_named() -> Result<()> {
    let mut model =
        Sequential::new().then(Linear::new(64, 40, true)?).then(Linear::new(40, 2, true)?);
    let scheme = wootz::quant::Scheme::new("affine", Some(32), Some(4))?;
    let error = quantize(&mut model, scheme, |_, _| true).unwrap_err().to_string();
    assert!(error.starts_with("[quantize] layers.1.w: expected shape"), "{error}");
    Ok(())
}

#[test]
fn dropout_of_whole_features_draws_once_for_each() -> Result<()> {
    let y = Dropout::new_2d(0.5)?.forward(&Array::ones(&[2, 3, 4, 8], DType::F32)?)?;
    let lowest = y.min(&[1, 2][..])?;
    let highest = y.max(&[1, 2][..])?;
    assert_eq!(lowest.to_vec::<f32>()?, highest.to_vec::<f32>()?);
    Ok(())
}
