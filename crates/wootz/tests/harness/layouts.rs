//! The same values in different memory: each layout wraps the elements in padding that no kernel
//! may read, and a view takes it off again.

use wootz::{Array, DType, Device, Result};

use super::data::{Host, encode};

/// Where the elements of an array lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    Contiguous,
    Transposed,
    OffsetSlice,
    NegativeStep,
    Broadcast,
}

impl Layout {
    /// All but row-major.
    pub(crate) const VIEWS: [Layout; 4] =
        [Layout::Transposed, Layout::OffsetSlice, Layout::NegativeStep, Layout::Broadcast];

    /// The array on `device`. Layouts that a shape does not allow fall back to an offset slice.
    pub(crate) fn place(self, host: &Host, device: &Device) -> Result<Array> {
        let rank = host.shape.len();
        match self {
            Layout::Contiguous => host.array(device),
            _ if rank == 0 => {
                let padded = Host { shape: vec![1], ..host.clone() };
                Layout::OffsetSlice.place(&padded, device)?.reshape(&[])
            }
            Layout::Transposed if rank >= 2 => {
                let shape: Vec<usize> = host.shape.iter().rev().copied().collect();
                let moved = rearrange(host, &shape, |index| {
                    let mut index = index.to_vec();
                    index.reverse();
                    Some(index)
                });
                moved.array(device)?.transpose()
            }
            Layout::NegativeStep => {
                let shape: Vec<usize> = host.shape.iter().map(|&n| 2 * n + 1).collect();
                let moved = rearrange(host, &shape, |index| {
                    let place = |(axis, &i): (usize, &usize)| {
                        (i % 2 == 1).then(|| host.shape[axis].checked_sub(1 + i / 2)).flatten()
                    };
                    index.iter().enumerate().map(place).collect()
                });
                let start: Vec<usize> =
                    host.shape.iter().map(|&n| (2 * n).saturating_sub(1)).collect();
                // An empty axis needs an empty range.
                let stop: Vec<usize> =
                    host.shape.iter().map(|&n| if n == 0 { 2 } else { 0 }).collect();
                wootz::slice(&moved.array(device)?, &start, &stop, &vec![-2; rank])
            }
            Layout::Broadcast if broadcast_axis(&host.shape).is_some() => {
                let axis = broadcast_axis(&host.shape).unwrap();
                let mut shape = host.shape.clone();
                shape[axis] = 1;
                let one = rearrange(host, &shape, |index| Some(index.to_vec()));
                wootz::broadcast_to(&one.array(device)?, &host.shape)
            }
            Layout::Transposed | Layout::OffsetSlice | Layout::Broadcast => {
                let shape: Vec<usize> = host.shape.iter().map(|&n| n + 3).collect();
                let moved = rearrange(host, &shape, |index| {
                    let inside = |(axis, &i): (usize, &usize)| {
                        i.checked_sub(2).filter(|&i| i < host.shape[axis])
                    };
                    index.iter().enumerate().map(inside).collect()
                });
                let stop: Vec<usize> = host.shape.iter().map(|&n| n + 2).collect();
                wootz::slice(&moved.array(device)?, &vec![2; rank], &stop, &vec![1; rank])
            }
        }
    }
}

/// Values that a broadcast can express: constant along the axis that will be broadcast.
pub(crate) fn constant_along_broadcast(host: &Host) -> Host {
    let Some(axis) = broadcast_axis(&host.shape) else { return host.clone() };
    rearrange(host, &host.shape, |index| {
        let mut index = index.to_vec();
        index[axis] = 0;
        Some(index)
    })
}

/// The axis to broadcast: the first that has a length.
fn broadcast_axis(shape: &[usize]) -> Option<usize> {
    if shape.contains(&0) { None } else { shape.iter().position(|&length| length > 1) }
}

/// An array of `shape` whose elements come from where `source` says, or are padding.
fn rearrange(
    host: &Host,
    shape: &[usize],
    source: impl Fn(&[usize]) -> Option<Vec<usize>>,
) -> Host {
    let size = host.dtype.size();
    let padding = encode(host.dtype, if host.dtype.is_float() { f64::NAN } else { 119.0 });
    let count: usize = shape.iter().product();
    let mut bytes = Vec::with_capacity(count * size);
    let mut index = vec![0; shape.len()];
    for _ in 0..count {
        match source(&index) {
            Some(from) => {
                let flat = from.iter().zip(&host.shape).fold(0, |flat, (i, n)| flat * n + i);
                bytes.extend_from_slice(&host.bytes[flat * size..(flat + 1) * size]);
            }
            None => bytes.extend_from_slice(&padding),
        }
        for axis in (0..shape.len()).rev() {
            index[axis] += 1;
            if index[axis] < shape[axis] {
                break;
            }
            index[axis] = 0;
        }
    }
    debug_assert!(host.dtype != DType::Bool || bytes.iter().all(|&byte| byte <= 1));
    Host { shape: shape.to_vec(), dtype: host.dtype, bytes }
}
