//! Register tiles of products with many rows of activations. A panel is some rows of weights whose codes were
//! unpacked side by side: the first few of each row, then the next few of each, and beside them scales and offsets. A
//! tile multiplies integers, a group at a time, and adds them up as floats, one sum for each row of weights and
//! of activations: in the order of the groups, whatever the size of the tile. Rows of activations lie side by side as
//! well, in the order in which their tile reads them.

use super::activations::X;
use super::formats::{AT_ONCE, Format, Row};
use super::kernel::from_zero;
use super::vector::{GROUP, Portable, Simd};

/// The most rows of activations in a tile.
pub(super) const TALLEST: usize = 6;
/// The most bytes of a group of a row of activations.
pub(super) const MOST_BYTES: usize = 2 * GROUP + 2 * size_of::<Beside>();
/// Rows of weights that are packed at a time.
pub(super) const PACKED: usize = 8;
/// Bytes of a row's codes that lie together, and are multiplied in one step.
const STEP: usize = 4;
/// The float whose bits are those of an integer: adding a small integer to its bits adds it to the float.
const INTEGER: f32 = 12_582_912.0;

/// How a format is packed and multiplied at one level.
pub(super) struct Panels {
    /// Rows of weights in a panel.
    pub(super) width: usize,
    /// Rows of activations in the tallest tile.
    pub(super) height: usize,
    /// Bytes of a group of codes.
    pub(super) bytes: usize,
    /// Bytes of a group of a row of activations in a tile, with what belongs to the codes.
    pub(super) x_bytes: usize,
    /// Scales of a group.
    pub(super) scales: usize,
    /// What packed codes count from.
    zero: f32,
    /// What changes the sign of packed codes.
    flip: u8,
    pack: Pack,
    lay: Lay,
    /// By rows of activations, less one.
    tiles: [Multiply; TALLEST],
}

/// Where packed weights lie: their codes, and scales and offsets of the groups.
#[derive(Clone, Copy)]
pub(super) struct Panel {
    pub(super) codes: *mut u8,
    pub(super) scales: *mut f32,
    pub(super) offsets: *mut f32,
}

/// A tile: rows of activations as they were laid side by side, from a group on, times the groups that were packed.
pub(super) struct Tile {
    pub(super) panel: Panel,
    pub(super) x: *const u8,
    pub(super) groups: usize,
    /// Where sums are, a row for each of the activations' rows.
    pub(super) sums: *mut f32,
    pub(super) stride: usize,
    /// Whether there are sums to be added to.
    pub(super) add: bool,
}

impl Panels {
    /// Packs the groups from `8 · block` on of some rows.
    ///
    /// # Safety
    /// The rows have the groups, the panel has room for them, and the kernels are those of this processor.
    pub(super) unsafe fn pack(
        &self,
        rows: impl Fn(usize) -> Row,
        block: usize,
        groups: usize,
        to: Panel,
    ) {
        for first in (0..self.width).step_by(PACKED) {
            let rows = std::array::from_fn(|row| rows(first + row));
            let to = Packing {
                codes: to.codes.wrapping_add(first * STEP),
                scales: to.scales.wrapping_add(first),
                offsets: to.offsets.wrapping_add(first),
                width: self.width,
                zero: self.zero,
                flip: self.flip,
            };
            // SAFETY: passed on to the caller.
            unsafe { (self.pack)(&rows, block, groups, &to) };
        }
    }

    /// Lays as many rows of activations as `height` says side by side, all their groups: so many times
    /// [`x_bytes`](Panels::x_bytes) for each row.
    ///
    /// # Safety
    /// The rows have the groups, there is room for them, and the kernels are those of this processor.
    pub(super) unsafe fn lay(&self, x: &[X; TALLEST], height: usize, groups: usize, to: *mut u8) {
        // SAFETY: passed on to the caller.
        unsafe { (self.lay)(&x[..height.min(TALLEST)], groups, self.zero, to) }
    }

    /// What was packed from a group on.
    pub(super) fn from(&self, panel: Panel, group: usize) -> Panel {
        let numbers = group * self.scales * self.width;
        Panel {
            codes: panel.codes.wrapping_add(group * self.bytes * self.width),
            scales: panel.scales.wrapping_add(numbers),
            offsets: panel.offsets.wrapping_add(numbers),
        }
    }

    /// Multiplies as many rows of activations as `height` says.
    ///
    /// # Safety
    /// What a tile names is there, and the kernels are those of this processor.
    pub(super) unsafe fn multiply(&self, tile: &Tile, height: usize) {
        // SAFETY: passed on to the caller.
        unsafe { (self.tiles[height - 1])(tile) }
    }
}

/// What [`pack`] writes to: places for eight rows in a panel of `width`.
struct Packing {
    codes: *mut u8,
    scales: *mut f32,
    offsets: *mut f32,
    width: usize,
    zero: f32,
    flip: u8,
}

type Pack = unsafe fn(&[Row; PACKED], block: usize, groups: usize, &Packing);
type Lay = unsafe fn(&[X], groups: usize, zero: f32, to: *mut u8);
type Multiply = unsafe fn(&Tile);

/// What belongs to the codes of a row of activations, for a group or a half of it.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Beside {
    scale: f32,
    /// What products of codes that count from elsewhere, or sums that begin elsewhere, have too much.
    shift: f32,
    /// What sums of integers begin with.
    start: u32,
    sum: f32,
}

/// Vectors of an instruction set, with a place for each of some rows of weights.
///
/// # Safety
/// Methods may run only on a processor that has the instruction set; pointers must be valid for what is read
/// or written.
pub(super) trait Lanes: Copy + 'static {
    const COUNT: usize;
    /// Codes, or activations: four bytes in a place.
    type Codes: Copy;
    type Floats: Copy;

    unsafe fn load(from: *const u8) -> Self::Codes;
    /// The same four bytes in every place.
    unsafe fn spread(from: *const u8) -> Self::Codes;
    unsafe fn load_floats(from: *const f32) -> Self::Floats;
    unsafe fn store_floats(x: Self::Floats, to: *mut f32);
    unsafe fn splat(x: f32) -> Self::Floats;
    unsafe fn mul(a: Self::Floats, b: Self::Floats) -> Self::Floats;
    /// `a * b + c`.
    unsafe fn mul_add(a: Self::Floats, b: Self::Floats, c: Self::Floats) -> Self::Floats;
}

/// Products of codes of one kind with activations of one level.
///
/// # Safety
/// As for [`Lanes`].
pub(super) trait Products: Copy + 'static {
    type Lanes: Lanes;
    /// Sums of integers, of one group.
    type Sums: Copy;
    /// Whether codes and activations are words of 16 bits, or else bytes.
    const WORDS: bool;
    /// Whether signed bytes are moved up by 128.
    const UNSIGNED: bool;
    /// Whether sums begin with the bits of [`INTEGER`] and are floats, as they are: it saves turning them into floats,
    /// where they are small enough.
    const INTEGERS: bool = false;

    unsafe fn none() -> Self::Sums;
    /// The same number in every place.
    unsafe fn begin(_with: *const u32) -> Self::Sums {
        // SAFETY: passed on to the caller.
        unsafe { Self::none() }
    }
    /// Adds the products of four bytes, or two words, in each place.
    unsafe fn add(
        sums: Self::Sums,
        codes: <Self::Lanes as Lanes>::Codes,
        x: <Self::Lanes as Lanes>::Codes,
    ) -> Self::Sums;
    unsafe fn floats(sums: Self::Sums) -> <Self::Lanes as Lanes>::Floats;
}

/// What packed codes count from. Words are packed as what they count.
const fn zero<F: Format, P: Products>() -> i16 {
    match (P::WORDS, F::SIGNED && P::UNSIGNED) {
        (true, _) => 0,
        (false, true) => F::ZERO + 128,
        (false, false) => F::ZERO,
    }
}

/// # Safety
/// The processor has `S`'s instruction set; rows have the groups, and there is room for them.
#[inline(always)]
unsafe fn pack<F: Format, S: Simd, const WORDS: bool>(
    rows: &[Row; PACKED],
    block: usize,
    groups: usize,
    to: &Packing,
) {
    let halves = if F::HALVES { 2 } else { 1 };
    let vectors = if WORDS { 2 } else { 1 };
    for first in (0..groups).step_by(AT_ONCE) {
        let block = block + first / AT_ONCE;
        let count = (groups - first).min(AT_ONCE);
        // SAFETY: passed on to the caller.
        unsafe {
            let mut scales = [[S::zero(); PACKED]; 2];
            let mut offsets = [[S::zero(); PACKED]; 2];
            for (i, row) in rows.iter().enumerate() {
                let side = match count {
                    AT_ONCE => F::scales::<S>(row, block, AT_ONCE),
                    _ => F::scales::<S>(row, block, count),
                };
                for half in 0..halves {
                    scales[half][i] = side.scales[half];
                    let (scales, of) = (side.scales[half], side.offsets[half]);
                    offsets[half][i] = from_zero::<F, S>(to.zero, scales, of);
                }
            }
            for half in 0..halves {
                let place = (first * halves + AT_ONCE * half) * to.width;
                let some = (count * halves).saturating_sub(AT_ONCE * half);
                store::<S>(scales[half], some, to.scales.add(place), to.width);
                if F::OFFSETS {
                    store::<S>(offsets[half], some, to.offsets.add(place), to.width);
                }
            }
            for group in 0..count {
                let mut codes = [[S::zero(); PACKED]; 2];
                for (i, row) in rows.iter().enumerate() {
                    if WORDS {
                        let parts = S::parts(F::wide_codes::<S>(row.codes, block, group));
                        for (part, codes) in parts.into_iter().zip(&mut codes) {
                            let part = match F::ZERO {
                                0 => part,
                                zero => S::subtract(part, zero),
                            };
                            codes[i] = S::as_floats(part);
                        }
                    } else {
                        let mut bytes = F::dot_codes::<S>(row.codes, block, group);
                        if F::SIGNED {
                            bytes = S::xor(bytes, S::bytes(&[to.flip; GROUP]));
                        }
                        codes[0][i] = S::as_floats(bytes);
                    }
                }
                let steps = GROUP / STEP;
                for (vector, &codes) in codes[..vectors].iter().enumerate() {
                    let place = ((first + group) * vectors + vector) * steps * STEP * to.width;
                    store::<S>(codes, steps, to.codes.add(place).cast(), to.width);
                }
            }
        }
    }
}

/// Stores the first columns of eight rows as rows.
#[inline(always)]
unsafe fn store<S: Simd>(rows: [S::Floats; PACKED], count: usize, to: *mut f32, stride: usize) {
    // SAFETY: passed on to the caller.
    unsafe {
        for (i, column) in S::transpose(rows).into_iter().enumerate() {
            if i < count {
                S::store_floats(column, to.add(i * stride));
            }
        }
    }
}

/// Lays rows of activations side by side: of each group the first few codes of each row, then the next few of each, …,
/// and then what belongs to them.
///
/// # Safety
/// The processor has `S`'s instruction set; the rows, at most eight, have the groups, and there is room for them.
#[inline(always)]
unsafe fn lay<P: Products, S: Simd, const HALVES: bool, const OFFSETS: bool>(
    rows: &[X],
    groups: usize,
    zero: f32,
    mut to: *mut u8,
) {
    let height = rows.len();
    let bytes = if P::WORDS { 2 * GROUP } else { GROUP };
    let parts = if HALVES { 2 } else { 1 };
    for group in 0..groups {
        // SAFETY: passed on to the caller.
        unsafe {
            for vector in (0..bytes).step_by(GROUP) {
                let from = |row: usize| rows[row].codes.add(group * bytes + vector);
                let first = to.add(vector * height);
                if height == 1 {
                    from(0).copy_to_nonoverlapping(first, GROUP);
                    continue;
                }
                let mut square = [S::zero(); 8];
                for (row, line) in square.iter_mut().enumerate() {
                    *line = S::load_floats(from(row.min(height - 1)).cast());
                }
                // What is written past the rows is written over: by the next codes, or by what belongs to them.
                for (step, column) in S::transpose(square).into_iter().enumerate() {
                    S::store_floats(column, first.add(STEP * step * height).cast());
                }
            }
            to = to.add(bytes * height);
            for part in 0..parts {
                for row in rows {
                    let side = &*row.sides.add(group / AT_ONCE);
                    let at = group % AT_ONCE;
                    let (scale, sum) = match HALVES {
                        true => (side.half_scales[2 * at + part], side.half_sums[2 * at + part]),
                        false => (side.scales[at], side.sums[at]),
                    };
                    // The sum of codes, again as an integer.
                    let codes = if scale > 0.0 { sum / scale } else { 0.0 };
                    let codes = (codes + INTEGER).to_bits().wrapping_sub(INTEGER.to_bits());
                    let scale = match P::WORDS {
                        true => scale,
                        // Two bits less, so that the product with `INTEGER` is a float as well.
                        false => f32::from_bits((scale.to_bits() + 2) & !3),
                    };
                    let zeros = if OFFSETS { 0 } else { codes.wrapping_mul(zero as u32) };
                    let beside = match P::INTEGERS {
                        true => {
                            let start = INTEGER.to_bits().wrapping_sub(zeros);
                            Beside { scale, shift: scale * -INTEGER, start, sum }
                        }
                        false => Beside { scale, shift: sum * -zero, start: 0, sum },
                    };
                    to.cast::<Beside>().write_unaligned(beside);
                    to = to.add(size_of::<Beside>());
                }
            }
        }
    }
}

/// # Safety
/// The processor has `P`'s instruction set, and what the tile names is there.
#[inline(always)]
unsafe fn tile<
    P: Products,
    const HALVES: bool,
    const OFFSETS: bool,
    const R: usize,
    const C: usize,
>(
    tile: &Tile,
) {
    type Of<P> = <P as Products>::Lanes;
    let lanes = <P::Lanes as Lanes>::COUNT;
    let width = C * lanes;
    let bytes = if P::WORDS { 2 * GROUP } else { GROUP };
    let (parts, vectors) = (if HALVES { 2 } else { 1 }, bytes / GROUP);
    // Steps of a part that lie together.
    let steps = GROUP / STEP / parts;
    let panel = tile.panel;
    // SAFETY: passed on to the caller.
    unsafe {
        let mut sums = [[Of::<P>::splat(0.0); C]; R];
        if tile.add {
            for (r, sums) in sums.iter_mut().enumerate() {
                for (c, sum) in sums.iter_mut().enumerate() {
                    *sum = Of::<P>::load_floats(tile.sums.add(r * tile.stride + c * lanes));
                }
            }
        }
        let mut codes = panel.codes.cast_const();
        let mut scales = panel.scales.cast_const();
        let mut offsets = panel.offsets.cast_const();
        let mut x = tile.x;
        for _ in 0..tile.groups {
            for half in 0..parts {
                let beside = x.add(R * bytes).cast::<Beside>().add(R * half);
                let mut products = [[P::none(); C]; R];
                if P::INTEGERS {
                    for (r, products) in products.iter_mut().enumerate() {
                        *products = [P::begin(&raw const (*beside.add(r)).start); C];
                    }
                }
                for vector in 0..vectors {
                    let first = (vector * parts + half) * steps;
                    for step in first..first + steps {
                        let mut right = [Of::<P>::load(codes.add(step * STEP * width)); C];
                        for (c, right) in right.iter_mut().enumerate().skip(1) {
                            *right = Of::<P>::load(codes.add(STEP * (step * width + c * lanes)));
                        }
                        for r in 0..R {
                            let left = Of::<P>::spread(x.add(STEP * (step * R + r)));
                            for c in 0..C {
                                products[r][c] = P::add(products[r][c], right[c], left);
                            }
                        }
                    }
                }
                for r in 0..R {
                    let beside = &*beside.add(r);
                    let scale = Of::<P>::splat(beside.scale);
                    for c in 0..C {
                        let product = P::floats(products[r][c]);
                        let product = match P::INTEGERS || !(OFFSETS || P::WORDS) {
                            true => Of::<P>::mul_add(product, scale, Of::<P>::splat(beside.shift)),
                            false => Of::<P>::mul(product, scale),
                        };
                        let weights = Of::<P>::load_floats(scales.add(c * lanes));
                        let mut sum = Of::<P>::mul_add(product, weights, sums[r][c]);
                        if OFFSETS {
                            let offset = Of::<P>::load_floats(offsets.add(c * lanes));
                            sum = Of::<P>::mul_add(offset, Of::<P>::splat(beside.sum), sum);
                        }
                        sums[r][c] = sum;
                    }
                }
                scales = scales.add(width);
                offsets = offsets.wrapping_add(width);
            }
            codes = codes.add(bytes * width);
            x = x.add(R * (bytes + parts * size_of::<Beside>()));
        }
        for (r, sums) in sums.into_iter().enumerate() {
            for (c, sum) in sums.into_iter().enumerate() {
                Of::<P>::store_floats(sum, tile.sums.add(r * tile.stride + c * lanes));
            }
        }
    }
}

/// The panels of every format on an instruction set: `$across` vectors wide and up to the last of `$rows` high.
macro_rules! instruction_set {
    ($name:ident, $simd:ty, $across:literal, $height:literal, [$($rows:literal),*],
     fast |$format:ident| $fast:expr, exact $exact:ty, $(#[$attribute:meta])*) => {
        pub(super) mod $name {
            use super::*;

            $(#[$attribute])*
            unsafe fn pack<F: Format, const WORDS: bool>(
                rows: &[Row; PACKED],
                block: usize,
                groups: usize,
                to: &Packing,
            ) {
                // SAFETY: passed on to the caller.
                unsafe { super::pack::<F, $simd, WORDS>(rows, block, groups, to) }
            }

            $(#[$attribute])*
            unsafe fn lay<P: Products, const HALVES: bool, const OFFSETS: bool>(
                rows: &[X],
                groups: usize,
                zero: f32,
                to: *mut u8,
            ) {
                // SAFETY: passed on to the caller.
                unsafe { super::lay::<P, $simd, HALVES, OFFSETS>(rows, groups, zero, to) }
            }

            $(#[$attribute])*
            unsafe fn tile<P: Products, const HALVES: bool, const OFFSETS: bool, const R: usize>(
                tile: &Tile,
            ) {
                // SAFETY: passed on to the caller.
                unsafe { super::tile::<P, HALVES, OFFSETS, R, $across>(tile) }
            }

            const fn panels<F: Format, P: Products>() -> Panels {
                let zero = zero::<F, P>();
                let bytes = if P::WORDS { 2 * GROUP } else { GROUP };
                let scales = if F::HALVES { 2 } else { 1 };
                Panels {
                    width: $across * <P::Lanes as Lanes>::COUNT,
                    height: $height,
                    bytes,
                    x_bytes: bytes + scales * size_of::<Beside>(),
                    scales,
                    zero: zero as f32,
                    flip: if P::UNSIGNED { 128 } else { 0 },
                    pack: if P::WORDS { pack::<F, true> } else { pack::<F, false> },
                    lay: match (F::HALVES, F::OFFSETS) {
                        (false, false) => lay::<P, false, false>,
                        (false, true) => lay::<P, false, true>,
                        (true, false) => lay::<P, true, false>,
                        (true, true) => lay::<P, true, true>,
                    },
                    tiles: match (F::HALVES, F::OFFSETS) {
                        (false, false) => [$(tile::<P, false, false, $rows>),*],
                        (false, true) => [$(tile::<P, false, true, $rows>),*],
                        (true, false) => [$(tile::<P, true, false, $rows>),*],
                        (true, true) => [$(tile::<P, true, true, $rows>),*],
                    },
                }
            }

            /// By level: fast, exact.
            pub(in super::super) const fn table<$format: Format>() -> [Panels; 2] {
                [$fast, panels::<$format, $exact>()]
            }
        }
    };
}

// Tiles that are higher than a set's are a second name for its highest.
instruction_set!(any, Portable, 2, 2, [1, 2, 2, 2, 2, 2],
    fast |F| panels::<F, PortableBytes>(), exact PortableWords,);
#[cfg(target_arch = "x86_64")]
instruction_set!(avx2, super::super::avx2::Avx2, 2, 4, [1, 2, 3, 4, 4, 4],
    fast |F| match (F::SIGNED, F::NIBBLES) {
        (true, _) => panels::<F, super::super::avx2::SignedBytes>(),
        (false, true) => panels::<F, super::super::avx2::Nibbles>(),
        (false, false) => panels::<F, super::super::avx2::Bytes>(),
    },
    exact super::super::avx2::Words, #[target_feature(enable = "avx2,fma,f16c")]);
#[cfg(target_arch = "x86_64")]
instruction_set!(vnni, super::super::avx2::Avx2, 2, 6, [1, 2, 3, 4, 5, 6],
    fast |F| panels::<F, super::super::vnni::Bytes>(), exact super::super::vnni::Words,
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c")]);
#[cfg(target_arch = "aarch64")]
instruction_set!(neon, super::super::neon::Neon, 4, 4, [1, 2, 3, 4, 4, 4],
    fast |F| panels::<F, super::super::neon::Bytes>(), exact super::super::neon::Words,
    #[target_feature(enable = "neon,dotprod")]);

/// Eight rows of weights, in plain loops.
#[derive(Clone, Copy)]
struct Plain;

impl Lanes for Plain {
    const COUNT: usize = 8;
    type Codes = [[u8; STEP]; 8];
    type Floats = [f32; 8];

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self::Codes {
        // SAFETY: passed on to the caller.
        unsafe { from.cast::<Self::Codes>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn spread(from: *const u8) -> Self::Codes {
        // SAFETY: passed on to the caller.
        [unsafe { from.cast::<[u8; STEP]>().read_unaligned() }; 8]
    }
    #[inline(always)]
    unsafe fn load_floats(from: *const f32) -> Self::Floats {
        // SAFETY: passed on to the caller.
        unsafe { from.cast::<Self::Floats>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store_floats(x: Self::Floats, to: *mut f32) {
        // SAFETY: passed on to the caller.
        unsafe { to.cast::<Self::Floats>().write_unaligned(x) }
    }
    #[inline(always)]
    unsafe fn splat(x: f32) -> Self::Floats {
        [x; 8]
    }
    #[inline(always)]
    unsafe fn mul(a: Self::Floats, b: Self::Floats) -> Self::Floats {
        std::array::from_fn(|i| a[i] * b[i])
    }
    #[inline(always)]
    unsafe fn mul_add(a: Self::Floats, b: Self::Floats, c: Self::Floats) -> Self::Floats {
        std::array::from_fn(|i| a[i].mul_add(b[i], c[i]))
    }
}

macro_rules! portable {
    ($name:ident, words $words:literal, |$codes:ident, $x:ident| $product:expr) => {
        #[derive(Clone, Copy)]
        struct $name;

        impl Products for $name {
            type Lanes = Plain;
            type Sums = [i32; 8];
            const WORDS: bool = $words;
            const UNSIGNED: bool = true;

            #[inline(always)]
            unsafe fn none() -> [i32; 8] {
                [0; 8]
            }
            #[inline(always)]
            unsafe fn add(sums: [i32; 8], codes: [[u8; STEP]; 8], x: [[u8; STEP]; 8]) -> [i32; 8] {
                std::array::from_fn(|i| {
                    let ($codes, $x) = (codes[i], x[i]);
                    sums[i] + $product
                })
            }
            #[inline(always)]
            unsafe fn floats(sums: [i32; 8]) -> [f32; 8] {
                sums.map(|sum| sum as f32)
            }
        }
    };
}

portable!(PortableBytes, words false, |codes, x| {
    (0..STEP).map(|i| codes[i] as i32 * x[i] as i8 as i32).sum::<i32>()
});
portable!(PortableWords, words true, |codes, x| {
    let word = |from: [u8; STEP], i: usize| i16::from_le_bytes([from[2 * i], from[2 * i + 1]]) as i32;
    word(codes, 0) * word(x, 0) + word(codes, 1) * word(x, 1)
});
