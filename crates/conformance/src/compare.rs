//! Comparison of results with expectations, by class.

mod factors;
mod sets;

use serde_json::Value;

use crate::case::{Case, Class, Tolerance};
use crate::tensor::{Tensor, Wide};

/// Compares all outputs of a case. `a` is the input of that name as the operation saw it, which
/// some classes need.
pub fn outputs(
    case: &Case,
    a: Option<&Tensor>,
    got: &[Tensor],
    expected: &[Tensor],
) -> Result<(), String> {
    if got.len() != expected.len() {
        return Err(format!("{} outputs, expected {}", got.len(), expected.len()));
    }
    for (index, (got, expected)) in got.iter().zip(expected).enumerate() {
        same_type(got, expected).map_err(|why| format!("output {index}: {why}"))?;
    }
    match (case.class, got, expected) {
        (Class::Set, [got], [expected]) => sets::compare(case, a, got, expected),
        (Class::Sign, _, _) => {
            let a = a.ok_or("the factors need the input a")?;
            factors::compare(case, a, got, expected)
        }
        _ => got.iter().zip(expected).enumerate().try_for_each(|(index, (got, expected))| {
            let tolerance = (case.class == Class::Close).then(|| case.tolerances[index]);
            values(&got.wide(), &expected.wide(), tolerance)
                .map_err(|why| format!("output {index}: {why}"))
        }),
    }
}

/// Compares one gradient, always within its tolerance.
pub fn gradient(got: &Tensor, expected: &Tensor, tolerance: Tolerance) -> Result<(), String> {
    same_type(got, expected)?;
    values(&got.wide(), &expected.wide(), Some(tolerance))
}

/// The axis of a case, `None` when null.
fn axis(case: &Case, rank: usize) -> Option<usize> {
    let axis = case.attrs.get("axis").and_then(Value::as_i64)?;
    Some(if axis < 0 { (axis + rank as i64) as usize } else { axis as usize })
}

fn same_type(got: &Tensor, expected: &Tensor) -> Result<(), String> {
    if got.kind != expected.kind || got.shape != expected.shape {
        return Err(format!("{}, expected {}", got.describe(), expected.describe()));
    }
    Ok(())
}

/// Compares elements: integers always exactly, floats within the tolerance if there is one.
fn values(got: &Wide, expected: &Wide, tolerance: Option<Tolerance>) -> Result<(), String> {
    match (got, expected) {
        (Wide::Ints(got), Wide::Ints(expected)) => {
            first_difference(got, expected, |got, expected| got == expected)
        }
        (Wide::Floats(got), Wide::Floats(expected)) => {
            first_difference(got, expected, |&got, &expected| match tolerance {
                None => got == expected || got.is_nan() && expected.is_nan(),
                Some(tolerance) => close(got, expected, tolerance),
            })
        }
        (Wide::Complex(got), Wide::Complex(expected)) => {
            first_difference(got, expected, |got, expected| match tolerance {
                None => equal_complex(got, expected),
                Some(tolerance) => close_complex(got, expected, tolerance),
            })
        }
        _ => Err("elements of different kinds".into()),
    }
}

fn first_difference<T: std::fmt::Debug>(
    got: &[T],
    expected: &[T],
    same: impl Fn(&T, &T) -> bool,
) -> Result<(), String> {
    let wrong = || got.iter().zip(expected).enumerate().filter(|(_, (got, e))| !same(got, e));
    match wrong().next() {
        None if got.len() == expected.len() => Ok(()),
        None => Err(format!("{} elements, expected {}", got.len(), expected.len())),
        Some((index, (one, other))) => {
            let count = wrong().count();
            let of = got.len();
            Err(format!("{count} of {of} differ, first {one:?} at {index}, expected {other:?}"))
        }
    }
}

fn close(got: f64, expected: f64, Tolerance { rtol, atol }: Tolerance) -> bool {
    if got.is_nan() || expected.is_nan() {
        return got.is_nan() && expected.is_nan();
    }
    if got.is_infinite() || expected.is_infinite() {
        return got == expected;
    }
    (got - expected).abs() <= atol + rtol * expected.abs()
}

/// Not a number anywhere equals not a number anywhere, as NumPy has it.
fn equal_complex(got: &[f64; 2], expected: &[f64; 2]) -> bool {
    let nan = |value: &[f64; 2]| value.iter().any(|part| part.is_nan());
    got == expected || nan(got) && nan(expected)
}

fn close_complex(got: &[f64; 2], expected: &[f64; 2], Tolerance { rtol, atol }: Tolerance) -> bool {
    let finite = |value: &[f64; 2]| value.iter().all(|part| part.is_finite());
    if !finite(got) || !finite(expected) {
        return finite(got) == finite(expected);
    }
    let distance = (got[0] - expected[0]).hypot(got[1] - expected[1]);
    distance <= atol + rtol * expected[0].hypot(expected[1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_values_must_meet_their_like() {
        let t = Tolerance { rtol: 1e-5, atol: 1e-7 };
        let (nan, inf) = (f64::NAN, f64::INFINITY);
        assert!(close(nan, nan, t) && close(inf, inf, t) && close(1.0, 1.000001, t));
        for (got, expected) in [(nan, 0.0), (0.0, nan), (inf, -inf), (inf, 1e300), (1e300, inf)] {
            assert!(!close(got, expected, t), "{got} {expected}");
        }
        assert!(close_complex(&[nan, 0.0], &[0.0, inf], t));
        assert!(!close_complex(&[nan, 0.0], &[0.0, 0.0], t));
        assert!(values(&Wide::Floats(vec![-0.0]), &Wide::Floats(vec![0.0]), None).is_ok());
        let (one, two) = (Wide::Ints(vec![1]), Wide::Ints(vec![2]));
        assert!(values(&one, &two, Some(Tolerance { rtol: 9.0, atol: 9.0 })).is_err());
    }
}
