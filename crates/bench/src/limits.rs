//! The machine's limits on two threads: a copy with ordinary stores, reading, and f32 fused multiply-adds.

use std::fmt;
use std::sync::{Barrier, OnceLock};
use std::time::Instant;

use memmap2::MmapMut;

use crate::THREADS;

/// Measured limits.
#[derive(Default)]
pub struct Limits {
    /// GB/s, read and written bytes together, of a copy of 64 MiB with ordinary stores.
    pub copy: f64,
    /// GB/s of reading 512 MiB in large pages, where that was asked for.
    pub read: f64,
    /// GFLOP/s of f32 fused multiply-adds.
    pub fma: f64,
}

const COPIED: usize = 4096 * 4096;
/// Words that are read.
const READ: usize = 64 << 20;
const FMA_STEPS: usize = 1_000_000;

impl Limits {
    /// Measures both, the best of some repetitions.
    pub fn measure(reps: usize) -> Limits {
        let from = vec![1f32; COPIED];
        let mut to = vec![0f32; COPIED];
        let part = COPIED / THREADS;
        let copy = {
            let parts = from.chunks(part).zip(to.chunks_mut(part));
            let jobs: Vec<_> = parts.map(|(f, t)| move || copy_ordinary(f, t)).collect();
            together(jobs, reps)
        };
        let fma = together(
            (0..THREADS)
                .map(|_| {
                    || {
                        std::hint::black_box(multiply_add(FMA_STEPS));
                    }
                })
                .collect(),
            reps,
        );
        Limits {
            copy: 2.0 * (COPIED * 4) as f64 / copy / 1e9,
            read: 0.0,
            fma: (THREADS * FMA_STEPS * FLOPS_PER_STEP) as f64 / fma / 1e9,
        }
    }

    /// Measures reading only.
    pub fn of_reading(reps: usize) -> Limits {
        static MEMORY: OnceLock<Option<MmapMut>> = OnceLock::new();
        let memory = MEMORY.get_or_init(large_pages).as_ref();
        let words: &[u64] = memory.map_or(&[], |memory| bytemuck::cast_slice(memory));
        let parts = words.chunks(READ / THREADS);
        let jobs = parts.map(|part| {
            move || {
                std::hint::black_box(sum(part));
            }
        });
        let seconds = together(jobs.collect(), reps);
        Limits { read: (READ * 8) as f64 / seconds / 1e9, ..Limits::default() }
    }

    /// The higher of two measurements.
    pub fn best(&self, other: &Limits) -> Limits {
        Limits {
            copy: self.copy.max(other.copy),
            read: self.read.max(other.read),
            fma: self.fma.max(other.fma),
        }
    }
}

impl fmt::Display for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "limits on {THREADS} threads: copy with ordinary stores {:.1} GB/s, f32 FMA {:.0} GFLOP/s",
            self.copy, self.fma
        )
    }
}

/// Words to be read, in large pages where the system has some: as arrays have them, so that a share of this limit
/// is not one of the time that small pages take.
fn large_pages() -> Option<MmapMut> {
    let mut memory = MmapMut::map_anon(READ * size_of::<u64>()).ok()?;
    #[cfg(target_os = "linux")]
    let _advice = memory.advise(memmap2::Advice::HugePage);
    for (number, word) in memory.chunks_exact_mut(size_of::<u64>()).enumerate() {
        word.copy_from_slice(&number.to_le_bytes());
    }
    Some(memory)
}

/// Runs the jobs on one thread each, `reps` times; the best time from first start to last end.
fn together<J: FnMut() + Send>(jobs: Vec<J>, reps: usize) -> f64 {
    let barrier = Barrier::new(jobs.len());
    let epoch = Instant::now();
    let spans: Vec<Vec<(f64, f64)>> = std::thread::scope(|scope| {
        let handles: Vec<_> = jobs
            .into_iter()
            .map(|mut job| {
                let barrier = &barrier;
                scope.spawn(move || {
                    (0..reps)
                        .map(|_| {
                            barrier.wait();
                            let start = epoch.elapsed().as_secs_f64();
                            job();
                            (start, epoch.elapsed().as_secs_f64())
                        })
                        .collect()
                })
            })
            .collect();
        handles.into_iter().map(|h| h.join().unwrap_or_default()).collect()
    });
    (0..reps)
        .map(|i| {
            let starts = spans.iter().map(|s| s[i].0).fold(f64::INFINITY, f64::min);
            spans.iter().map(|s| s[i].1).fold(0.0, f64::max) - starts
        })
        .fold(f64::INFINITY, f64::min)
}

/// Reads as fast as the processor can: several sums of vectors, and lines asked for ahead.
#[cfg(target_arch = "x86_64")]
fn sum(words: &[u64]) -> u64 {
    #[target_feature(enable = "avx2")]
    fn sum_avx2(words: &[u64]) -> u64 {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let mut sums = [[0u64; 4]; 8];
        for words in words.chunks_exact(32) {
            let ahead = words.as_ptr().wrapping_add(256);
            for line in 0..4 {
                _mm_prefetch::<_MM_HINT_T0>(ahead.wrapping_add(8 * line).cast());
            }
            for (sums, words) in sums.iter_mut().zip(words.chunks_exact(4)) {
                sums.iter_mut().zip(words).for_each(|(sum, word)| *sum = sum.wrapping_add(*word));
            }
        }
        sums.as_flattened().iter().fold(0, |a, b| a.wrapping_add(*b))
    }
    match std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: AVX2 is present.
        true => unsafe { sum_avx2(words) },
        false => words.iter().fold(0, |a, b| a.wrapping_add(*b)),
    }
}

/// Elsewhere the compiler's loop stands in.
#[cfg(not(target_arch = "x86_64"))]
fn sum(words: &[u64]) -> u64 {
    words.iter().fold(0, |a, b| a.wrapping_add(*b))
}

/// Copies with plain 32-byte stores: the library's memcpy would bypass the cache at this size.
#[cfg(target_arch = "x86_64")]
fn copy_ordinary(from: &[f32], to: &mut [f32]) {
    if !std::arch::is_x86_feature_detected!("avx") {
        return to.copy_from_slice(from);
    }
    // SAFETY: AVX is present.
    unsafe { copy_avx(from, to) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
fn copy_avx(from: &[f32], to: &mut [f32]) {
    let whole = from.len().min(to.len()) / 32 * 32;
    if whole == 0 {
        return to.copy_from_slice(from);
    }
    // SAFETY: the loop stays within `whole` elements of both slices.
    unsafe {
        std::arch::asm!(
            "2:",
            "vmovups {a}, [{from} + {i}*4]",
            "vmovups {b}, [{from} + {i}*4 + 32]",
            "vmovups {c}, [{from} + {i}*4 + 64]",
            "vmovups {d}, [{from} + {i}*4 + 96]",
            "vmovups [{to} + {i}*4], {a}",
            "vmovups [{to} + {i}*4 + 32], {b}",
            "vmovups [{to} + {i}*4 + 64], {c}",
            "vmovups [{to} + {i}*4 + 96], {d}",
            "add {i}, 32",
            "cmp {i}, {end}",
            "jb 2b",
            from = in(reg) from.as_ptr(),
            to = in(reg) to.as_mut_ptr(),
            end = in(reg) whole,
            i = inout(reg) 0usize => _,
            a = out(ymm_reg) _,
            b = out(ymm_reg) _,
            c = out(ymm_reg) _,
            d = out(ymm_reg) _,
            options(nostack),
        );
    }
    to[whole..].copy_from_slice(&from[whole..]);
}

/// Elsewhere the library's copy stands in.
#[cfg(not(target_arch = "x86_64"))]
fn copy_ordinary(from: &[f32], to: &mut [f32]) {
    to.copy_from_slice(from);
}

// Enough independent sums to hide the latency of one instruction on either kind of machine.
const SUMS: usize = 12;
const LANES: usize = 8;
const FLOPS_PER_STEP: usize = SUMS * LANES * 2;

fn multiply_add(steps: usize) -> f32 {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx512f") {
        // SAFETY: the feature is present. Half as many steps of vectors twice as wide.
        return unsafe { multiply_add_avx512(steps / 2) };
    }
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma") {
        // SAFETY: the features are present.
        return unsafe { multiply_add_avx2(steps) };
    }
    let mut sums = [[1f32; LANES]; SUMS];
    let (x, y) = std::hint::black_box((0.999_999f32, 1e-7f32));
    for _ in 0..steps {
        sums.iter_mut().flatten().for_each(|s| *s = s.mul_add(x, y));
    }
    sums.iter().flatten().sum()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn multiply_add_avx2(steps: usize) -> f32 {
    use std::arch::x86_64::{_mm256_add_ps, _mm256_cvtss_f32, _mm256_fmadd_ps, _mm256_set1_ps};
    let (x, y) = std::hint::black_box((0.999_999f32, 1e-7f32));
    let (x, y) = (_mm256_set1_ps(x), _mm256_set1_ps(y));
    let mut sums = [_mm256_set1_ps(1.0); SUMS];
    for _ in 0..steps {
        for s in &mut sums {
            *s = _mm256_fmadd_ps(*s, x, y);
        }
    }
    _mm256_cvtss_f32(sums.into_iter().fold(x, |a, b| _mm256_add_ps(a, b)))
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn multiply_add_avx512(steps: usize) -> f32 {
    use std::arch::x86_64::{_mm512_add_ps, _mm512_cvtss_f32, _mm512_fmadd_ps, _mm512_set1_ps};
    let (x, y) = std::hint::black_box((0.999_999f32, 1e-7f32));
    let (x, y) = (_mm512_set1_ps(x), _mm512_set1_ps(y));
    let mut sums = [_mm512_set1_ps(1.0); SUMS];
    for _ in 0..steps {
        for s in &mut sums {
            *s = _mm512_fmadd_ps(*s, x, y);
        }
    }
    _mm512_cvtss_f32(sums.into_iter().fold(x, |a, b| _mm512_add_ps(a, b)))
}
