
fn decode_unit(at: u32, unit: u32, weights: ptr<function, array<f32, 32>>) {
    // The block's scale is in the high nibbles of four words, below which are three scales each.
    var bits = 0u;
    for (var i = 0u; i < 4u; i++) { bits |= (w_byte(at + 49u + 2u * i) >> 4u) << (4u * i); }
    let d = wz_widen_float16(bits, 0u);
    for (var part = 0u; part < 4u; part++) {
        let group = 2u * unit + part / 2u;
        let word = at + 48u + 2u * (group / 4u);
        let code = ((w_byte(word) | (w_byte(word + 1u) << 8u)) >> (3u * (group % 4u))) & 7u;
        let scale = d * f32(2u * code + 1u);
        let high = w_byte(at + 32u + 2u * unit + part / 2u) >> (4u * (part % 2u));
        let place = point(w_byte(at + 4u * unit + part) | ((high & 7u) << 8u));
        moved(part, scale, place, signed(0.125, high >> 3u), weights);
    }
}
