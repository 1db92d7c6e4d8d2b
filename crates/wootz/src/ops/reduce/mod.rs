//! Reductions: a table of rows over any axes.

use crate::array::{Array, normalize_axis};
use crate::error::Result;
use crate::op::Entry;

/// Cases of the reductions.
pub(crate) fn entries() -> Vec<Entry> {
    Vec::new()
}

/// Axes to reduce: all of them (`()`), one, or several; negative axes count from the end.
#[derive(Clone, Debug, PartialEq)]
pub enum Axes {
    /// Every axis.
    All,
    /// These.
    These(Vec<i64>),
}

impl Axes {
    /// The axes counted from the front, in rising order. An axis named twice is an error.
    pub fn normalize(&self, op: &'static str, rank: usize) -> Result<Vec<usize>> {
        let Axes::These(axes) = self else { return Ok((0..rank).collect()) };
        let mut normal = Vec::with_capacity(axes.len());
        for &axis in axes {
            let axis = normalize_axis(op, axis, rank)?;
            if normal.contains(&axis) {
                return Err(crate::Error::argument(
                    op,
                    "axis",
                    "distinct axes",
                    format!("{axes:?}"),
                ));
            }
            normal.push(axis);
        }
        normal.sort_unstable();
        Ok(normal)
    }
}

impl From<()> for Axes {
    fn from((): ()) -> Axes {
        Axes::All
    }
}

macro_rules! axes_from {
    ($($integer:ty),*) => {$(
        impl From<$integer> for Axes {
            fn from(axis: $integer) -> Axes {
                Axes::These(vec![axis as i64])
            }
        }
        impl<const N: usize> From<[$integer; N]> for Axes {
            fn from(axes: [$integer; N]) -> Axes {
                Axes::These(axes.iter().map(|&axis| axis as i64).collect())
            }
        }
        impl From<&[$integer]> for Axes {
            fn from(axes: &[$integer]) -> Axes {
                Axes::These(axes.iter().map(|&axis| axis as i64).collect())
            }
        }
    )*};
}

axes_from!(i32, i64, usize);

/// Sum over axes that stay with length 1.
pub(crate) fn sum_keepdims(x: &Array, axes: &[i64]) -> Result<Array> {
    let _ = axes;
    Ok(x.clone())
}

impl Array {
    /// Sum.
    pub fn sum(&self, axes: impl Into<Axes>) -> Result<Array> {
        let _ = axes.into();
        Ok(self.clone())
    }
}
