//! How an array is quantized: a format of GGUF's blocks, or one of MLX's with arrays of their own for
//! codes, scales and biases.

use std::fmt;

use super::{Affine, FloatGroups, Format};
use crate::error::{Error, Result};

/// How weights along the last axis of an array are quantized.
///
/// ```
/// use wootz::quant::{Format, Scheme};
/// assert_eq!(Scheme::new("affine", None, None)?, Scheme::Affine { group_size: 64, bits: 4 });
/// assert_eq!(Scheme::from(Format::Q4_K).to_string(), "Q4_K");
/// # Ok::<(), wootz::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Scheme {
    /// One array of bytes: GGUF's blocks, row by row.
    Blocks(Format),
    /// MLX's `affine`: codes in words, and a scale and a bias for each group.
    Affine {
        /// Weights that share a scale and a bias: 32, 64 or 128.
        group_size: usize,
        /// Bits of a code: 1 to 6, or 8.
        bits: usize,
    },
    /// MLX's `mxfp4`: floats of 4 bits in words, and a power of two for each 32.
    Mxfp4,
    /// MLX's `mxfp8`: floats of 8 bits in words, and a power of two for each 32.
    Mxfp8,
    /// MLX's `nvfp4`: floats of 4 bits in words, and a float of 8 bits for each 16.
    Nvfp4,
}

impl Scheme {
    /// MLX's scheme of a `mode`, with the group size and the bits that are usual in it if they are not
    /// given. An error if the mode does not have them.
    pub fn new(mode: &str, group_size: Option<usize>, bits: Option<usize>) -> Result<Scheme> {
        let (scheme, usual) = match mode {
            "affine" => {
                let (group_size, bits) = (group_size.unwrap_or(64), bits.unwrap_or(4));
                (Scheme::Affine { group_size, bits }, (group_size, bits))
            }
            "mxfp4" => (Scheme::Mxfp4, (32, 4)),
            "mxfp8" => (Scheme::Mxfp8, (32, 8)),
            "nvfp4" => (Scheme::Nvfp4, (16, 4)),
            _ => {
                let expected = "affine, mxfp4, mxfp8 or nvfp4";
                return Err(Error::argument("quantize", "mode", expected, mode));
            }
        };
        for (argument, given, usual) in
            [("group_size", group_size, usual.0), ("bits", bits, usual.1)]
        {
            if given.is_some_and(|given| given != usual) {
                let expected = format!("{usual} for {mode}");
                return Err(Error::argument(
                    "quantize",
                    argument,
                    expected,
                    given.unwrap_or(usual),
                ));
            }
        }
        scheme.check("quantize")?;
        Ok(scheme)
    }

    /// Checks the numbers of an affine scheme.
    pub(crate) fn check(self, op: &'static str) -> Result<()> {
        let Scheme::Affine { group_size, bits } = self else { return Ok(()) };
        let one_of = |numbers: &[usize]| {
            let words = numbers.iter().map(|number| number.to_string()).collect::<Vec<_>>();
            format!("one of {}", words.join(", "))
        };
        for (argument, got, known) in
            [("group_size", group_size, &Affine::GROUPS[..]), ("bits", bits, &Affine::BITS)]
        {
            if !known.contains(&got) {
                return Err(Error::argument(op, argument, one_of(known), got));
            }
        }
        Ok(())
    }

    /// Weights that a row is a multiple of.
    pub(crate) fn granule(self) -> usize {
        match self {
            Scheme::Blocks(format) => format.block_elements(),
            Scheme::Affine { group_size, .. } => group_size,
            _ => self.group_size().unwrap_or(32),
        }
    }

    /// Weights that share a scale, of schemes with arrays of scales.
    pub(crate) fn group_size(self) -> Option<usize> {
        match self {
            Scheme::Blocks(_) => None,
            Scheme::Affine { group_size, .. } => Some(group_size),
            _ => self.floats().map(FloatGroups::group),
        }
    }

    /// Bits of a code, of schemes that keep codes in words.
    pub(crate) fn bits(self) -> Option<usize> {
        match self {
            Scheme::Blocks(_) => None,
            Scheme::Affine { bits, .. } => Some(bits),
            _ => self.floats().map(FloatGroups::bits),
        }
    }

    pub(crate) fn floats(self) -> Option<FloatGroups> {
        match self {
            Scheme::Mxfp4 => Some(FloatGroups::Mxfp4),
            Scheme::Mxfp8 => Some(FloatGroups::Mxfp8),
            Scheme::Nvfp4 => Some(FloatGroups::Nvfp4),
            _ => None,
        }
    }

    /// How many arrays hold the weights: codes, scales, biases.
    pub(crate) fn arrays(self) -> usize {
        match self {
            Scheme::Blocks(_) => 1,
            Scheme::Affine { .. } => 3,
            _ => 2,
        }
    }

    /// Elements that the array of codes has for a row of so many weights.
    pub(crate) fn codes(self, weights: usize) -> usize {
        match self {
            Scheme::Blocks(format) => weights / format.block_elements() * format.block_bytes(),
            _ => weights * self.bits().unwrap_or(0) / 32,
        }
    }

    /// Weights of a row for which the array of codes has so many elements; `None` if it is not a whole
    /// number of them.
    pub(crate) fn weights(self, codes: usize) -> Option<usize> {
        let granule = self.granule();
        let each = self.codes(granule);
        codes.is_multiple_of(each).then(|| codes / each * granule)
    }

    /// What kernels look up in `w_table`; most need no table.
    #[cfg(feature = "gpu")]
    pub(crate) fn table(self) -> &'static [u16] {
        match self {
            Scheme::Blocks(format) => format.codec().table,
            _ => &[],
        }
    }

    /// The WGSL functions `row_weights(row, width, unit, &weights)`, which decodes 32 weights of a row, and
    /// `weights_in(width, unit)`, how many of them there are: the others are zeros. A kernel declares `w_data`, `w_table`, `scales` and `biases`, its parameters begin with `w_at`, `scales_at` and
    /// `biases_at`, and it says what `product` makes of a code times its scale, or of the scale of floats.
    #[cfg(feature = "gpu")]
    pub(crate) fn wgsl(self) -> String {
        let units = include_str!("units.wgsl");
        match self {
            Scheme::Blocks(format) => {
                let codec = format.codec();
                let constants = format!(
                    "const BLOCK_BYTES = {}u;\nconst UNITS = {}u;\n",
                    codec.bytes,
                    codec.elements / 32
                );
                let (bytes, blocks) = (include_str!("bytes.wgsl"), include_str!("blocks.wgsl"));
                [&constants, bytes, &(codec.wgsl)(), blocks, units].concat()
            }
            Scheme::Affine { group_size, bits } => {
                let constants = format!("const GROUP = {group_size}u;\nconst BITS = {bits}u;\n");
                [&constants, include_str!("affine.wgsl"), units].concat()
            }
            _ => {
                let (nv, bytes) = (self == Scheme::Nvfp4, self == Scheme::Mxfp8);
                let constants = format!("const NV = {nv};\nconst BYTES = {bytes};\n");
                [&constants, include_str!("small_float.wgsl"), include_str!("float.wgsl")].concat()
            }
        }
    }
}

impl From<Format> for Scheme {
    fn from(format: Format) -> Scheme {
        Scheme::Blocks(format)
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scheme::Blocks(format) => format.fmt(f),
            Scheme::Affine { group_size, bits } => {
                f.pad(&format!("affine of {bits} bits in groups of {group_size}"))
            }
            Scheme::Mxfp4 => f.pad("mxfp4"),
            Scheme::Mxfp8 => f.pad("mxfp8"),
            Scheme::Nvfp4 => f.pad("nvfp4"),
        }
    }
}
