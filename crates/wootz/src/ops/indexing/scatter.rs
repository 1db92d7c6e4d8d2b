//! Combining updates into windows of an array: `scatter` and its reductions, and the
//! start-by-array `slice_update`.
//!
//! Updates that meet take effect in the order of their indices, on every device, so results are
//! the same from run to run. On a GPU one thread walks all indices for each element of a window:
//! wide windows (rows of an embedding) run in parallel, scattering single elements does not.

use half::{bf16, f16};
use num_complex::Complex32;
use smallvec::SmallVec;

use super::add_windows;
use super::gather::{self, Window, broadcast_argument};
use super::offsets::{Picks, Rules};
use super::raw::{self, Walk};
use crate::array::{Array, DType, Meta};
use crate::cpu::simd::Complex;
use crate::cpu::tile::{Storage, with_types, with_width};
use crate::cpu::{CpuCall, threads};
use crate::error::{Error, Result};
#[cfg(feature = "gpu")]
use crate::gpu::{Bind, COMPLEX, GpuCall, Kernel, MATH, packed};
use crate::op::{
    Batch, Case, EVERY, Entry, Metas, Op, Tolerance, expect_contiguous, expect_dtype, expect_shape,
};
use crate::ops::{
    astype, conjugate, divide, equal, multiply, not_equal, reshape, subtract, where_, zeros_like,
};

/// How an update is combined with what is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduce {
    /// The update replaces it; of several, the last one stays.
    Set,
    /// The sum.
    Add,
    /// The product.
    Multiply,
    /// The larger one; NaN wins.
    Maximum,
    /// The smaller one; NaN wins.
    Minimum,
}

/// Cases of the updating operations.
pub(super) fn entries() -> Vec<Entry> {
    const REDUCES: [(&str, Reduce); 5] = [
        ("set", Reduce::Set),
        ("add", Reduce::Add),
        ("multiply", Reduce::Multiply),
        ("maximum", Reduce::Maximum),
        ("minimum", Reduce::Minimum),
    ];
    let rows = REDUCES.map(|(label, reduce)| {
        Case::new(format!("{label} rows"), &[&[5, 6], &[4], &[4, 1, 6]], move |x| {
            Ok(vec![scatter(&x[0], &[&x[1]], &x[2], &[0], reduce)?])
        })
        .fixed(1, DType::U32, 0.0..5.0)
    });
    let elements = REDUCES.map(|(label, reduce)| {
        Case::new(format!("{label} elements"), &[&[5, 3], &[7], &[7], &[7, 1, 1]], move |x| {
            Ok(vec![scatter(&x[0], &[&x[1], &x[2]], &x[3], &[0, 1], reduce)?])
        })
        .fixed(1, DType::I32, 0.0..5.0)
        .fixed(2, DType::U8, 0.0..3.0)
    });
    let dynamic = Case::new("block", &[&[6, 7], &[2, 3], &[2]], |x| {
        Ok(vec![slice_update_dynamic(&x[0], &x[1], &x[2], &[0, 1])?])
    });
    let dynamic = dynamic.fixed(2, DType::I32, 0.0..4.0).tolerance(Tolerance::Exact);
    const ROUNDED: Tolerance =
        Tolerance::Rounded(1.5, "every update of an element is rounded, as in MLX");
    vec![
        Entry {
            name: "scatter",
            cases: (rows.into_iter().chain(elements))
                .map(|case| case.dtypes(EVERY).tolerance(ROUNDED))
                .collect(),
        },
        Entry { name: "slice_update_dynamic", cases: vec![dynamic.dtypes(EVERY)] },
    ]
}

/// A copy of `x` with `updates` combined into the places that `indices` tell, one index array for
/// each of `axes`; the arrays broadcast together. The shape of the updates is that of the indices
/// followed by one window: 1 along the indexed axes and the whole length along the others.
///
/// Updates of one place take effect in the order of the indices. The gradient of a product with
/// respect to an update of 0 is NaN.
///
/// ```
/// use wootz::{Array, Reduce, scatter};
/// let x = Array::new([10, 20, 30])?;
/// let updates = Array::new([[1], [2], [3]])?;
/// let y = scatter(&x, &[&Array::new([0, 0, -1])?], &updates, &[0], Reduce::Add)?;
/// assert_eq!(y.to_vec::<i32>()?, [13, 20, 33]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn scatter(
    x: &Array,
    indices: &[&Array],
    updates: &Array,
    axes: &[i64],
    reduce: Reduce,
) -> Result<Array> {
    let axes = gather::distinct_axes("scatter", axes, x.rank())?;
    if indices.len() != axes.len() {
        let expected = format!("{} arrays", axes.len());
        return Err(Error::argument("scatter", "indices", expected, indices.len()));
    }
    let items: Vec<(usize, &Array)> = axes.iter().copied().zip(indices.iter().copied()).collect();
    let (picks, window) = gather::picks_of("scatter", x, &items, 0)?;
    let mut shape = picks.shape().to_vec();
    shape.extend((0..x.rank()).map(|axis| if axes.contains(&axis) { 1 } else { x.shape()[axis] }));
    let updates = broadcast_argument("scatter", "updates", &astype(updates, x.dtype())?, &shape)?;
    let updates = reshape(&updates, &window.gathered(picks.shape()))?;
    apply("scatter", x, &picks, &updates, window, reduce)
}

/// A copy of `x` with `update` written where the array `start_indices` says, with one start for
/// each of `axes`: MLX's `slice_update` with an array. The update must fit, and is converted to the
/// dtype of `x`.
///
/// ```
/// use wootz::{Array, slice_update_dynamic};
/// let x = Array::new([0, 0, 0, 0])?;
/// let y = slice_update_dynamic(&x, &Array::new([7, 8])?, &Array::new([1])?, &[0])?;
/// assert_eq!(y.to_vec::<i32>()?, [0, 7, 8, 0]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn slice_update_dynamic(
    x: &Array,
    update: &Array,
    start_indices: &Array,
    axes: &[i64],
) -> Result<Array> {
    // Missing leading axes are broadcast, as in MLX.
    let update = super::slice_update::stripped(update, x.rank())?;
    let mut shape = x.shape().to_vec();
    let lead = x.rank().saturating_sub(update.rank());
    for (length, &size) in shape.iter_mut().skip(lead).zip(update.shape()) {
        *length = size;
    }
    let update = broadcast_argument("slice_update", "update", &update, &shape)?;
    let start = gather::start("slice_update", x, start_indices, axes, &shape)?;
    if update.size() == 0 {
        return Ok(x.clone());
    }
    let update = astype(&update, x.dtype())?;
    let window = Window::new(shape.into(), (0..x.rank()).collect(), 0);
    apply("slice_update", x, &start, &update, window, Reduce::Set)
}

/// What is gathered again, as a gradient has it: zeros like `x` with updates added.
pub(super) fn added_to_zeros(
    op: &'static str,
    x: &Array,
    picks: &Picks,
    updates: &Array,
    window: Window,
) -> Result<Array> {
    match add_windows::added_up(op, x, picks, updates, &window)? {
        Some(sums) => Ok(sums),
        None => apply(op, &zeros_like(x)?, picks, updates, window, Reduce::Add),
    }
}

/// Scatters into windows. They are whole along the axes they have, or there is only one, so that
/// no element belongs to two of them.
pub(super) fn apply(
    op: &'static str,
    x: &Array,
    picks: &Picks,
    updates: &Array,
    window: Window,
    reduce: Reduce,
) -> Result<Array> {
    Scatter { op, window, reduce, rules: picks.rules().clone() }.apply(x, picks, updates)
}

/// Combines updates into windows; the indices come last.
#[derive(Debug)]
struct Scatter {
    op: &'static str,
    window: Window,
    reduce: Reduce,
    rules: Rules,
}

impl Op for Scatter {
    fn name(&self) -> &'static str {
        self.op
    }

    fn arguments(&self) -> &'static [&'static str] {
        self.rules.arguments(
            &["x", "updates", "indices", "indices", "indices", "indices", "indices", "indices"],
            &["x", "update", "start_indices", "start_indices", "start_indices", "start_indices"],
        )
    }

    fn infer(&self, inputs: &[&Meta]) -> Result<Metas> {
        self.rules.expect(self, inputs, 2)?;
        (0..2).try_for_each(|input| expect_contiguous(self, inputs, input))?;
        expect_dtype(self, inputs, 1, inputs[0].dtype)?;
        expect_shape(self, inputs, 1, &self.window.gathered(self.rules.shape()))?;
        Ok(Metas::from_elem(Meta::new(self.op, inputs[0].shape(), inputs[0].dtype)?, 1))
    }

    fn scratch(&self, _: &[&Meta], gpu: bool) -> usize {
        self.rules.scratch(gpu)
    }

    fn may_alias(&self) -> &'static [(usize, usize)] {
        &[(0, 0)]
    }

    fn cpu(&self, call: &mut CpuCall<'_>) -> Result<()> {
        let offsets = self.rules.on_cpu(self, call, 2)?;
        raw::copy_on_cpu(call, 0, 0)?;
        let (before, after) = self.window.walks(call.meta(0).shape());
        let dtype = call.meta(0).dtype;
        macro_rules! set {
            ($type:ty) => {{
                let updates = call.input::<$type>(1)?;
                let output = call.output::<$type>(0)?;
                combine(output, updates, &offsets, &before, &after, |_, update| update);
            }};
        }
        macro_rules! reduce {
            ($type:ty, $wide:ty) => {{
                let updates = call.input::<$type>(1)?;
                let output = call.output::<$type>(0)?;
                let walks = (&before, &after);
                match reducer(self.reduce, dtype == DType::Bool) {
                    Reducer::Add => combine(output, updates, &offsets, walks.0, walks.1, |a, b| {
                        <$type>::narrow(Arithmetic::sum(a.widen(), b.widen()))
                    }),
                    Reducer::Multiply => {
                        combine(output, updates, &offsets, walks.0, walks.1, |a, b| {
                            <$type>::narrow(Arithmetic::product(a.widen(), b.widen()))
                        })
                    }
                    Reducer::Maximum => {
                        combine(output, updates, &offsets, walks.0, walks.1, |a, b| {
                            if Arithmetic::above(a.widen(), b.widen()) { a } else { b }
                        })
                    }
                    Reducer::Minimum => {
                        combine(output, updates, &offsets, walks.0, walks.1, |a, b| {
                            if Arithmetic::below(a.widen(), b.widen()) { a } else { b }
                        })
                    }
                }
            }};
        }
        match self.reduce {
            Reduce::Set => with_width!(dtype.size(), set),
            _ => with_types!(dtype, reduce),
        }
        Ok(())
    }

    #[cfg(feature = "gpu")]
    fn gpu(&self, call: &mut GpuCall<'_>) -> Result<()> {
        self.rules.on_gpu(call, 2, Bind::Scratch)?;
        raw::copy_on_gpu(call, 0, 0, false)?;
        let (updates, inputs) = (call.meta(1), call.input_metas().count());
        let (before, after) = self.window.walks(call.meta(0).shape());
        let mut words = raw::Words::default();
        words.push("n", before.len() * after.len());
        words.push("updates_offset", updates.layout.offset);
        words.push("count", self.rules.count());
        words.push("run", after.len());
        words.walk("before", &before);
        words.walk("after", &after);
        let dtype = updates.dtype;
        let source = || {
            format!(
                "{}{}{}{}{}{}",
                packed::PACKING,
                words.text(),
                combine_functions(self.reduce, dtype),
                self.rules.reader(2),
                raw::MAIN,
                include_str!("scatter.wgsl"),
            )
        };
        let reduce = match self.reduce {
            Reduce::Set => format!("Set {}", dtype.size()),
            reduce => format!("{reduce:?} {dtype}"),
        };
        call.launch(&Kernel {
            variant: format!("scatter {reduce}{} {inputs}", words.key()),
            source: &source,
            bindings: &self.rules.bind(&[Bind::Input(1), Bind::Output(0)]),
            params: &words.words,
            groups: raw::threads_grid(before.len() * after.len()),
        })
    }

    fn vjp(
        &self,
        inputs: &[Array],
        outputs: &[Array],
        cotangents: &[Option<Array>],
    ) -> Result<Vec<Option<Array>>> {
        let mut gradients = vec![None; inputs.len()];
        let Some(gradient) = &cotangents[0] else { return Ok(gradients) };
        let (x, updates) = (&inputs[0], &inputs[1]);
        let picks = &Picks::again(&inputs[2..], &self.rules);
        let gathered = |from: &Array| gather::apply(self.op, from, picks, self.window.clone());
        let scattered = |into: &Array, updates: &Array, reduce| {
            apply(self.op, into, picks, updates, self.window.clone(), reduce)
        };
        let same = |a: &Array, b: &Array| astype(&equal(a, b)?, gradient.dtype());
        let (dx, du) = match self.reduce {
            Reduce::Set => {
                let hidden = scattered(gradient, &zeros_like(updates)?, Reduce::Set)?;
                let passed = gathered(gradient)?;
                let passed = match self.rules.count() {
                    1 => passed,
                    _ => multiply(&passed, &self.last_updates(x, picks, updates)?)?,
                };
                (hidden, passed)
            }
            Reduce::Add => (gradient.clone(), gathered(gradient)?),
            Reduce::Multiply => {
                // The product of all others: dividing the result by an update does not do for a zero.
                let zero = equal(updates, 0)?;
                let ones = astype(&zero, x.dtype())?;
                let plain = where_(&zero, 1, updates)?;
                let zeros = scattered(&zeros_like(x)?, &ones, Reduce::Add)?;
                let kept = scattered(x, &plain, Reduce::Multiply)?;
                let passed = gathered(&multiply(gradient, conjugate(&kept)?)?)?;
                let passed = divide(&passed, conjugate(&plain)?)?;
                let other_zeros = not_equal(subtract(gathered(&zeros)?, &ones)?, 0)?;
                (
                    scattered(gradient, &conjugate(updates)?, Reduce::Multiply)?,
                    where_(&other_zeros, 0, &passed)?,
                )
            }
            // All that equal the result share nothing: each has the whole gradient, as in MLX.
            Reduce::Maximum | Reduce::Minimum => (
                multiply(gradient, &same(&outputs[0], x)?)?,
                multiply(&gathered(gradient)?, &same(&gathered(&outputs[0])?, updates)?)?,
            ),
        };
        (gradients[0], gradients[1]) = (Some(dx), Some(du));
        Ok(gradients)
    }

    fn vmap(&self, batch: &Batch<'_>) -> Result<Vec<Array>> {
        let (x, updates) = (batch.spread(0)?, batch.spread(1)?);
        let (picks, updates, window) = match batch.batched[2..].contains(&true) {
            false => {
                let picks = Picks::again(&batch.inputs[2..], &self.rules);
                (picks, updates, self.window.with_batch(batch.size))
            }
            true => {
                let elements = batch.shape(0).iter().product();
                let picks = Picks::of_batch(batch, 2, &self.rules, Some(elements))?;
                let before = self.window.axes_before() as i64;
                (picks, crate::ops::moveaxis(&updates, 0, before)?, self.window.in_batch())
            }
        };
        Ok(vec![apply(self.op, &x, &picks, &updates, window, self.reduce)?])
    }
}

impl Scatter {
    fn apply(self, x: &Array, picks: &Picks, updates: &Array) -> Result<Array> {
        if updates.size() == 0 {
            return Ok(x.clone());
        }
        let (x, updates, indices) = (x.contiguous()?, updates.contiguous()?, picks.inputs()?);
        let inputs: SmallVec<[&Array; 4]> = [&x, &updates].into_iter().chain(&indices).collect();
        Array::apply(self, &inputs)
    }

    /// 1 for the updates that stayed and 0 for those that a later one replaced: each update writes
    /// its number and then looks whose is there. One element stands for a whole window.
    fn last_updates(&self, x: &Array, picks: &Picks, updates: &Array) -> Result<Array> {
        let numbers: Vec<u32> = (0..self.rules.count() as u32).collect();
        let numbers = Array::from_slice_on(&numbers, picks.shape(), x.device())?;
        let board = reshape(&zeros_like(x)?, &[x.size()])?;
        let board = astype(&board, DType::U32)?;
        let single = Window::new([1].into_iter().collect(), Default::default(), 0);
        let board = apply(self.op, &board, picks, &numbers, single.clone(), Reduce::Set)?;
        let stayed = equal(&gather::apply(self.op, &board, picks, single)?, &numbers)?;
        let mut shape = vec![1; updates.rank()];
        let first = self.window.axes_before();
        shape[first..first + picks.shape().len()].copy_from_slice(picks.shape());
        astype(&reshape(&stayed, &shape)?, updates.dtype())
    }
}

/// A reduction other than `set`.
enum Reducer {
    Add,
    Multiply,
    Maximum,
    Minimum,
}

/// Truth values are added by `or` and multiplied by `and`.
fn reducer(reduce: Reduce, boolean: bool) -> Reducer {
    match reduce {
        Reduce::Add if boolean => Reducer::Maximum,
        Reduce::Multiply if boolean => Reducer::Minimum,
        Reduce::Set | Reduce::Add => Reducer::Add,
        Reduce::Multiply => Reducer::Multiply,
        Reduce::Maximum => Reducer::Maximum,
        Reduce::Minimum => Reducer::Minimum,
    }
}

/// What reductions compute, in the wide type.
pub(super) trait Arithmetic: Copy {
    fn sum(self, other: Self) -> Self;
    fn product(self, other: Self) -> Self;
    /// Whether this is the maximum of both.
    fn above(self, other: Self) -> bool;
    /// Whether this is the minimum of both.
    fn below(self, other: Self) -> bool;
}

macro_rules! arithmetic {
    ($($type:ty: |$a:ident, $b:ident| $sum:expr, $product:expr, $nan:expr;)*) => {$(
        impl Arithmetic for $type {
            #[inline(always)]
            fn sum(self, other: Self) -> Self { let ($a, $b) = (self, other); $sum }
            #[inline(always)]
            fn product(self, other: Self) -> Self { let ($a, $b) = (self, other); $product }
            #[inline(always)]
            fn above(self, other: Self) -> bool { let $a = self; $nan || $a > other }
            #[inline(always)]
            fn below(self, other: Self) -> bool { let $a = self; $nan || $a < other }
        }
    )*};
}

arithmetic! {
    u32: |a, b| a.wrapping_add(b), a.wrapping_mul(b), false;
    i32: |a, b| a.wrapping_add(b), a.wrapping_mul(b), false;
    u64: |a, b| a.wrapping_add(b), a.wrapping_mul(b), false;
    i64: |a, b| a.wrapping_add(b), a.wrapping_mul(b), false;
    f32: |a, b| a + b, a * b, a.is_nan();
    f64: |a, b| a + b, a * b, a.is_nan();
}

impl Arithmetic for Complex32 {
    #[inline(always)]
    fn sum(self, other: Self) -> Self {
        self + other
    }
    #[inline(always)]
    fn product(self, other: Self) -> Self {
        self.times(other)
    }
    #[inline(always)]
    fn above(self, other: Self) -> bool {
        Complex::is_nan(self) || other.less(self)
    }
    #[inline(always)]
    fn below(self, other: Self) -> bool {
        Complex::is_nan(self) || self.less(other)
    }
}

/// Applies the updates in the order of the offsets.
fn combine<T: bytemuck::Pod + Send + Sync, U: Copy + Sync>(
    output: &mut [T],
    updates: &[U],
    offsets: &[usize],
    before: &Walk,
    after: &Walk,
    reduce: impl Fn(T, U) -> T + Sync,
) {
    let run = after.len();
    let block = block_of(output.len(), offsets, before, after);
    threads::chunks_mut(output, block, |chunk, output| {
        let start = chunk * block;
        for place in places_of(chunk, block, before) {
            let base = before.place(place) as usize;
            for (number, offset) in offsets.iter().enumerate() {
                let target = base + offset;
                if target < start || target >= start + output.len() {
                    continue;
                }
                let row = (place * offsets.len() + number) * run;
                let (target, row) = (target - start, &updates[row..row + run]);
                if after.is_run() {
                    for (output, &update) in output[target..target + run].iter_mut().zip(row) {
                        *output = reduce(*output, update);
                    }
                } else {
                    for (element, &update) in row.iter().enumerate() {
                        let output = &mut output[target + after.place(element) as usize];
                        *output = reduce(*output, update);
                    }
                }
            }
        }
    });
}

/// Elements of the blocks that threads own: those of one outermost place, or of some windows that are single runs.
pub(super) fn block_of(size: usize, offsets: &[usize], before: &Walk, after: &Walk) -> usize {
    let run = after.len();
    match (&before.shape[..], &before.strides[..]) {
        ([length], [stride]) if length * *stride as usize == size => *stride as usize,
        ([], []) if after.is_run() && offsets.iter().all(|offset| offset % run == 0) => {
            size.div_ceil(8 * run) * run
        }
        _ => size,
    }
}

/// The outermost places whose windows a block has.
pub(super) fn places_of(chunk: usize, block: usize, before: &Walk) -> std::ops::Range<usize> {
    match before.strides.first() {
        Some(&stride) if stride as usize == block => chunk..chunk + 1,
        _ => 0..before.len(),
    }
}

/// WGSL: the updates bound first, the output second, and `put(i, update)` that combines one
/// update with element `i`.
#[cfg(feature = "gpu")]
fn combine_functions(reduce: Reduce, dtype: DType) -> String {
    let size = dtype.size();
    if reduce == Reduce::Set {
        let bits = if size == 8 { "vec2u" } else { "u32" };
        return format!(
            "{}{}fn put(i: u32, update: {bits}) {{ out_set(i, update); }}\n",
            raw::reader("updates", 0, size),
            raw::writer("out", 1, size),
        );
    }
    let wide = packed::wgsl_type(dtype.class());
    if dtype.is_complex() {
        let value = match reducer(reduce, false) {
            Reducer::Add => "a + b",
            Reducer::Multiply => "wz_z_mul(a, b)",
            Reducer::Maximum => "wz_z_maximum(a, b)",
            Reducer::Minimum => "wz_z_minimum(a, b)",
        };
        return format!(
            "{MATH}{COMPLEX}{}{}fn put(i: u32, b: vec2f) {{ let a = out_data[i]; out_set(i, {value}); }}\n",
            packed::reader("updates", 0, dtype),
            packed::writer("out", 1, dtype),
        );
    }
    let load = match packed::per_word(dtype) {
        1 => "out_data[i]".to_string(),
        per_word => {
            let (shift, mask) = if per_word == 2 { (1, 1) } else { (2, 3) };
            format!("wz_widen_{dtype}(atomicLoad(&out_data[i >> {shift}u]), i & {mask}u)")
        }
    };
    // NaN is found on the bits, because fast math may assume that there is none.
    let nan = match dtype.is_float() {
        true => {
            "(bitcast<u32>(a) & 0x7fffffffu) > 0x7f800000u || \
                 !((bitcast<u32>(b) & 0x7fffffffu) > 0x7f800000u) && "
        }
        false => "",
    };
    let value = match reducer(reduce, dtype == DType::Bool) {
        Reducer::Add => "a + b".to_string(),
        Reducer::Multiply => "a * b".to_string(),
        Reducer::Maximum => format!("select(b, a, {nan}(a > b))"),
        Reducer::Minimum => format!("select(b, a, {nan}(a < b))"),
    };
    format!(
        "{}{}fn put(i: u32, b: {wide}) {{ let a = {load}; out_set(i, {value}); }}\n",
        packed::reader("updates", 0, dtype),
        packed::writer("out", 1, dtype),
    )
}
