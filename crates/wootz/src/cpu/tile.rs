//! Tiles: short runs of elements, widened to the type they are computed in. Loads from any layout
//! and dtype, stores to any dtype, and the rounding in between.

use bytemuck::Pod;
use half::{bf16, f16, slice::HalfFloatSliceExt};
use num_complex::Complex32;
use smallvec::SmallVec;

use super::simd::dispatch;
use crate::array::{Class, DType};

/// Elements of a tile: small enough that several tiles stay in the first-level cache.
pub(crate) const TILE: usize = 1024;

/// Calls a macro with the storage type and the class type of a dtype.
macro_rules! with_types {
    ($dtype:expr, $body:ident) => {
        match $dtype {
            DType::Bool | DType::U8 => $body!(u8, u32),
            DType::U16 => $body!(u16, u32),
            DType::U32 => $body!(u32, u32),
            DType::U64 => $body!(u64, u64),
            DType::I8 => $body!(i8, i32),
            DType::I16 => $body!(i16, i32),
            DType::I32 => $body!(i32, i32),
            DType::I64 => $body!(i64, i64),
            DType::F16 => $body!(f16, f32),
            DType::BF16 => $body!(bf16, f32),
            DType::F32 => $body!(f32, f32),
            DType::F64 => $body!(f64, f64),
            DType::C64 => $body!(num_complex::Complex32, num_complex::Complex32),
        }
    };
}

/// Calls a macro with the unsigned type of an element's width in bytes.
macro_rules! with_width {
    ($size:expr, $body:ident) => {
        match $size {
            1 => $body!(u8),
            2 => $body!(u16),
            4 => $body!(u32),
            _ => $body!(u64),
        }
    };
}

pub(crate) use {with_types, with_width};

/// A stored element and the type it is computed in.
pub(crate) trait Storage: Pod {
    type Wide: Pod + Send + Sync;
    fn widen(self) -> Self::Wide;
    fn narrow(wide: Self::Wide) -> Self;
    #[inline(always)]
    fn widen_slice(source: &[Self], target: &mut [Self::Wide]) {
        for (target, source) in target.iter_mut().zip(source) {
            *target = source.widen();
        }
    }
    #[inline(always)]
    fn narrow_slice(source: &[Self::Wide], target: &mut [Self]) {
        for (target, source) in target.iter_mut().zip(source) {
            *target = Self::narrow(*source);
        }
    }
}

macro_rules! integer_storage {
    ($($narrow:ty => $wide:ty),*) => {$(
        impl Storage for $narrow {
            type Wide = $wide;
            #[inline(always)]
            fn widen(self) -> $wide { self as $wide }
            #[inline(always)]
            fn narrow(wide: $wide) -> $narrow { wide as $narrow }
        }
    )*};
}

integer_storage!(u8 => u32, u16 => u32, u32 => u32, u64 => u64, i8 => i32, i16 => i32, i32 => i32,
    i64 => i64, f32 => f32, f64 => f64);

impl Storage for Complex32 {
    type Wide = Complex32;
    #[inline(always)]
    fn widen(self) -> Complex32 {
        self
    }
    #[inline(always)]
    fn narrow(wide: Complex32) -> Complex32 {
        wide
    }
}

impl Storage for bf16 {
    type Wide = f32;
    #[inline(always)]
    fn widen(self) -> f32 {
        f32::from_bits((self.to_bits() as u32) << 16)
    }
    /// To nearest, ties to even; every NaN becomes the canonical one.
    #[inline(always)]
    fn narrow(wide: f32) -> bf16 {
        let bits = wide.to_bits();
        let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
        bf16::from_bits(if wide.is_nan() { 0x7fc0 } else { rounded as u16 })
    }
}

impl Storage for f16 {
    type Wide = f32;
    #[inline(always)]
    fn widen(self) -> f32 {
        self.to_f32()
    }
    #[inline(always)]
    fn narrow(wide: f32) -> f16 {
        f16::from_f32(wide)
    }
    // The crate's slice functions use the processor's conversion instructions.
    fn widen_slice(source: &[f16], target: &mut [f32]) {
        source.convert_to_f32_slice(&mut target[..source.len()]);
    }
    fn narrow_slice(source: &[f32], target: &mut [f16]) {
        target.convert_from_f32_slice(&source[..target.len()]);
    }
}

/// Whether elements are stored in the type they are computed in.
pub(crate) fn is_wide(dtype: DType) -> bool {
    dtype.size() == dtype.class().size()
}

/// Widens contiguous elements.
pub(crate) fn widen(dtype: DType, source: &[u8], target: &mut [u8]) {
    macro_rules! body {
        ($narrow:ty, $wide:ty) => {{
            let (source, target) = (cast::<$narrow>(source), cast_mut::<$wide>(target));
            dispatch(|| <$narrow>::widen_slice(source, target));
        }};
    }
    with_types!(dtype, body);
}

/// Narrows to contiguous elements.
pub(crate) fn narrow(dtype: DType, source: &[u8], target: &mut [u8]) {
    macro_rules! body {
        ($narrow:ty, $wide:ty) => {{
            let (source, target) = (cast::<$wide>(source), cast_mut::<$narrow>(target));
            dispatch(|| <$narrow>::narrow_slice(source, target));
        }};
    }
    with_types!(dtype, body);
}

/// Rounds or wraps computed values to what the dtype can hold.
pub(crate) fn round(dtype: DType, values: &mut [u8]) {
    macro_rules! body {
        ($narrow:ty, $wide:ty) => {{
            for chunk in cast_mut::<$wide>(values).chunks_mut(256) {
                let mut stored = [<$narrow as bytemuck::Zeroable>::zeroed(); 256];
                let stored = &mut stored[..chunk.len()];
                dispatch(|| {
                    <$narrow>::narrow_slice(chunk, stored);
                    <$narrow>::widen_slice(stored, chunk);
                });
            }
        }};
    }
    match dtype {
        DType::Bool => dispatch(|| {
            for value in cast_mut::<u32>(values) {
                *value = (*value != 0) as u32;
            }
        }),
        _ if is_wide(dtype) => {}
        _ => with_types!(dtype, body),
    }
}

/// Fills a tile with one value, given as the low bits of a word.
pub(crate) fn fill(class: Class, bits: u64, target: &mut [u8]) {
    match class.size() {
        4 => cast_mut::<u32>(target).fill(bits as u32),
        _ => cast_mut::<u64>(target).fill(bits),
    }
}

/// An operand as a walk over a common, collapsed shape.
pub(crate) struct Walk<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) dtype: DType,
    pub(crate) offset: usize,
    pub(crate) strides: &'a [isize],
}

impl Walk<'_> {
    /// Loads and widens the elements `start..start + count` of the row-major order of `shape`.
    pub(crate) fn load(&self, shape: &[usize], start: usize, count: usize, target: &mut [u8]) {
        macro_rules! body {
            ($narrow:ty, $wide:ty) => {{
                let source = cast::<$narrow>(
                    &self.bytes[..self.bytes.len() / size_of::<$narrow>() * size_of::<$narrow>()],
                );
                let target = &mut cast_mut::<$wide>(target)[..count];
                dispatch(|| self.gather::<$narrow>(source, shape, start, target));
            }};
        }
        with_types!(self.dtype, body);
    }

    #[inline(always)]
    fn gather<T: Storage>(
        &self,
        source: &[T],
        shape: &[usize],
        start: usize,
        target: &mut [T::Wide],
    ) {
        // One element for all; the target may then be longer than the shape.
        let Some(last) =
            shape.len().checked_sub(1).filter(|_| self.strides.iter().any(|&s| s != 0))
        else {
            target.fill(source[self.offset].widen());
            return;
        };
        let mut index: SmallVec<[usize; 8]> = SmallVec::from_elem(0, shape.len());
        let mut rest = start;
        let mut position = self.offset as isize;
        for axis in (0..shape.len()).rev() {
            index[axis] = rest % shape[axis];
            rest /= shape[axis];
            position += index[axis] as isize * self.strides[axis];
        }
        let stride = self.strides[last];
        let mut done = 0;
        while done < target.len() {
            let run = (shape[last] - index[last]).min(target.len() - done);
            let out = &mut target[done..done + run];
            let first = position as usize;
            match stride {
                1 => T::widen_slice(&source[first..first + run], out),
                0 => out.fill(source[first].widen()),
                _ => {
                    let mut at = position;
                    for value in out {
                        *value = source[at as usize].widen();
                        at += stride;
                    }
                }
            }
            done += run;
            // Carry into the outer axes.
            position += stride * run as isize;
            index[last] += run;
            let mut axis = last;
            while index[axis] == shape[axis] && axis > 0 {
                position -= self.strides[axis] * shape[axis] as isize;
                index[axis] = 0;
                axis -= 1;
                index[axis] += 1;
                position += self.strides[axis];
            }
        }
    }
}

/// Bytes as elements. Callers hand over whole, aligned elements of buffers and tiles.
#[inline(always)]
pub(crate) fn cast<T: Pod>(bytes: &[u8]) -> &[T] {
    bytemuck::cast_slice(bytes)
}

/// Bytes as writable elements.
#[inline(always)]
pub(crate) fn cast_mut<T: Pod>(bytes: &mut [u8]) -> &mut [T] {
    bytemuck::cast_slice_mut(bytes)
}
