//! What operations should give: plain loops over doubles that share no code with the kernels.

mod elementwise;

use wootz::DType;
use wootz::op::Case;

use super::data::Host;

pub(crate) use elementwise::elementwise;

/// An array of doubles, row-major.
#[derive(Clone, Debug)]
pub(crate) struct Tensor {
    pub(crate) shape: Vec<usize>,
    pub(crate) data: Vec<f64>,
}

/// A reference: arguments to results.
pub(crate) struct Function(Box<dyn Fn(&[Tensor], &[DType]) -> Vec<Tensor> + Send + Sync>);

impl Function {
    pub(crate) fn new(
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

/// Cases with references of operations that have parameters, which the operations' own cases hide
/// in their calls.
pub(crate) fn cases() -> Vec<(&'static str, Case, Function)> {
    Vec::new()
}

/// Operations without a reference, and why.
pub(crate) const WITHOUT: &[(&str, &str)] = &[];
