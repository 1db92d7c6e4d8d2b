//! Evenly spaced numbers: `arange` and `linspace`.

use crate::array::{Array, DType, Meta, Scalar};
use crate::cpu::tile::{Storage, TILE};
use crate::cpu::{CpuCall, threads};
use crate::error::{Error, Result};
#[cfg(feature = "gpu")]
use crate::gpu::GpuCall;
use crate::op::{Case, Entry, Gradient, Metas, Op, expect_inputs};
use crate::ops::{add, astype, divide, multiply, subtract};

/// Cases of ranges; the argument only tells the dtype.
pub(crate) fn entries() -> Vec<Entry> {
    let case = |label: &str, size: f64, step: f64| {
        Case::new(label, &[&[1]], move |x| {
            Ok(vec![arange_on(0.0, size * step, step, x[0].dtype(), x[0].device())?])
        })
        .dtypes(&crate::op::EVERY[1..])
        .gradient(Gradient::Zero)
    };
    vec![Entry {
        name: "arange",
        cases: vec![case("up", 100.0, 1.0), case("more than one chunk", 3001.0, 3.0)],
    }]
}

/// Numbers from `start` in steps up to and excluding `stop`. Without a `dtype` they are `int32` if
/// all three are integers, else `float32`.
///
/// ```
/// use wootz::{DType, arange};
/// assert_eq!(arange(5, 0, -2, None)?.to_vec::<i32>()?, [5, 3, 1]);
/// assert_eq!(arange(0, 1, 0.5, None)?.to_vec::<f32>()?, [0.0, 0.5]);
/// assert_eq!(arange(0, 3, 1, DType::U8)?.dtype(), DType::U8);
/// assert_eq!(arange(2, 9, f64::INFINITY, None)?.to_vec::<f32>()?, [2.0]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn arange(
    start: impl Into<Scalar>,
    stop: impl Into<Scalar>,
    step: impl Into<Scalar>,
    dtype: impl Into<Option<DType>>,
) -> Result<Array> {
    let numbers: [Scalar; 3] = [start.into(), stop.into(), step.into()];
    let natural = numbers.iter().map(|number| number.default_dtype()).reduce(DType::promote);
    let dtype = dtype.into().or(natural).unwrap_or(DType::I32);
    let [start, stop, step] = numbers.map(Scalar::as_f64);
    arange_on(start, stop, step, dtype, &crate::device::Device::default_device())
}

/// As [`arange`], on a device of choice.
pub(crate) fn arange_on(
    start: f64,
    stop: f64,
    step: f64,
    dtype: DType,
    device: &crate::device::Device,
) -> Result<Array> {
    if dtype == DType::Bool {
        return Err(Error::dtype("arange", "dtype", "a numeric type", dtype));
    }
    if dtype.is_complex() {
        return astype(&arange_on(start, stop, step, DType::F32, device)?, dtype);
    }
    if step == 0.0 {
        return Err(Error::argument("arange", "step", "a step other than 0", step));
    }
    if !(start.is_finite() && stop.is_finite() && !step.is_nan()) {
        let got = format!("{start}, {stop}, {step}");
        return Err(Error::argument("arange", "numbers", "finite numbers", got));
    }
    // A step beyond all numbers still leaves the first one.
    let ahead = (stop - start) * step.signum() > 0.0;
    let count = match step.is_infinite() && ahead {
        true => 1.0,
        false => ((stop - start) / step).ceil().max(0.0),
    };
    if count > isize::MAX as f64 {
        let (op, argument, got) = ("arange", "stop".into(), format!("{count} elements"));
        return Err(Error::SizeOverflow { op, argument, got, limit: isize::MAX as u64 });
    }
    // As MLX does, the step is what lies between the first two numbers in the result's dtype.
    let step = if count > 1.0 { step } else { 0.0 };
    let op = match dtype.is_float() {
        true => {
            let first = round_to(dtype, start);
            Range {
                dtype,
                count: count as usize,
                start: first,
                step: round_to(dtype, round_to(dtype, start + step) - first),
                integers: (0, 0),
            }
        }
        false => {
            let integers = (start as i64, ((start + step) as i64).wrapping_sub(start as i64));
            Range { dtype, count: count as usize, start: 0.0, step: 0.0, integers }
        }
    };
    Ok(Array::apply_on(op.into(), &[], device)?.remove(0))
}

/// `num` numbers spread evenly from `start` to `stop`, which is the last of them if `endpoint`.
///
/// ```
/// use wootz::{DType, linspace};
/// assert_eq!(linspace(0.0, 1.0, 3, true, DType::F32)?.to_vec::<f32>()?, [0.0, 0.5, 1.0]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn linspace(start: f64, stop: f64, num: usize, endpoint: bool, dtype: DType) -> Result<Array> {
    let wide = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
    let parts = if endpoint { num.saturating_sub(1) } else { num };
    if parts == 0 {
        return crate::ops::full(&[num], start, dtype);
    }
    let numbers = arange_on(0.0, num as f64, 1.0, wide, &crate::device::Device::default_device())?;
    let t = divide(numbers, parts as f64)?;
    let mixed = add(multiply(subtract(1, &t)?, start)?, multiply(&t, stop)?)?;
    astype(&mixed, dtype)
}

fn round_to(dtype: DType, value: f64) -> f64 {
    match dtype {
        DType::F16 => half::f16::from_f64(value).to_f64(),
        DType::BF16 => half::bf16::from_f64(value).to_f64(),
        DType::F32 => value as f32 as f64,
        _ => value,
    }
}

/// The numbers `start + i * step`; for integer dtypes those of `integers`.
#[derive(Clone, Debug)]
struct Range {
    dtype: DType,
    count: usize,
    start: f64,
    step: f64,
    integers: (i64, i64),
}

impl Op for Range {
    fn name(&self) -> &'static str {
        "arange"
    }

    fn arguments(&self) -> &'static [&'static str] {
        &["output"]
    }

    fn infer(&self, inputs: &[&Meta]) -> Result<Metas> {
        expect_inputs(self, inputs, 0)?;
        Ok(Metas::from_elem(Meta::new(self.name(), &[self.count], self.dtype)?, 1))
    }

    fn cpu(&self, call: &mut CpuCall<'_>) -> Result<()> {
        const CHUNK: usize = 16 * TILE;
        macro_rules! fill {
            ($type:ty, $number:expr) => {
                threads::chunks_mut(call.output::<$type>(0)?, CHUNK, |chunk, out| {
                    for (i, out) in out.iter_mut().enumerate() {
                        *out = $number((chunk * CHUNK + i) as i64);
                    }
                })
            };
        }
        let float = |i: i64| self.start + i as f64 * self.step;
        let integer = |i: i64| self.integers.0.wrapping_add(i.wrapping_mul(self.integers.1));
        match self.dtype {
            DType::F16 => fill!(half::f16, |i| half::f16::narrow(float(i) as f32)),
            DType::BF16 => fill!(half::bf16, |i| half::bf16::narrow(float(i) as f32)),
            DType::F32 => fill!(f32, |i| float(i) as f32),
            DType::F64 => fill!(f64, float),
            _ => match self.dtype.size() {
                1 => fill!(u8, |i| integer(i) as u8),
                2 => fill!(u16, |i| integer(i) as u16),
                4 => fill!(u32, |i| integer(i) as u32),
                _ => fill!(u64, |i| integer(i) as u64),
            },
        }
        Ok(())
    }

    #[cfg(feature = "gpu")]
    fn gpu(&self, call: &mut GpuCall<'_>) -> Result<()> {
        use crate::gpu::{Bind, Kernel, grid, packed};
        let dtype = self.dtype;
        let words = self.count.div_ceil(packed::per_word(dtype));
        let (start, step) = match dtype.is_float() {
            true => {
                let bits = |value: f64| (value as f32).to_bits() as u64;
                (bits(self.start), bits(self.step))
            }
            false => (self.integers.0 as u64, self.integers.1 as u64),
        };
        call.launch(&Kernel {
            variant: format!("{dtype}"),
            source: &|| {
                let number = match (dtype.is_float(), dtype.size()) {
                    (true, _) => "fma(f32(i), bitcast<f32>(p.step), bitcast<f32>(p.start))".into(),
                    (_, 8) => {
                        let wide = packed::wgsl_type(dtype.class());
                        let long = |low: &str| {
                            format!("({wide}(p.{low}) | ({wide}(p.{low}_high) << 32u))")
                        };
                        format!("{} + {wide}(i) * {}", long("start"), long("step"))
                    }
                    _ => format!("{}(p.start + i * p.step)", packed::wgsl_type(dtype.class())),
                };
                let wide = packed::wgsl_type(dtype.class());
                [
                    packed::PACKING,
                    include_str!("range.wgsl"),
                    &format!("fn number(i: u32) -> {wide} {{ return {number}; }}\n"),
                    &packed::word_writer("out", 0, dtype),
                    &crate::gpu::packed::word_main(dtype, "p.count", "number"),
                ]
                .concat()
            },
            bindings: &[Bind::Output(0)],
            params: &[
                self.count as u32,
                start as u32,
                (start >> 32) as u32,
                step as u32,
                (step >> 32) as u32,
            ],
            groups: grid(words.div_ceil(packed::WORD_MAIN_GROUP)),
        })
    }

    fn vjp(&self, _: &[Array], _: &[Array], _: &[Option<Array>]) -> Result<Vec<Option<Array>>> {
        Ok(Vec::new())
    }
}
