//! Frequencies of rotary encodings.

/// `base^(-2i / dims)`, in double precision: a far position multiplies the error.
pub(crate) fn geometric(dims: usize, base: f64) -> Vec<f64> {
    let half = dims / 2;
    (0..half).map(|i| base.powf(-(i as f64) / half as f64)).collect()
}
