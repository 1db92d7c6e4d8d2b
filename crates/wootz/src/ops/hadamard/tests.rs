//! The transform against its matrix, and what it refuses.

use crate::testing::devices;
use crate::{Array, DType, Error, hadamard_transform};

/// The matrix by its definition: `(-1)` to the number of bits that both indices have.
fn sylvester(row: usize, column: usize) -> f64 {
    if (row & column).count_ones().is_multiple_of(2) { 1.0 } else { -1.0 }
}

#[test]
fn powers_of_two_are_the_products_with_sylvesters_matrix() {
    for device in devices() {
        for length in [1, 2, 64, 4096, 8192] {
            let x: Vec<f32> =
                (0..length).map(|i| ((i * 37 + 11) % 101) as f32 / 50.0 - 1.0).collect();
            let y = Array::from_slice_on(&x, &[1, length], &device).unwrap();
            let y = hadamard_transform(&y, 1.0).unwrap().to_vec::<f32>().unwrap();
            let most = length as f64;
            for row in (0..length).step_by(length.div_ceil(97)) {
                let exact: f64 = (0..length).map(|i| sylvester(row, i) * f64::from(x[i])).sum();
                let error = (f64::from(y[row]) - exact).abs();
                assert!(error <= 1e-6 * most, "{device} {length} {row}: {} {exact}", y[row]);
            }
        }
    }
}

#[test]
fn every_order_is_orthonormal() {
    for device in devices() {
        for length in [12, 20, 28, 40, 96] {
            let unit: Vec<f32> =
                (0..length * length).map(|i| f32::from(i % (length + 1) == 0)).collect();
            let unit = Array::from_slice_on(&unit, &[length, length], &device).unwrap();
            let h = hadamard_transform(&unit, None).unwrap();
            let product = crate::matmul(&h, &h.transpose().unwrap()).unwrap();
            let error = crate::abs(crate::subtract(&product, &unit).unwrap()).unwrap();
            let error = error.max(()).unwrap().item::<f32>().unwrap();
            assert!(error < 1e-6, "{device} {length}: {error}");
        }
    }
}

#[test]
fn long_rows_are_the_products_with_both_matrices() {
    for device in devices() {
        for (order, length) in [(12, 6144), (20, 5120), (20, 20 << 13), (28, 7168)] {
            // The small matrix is the transform of the unit vectors of its order, column by column.
            let unit: Vec<f32> =
                (0..order * order).map(|i| f32::from(i % (order + 1) == 0)).collect();
            let unit = Array::from_slice(&unit, &[order, order]).unwrap();
            let small = hadamard_transform(&unit, 1.0).unwrap().to_vec::<f32>().unwrap();
            let power = length / order;
            let x: Vec<f32> =
                (0..length).map(|i| ((i * 37 + 11) % 101) as f32 / 50.0 - 1.0).collect();
            let y = Array::from_slice_on(&x, &[1, length], &device).unwrap();
            let y = hadamard_transform(&y, 1.0).unwrap().to_vec::<f32>().unwrap();
            for row in (0..length).step_by(length.div_ceil(97)) {
                let entry = |i: usize| {
                    let across = small[i / power * order + row / power];
                    sylvester(row % power, i % power) * f64::from(across)
                };
                let exact: f64 = (0..length).map(|i| entry(i) * f64::from(x[i])).sum();
                let error = (f64::from(y[row]) - exact).abs();
                let most = length as f64;
                assert!(error <= 1e-6 * most, "{device} {length} {row}: {} {exact}", y[row]);
            }
        }
    }
}

#[test]
fn types_follow_mlx_and_other_lengths_are_refused() {
    let y = hadamard_transform(&Array::new([1, 2]).unwrap(), 1.0).unwrap();
    assert_eq!((y.dtype(), y.to_vec::<f32>().unwrap()), (DType::F32, vec![3.0, -1.0]));
    let scalar = hadamard_transform(&Array::new(3.0f32).unwrap(), None).unwrap();
    assert_eq!((scalar.rank(), scalar.item::<f32>().unwrap()), (0, 3.0));
    for length in [3, 6, 11, 36] {
        let x = Array::zeros(&[2, length], DType::F32).unwrap();
        let error = hadamard_transform(&x, None).unwrap_err();
        assert!(matches!(error, Error::Shape { .. }), "{error}");
        assert!(error.to_string().contains(&length.to_string()), "{error}");
    }
}
