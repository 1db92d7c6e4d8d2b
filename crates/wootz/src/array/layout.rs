//! Shapes, strides and the arithmetic on them: where the elements of an array lie in its buffer.

use smallvec::SmallVec;

use super::DType;
use crate::error::{Error, Result};

/// The lengths of an array's axes.
pub type Shape = SmallVec<[usize; 4]>;
/// The distance in elements between neighbours along each axis.
pub type Strides = SmallVec<[isize; 4]>;

/// Where an array's elements lie in a buffer. Known when a node is built, before anything runs:
/// kernels write row-major memory and views only rearrange it.
#[derive(Debug, PartialEq, Eq)]
pub struct Layout {
    /// Lengths of the axes.
    pub shape: Shape,
    /// Distances in elements; 0 where an axis is broadcast, negative where it is reversed.
    pub strides: Strides,
    /// Index of the first element.
    pub offset: usize,
}

// By hand: the derived one copies element by element, and every node clones layouts.
impl Clone for Layout {
    #[inline]
    fn clone(&self) -> Layout {
        Layout {
            shape: Shape::from_slice(&self.shape),
            strides: Strides::from_slice(&self.strides),
            offset: self.offset,
        }
    }
}

impl Layout {
    /// Row-major memory without gaps.
    pub fn contiguous(shape: &[usize]) -> Layout {
        Layout { shape: Shape::from_slice(shape), strides: row_major(shape), offset: 0 }
    }

    /// The number of elements.
    pub fn size(&self) -> usize {
        self.shape.iter().product()
    }

    /// The number of axes.
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// Whether the elements lie row-major without gaps (from any offset).
    pub fn is_contiguous(&self) -> bool {
        let mut expected = 1isize;
        if self.shape.contains(&0) {
            return true;
        }
        for (&length, &stride) in self.shape.iter().zip(&self.strides).rev() {
            if length != 1 {
                if stride != expected {
                    return false;
                }
                expected *= length as isize;
            }
        }
        true
    }

    /// The smallest and one past the largest element index that this layout reaches.
    pub fn reach(&self) -> (usize, usize) {
        if self.size() == 0 {
            return (self.offset, self.offset);
        }
        let (mut low, mut high) = (self.offset as isize, self.offset as isize);
        for (&length, &stride) in self.shape.iter().zip(&self.strides) {
            let span = (length as isize - 1) * stride;
            if span < 0 { low += span } else { high += span }
        }
        (low as usize, high as usize + 1)
    }

    /// The same elements seen with `shape`, which must broadcast from this shape: new axes and
    /// axes of length 1 get stride 0.
    pub fn broadcast_to(&self, shape: &[usize]) -> Layout {
        let lead = shape.len() - self.rank();
        let mut strides = Strides::from_elem(0, shape.len());
        for axis in 0..self.rank() {
            if self.shape[axis] == shape[lead + axis] {
                strides[lead + axis] = self.strides[axis];
            }
        }
        Layout { shape: Shape::from_slice(shape), strides, offset: self.offset }
    }

    /// The same elements with the axes in another order.
    pub fn permute(&self, axes: &[usize]) -> Layout {
        Layout {
            shape: axes.iter().map(|&axis| self.shape[axis]).collect(),
            strides: axes.iter().map(|&axis| self.strides[axis]).collect(),
            offset: self.offset,
        }
    }

    /// The same elements seen with another shape of the same size, if strides can express it.
    pub fn reshape(&self, shape: &[usize]) -> Option<Layout> {
        if self.is_contiguous() {
            let strides = row_major(shape);
            return Some(Layout { shape: Shape::from_slice(shape), strides, offset: self.offset });
        }
        let mut strides = Strides::from_elem(0, shape.len());
        let old: SmallVec<[(usize, isize); 4]> = self
            .shape
            .iter()
            .copied()
            .zip(self.strides.iter().copied())
            .filter(|&(length, _)| length != 1)
            .collect();
        let (mut i, mut j) = (0, 0);
        while i < old.len() {
            // Take the smallest group of old axes and of new axes with equal products.
            let (old_start, new_start) = (i, j);
            let (mut old_size, mut new_size) = (old[i].0, 1);
            i += 1;
            while new_size != old_size {
                if new_size < old_size {
                    new_size *= *shape.get(j)?;
                    j += 1;
                } else {
                    old_size *= old.get(i)?.0;
                    i += 1;
                }
            }
            let group = &old[old_start..i];
            for pair in group.windows(2) {
                if pair[0].1 != pair[1].1 * pair[1].0 as isize {
                    return None;
                }
            }
            let mut stride = group.last()?.1;
            for axis in (new_start..j).rev() {
                strides[axis] = stride;
                stride *= shape[axis] as isize;
            }
        }
        Some(Layout { shape: Shape::from_slice(shape), strides, offset: self.offset })
    }
}

/// Strides of row-major memory.
pub fn row_major(shape: &[usize]) -> Strides {
    let mut strides = Strides::from_elem(0, shape.len());
    let mut stride = 1isize;
    for axis in (0..shape.len()).rev() {
        strides[axis] = stride;
        stride = stride.saturating_mul(shape[axis].max(1) as isize);
    }
    strides
}

/// What is known of an array without computing it: where its elements lie and their type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meta {
    /// Shape, strides and offset.
    pub layout: Layout,
    /// Element type.
    pub dtype: DType,
}

impl Meta {
    /// A row-major array. An error if its size does not fit the machine.
    pub fn new(op: &'static str, shape: &[usize], dtype: DType) -> Result<Meta> {
        checked_size(op, shape, dtype)?;
        Ok(Meta { layout: Layout::contiguous(shape), dtype })
    }

    /// Lengths of the axes.
    pub fn shape(&self) -> &[usize] {
        &self.layout.shape
    }

    /// The number of elements.
    pub fn size(&self) -> usize {
        self.layout.size()
    }

    /// The number of bytes of a row-major copy.
    pub fn bytes(&self) -> usize {
        self.size() * self.dtype.size()
    }
}

/// The number of elements of `shape`, or an error if its bytes pass the address space.
pub fn checked_size(op: &'static str, shape: &[usize], dtype: DType) -> Result<usize> {
    // Axes of length 0 make the array empty, but the others must still be sane.
    let mut lengths = shape.iter().copied().filter(|&length| length != 0);
    let size = lengths
        .try_fold(1usize, |size, length| size.checked_mul(length))
        .filter(|size| size.checked_mul(dtype.size()).is_some_and(|b| b <= isize::MAX as usize));
    match size {
        Some(_) if shape.contains(&0) => Ok(0),
        Some(size) => Ok(size),
        None => Err(Error::SizeOverflow {
            op,
            argument: "shape".into(),
            got: format!("{shape:?} of {dtype}"),
            limit: isize::MAX as u64,
        }),
    }
}

/// The shape that `a` and `b` broadcast to, by the rules of NumPy and MLX.
pub fn broadcast_shapes(op: &'static str, a: &[usize], b: &[usize]) -> Result<Shape> {
    let (long, short) = if a.len() >= b.len() { (a, b) } else { (b, a) };
    let mut shape = Shape::from_slice(long);
    let lead = long.len() - short.len();
    for (axis, &length) in short.iter().enumerate() {
        let target = &mut shape[lead + axis];
        if *target == 1 {
            *target = length;
        } else if length != 1 && length != *target {
            return Err(Error::Shape {
                op,
                argument: "inputs".into(),
                expected: "shapes that broadcast together".into(),
                got: format!("{a:?} and {b:?}"),
            });
        }
    }
    Ok(shape)
}

/// `axis` counted from the front, if it is in range.
pub fn normalize_axis(op: &'static str, axis: i64, rank: usize) -> Result<usize> {
    let positive = if axis < 0 { axis + rank as i64 } else { axis };
    if positive < 0 || positive >= rank as i64 {
        return Err(Error::Axis { op, argument: "axis".into(), got: axis, rank });
    }
    Ok(positive as usize)
}

/// Merges neighbouring axes that every layout walks in one stride, dropping axes of length 1.
/// All layouts have the same shape. Returns the common shape and one stride list per layout.
pub fn collapse(layouts: &[&Layout]) -> (Shape, SmallVec<[Strides; 4]>) {
    let shape = &layouts[0].shape;
    let mut out_shape = Shape::new();
    let mut out_strides: SmallVec<[Strides; 4]> = layouts.iter().map(|_| Strides::new()).collect();
    for axis in 0..shape.len() {
        let length = shape[axis];
        if length == 1 {
            continue;
        }
        let mergeable = out_shape.last().is_some_and(|_| {
            layouts.iter().zip(&out_strides).all(|(layout, strides)| {
                let outer = strides[strides.len() - 1];
                outer == layout.strides[axis].wrapping_mul(length as isize)
            })
        });
        let last = out_shape.len().wrapping_sub(1);
        if mergeable {
            out_shape[last] *= length;
        } else {
            out_shape.push(length);
        }
        for (layout, strides) in layouts.iter().zip(&mut out_strides) {
            if mergeable {
                strides[last] = layout.strides[axis];
            } else {
                strides.push(layout.strides[axis]);
            }
        }
    }
    (out_shape, out_strides)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reshape_of_a_transposed_array_is_a_view_only_where_strides_allow() {
        let layout = Layout::contiguous(&[2, 3, 4]).permute(&[2, 0, 1]);
        assert_eq!(layout.reshape(&[4, 6]).map(|l| l.strides.to_vec()), Some(vec![1, 4]));
        assert_eq!(layout.reshape(&[8, 3]), None);
        let split = layout.reshape(&[2, 2, 2, 3, 1]).map(|l| l.strides.to_vec());
        assert_eq!(
            split,
            Some(vec![2, 1, 12, 4, 4]).map(|mut v| {
                v[4] = 0;
                v
            })
        );
    }

    #[test]
    fn sizes_that_overflow_are_errors() {
        assert!(checked_size("zeros", &[usize::MAX, 2], DType::U8).is_err());
        assert!(checked_size("zeros", &[1 << 62, 4], DType::F32).is_err());
        assert_eq!(checked_size("zeros", &[0, 5], DType::F32).unwrap(), 0);
    }

    #[test]
    fn collapse_merges_what_is_dense_in_all() {
        let a = Layout::contiguous(&[4, 5, 6]);
        let b = Layout::contiguous(&[5, 6]).broadcast_to(&[4, 5, 6]);
        let (shape, strides) = collapse(&[&a, &b]);
        assert_eq!(shape.to_vec(), vec![4, 30]);
        assert_eq!(strides[1].to_vec(), vec![0, 1]);
    }
}
