//! Values on the host: drawn at random, rounded to a dtype, compared as doubles or as bytes.

use std::sync::LazyLock;

use half::{bf16, f16};
use wootz::op::CaseInput;
use wootz::{Array, DType, Device, Result};

/// A row-major array in host memory.
#[derive(Clone, Debug)]
pub(crate) struct Host {
    pub(crate) shape: Vec<usize>,
    pub(crate) dtype: DType,
    pub(crate) bytes: Vec<u8>,
}

impl Host {
    /// Values rounded, or wrapped, to `dtype`.
    pub(crate) fn from_f64(shape: &[usize], dtype: DType, values: &[f64]) -> Host {
        let bytes = values.iter().flat_map(|&value| encode(dtype, value)).collect();
        Host { shape: shape.to_vec(), dtype, bytes }
    }

    pub(crate) fn to_f64(&self) -> Vec<f64> {
        self.bytes.chunks_exact(self.dtype.size()).map(|bytes| decode(self.dtype, bytes)).collect()
    }

    /// The same values in another dtype.
    pub(crate) fn cast(&self, dtype: DType) -> Host {
        Host::from_f64(&self.shape, dtype, &self.to_f64())
    }

    pub(crate) fn size(&self) -> usize {
        self.shape.iter().product()
    }

    /// What an array holds. Its shape must fit its bytes.
    pub(crate) fn read(array: &Array) -> Result<Host> {
        let bytes = array.to_bytes()?;
        Ok(Host { shape: array.shape().to_vec(), dtype: array.dtype(), bytes })
    }

    pub(crate) fn array(&self, device: &Device) -> Result<Array> {
        Array::from_bytes_on(&self.bytes, &self.shape, self.dtype, device)
    }
}

/// One element's bytes.
pub(crate) fn encode(dtype: DType, value: f64) -> Vec<u8> {
    // Integers wrap, as the kernels' arithmetic does; NaN has no integer and becomes 0.
    let integer = value as i128 as u128;
    match dtype {
        DType::Bool => vec![(value != 0.0) as u8],
        DType::F16 => f16::from_f64(value).to_le_bytes().to_vec(),
        DType::BF16 => bf16::from_f64(value).to_le_bytes().to_vec(),
        DType::F32 => (value as f32).to_le_bytes().to_vec(),
        DType::F64 => value.to_le_bytes().to_vec(),
        _ => integer.to_le_bytes()[..dtype.size()].to_vec(),
    }
}

fn decode(dtype: DType, b: &[u8]) -> f64 {
    let word = || {
        let mut wide = [0; 8];
        wide[..b.len()].copy_from_slice(b);
        u64::from_le_bytes(wide)
    };
    match dtype {
        DType::F16 => f16::from_le_bytes([b[0], b[1]]).to_f64(),
        DType::BF16 => bf16::from_le_bytes([b[0], b[1]]).to_f64(),
        DType::F32 => f32::from_le_bytes([b[0], b[1], b[2], b[3]]) as f64,
        DType::F64 => f64::from_bits(word()),
        signed if signed.is_signed_integer() => {
            let shift = 64 - 8 * b.len();
            ((word() << shift) as i64 >> shift) as f64
        }
        _ => word() as f64,
    }
}

/// A small generator of random numbers, the same on every machine.
pub(crate) struct Random(u64);

impl Random {
    /// A stream that depends on the text only, and on `WOOTZ_SEED` where that asks for others.
    pub(crate) fn new(seed: &str) -> Random {
        static OTHERS: LazyLock<String> =
            LazyLock::new(|| std::env::var("WOOTZ_SEED").unwrap_or_default());
        let hash = |hash: u64, byte: u8| (hash ^ byte as u64).wrapping_mul(0x100_0000_01b3);
        Random(seed.bytes().chain(OTHERS.bytes()).fold(0xcbf2_9ce4_8422_2325, hash))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in 0..1.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Values in ±1.
    pub(crate) fn signed(&mut self, count: usize) -> Vec<f64> {
        (0..count).map(|_| 2.0 * self.unit() - 1.0).collect()
    }

    /// The numbers below `count` in random order.
    fn shuffled(&mut self, count: usize) -> Vec<usize> {
        let mut numbers: Vec<usize> = (0..count).collect();
        for i in (1..count).rev() {
            numbers.swap(i, self.next() as usize % (i + 1));
        }
        numbers
    }

    /// Values for an argument of a case, in `dtype` unless it has one of its own. Floats that are
    /// `apart` come from one each of as many equal parts of the range as there are elements: no
    /// two are so close that finite differences change which is the larger.
    pub(crate) fn draw(&mut self, input: &CaseInput, dtype: DType, apart: bool) -> Host {
        let dtype = input.dtype.unwrap_or(dtype);
        let size = input.shape.iter().product();
        let (low, high) = (input.range.start, input.range.end);
        let values: Vec<f64> = if dtype.is_float() {
            // Away from the ends, so that finite differences stay inside.
            let parts = if apart { self.shuffled(size) } else { Vec::new() };
            let mut place = |i: usize| match parts.get(i) {
                Some(&part) => (part as f64 + 0.25 + 0.5 * self.unit()) / size as f64,
                None => self.unit(),
            };
            (0..size).map(|i| low + (high - low) * (0.001 + 0.998 * place(i))).collect()
        } else if dtype == DType::Bool {
            (0..size).map(|_| (self.next() >> 40 & 1) as f64).collect()
        } else {
            let low = if dtype.is_signed_integer() { low } else { low.max(0.0) }.ceil() as i64;
            let count = (high.ceil() as i64 - low).max(1) as u64;
            (0..size).map(|_| (low + (self.next() % count) as i64) as f64).collect()
        };
        Host::from_f64(&input.shape, dtype, &values)
    }
}
