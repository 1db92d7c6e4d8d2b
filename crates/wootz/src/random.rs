//! Random numbers with MLX's keys and algorithms: the same key gives the same numbers as MLX, on
//! every device.
//!
//! Functions take a key, or without one the next key of this thread's own sequence, which
//! [`seed`] starts; inside of [`with_key`] the next that is split from its key.
//!
//! ```
//! use wootz::{DType, random};
//! let key = random::key(42)?;
//! let x = random::uniform(0.0, 1.0, &[3], DType::F32, Some(&key))?;
//! assert_eq!(x.to_vec::<f32>()?[0], 0.57414442);
//! # Ok::<(), wootz::Error>(())
//! ```

use std::cell::RefCell;

use crate::array::{Arg, Array, DType, Scalar, Shape, broadcast_shapes, normalize_axis};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::ops::{
    self, add, astype, divide, erfinv, expand_dims, log_c, log1p_c, maximum, minimum, multiply,
    negative, random_bits, reshape, subtract,
};

/// The key of a seed: `uint32` of shape `[2]`.
///
/// ```
/// assert_eq!(wootz::random::key(5)?.to_vec::<u32>()?, [0, 5]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn key(seed: u64) -> Result<Array> {
    Array::from_slice(&[(seed >> 32) as u32, seed as u32], &[2])
}

/// Starts this thread's sequence of keys anew. Each thread has its own, and one that is not seeded
/// starts from the time of day.
///
/// ```
/// use wootz::{DType, random};
/// random::seed(7);
/// let x = random::uniform(0.0, 1.0, &[2], DType::F32, None)?;
/// assert_eq!(x.to_vec::<f32>()?, [0.51476705, 0.07849121]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn seed(seed: u64) {
    NEXT_KEY.set(Some([(seed >> 32) as u32, seed as u32]));
}

thread_local! {
    /// The key that the next unkeyed call splits; none before the first.
    static NEXT_KEY: RefCell<Option<[u32; 2]>> = const { RefCell::new(None) };
    /// The key that it splits instead, inside of [`with_key`].
    static SCOPED_KEY: RefCell<Option<Array>> = const { RefCell::new(None) };
}

/// Runs `body` with `key` in place of this thread's sequence: draws without a key split it. So the key
/// of everything random in a function, such as its dropout, can be an argument of a
/// [compiled](crate::compile) function. Inside, a [`checkpoint`](crate::checkpoint) has a key of its own.
///
/// ```
/// use wootz::{Array, DType, compile, nn::{Dropout, Module}, random};
/// // As after `random::seed(7)`.
/// let draw = || random::uniform(0.0, 1.0, &[2], DType::F32, None);
/// let x = random::with_key(&random::key(7)?, draw)?;
/// assert_eq!(x.to_vec::<f32>()?, [0.51476705, 0.07849121]);
///
/// let dropout = Dropout::new(0.5)?;
/// let drop = compile(|x: &[Array]| {
///     random::with_key(&x[1], || Ok(vec![dropout.forward(&x[0])?]))
/// });
/// let x = Array::ones(&[64], DType::F32)?;
/// let once = |seed| drop.call(&[x.clone(), random::key(seed)?])?[0].to_vec::<f32>();
/// assert_eq!(once(1)?, once(1)?);
/// assert_ne!(once(1)?, once(2)?);
/// assert_eq!(drop.stats().traces, 1);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn with_key<T>(key: &Array, body: impl FnOnce() -> T) -> T {
    scoped(Some(key.clone()), body)
}

/// Runs `body` with this key for all draws without one; with none they take this thread's sequence.
pub(crate) fn scoped<T>(key: Option<Array>, body: impl FnOnce() -> T) -> T {
    /// Puts the key back, also if `body` panics.
    struct Back(Option<Array>);
    impl Drop for Back {
        fn drop(&mut self) {
            SCOPED_KEY.set(self.0.take());
        }
    }
    let _back = Back(SCOPED_KEY.replace(key));
    body()
}

/// The next key of [`with_key`], if this is inside.
pub(crate) fn next_scoped() -> Result<Option<Array>> {
    let Some(key) = SCOPED_KEY.with_borrow(Option::clone) else { return Ok(None) };
    let keys = split(&key, 2)?;
    SCOPED_KEY.set(Some(keys.index(0)?));
    Ok(Some(ops::to_device(&keys.index(1)?, &Device::default_device())?))
}

/// Where keys of draws without one come from.
pub(crate) struct Sequence {
    next: [u32; 2],
    scoped: Option<Array>,
}

/// Where this thread's sequence of keys is.
pub(crate) fn sequence() -> Sequence {
    Sequence { next: next_key(), scoped: SCOPED_KEY.with_borrow(Option::clone) }
}

fn next_key() -> [u32; 2] {
    NEXT_KEY.with_borrow_mut(|state| {
        *state.get_or_insert_with(|| {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            let now = now.map_or(0, |time| time.as_nanos() as u64);
            [(now >> 32) as u32, now as u32]
        })
    })
}

/// Runs `body` with the sequence of keys where it was at `start`; afterwards it is where it is now.
pub(crate) fn replaying<T>(start: &Sequence, body: impl FnOnce() -> T) -> T {
    /// Puts the sequence back, also if `body` panics.
    struct Back(Option<[u32; 2]>);
    impl Drop for Back {
        fn drop(&mut self) {
            NEXT_KEY.set(self.0);
        }
    }
    let _back = Back(NEXT_KEY.replace(Some(start.next)));
    scoped(start.scoped.clone(), body)
}

/// The given key, or the next of [`with_key`] or this thread's sequence.
fn key_or_next(given: Option<&Array>) -> Result<Array> {
    if let Some(key) = given {
        return Ok(key.clone());
    }
    if let Some(key) = next_scoped()? {
        return Ok(key);
    }
    if crate::eval::is_recording() {
        let reason = "random numbers without a key would be the same in every call; make a key an \
                      argument of the function, and draw with it or inside of random::with_key";
        return Err(Error::Transform { transform: "compile", reason: reason.into() });
    }
    let state = next_key();
    // The state is split on the CPU at once: it is four words, and the next call needs them.
    let state = Array::from_slice_on(&state, &[2], &Device::cpu())?;
    let [next0, next1, used0, used1] = split(&state, 2)?.to_vec::<u32>()?[..] else {
        return Err(Error::shape("split", "key", "four words", &[]));
    };
    NEXT_KEY.set(Some([next0, next1]));
    Array::from_slice(&[used0, used1], &[2])
}

/// `num` new keys, of shape `[num, 2]`.
///
/// ```
/// use wootz::random;
/// let keys = random::split(&random::key(42)?, 2)?;
/// assert_eq!(keys.to_vec::<u32>()?, [0x92fb20ea, 0xdb4c98db, 0x0f38d913, 0x0ff68959]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn split(key: &Array, num: usize) -> Result<Array> {
    bits(&[num, 2], DType::U32, Some(key))
}

/// Uniform random bits, as `uint8`, `uint16` or `uint32`.
///
/// ```
/// use wootz::{DType, random};
/// let x = random::bits(&[2, 3], DType::U8, Some(&random::key(0)?))?;
/// assert_eq!(x.shape(), [2, 3]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn bits(shape: &[usize], dtype: DType, key: Option<&Array>) -> Result<Array> {
    let key = key_or_next(key)?;
    if key.dtype() != DType::U32 {
        return Err(Error::dtype("bits", "key", DType::U32, key.dtype()));
    }
    if key.shape() != [2] {
        return Err(Error::shape("bits", "key", "[2]", key.shape()));
    }
    random_bits(shape, dtype, &key)
}

/// Numbers spread evenly over `low..high`, which are numbers or arrays that broadcast to `shape`.
/// `dtype` is a float of at most 32 bits.
///
/// ```
/// use wootz::{DType, random};
/// let x = random::uniform(-1.0, 1.0, &[4], DType::F32, Some(&random::key(0)?))?;
/// assert!(x.to_vec::<f32>()?.iter().all(|x| (-1.0..1.0).contains(x)));
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn uniform(
    low: impl Into<Arg>,
    high: impl Into<Arg>,
    shape: &[usize],
    dtype: DType,
    key: Option<&Array>,
) -> Result<Array> {
    // The largest number below 1.
    let upper = match dtype {
        DType::F32 => 1.0 - f32::EPSILON as f64 / 2.0,
        DType::F16 => 1.0 - half::f16::EPSILON.to_f64() / 2.0,
        DType::BF16 => 1.0 - half::bf16::EPSILON.to_f64() / 2.0,
        _ => return Err(Error::dtype("uniform", "dtype", "float32, float16 or bfloat16", dtype)),
    };
    let bits = bits(shape, DType::U32, key)?;
    let device = bits.device().clone();
    let [low, high] = [low.into(), high.into()].map(|bound| in_dtype(bound, dtype, &device));
    let (low, high) = (low?, high?);
    check_shape("uniform", shape, &broadcast_shapes("uniform", low.shape(), high.shape())?)?;
    // Exact, and what MLX's division by 2^32 gives.
    let unit = multiply(astype(&bits, DType::F32)?, 0.5f64.powi(32))?;
    let unit = astype(&minimum(unit, upper)?, dtype)?;
    add(multiply(subtract(&high, &low)?, unit)?, &low)
}

/// Normally distributed numbers with mean `loc` and standard deviation `scale`.
///
/// ```
/// use wootz::{DType, random};
/// let x = random::normal(&[2], DType::F32, 0.0, 1.0, Some(&random::key(0)?))?;
/// assert_eq!(x.shape(), [2]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn normal(
    shape: &[usize],
    dtype: DType,
    loc: impl Into<Arg>,
    scale: impl Into<Arg>,
    key: Option<&Array>,
) -> Result<Array> {
    if dtype.is_complex() {
        // Both parts with half of the variance.
        let parts = normal(&[shape, &[2]].concat(), DType::F32, 0.0, 0.5f64.sqrt(), key)?;
        let samples = ops::reshape(&ops::view(&parts, dtype)?, shape)?;
        let samples = add(multiply(samples, scale)?, loc)?;
        check_shape("normal", shape, samples.shape())?;
        return Ok(samples);
    }
    expect_float("normal", dtype)?;
    let samples = astype(&erfinv(symmetric(shape, key)?)?, dtype)?;
    let device = samples.device().clone();
    let (loc, scale) = (loc.into(), scale.into());
    let mut factor = in_dtype(Arg::Scalar(Scalar::Float(2f64.sqrt())), dtype, &device)?;
    if !is_number(&scale, 1.0) {
        factor = multiply(factor, in_dtype(scale, dtype, &device)?)?;
    }
    let samples = multiply(factor, samples)?;
    let samples = match is_number(&loc, 0.0) {
        true => samples,
        false => add(in_dtype(loc, dtype, &device)?, samples)?,
    };
    check_shape("normal", shape, samples.shape())?;
    Ok(samples)
}

/// True with probability `p`, a number or an array that broadcasts to `shape`.
///
/// ```
/// use wootz::random;
/// let x = random::bernoulli(0.3, &[4], Some(&random::key(42)?))?;
/// assert_eq!(x.dtype(), wootz::DType::Bool);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn bernoulli(p: impl Into<Arg>, shape: &[usize], key: Option<&Array>) -> Result<Array> {
    let bits = bits(shape, DType::U32, key)?;
    let p = match p.into() {
        Arg::Array(p) if !p.dtype().is_float() => {
            return Err(Error::dtype("bernoulli", "p", "a floating-point type", p.dtype()));
        }
        Arg::Array(p) => astype(&p, DType::F32)?,
        Arg::Scalar(p) => in_dtype(Arg::Scalar(p), DType::F32, bits.device())?,
    };
    check_shape("bernoulli", shape, p.shape())?;
    // The first float above the largest word, so that 1 is always true.
    let threshold = multiply(p, f32::from_bits(0x4f80_0001) as f64)?;
    ops::less(astype(&bits, DType::F32)?, threshold)
}

/// Integers of `low..high`, which are numbers or arrays that broadcast to `shape`.
///
/// ```
/// use wootz::{DType, random};
/// let x = random::randint(0, 100, &[4], DType::I32, Some(&random::key(42)?))?;
/// assert_eq!(x.to_vec::<i32>()?, [57, 85, 5, 6]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn randint(
    low: impl Into<Arg>,
    high: impl Into<Arg>,
    shape: &[usize],
    dtype: DType,
    key: Option<&Array>,
) -> Result<Array> {
    if dtype.is_float() {
        return Err(Error::dtype("randint", "dtype", "an integer type or bool", dtype));
    }
    let (low, high) = (low.into(), high.into());
    let numbers = uniform(low.clone(), high.clone(), shape, DType::F32, key)?;
    let integers = astype(&crate::ops::floor(&numbers)?, dtype)?;
    if dtype == DType::Bool {
        return Ok(integers);
    }
    // Rounding may have reached the upper bound.
    let device = numbers.device();
    let last = subtract(in_dtype(high, dtype, device)?, 1)?;
    maximum(minimum(integers, last)?, in_dtype(low, dtype, device)?)
}

/// How many samples [`categorical`] draws.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Samples<'a> {
    /// One for each row of logits.
    One,
    /// So many for each row, along a new last axis.
    Many(usize),
    /// The result has this shape; the shape of the rows broadcasts to it.
    Shape(&'a [usize]),
}

/// Indices (`uint32`) drawn with the probabilities `softmax(logits)` along `axis`.
///
/// ```
/// use wootz::{Array, random, random::Samples};
/// let logits = Array::new([0.0f32, 100.0, 0.0])?;
/// let x = random::categorical(&logits, -1, Samples::Many(3), Some(&random::key(0)?))?;
/// assert_eq!(x.to_vec::<u32>()?, [1, 1, 1]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn categorical(
    logits: &Array,
    axis: i64,
    samples: Samples<'_>,
    key: Option<&Array>,
) -> Result<Array> {
    let axis = normalize_axis("categorical", axis, logits.rank())?;
    let mut shape = Shape::from_slice(logits.shape());
    let length = shape.remove(axis);
    let logits = match samples {
        Samples::One => logits.clone(),
        Samples::Many(count) => {
            shape.push(count);
            expand_dims(logits, -1)?
        }
        Samples::Shape(wanted) => {
            check_shape("categorical", wanted, &shape)?;
            shape = Shape::from_slice(wanted);
            logits.clone()
        }
    };
    if length == 0 || shape.contains(&0) {
        return Err(Error::NoIdentity {
            op: "categorical",
            shape: format!("{:?}", logits.shape()),
        });
    }
    if logits.size() == length && !shape.is_empty() {
        return by_inverse_cdf(&reshape(&logits, &[length])?, &shape, key);
    }
    // The largest of logits plus Gumbel noise has the wanted distribution.
    let place = axis + shape.len() + 1 - logits.rank();
    shape.insert(place, length);
    let noise = gumbel(&shape, DType::F32, key)?;
    ops::argmax(&add(noise, &logits)?, place as i64, false)
}

/// Where uniform numbers fall in the running sum of the probabilities.
fn by_inverse_cdf(logits: &Array, shape: &[usize], key: Option<&Array>) -> Result<Array> {
    let logits = astype(logits, DType::F32)?;
    let weights = ops::exp(subtract(&logits, logits.max(())?)?)?;
    let sums = ops::cumsum(&weights, 0, false, false)?;
    let total = weights.sum(())?;
    let numbers = multiply(uniform(0.0, 1.0, shape, DType::F32, key)?, total)?;
    let places = ops::searchsorted(&sums, &numbers, ops::Side::Right)?;
    subtract(places, 1)
}

/// Numbers with the standard Gumbel distribution.
///
/// ```
/// use wootz::{DType, random};
/// assert_eq!(random::gumbel(&[2], DType::F32, Some(&random::key(0)?))?.shape(), [2]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn gumbel(shape: &[usize], dtype: DType, key: Option<&Array>) -> Result<Array> {
    let numbers = uniform(0.0, 1.0, shape, dtype, key)?;
    negative(log_c(negative(log_c(numbers)?)?)?)
}

/// The numbers `0..n` in random order, as `uint32`.
///
/// ```
/// use wootz::random;
/// let x = random::permutation(10, Some(&random::key(42)?))?;
/// assert_eq!(x.to_vec::<u32>()?, [5, 2, 7, 1, 6, 8, 0, 9, 4, 3]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn permutation(n: usize, key: Option<&Array>) -> Result<Array> {
    ops::argsort(&bits(&[n], DType::U32, key)?, 0)
}

/// The slices of `x` along `axis` in random order.
///
/// ```
/// use wootz::{Array, random};
/// let x = random::shuffle(&Array::new([1.5f32, 2.5, 3.5])?, 0, Some(&random::key(42)?))?;
/// assert_eq!(x.to_vec::<f32>()?, [3.5, 2.5, 1.5]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn shuffle(x: &Array, axis: i64, key: Option<&Array>) -> Result<Array> {
    let axis = normalize_axis("permutation", axis, x.rank())?;
    let order = permutation(x.shape()[axis], key)?;
    ops::take(x, &order, Some(axis as i64))
}

/// Numbers with the Laplace distribution around `loc`.
///
/// ```
/// use wootz::{DType, random};
/// let x = random::laplace(&[2], DType::F32, 0.0, 1.0, Some(&random::key(0)?))?;
/// assert_eq!(x.shape(), [2]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn laplace(
    shape: &[usize],
    dtype: DType,
    loc: f64,
    scale: f64,
    key: Option<&Array>,
) -> Result<Array> {
    expect_float("laplace", dtype)?;
    let numbers = symmetric(shape, key)?;
    let samples = multiply(ops::sign(&numbers)?, log1p_c(negative(ops::abs(&numbers)?)?)?)?;
    let mut samples = astype(&samples, dtype)?;
    if scale != 1.0 {
        samples = multiply(samples, scale)?;
    }
    if loc != 0.0 {
        samples = add(samples, loc)?;
    }
    Ok(samples)
}

/// Normally distributed numbers of which only those within `lower..=upper` are drawn; the bounds
/// are numbers or arrays that broadcast to `shape`.
///
/// ```
/// use wootz::{DType, random};
/// let x = random::truncated_normal(-1.0, 1.0, &[4], DType::F32, Some(&random::key(0)?))?;
/// assert!(x.to_vec::<f32>()?.iter().all(|x| x.abs() <= 1.0));
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn truncated_normal(
    lower: impl Into<Arg>,
    upper: impl Into<Arg>,
    shape: &[usize],
    dtype: DType,
    key: Option<&Array>,
) -> Result<Array> {
    expect_float("truncated_normal", dtype)?;
    let device = key.map_or_else(Device::default_device, |key| key.device().clone());
    let root = in_dtype(Arg::Scalar(Scalar::Float(2f64.sqrt())), dtype, &device)?;
    let [(lower, low), (upper, high)] = [lower.into(), upper.into()].map(|bound| {
        let number = if let Arg::Scalar(number) = &bound { Some(number.as_f64()) } else { None };
        let bound = in_dtype(bound, dtype, &device);
        let part = match (number, &bound) {
            (None, Ok(bound)) => divide(bound, &root).and_then(ops::erf),
            // Of a number, the error function as MLX has it: every sample depends on its bits.
            (number, _) => {
                let rounded = |x: f32| round_to(x, dtype);
                let number = rounded(number.unwrap_or(f64::NAN) as f32);
                let part = erf_of_mlx(rounded(number / rounded(std::f32::consts::SQRT_2)));
                in_dtype(Arg::Scalar(Scalar::Float(part as f64)), dtype, &device)
            }
        };
        (bound, part)
    });
    let (lower, upper) = (lower?, upper?);
    let numbers = uniform(low?, high?, shape, dtype, key)?;
    maximum(minimum(&upper, multiply(&root, erfinv(numbers)?)?)?, &lower)
}

/// Normally distributed vectors, in `float32`: `mean` has shape `[.., n]` and the covariance `cov`, which is
/// positive semi-definite, `[.., n, n]`. The axes before are broadcast with `shape`, and are the shape of
/// the result before its last axis.
///
/// ```
/// use wootz::{Array, random};
/// let (mean, cov) = (Array::new([1.0f32, 2.0])?, Array::new([[2.0f32, 0.5], [0.5, 1.0]])?);
/// // mx.random.multivariate_normal(mean, cov, [3], key=mx.random.key(0))
/// let x = random::multivariate_normal(&mean, &cov, &[3], Some(&random::key(0)?))?;
/// assert_eq!(x.shape(), [3, 2]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn multivariate_normal(
    mean: &Array,
    cov: &Array,
    shape: &[usize],
    key: Option<&Array>,
) -> Result<Array> {
    const OP: &str = "multivariate_normal";
    let [before_mean @ .., n] = mean.shape() else {
        return Err(Error::shape(OP, "mean", "one of at least 1 axis", mean.shape()));
    };
    let before_cov = match cov.shape() {
        [before @ .., rows, columns] if rows == n && columns == n => before,
        _ => {
            let expected = format!("[.., {n}, {n}], as mean has {n} elements");
            return Err(Error::shape(OP, "cov", expected, cov.shape()));
        }
    };
    let mut full = broadcast_shapes(OP, before_mean, before_cov)?;
    full = broadcast_shapes(OP, &full, shape)?;
    full.push(*n);
    // The symmetric square root of the covariance.
    let (u, s, vt) = crate::linalg::svd(&astype(cov, DType::F32)?)?;
    let scaled = multiply(u, expand_dims(&ops::sqrt(s)?, -2)?)?;
    let root = ops::matmul(&scaled, &vt)?;
    let standard = normal(&full, DType::F32, 0.0, 1.0, key)?;
    let rows = ops::matmul(&expand_dims(&standard, -2)?, &root)?;
    add(astype(mean, DType::F32)?, ops::squeeze(&rows, -2)?)
}

/// Single-precision numbers between -1 and 1, both excluded.
fn symmetric(shape: &[usize], key: Option<&Array>) -> Result<Array> {
    uniform(-(1.0 - f32::EPSILON as f64 / 2.0), 1.0, shape, DType::F32, key)
}

/// The nearest number that `dtype` holds.
fn round_to(x: f32, dtype: DType) -> f32 {
    match dtype {
        DType::F16 => half::f16::from_f32(x).to_f32(),
        DType::BF16 => half::bf16::from_f32(x).to_f32(),
        _ => x,
    }
}

/// MLX's error function on a CPU, which is off by up to 1e-7 (Abramowitz and Stegun 7.1.26).
fn erf_of_mlx(x: f32) -> f32 {
    let horner = |x: f32, c: &[f32]| c.iter().fold(0.0, |y: f32, &c| y.mul_add(x, c));
    let t = 1.0 / 0.3275911f32.mul_add(x.abs(), 1.0);
    let r = horner(t, &[1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592]);
    // exp(-x²) as 2^whole · 2^part.
    let power = -x * x * 1.442695;
    let whole = (power + 0.5).floor();
    let c = [
        1.535336188319500e-4,
        1.339887440266574e-3,
        9.618437357674640e-3,
        5.550332471162809e-2,
        2.402264791363012e-1,
        6.931472028550421e-1,
        1.0,
    ];
    let exponent = (whole as i32).max(-127) + 127;
    let exp = f32::from_bits((exponent << 23) as u32) * horner(power - whole, &c);
    let exp = if -x * x < -88.0 { 0.0 } else { exp };
    let y = (-exp * t).mul_add(r, 1.0);
    if x > 0.0 { y } else { -y }
}

fn expect_float(op: &'static str, dtype: DType) -> Result<()> {
    match dtype.is_float() {
        true => Ok(()),
        false => Err(Error::dtype(op, "dtype", "a floating-point type", dtype)),
    }
}

/// A number or array as an array of this dtype; numbers are put on the device.
fn in_dtype(value: Arg, dtype: DType, device: &Device) -> Result<Array> {
    match value {
        Arg::Array(array) => astype(&array, dtype),
        Arg::Scalar(value) => ops::constant(value, dtype, device),
    }
}

fn is_number(value: &Arg, number: f64) -> bool {
    matches!(value, Arg::Scalar(value) if value.as_f64() == number)
}

/// Checks that `inner` broadcasts to `shape`.
fn check_shape(op: &'static str, shape: &[usize], inner: &[usize]) -> Result<()> {
    match broadcast_shapes(op, shape, inner) {
        Ok(joined) if joined[..] == *shape => Ok(()),
        _ => Err(Error::shape(op, "shape", format!("one that {inner:?} broadcasts to"), shape)),
    }
}

#[cfg(test)]
mod recorded;
#[cfg(test)]
mod tests;
