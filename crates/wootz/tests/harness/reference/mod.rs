//! What operations should give: plain loops over doubles that share no code with the kernels.

mod attention;
mod complex;
mod convolution;
mod elementwise;
mod experts;
mod factors;
mod indexing;
mod linear;
mod movement;
mod products;
mod reduce;
mod state_space;
mod tensor;

pub(crate) use elementwise::elementwise;
use tensor::Tensor;
use wootz::op::{Case, EVERY, Gradient, Tolerance};
use wootz::{Array, DType, Result};

use super::data::Host;

/// A reference: arguments and their dtypes to results.
pub(crate) struct Function(Box<Reference>);

type Reference = dyn Fn(&[Tensor], &[DType]) -> Vec<Tensor> + Send + Sync;

impl Function {
    fn new(
        function: impl Fn(&[Tensor], &[DType]) -> Vec<Tensor> + Send + Sync + 'static,
    ) -> Function {
        Function(Box::new(function))
    }

    /// The results for these arguments, in doubles where `like` has floats, else in its dtype.
    pub(crate) fn call(&self, hosts: &[Host], like: &[Host]) -> Vec<Host> {
        let tensors: Vec<Tensor> = (hosts.iter())
            .map(|host| Tensor { shape: host.shape.clone(), data: host.to_f64() })
            .collect();
        let dtypes: Vec<DType> = hosts.iter().map(|host| host.dtype).collect();
        let results = (self.0)(&tensors, &dtypes);
        (results.iter().enumerate())
            .map(|(i, tensor)| {
                let dtype = like.get(i).map_or(DType::F64, |host| host.dtype);
                let dtype = if dtype.is_float() { DType::F64 } else { dtype };
                Host::from_f64(&tensor.shape, dtype, &tensor.data)
            })
            .collect()
    }
}

/// A case of an operation, with its reference.
pub(crate) struct Known {
    pub(crate) op: &'static str,
    pub(crate) case: Case,
    pub(crate) function: Function,
}

impl Known {
    fn new(
        op: &'static str,
        shapes: &[&[usize]],
        call: impl Fn(&[Array]) -> Result<Array> + Send + Sync + 'static,
        function: impl Fn(&[Tensor]) -> Tensor + Send + Sync + 'static,
    ) -> Known {
        let case = Case::new("reference", shapes, move |x| Ok(vec![call(x)?]));
        Known { op, case, function: Function::new(move |x, _| vec![function(x)]) }
    }

    /// A case that moves elements of every dtype and computes nothing.
    fn moving(
        op: &'static str,
        shapes: &[&[usize]],
        call: impl Fn(&[Array]) -> Result<Array> + Send + Sync + 'static,
        function: impl Fn(&[Tensor]) -> Tensor + Send + Sync + 'static,
    ) -> Known {
        Known::new(op, shapes, call, function).with(|c| c.dtypes(EVERY).tolerance(Tolerance::Exact))
    }

    fn with(mut self, change: impl FnOnce(Case) -> Case) -> Known {
        self.case = change(self.case);
        self
    }

    fn label(self, label: &str) -> Known {
        self.with(|mut case| {
            case.label = format!("reference, {label}");
            case
        })
    }

    fn gradient(self, gradient: Gradient) -> Known {
        self.with(|case| case.gradient(gradient))
    }
}

/// Cases with references of operations that have parameters, which the operations' own cases hide
/// in their calls.
pub(crate) fn cases() -> Vec<Known> {
    let families = [
        attention::cases(),
        complex::cases(),
        convolution::cases(),
        experts::cases(),
        factors::cases(),
        movement::cases(),
        reduce::cases(),
        linear::cases(),
        products::cases(),
        indexing::cases(),
        state_space::cases(),
    ];
    families.into_iter().flatten().collect()
}

/// Operations without a reference, and why.
pub(crate) const WITHOUT: &[(&str, &str)] = &[
    ("allclose", "composed of isclose and all, and compared with recorded values of MLX"),
    ("array_equal", "composed of equal and all, and compared with recorded values of MLX"),
    ("as_strided", "moves bits by strides, which its unit tests spell out"),
    (
        "attention_backward",
        "attention's gradients are made of it: finite differences are its reference",
    ),
    ("attention_backward_mask", "as attention_backward"),
    ("at", "composed of take, put and scatter, whose cases have references or goldens"),
    (
        "causal_conv1d_backward",
        "causal_conv1d's gradients are made of it: finite differences are its reference",
    ),
    (
        "combine_experts_backward",
        "combine_experts' gradients are made of it: finite differences are its reference",
    ),
    (
        "cross_entropy_backward",
        "cross entropy's gradients are made of it: finite differences are its reference",
    ),
    (
        "gated_delta_backward",
        "gated_delta's gradients are made of it: finite differences are its reference",
    ),
    (
        "selective_scan_backward",
        "selective_scan's gradients are made of it: finite differences are its reference",
    ),
    ("fftn", "made of fft axis after axis, and compared with recorded values of MLX"),
    ("fftshift", "made of roll, and compared with recorded values of MLX"),
    ("ifftn", "as fftn"),
    ("ifftshift", "as fftshift"),
    ("irfftn", "as fftn"),
    ("istft", "the inverse of stft, and compared with recorded values of MLX"),
    ("rfftn", "as fftn"),
    ("stft", "rfft of frames, and compared with recorded values of MLX"),
    ("dequantize", "compared bit by bit with recorded values of MLX and gguf"),
    ("divmod", "composed of floor_divide and remainder, which have references"),
    ("gather", "take and take_along_axis are its cases with references"),
    (
        "gather_qmm",
        "compared with recorded values of MLX, and with the product of decoded matrices",
    ),
    (
        "group_norm_backward",
        "group_norm's gradients are made of it: finite differences are its reference",
    ),
    ("index", "composed of slice, take and gather"),
    ("kl_divergence_backward", "as cross_entropy_backward"),
    ("matmul_each", "compared bit by bit with products by themselves, which have references"),
    ("matmul_glu", "composed of matmul and activations, which have references"),
    ("quantize", "compared bit by bit with recorded values of MLX and gguf"),
    ("quantized_matmul", "as gather_qmm"),
    ("random.multivariate_normal", "compared with recorded values of MLX"),
    ("random_bits", "compared bit by bit with recorded values of MLX"),
    ("rope_append", "composed of rope and slice_update, which have references"),
    ("scatter", "compared with recorded values of MLX"),
    ("slice_dynamic", "slice is its case with a reference"),
    ("slice_update_dynamic", "slice_update is its case with a reference"),
    ("view", "reinterprets bits, which its unit tests spell out"),
];
