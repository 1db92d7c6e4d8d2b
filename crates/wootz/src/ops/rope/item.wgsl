// Moves an item of a head: rotates a pair of features, or as many as make whole words; past the `pairs` come the
// features that are copied.
fn move_item(item: u32, pairs: u32, source: u32, to: u32, turns: vec4f) {
    let pair = item * PAIRS;
    let both = pair + 1u < HALF;
    if (item >= pairs) {
        let at = 2u * HALF + (item - pairs) * PER_WORD;
        if (PER_WORD == 2u && at + 1u < FEATURES) {
            put2(to + at, x2(source + at));
        } else {
            put(to + at, x(source + at));
        }
    } else if (TRADITIONAL) {
        let at = 2u * pair;
        put2(to + at, rotated(x2(source + at), turns.xy));
    } else {
        let at = source + pair;
        if (PAIRS == 2u && both) {
            let left = x2(at);
            let right = x2(at + HALF);
            let y = rotated(vec2f(left.x, right.x), turns.xy);
            let z = rotated(vec2f(left.y, right.y), turns.zw);
            put2(to + pair, vec2f(y.x, z.x));
            put2(to + pair + HALF, vec2f(y.y, z.y));
        } else {
            let y = rotated(vec2f(x(at), x(at + HALF)), turns.xy);
            put(to + pair, y.x);
            put(to + pair + HALF, y.y);
        }
    }
}
