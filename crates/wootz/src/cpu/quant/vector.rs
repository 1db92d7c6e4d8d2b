//! The vectors that quantized kernels are written in: thirty-two bytes, which are one group of
//! codes, and eight sums. One implementation an instruction set; the one here is for any processor.

use half::f16;

use super::formats::Row;

/// Codes in a group: what one vector holds, and what shares an activation scale.
pub(super) const GROUP: usize = 32;

/// Where the codes of rows lie: an address for each row.
pub(super) trait Place: Copy {
    /// So many bytes on in every row.
    fn plus(self, bytes: usize) -> Self;
}

impl Place for *const u8 {
    #[inline(always)]
    fn plus(self, bytes: usize) -> Self {
        self.wrapping_add(bytes)
    }
}

/// What formats unpack codes with, and what multiplies them. Vectors are of one row of weights, or of several: each then
/// has the bytes of one row after those of the other, and so on, and everything below is said of a row. Halves of the
/// bytes belong to halves of the sums: the first four sums are of the first sixteen bytes.
///
/// # Safety
/// Methods may run only on a processor that has the instruction set; pointers must be valid for what
/// is read, and need no alignment.
pub(super) trait Vectors: Copy + 'static {
    type Place: Place;
    /// Thirty-two bytes, or sixteen words of 16 bits.
    type Bytes: Copy;
    /// Thirty-two words of 16 bits.
    type Wide: Copy;
    /// Eight i32.
    type Sums: Copy;
    /// Eight f32.
    type Floats: Copy;

    /// Whether loops over groups are worth their length in code. In development builds they are not: it is
    /// what takes longest to compile.
    const UNROLLED: bool = cfg!(not(debug_assertions));

    /// Bytes that stand in the program.
    unsafe fn bytes(from: &[u8; GROUP]) -> Self::Bytes;
    /// Thirty-two bytes from memory.
    unsafe fn load(from: Self::Place) -> Self::Bytes;
    /// Sixteen bytes from each of two places.
    unsafe fn halves(low: Self::Place, high: Self::Place) -> Self::Bytes;
    /// Sixteen bytes twice, of which the first 4, 8 or 12 are from memory, and the others of no interest.
    unsafe fn few(from: Self::Place, count: usize) -> Self::Bytes;
    /// The low nibbles of sixteen bytes, then their high nibbles.
    unsafe fn nibbles(from: Self::Place) -> Self::Bytes;
    /// The low and the high nibble of the first of sixteen bytes, then those of the second, …
    unsafe fn nibble_pairs(from: Self::Place) -> Self::Bytes;
    /// `value` where one of thirty-two bits is set, else zero.
    unsafe fn where_set(bits: Self::Place, value: u8) -> Self::Bytes;
    unsafe fn and(a: Self::Bytes, b: Self::Bytes) -> Self::Bytes;
    unsafe fn or(a: Self::Bytes, b: Self::Bytes) -> Self::Bytes;
    unsafe fn xor(a: Self::Bytes, b: Self::Bytes) -> Self::Bytes;
    /// Shifts of words, by a number that is known to the compiler.
    unsafe fn shift_left(a: Self::Bytes, by: usize) -> Self::Bytes;
    unsafe fn shift_right(a: Self::Bytes, by: usize) -> Self::Bytes;
    /// The low halves of products of words.
    unsafe fn multiply(a: Self::Bytes, b: Self::Bytes) -> Self::Bytes;
    /// The bytes of each half at places in the same half.
    unsafe fn shuffle(a: Self::Bytes, places: Self::Bytes) -> Self::Bytes;

    /// Codes as words of 16 bits: the even ones, then the odd ones. They are signed, or else below 256.
    unsafe fn widen(signed: bool, codes: Self::Bytes) -> Self::Wide;
    /// The low nibbles of sixteen bytes, then their high nibbles.
    unsafe fn wide_nibbles(from: Self::Place) -> Self::Wide {
        // SAFETY: passed on to the caller.
        unsafe { Self::widen(false, Self::nibble_pairs(from)) }
    }
    /// Thirty-two bytes with a sign, in their order.
    unsafe fn wide_bytes(from: Self::Place) -> Self::Wide;
    /// The dot product of a group with activations of 16 bits in the same order.
    unsafe fn dot_wide(codes: Self::Wide, activations: *const u8) -> Self::Sums;
    /// The dot product of a group with activations of 8 bits. Codes are signed, or else below 128.
    unsafe fn dot(signed: bool, codes: Self::Bytes, activations: *const u8) -> Self::Sums;

    /// The sums as floats.
    unsafe fn floats(sums: Self::Sums) -> Self::Floats;
    unsafe fn splat(x: f32) -> Self::Floats;
    unsafe fn zero() -> Self::Floats {
        // SAFETY: passed on to the caller.
        unsafe { Self::splat(0.0) }
    }
    unsafe fn mul(a: Self::Floats, b: Self::Floats) -> Self::Floats;
    /// `a * b + c`.
    unsafe fn mul_add(a: Self::Floats, b: Self::Floats, c: Self::Floats) -> Self::Floats;
}

/// Vectors of as many rows as are multiplied together.
///
/// # Safety
/// As for [`Vectors`].
pub(super) trait Rows: Vectors {
    /// What has one row: the scales of rows are read one after the other.
    type One: Simd;
    const ROWS: usize;

    /// Where the codes of the first rows lie.
    fn place(rows: &[Row]) -> Self::Place;
    /// The floats of each row. There are always two; only so many as there are rows are taken.
    unsafe fn join(rows: [<Self::One as Vectors>::Floats; 2]) -> Self::Floats;
    /// Eight floats for each row.
    unsafe fn load_same(from: *const f32) -> Self::Floats;
    /// One of eight floats in all places of its row.
    unsafe fn spread(from: &Self::Floats, number: usize) -> Self::Floats;
    /// The same with two of them, number `2 * pair` and the next: one for the sums of each half.
    unsafe fn spread_halves(from: &Self::Floats, pair: usize) -> Self::Floats;
    /// The floats of one row.
    unsafe fn row(x: Self::Floats, row: usize) -> <Self::One as Vectors>::Floats;
}

impl<S: Simd> Rows for S {
    type One = S;
    const ROWS: usize = 1;

    #[inline(always)]
    fn place(rows: &[Row]) -> *const u8 {
        rows[0].codes
    }
    #[inline(always)]
    unsafe fn join([only, _]: [S::Floats; 2]) -> S::Floats {
        only
    }
    #[inline(always)]
    unsafe fn load_same(from: *const f32) -> S::Floats {
        // SAFETY: passed on to the caller.
        unsafe { S::load_floats(from) }
    }
    #[inline(always)]
    unsafe fn spread(from: &S::Floats, number: usize) -> S::Floats {
        // SAFETY: passed on to the caller; eight floats lie there.
        unsafe { S::splat(*std::ptr::from_ref(from).cast::<f32>().add(number)) }
    }
    #[inline(always)]
    unsafe fn spread_halves(from: &S::Floats, pair: usize) -> S::Floats {
        // SAFETY: as above.
        unsafe {
            let two = std::ptr::from_ref(from).cast::<f32>().add(2 * pair);
            S::splat_halves(*two, *two.add(1))
        }
    }
    #[inline(always)]
    unsafe fn row(x: S::Floats, _: usize) -> S::Floats {
        x
    }
}

/// Vectors of one row, and what else is done with its scales and codes.
///
/// # Safety
/// As for [`Vectors`].
pub(super) trait Simd: Vectors<Place = *const u8> {
    /// Words as they are multiplied with those of activations, the first sixteen and the last.
    unsafe fn parts(wide: Self::Wide) -> [Self::Bytes; 2];
    /// Words less a number.
    unsafe fn subtract(words: Self::Bytes, by: i16) -> Self::Bytes;
    /// The same bits.
    unsafe fn as_floats(bytes: Self::Bytes) -> Self::Floats;
    /// One number for the sums of each half.
    unsafe fn splat_halves(low: f32, high: f32) -> Self::Floats;
    unsafe fn load_floats(from: *const f32) -> Self::Floats;
    unsafe fn store_floats(x: Self::Floats, to: *mut f32);
    unsafe fn from_f16(from: &[u16; 8]) -> Self::Floats;
    unsafe fn from_bf16(from: &[u16; 8]) -> Self::Floats;
    /// Eight f16, `stride` bytes from one to the next. The stride is even and at least 16.
    unsafe fn each_f16(from: *const u8, stride: usize) -> Self::Floats;
    /// The first floats, each `2^shared` times.
    unsafe fn repeat(x: Self::Floats, shared: usize) -> Self::Floats;
    /// Eight bytes, the lowest first.
    unsafe fn from_u8(from: u64) -> Self::Floats;
    unsafe fn from_i8(from: u64) -> Self::Floats;
    /// Two to the power of each byte less 127; for 255 infinity.
    unsafe fn powers(of: u64) -> Self::Floats;
    /// Eight codes, from `8 * part` on, as floats.
    unsafe fn code_floats(signed: bool, codes: Self::Bytes, part: usize) -> Self::Floats;
    /// Rows as columns.
    #[inline(always)]
    unsafe fn transpose(rows: [Self::Floats; 8]) -> [Self::Floats; 8] {
        let mut square = [[0f32; 8]; 8];
        // SAFETY: passed on to the caller.
        unsafe {
            for (row, to) in rows.into_iter().zip(&mut square) {
                Self::store_floats(row, to.as_mut_ptr());
            }
            let mut columns = rows;
            for (i, to) in columns.iter_mut().enumerate() {
                let column: [f32; 8] = std::array::from_fn(|row| square[row][i]);
                *to = Self::load_floats(column.as_ptr());
            }
            columns
        }
    }
    /// Asks for the cache line at an address.
    unsafe fn prefetch(_at: *const u8) {}
}

/// The same byte thirty-two times.
#[inline(always)]
pub(super) unsafe fn all<S: Vectors>(byte: u8) -> S::Bytes {
    // SAFETY: passed on to the caller.
    unsafe { S::bytes(&[byte; GROUP]) }
}

/// The sum of eight floats, the halves first.
#[inline(always)]
pub(super) unsafe fn total<S: Simd>(x: S::Floats) -> f32 {
    let mut lanes = [0f32; 8];
    // SAFETY: passed on to the caller.
    unsafe { S::store_floats(x, lanes.as_mut_ptr()) };
    let [a, b, c, d, e, f, g, h] = lanes;
    ((a + e) + (c + g)) + ((b + f) + (d + h))
}

/// Where element `i` of a group lies if the even ones come first: activations of 16 bits, and those of 8 bits for
/// codes that are unpacked so.
#[inline(always)]
pub(super) fn even_first(i: usize) -> usize {
    i / 2 + GROUP / 2 * (i % 2)
}

/// The first 4, 8 or 12 bytes, the lowest first. Nothing past them is read.
#[inline(always)]
pub(super) unsafe fn first_bytes(from: *const u8, count: usize) -> u128 {
    // SAFETY: the caller gives the bytes.
    unsafe {
        match count {
            4 => u32::from_le_bytes(read(from)).into(),
            8 => u64::from_le_bytes(read(from)).into(),
            _ => {
                let (low, high): ([u8; 8], [u8; 4]) = (read(from), read(from.add(8)));
                u128::from(u64::from_le_bytes(low)) | u128::from(u32::from_le_bytes(high)) << 64
            }
        }
    }
}

/// Plain loops.
#[derive(Clone, Copy)]
pub(super) struct Portable;

#[inline(always)]
fn words(a: [u8; GROUP], f: impl Fn(usize, u16) -> u16) -> [u8; GROUP] {
    let mut result = [0; GROUP];
    for i in 0..GROUP / 2 {
        let word = f(i, u16::from_le_bytes([a[2 * i], a[2 * i + 1]]));
        result[2 * i..2 * i + 2].copy_from_slice(&word.to_le_bytes());
    }
    result
}

#[inline(always)]
unsafe fn read<const N: usize>(from: *const u8) -> [u8; N] {
    // SAFETY: the caller gives the bytes.
    unsafe { from.cast::<[u8; N]>().read_unaligned() }
}

impl Vectors for Portable {
    type Place = *const u8;
    type Bytes = [u8; GROUP];
    type Wide = [i16; GROUP];
    type Sums = [i32; 8];
    type Floats = [f32; 8];

    const UNROLLED: bool = false;
    #[inline(always)]
    unsafe fn bytes(from: &[u8; GROUP]) -> Self::Bytes {
        *from
    }
    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self::Bytes {
        // SAFETY: passed on to the caller.
        unsafe { read(from) }
    }
    #[inline(always)]
    unsafe fn halves(low: *const u8, high: *const u8) -> Self::Bytes {
        // SAFETY: passed on to the caller.
        let (low, high): ([u8; 16], [u8; 16]) = unsafe { (read(low), read(high)) };
        std::array::from_fn(|i| if i < 16 { low[i] } else { high[i - 16] })
    }
    #[inline(always)]
    unsafe fn few(from: *const u8, count: usize) -> Self::Bytes {
        // SAFETY: passed on to the caller.
        let bytes = unsafe { first_bytes(from, count) }.to_le_bytes();
        std::array::from_fn(|i| bytes[i % 16])
    }
    #[inline(always)]
    unsafe fn nibbles(from: *const u8) -> Self::Bytes {
        // SAFETY: passed on to the caller.
        let from: [u8; 16] = unsafe { read(from) };
        std::array::from_fn(|i| from[i % 16] >> (4 * (i / 16)) & 15)
    }
    #[inline(always)]
    unsafe fn nibble_pairs(from: *const u8) -> Self::Bytes {
        // SAFETY: passed on to the caller.
        let from: [u8; 16] = unsafe { read(from) };
        std::array::from_fn(|i| from[i / 2] >> (4 * (i % 2)) & 15)
    }
    #[inline(always)]
    unsafe fn where_set(bits: *const u8, value: u8) -> Self::Bytes {
        // SAFETY: passed on to the caller.
        let bits = u32::from_le_bytes(unsafe { read(bits) });
        std::array::from_fn(|i| (bits >> i & 1) as u8 * value)
    }
    #[inline(always)]
    unsafe fn and(a: Self::Bytes, b: Self::Bytes) -> Self::Bytes {
        std::array::from_fn(|i| a[i] & b[i])
    }
    #[inline(always)]
    unsafe fn or(a: Self::Bytes, b: Self::Bytes) -> Self::Bytes {
        std::array::from_fn(|i| a[i] | b[i])
    }
    #[inline(always)]
    unsafe fn xor(a: Self::Bytes, b: Self::Bytes) -> Self::Bytes {
        std::array::from_fn(|i| a[i] ^ b[i])
    }
    #[inline(always)]
    unsafe fn shift_left(a: Self::Bytes, by: usize) -> Self::Bytes {
        words(a, |_, word| word << by)
    }
    #[inline(always)]
    unsafe fn shift_right(a: Self::Bytes, by: usize) -> Self::Bytes {
        words(a, |_, word| word >> by)
    }
    #[inline(always)]
    unsafe fn multiply(a: Self::Bytes, b: Self::Bytes) -> Self::Bytes {
        words(a, |i, word| word.wrapping_mul(u16::from_le_bytes([b[2 * i], b[2 * i + 1]])))
    }
    #[inline(always)]
    unsafe fn shuffle(a: Self::Bytes, places: Self::Bytes) -> Self::Bytes {
        std::array::from_fn(|i| a[i / 16 * 16 + (places[i] & 15) as usize])
    }
    #[inline(always)]
    unsafe fn widen(signed: bool, codes: Self::Bytes) -> Self::Wide {
        let mut wide = [0; GROUP];
        for (i, code) in codes.into_iter().enumerate() {
            wide[even_first(i)] = if signed { code as i8 as i16 } else { code as i16 };
        }
        wide
    }
    #[inline(always)]
    unsafe fn wide_bytes(from: *const u8) -> Self::Wide {
        // SAFETY: passed on to the caller.
        let bytes: [u8; GROUP] = unsafe { read(from) };
        bytes.map(|byte| byte as i8 as i16)
    }
    #[inline(always)]
    unsafe fn dot_wide(codes: Self::Wide, activations: *const u8) -> Self::Sums {
        let mut sums = [0; 8];
        for (i, code) in codes.into_iter().enumerate() {
            // SAFETY: the caller gives a group of activations.
            let x = i16::from_le_bytes(unsafe { read(activations.add(2 * i)) });
            sums[i % (GROUP / 2) / 2] += x as i32 * code as i32;
        }
        sums
    }
    #[inline(always)]
    unsafe fn dot(signed: bool, codes: Self::Bytes, activations: *const u8) -> Self::Sums {
        let mut sums = [0; 8];
        for (i, code) in codes.into_iter().enumerate() {
            // SAFETY: the caller gives a group of activations.
            let x = unsafe { *activations.add(i) } as i8 as i32;
            sums[i / 4] += x * if signed { code as i8 as i32 } else { code as i32 };
        }
        sums
    }
    #[inline(always)]
    unsafe fn floats(sums: Self::Sums) -> Self::Floats {
        sums.map(|sum| sum as f32)
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
        // In one rounding, though slow without the instruction: what is decoded must be the same on
        // every processor.
        std::array::from_fn(|i| a[i].mul_add(b[i], c[i]))
    }
}

impl Simd for Portable {
    #[inline(always)]
    unsafe fn parts(wide: Self::Wide) -> [Self::Bytes; 2] {
        let bytes = |part: usize| {
            let word = |i: usize| wide[GROUP / 2 * part + i / 2].to_le_bytes();
            std::array::from_fn(|i| word(i)[i % 2])
        };
        [bytes(0), bytes(1)]
    }
    #[inline(always)]
    unsafe fn subtract(a: Self::Bytes, by: i16) -> Self::Bytes {
        words(a, |_, word| word.wrapping_sub(by as u16))
    }
    #[inline(always)]
    unsafe fn as_floats(bytes: Self::Bytes) -> Self::Floats {
        std::array::from_fn(|i| f32::from_le_bytes(std::array::from_fn(|byte| bytes[4 * i + byte])))
    }
    #[inline(always)]
    unsafe fn splat_halves(low: f32, high: f32) -> Self::Floats {
        [low, low, low, low, high, high, high, high]
    }
    #[inline(always)]
    unsafe fn load_floats(from: *const f32) -> Self::Floats {
        // SAFETY: passed on to the caller.
        unsafe { from.cast::<[f32; 8]>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store_floats(x: Self::Floats, to: *mut f32) {
        // SAFETY: passed on to the caller.
        unsafe { to.cast::<[f32; 8]>().write_unaligned(x) }
    }
    #[inline(always)]
    unsafe fn from_f16(from: &[u16; 8]) -> Self::Floats {
        from.map(|bits| f16::from_bits(bits).to_f32())
    }
    #[inline(always)]
    unsafe fn from_bf16(from: &[u16; 8]) -> Self::Floats {
        from.map(|bits| f32::from_bits((bits as u32) << 16))
    }
    #[inline(always)]
    unsafe fn each_f16(from: *const u8, stride: usize) -> Self::Floats {
        // SAFETY: passed on to the caller.
        std::array::from_fn(|i| unsafe { f16::from_le_bytes(read(from.add(i * stride))).to_f32() })
    }
    #[inline(always)]
    unsafe fn repeat(x: Self::Floats, shared: usize) -> Self::Floats {
        std::array::from_fn(|i| x[i >> shared])
    }
    #[inline(always)]
    unsafe fn from_u8(from: u64) -> Self::Floats {
        from.to_le_bytes().map(f32::from)
    }
    #[inline(always)]
    unsafe fn from_i8(from: u64) -> Self::Floats {
        from.to_le_bytes().map(|byte| (byte as i8).into())
    }
    #[inline(always)]
    unsafe fn powers(of: u64) -> Self::Floats {
        // The exponent of a float; the power of zero is below the normal ones.
        of.to_le_bytes().map(|byte| f32::from_bits(((byte as u32) << 23).max(1 << 22)))
    }
    #[inline(always)]
    unsafe fn code_floats(signed: bool, codes: Self::Bytes, part: usize) -> Self::Floats {
        std::array::from_fn(|i| {
            let code = codes[8 * part + i];
            if signed { (code as i8).into() } else { code.into() }
        })
    }
}
