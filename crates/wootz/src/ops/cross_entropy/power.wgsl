// A power that is at most 1, whatever the log-sum-exp was rounded to. What is above zero is told on
// the bits, because fast math may take NaN for it.
fn power(x: f32) -> f32 {
    return wz_exp(select(x, 0.0, bitcast<u32>(x) - 1u < 0x7f800000u));
}
