// Four elements of NAME from `i` on, a multiple of four: codes of NAME_BITS bits one after the other, which may
// go on in the next word, with a scale and a bias for each NAME_GROUP elements.
fn NAME_four(i: u32) -> vec4<f32> {
    let bit = i % 32u * NAME_BITS;
    let at = p.NAME_offset + i / 32u * NAME_BITS + bit / 32u;
    let shift = bit % 32u;
    var codes = NAME_codes_data[at] >> shift;
    if (shift + 4u * NAME_BITS > 32u) { codes |= NAME_codes_data[at + 1u] << (32u - shift); }
    let places = vec4<u32>(0u, NAME_BITS, 2u * NAME_BITS, 3u * NAME_BITS);
    let four = (vec4<u32>(codes) >> places) & vec4<u32>((1u << NAME_BITS) - 1u);
    let group = i / NAME_GROUP;
    return NAME_scales(SCALES_AT + group) * vec4<f32>(four)
        + NAME_biases(BIASES_AT + group);
}
