// Digits of base 3, five to a byte.

fn decode_unit(at: u32, unit: u32, weights: ptr<function, array<f32, 32>>) {
    let d = w_half(at + 52u);
    for (var i = 0u; i < 32u; i++) {
        let element = 32u * unit + i;
        var byte = element % 32u;
        var digit = element / 32u;
        if (element >= 240u) {
            byte = 48u + element % 4u;
            digit = (element - 240u) / 4u;
        } else if (element >= 160u) {
            byte = 32u + element % 16u;
            digit = (element - 160u) / 16u;
        }
        var fraction = w_byte(at + byte);
        for (var power = 0u; power < digit; power++) { fraction = (fraction * 3u) & 0xffu; }
        (*weights)[i] = d * (f32((fraction * 3u) >> 8u) - 1.0);
    }
}
