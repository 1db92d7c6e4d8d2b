//! What users run and no operation's cases do: a step of each optimizer and a network's gradients, whose
//! elementwise parts become kernels of their own.

use wootz::op::{Case, Gradient, Tolerance};
use wootz::optim::{
    AdaDelta, Adafactor, Adagrad, Adam, AdamW, Adamax, Lion, Muon, Optimizer, RMSprop, SGD,
};
use wootz::{Array, DType, Result, layer_norm, matmul, nn, value_and_grad, vjp};

use super::Subject;

/// All of them, under three names that no operation has.
pub(crate) fn subjects() -> Vec<Subject> {
    let of = |op: &'static str| {
        move |case: Case| Subject { op, case, reference: None, any_size: false, first: false }
    };
    let steps = optimizers().into_iter().map(of("optimizers"));
    let slopes = activations().into_iter().map(of("activations"));
    steps.chain(networks().into_iter().map(of("networks"))).chain(slopes).collect()
}

/// Two steps from parameters and gradients that are not near zero, where some optimizers take only the sign.
fn optimizers() -> Vec<Case> {
    fn case<O: Optimizer>(
        name: &str,
        make: impl Fn() -> Result<O> + Send + Sync + 'static,
    ) -> Case {
        const SHAPE: &[usize] = &[3, 130];
        let steps = move |x: &[Array]| {
            let (mut parameters, gradients) = (vec![x[0].clone()], vec![x[1].clone()]);
            let mut optimizer = make()?;
            for _ in 0..2 {
                optimizer.update(&mut parameters, &gradients)?;
            }
            Ok(optimizer.arrays(&parameters))
        };
        Case::new(name, &[SHAPE, SHAPE], steps)
            .range(0.5..2.0)
            .dtypes(&[DType::F32, DType::BF16])
            .tolerance(Tolerance::Reduction)
            .gradient(Gradient::None)
    }
    vec![
        case("SGD", || Ok(SGD::new(0.1)?.momentum(0.9, 0.0, false)?.weight_decay(0.01))),
        case("Adam", || Adam::new(0.1)),
        case("AdamW", || Ok(AdamW::new(0.1)?.bias_correction(true))),
        case("Adamax", || Adamax::new(0.1)),
        case("RMSprop", || RMSprop::new(0.1)),
        case("Adagrad", || Adagrad::new(0.1)),
        case("AdaDelta", || AdaDelta::new(0.1)),
        case("Lion", || Lion::new(0.1)),
        case("Adafactor", || Adafactor::new(None)),
        case("Muon", || Muon::new(0.1)),
    ]
}

/// The loss of a block with a norm, two layers and a residual sum, and its gradients.
fn networks() -> Vec<Case> {
    const X: &[usize] = &[5, 24];
    let loss = |x: &[Array]| {
        let [x, first, bias, second] = x else { return x[0].sum(()) };
        let hidden = nn::gelu(&(matmul(&layer_norm(x, None, None, 1e-5)?, first)? + bias))?;
        (matmul(&hidden, second)? + x).square()?.mean(())
    };
    let all = move |x: &[Array]| {
        let (value, gradients) = value_and_grad(loss)(x)?;
        Ok([vec![value], gradients].concat())
    };
    vec![
        Case::new("a block", &[X, &[24, 65], &[65], &[65, 24]], all)
            .range(-0.5..0.5)
            .dtypes(&[DType::F32])
            .tolerance(Tolerance::Reduction)
            .gradient(Gradient::None),
    ]
}

/// The gradients of activations, whose arrays are read or written once.
fn activations() -> Vec<Case> {
    const MANY: usize = 4096;
    fn case(name: &str, arrays: usize, call: fn(&[Array]) -> Result<Array>) -> Case {
        let gradients = move |x: &[Array]| {
            let (inputs, slope) = (&x[..arrays], &x[arrays]);
            Ok(vjp(|x: &[Array]| Ok(vec![call(x)?]), inputs, &[slope.clone()])?.1)
        };
        Case::new(name, &vec![&[MANY][..]; arrays + 1], gradients)
            .dtypes(&[DType::F32, DType::BF16])
            .tolerance(Tolerance::Rounded(8.0, "every step of the formula is rounded"))
            .gradient(Gradient::None)
            .moves((2 * arrays + 1) * MANY, 1.1)
    }
    vec![
        case("gelu", 1, |x| nn::gelu(&x[0])),
        case("gelu_approx", 1, |x| nn::gelu_approx(&x[0])),
        case("relu2", 1, |x| nn::relu2(&x[0])),
        case("silu", 1, |x| nn::silu(&x[0])),
        case("softcap", 1, |x| nn::softcap(&x[0], 1.5)),
        case("softplus", 1, |x| nn::softplus(&x[0])),
        case("geglu", 2, |x| nn::geglu(&x[0], &x[1])),
        case("swiglu", 2, |x| nn::swiglu(&x[0], &x[1])),
    ]
}
