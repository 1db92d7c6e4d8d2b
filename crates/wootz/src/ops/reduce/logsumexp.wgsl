// A maximum m and the sum s of e^(x - m), as (m, s).
fn wz_lse_rescaled(a: vec2f, m: f32) -> f32 {
    if (bitcast<u32>(a.x) == bitcast<u32>(m)) { return a.y; }
    return select(a.y * wz_exp(a.x - m), 0.0, wz_isinf(a.x));
}

fn wz_lse_join(a: vec2f, b: vec2f) -> vec2f {
    let m = wz_maximum(a.x, b.x);
    if (wz_isnan(m) || wz_isinf(m)) { return vec2f(m, 1.0); }
    return vec2f(m, wz_lse_rescaled(a, m) + wz_lse_rescaled(b, m));
}

fn wz_lse_value(a: vec2f) -> f32 {
    if (wz_isnan(a.x) || wz_isinf(a.x)) { return a.x; }
    return a.x + wz_log(a.y);
}
