//! Tests of products: shapes, dtypes and errors as MLX has them.

use super::*;
use crate::array::DType;
use crate::ops::arange;

fn numbers(shape: &[usize]) -> Array {
    let size = shape.iter().product::<usize>() as i64;
    arange(0, size, 1, DType::F32).unwrap().reshape(shape).unwrap()
}

#[track_caller]
fn says(result: Result<Array>, words: &str) {
    let error = result.unwrap_err().to_string();
    assert!(error.contains(words), "{error}");
}

#[test]
fn kron_pads_ranks_and_refuses_empty_arrays() {
    let (a, b) = (Array::new([0, 1]).unwrap(), Array::new([[0, 1], [2, 3]]).unwrap());
    let (ab, ba) = (kron(&a, &b).unwrap(), kron(&b, &a).unwrap());
    assert_eq!(
        (ab.shape(), ab.to_vec::<i32>().unwrap()),
        (&[2, 4][..], vec![0, 0, 0, 1, 0, 0, 2, 3])
    );
    assert_eq!(
        (ba.shape(), ba.to_vec::<i32>().unwrap()),
        (&[2, 4][..], vec![0, 0, 0, 1, 0, 2, 0, 3])
    );
    let two = Array::scalar(2, DType::I32).unwrap();
    assert_eq!(kron(&two, &a).unwrap().to_vec::<i32>().unwrap(), [0, 2]);
    assert_eq!(kron(&two, &two).unwrap().shape(), [0usize; 0]);
    says(kron(&Array::zeros(&[0], DType::F32).unwrap(), &a), "[kron] a: expected shape one with");
}

#[test]
fn vecdot_broadcasts_the_other_axes_only() {
    let dot = |a: &[usize], b: &[usize], axis| vecdot(&numbers(a), &numbers(b), axis);
    assert_eq!(dot(&[4, 1], &[4, 3], 0).unwrap().shape(), [3]);
    assert_eq!(dot(&[5, 3, 3], &[3, 3], 1).unwrap().shape(), [5, 3]);
    assert_eq!(dot(&[2, 0], &[2, 0], -1).unwrap().to_vec::<f32>().unwrap(), [0.0, 0.0]);
    says(dot(&[2, 3], &[3], -1), "[vecdot] b: expected shape one of 2 axes, as a");
    says(dot(&[2, 3], &[2, 1], -1), "[vecdot] b: expected shape length 3 along axis -1");
    says(dot(&[2, 3], &[2, 3], 2), "[vecdot] axis: axis 2");
    says(dot(&[], &[3], 0), "[vecdot] axis: axis 0");
    let bytes = Array::new([1u8, 200, 2]).unwrap();
    let widened = vecdot(&bytes, &Array::new([1u8, 1, 1]).unwrap(), 0).unwrap();
    assert_eq!((widened.dtype(), widened.item::<u32>().unwrap()), (DType::U32, 203));
}

#[test]
fn segments_are_products_of_slices() {
    let (a, b) = (numbers(&[2, 5]), numbers(&[5, 3]));
    let segments = Array::new([[0, 2], [2, 5], [1, 1], [4, 3], [-2, 2], [3, 9]]).unwrap();
    let result = segmented_mm(&a, &b, &segments).unwrap();
    assert_eq!(result.shape(), [6, 2, 3]);
    let part = |from: usize, to: usize| {
        let columns = crate::ops::slice(&a, &[0, from], &[2, to], &[1, 1]).unwrap();
        let rows = crate::ops::slice(&b, &[from, 0], &[to, 3], &[1, 1]).unwrap();
        columns.matmul(&rows).unwrap().to_vec::<f32>().unwrap()
    };
    let expected = [part(0, 2), part(2, 5), part(0, 0), part(0, 0), part(0, 0), part(3, 5)];
    assert_eq!(result.to_vec::<f32>().unwrap(), expected.concat());
    // What is outside of a segment does not matter.
    let odd = Array::new([[1.0f32, f32::NAN]]).unwrap();
    let one = segmented_mm(&odd, &odd.transpose().unwrap(), &Array::new([0, 1]).unwrap()).unwrap();
    assert_eq!((one.shape(), one.item::<f32>().unwrap()), (&[1, 1][..], 1.0));
    says(segmented_mm(&a, &a, &segments), "[segmented_mm] b: expected shape [5, n]");
    says(segmented_mm(&numbers(&[5]), &b, &segments), "[segmented_mm] a: expected shape a matrix");
    says(segmented_mm(&a, &b, &numbers(&[1, 2])), "segments: expected dtype an integer type");
    says(segmented_mm(&a, &b, &Array::new([1, 2, 3]).unwrap()), "segments: expected shape […, 2]");
}

#[test]
fn masks_leave_out_tiles_or_scale_them() {
    let (a, b) = (numbers(&[3, 5]), numbers(&[5, 4]));
    let plain = a.matmul(&b).unwrap().to_vec::<f32>().unwrap();
    let mask = Array::new([[true, false], [false, true]]).unwrap();
    let masked = block_masked_mm(&a, &b, 2, Some(&mask), None, None).unwrap();
    let kept = |place: usize| (place / 4 < 2) == (place % 4 < 2);
    let expected: Vec<f32> = (0..12).map(|i| if kept(i) { plain[i] } else { 0.0 }).collect();
    assert_eq!(masked.to_vec::<f32>().unwrap(), expected);
    let three = Array::new([[3.0f32]]).unwrap();
    let scaled = block_masked_mm(&a, &b, 64, None, Some(&three), None).unwrap();
    let expected: Vec<f32> = plain.iter().map(|x| 3.0 * x).collect();
    assert_eq!(scaled.to_vec::<f32>().unwrap(), expected);
    let odd = crate::ops::full(&[2, 2], f32::NAN, DType::F32).unwrap();
    let off = Array::new([[false]]).unwrap();
    let zero = block_masked_mm(&odd, &odd, 32, None, Some(&off), Some(&off)).unwrap();
    assert_eq!(zero.to_vec::<f32>().unwrap(), [0.0; 4]);
    let wrong = Array::ones(&[2, 1], DType::F32).unwrap();
    says(block_masked_mm(&a, &b, 32, Some(&wrong), None, None), "mask_out: expected shape [1, 1]");
    says(block_masked_mm(&a, &b, 0, None, None, None), "block_size: expected at least 1");
}
