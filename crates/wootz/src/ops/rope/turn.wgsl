// Cosine and sine of a pair, times the amplitude.
fn turn(pair: u32, group: u32, row: u32) -> vec2f {
    var angle = 0.0;
    for (var axis = 0u; axis < AXES; axis++) {
        let frequency = frequencies(p.frequencies_offset + axis * HALF + pair);
        let term = position(axis, group, row) * p.scale * frequency;
        if (axis == 0u) { angle = term; } else { angle += term; }
    }
    return vec2f(wz_cos(angle), wz_sin(angle) * SINE_SIGN) * p.amplitude;
}

// The turns of an item's pairs; nothing of one that is copied.
fn turns_of(item: u32, pairs: u32, group: u32, row: u32) -> vec4f {
    let pair = item * PAIRS;
    var turns = vec4f(0.0);
    if (item < pairs) {
        turns = vec4f(turn(pair, group, row), 0.0, 0.0);
        if (PAIRS == 2u && pair + 1u < HALF) {
            turns = vec4f(turns.xy, turn(pair + 1u, group, row));
        }
    }
    return turns;
}

fn rotated(at: vec2f, turn: vec2f) -> vec2f {
    return vec2f(at.x * turn.x - at.y * turn.y, at.x * turn.y + at.y * turn.x);
}
