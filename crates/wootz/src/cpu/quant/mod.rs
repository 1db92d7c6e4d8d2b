//! Products with quantized matrices: weights are read as they lie in a file, unpacked in registers and
//! multiplied as integers with activations in fixed point. Generating text takes as long as reading
//! the weights; these kernels are made to keep up with the memory.
//!
//! A format is an implementation of [`formats::Format`], an instruction set one of [`vector::Simd`];
//! the loop over both is in [`kernel`]. Many rows of activations are multiplied in tiles ([`many`], [`tiles`]).
//! A product has the same bits whatever is computed beside it: any number of threads, any number of rows of
//! activations. Only the two ways differ in their last bits, and shapes decide between them. Rows of activations that
//! integers do not stand for send all that are multiplied with them to the floats ([`panels`]).

mod activations;
#[cfg(target_arch = "x86_64")]
mod avx2;
mod formats;
mod kernel;
mod many;
#[cfg(target_arch = "aarch64")]
mod neon;
mod panels;
mod product;
#[cfg(test)]
mod tests;
mod tiles;
#[cfg(target_arch = "x86_64")]
mod two;
mod vector;
#[cfg(target_arch = "x86_64")]
mod vnni;

pub(crate) use activations::{Activations, Order};
pub(crate) use formats::Numbers;
pub(crate) use panels::{DEPTH, Floats};
pub(crate) use product::{Pair, Pairs, multiply_each};

use self::formats::Row;
use self::kernel::Kernels;
use self::tiles::Panels;
use self::vector::GROUP;
use smallvec::SmallVec;

use crate::error::{Error, Result};
use crate::quant::{self, Activations as Level, Scheme};

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

/// What an instruction set has for each format.
macro_rules! tables {
    ($format:expr, $table:ty, $module:ident :: $set:ident) => {{
        macro_rules! table {
            ($of:ty) => {{
                const TABLE: &$table = &$module::$set::table::<$of>();
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
    /// The kernels' name of a scheme, if they have one and rows of so many weights suit them.
    pub(crate) fn of(scheme: Scheme, columns: usize) -> Option<Format> {
        let format = match scheme {
            Scheme::Affine { bits, .. } => match bits {
                1 => Format::Affine1,
                2 => Format::Affine2,
                3 => Format::Affine3,
                4 => Format::Affine4,
                5 => Format::Affine5,
                6 => Format::Affine6,
                8 => Format::Affine8,
                _ => return None,
            },
            Scheme::Mxfp4 => Format::Mxfp4,
            Scheme::Nvfp4 => Format::Nvfp4,
            Scheme::Blocks(quant::Format::Q4_0) => Format::Q4_0,
            Scheme::Blocks(quant::Format::Q4_1) => Format::Q4_1,
            Scheme::Blocks(quant::Format::Q5_0) => Format::Q5_0,
            Scheme::Blocks(quant::Format::Q5_1) => Format::Q5_1,
            Scheme::Blocks(quant::Format::Q8_0) => Format::Q8_0,
            Scheme::Blocks(quant::Format::Q2_K) => Format::Q2K,
            Scheme::Blocks(quant::Format::Q3_K) => Format::Q3K,
            Scheme::Blocks(quant::Format::Q4_K) => Format::Q4K,
            Scheme::Blocks(quant::Format::Q5_K) => Format::Q5K,
            Scheme::Blocks(quant::Format::Q6_K) => Format::Q6K,
            Scheme::Blocks(quant::Format::IQ4_NL) => Format::Iq4Nl,
            Scheme::Blocks(quant::Format::IQ4_XS) => Format::Iq4Xs,
            Scheme::Blocks(quant::Format::MXFP4) => Format::Mxfp4Blocks,
            _ => return None,
        };
        let unit = format.shape().weights.max(scheme.granule());
        (columns > 0 && columns.is_multiple_of(unit)).then_some(format)
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
    fn kernels(self) -> Set {
        *self.sets().last().unwrap_or(&self.portable())
    }

    /// What this processor can run, the best last.
    fn sets(self) -> SmallVec<[Set; 3]> {
        let mut sets = SmallVec::from_slice(&[self.portable()]);
        #[cfg(target_arch = "x86_64")]
        if detected(0, avx2::detected) {
            let kernels = tables!(self, Kernels, kernel::avx2);
            sets.push(Set { kernels, panels: tables!(self, [Panels; 2], tiles::avx2) });
            if detected(1, vnni::detected) {
                let kernels = tables!(self, Kernels, kernel::vnni);
                sets.push(Set { kernels, panels: tables!(self, [Panels; 2], tiles::vnni) });
            }
        }
        #[cfg(target_arch = "aarch64")]
        if detected(0, neon::detected) {
            let kernels = tables!(self, Kernels, kernel::neon);
            sets.push(Set { kernels, panels: tables!(self, [Panels; 2], tiles::neon) });
        }
        sets
    }

    fn portable(self) -> Set {
        Set {
            kernels: tables!(self, Kernels, kernel::any),
            panels: tables!(self, [Panels; 2], tiles::any),
        }
    }
}

/// What an instruction set has for a format: for few rows of activations, and by level for many.
#[derive(Clone, Copy)]
struct Set {
    kernels: &'static Kernels,
    panels: &'static [Panels; 2],
}

/// Whether this processor has one of the instruction sets that kernels are compiled for, by number: asked once.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn detected(set: usize, ask: fn() -> bool) -> bool {
    static DETECTED: [std::sync::OnceLock<bool>; 2] =
        [std::sync::OnceLock::new(), std::sync::OnceLock::new()];
    *DETECTED[set].get_or_init(ask)
}

/// A quantized matrix of `rows × columns`, row-major, somewhere in memory.
#[derive(Clone, Copy)]
pub(crate) struct Weights<'a> {
    format: Format,
    rows: usize,
    columns: usize,
    codes: &'a [u8],
    apart: Apart<'a>,
    /// Bytes from a row to the next: of codes, and of each array that lies apart.
    pitch: usize,
    pitch_apart: usize,
    set: Set,
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
        let pitch = columns / weights * bytes;
        let pitch_apart = columns / apart.group * apart.numbers.bytes();
        let set = format.kernels();
        Ok(Weights { format, rows, columns, codes, apart, pitch, pitch_apart, set })
    }

    /// How activations of a level must lie to be multiplied.
    pub(crate) fn order(&self, level: Level) -> Order {
        self.set.kernels.orders[(level == Level::Exact) as usize]
    }

    /// Whether activations can be multiplied with the rows.
    fn check_activations(&self, op: &'static str, x: &Activations<'_>) -> Result<()> {
        if x.columns() != self.columns {
            let expected = format!("a last dimension of {}", self.columns);
            return Err(Error::argument(op, "x", expected, x.columns()));
        }
        let order = self.order(x.level());
        match x.order() == order {
            true => Ok(()),
            false => {
                let expected = format!("activations in the order {order:?}");
                Err(Error::argument(op, "x", expected, format!("{:?}", x.order())))
            }
        }
    }

    /// Row `i`, or the last one.
    fn row(&self, i: usize) -> Row {
        let i = i.min(self.rows.saturating_sub(1));
        let Apart { scales, biases, numbers, group } = self.apart;
        let side = i * self.pitch_apart;
        Row {
            codes: self.codes.as_ptr().wrapping_add(i * self.pitch),
            scales: scales.as_ptr().wrapping_add(side),
            biases: biases.as_ptr().wrapping_add(side),
            numbers,
            shared: (group / GROUP).max(1).ilog2() as usize,
        }
    }

    /// The same from a column on that is a multiple of [`DEPTH`].
    fn row_from(&self, i: usize, first: usize) -> Row {
        let Shape { weights, bytes, .. } = self.format.shape();
        let side = first / self.apart.group * self.apart.numbers.bytes();
        let row = self.row(i);
        Row {
            codes: row.codes.wrapping_add(first / weights * bytes),
            scales: row.scales.wrapping_add(side),
            biases: row.biases.wrapping_add(side),
            ..row
        }
    }

    /// Decodes weights of a row from a column on that is a multiple of [`DEPTH`], a whole number of blocks. `op` is who
    /// asks, for errors.
    pub(crate) fn decode(
        &self,
        op: &'static str,
        row: usize,
        first: usize,
        to: &mut [f32],
    ) -> Result<()> {
        let Shape { weights, .. } = self.format.shape();
        let fits = first.checked_add(to.len()).is_some_and(|end| end <= self.columns);
        let whole = first.is_multiple_of(DEPTH) && to.len().is_multiple_of(weights.max(GROUP));
        if row >= self.rows || !fits || !whole {
            let expected = format!("whole blocks of {} rows of {}", self.rows, self.columns);
            let got = format!("{} weights of row {row} from {first} on", to.len());
            return Err(Error::argument(op, "w", expected, got));
        }
        let row = self.row_from(row, first);
        // SAFETY: the row has the weights, and the output has room for them.
        unsafe { (self.set.kernels.decode)(&row, to.len() / GROUP, to.as_mut_ptr()) };
        Ok(())
    }
}

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
