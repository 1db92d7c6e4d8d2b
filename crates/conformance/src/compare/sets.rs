//! `topk`, `partition` and `argpartition`: what stands where inside a part is not promised.

use serde_json::Value;

use super::axis;
use crate::case::Case;
use crate::tensor::{Tensor, Wide};

/// Compares lane by lane.
pub(super) fn compare(
    case: &Case,
    a: Option<&Tensor>,
    got: &Tensor,
    expected: &Tensor,
) -> Result<(), String> {
    let (got, wanted) = (lanes(case, got)?, lanes(case, expected)?);
    if case.op == "topk" {
        return same_lanes(got.iter().map(sorted), wanted.iter().map(sorted));
    }
    let kth = case.attrs.get("kth").and_then(Value::as_i64).ok_or("no kth")?;
    let (got, wanted) = match case.op.as_str() {
        "partition" => (got, wanted),
        "argpartition" => {
            let a = lanes(case, a.ok_or("argpartition needs the input a")?)?;
            if a.len() != got.len() || a.len() != wanted.len() {
                return Err(format!("{} lanes, expected {}", got.len(), a.len()));
            }
            let looked_up = |indices: &[Vec<Key>]| -> Result<Vec<Vec<Key>>, String> {
                a.iter().zip(indices).map(|(values, indices)| look_up(values, indices)).collect()
            };
            (looked_up(&got)?, looked_up(&wanted)?)
        }
        other => return Err(format!("{other} has no set comparison")),
    };
    same_lanes(got.iter().map(|l| parts(l, kth)), wanted.iter().map(|l| parts(l, kth)))
}

/// A value by which lanes are sorted: NaN last, the two zeros equal.
type Key = i128;

fn lanes(case: &Case, tensor: &Tensor) -> Result<Vec<Vec<Key>>, String> {
    let keys: Vec<Key> = match tensor.wide() {
        Wide::Ints(values) => values,
        Wide::Floats(values) => values.into_iter().map(float_key).collect(),
        Wide::Complex(values) => values.into_iter().map(complex_key).collect(),
    };
    let Some(axis) = axis(case, tensor.shape.len()) else { return Ok(vec![keys]) };
    let length = *tensor.shape.get(axis).ok_or("axis out of range")?;
    let inner: usize = tensor.shape[axis + 1..].iter().product();
    let outer: usize = tensor.shape[..axis].iter().product();
    let keys = &keys;
    let lane = |o: usize, i: usize| (0..length).map(move |k| keys[(o * length + k) * inner + i]);
    let places = (0..outer).flat_map(|o| (0..inner).map(move |i| (o, i)));
    Ok(places.map(|(o, i)| lane(o, i).collect()).collect())
}

/// An integer in the order of the float.
fn float_key(value: f64) -> Key {
    if value.is_nan() {
        return Key::MAX;
    }
    let bits = (value + 0.0).to_bits() as i64;
    (if bits < 0 { i64::MIN.wrapping_sub(bits) } else { bits }) as Key
}

/// An integer in the order of real parts and then of imaginary ones.
fn complex_key([re, im]: [f64; 2]) -> Key {
    if re.is_nan() || im.is_nan() {
        return Key::MAX;
    }
    (float_key(re) << 64) + float_key(im)
}

fn look_up(values: &[Key], indices: &[Key]) -> Result<Vec<Key>, String> {
    let permutation = sorted(indices).iter().copied().eq(0..values.len() as Key);
    if !permutation {
        return Err("the indices are no permutation".into());
    }
    Ok(indices.iter().map(|&index| values[index as usize]).collect())
}

fn sorted(lane: impl AsRef<[Key]>) -> Vec<Key> {
    let mut lane = lane.as_ref().to_vec();
    lane.sort_unstable();
    lane
}

/// The lane with the elements before and after `kth` each in order.
fn parts(lane: &[Key], kth: i64) -> Vec<Key> {
    let mut lane = lane.to_vec();
    if !lane.is_empty() {
        let kth = kth.rem_euclid(lane.len() as i64) as usize;
        lane[..kth].sort_unstable();
        lane[kth + 1..].sort_unstable();
    }
    lane
}

fn same_lanes(
    got: impl ExactSizeIterator<Item = Vec<Key>>,
    expected: impl ExactSizeIterator<Item = Vec<Key>>,
) -> Result<(), String> {
    if got.len() != expected.len() {
        return Err("different numbers of lanes".into());
    }
    match got.zip(expected).position(|(got, expected)| got != expected) {
        None => Ok(()),
        Some(lane) => Err(format!("lane {lane} has other members")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_order_floats_and_parts_forget_order() {
        let values = [f64::NEG_INFINITY, -2.0, -0.0, 0.0, 1e-300, 3.0, f64::INFINITY, f64::NAN];
        assert!(values.windows(2).all(|pair| float_key(pair[0]) <= float_key(pair[1])));
        assert_eq!(float_key(-0.0), float_key(0.0));
        assert_eq!(parts(&[2, 1, 3, 9, 8], -3), parts(&[1, 2, 3, 8, 9], 2));
        assert_ne!(parts(&[2, 3, 1], 1), parts(&[1, 2, 3], 1));
        assert!(look_up(&[5, 6], &[1, 1]).is_err());
    }
}
