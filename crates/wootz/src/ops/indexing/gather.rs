//! Collecting windows of an array by index: `take`, `gather` and the start-by-array `slice`.

use smallvec::SmallVec;

use super::offsets::{Picks, Rules, check_index_dtype, places};
#[cfg(feature = "gpu")]
use super::raw;
use super::raw::Walk;
use super::scatter;
use crate::array::{Arg, Array, DType, Meta, Scalar, Shape, normalize_axis};
use crate::cpu::tile::with_width;
use crate::cpu::{CpuCall, threads};
use crate::error::{Error, Result};
#[cfg(feature = "gpu")]
use crate::gpu::{Bind, GpuCall, Kernel, packed};
use crate::op::{Batch, Case, EVERY, Entry, Metas, Op, Tolerance, expect_contiguous};
use crate::ops::{add, broadcast_to, reshape};

/// Cases of the reading operations.
pub(super) fn entries() -> Vec<Entry> {
    let case = |label: &str, shapes: &[&[usize]], length: usize, index: DType, call: Call| {
        Case::new(label, shapes, move |x| Ok(vec![call(x)?]))
            .fixed(1, index, 0.0..length as f64)
            .dtypes(EVERY)
            .tolerance(Tolerance::Exact)
    };
    type Call = fn(&[Array]) -> Result<Array>;
    vec![
        Entry {
            name: "take",
            cases: vec![
                case("rows", &[&[7, 5], &[2, 3]], 7, DType::U32, |x| take(&x[0], &x[1], Some(0))),
                case("middle", &[&[3, 4, 5], &[6]], 4, DType::I64, |x| take(&x[0], &x[1], Some(1))),
                case("last", &[&[3, 9], &[2, 1]], 9, DType::U8, |x| take(&x[0], &x[1], Some(-1))),
                case("flat", &[&[3, 4], &[1100]], 12, DType::I32, |x| take(&x[0], &x[1], None)),
                case("scalar", &[&[3, 4], &[]], 3, DType::I16, |x| take(&x[0], &x[1], Some(0))),
                case("nothing", &[&[3, 4], &[0]], 3, DType::I32, |x| take(&x[0], &x[1], Some(0))),
            ],
        },
        Entry {
            name: "gather",
            cases: vec![
                case("windows", &[&[6, 5, 4], &[3, 1], &[2]], 4, DType::U32, |x| {
                    gather(&x[0], &[&x[1], &x[2]], &[0, 2], &[2, 5, 1])
                })
                .fixed(2, DType::I32, 0.0..4.0),
                case("elements of rows", &[&[6, 5, 4], &[3, 1], &[2]], 6, DType::U32, |x| {
                    gather(&x[0], &[&x[1], &x[2]], &[0, 2], &[1, 5, 1])
                })
                .fixed(2, DType::I32, 0.0..4.0),
            ],
        },
        Entry {
            name: "slice_dynamic",
            cases: vec![
                case("block", &[&[6, 7], &[2]], 3, DType::I32, |x| {
                    slice_dynamic(&x[0], &x[1], &[0, -1], &[3, 4])
                }),
                case("one axis", &[&[6, 7], &[1]], 5, DType::U32, |x| {
                    slice_dynamic(&x[0], &x[1], &[1], &[6, 2])
                }),
            ],
        },
    ]
}

/// The elements of `x` at `indices` along `axis`, or of the flattened array without one. The
/// result has the shape of `x` with that axis replaced by the axes of `indices`. Negative indices
/// count from the end.
///
/// ```
/// use wootz::{Array, take};
/// let x = Array::new([[1, 2, 3], [4, 5, 6]])?;
/// assert_eq!(take(&x, &Array::new([0, -1])?, Some(1))?.to_vec::<i32>()?, [1, 3, 4, 6]);
/// assert_eq!(take(&x, 4, None)?.item::<i32>()?, 5);
/// assert!(take(&x, &Array::new([2])?, Some(0))?.eval().is_err());
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn take(x: &Array, indices: impl Into<Arg>, axis: Option<i64>) -> Result<Array> {
    let (x, axis) = match axis {
        None => (reshape(x, &[x.size()])?, 0),
        Some(axis) => (x.clone(), normalize_axis("take", axis, x.rank())?),
    };
    let indices = match indices.into() {
        Arg::Array(indices) => indices,
        Arg::Scalar(Scalar::Int(index)) => {
            return super::index::pick("take", &x, axis, index);
        }
        Arg::Scalar(other) => {
            return Err(Error::dtype("take", "indices", "an integer type", other.default_dtype()));
        }
    };
    gather_axes("take", &x, &[(axis, &indices)], axis)
}

impl Array {
    /// The elements at `indices` along an axis; see [`take`].
    pub fn take(&self, indices: impl Into<Arg>, axis: Option<i64>) -> Result<Array> {
        take(self, indices, axis)
    }
}

/// Windows of `slice_sizes` elements whose first elements are at `indices`, one index array for
/// each of `axes`; the arrays broadcast together. The result has the axes of the indices and then
/// those of a window.
///
/// ```
/// use wootz::{Array, gather};
/// let x = Array::new([[1, 2, 3], [4, 5, 6]])?;
/// let columns = Array::new([2, 0])?;
/// let y = gather(&x, &[&columns], &[1], &[2, 1])?;
/// assert_eq!(y.shape(), [2, 2, 1]);
/// assert_eq!(y.to_vec::<i32>()?, [3, 6, 1, 4]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn gather(x: &Array, indices: &[&Array], axes: &[i64], slice_sizes: &[usize]) -> Result<Array> {
    let (x, items, shape) = expand_windows("gather", x, indices, axes, slice_sizes)?;
    let items: Vec<(usize, &Array)> = items.iter().map(|(axis, index)| (*axis, index)).collect();
    let gathered = gather_axes("gather", &x, &items, 0)?;
    windows_last(&gathered, &shape, slice_sizes, &items)
}

/// The elements of a window of `slice_size` that starts where the array `start_indices` says, with
/// one start for each of `axes`: MLX's `slice` with an array. The window must fit.
///
/// ```
/// use wootz::{Array, slice_dynamic};
/// let x = Array::new([[1, 2, 3], [4, 5, 6]])?;
/// let y = slice_dynamic(&x, &Array::new([1])?, &[1], &[2, 2])?;
/// assert_eq!(y.to_vec::<i32>()?, [2, 3, 5, 6]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn slice_dynamic(
    x: &Array,
    start_indices: &Array,
    axes: &[i64],
    slice_size: &[usize],
) -> Result<Array> {
    let start = start("slice", x, start_indices, axes, slice_size)?;
    let window = Window::new(slice_size.into(), (0..x.rank()).collect(), 0);
    apply("slice", x, &start, window)
}

/// The place of a window whose starts along `axes` are in an array.
pub(super) fn start(
    op: &'static str,
    x: &Array,
    start_indices: &Array,
    axes: &[i64],
    sizes: &[usize],
) -> Result<Picks> {
    let axes = distinct_axes(op, axes, x.rank())?;
    if start_indices.rank() > 1 || start_indices.size() != axes.len() {
        let expected = format!("[{}], one start for each axis", axes.len());
        return Err(Error::shape(op, "start_indices", expected, start_indices.shape()));
    }
    check_index_dtype(op, "start_indices", start_indices.dtype())?;
    if sizes.len() != x.rank() || sizes.iter().zip(x.shape()).any(|(size, length)| size > length) {
        let expected = format!("at most {:?}", x.shape());
        return Err(Error::shape(op, "slice_size", expected, sizes));
    }
    let starts = reshape(start_indices, &[axes.len()])?;
    let strides = crate::array::Layout::contiguous(x.shape()).strides;
    let mut picks = Picks::default();
    for (number, &axis) in axes.iter().enumerate() {
        let start = reshape(&crate::ops::slice(&starts, &[number], &[number + 1], &[1])?, &[])?;
        picks.push_start(op, &start, (x.shape()[axis], sizes[axis]), strides[axis] as usize)?;
    }
    Ok(picks)
}

/// The axes counted from the front; each at most once.
pub(super) fn distinct_axes(op: &'static str, axes: &[i64], rank: usize) -> Result<Vec<usize>> {
    let mut distinct = Vec::with_capacity(axes.len());
    for &axis in axes {
        let normal = normalize_axis(op, axis, rank)?;
        if distinct.contains(&normal) {
            return Err(Error::argument(op, "axes", "distinct axes", format!("{axes:?}")));
        }
        distinct.push(normal);
    }
    Ok(distinct)
}

/// An array cut to what windows can reach, index arrays with the axes they index, and the common
/// shape of the caller's index arrays.
type Expanded = (Array, Vec<(usize, Array)>, Shape);

/// Windows as single elements and whole axes: a window of several elements along an indexed axis
/// becomes one index per element, behind the axes of the caller's indices.
pub(super) fn expand_windows(
    op: &'static str,
    x: &Array,
    indices: &[&Array],
    axes: &[i64],
    sizes: &[usize],
) -> Result<Expanded> {
    let axes = distinct_axes(op, axes, x.rank())?;
    if indices.len() != axes.len() {
        return Err(Error::argument(
            op,
            "indices",
            format!("{} arrays", axes.len()),
            indices.len(),
        ));
    }
    if sizes.len() != x.rank() || sizes.iter().zip(x.shape()).any(|(size, length)| size > length) {
        let expected = format!("at most {:?}", x.shape());
        return Err(Error::shape(op, "slice_sizes", expected, sizes));
    }
    let mut common = Shape::new();
    for index in indices {
        check_index_dtype(op, "indices", index.dtype())?;
        common = crate::array::broadcast_shapes(op, &common, index.shape())?;
    }
    let stop: Vec<usize> = (0..x.rank())
        .map(|axis| if axes.contains(&axis) { x.shape()[axis] } else { sizes[axis] })
        .collect();
    let x = crate::ops::slice(x, &vec![0; x.rank()], &stop, &vec![1; x.rank()])?;
    let wide = axes.iter().filter(|&&axis| sizes[axis] != 1).count();
    let mut behind = wide;
    let mut items = Vec::with_capacity(axes.len());
    for (&axis, index) in axes.iter().zip(indices) {
        let mut shape = index.shape().to_vec();
        shape.extend(std::iter::repeat_n(1, wide));
        let mut index = reshape(index, &shape)?;
        if sizes[axis] != 1 {
            // Windows do not wrap around: a start from the end is made one from the front first.
            let steps: Vec<u32> = (0..sizes[axis] as u32).collect();
            let mut steps_shape = vec![1; behind];
            steps_shape[0] = sizes[axis];
            behind -= 1;
            let steps = Array::from_slice_on(&steps, &steps_shape, x.device())?;
            let start = places(op, &index, x.shape()[axis])?;
            index = add(&start, crate::ops::astype(&steps, start.dtype())?)?;
        }
        items.push((axis, index));
    }
    Ok((x, items, common))
}

/// Brings `[indices…, window elements of indexed axes…, whole axes…]` into the order of the axes.
fn windows_last(
    gathered: &Array,
    common: &[usize],
    sizes: &[usize],
    items: &[(usize, &Array)],
) -> Result<Array> {
    let wide: Vec<usize> =
        items.iter().map(|item| item.0).filter(|&axis| sizes[axis] != 1).collect();
    let whole: Vec<usize> =
        (0..sizes.len()).filter(|axis| items.iter().all(|item| item.0 != *axis)).collect();
    let order: Vec<i64> = (0..common.len() as i64)
        .chain((0..sizes.len()).filter_map(|axis| {
            let from_wide = wide.iter().position(|&other| other == axis);
            let from_whole = whole.iter().position(|&other| other == axis);
            let place = from_wide.or(from_whole.map(|place| wide.len() + place))?;
            Some((common.len() + place) as i64)
        }))
        .collect();
    let mut shape = common.to_vec();
    shape.extend_from_slice(sizes);
    reshape(&crate::ops::transpose_axes(gathered, &order)?, &shape)
}

/// Picks elements along several axes at once: the index arrays broadcast together, and their axes
/// stand behind the first `before` of the other axes.
pub(super) fn gather_axes(
    op: &'static str,
    x: &Array,
    items: &[(usize, &Array)],
    before: usize,
) -> Result<Array> {
    let (picks, window) = picks_of(op, x, items, before)?;
    apply(op, x, &picks, window)
}

/// Where `take` along the first axis found them, windows are added up in zeros like `x`: its gradient.
pub(crate) fn add_taken(
    op: &'static str,
    x: &Array,
    indices: &Array,
    windows: &Array,
) -> Result<Array> {
    let (picks, window) = picks_of(op, x, &[(0, indices)], 0)?;
    scatter::added_to_zeros(op, x, &picks, windows, window)
}

/// Where the picked windows are, and what a window is.
pub(super) fn picks_of(
    op: &'static str,
    x: &Array,
    items: &[(usize, &Array)],
    before: usize,
) -> Result<(Picks, Window)> {
    let strides = crate::array::Layout::contiguous(x.shape()).strides;
    let mut picks = Picks::default();
    for (axis, index) in items {
        picks.push(op, index, x.shape()[*axis], strides[*axis] as usize)?;
    }
    let picked = |axis: &usize| items.iter().any(|item| item.0 == *axis);
    let kept: SmallVec<[usize; 4]> = (0..x.rank()).filter(|axis| !picked(axis)).collect();
    let sizes = (0..x.rank()).map(|axis| if picked(&axis) { 1 } else { x.shape()[axis] }).collect();
    Ok((picks, Window { sizes, kept, before }))
}

/// Gathers windows.
pub(super) fn apply(op: &'static str, x: &Array, picks: &Picks, window: Window) -> Result<Array> {
    let (x, indices) = (x.contiguous()?, picks.inputs()?);
    let inputs: SmallVec<[&Array; 4]> = std::iter::once(&x).chain(&indices).collect();
    Array::apply(Gather { op, window, rules: picks.rules().clone() }, &inputs)
}

/// What lies at each offset: a block of some elements along each axis.
#[derive(Clone, Debug)]
pub(super) struct Window {
    /// Elements along each axis.
    sizes: Shape,
    /// Axes that stay in the result; the others have one element.
    kept: SmallVec<[usize; 4]>,
    /// How many of them stand before the axes of the offsets.
    before: usize,
}

impl Window {
    pub(super) fn new(sizes: Shape, kept: SmallVec<[usize; 4]>, before: usize) -> Window {
        Window { sizes, kept, before }
    }

    /// The window of a whole batch of arrays, all picked from at the same places.
    pub(super) fn with_batch(&self, size: usize) -> Window {
        let Window { mut sizes, mut kept, before } = self.in_batch();
        (sizes[0], kept) = (size, std::iter::once(0).chain(kept).collect());
        Window { sizes, kept, before: before + 1 }
    }

    /// The window of one of a batch of arrays.
    pub(super) fn in_batch(&self) -> Window {
        let mut sizes = self.sizes.clone();
        sizes.insert(0, 1);
        let kept = self.kept.iter().map(|axis| axis + 1).collect();
        Window { sizes, kept, before: self.before }
    }

    /// The shape of the collected windows.
    pub(super) fn gathered(&self, offsets: &[usize]) -> Shape {
        let size = |axis: &usize| self.sizes[*axis];
        let (before, after) = self.kept.split_at(self.before);
        let mut shape: Shape = before.iter().map(size).collect();
        shape.extend_from_slice(offsets);
        shape.extend(after.iter().map(size));
        shape
    }

    /// How many of the result's axes stand before those of the offsets.
    pub(super) fn axes_before(&self) -> usize {
        self.before
    }

    /// Places of the window's elements in a row-major array: along the axes before the offsets'
    /// and along those after.
    pub(super) fn walks(&self, shape: &[usize]) -> (Walk, Walk) {
        let strides = crate::array::Layout::contiguous(shape).strides;
        let walk = |axes: &[usize]| {
            let sizes = axes.iter().map(|&axis| self.sizes[axis]).collect();
            Walk::new(sizes, axes.iter().map(|&axis| strides[axis]).collect())
        };
        let (before, after) = self.kept.split_at(self.before);
        (walk(before), walk(after))
    }
}

/// Collects windows at offsets.
#[derive(Debug)]
struct Gather {
    op: &'static str,
    window: Window,
    rules: Rules,
}

impl Op for Gather {
    fn name(&self) -> &'static str {
        self.op
    }

    fn arguments(&self) -> &'static [&'static str] {
        self.rules.arguments(
            &["x", "indices", "indices", "indices", "indices", "indices", "indices"],
            &["x", "start_indices", "start_indices", "start_indices", "start_indices"],
        )
    }

    fn infer(&self, inputs: &[&Meta]) -> Result<Metas> {
        self.rules.expect(self, inputs, 1)?;
        expect_contiguous(self, inputs, 0)?;
        let shape = self.window.gathered(self.rules.shape());
        Ok(Metas::from_elem(Meta::new(self.op, &shape, inputs[0].dtype)?, 1))
    }

    fn scratch(&self, _: &[&Meta], gpu: bool) -> usize {
        self.rules.scratch(gpu)
    }

    fn reads_bytes(&self, input: usize) -> bool {
        input == 0
    }

    fn cpu(&self, call: &mut CpuCall<'_>) -> Result<()> {
        let (before, after) = self.window.walks(call.meta(0).shape());
        let offsets = self.rules.on_cpu(self, call, 1)?;
        macro_rules! body {
            ($type:ty) => {{
                let x = call.bytes(0)?;
                collect(x, &offsets, &before, &after, call.output::<$type>(0)?);
            }};
        }
        with_width!(call.meta(0).dtype.size(), body);
        Ok(())
    }

    #[cfg(feature = "gpu")]
    fn gpu(&self, call: &mut GpuCall<'_>) -> Result<()> {
        self.rules.on_gpu(call, 1, Bind::Scratch)?;
        let (x, output) = (call.meta(0), call.output_meta(0));
        let (before, after) = self.window.walks(x.shape());
        let size = x.dtype.size();
        let mut words = raw::Words::default();
        words.push("n", output.size());
        words.push("x_offset", x.layout.offset);
        words.push("count", self.rules.count());
        words.push("run", after.len());
        words.walk("before", &before);
        words.walk("after", &after);
        let inputs = call.input_metas().count();
        let source = || {
            format!(
                "{}{}{}{}{}{}{}",
                packed::PACKING,
                words.text(),
                raw::reader("x", 0, size),
                raw::word_output("out", 1, size),
                self.rules.reader(2),
                include_str!("gather.wgsl"),
                raw::each_word(size, false, "x(source(i))"),
            )
        };
        call.launch(&Kernel {
            variant: format!("gather {size}{} {}", words.key(), inputs),
            source: &source,
            bindings: &self.rules.bind(&[Bind::Input(0), Bind::Output(0)]),
            params: &words.words,
            groups: raw::threads_grid(output.size().div_ceil((4 / size).max(1))),
        })
    }

    fn vjp(
        &self,
        inputs: &[Array],
        _: &[Array],
        cotangents: &[Option<Array>],
    ) -> Result<Vec<Option<Array>>> {
        let mut gradients = vec![None; inputs.len()];
        let Some(gradient) = &cotangents[0] else { return Ok(gradients) };
        let (window, picks) = (self.window.clone(), Picks::again(&inputs[1..], &self.rules));
        let dx = scatter::added_to_zeros(self.op, &inputs[0], &picks, gradient, window)?;
        gradients[0] = Some(dx);
        Ok(gradients)
    }

    fn vmap(&self, batch: &Batch<'_>) -> Result<Vec<Array>> {
        let x = &batch.inputs[0];
        if !batch.batched[1..].contains(&true) {
            let picks = Picks::again(&batch.inputs[1..], &self.rules);
            return Ok(vec![apply(self.op, x, &picks, self.window.with_batch(batch.size))?]);
        }
        let (elements, window) = match batch.batched[0] {
            true => (Some(batch.shape(0).iter().product()), self.window.in_batch()),
            false => (None, self.window.clone()),
        };
        let picks = Picks::of_batch(batch, 1, &self.rules, elements)?;
        let gathered = apply(self.op, x, &picks, window)?;
        Ok(vec![crate::ops::moveaxis(&gathered, self.window.before as i64, 0)?])
    }
}

/// Copies the windows, each thread some whole rows of the output. Elements are read wherever they lie, so that a few
/// rows of a table in a mapped file do not cost a copy of the table.
fn collect<T: bytemuck::Pod + Send + Sync>(
    x: &[u8],
    offsets: &[usize],
    before: &Walk,
    after: &Walk,
    output: &mut [T],
) {
    let (run, size) = (after.len(), size_of::<T>());
    let rows = (16 * 1024usize).div_ceil(run.max(1));
    threads::chunks_mut(output, rows * run, |chunk, output| {
        for (row, output) in output.chunks_mut(run).enumerate() {
            let row = chunk * rows + row;
            let base = before.place(row / offsets.len()) as usize + offsets[row % offsets.len()];
            if after.is_run() {
                let output: &mut [u8] = bytemuck::cast_slice_mut(output);
                output.copy_from_slice(&x[base * size..(base + run) * size]);
            } else {
                for (element, output) in output.iter_mut().enumerate() {
                    let at = base + after.place(element) as usize;
                    *output = bytemuck::pod_read_unaligned(&x[at * size..(at + 1) * size]);
                }
            }
        }
    });
}

/// Broadcasts an array to a shape, with an error that names the argument.
pub(super) fn broadcast_argument(
    op: &'static str,
    argument: &str,
    x: &Array,
    shape: &[usize],
) -> Result<Array> {
    broadcast_to(x, shape).map_err(|_| {
        Error::shape(op, argument, format!("one that broadcasts to {shape:?}"), x.shape())
    })
}
