
// A number of elements, their mean, and the sum of their squared distances from it.
struct WzMoments { n: f32, mean: f32, squares: f32 }

fn wz_moments_join(a: WzMoments, b: WzMoments) -> WzMoments {
    let n = a.n + b.n;
    let share = b.n / n;
    let d = b.mean - a.mean;
    return WzMoments(n, a.mean + d * share, a.squares + b.squares + d * d * a.n * share);
}

fn wz_moments_variance(a: WzMoments, scale: f32) -> f32 {
    if (wz_isnan(a.mean) || wz_isinf(a.mean)) { return wz_nan(); }
    return a.squares * scale;
}
