// A power that is at most 1, whatever the log-sum-exp was rounded to.
fn power(x: f32) -> f32 { return wz_exp(select(x, 0.0, x > 0.0)); }
