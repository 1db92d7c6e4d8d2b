//! The innermost loop: a tile of up to 6 rows and one panel's width of the output held in
//! registers while `k` runs; and the tables of kernels, one an instruction set.
//!
//! A panel of the right matrix is as wide as two of the instruction set's vectors (four where there
//! are registers for them); the last one may be a half or a quarter of that.
//!
//! Every tile adds the products of an output element in the order of `k`, whatever its size, so
//! how the output is cut into tiles never changes a result.

use bytemuck::Pod;
use half::{bf16, f16};

use super::simd::{Lanes, Narrow, Scalar, Vector, portable::Plain};
use super::{finish, gemv, pack, strip};

/// Rows of the largest tile, and of a panel of the left matrix.
pub(crate) const ROWS: usize = 6;

/// The widest panel of the right matrix, in columns.
pub(super) const WIDEST: usize = 32;

/// Element types that can be multiplied.
pub(crate) trait GemmElement: Pod + Send + Sync {
    /// What products are summed in.
    type Sum: Scalar;
    /// Columns of the narrowest tile. Others have twice and four times as many.
    const NARROW: usize;
    /// Whether `Sum` is the element type itself, so that sums can live in the output.
    const DIRECT: bool;
    fn zero() -> Self;
    fn widen(self) -> Self::Sum;
    fn round(sum: Self::Sum) -> Self;
    /// The kernels made for this processor, the best first.
    fn special() -> [Option<&'static Kernels<Self>>; 2];
    /// The kernels for any processor.
    fn portable() -> &'static Kernels<Self>;

    /// The best kernels for this processor.
    fn kernels() -> &'static Kernels<Self> {
        let [best, next] = Self::special();
        best.or(next).unwrap_or_else(Self::portable)
    }
}

/// `c = a · b`, or `c += a · b`, for packed panels `a` (`k` columns of the tile's rows) and `b`
/// (`k` rows of the tile's columns).
pub(crate) type Tile<S> =
    unsafe fn(k: usize, panels: &Packed<S>, c: *mut S, c_stride: usize, accumulate: bool);

/// Panels that were packed.
pub(crate) struct Packed<S> {
    pub(super) a: *const S,
    pub(super) b: *const S,
    /// How far behind `a` the panel lies that is needed next, if that may be far from the core: it is fetched
    /// meanwhile. Zero if there is none.
    pub(super) next: isize,
}

/// Panels that were not packed, at any address.
pub(crate) struct Loose<S> {
    pub(super) a: *const S,
    pub(super) a_rows: isize,
    pub(super) a_columns: isize,
    pub(super) b: *const S,
    /// Columns of `b` are contiguous.
    pub(super) b_rows: isize,
    /// See [`Packed::next`].
    pub(super) next: isize,
}

/// `c = a · b` for panels that were not packed.
pub(crate) type LooseTile<S> =
    unsafe fn(k: usize, panels: &Loose<S>, c: *mut S, c_stride: usize, accumulate: bool);

/// A row of the output from a row of sums: see [`finish::finish`].
pub(crate) type Finish<T> = unsafe fn(
    sums: *const <T as GemmElement>::Sum,
    plus: Option<&finish::Addend<T>>,
    to: *mut T,
    len: usize,
);

/// The kernels of one element type on one instruction set.
///
/// # Safety
/// They may be called only on a processor that has the instruction set.
pub(crate) struct Kernels<T: GemmElement> {
    /// Columns of a whole panel of the right matrix: [`GemmElement::NARROW`], doubled or quadrupled.
    pub(super) columns: usize,
    /// Bytes of the largest such panel: it stays in the cache nearest to the core while rows of the
    /// left matrix pass by.
    pub(super) panel_bytes: usize,
    /// By rows less one, then by [`Kernels::width`].
    pub(super) tiles: [[Tile<T::Sum>; 3]; ROWS],
    pub(super) loose_tiles: [[LooseTile<T::Sum>; 3]; ROWS],
    /// By rows less one, and the tallest last; then by [`Kernels::width`].
    pub(super) strips: [[strip::Tile<T::Sum>; 3]; 8],
    /// Rows of the tallest of these tiles but one, and of the tallest.
    pub(super) strip_rows: [usize; 2],
    pub(super) pack: unsafe fn(&pack::Panel<T>, *mut T::Sum),
    pub(super) finish: Finish<T>,
    /// By vectors less one, then for one row and for [`gemv::rows_at_once`].
    pub(super) dots: [[unsafe fn(&gemv::Dots<T>, usize); 2]; gemv::FEW],
    pub(super) axpy: unsafe fn(&gemv::Axpy<T>, *mut T::Sum, usize),
}

impl<T: GemmElement> Kernels<T> {
    /// The width a panel of `columns` columns is padded to.
    pub(super) fn padded(&self, columns: usize) -> usize {
        let mut width = T::NARROW;
        while width < columns {
            width *= 2;
        }
        width
    }

    /// Where the tables keep tiles of a padded width.
    pub(super) fn width(padded: usize) -> usize {
        (padded / T::NARROW).ilog2() as usize
    }
}

/// # Safety
/// The processor has `V`'s instruction set; the panels are readable for `k` steps, and `c` is
/// writable for the tile at rows `c_stride` apart.
#[inline(always)]
unsafe fn tile<V: Vector, const R: usize, const C: usize, const PACKED: bool>(
    k: usize,
    panels: &Loose<V::Scalar>,
    c: *mut V::Scalar,
    c_stride: usize,
    accumulate: bool,
) {
    // SAFETY: passed on to the caller.
    unsafe {
        for i in 0..R {
            V::prefetch(c.add(i * c_stride));
            V::prefetch(c.add(i * c_stride + C * V::LANES - 1));
        }
        let (mut a, mut b) = (panels.a, panels.b);
        let mut sums = [[V::splat(V::Scalar::ZERO); C]; R];
        // Not a closure, which would be compiled without the instruction set.
        macro_rules! step {
            () => {
                let mut right = [V::splat(V::Scalar::ZERO); C];
                for (j, right) in right.iter_mut().enumerate() {
                    *right = V::load(b.add(j * V::LANES));
                }
                for (i, sums) in sums.iter_mut().enumerate() {
                    let left = V::splat(a.offset(i as isize * panels.a_rows).read_unaligned());
                    for (sum, right) in sums.iter_mut().zip(right) {
                        *sum = left.mul_add(right, *sum);
                    }
                }
                // The last step may lead outside, where nothing is read.
                a = a.wrapping_offset(panels.a_columns);
                b = b.wrapping_offset(panels.b_rows);
            };
        }
        // Several steps a turn: counting takes a tenth of the time of one.
        for turn in 0..k / 4 {
            if panels.next != 0 {
                let next = a.wrapping_offset(panels.next);
                let line = 64 / size_of::<V::Scalar>();
                if PACKED {
                    for i in 0..(4 * R).div_ceil(line) {
                        V::prefetch(next.wrapping_add(i * line));
                    }
                } else {
                    // A line of a row lasts for several turns, which share the rows.
                    let turns = line / 4;
                    let rows = R.div_ceil(turns);
                    for i in 0..rows {
                        let row = turn % turns * rows + i;
                        V::prefetch(next.wrapping_offset(row as isize * panels.a_rows));
                    }
                }
            }
            step!();
            step!();
            step!();
            step!();
        }
        for _ in 0..k % 4 {
            step!();
        }
        for (i, sums) in sums.into_iter().enumerate() {
            for (j, mut sum) in sums.into_iter().enumerate() {
                let to = c.add(i * c_stride + j * V::LANES);
                if accumulate {
                    sum = V::load(to).add(sum);
                }
                sum.store(to);
            }
        }
    }
}

/// A module of kernels compiled with `$attribute`, and `table` to collect them. The literals are
/// the vectors in a tile of each width: `V`'s in the narrowest, and `W`'s in the others. `$times` is
/// how many times as wide as the narrowest a whole panel is, and `$kib` its largest size. Tiles of
/// strips have up to `$short` rows, or `$tall`.
macro_rules! instruction_set {
    ($name:ident, $kib:literal, $times:literal, [$one:literal, $two:literal, $four:literal],
     [$short:literal, $tall:literal],
     $(#[$attribute:meta])*) => {
        mod $name {
            use super::*;

            $(#[$attribute])*
            unsafe fn tile<V: Vector, const R: usize, const C: usize>(
                k: usize,
                &Packed { a, b, next }: &Packed<V::Scalar>,
                c: *mut V::Scalar,
                c_stride: usize,
                accumulate: bool,
            ) {
                let (a_columns, b_rows) = (R as isize, (C * V::LANES) as isize);
                let panels = Loose { a, a_rows: 1, a_columns, b, b_rows, next };
                // SAFETY: passed on to the caller.
                unsafe { super::tile::<V, R, C, true>(k, &panels, c, c_stride, accumulate) }
            }

            $(#[$attribute])*
            unsafe fn loose<V: Vector, const R: usize, const C: usize>(
                k: usize,
                panels: &Loose<V::Scalar>,
                c: *mut V::Scalar,
                c_stride: usize,
                accumulate: bool,
            ) {
                // SAFETY: passed on to the caller.
                unsafe { super::tile::<V, R, C, false>(k, panels, c, c_stride, accumulate) }
            }

            $(#[$attribute])*
            unsafe fn strip<V: Vector, const R: usize, const C: usize>(
                panels: &strip::Panels<'_, V::Scalar>,
                rows: *const usize,
                c: *mut V::Scalar,
                c_stride: usize,
                accumulate: bool,
            ) {
                // SAFETY: passed on to the caller.
                unsafe { strip::tile::<V, R, C>(panels, rows, c, c_stride, accumulate) }
            }

            $(#[$attribute])*
            unsafe fn pack<T: GemmElement<Sum = V::Scalar> + Lanes<V>, V: Narrow>(
                panel: &pack::Panel<T>,
                to: *mut V::Scalar,
            ) {
                // SAFETY: passed on to the caller.
                unsafe { pack::panel::<T, V>(panel, to) }
            }

            $(#[$attribute])*
            unsafe fn finish<T: GemmElement<Sum = V::Scalar> + Lanes<V>, V: Narrow>(
                sums: *const V::Scalar,
                plus: Option<&finish::Addend<T>>,
                to: *mut T,
                len: usize,
            ) {
                // SAFETY: passed on to the caller.
                unsafe { finish::finish::<T, V>(sums, plus, to, len) }
            }

            $(#[$attribute])*
            unsafe fn dots<T, V, const R: usize, const N: usize>(job: &gemv::Dots<T>, len: usize)
            where
                T: GemmElement<Sum = V::Scalar> + Lanes<V>,
                V: Narrow,
            {
                // SAFETY: passed on to the caller.
                unsafe { gemv::dots::<T, V, R, N>(job, len) }
            }

            $(#[$attribute])*
            unsafe fn axpy<T: GemmElement<Sum = V::Scalar> + Lanes<V>, V: Narrow>(
                job: &gemv::Axpy<T>,
                sums: *mut V::Scalar,
                len: usize,
            ) {
                // SAFETY: passed on to the caller.
                unsafe { gemv::axpy::<T, V>(job, sums, len) }
            }

            pub(super) const fn table<T, V, W>() -> Kernels<T>
            where
                T: GemmElement<Sum = V::Scalar> + Lanes<V>,
                V: Narrow,
                W: Vector<Scalar = V::Scalar>,
            {
                Kernels {
                    columns: $times * T::NARROW,
                    panel_bytes: $kib << 10,
                    tiles: [
                        [tile::<V, 1, $one>, tile::<W, 1, $two>, tile::<W, 1, $four>],
                        [tile::<V, 2, $one>, tile::<W, 2, $two>, tile::<W, 2, $four>],
                        [tile::<V, 3, $one>, tile::<W, 3, $two>, tile::<W, 3, $four>],
                        [tile::<V, 4, $one>, tile::<W, 4, $two>, tile::<W, 4, $four>],
                        [tile::<V, 5, $one>, tile::<W, 5, $two>, tile::<W, 5, $four>],
                        [tile::<V, 6, $one>, tile::<W, 6, $two>, tile::<W, 6, $four>],
                    ],
                    loose_tiles: [
                        [loose::<V, 1, $one>, loose::<W, 1, $two>, loose::<W, 1, $four>],
                        [loose::<V, 2, $one>, loose::<W, 2, $two>, loose::<W, 2, $four>],
                        [loose::<V, 3, $one>, loose::<W, 3, $two>, loose::<W, 3, $four>],
                        [loose::<V, 4, $one>, loose::<W, 4, $two>, loose::<W, 4, $four>],
                        [loose::<V, 5, $one>, loose::<W, 5, $two>, loose::<W, 5, $four>],
                        [loose::<V, 6, $one>, loose::<W, 6, $two>, loose::<W, 6, $four>],
                    ],
                    strips: [
                        [strip::<V, 1, $one>, strip::<W, 1, $two>, strip::<W, 1, $four>],
                        [strip::<V, 2, $one>, strip::<W, 2, $two>, strip::<W, 2, $four>],
                        [strip::<V, 3, $one>, strip::<W, 3, $two>, strip::<W, 3, $four>],
                        [strip::<V, 4, $one>, strip::<W, 4, $two>, strip::<W, 4, $four>],
                        [strip::<V, 5, $one>, strip::<W, 5, $two>, strip::<W, 5, $four>],
                        [strip::<V, 6, $one>, strip::<W, 6, $two>, strip::<W, 6, $four>],
                        [strip::<V, $short, $one>, strip::<W, $short, $two>, strip::<W, $short, $four>],
                        [strip::<V, $tall, $one>, strip::<W, $tall, $two>, strip::<W, $tall, $four>],
                    ],
                    strip_rows: [$short, $tall],
                    pack: pack::<T, V>,
                    finish: finish::<T, V>,
                    dots: [
                        [dots::<T, V, 1, 1>, dots::<T, V, { gemv::rows_at_once(1) }, 1>],
                        [dots::<T, V, 1, 2>, dots::<T, V, { gemv::rows_at_once(2) }, 2>],
                        [dots::<T, V, 1, 3>, dots::<T, V, { gemv::rows_at_once(3) }, 3>],
                        [dots::<T, V, 1, 4>, dots::<T, V, { gemv::rows_at_once(4) }, 4>],
                    ],
                    axpy: axpy::<T, V>,
                }
            }
        }
    };
}

// Tiles of the width that a set does not use are a second name for others.
instruction_set!(any, 24, 2, [1, 2, 2], [6, 6],);
#[cfg(target_arch = "x86_64")]
instruction_set!(avx2, 24, 2, [1, 2, 2], [6, 6], #[target_feature(enable = "avx2,fma,f16c")]);
#[cfg(target_arch = "x86_64")]
instruction_set!(
    avx512, 32, 4, [1, 1, 2], [7, 14], #[target_feature(enable = "avx512f,avx2,fma,f16c")]
);
#[cfg(target_arch = "aarch64")]
instruction_set!(neon, 24, 2, [2, 4, 4], [6, 6],);

macro_rules! element {
    ($t:ty, $sum:ty, $narrow:literal, $direct:literal, $zero:expr, $widen:expr, $round:expr,
     $plain:ty, $avx2:ident, $avx512:ident, $neon:ident) => {
        impl GemmElement for $t {
            type Sum = $sum;
            const NARROW: usize = $narrow;
            const DIRECT: bool = $direct;

            #[inline(always)]
            fn zero() -> Self {
                $zero
            }
            #[inline(always)]
            fn widen(self) -> $sum {
                $widen(self)
            }
            #[inline(always)]
            fn round(sum: $sum) -> Self {
                $round(sum)
            }

            fn special() -> [Option<&'static Kernels<Self>>; 2] {
                #[cfg(target_arch = "x86_64")]
                {
                    use std::arch::x86_64::{$avx2, $avx512};
                    const AVX2: &Kernels<$t> = &avx2::table::<$t, $avx2, $avx2>();
                    const AVX512: &Kernels<$t> = &avx512::table::<$t, $avx2, $avx512>();
                    let avx2 = is_x86_feature_detected!("avx2")
                        && is_x86_feature_detected!("fma")
                        && is_x86_feature_detected!("f16c");
                    let avx512 = avx2 && is_x86_feature_detected!("avx512f");
                    [avx512.then_some(AVX512), avx2.then_some(AVX2)]
                }
                #[cfg(target_arch = "aarch64")]
                {
                    use std::arch::aarch64::$neon;
                    const NEON: &Kernels<$t> = &neon::table::<$t, $neon, $neon>();
                    [Some(NEON), None]
                }
                #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
                [None, None]
            }

            fn portable() -> &'static Kernels<Self> {
                const PLAIN: &Kernels<$t> = &any::table::<$t, $plain, $plain>();
                PLAIN
            }
        }
    };
}

element!(f32, f32, 8, true, 0.0, |x| x, |x| x, Plain<f32, 8>, __m256, __m512, float32x4_t);
element!(f64, f64, 4, true, 0.0, |x| x, |x| x, Plain<f64, 4>, __m256d, __m512d, float64x2_t);
element!(
    f16,
    f32,
    8,
    false,
    f16::ZERO,
    f16::to_f32,
    f16::from_f32,
    Plain<f32, 8>,
    __m256,
    __m512,
    float32x4_t
);
element!(
    bf16,
    f32,
    8,
    false,
    bf16::ZERO,
    bf16::to_f32,
    super::simd::round_to_bf16,
    Plain<f32, 8>,
    __m256,
    __m512,
    float32x4_t
);
