// Quantized weights lie at any byte of `w_data`.

fn w_byte(at: u32) -> u32 { return (w_data[at >> 2u] >> (8u * (at & 3u))) & 0xffu; }

fn w_word(at: u32) -> u32 {
    let shift = 8u * (at & 3u);
    let low = w_data[at >> 2u] >> shift;
    if (shift == 0u) { return low; }
    return low | (w_data[(at >> 2u) + 1u] << (32u - shift));
}

// Sixteen bytes, for which each word is read once.
fn w_words(at: u32) -> vec4u {
    let i = at >> 2u;
    let shift = vec4u(8u * (at & 3u));
    let words = vec4u(w_data[i], w_data[i + 1u], w_data[i + 2u], w_data[i + 3u]);
    if (shift.x == 0u) { return words; }
    return (words >> shift) | (vec4u(words.yzw, w_data[i + 4u]) << (vec4u(32u) - shift));
}

fn w_half(at: u32) -> f32 {
    let lane = at & 3u;
    var bits = w_data[at >> 2u] >> (8u * lane);
    if (lane == 3u) { bits |= w_data[(at >> 2u) + 1u] << 8u; }
    return wz_widen_float16(bits, 0u);
}

fn w_signed_byte(word: u32, lane: u32) -> f32 {
    return f32(bitcast<i32>(word << (24u - 8u * lane)) >> 24u);
}
