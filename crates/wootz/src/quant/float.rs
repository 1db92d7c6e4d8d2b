//! MLX's float formats: mxfp4, mxfp8 and nvfp4. Codes of 4 or 8 bits are floats themselves, and a group
//! of a row has a scale of one byte.

use super::small_float::{DOUBLED, e4m3};

/// One of the formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum FloatGroups {
    /// e2m1 codes, a power of two for each 32.
    Mxfp4,
    /// e4m3 codes, a power of two for each 32.
    Mxfp8,
    /// e2m1 codes, an e4m3 scale for each 16.
    Nvfp4,
}

impl FloatGroups {
    pub(crate) fn bits(self) -> usize {
        if self == FloatGroups::Mxfp8 { 8 } else { 4 }
    }

    pub(crate) fn group(self) -> usize {
        if self == FloatGroups::Nvfp4 { 16 } else { 32 }
    }

    /// The largest number that codes and scales of powers of two hold in single precision.
    pub(crate) fn largest(self) -> f32 {
        let power = |exponent: u32| f32::from_bits((127 + exponent) << 23);
        match self {
            FloatGroups::Mxfp4 => 6.0 * power(125),
            FloatGroups::Mxfp8 => 448.0 * power(119),
            FloatGroups::Nvfp4 => 6.0 * 448.0,
        }
    }

    /// Decodes whole groups. Scales are rounded by `round` first.
    pub(crate) fn decode(
        self,
        codes: &[u8],
        scales: &[u8],
        round: impl Fn(f32) -> f32,
        weights: &mut [f32],
    ) {
        let group = self.group();
        let bytes = codes.chunks_exact(group / 8 * self.bits());
        for ((weights, codes), &scale) in weights.chunks_exact_mut(group).zip(bytes).zip(scales) {
            let scale = round(self.scale(scale));
            if self == FloatGroups::Mxfp8 {
                for (weight, &code) in weights.iter_mut().zip(codes) {
                    *weight = e4m3(code) * scale;
                }
            } else {
                for (pair, code) in weights.chunks_exact_mut(2).zip(codes) {
                    pair[0] = e2m1(code & 15) * scale;
                    pair[1] = e2m1(code >> 4) * scale;
                }
            }
        }
    }

    /// Encodes a group, and tells its scale.
    pub(crate) fn encode(self, weights: &[f32], codes: &mut [u8]) -> u8 {
        let largest = weights.iter().map(|w| w.abs()).fold(0.0, f32::max);
        let most = if self == FloatGroups::Mxfp8 { 448.0 } else { 6.0 };
        let byte = match self {
            FloatGroups::Nvfp4 => to_e4m3(largest / most),
            _ if largest == 0.0 => 127,
            // Else a number near the largest float32 would be rounded to one beyond it.
            _ => (rounded_up_log2(largest.min(self.largest()) / most) + 127).clamp(0, 255) as u8,
        };
        let scale = self.scale(byte);
        let scale = if scale == 0.0 { 1.0 } else { scale };
        if self == FloatGroups::Mxfp8 {
            for (code, w) in codes.iter_mut().zip(weights) {
                *code = to_e4m3(w / scale);
            }
        } else {
            for (code, pair) in codes.iter_mut().zip(weights.chunks_exact(2)) {
                *code = to_e2m1(pair[0] / scale) | to_e2m1(pair[1] / scale) << 4;
            }
        }
        byte
    }

    #[inline(always)]
    fn scale(self, byte: u8) -> f32 {
        match self {
            FloatGroups::Nvfp4 => e4m3(byte),
            _ if byte == 0 => f32::from_bits(1 << 22),
            _ => f32::from_bits((byte as u32) << 23),
        }
    }
}

/// The logarithm to base 2, rounded to a `float32` and then up to a whole number: numbers a little above
/// a power of two count as one. For positive finite numbers.
fn rounded_up_log2(x: f32) -> i32 {
    let bits = x.max(f32::MIN_POSITIVE).to_bits();
    let (exponent, steps) = ((bits >> 23) as i32 - 127, bits & 0x7f_ffff);
    // A step above the power of two adds 1.44 units of 2^-23, and what is less than half of the distance
    // from the exponent to the next number is lost. Below zero that lies towards zero.
    let magnitude = exponent.unsigned_abs();
    let nearer = (exponent < 0 && magnitude.is_power_of_two()) as u32;
    let distance =
        magnitude.checked_ilog2().map_or(0.0, |log| f32::exp2((log - nearer.min(log)) as f32));
    let counts = steps as f32 * std::f32::consts::LOG2_E > 0.5 * distance;
    exponent + (steps > 0 && counts) as i32
}

/// What codes of 4 bits stand for. Zero has a sign, other than in GGUF's blocks.
#[inline(always)]
fn e2m1(code: u8) -> f32 {
    let magnitude = 0.5 * DOUBLED[(code & 7) as usize] as f32;
    if code < 8 { magnitude } else { -magnitude }
}

/// The nearest e2m1, of two the one nearer to zero. What becomes zero is positive.
fn to_e2m1(x: f32) -> u8 {
    // Halfway between the magnitudes.
    const BOUNDS: [f32; 7] = [0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0];
    let code = BOUNDS.iter().map(|&bound| (x.abs() > bound) as u8).sum();
    if x < 0.0 && code > 0 { code | 8 } else { code }
}

/// The nearest e4m3, of two the even one; what is too large, and NaN, becomes the largest.
fn to_e4m3(x: f32) -> u8 {
    let sign = (x.to_bits() >> 24) as u8 & 0x80;
    let x = x.abs();
    let code = if x < f32::from_bits(121 << 23) {
        // Multiples of 2^-9.
        (x * 512.0).round_ties_even() as u32
    } else {
        let bits = x.to_bits();
        let rounded = (bits + 0x7ffff + (bits >> 20 & 1)) >> 20;
        (rounded - (120 << 3)).min(0x7e)
    };
    sign | code as u8
}

#[cfg(test)]
mod tests {
    use super::rounded_up_log2;

    #[test]
    fn logarithms_are_as_a_float_rounds_them() {
        for exponent in -125..127 {
            for steps in (0..40).chain([1 << 10, 1 << 22, (1 << 23) - 1]) {
                let x = f32::from_bits(((exponent + 127) as u32) << 23 | steps);
                let want = (x as f64).log2() as f32;
                assert_eq!(rounded_up_log2(x), want.ceil() as i32, "{x:e}: {exponent} {steps}");
            }
        }
    }
}
