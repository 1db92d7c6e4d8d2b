//! Weights in few bits: the formats of GGUF files and of MLX, one codec each.
//!
//! [`Format`] is the table of GGUF's block formats, and a [`Scheme`] is one of them or of MLX's. A codec says how many elements and bytes a block
//! has, how it is decoded and encoded on the CPU, and how a kernel on a GPU decodes it; files and
//! operations know formats only through it.

mod activations;
mod affine;
mod block;
mod float;
mod grid;
mod grids;
mod k_search;
mod nibbles;
mod nonlinear;
mod q1;
mod q2_k;
mod q3_k;
mod q4_k;
mod q6_k;
mod q8;
mod scheme;
mod small_float;
mod ternary;
#[cfg(test)]
mod tests;

use std::fmt;
use std::str::FromStr;

pub use self::activations::{Activations, activations, set_activations, with_activations};
pub(crate) use self::affine::Affine;
pub(crate) use self::block::{Codec, finite};
pub(crate) use self::float::FloatGroups;
pub use self::scheme::Scheme;
use crate::error::{Error, Result};

/// Formats by name: MLX's word, GGUF's number of the type, and the codec.
macro_rules! formats {
    ($($(#[$doc:meta])* $name:ident = $ggml_type:literal, $codec:ty;)*) => {
        /// A format of quantized blocks as GGUF files hold them. A row of a matrix is a whole number
        /// of blocks, one after the other.
        ///
        /// ```
        /// use wootz::quant::Format;
        /// let format: Format = "Q4_K".parse()?;
        /// assert_eq!(format, Format::Q4_K);
        /// assert_eq!((format.block_elements(), format.block_bytes()), (256, 144));
        /// assert_eq!(format.bits_per_weight(), 4.5);
        /// # Ok::<(), wootz::Error>(())
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[allow(non_camel_case_types, reason = "the names that GGUF gives them")]
        #[non_exhaustive]
        pub enum Format {
            $($(#[$doc])* $name,)*
        }

        impl Format {
            /// Every format.
            pub const ALL: &[Format] = &[$(Format::$name),*];

            /// The format's name, as GGUF's tools write it.
            pub fn name(self) -> &'static str {
                match self { $(Format::$name => stringify!($name),)* }
            }

            /// The number of the type in GGUF files.
            pub fn ggml_type(self) -> u32 {
                match self { $(Format::$name => $ggml_type,)* }
            }

            pub(crate) fn codec(self) -> &'static Codec {
                match self { $(Format::$name => const { &Codec::of::<$codec>() },)* }
            }
        }
    };
}

formats! {
    /// 4 bits and a scale for 32 weights.
    Q4_0 = 2, nibbles::Nibbles<false, false>;
    /// 4 bits, a scale and a minimum for 32 weights.
    Q4_1 = 3, nibbles::Nibbles<false, true>;
    /// 5 bits and a scale for 32 weights.
    Q5_0 = 6, nibbles::Nibbles<true, false>;
    /// 5 bits, a scale and a minimum for 32 weights.
    Q5_1 = 7, nibbles::Nibbles<true, true>;
    /// 8 bits and a scale for 32 weights.
    Q8_0 = 8, q8::Q8_0;
    /// 8 bits, a scale, and the sum of the weights, for 32 weights.
    Q8_1 = 9, q8::Q8_1;
    /// 2 bits, with scales and minima of 4 bits for 16 weights each.
    Q2_K = 10, q2_k::Q2K;
    /// 3 bits, with scales of 6 bits for 16 weights each.
    Q3_K = 11, q3_k::Q3K;
    /// 4 bits, with scales and minima of 6 bits for 32 weights each.
    Q4_K = 12, q4_k::Q4K<false>;
    /// 5 bits, with scales and minima of 6 bits for 32 weights each.
    Q5_K = 13, q4_k::Q4K<true>;
    /// 6 bits, with scales of 8 bits for 16 weights each.
    Q6_K = 14, q6_k::Q6K;
    /// 8 bits and a scale for 256 weights.
    Q8_K = 15, q8::Q8K;
    /// 2.06 bits: points of a lattice of 256, with signs.
    IQ2_XXS = 16, grid::Iq2Xxs;
    /// 2.31 bits: points of a lattice of 512, with signs.
    IQ2_XS = 17, grid::Iq2Xs;
    /// 3.06 bits: points of a lattice of 256, with signs.
    IQ3_XXS = 18, grid::Iq3Xxs;
    /// 1.56 bits: points of a lattice of 2048.
    IQ1_S = 19, grid::Iq1S;
    /// 4 bits on an uneven scale, for 32 weights.
    IQ4_NL = 20, nonlinear::Iq4Nl;
    /// 3.44 bits: points of a lattice of 512, with signs.
    IQ3_S = 21, grid::Iq3S;
    /// 2.5 bits: points of a lattice of 1024, with signs.
    IQ2_S = 22, grid::Iq2S;
    /// 4 bits on an uneven scale, with scales of 6 bits for 32 weights each.
    IQ4_XS = 23, nonlinear::Iq4Xs;
    /// 1.75 bits: points of a lattice of 2048, with scales for 16 weights each.
    IQ1_M = 29, grid::Iq1M;
    /// Three values, five to a byte.
    TQ1_0 = 34, ternary::Tq1;
    /// Three values in 2 bits.
    TQ2_0 = 35, ternary::Tq2;
    /// Floats of 4 bits, with a power of two for 32 weights.
    MXFP4 = 39, small_float::Mxfp4;
    /// Floats of 4 bits, with a float of 8 bits for 16 weights.
    NVFP4 = 40, small_float::Nvfp4;
    /// A sign each, and a scale for 128 weights.
    Q1_0 = 41, q1::Q1;
}

impl Format {
    /// The format that has a number in GGUF files, if it is one of blocks.
    ///
    /// ```
    /// use wootz::quant::Format;
    /// assert_eq!(Format::from_ggml_type(8), Some(Format::Q8_0));
    /// assert_eq!(Format::from_ggml_type(0), None);
    /// ```
    pub fn from_ggml_type(ggml_type: u32) -> Option<Format> {
        Format::ALL.iter().copied().find(|format| format.ggml_type() == ggml_type)
    }

    /// Weights in a block.
    pub fn block_elements(self) -> usize {
        self.codec().elements
    }

    /// Bytes of a block.
    pub fn block_bytes(self) -> usize {
        self.codec().bytes
    }

    /// Bits that a weight takes, scales included.
    pub fn bits_per_weight(self) -> f64 {
        self.block_bytes() as f64 * 8.0 / self.block_elements() as f64
    }

    /// Whether weights can be encoded; some formats can only be read.
    pub fn encodes(self) -> bool {
        self.codec().encode.is_some()
    }

    /// Decodes whole blocks.
    ///
    /// ```
    /// use wootz::quant::Format;
    /// // A scale of 1 as float16, and bytes that hold a code for the first and the second half each.
    /// let block = [&[0x00, 0x3c], &[0x98; 16][..]].concat();
    /// let mut weights = [0.0; 32];
    /// Format::Q4_0.decode(&block, &mut weights)?;
    /// assert_eq!((weights[0], weights[16]), (0.0, 1.0));
    /// # Ok::<(), wootz::Error>(())
    /// ```
    pub fn decode(self, blocks: &[u8], weights: &mut [f32]) -> Result<()> {
        self.expect_blocks("dequantize", blocks.len(), weights.len())?;
        (self.codec().decode)(blocks, weights);
        Ok(())
    }

    /// Encodes whole blocks. NaN counts as zero, and an infinity as the largest finite `float16` of
    /// its sign, because one weight must not spoil the others of its block. Weights that are
    /// too large for the scales of the format count as the largest that are not.
    ///
    /// ```
    /// use wootz::quant::Format;
    /// let weights: Vec<f32> = (0..32).map(|i| (i as f32 - 16.0) / 8.0).collect();
    /// let (mut block, mut back) = ([0; 34], [0.0; 32]);
    /// Format::Q8_0.encode(&weights, &mut block)?;
    /// Format::Q8_0.decode(&block, &mut back)?;
    /// assert!(weights.iter().zip(back).all(|(a, b)| (a - b).abs() < 0.01));
    /// # Ok::<(), wootz::Error>(())
    /// ```
    pub fn encode(self, weights: &[f32], blocks: &mut [u8]) -> Result<()> {
        self.expect_blocks("quantize", blocks.len(), weights.len())?;
        let encode = self.codec().encode.ok_or_else(|| self.cannot_encode("quantize"))?;
        encode(weights, blocks);
        Ok(())
    }

    pub(crate) fn cannot_encode(self, op: &'static str) -> Error {
        Error::argument(op, "format", "one that weights can be encoded in", self)
    }

    fn expect_blocks(self, op: &'static str, bytes: usize, elements: usize) -> Result<()> {
        let (block_bytes, block_elements) = (self.block_bytes(), self.block_elements());
        let blocks = bytes / block_bytes;
        if bytes.is_multiple_of(block_bytes) && Some(elements) == blocks.checked_mul(block_elements)
        {
            return Ok(());
        }
        let expected = format!("{block_bytes} bytes for {block_elements} weights of {self} each");
        Err(Error::argument(op, "blocks", expected, format!("{bytes} for {elements}")))
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Format {
    type Err = Error;

    fn from_str(name: &str) -> Result<Format> {
        let found = Format::ALL.iter().find(|format| format.name().eq_ignore_ascii_case(name));
        let known = || Format::ALL.iter().map(|format| format.name()).collect::<Vec<_>>();
        let expected = || format!("one of {}", known().join(", "));
        found.copied().ok_or_else(|| Error::argument("quantize", "format", expected(), name))
    }
}
