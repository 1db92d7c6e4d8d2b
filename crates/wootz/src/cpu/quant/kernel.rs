//! The dot product of rows of weights with rows of activations, and decoding, for every format and
//! instruction set. Each result is summed in one order, whatever else is computed beside it.

use std::mem::MaybeUninit;

use super::activations::{Order, X};
use super::formats::{AT_ONCE, Format, Row, Scales};
use super::vector::{GROUP, Portable, Rows, Simd, Vectors, total};

/// Rows of weights, or of activations, that one call takes at most.
pub(super) const MOST: usize = 4;
/// Rows of weights that are multiplied with one of activations at a time: additions to one sum wait
/// for each other.
pub(super) const AT_A_TIME: usize = 4;

/// Bytes from what is multiplied to what is fetched meanwhile: what memory brings until then.
const AHEAD: usize = 3 << 9;
/// Bytes of a cache line.
const LINE: usize = 64;

/// The kernels of one format.
pub(super) struct Kernels {
    /// By level, how activations must lie in a group.
    pub(super) orders: [Order; 2],
    /// By level (fast, exact): some rows of weights with one of activations, one with two, one with four.
    pub(super) dots: [[Dot; 3]; 2],
    pub(super) decode: Decode,
}

/// Products of rows of `groups` groups; row of weights `r` with row of activations `n` goes to
/// `r + n` (one of the two is always zero).
pub(super) type Dot = unsafe fn(&[Row; MOST], &[X; MOST], groups: usize, &mut [f32; MOST]);

/// Writes a row of `groups` groups.
pub(super) type Decode = unsafe fn(&Row, groups: usize, to: *mut f32);

/// Does something for each of eight groups, whose numbers are known to the compiler.
macro_rules! each_group {
    ($vectors:ident, $groups:ident, $do:expr) => {
        if $groups == AT_ONCE && $vectors::UNROLLED {
            $do(0);
            $do(1);
            $do(2);
            $do(3);
            $do(4);
            $do(5);
            $do(6);
            $do(7);
        } else {
            for group in 0..$groups {
                $do(group);
            }
        }
    };
}

/// Products of `R` times as many rows as vectors hold.
///
/// # Safety
/// The processor has `V`'s instruction set; rows and activations have the groups.
#[inline(always)]
unsafe fn dot<F: Format, V: Rows, const EXACT: bool, const R: usize, const N: usize>(
    rows: &[Row; MOST],
    x: &[X; MOST],
    groups: usize,
    to: &mut [f32; MOST],
) {
    // SAFETY: passed on to the caller.
    unsafe {
        if F::APART {
            rows[..R * V::ROWS].iter().for_each(|row| fetch_numbers::<F, V::One>(row, groups));
        }
        let mut sums = [[V::zero(); N]; R];
        let mut offsets = [[V::zero(); N]; R];
        let mut scales = [[MaybeUninit::uninit(); N]; R];
        for block in 0..groups.div_ceil(AT_ONCE) {
            let groups = (groups - block * AT_ONCE).min(AT_ONCE);
            make_scales::<F, V, R, N>(rows, x, block, groups, &mut scales, &mut offsets);
            multiply::<F, V, EXACT, R, N>(rows, x, block, groups, &scales, &mut sums);
        }
        for r in 0..R * V::ROWS {
            let (vector, row) = (r / V::ROWS, r % V::ROWS);
            for n in 0..N {
                to[r + n] = total::<V::One>(V::row(sums[vector][n], row));
                if has_offsets::<F>() {
                    to[r + n] += total::<V::One>(V::row(offsets[vector][n], row));
                }
            }
        }
    }
}

/// The same, one row with one row at a time: where registers are few, nothing is won by more.
///
/// # Safety
/// As for [`dot`].
unsafe fn one_by_one<F: Format, S: Simd, const EXACT: bool, const R: usize, const N: usize>(
    rows: &[Row; MOST],
    x: &[X; MOST],
    groups: usize,
    to: &mut [f32; MOST],
) {
    for i in 0..R.max(N) {
        let (row, x) = (rows[if R > 1 { i } else { 0 }], x[if N > 1 { i } else { 0 }]);
        let mut result = [0f32; MOST];
        // SAFETY: passed on to the caller.
        unsafe { one::<F, S, EXACT>(row, x, groups, &mut result) };
        to[i] = result[0];
    }
}

#[inline(never)]
unsafe fn one<F: Format, S: Simd, const EXACT: bool>(
    row: Row,
    x: X,
    groups: usize,
    to: &mut [f32; MOST],
) {
    // SAFETY: passed on to the caller.
    unsafe { dot::<F, S, EXACT, 1, 1>(&[row; MOST], &[x; MOST], groups, to) }
}

/// Fetches the scales and biases of the row after this one.
///
/// # Safety
/// The processor has `S`'s instruction set.
#[inline(always)]
unsafe fn fetch_numbers<F: Format, S: Simd>(row: &Row, groups: usize) {
    let bytes = (groups >> row.shared) * row.numbers.bytes();
    for line in (bytes..2 * bytes).step_by(LINE) {
        // SAFETY: a prefetch may name any address.
        unsafe {
            S::prefetch(row.scales.wrapping_add(line));
            if F::OFFSETS {
                S::prefetch(row.biases.wrapping_add(line));
            }
        }
    }
}

/// Whether anything is added to the products of codes.
const fn has_offsets<F: Format>() -> bool {
    F::OFFSETS || F::ZERO != 0
}

/// The offsets of codes that count from zero, made of those of codes that count from `zero`.
#[inline(always)]
pub(super) unsafe fn from_zero<F: Format, S: Vectors>(
    zero: f32,
    scales: S::Floats,
    offsets: S::Floats,
) -> S::Floats {
    // SAFETY: passed on to the caller.
    unsafe {
        match (F::OFFSETS, zero == 0.0) {
            (_, true) => offsets,
            (true, false) => S::mul_add(scales, S::splat(-zero), offsets),
            (false, false) => S::mul(scales, S::splat(-zero)),
        }
    }
}

/// The scales of the products of eight groups, or of their halves: one of weights times one of
/// activations.
type Products<V> = MaybeUninit<[<V as Vectors>::Floats; 2]>;

/// A group of codes, as the level wants it.
enum Codes<V: Vectors> {
    Bytes(V::Bytes),
    Wide(V::Wide),
}

/// The scales of the rows of a vector.
///
/// # Safety
/// As for [`dot`].
#[inline(always)]
unsafe fn scales_of<F: Format, V: Rows>(rows: &[Row], block: usize, groups: usize) -> Scales<V> {
    // SAFETY: passed on to the caller.
    unsafe {
        let of = |row| match groups {
            AT_ONCE => F::scales::<V::One>(row, block, AT_ONCE),
            _ => F::scales::<V::One>(row, block, groups),
        };
        let first = of(&rows[0]);
        let last = if V::ROWS > 1 { of(&rows[1]) } else { first };
        let join = |a: [_; 2], b: [_; 2]| [V::join([a[0], b[0]]), V::join([a[1], b[1]])];
        Scales {
            scales: join(first.scales, last.scales),
            offsets: join(first.offsets, last.offsets),
        }
    }
}

/// Multiplies scales, and adds what offsets bring.
#[inline(always)]
unsafe fn make_scales<F: Format, V: Rows, const R: usize, const N: usize>(
    rows: &[Row; MOST],
    x: &[X; MOST],
    block: usize,
    groups: usize,
    to: &mut [[Products<V>; N]; R],
    sums: &mut [[V::Floats; N]; R],
) {
    let halves = if F::HALVES { 2 } else { 1 };
    // SAFETY: passed on to the caller.
    unsafe {
        for r in 0..R {
            let of_weights = scales_of::<F, V>(&rows[r * V::ROWS..], block, groups);
            for n in 0..N {
                let side = &*x[n].sides.add(block);
                let (of_x, sums_of_x) = match F::HALVES {
                    true => (side.half_scales.as_ptr(), side.half_sums.as_ptr()),
                    false => (side.scales.as_ptr(), side.sums.as_ptr()),
                };
                for half in 0..halves {
                    let at = AT_ONCE * half;
                    let product = V::mul(of_weights.scales[half], V::load_same(of_x.add(at)));
                    // Volatile, so that the compiler does not move numbers about in registers: for
                    // that there are the fewest units.
                    to[r][n].as_mut_ptr().cast::<V::Floats>().add(half).write_volatile(product);
                    if has_offsets::<F>() {
                        let (scales, offsets) = (of_weights.scales[half], of_weights.offsets[half]);
                        let offsets = from_zero::<F, V>(F::ZERO.into(), scales, offsets);
                        let x = V::load_same(sums_of_x.add(at));
                        sums[r][n] = V::mul_add(offsets, x, sums[r][n]);
                    }
                }
            }
        }
    }
}

/// Adds the products of at most eight groups.
#[inline(always)]
unsafe fn multiply<F: Format, V: Rows, const EXACT: bool, const R: usize, const N: usize>(
    rows: &[Row; MOST],
    x: &[X; MOST],
    block: usize,
    groups: usize,
    scales: &[[Products<V>; N]; R],
    sums: &mut [[V::Floats; N]; R],
) {
    // SAFETY: passed on to the caller.
    unsafe {
        let bytes = if EXACT { 2 * GROUP } else { GROUP };
        for row in &rows[..R * V::ROWS] {
            for line in (0..F::BYTES).step_by(LINE) {
                V::One::prefetch(row.codes.wrapping_add(block * F::BYTES + line + AHEAD));
            }
        }
        each_group!(V, groups, |group: usize| {
            let at = (block * AT_ONCE + group) * bytes;
            for r in 0..R {
                let place = V::place(&rows[r * V::ROWS..]);
                let codes: Codes<V> = match EXACT {
                    true => Codes::Wide(F::wide_codes::<V>(place, block, group)),
                    false => Codes::Bytes(F::dot_codes::<V>(place, block, group)),
                };
                for n in 0..N {
                    let x = x[n].codes.add(at);
                    let products = V::floats(match codes {
                        Codes::Wide(codes) => V::dot_wide(codes, x),
                        Codes::Bytes(codes) => V::dot(F::SIGNED, codes, x),
                    });
                    let scales = scales[r][n].as_ptr().cast::<V::Floats>();
                    let scale = match F::HALVES {
                        true => V::spread_halves(&*scales.add(group / 4), group % 4),
                        false => V::spread(&*scales, group),
                    };
                    sums[r][n] = V::mul_add(products, scale, sums[r][n]);
                }
            }
        });
    }
}

/// # Safety
/// The processor has `S`'s instruction set; the row has the groups, and there is place for them.
#[inline(always)]
unsafe fn decode<F: Format, S: Simd>(row: &Row, groups: usize, to: *mut f32) {
    for block in 0..groups.div_ceil(AT_ONCE) {
        let groups = (groups - block * AT_ONCE).min(AT_ONCE);
        // SAFETY: passed on to the caller.
        unsafe {
            let side = F::scales::<S>(row, block, groups);
            let (mut scales, mut offsets) = ([0f32; 2 * AT_ONCE], [0f32; 2 * AT_ONCE]);
            for half in 0..2 {
                let at = AT_ONCE * half;
                S::store_floats(side.scales[half], scales.as_mut_ptr().add(at));
                S::store_floats(side.offsets[half], offsets.as_mut_ptr().add(at));
            }
            each_group!(S, groups, |group: usize| {
                let codes = F::codes::<S>(row.codes, block, group);
                let to = to.add((block * AT_ONCE + group) * GROUP);
                for part in 0..GROUP / 8 {
                    let at = if F::HALVES { 2 * group + part / 2 } else { group };
                    let (scale, offset) = (S::splat(scales[at]), S::splat(offsets[at]));
                    let codes = S::code_floats(F::SIGNED, codes, part);
                    let codes = match F::ZERO {
                        0 => codes,
                        zero => S::mul_add(codes, S::splat(1.0), S::splat((-zero).into())),
                    };
                    // Rounded twice, as `dequantize` does it: only single scales show the difference.
                    let product = S::mul(codes, scale);
                    let weights = match F::OFFSETS {
                        true => S::mul_add(product, S::splat(1.0), offset),
                        false => product,
                    };
                    S::store_floats(weights, to.add(8 * part));
                }
            });
        }
    }
}

/// The kernels compiled for an instruction set.
macro_rules! instruction_set {
    ($name:ident, $simd:ty, $rows:ty, $dot:ident, $(#[$attribute:meta])*) => {
        pub(super) mod $name {
            use super::*;

            $(#[$attribute])*
            unsafe fn dot<F: Format, const EXACT: bool, const R: usize, const N: usize>(
                rows: &[Row; MOST],
                x: &[X; MOST],
                groups: usize,
                to: &mut [f32; MOST],
            ) {
                // SAFETY: passed on to the caller.
                unsafe { super::$dot::<F, $simd, EXACT, R, N>(rows, x, groups, to) }
            }

            $(#[$attribute])*
            unsafe fn several<F: Format, const EXACT: bool>(
                rows: &[Row; MOST],
                x: &[X; MOST],
                groups: usize,
                to: &mut [f32; MOST],
            ) {
                const VECTORS: usize = AT_A_TIME / <$rows as Rows>::ROWS;
                // SAFETY: passed on to the caller.
                unsafe { super::$dot::<F, $rows, EXACT, VECTORS, 1>(rows, x, groups, to) }
            }

            $(#[$attribute])*
            unsafe fn decode<F: Format>(row: &Row, groups: usize, to: *mut f32) {
                // SAFETY: passed on to the caller.
                unsafe { super::decode::<F, $simd>(row, groups, to) }
            }

            pub(in super::super) const fn table<F: Format>() -> Kernels {
                Kernels {
                    orders: F::ORDERS,
                    dots: [
                        [several::<F, false>, dot::<F, false, 1, 2>, dot::<F, false, 1, MOST>],
                        [several::<F, true>, dot::<F, true, 1, 2>, dot::<F, true, 1, MOST>],
                    ],
                    decode: decode::<F>,
                }
            }
        }
    };
}

instruction_set!(any, Portable, Portable, one_by_one,);
#[cfg(target_arch = "x86_64")]
instruction_set!(avx2, super::super::avx2::Avx2, super::super::avx2::Avx2, dot,
    #[target_feature(enable = "avx2,fma,f16c")]);
#[cfg(target_arch = "x86_64")]
instruction_set!(vnni, super::super::vnni::Vnni, super::super::two::Two, dot,
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c")]);
#[cfg(target_arch = "aarch64")]
instruction_set!(neon, super::super::neon::Neon, super::super::neon::Neon, dot,
    #[target_feature(enable = "neon,dotprod")]);
