//! Stores past the caches, for results that are too large to be found there when they are read. An
//! ordinary store fetches the line it is about to overwrite, which is a third of what a copy moves.

use bytemuck::Pod;

/// Results from this many bytes on are streamed: about what a last-level cache holds.
const LARGE: usize = 16 << 20;

/// Whether a result of so many bytes is to be streamed.
pub(crate) fn pays(bytes: usize) -> bool {
    cfg!(target_arch = "x86_64") && bytes >= LARGE
}

/// Copies `from` to `to`, past the caches where the processor can. Call [`finish`] before another
/// thread may read what was copied.
#[inline]
pub(crate) fn copy<T: Pod>(from: &[T], to: &mut [T]) {
    let (from, to): (&[u8], &mut [u8]) = (bytemuck::cast_slice(from), bytemuck::cast_slice_mut(to));
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx") {
        // SAFETY: the processor has AVX.
        return unsafe { copy_avx(from, to) };
    }
    to.copy_from_slice(from);
}

/// Stores a few values, past the caches where they are aligned to vectors. Call [`finish`] before
/// another thread may read them.
#[inline(always)]
pub(crate) fn store<T: Pod, const N: usize>(values: [T; N], to: &mut [T; N]) {
    #[cfg(target_arch = "x86_64")]
    if to.as_ptr().cast::<std::arch::x86_64::__m128i>().is_aligned()
        && size_of::<[T; N]>().is_multiple_of(16)
    {
        use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_stream_si128};
        let (from, to) = (values.as_ptr().cast::<__m128i>(), to.as_mut_ptr().cast::<__m128i>());
        for vector in 0..size_of::<[T; N]>() / 16 {
            // SAFETY: both arrays hold so many vectors of plain bits, `to` is aligned to them, and
            // the instruction is part of every x86-64.
            unsafe { _mm_stream_si128(to.add(vector), _mm_loadu_si128(from.add(vector))) };
        }
        return;
    }
    *to = values;
}

/// [`store`] if `streamed`, else an ordinary store.
#[inline(always)]
pub(crate) fn store_if<T: Pod, const N: usize>(streamed: bool, values: [T; N], to: &mut [T; N]) {
    if streamed {
        store(values, to);
    } else {
        *to = values;
    }
}

/// [`copy`] if `streamed`, else an ordinary one.
#[inline(always)]
pub(crate) fn copy_if<T: Pod>(streamed: bool, from: &[T], to: &mut [T]) {
    if streamed {
        copy(from, to);
    } else {
        to.copy_from_slice(from);
    }
}

/// [`finish`] if there is something to finish.
#[inline(always)]
pub(crate) fn finish_if(streamed: bool) {
    if streamed {
        finish();
    }
}

/// Makes what this thread streamed visible to others, in order with what it does next.
#[inline]
pub(crate) fn finish() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instruction is part of every x86-64.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
fn copy_avx(from: &[u8], to: &mut [u8]) {
    use std::arch::x86_64::{__m256i, _mm256_loadu_si256, _mm256_stream_si256};
    assert_eq!(from.len(), to.len(), "a copy keeps the length");
    // SAFETY: every pattern of bits is a vector.
    let (head, body, tail) = unsafe { to.align_to_mut::<__m256i>() };
    let (from_head, rest) = from.split_at(head.len());
    let (from_body, from_tail) = rest.split_at(size_of_val(body));
    head.copy_from_slice(from_head);
    for (to, from) in body.iter_mut().zip(from_body.as_chunks::<32>().0) {
        // SAFETY: 32 bytes are read where the chunk lies, and written to an aligned vector.
        unsafe { _mm256_stream_si256(to, _mm256_loadu_si256(from.as_ptr().cast())) };
    }
    tail.copy_from_slice(from_tail);
}

#[cfg(test)]
mod tests {
    #[test]
    fn streamed_values_arrive_at_every_alignment() {
        let values: [f32; 16] = std::array::from_fn(|i| i as f32);
        for start in 0..8 {
            let mut to = [-1.0f32; 32];
            super::store(values, (&mut to[start..start + 16]).try_into().unwrap());
            super::finish();
            assert_eq!(to[start..start + 16], values);
            assert!(to[..start].iter().chain(&to[start + 16..]).all(|&value| value == -1.0));
        }
    }

    #[test]
    fn a_streamed_copy_is_a_copy_at_every_alignment() {
        let from: Vec<u8> = (0..300u32).map(|i| i as u8).collect();
        for start in 0..40 {
            for length in [0, 1, 31, 32, 33, 64, 200] {
                let mut to = vec![0xAAu8; 300];
                super::copy(&from[..length], &mut to[start..start + length]);
                super::finish();
                assert_eq!(to[start..start + length], from[..length]);
                assert!(to[..start].iter().chain(&to[start + length..]).all(|&byte| byte == 0xAA));
            }
        }
    }
}
