//! What the harness cannot say: rows without a maximum, infinities, and reuse of memory.

use crate::testing::devices;
use crate::{Array, softmax};

#[test]
fn rows_of_minus_infinity_are_nan_and_others_are_not_touched() {
    let low = f32::NEG_INFINITY;
    for device in devices() {
        let x = [low, low, 0.0, low, f32::INFINITY, 0.0, f32::NAN, 1.0];
        let x = Array::from_slice_on(&x, &[4, 2], &device).unwrap();
        let y = softmax(&x, -1).unwrap().to_vec::<f32>().unwrap();
        assert!(y[0].is_nan() && y[1].is_nan(), "{device}: {y:?}");
        assert_eq!(y[2..4], [1.0, 0.0], "{device}");
        assert!(y[4..].iter().all(|value| value.is_nan()), "{device}: {y:?}");
    }
}
