//! Formats of quantized blocks, as far as a file's reader must know them.

use std::fmt;

/// A format of quantized blocks as GGUF files hold them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format(&'static (u32, &'static str, usize, usize));

/// Number in files, name, elements and bytes of a block.
static FORMATS: [(u32, &str, usize, usize); 24] = [
    (2, "Q4_0", 32, 18),
    (3, "Q4_1", 32, 20),
    (6, "Q5_0", 32, 22),
    (7, "Q5_1", 32, 24),
    (8, "Q8_0", 32, 34),
    (10, "Q2_K", 256, 84),
    (11, "Q3_K", 256, 110),
    (12, "Q4_K", 256, 144),
    (13, "Q5_K", 256, 176),
    (14, "Q6_K", 256, 210),
    (15, "Q8_K", 256, 292),
    (16, "IQ2_XXS", 256, 66),
    (17, "IQ2_XS", 256, 74),
    (18, "IQ3_XXS", 256, 98),
    (19, "IQ1_S", 256, 50),
    (20, "IQ4_NL", 32, 18),
    (21, "IQ3_S", 256, 110),
    (22, "IQ2_S", 256, 82),
    (23, "IQ4_XS", 256, 136),
    (29, "IQ1_M", 256, 56),
    (34, "TQ1_0", 256, 54),
    (35, "TQ2_0", 256, 66),
    (39, "MXFP4", 32, 17),
    (40, "NVFP4", 64, 36),
];

impl Format {
    /// The format that has a number in GGUF files, if it is one of blocks.
    pub fn from_ggml_type(number: u32) -> Option<Format> {
        FORMATS.iter().find(|row| row.0 == number).map(Format)
    }

    /// The number of the type in GGUF files.
    pub fn ggml_type(self) -> u32 {
        self.0.0
    }

    /// Weights in a block.
    pub fn block_elements(self) -> usize {
        self.0.2
    }

    /// Bytes of a block.
    pub fn block_bytes(self) -> usize {
        self.0.3
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.0.1)
    }
}
