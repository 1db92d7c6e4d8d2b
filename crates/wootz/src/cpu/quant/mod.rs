//! Products with quantized matrices: weights are read as they lie in a file, unpacked in registers and
//! multiplied as integers with activations in fixed point. Generating text takes as long as reading
//! the weights; these kernels are made to keep up with the memory.
//!
//! A format is an implementation of [`formats::Format`], an instruction set one of [`vector::Simd`];
//! the loop over both is in [`kernel`]. A product has the same bits whatever is computed beside it:
//! any number of threads, any number of rows of activations.

mod activations;
#[cfg(target_arch = "x86_64")]
mod avx2;
mod formats;
mod kernel;
#[cfg(target_arch = "aarch64")]
mod neon;
#[cfg(test)]
mod tests;
mod vector;

pub(crate) use activations::Activations;
pub(crate) use formats::Numbers;

use self::formats::Row;
use self::kernel::{AT_A_TIME, Kernels, MOST};
use self::vector::GROUP;
use crate::cpu::threads;
use crate::error::{Error, Result};

/// How activations are rounded before they are multiplied with quantized weights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Level {
    /// To 16 bits a group of thirty-two: results differ from those of floats by less than a ten
    /// thousandth of the largest.
    #[default]
    Exact,
    /// To 8 bits a group of thirty-two.
    Fast,
}

/// How weights lie in memory. GGUF's names for its blocks; the others are MLX's, with scales (and
/// biases) in arrays of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q2K,
    Q3K,
    Q4K,
    Q5K,
    Q6K,
    Iq4Nl,
    Iq4Xs,
    Mxfp4Blocks,
    Affine1,
    Affine2,
    Affine3,
    Affine4,
    Affine5,
    Affine6,
    Affine8,
    Mxfp4,
    Nvfp4,
}

/// What a format's rows are made of.
struct Shape {
    /// Weights in a block, and its bytes.
    weights: usize,
    bytes: usize,
    /// Arrays that lie apart: scales, biases.
    arrays: usize,
}

/// The kernels of each format.
macro_rules! tables {
    ($format:expr, $set:ident) => {{
        macro_rules! table {
            ($of:ty) => {{
                const TABLE: &Kernels = &$set::table::<$of>();
                TABLE
            }};
        }
        match $format {
            Format::Q4_0 => table!(formats::Q4_0),
            Format::Q4_1 => table!(formats::Q4_1),
            Format::Q5_0 => table!(formats::Q5_0),
            Format::Q5_1 => table!(formats::Q5_1),
            Format::Q8_0 => table!(formats::Q8_0),
            Format::Q2K => table!(formats::Q2K),
            Format::Q3K => table!(formats::Q3K),
            Format::Q4K => table!(formats::Q4K),
            Format::Q5K => table!(formats::Q5K),
            Format::Q6K => table!(formats::Q6K),
            Format::Iq4Nl => table!(formats::Iq4Nl),
            Format::Iq4Xs => table!(formats::Iq4Xs),
            Format::Mxfp4Blocks => table!(formats::Mxfp4Blocks),
            Format::Affine1 => table!(formats::Affine<1>),
            Format::Affine2 => table!(formats::Affine<2>),
            Format::Affine3 => table!(formats::Affine<3>),
            Format::Affine4 => table!(formats::Affine<4>),
            Format::Affine5 => table!(formats::Affine<5>),
            Format::Affine6 => table!(formats::Affine<6>),
            Format::Affine8 => table!(formats::Affine<8>),
            Format::Mxfp4 => table!(formats::Mxfp4),
            Format::Nvfp4 => table!(formats::Nvfp4),
        }
    }};
}

impl Format {
    /// MLX's affine format of a width, if these kernels know it.
    pub(crate) fn affine(bits: usize) -> Option<Format> {
        Some(match bits {
            1 => Format::Affine1,
            2 => Format::Affine2,
            3 => Format::Affine3,
            4 => Format::Affine4,
            5 => Format::Affine5,
            6 => Format::Affine6,
            8 => Format::Affine8,
            _ => return None,
        })
    }

    fn shape(self) -> Shape {
        let (weights, bytes, arrays) = match self {
            Format::Q4_0 | Format::Iq4Nl => (32, 18, 0),
            Format::Q4_1 => (32, 20, 0),
            Format::Q5_0 => (32, 22, 0),
            Format::Q5_1 => (32, 24, 0),
            Format::Q8_0 => (32, 34, 0),
            Format::Mxfp4Blocks => (32, 17, 0),
            Format::Q2K => (256, 84, 0),
            Format::Q3K => (256, 110, 0),
            Format::Q4K => (256, 144, 0),
            Format::Q5K => (256, 176, 0),
            Format::Q6K => (256, 210, 0),
            Format::Iq4Xs => (256, 136, 0),
            Format::Affine1 => (32, 4, 2),
            Format::Affine2 => (32, 8, 2),
            Format::Affine3 => (32, 12, 2),
            Format::Affine4 => (32, 16, 2),
            Format::Affine5 => (32, 20, 2),
            Format::Affine6 => (32, 24, 2),
            Format::Affine8 => (32, 32, 2),
            Format::Mxfp4 | Format::Nvfp4 => (32, 16, 1),
        };
        Shape { weights, bytes, arrays }
    }

    /// The kernels for this processor.
    fn kernels(self) -> &'static Kernels {
        #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
        {
            #[cfg(target_arch = "x86_64")]
            use {avx2::detected, kernel::avx2 as best};
            #[cfg(target_arch = "aarch64")]
            use {kernel::neon as best, neon::detected};
            static DETECTED: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
            if *DETECTED.get_or_init(detected) {
                return tables!(self, best);
            }
        }
        self.portable()
    }

    fn portable(self) -> &'static Kernels {
        use kernel::any;
        tables!(self, any)
    }
}

/// A quantized matrix of `rows × columns`, row-major, somewhere in memory.
#[derive(Clone, Copy)]
pub(crate) struct Weights<'a> {
    format: Format,
    rows: usize,
    columns: usize,
    codes: &'a [u8],
    apart: Apart<'a>,
    kernels: &'static Kernels,
}

/// Scales and biases that do not lie among the codes. Blocks have none, and only affine formats have
/// biases.
#[derive(Clone, Copy)]
pub(crate) struct Apart<'a> {
    pub(crate) scales: &'a [u8],
    pub(crate) biases: &'a [u8],
    pub(crate) numbers: Numbers,
    /// Weights that share a scale: 16 (only `Nvfp4`), 32, 64 or 128.
    pub(crate) group: usize,
}

impl Apart<'_> {
    /// What blocks have.
    pub(crate) const NONE: Apart<'static> =
        Apart { scales: &[], biases: &[], numbers: Numbers::Byte, group: GROUP };
}

impl<'a> Weights<'a> {
    /// A matrix, if the memory has its size. `op` is who asks, for errors.
    pub(crate) fn new(
        op: &'static str,
        format: Format,
        [rows, columns]: [usize; 2],
        codes: &'a [u8],
        apart: Apart<'a>,
    ) -> Result<Weights<'a>> {
        let Shape { weights, bytes, arrays } = format.shape();
        let unit = weights.max(apart.group);
        if columns % unit != 0 {
            let expected = format!("a last dimension that {unit} divides");
            return Err(Error::argument(op, "w", expected, columns));
        }
        if !matches!(apart.group, 16 | 32 | 64 | 128)
            || (apart.group == 16) != (format == Format::Nvfp4)
        {
            return Err(Error::argument(op, "group_size", "one of the format", apart.group));
        }
        let check = |argument: &str, each: usize, per: usize, got: usize| {
            let wanted = rows.checked_mul(columns / per).and_then(|n| n.checked_mul(each));
            match wanted == Some(got) {
                true => Ok(()),
                false => {
                    let expected = format!("{each} bytes for every {per} of {rows}×{columns}");
                    Err(Error::argument(op, argument, expected, format!("{got} bytes")))
                }
            }
        };
        check("w", bytes, weights, codes.len())?;
        let each = |array: usize| if arrays > array { apart.numbers.bytes() } else { 0 };
        check("scales", each(0), apart.group, apart.scales.len())?;
        check("biases", each(1), apart.group, apart.biases.len())?;
        Ok(Weights { format, rows, columns, codes, apart, kernels: format.kernels() })
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    pub(crate) fn columns(&self) -> usize {
        self.columns
    }

    /// Bytes of a row of codes.
    fn pitch(&self) -> usize {
        let Shape { weights, bytes, .. } = self.format.shape();
        self.columns / weights * bytes
    }

    /// Row `i`, or the last one.
    fn row(&self, i: usize) -> Row {
        let i = i.min(self.rows.saturating_sub(1));
        let Apart { scales, biases, numbers, group } = self.apart;
        let side = i * (self.columns / group) * numbers.bytes();
        Row {
            codes: self.codes.as_ptr().wrapping_add(i * self.pitch()),
            scales: scales.as_ptr().wrapping_add(side),
            biases: biases.as_ptr().wrapping_add(side),
            numbers,
            shared: (group / GROUP).max(1).ilog2() as usize,
        }
    }

    /// `x · weightsᵀ`: for every row of activations the dot products with all rows of weights, one
    /// row of results after the other.
    pub(crate) fn multiply(&self, op: &'static str, x: &Activations, to: &mut [f32]) -> Result<()> {
        if x.columns() != self.columns {
            let expected = format!("a last dimension of {}", self.columns);
            return Err(Error::argument(op, "x", expected, x.columns()));
        }
        check_output(op, x.rows().checked_mul(self.rows), to.len())?;
        if to.is_empty() {
            return Ok(());
        }
        let per_task = self.rows_per_task();
        let output = Output { to: to.as_mut_ptr(), stride: self.rows };
        threads::for_each(self.rows.div_ceil(per_task), |task| {
            let first = task * per_task;
            // SAFETY: rows and columns were checked, and every task has rows of its own.
            unsafe { self.task(x, first..(first + per_task).min(self.rows), &output) };
        });
        Ok(())
    }

    /// Decodes rows of weights, which are there, one after the other.
    pub(crate) fn decode(&self, op: &'static str, first: usize, to: &mut [f32]) -> Result<()> {
        let count = to.len() / self.columns.max(1);
        let end = first.checked_add(count).filter(|&end| end <= self.rows);
        check_output(op, end.and_then(|_| count.checked_mul(self.columns)), to.len())?;
        if to.is_empty() {
            return Ok(());
        }
        let per_task = (DECODE_TASK / self.columns).max(1);
        threads::chunks_mut(to, per_task * self.columns, |task, to| {
            for (i, to) in to.chunks_exact_mut(self.columns).enumerate() {
                let row = self.row(first + task * per_task + i);
                // SAFETY: the row was checked, and its output has its columns.
                unsafe { (self.kernels.decode)(&row, self.columns / GROUP, to.as_mut_ptr()) };
            }
        });
        Ok(())
    }

    /// Rows that a thread takes at a time: long stretches of memory, but some for everybody.
    fn rows_per_task(&self) -> usize {
        let rows = (TASK / self.pitch().max(1)).min(self.rows / TASKS);
        rows.next_multiple_of(MOST).max(MOST)
    }

    /// # Safety
    /// The rows are there, and nobody else writes their columns of the output.
    unsafe fn task(&self, x: &Activations, rows: std::ops::Range<usize>, output: &Output) {
        let groups = self.columns / GROUP;
        let [one, two, four] = self.kernels.dots[(x.level() == Level::Exact) as usize];
        let mut results = [0f32; MOST];
        let mut vector = 0;
        while vector < x.rows() {
            let left = x.rows() - vector;
            // Vectors past the last are the last again, and are not stored.
            let vectors: [_; MOST] = std::array::from_fn(|n| x.row((vector + n).min(x.rows() - 1)));
            let (kernel, across, down) = match left {
                1 => (one, 1, AT_A_TIME),
                2 => (two, 2, 1),
                _ => (four, MOST, 1),
            };
            // Each of the rows that are multiplied at once begins a stretch of its own, so that memory is
            // read in few long runs.
            let stretch = rows.len().div_ceil(down);
            for first in rows.start..rows.start + stretch {
                let weights: [_; MOST] = std::array::from_fn(|r| self.row(first + r * stretch));
                // SAFETY: the rows were checked; kernels fit the processor.
                unsafe {
                    kernel(&weights, &vectors, groups, &mut results);
                    for r in 0..down {
                        let row = first + r * stretch;
                        for n in 0..across.min(left) {
                            if row < rows.end {
                                *output.to.add((vector + n) * output.stride + row) = results[r + n];
                            }
                        }
                    }
                }
            }
            vector += across;
        }
    }
}

/// Bytes of weights in a task, and tasks to aim at where there are fewer weights.
const TASK: usize = 256 << 10;
const TASKS: usize = 16;
/// Weights that a task decodes.
const DECODE_TASK: usize = 16 << 10;

/// Where results go: a row of them for every row of activations.
struct Output {
    to: *mut f32,
    stride: usize,
}

// SAFETY: tasks write different columns.
unsafe impl Sync for Output {}

// SAFETY: a matrix is a shared borrow.
unsafe impl Sync for Weights<'_> {}

fn check_output(op: &'static str, wanted: Option<usize>, got: usize) -> Result<()> {
    match wanted == Some(got) {
        true => Ok(()),
        false => {
            let wanted =
                wanted.map_or("of rows that are there".into(), |wanted| wanted.to_string());
            Err(Error::argument(op, "output", format!("a length {wanted}"), got))
        }
    }
}
