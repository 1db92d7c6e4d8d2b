// Quantized weights lie at any byte of `w_data`.

fn w_byte(at: u32) -> u32 { return (w_data[at >> 2u] >> (8u * (at & 3u))) & 0xffu; }

fn w_word(at: u32) -> u32 {
    let shift = 8u * (at & 3u);
    let low = w_data[at >> 2u] >> shift;
    if (shift == 0u) { return low; }
    return low | (w_data[(at >> 2u) + 1u] << (32u - shift));
}

fn w_half(at: u32) -> f32 { return wz_widen_float16(w_byte(at) | (w_byte(at + 1u) << 8u), 0u); }

fn w_signed_byte(word: u32, lane: u32) -> f32 {
    return f32(bitcast<i32>(word << (24u - 8u * lane)) >> 24u);
}
