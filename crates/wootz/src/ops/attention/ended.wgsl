// What becomes of a row's sums, and its log-sum-exp, when its sink has joined.
struct Ending { factor: f32, lse: f32 }

fn ended(head: u32, most: f32, total: f32) -> Ending {
    var top = most;
    var all = total;
    if (SINKS) {
        let bits = bits_of(sink(head));
        if (strange(bits)) {
            all = wz_nan();
        } else if (bits != 0xff800000u) {
            top = max(most, bitcast<f32>(bits));
            all = total * wz_exp(most - top) + wz_exp(bitcast<f32>(bits) - top);
        }
    }
    if (wz_iszero(all)) { return Ending(0.0, -wz_inf()); }
    return Ending(wz_exp(most - top) / all, top + wz_log(all));
}
