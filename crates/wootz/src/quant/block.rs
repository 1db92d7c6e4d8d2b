//! What a block format is, and the loops over blocks.

use half::f16;
use pulp::{Simd, WithSimd};

use crate::cpu::simd;

/// The largest finite `float16`.
pub(super) const LARGEST_HALF: f32 = 65504.0;

/// A format of blocks. Slices that its functions see hold just one block.
pub(super) trait Block {
    /// Weights in a block: a multiple of 32, at most 256.
    const ELEMENTS: usize;
    /// Bytes of a block.
    const BYTES: usize;
    /// Weights count as at most so large, either way, that scales of half precision hold them.
    const LARGEST: f32 = LARGEST_HALF;
    /// Whether [`encode`](Block::encode) is written.
    const ENCODES: bool = true;
    /// What decoding looks up; kernels find it in `w_table`.
    const TABLE: &[u16] = &[];

    fn decode(block: &[u8], weights: &mut [f32]);

    /// Encodes finite weights. The block is all zeros.
    fn encode(_weights: &[f32], _block: &mut [u8]) {}

    /// The WGSL function `decode_unit(at, unit, &weights)`: it decodes 32 weights, number `unit` of
    /// those of the block that begins at byte `at` of `w_data`.
    fn wgsl() -> String;
}

/// A block format as everybody else knows it.
pub(crate) struct Codec {
    pub(crate) elements: usize,
    pub(crate) bytes: usize,
    /// Decodes whole blocks.
    pub(crate) decode: fn(&[u8], &mut [f32]),
    /// Encodes whole blocks.
    pub(crate) encode: Option<fn(&[f32], &mut [u8])>,
    /// See [`Block::TABLE`].
    #[cfg_attr(not(feature = "gpu"), allow(dead_code))]
    pub(crate) table: &'static [u16],
    /// See [`Block::wgsl`].
    #[cfg_attr(not(feature = "gpu"), allow(dead_code))]
    pub(crate) wgsl: fn() -> String,
}

impl Codec {
    pub(super) const fn of<B: Block>() -> Codec {
        let encode: Option<fn(&[f32], &mut [u8])> = match B::ENCODES {
            true => Some(encode::<B>),
            false => None,
        };
        Codec {
            elements: B::ELEMENTS,
            bytes: B::BYTES,
            decode: decode::<B>,
            encode,
            table: B::TABLE,
            wgsl: B::wgsl,
        }
    }
}

fn decode<B: Block>(blocks: &[u8], weights: &mut [f32]) {
    struct Loop<'a, B>(&'a [u8], &'a mut [f32], std::marker::PhantomData<B>);

    impl<B: Block> WithSimd for Loop<'_, B> {
        type Output = ();

        #[inline(always)]
        fn with_simd<S: Simd>(self, _: S) {
            let weights = self.1.chunks_exact_mut(B::ELEMENTS);
            for (block, weights) in self.0.chunks_exact(B::BYTES).zip(weights) {
                B::decode(block, weights);
            }
        }
    }

    simd::run(Loop::<B>(blocks, weights, std::marker::PhantomData));
}

fn encode<B: Block>(weights: &[f32], blocks: &mut [u8]) {
    let mut buffer = [0.0; 256];
    let buffer = &mut buffer[..B::ELEMENTS];
    let blocks = blocks.chunks_exact_mut(B::BYTES);
    for (weights, block) in weights.chunks_exact(B::ELEMENTS).zip(blocks) {
        for (to, &weight) in buffer.iter_mut().zip(weights) {
            *to = finite(weight).clamp(-B::LARGEST, B::LARGEST);
        }
        block.fill(0);
        B::encode(buffer, block);
    }
}

/// What a weight counts as, so that one does not spoil the others of its block: NaN as zero, and an
/// infinity as the largest finite `float16`.
#[inline(always)]
pub(crate) fn finite(weight: f32) -> f32 {
    if weight.is_finite() {
        weight
    } else if weight.is_nan() {
        0.0
    } else {
        LARGEST_HALF.copysign(weight)
    }
}

/// The `float16` at a byte.
#[inline(always)]
pub(super) fn half_at(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

/// Stores a `float16`, and tells what became of the number.
pub(super) fn set_half(block: &mut [u8], at: usize, value: f32) -> f32 {
    let rounded = f16::from_f32(value);
    block[at..at + 2].copy_from_slice(&rounded.to_le_bytes());
    rounded.to_f32()
}

#[inline(always)]
pub(super) fn u16_at(block: &[u8], at: usize) -> u32 {
    u16::from_le_bytes([block[at], block[at + 1]]) as u32
}

#[inline(always)]
pub(super) fn u32_at(block: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]])
}

/// The weight of the largest magnitude; the first, if there are several.
pub(super) fn largest(weights: &[f32]) -> f32 {
    let larger = |largest: f32, &w: &f32| if w.abs() > largest.abs() { w } else { largest };
    weights.iter().fold(0.0, larger)
}

/// `1 / x`, or 0 of 0.
pub(super) fn inverse(x: f32) -> f32 {
    if x == 0.0 { 0.0 } else { 1.0 / x }
}

/// To the nearest whole number, halves away from zero, within bounds.
pub(super) fn nearest(x: f32, lowest: i32, highest: i32) -> i32 {
    (x.round() as i32).clamp(lowest, highest)
}
