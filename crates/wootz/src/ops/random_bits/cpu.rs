//! threefry2x32 on the CPU.

use crate::cpu::simd::dispatch;
use crate::cpu::{CpuCall, threads};
use crate::error::Result;

/// Blocks that a thread computes at a time.
const CHUNK: usize = 4096;

/// Fills the output with bits, `count` elements for each key.
pub(super) fn run(call: &mut CpuCall<'_>, count: usize) -> Result<()> {
    let keys = call.input::<u32>(0)?;
    let bytes = count * call.output_meta(0).dtype.size();
    let out = call.output::<u8>(0)?;
    for (key, out) in keys.chunks_exact(2).zip(out.chunks_mut(bytes.max(1))) {
        fill([key[0], key[1]], out);
    }
    Ok(())
}

/// Fills memory with the words of one key; of the last word as many bytes as fit.
fn fill(key: [u32; 2], out: &mut [u8]) {
    let words = out.len().div_ceil(4);
    match bytemuck::try_cast_slice_mut::<u8, u32>(out) {
        Ok(words) => fill_words(key, words),
        // The end of a word is cut off, or does not lie at a word's border.
        Err(_) => {
            for (index, out) in out.chunks_mut(4).enumerate() {
                out.copy_from_slice(&word(key, index, words).to_le_bytes()[..out.len()]);
            }
        }
    }
}

/// The first half of the words are first results of blocks, the second half second results.
fn fill_words(key: [u32; 2], out: &mut [u32]) {
    let total = out.len();
    let half = total / 2;
    let (first, second) = out.split_at_mut(total - half);
    if total % 2 == 1 {
        first[half] = word(key, half, total);
    }
    threads::chunks2_mut(&mut first[..half], CHUNK, second, CHUNK, |chunk, first, second| {
        let start = (chunk * CHUNK) as u32;
        let behind = (total - half) as u32;
        dispatch(|| {
            for (i, (first, second)) in first.iter_mut().zip(second).enumerate() {
                let counter = start.wrapping_add(i as u32);
                [*first, *second] = threefry(key, [counter, counter.wrapping_add(behind)]);
            }
        });
    });
}

/// Word `index` of `total`.
fn word(key: [u32; 2], index: usize, total: usize) -> u32 {
    let half = total / 2;
    let behind = total - half;
    if index < half {
        threefry(key, [index as u32, (index + behind) as u32])[0]
    } else if index < behind {
        threefry(key, [index as u32, 0])[0]
    } else {
        threefry(key, [(index - behind) as u32, index as u32])[1]
    }
}

/// One block: twenty rounds of add, rotate and exclusive or, with key words added in between.
#[inline(always)]
fn threefry(key: [u32; 2], counter: [u32; 2]) -> [u32; 2] {
    const ROTATIONS: [[u32; 4]; 2] = [[13, 15, 26, 6], [17, 29, 16, 24]];
    let keys = [key[0], key[1], key[0] ^ key[1] ^ 0x1bd1_1bda];
    let mut x = counter[0].wrapping_add(keys[0]);
    let mut y = counter[1].wrapping_add(keys[1]);
    for round in 0..5usize {
        for rotation in ROTATIONS[round % 2] {
            x = x.wrapping_add(y);
            y = y.rotate_left(rotation) ^ x;
        }
        x = x.wrapping_add(keys[(round + 1) % 3]);
        y = y.wrapping_add(keys[(round + 2) % 3]).wrapping_add(round as u32 + 1);
    }
    [x, y]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threefry_gives_the_published_values() {
        assert_eq!(threefry([0, 0], [0, 0]), [0x6b20_0159, 0x99ba_4efe]);
        assert_eq!(
            threefry([0x1319_8a2e, 0x0370_7344], [0x243f_6a88, 0x85a3_08d3]),
            [0xc492_3a9c, 0x483d_f7a0]
        );
    }

    #[test]
    fn narrow_elements_are_the_bytes_of_the_words() {
        let mut words = [0u32; 4];
        fill_words([1, 2], &mut words);
        let mut bytes = [0u8; 15];
        fill([1, 2], &mut bytes);
        let expected: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        assert_eq!(bytes[..], expected[..15]);
    }
}
