//! Views by strides: `flip`, `diagonal`, `as_strided`, and `view` of the bytes as another dtype.

use smallvec::SmallVec;

use super::range::arange_on;
use super::{flatten, moveaxis, moving_case, pad_zeros, slice_axis};
use crate::array::{Array, DType, Layout, Meta, Shape, Strides, normalize_axis};
use crate::cpu::CpuCall;
use crate::error::{Error, Result};
use crate::op::{Batch, Case, EVERY, Entry, Gradient, Metas, Op, Tolerance, expect_inputs};
use crate::ops::{Axes, astype, copy, expand_dims, reshape, take_along_axis_backward};

/// Cases of strided views.
pub(crate) fn entries() -> Vec<Entry> {
    let bits = Case::new("narrower", &[&[3, 4]], |x| {
        let to = if x[0].dtype().size() == 1 { DType::I8 } else { DType::U8 };
        Ok(vec![view(&x[0], to)?])
    });
    vec![
        Entry {
            name: "flip",
            cases: vec![
                moving_case("all axes", &[3, 5], |x| flip(x, ())),
                moving_case("one axis", &[3, 5], |x| flip(x, 1)),
                moving_case("empty", &[0, 5], |x| flip(x, ())),
            ],
        },
        Entry {
            name: "diagonal",
            cases: vec![
                moving_case("main", &[3, 5], |x| diagonal(x, 0, 0, 1)),
                moving_case("above", &[2, 3, 4], |x| diagonal(x, 1, 1, 2)),
                moving_case("below", &[4, 2, 3], |x| diagonal(x, -1, 0, 2)),
                moving_case("tall", &[7, 3], |x| diagonal(x, -2, 0, 1)),
                moving_case("outside", &[3, 4], |x| diagonal(x, 9, 0, 1)),
            ],
        },
        Entry {
            name: "as_strided",
            cases: vec![moving_case("windows", &[7], |x| as_strided(x, &[5, 3], &[1, 1], 0))],
        },
        Entry {
            name: "view",
            cases: vec![bits.dtypes(EVERY).tolerance(Tolerance::Exact).gradient(Gradient::None)],
        },
    ]
}

/// The array with the order of elements reversed along these axes, all of them with `()`.
///
/// ```
/// let x = wootz::Array::new([[1, 2], [3, 4]])?;
/// assert_eq!(wootz::flip(&x, 1)?.to_vec::<i32>()?, [2, 1, 4, 3]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn flip(x: &Array, axis: impl Into<Axes>) -> Result<Array> {
    let axes = axis.into().normalize("flip", x.rank())?;
    Array::apply(View(Kind::Flip(SmallVec::from_vec(axes))), &[x])
}

/// The diagonal of the matrices that `axis1` and `axis2` span, `offset` places above the main one,
/// as the last axis. A view.
///
/// ```
/// let x = wootz::Array::new([[1, 2], [3, 4]])?;
/// assert_eq!(wootz::diagonal(&x, 0, 0, 1)?.to_vec::<i32>()?, [1, 4]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn diagonal(x: &Array, offset: i64, axis1: i64, axis2: i64) -> Result<Array> {
    if x.rank() < 2 {
        return Err(Error::shape("diagonal", "x", "one of at least 2 axes", x.shape()));
    }
    let rows = normalize_axis("diagonal", axis1, x.rank())?;
    let columns = normalize_axis("diagonal", axis2, x.rank())?;
    if rows == columns {
        let got = format!("{axis1} and {axis2}");
        return Err(Error::argument("diagonal", "axes", "two different axes", got));
    }
    Array::apply(View(Kind::Diagonal { offset, rows, columns }), &[x])
}

/// The elements of the array, taken row-major, seen with any shape, strides and offset. All of it
/// must lie within the array.
///
/// ```
/// use wootz::{Array, as_strided};
/// let x = Array::new([0, 1, 2, 3, 4])?;
/// let windows = as_strided(&x, &[3, 2], &[1, 1], 1)?;
/// assert_eq!(windows.to_vec::<i32>()?, [1, 2, 2, 3, 3, 4]);
/// assert!(as_strided(&x, &[3, 2], &[2, 1], 1).is_err());
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn as_strided(x: &Array, shape: &[usize], strides: &[isize], offset: usize) -> Result<Array> {
    if shape.len() != strides.len() {
        let expected = format!("{} strides, one for each axis", shape.len());
        return Err(Error::argument("as_strided", "strides", expected, strides.len()));
    }
    crate::array::checked_size("as_strided", shape, x.dtype())?;
    let (mut low, mut high) = (offset as i128, offset as i128);
    for (&length, &stride) in shape.iter().zip(strides) {
        let span = (length as i128 - 1) * stride as i128;
        if span < 0 { low += span } else { high += span }
    }
    if !shape.contains(&0) && (low < 0 || high >= x.size() as i128) {
        let expected = format!("elements within 0..{}", x.size());
        return Err(Error::argument("as_strided", "strides", expected, format!("{low}..={high}")));
    }
    let offset = if shape.contains(&0) { 0 } else { offset };
    let (shape, strides) = (Shape::from_slice(shape), Strides::from_slice(strides));
    let flat = x.contiguous()?;
    Array::apply(View(Kind::AsStrided(Layout { shape, strides, offset })), &[&flat])
}

/// The bytes of the elements seen as another dtype; the last axis gets longer or shorter where the
/// sizes differ. Bytes other than 0 count as true.
///
/// ```
/// use wootz::{Array, DType, view};
/// let x = Array::new([1.0f32, -2.0])?;
/// assert_eq!(view(&x, DType::U32)?.to_vec::<u32>()?, [0x3f80_0000, 0xc000_0000]);
/// assert_eq!(view(&x, DType::U8)?.shape(), [8]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn view(x: &Array, dtype: DType) -> Result<Array> {
    if x.dtype() == dtype {
        return Ok(x.clone());
    }
    if dtype == DType::Bool {
        return astype(&view(x, DType::U8)?, DType::Bool);
    }
    let (from, to) = (x.dtype().size(), dtype.size());
    let Some(&last) = x.shape().last().or((from == to).then_some(&1)) else {
        let expected = format!("a dtype of {from} bytes for a scalar");
        return Err(Error::argument("view", "dtype", expected, dtype));
    };
    if last * from % to != 0 {
        let expected = format!("one whose last axis is a multiple of {to} bytes");
        return Err(Error::shape("view", "x", expected, x.shape()));
    }
    match reinterpret(x.meta(), dtype) {
        Some(_) => Array::apply(View(Kind::Bits(dtype)), &[x]),
        None => Array::apply(View(Kind::Bits(dtype)), &[&copy(x)?]),
    }
}

impl Array {
    /// The bytes as another dtype; see [`view`].
    pub fn view(&self, dtype: DType) -> Result<Array> {
        view(self, dtype)
    }

    /// See [`diagonal`].
    pub fn diagonal(&self, offset: i64, axis1: i64, axis2: i64) -> Result<Array> {
        diagonal(self, offset, axis1, axis2)
    }
}

/// The layout of the same bytes as elements of `dtype`, if strides can express it.
fn reinterpret(meta: &Meta, dtype: DType) -> Option<Layout> {
    let (from, to) = (meta.dtype.size(), dtype.size());
    let mut layout = meta.layout.clone();
    if from == to {
        return Some(layout);
    }
    let last = layout.rank().checked_sub(1)?;
    if layout.size() == 0 {
        layout.shape[last] = layout.shape[last] * from / to;
        return Some(Layout::contiguous(&layout.shape));
    }
    if layout.strides[last] != 1 && layout.shape[last] != 1 {
        return None;
    }
    layout.shape[last] = layout.shape[last] * from / to;
    for stride in &mut layout.strides[..last] {
        let bytes = *stride * from as isize;
        if bytes % to as isize != 0 {
            return None;
        }
        *stride = bytes / to as isize;
    }
    layout.strides[last] = 1;
    if !(layout.offset * from).is_multiple_of(to) {
        return None;
    }
    layout.offset = layout.offset * from / to;
    Some(layout)
}

#[derive(Clone, Debug)]
enum Kind {
    Flip(SmallVec<[usize; 4]>),
    Diagonal { offset: i64, rows: usize, columns: usize },
    AsStrided(Layout),
    Bits(DType),
}

/// Another way to see an array's memory.
#[derive(Clone, Debug)]
struct View(Kind);

impl Op for View {
    fn name(&self) -> &'static str {
        match self.0 {
            Kind::Flip(_) => "flip",
            Kind::Diagonal { .. } => "diagonal",
            Kind::AsStrided(_) => "as_strided",
            Kind::Bits(_) => "view",
        }
    }

    fn arguments(&self) -> &'static [&'static str] {
        &["x"]
    }

    fn infer(&self, inputs: &[&Meta]) -> Result<Metas> {
        expect_inputs(self, inputs, 1)?;
        let Meta { layout, dtype } = &inputs[0];
        let mut dtype = *dtype;
        let layout = match &self.0 {
            Kind::Flip(axes) => flip_layout(layout, axes),
            Kind::Diagonal { offset, rows, columns } => {
                diagonal_layout(layout, *offset, *rows, *columns)
            }
            Kind::AsStrided(view) => {
                crate::op::expect_contiguous(self, inputs, 0)?;
                Layout { offset: layout.offset + view.offset, ..view.clone() }
            }
            Kind::Bits(to) => {
                let bits = reinterpret(inputs[0], *to);
                dtype = *to;
                bits.ok_or_else(|| {
                    let got = format!("{layout:?}");
                    Error::argument("view", "x", "a layout that allows the view", got)
                })?
            }
        };
        Ok(Metas::from_elem(Meta { layout, dtype }, 1))
    }

    fn is_view(&self) -> bool {
        true
    }

    fn cpu(&self, _: &mut CpuCall<'_>) -> Result<()> {
        Ok(())
    }

    fn vjp(
        &self,
        inputs: &[Array],
        _: &[Array],
        cotangents: &[Option<Array>],
    ) -> Result<Vec<Option<Array>>> {
        let Some(gradient) = &cotangents[0] else { return Ok(vec![None]) };
        Ok(vec![Some(match &self.0 {
            Kind::Flip(_) => Array::apply(self.clone(), &[gradient])?,
            Kind::Diagonal { offset, rows, columns } => {
                diagonal_gradient(gradient, inputs[0].shape(), *offset, *rows, *columns)?
            }
            Kind::AsStrided(_) => {
                // The same view of the elements' numbers tells where each gradient belongs.
                let x = &inputs[0];
                let size = x.size() as f64;
                let numbers = arange_on(0.0, size, 1.0, DType::U32, x.device())?;
                let places = flatten(&Array::apply(self.clone(), &[&numbers])?, 0, -1)?;
                let flat = flatten(gradient, 0, -1)?;
                reshape(&take_along_axis_backward(&places, &flat, 0, x.size())?, x.shape())?
            }
            // Nothing is smooth in integers, so nothing is lost with their gradient.
            Kind::Bits(_) if !inputs[0].dtype().is_inexact() => return Ok(vec![None]),
            Kind::Bits(_) => {
                let reason = "the bits of a number are not a smooth function of it";
                return Err(Error::not_differentiable(self.name(), reason));
            }
        })])
    }

    fn vmap(&self, batch: &Batch<'_>) -> Result<Vec<Array>> {
        let x = &batch.inputs[0];
        Ok(vec![match &self.0 {
            Kind::Flip(axes) => {
                let axes = axes.iter().map(|axis| axis + 1).collect();
                Array::apply(View(Kind::Flip(axes)), &[x])?
            }
            &Kind::Diagonal { offset, rows, columns } => {
                let kind = Kind::Diagonal { offset, rows: rows + 1, columns: columns + 1 };
                Array::apply(View(kind), &[x])?
            }
            Kind::AsStrided(Layout { shape, strides, offset }) => {
                let mut view =
                    Layout { shape: shape.clone(), strides: strides.clone(), offset: *offset };
                view.shape.insert(0, batch.size);
                view.strides.insert(0, batch.shape(0).iter().product::<usize>() as isize);
                Array::apply(View(Kind::AsStrided(view)), &[&x.contiguous()?])?
            }
            Kind::Bits(dtype) => view(x, *dtype)?,
        }])
    }
}

fn flip_layout(layout: &Layout, axes: &[usize]) -> Layout {
    let mut out = layout.clone();
    if layout.size() == 0 {
        return out;
    }
    let mut offset = layout.offset as isize;
    for &axis in axes {
        offset += (layout.shape[axis] as isize - 1) * layout.strides[axis];
        out.strides[axis] = -layout.strides[axis];
    }
    out.offset = offset as usize;
    out
}

/// The number of elements of a diagonal, and the row and column it starts in.
fn diagonal_span(rows: usize, columns: usize, offset: i64) -> (usize, usize, usize) {
    let distance = usize::try_from(offset.unsigned_abs()).unwrap_or(usize::MAX);
    let (row, column) = if offset < 0 { (distance, 0) } else { (0, distance) };
    let count = rows.saturating_sub(row).min(columns.saturating_sub(column));
    (count, row, column)
}

fn diagonal_layout(layout: &Layout, offset: i64, rows: usize, columns: usize) -> Layout {
    let (count, row, column) = diagonal_span(layout.shape[rows], layout.shape[columns], offset);
    let kept = |axis: &usize| *axis != rows && *axis != columns;
    let mut out = Layout {
        shape: (0..layout.rank()).filter(kept).map(|axis| layout.shape[axis]).collect(),
        strides: (0..layout.rank()).filter(kept).map(|axis| layout.strides[axis]).collect(),
        offset: layout.offset,
    };
    out.shape.push(count);
    out.strides.push(layout.strides[rows] + layout.strides[columns]);
    if out.size() > 0 {
        let start = row as isize * layout.strides[rows] + column as isize * layout.strides[columns];
        out.offset = (layout.offset as isize + start) as usize;
    }
    out
}

/// Puts the last axis of `x` on a diagonal of matrices of zeros, which become the last two axes.
/// In row-major order a diagonal is every `columns + 1`st element, so padding and reshaping do it.
pub(super) fn embed_diagonal(x: &Array, rows: usize, columns: usize, offset: i64) -> Result<Array> {
    let (count, row, column) = diagonal_span(rows, columns, offset);
    let rank = x.rank();
    let mut shape = Shape::from_slice(&x.shape()[..rank - 1]);
    let lead = |width: (usize, usize), rank: usize| {
        let mut widths = vec![(0, 0); rank];
        widths[rank - 1] = width;
        widths
    };
    if count == 0 {
        // Nothing is kept but the zeros around it.
        let zeros =
            pad_zeros(&slice_axis(x, rank - 1, 0, 0, 1)?, &lead((0, rows * columns), rank))?;
        shape.extend_from_slice(&[rows, columns]);
        return reshape(&zeros, &shape);
    }
    let spread = pad_zeros(&expand_dims(x, -1)?, &lead((0, columns), rank + 1))?;
    let spread = flatten(&spread, -2, -1)?;
    let start = row * columns + column;
    let rest = rows * columns - start;
    let spread_length = count * (columns + 1);
    let trimmed = slice_axis(&spread, rank - 1, 0, spread_length.min(rest), 1)?;
    let behind = rest.saturating_sub(spread_length);
    let padded = pad_zeros(&trimmed, &lead((start, behind), rank))?;
    shape.extend_from_slice(&[rows, columns]);
    reshape(&padded, &shape)
}

fn diagonal_gradient(
    gradient: &Array,
    shape: &[usize],
    offset: i64,
    rows: usize,
    columns: usize,
) -> Result<Array> {
    let matrices = embed_diagonal(gradient, shape[rows], shape[columns], offset)?;
    // The matrices' axes are the last two; the smaller place is filled first.
    let last = matrices.rank() as i64;
    if rows < columns {
        moveaxis(&moveaxis(&matrices, last - 2, rows as i64)?, last - 1, columns as i64)
    } else {
        moveaxis(&moveaxis(&matrices, last - 1, columns as i64)?, last - 1, rows as i64)
    }
}
