//! Layers that normalise.

use super::Module;
use super::linear::filled;
use crate::array::{Array, DType};
use crate::error::{Error, Result};
use crate::fast;
use crate::ops::*;
use crate::tree::{Mode, Parameter, State};

/// Root-mean-square normalisation over the last axis.
///
/// ```
/// use wootz::{Array, nn::{Module, RMSNorm}};
/// let y = RMSNorm::new(2, 1e-5)?.forward(&Array::new([[3.0f32, 4.0]])?)?;
/// assert!((y.to_vec::<f32>()?[1] - 1.1314).abs() < 1e-3);
/// # Ok::<(), wootz::Error>(())
/// ```
#[derive(Clone, Debug, wootz_macros::Tree)]
pub struct RMSNorm {
    /// `[dims]`.
    pub weight: Parameter,
    /// Added to the mean of squares.
    pub eps: f64,
}

impl RMSNorm {
    /// MLX's default `eps` is 1e-5.
    pub fn new(dims: usize, eps: f64) -> Result<RMSNorm> {
        positive("RMSNorm", eps)?;
        Ok(RMSNorm { weight: filled(&[dims], 1)?, eps })
    }
}

impl Module for RMSNorm {
    fn forward(&self, x: &Array) -> Result<Array> {
        rms_norm(x, Some(&self.weight), self.eps as f32)
    }
}

/// Normalisation over the last axis to mean 0 and variance 1, then scale and shift.
///
/// ```
/// use wootz::{Array, nn::{LayerNorm, Module}};
/// let y = LayerNorm::new(2)?.forward(&Array::new([[1.0f32, 3.0]])?)?;
/// assert!((y.to_vec::<f32>()?[1] - 1.0).abs() < 1e-4);
/// # Ok::<(), wootz::Error>(())
/// ```
#[derive(Clone, Debug, wootz_macros::Tree)]
pub struct LayerNorm {
    /// `[dims]`.
    pub weight: Option<Parameter>,
    /// `[dims]`.
    pub bias: Option<Parameter>,
    /// Added to the variance.
    pub eps: f64,
}

impl LayerNorm {
    /// MLX's defaults: `eps` 1e-5, with weight and bias.
    pub fn new(dims: usize) -> Result<LayerNorm> {
        LayerNorm::with(dims, 1e-5, true, true)
    }

    /// Without weight and bias if not `affine`, without bias if not `bias`.
    pub fn with(dims: usize, eps: f64, affine: bool, bias: bool) -> Result<LayerNorm> {
        positive("LayerNorm", eps)?;
        let (weight, bias) = scale_and_shift(dims, affine, affine && bias)?;
        Ok(LayerNorm { weight, bias, eps })
    }
}

impl Module for LayerNorm {
    fn forward(&self, x: &Array) -> Result<Array> {
        fast::layer_norm(x, self.weight.as_deref(), self.bias.as_deref(), self.eps as f32)
    }
}

/// Normalisation over all axes but the first and the last, for each feature of each sample.
///
/// ```
/// use wootz::{Array, nn::{InstanceNorm, Module}};
/// let x = Array::new([[[1.0f32, 5.0], [3.0, 5.0]]])?;
/// let y = InstanceNorm::new(2, 1e-5, false)?.forward(&x)?.to_vec::<f32>()?;
/// assert!((y[0] + 1.0).abs() < 1e-4 && y[1] == 0.0);
/// # Ok::<(), wootz::Error>(())
/// ```
#[derive(Clone, Debug, wootz_macros::Tree)]
pub struct InstanceNorm {
    /// `[dims]`.
    pub weight: Option<Parameter>,
    /// `[dims]`.
    pub bias: Option<Parameter>,
    /// Added to the variance.
    pub eps: f64,
}

impl InstanceNorm {
    /// MLX's defaults: `eps` 1e-5, not `affine`.
    pub fn new(dims: usize, eps: f64, affine: bool) -> Result<InstanceNorm> {
        positive("InstanceNorm", eps)?;
        let (weight, bias) = scale_and_shift(dims, affine, affine)?;
        Ok(InstanceNorm { weight, bias, eps })
    }
}

impl Module for InstanceNorm {
    fn forward(&self, x: &Array) -> Result<Array> {
        if x.rank() < 3 {
            return Err(Error::shape("InstanceNorm", "x", "at least three axes", x.shape()));
        }
        let channels_first = moveaxis(x, -1, 1)?;
        let shape = channels_first.shape().to_vec();
        let spatial = shape[2..].iter().product();
        let y = channels_first.reshape(&[shape[0], shape[1], spatial])?;
        let y = fast::layer_norm(&y, None, None, self.eps as f32)?;
        let y = moveaxis(&y.reshape(&shape)?, 1, -1)?;
        scaled(y, &self.weight, &self.bias)
    }
}

/// Normalisation of groups of features over all axes but the first.
///
/// ```
/// use wootz::{Array, nn::{GroupNorm, Module}};
/// let x = Array::new([[[1.0f32, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]]])?;
/// let y = GroupNorm::new(2, 4)?.forward(&x)?;
/// assert_eq!(y.shape(), [1, 2, 4]);
/// # Ok::<(), wootz::Error>(())
/// ```
#[derive(Clone, Debug, wootz_macros::Tree)]
pub struct GroupNorm {
    /// `[dims]`.
    pub weight: Option<Parameter>,
    /// `[dims]`.
    pub bias: Option<Parameter>,
    num_groups: usize,
    dims: usize,
    eps: f64,
    pytorch_compatible: bool,
}

impl GroupNorm {
    /// MLX's defaults: `eps` 1e-5, with weight and bias, MLX's grouping.
    pub fn new(num_groups: usize, dims: usize) -> Result<GroupNorm> {
        GroupNorm::with(num_groups, dims, 1e-5, true, false)
    }

    /// With PyTorch's grouping, neighbouring features form a group; with MLX's, every
    /// `num_groups`-th.
    pub fn with(
        num_groups: usize,
        dims: usize,
        eps: f64,
        affine: bool,
        pytorch_compatible: bool,
    ) -> Result<GroupNorm> {
        positive("GroupNorm", eps)?;
        if num_groups == 0 || dims == 0 || !dims.is_multiple_of(num_groups) {
            let expected = format!("a divisor of the {dims} features");
            return Err(Error::argument("GroupNorm", "num_groups", expected, num_groups));
        }
        let (weight, bias) = scale_and_shift(dims, affine, affine)?;
        Ok(GroupNorm { weight, bias, num_groups, dims, eps, pytorch_compatible })
    }
}

impl Module for GroupNorm {
    fn forward(&self, x: &Array) -> Result<Array> {
        if x.rank() < 2 || x.shape()[x.rank() - 1] != self.dims {
            let expected = format!("[batch, …, {}]", self.dims);
            return Err(Error::shape("GroupNorm", "x", expected, x.shape()));
        }
        let (weight, bias) = (self.weight.as_deref(), self.bias.as_deref());
        let neighbours = self.pytorch_compatible;
        group_norm(x, self.num_groups, weight, bias, self.eps as f32, neighbours)
    }
}

/// Normalisation of each feature over the batch, or by the running mean and variance when not
/// training.
///
/// ```
/// use wootz::{Array, nn::{BatchNorm, Module}};
/// let mut layer = BatchNorm::new(1)?;
/// let y = layer.forward(&Array::new([[1.0f32], [3.0]])?)?;
/// assert!((y.to_vec::<f32>()?[1] - 1.0).abs() < 1e-4);
/// layer.eval()?;
/// let running = layer.running_mean.as_ref().map(|mean| mean.get().item::<f32>());
/// assert_eq!(running.transpose()?, Some(0.2));
/// # Ok::<(), wootz::Error>(())
/// ```
#[derive(Clone, Debug, wootz_macros::Tree)]
pub struct BatchNorm {
    /// `[num_features]`.
    pub weight: Option<Parameter>,
    /// `[num_features]`.
    pub bias: Option<Parameter>,
    /// `[num_features]`, changed by every forward pass of training.
    pub running_mean: Option<State>,
    /// `[num_features]`, changed by every forward pass of training.
    pub running_var: Option<State>,
    eps: f64,
    momentum: f64,
    mode: Mode,
}

impl BatchNorm {
    /// MLX's defaults: `eps` 1e-5, momentum 0.1, with weight and bias, with running statistics.
    pub fn new(num_features: usize) -> Result<BatchNorm> {
        BatchNorm::with(num_features, 1e-5, 0.1, true, true)
    }

    /// Without running statistics the batch's own are used for inference, too.
    pub fn with(
        num_features: usize,
        eps: f64,
        momentum: f64,
        affine: bool,
        track_running_stats: bool,
    ) -> Result<BatchNorm> {
        positive("BatchNorm", eps)?;
        let (weight, bias) = scale_and_shift(num_features, affine, affine)?;
        let state = |value: i32| match track_running_stats {
            true => Ok(Some(State::new(full(&[num_features], value, DType::F32)?))),
            false => Ok::<_, Error>(None),
        };
        Ok(BatchNorm {
            weight,
            bias,
            running_mean: state(0)?,
            running_var: state(1)?,
            eps,
            momentum,
            mode: Mode::default(),
        })
    }
}

impl Module for BatchNorm {
    fn forward(&self, x: &Array) -> Result<Array> {
        if !(2..=4).contains(&x.rank()) {
            return Err(Error::shape("BatchNorm", "x", "two to four axes", x.shape()));
        }
        let axes: Vec<i64> = (0..x.rank() as i64 - 1).collect();
        let training = self.mode.is_training();
        if training && x.shape()[..x.rank() - 1].iter().product::<usize>() == 1 {
            let expected = "more than one value for each feature";
            return Err(Error::shape("BatchNorm", "x", expected, x.shape()));
        }
        let batch = || Ok::<_, Error>((mean(x, &axes[..], false)?, var(x, &axes[..], false, 0)?));
        let (mean, variance) = match (&self.running_mean, &self.running_var) {
            (Some(running_mean), Some(running_var)) if training => {
                let (mean, variance) = batch()?;
                self.follow(running_mean, &mean)?;
                self.follow(running_var, &var(x, &axes[..], false, 1)?)?;
                (mean, variance)
            }
            (Some(running_mean), Some(running_var)) => (running_mean.get(), running_var.get()),
            _ => batch()?,
        };
        scaled(normalized(x, &mean, &variance, self.eps)?, &self.weight, &self.bias)
    }
}

impl BatchNorm {
    /// Moves a running statistic towards that of a batch.
    fn follow(&self, running: &State, batch: &Array) -> Result<()> {
        let kept = multiply(1.0 - self.momentum, running.get())?;
        // Statistics of this batch are no reason for gradients of the next one.
        running.set(stop_gradient(add(kept, multiply(self.momentum, batch)?)?)?)
    }
}

fn normalized(x: &Array, mean: &Array, variance: &Array, eps: f64) -> Result<Array> {
    multiply(subtract(x, mean)?, rsqrt(add(variance, eps)?)?)
}

fn scaled(x: Array, weight: &Option<Parameter>, bias: &Option<Parameter>) -> Result<Array> {
    match (weight, bias) {
        (Some(weight), Some(bias)) => add(multiply(weight, x)?, bias),
        (Some(weight), None) => multiply(weight, x),
        (None, Some(bias)) => add(x, bias),
        (None, None) => Ok(x),
    }
}

fn scale_and_shift(
    dims: usize,
    weight: bool,
    bias: bool,
) -> Result<(Option<Parameter>, Option<Parameter>)> {
    let weight = weight.then(|| filled(&[dims], 1)).transpose()?;
    Ok((weight, bias.then(|| filled(&[dims], 0)).transpose()?))
}

fn positive(layer: &'static str, eps: f64) -> Result<()> {
    if eps > 0.0 { Ok(()) } else { Err(Error::argument(layer, "eps", "a positive number", eps)) }
}
