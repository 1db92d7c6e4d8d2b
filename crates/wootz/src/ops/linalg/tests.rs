//! What MLX refuses, what it gives for matrices of special shapes, and values it was seen to give.

use super::*;
use crate::array::{Array, DType};
use crate::error::Result;
use crate::ops::{astype, matmul, multiply, subtract};

fn array<const M: usize, const N: usize>(values: [[f32; N]; M]) -> Array {
    Array::new(values).unwrap()
}

fn assert_near(x: &Array, y: &[f32]) {
    let x = x.to_vec::<f32>().unwrap();
    assert_eq!(x.len(), y.len());
    assert!(x.iter().zip(y).all(|(x, y)| (x - y).abs() < 2e-6), "{x:?} and {y:?}");
}

/// Everything that takes one square matrix.
fn square_functions() -> Vec<(&'static str, fn(&Array) -> Result<Array>)> {
    vec![
        ("linalg.inv", inv),
        ("linalg.tri_inv", |a| tri_inv(a, false)),
        ("linalg.cholesky", |a| cholesky(a, false)),
        ("linalg.tri_inv", |a| cholesky_inv(a, true)),
        ("linalg.eigh", |a| Ok(eigh(a, Triangle::Lower)?.0)),
        ("linalg.eigvalsh", |a| eigvalsh(a, Triangle::Upper)),
    ]
}

/// Everything that takes one matrix of any shape.
fn functions() -> Vec<(&'static str, fn(&Array) -> Result<Array>)> {
    vec![
        ("linalg.pinv", pinv),
        ("linalg.qr", |a| Ok(qr(a)?.0)),
        ("linalg.svd", |a| Ok(svd(a)?.0)),
        ("linalg.svdvals", svdvals),
        ("linalg.lu", |a| Ok(lu(a)?.1)),
        ("linalg.lu", |a| Ok(lu_factor(a)?.0)),
    ]
}

#[test]
fn wrong_ranks_shapes_and_dtypes_are_errors_that_name_the_function() -> Result<()> {
    let vector = Array::new([1.0f32, 2.0])?;
    let wide = Array::zeros(&[2, 3], DType::F32)?;
    for (name, function) in square_functions().into_iter().chain(functions()) {
        let mut refused = vec![vector.clone()];
        for dtype in [DType::I32, DType::Bool, DType::F16, DType::BF16] {
            refused.push(astype(&array([[1.0, 0.0], [0.0, 1.0]]), dtype)?);
        }
        for a in refused {
            let error = function(&a).err().unwrap().to_string();
            assert!(error.starts_with(&format!("[{name}] a: ")), "{error}");
        }
    }
    for (name, function) in square_functions() {
        let error = function(&wide).err().unwrap().to_string();
        assert!(error.contains(name) && error.contains("square"), "{error}");
    }
    assert!(det(&wide).is_err() && det(&vector).is_err());
    assert!(slogdet(&wide).is_err() && slogdet(&vector).is_err());
    Ok(())
}

#[test]
fn systems_that_do_not_fit_are_errors() -> Result<()> {
    let a = array([[2.0, 0.0], [1.0, 1.0]]);
    for function in [solve, |a: &Array, b: &Array| solve_triangular(a, b, false)] {
        assert!(function(&a, &Array::new([1.0f32, 2.0, 3.0])?).is_err());
        assert!(function(&a, &Array::zeros(&[3, 2], DType::F32)?).is_err());
        assert!(function(&Array::zeros(&[2, 3], DType::F32)?, &a).is_err());
        assert!(function(&astype(&a, DType::I32)?, &a).is_err());
        assert!(function(&a, &Array::scalar(1.0, DType::F32)?).is_err());
        // Integers on the right are converted.
        assert_near(&function(&a, &Array::new([2, 3])?)?, &[1.0, 2.0]);
    }
    Ok(())
}

#[test]
fn singular_matrices_are_errors_when_they_are_inverted() -> Result<()> {
    let singular = array([[1.0, 2.0], [2.0, 4.0]]);
    let error = inv(&singular)?.eval().err().unwrap().to_string();
    assert!(error.contains("[linalg.inv] a: ") && error.contains("singular"), "{error}");
    assert!(solve(&singular, &Array::new([1.0f32, 2.0])?)?.eval().is_err());
    assert!(tri_inv(&array([[1.0, 0.0], [3.0, 0.0]]), false)?.eval().is_err());
    let batch = crate::ops::stack(&[array([[1.0, 0.0], [0.0, 1.0]]), singular.clone()], 0)?;
    let error = inv(&batch)?.eval().err().unwrap().to_string();
    assert!(error.contains("matrix 1 of 2"), "{error}");
    assert_eq!(det(&singular)?.item::<f32>()?, 0.0);
    let (sign, logarithm) = slogdet(&singular)?;
    assert_eq!((sign.item::<f32>()?, logarithm.item::<f32>()?), (0.0, f32::NEG_INFINITY));
    Ok(())
}

#[test]
fn matrices_without_rows_have_factors() -> Result<()> {
    let nothing = Array::zeros(&[0, 0], DType::F32)?;
    assert_eq!(det(&nothing)?.item::<f32>()?, 1.0);
    assert_eq!(det(&Array::zeros(&[2, 0, 0], DType::F32)?)?.to_vec::<f32>()?, [1.0, 1.0]);
    assert_eq!(inv(&nothing)?.shape(), [0, 0]);
    let (u, s, vt) = svd(&Array::zeros(&[0, 3], DType::F32)?)?;
    assert_eq!((u.shape(), s.shape()), (&[0, 0][..], &[0][..]));
    assert_eq!(vt.to_vec::<f32>()?, [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0]);
    let (q, r) = qr(&Array::zeros(&[0, 2], DType::F32)?)?;
    assert_eq!((q.shape(), r.shape()), (&[0, 0][..], &[0, 2][..]));
    assert_eq!(eigvalsh(&nothing, Triangle::Lower)?.shape(), [0]);
    Ok(())
}

#[test]
fn not_a_number_comes_through_and_nothing_hangs() -> Result<()> {
    for special in [f32::NAN, f32::INFINITY] {
        let a = array([[special, 1.0, 0.0], [1.0, 2.0, 0.0], [0.0, 1.0, 3.0]]);
        for (name, function) in functions().into_iter().chain(square_functions()) {
            let values = function(&a)?.to_vec::<f32>()?;
            if special.is_nan() && !["linalg.lu", "linalg.tri_inv"].contains(&name) {
                assert!(values.iter().any(|value| value.is_nan()), "{name}: {values:?}");
            }
        }
    }
    Ok(())
}

#[test]
fn signs_of_q_are_those_of_lapack() -> Result<()> {
    let (q, r) = qr(&array([[2.0, 3.0], [1.0, 2.0]]))?;
    assert_near(&q, &[-0.894427, -0.447214, -0.447214, 0.894427]);
    assert_near(&r, &[-2.236068, -3.577709, 0.0, 0.447214]);
    let (q, r) = qr(&array([[-1.0, 0.0], [0.0, 1.0]]))?;
    assert_near(&q, &[1.0, 0.0, 0.0, 1.0]);
    assert_near(&r, &[-1.0, 0.0, 0.0, 1.0]);
    Ok(())
}

#[test]
fn rows_are_ordered_and_exchanged_as_mlx_does() -> Result<()> {
    let a = array([[1.0, 2.0], [3.0, 4.0], [5.0, 7.0]]);
    let (p, l, u) = lu(&a)?;
    assert_eq!(p.to_vec::<u32>()?, [1, 2, 0]);
    assert_near(&l, &[1.0, 0.0, 0.2, 1.0, 0.6, -0.333333]);
    assert_near(&u, &[5.0, 7.0, 0.0, 0.6]);
    let (lu, pivots) = lu_factor(&a)?;
    assert_eq!(pivots.to_vec::<u32>()?, [2, 2]);
    assert_near(&lu, &[5.0, 7.0, 0.2, 0.6, 0.6, -0.333333]);
    let (p, ..) = super::lu(&array([[0.0, 2.0], [0.0, 4.0]]))?;
    assert_eq!(p.to_vec::<u32>()?, [0, 1]);
    Ok(())
}

#[test]
fn one_triangle_is_read() -> Result<()> {
    let a = array([[4.0, 100.0], [2.0, 50005.0]]);
    assert_near(&cholesky(&array([[4.0, 100.0], [2.0, 5.0]]), false)?, &[2.0, 0.0, 1.0, 2.0]);
    let upper = cholesky(&a, true)?.to_vec::<f32>()?;
    assert_eq!(upper[..3], [2.0, 50.0, 0.0]);
    let mixed = array([[1.0, 7.0], [2.0, 1.0]]);
    assert_near(&eigvalsh(&mixed, Triangle::Lower)?, &[-1.0, 3.0]);
    assert_near(&eigvalsh(&mixed, Triangle::Upper)?, &[-6.0, 8.0]);
    Ok(())
}

#[test]
fn equal_singular_values_give_finite_gradients() -> Result<()> {
    let identity = array([[1.0, 0.0], [0.0, 1.0]]);
    let gradient = crate::grad(|x: &[Array]| {
        let (u, s, vt) = svd(&x[0])?;
        matmul(&multiply(u, s)?, &vt)?.sum(())
    })(&[identity])?;
    assert!(gradient[0].to_vec::<f32>()?.iter().all(|value| value.is_finite()));
    Ok(())
}

#[test]
fn the_gradient_of_a_singular_determinant_is_its_cofactors() -> Result<()> {
    let a = array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]]);
    let gradient = crate::grad(|x: &[Array]| det(&x[0]))(&[a])?;
    assert_near(&gradient[0], &[-3.0, 6.0, -3.0, 6.0, -12.0, 6.0, -3.0, 6.0, -3.0]);
    Ok(())
}

#[test]
fn vectors_without_singular_values_stay_orthogonal_in_gradients() -> Result<()> {
    // U Uᵀ of all of U is the identity, whatever the matrix is.
    let a = array([[1.0, 2.0], [3.0, 4.0], [5.0, 7.0], [0.5, -1.0]]);
    let weights = Array::new([[1.0f32, 2.0, 3.0, 4.0]])?;
    let gradient = crate::grad(|x: &[Array]| {
        let (u, ..) = svd(&x[0])?;
        let rows = matmul(&weights, &u)?;
        subtract(rows.square()?.sum(())?, 1.0)
    })(&[a])?;
    assert!(gradient[0].to_vec::<f32>()?.iter().all(|value| value.abs() < 1e-4));
    Ok(())
}
