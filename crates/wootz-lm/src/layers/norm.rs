//! Normalisation, and the stream of values that layers add to and normalise.

use wootz::{
    Array, DType, Parameter, Result, Tree, add, add_rms_norm, rms_norm, rms_norm_add,
    rms_norm_add_rms_norm,
};

/// The largest finite `float16`.
const LARGEST_F16: f32 = 65504.0;

/// Division by the root of the mean of squares, and a weight.
#[derive(Clone, Debug, Tree)]
pub struct RmsNorm {
    /// `[dims]`.
    pub weight: Parameter,
    eps: f32,
    /// Whether 1 is added to the weight.
    offset: bool,
    /// The weight before, and that sum, which is not computed again while the weight is the same.
    #[wootz(skip)]
    shifted: Option<[Array; 2]>,
}

impl RmsNorm {
    /// With its weight, and a number added to the mean.
    pub fn new(weight: Parameter, eps: f64) -> RmsNorm {
        RmsNorm { weight, eps: eps as f32, offset: false, shifted: None }
    }

    /// With 1 added to the weight, as gemma has it.
    pub fn with_offset(mut self, offset: bool) -> Result<RmsNorm> {
        if offset {
            let sum = add(1.0, &self.weight)?;
            sum.eval()?;
            self.offset = true;
            self.shifted = Some([self.weight.array().clone(), sum]);
        }
        Ok(self)
    }

    /// Of the last axis.
    pub fn forward(&self, x: &Array) -> Result<Array> {
        rms_norm(x, Some(&self.scale()?), self.eps)
    }

    fn scale(&self) -> Result<Array> {
        match &self.shifted {
            _ if !self.offset => Ok(self.weight.array().clone()),
            Some([weight, sum]) if weight.is_same(&self.weight) => Ok(sum.clone()),
            _ => add(1.0, &self.weight),
        }
    }
}

/// What flows through a model's layers: each adds to it. A sum waits until it is normalised, because
/// both are done in one pass over memory, with the norm of what is added, if it has one.
#[derive(Clone)]
pub struct Residual {
    sum: Array,
    added: Option<Added>,
}

/// What is added, as it is or normalised.
#[derive(Clone)]
struct Added {
    x: Array,
    /// The norm's weight and eps.
    norm: Option<(Array, f32)>,
}

impl Residual {
    /// Begins with a model's embeddings.
    pub fn new(x: Array) -> Residual {
        Residual { sum: x, added: None }
    }

    /// Adds a layer's result.
    pub fn add(&mut self, x: Array) -> Result<()> {
        let sum = self.value()?;
        *self = Residual { sum, added: Some(Added { x, norm: None }) };
        Ok(())
    }

    /// Adds what a norm makes of a layer's result.
    pub fn add_normed(&mut self, x: Array, norm: &RmsNorm) -> Result<()> {
        let (sum, norm) = (self.value()?, Some((norm.scale()?, norm.eps)));
        *self = Residual { sum, added: Some(Added { x, norm }) };
        Ok(())
    }

    /// As [`add_normed`](Self::add_normed), but as gemma 3 adds: in `float16`, sums stay within what that type holds.
    pub fn add_normed_clipped(&mut self, x: Array, norm: &RmsNorm) -> Result<()> {
        let sum = self.value()?;
        if sum.dtype() != DType::F16 {
            return self.add_normed(x, norm);
        }
        let bound = f64::from(LARGEST_F16);
        let wide = add(sum.astype(DType::F32)?, norm.forward(&x)?.astype(DType::F32)?)?;
        *self = Residual::new(wide.clip(Some(-bound), Some(bound))?.astype(DType::F16)?);
        Ok(())
    }

    /// The sum. It is made once, whoever asks for it again.
    pub fn value(&mut self) -> Result<Array> {
        self.sum = match self.added.take() {
            None => self.sum.clone(),
            Some(Added { x, norm: None }) => add(&self.sum, x)?,
            Some(Added { x, norm: Some((w, eps)) }) => rms_norm_add(&x, &w, &self.sum, eps)?,
        };
        Ok(self.sum.clone())
    }

    /// The sum, normalised.
    pub fn norm(&mut self, norm: &RmsNorm) -> Result<Array> {
        let Some(Added { x, norm: first }) = self.added.take() else {
            return norm.forward(&self.sum);
        };
        let (w, eps) = (norm.scale()?, norm.eps);
        let (y, sum) = match first {
            None => add_rms_norm(&x, &self.sum, &w, eps)?,
            Some((first_w, first_eps)) => {
                rms_norm_add_rms_norm(&x, &first_w, &self.sum, &w, [first_eps, eps])?
            }
        };
        self.sum = sum;
        Ok(y)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_compiled_norm_sees_its_numbers() {
        let norm = |eps: f64, offset| {
            let weight = Array::from_slice(&[0.5f32, 2.0], &[2]).unwrap();
            RmsNorm::new(Parameter::new(weight), eps).with_offset(offset).unwrap()
        };
        let x = Array::from_slice(&[1.0f32, -3.0], &[2]).unwrap();
        let forward = |(norm, x): &(RmsNorm, Array)| norm.forward(x);
        let compiled = wootz::compile_of(forward);
        for norm in [norm(1e-5, false), norm(0.5, false), norm(1e-5, true)] {
            let input = (norm, x.clone());
            let got = compiled.call(&input).unwrap().to_bytes().unwrap();
            assert_eq!(got, forward(&input).unwrap().to_bytes().unwrap());
        }
        assert_eq!(compiled.stats().traces, 3);
    }

    #[test]
    fn clipped_sums_stay_within_what_the_type_holds() {
        let sum = |dtype: DType| {
            let array = |values: &[f32]| {
                let array = Array::from_slice(values, &[values.len()]).unwrap();
                array.astype(dtype).unwrap()
            };
            let mut stream = Residual::new(array(&[60000.0, -60000.0, 1.0]));
            let norm = RmsNorm::new(Parameter::new(array(&[60000.0, 60000.0, 1.0])), 0.0);
            stream.add_normed_clipped(array(&[1.0, -1.0, 1.0]), &norm).unwrap();
            stream.value().unwrap().astype(DType::F32).unwrap().to_vec::<f32>().unwrap()
        };
        assert_eq!(sum(DType::F16), [65504.0, -65504.0, 2.0]);
        assert_eq!(sum(DType::F32), [120000.0, -120000.0, 2.0]);
    }
}
