// What is taken away from a row before its squares are summed, lest those of a large mean drown the
// variance: the mean of its first elements, one for each thread.
fn row_shift(first: u32, columns: u32, lid: u32) -> f32 {
    if (!CENTRED) { return 0.0; }
    var value = 0.0;
    if (lid < columns) { value = x(first + lid); }
    return group_sum(vec2<f32>(value, 0.0), lid).x / f32(min(columns, WIDTH));
}

// Mean and factor of a row from the sums of the squares and of the values less the shift.
fn mean_and_scale(sums: vec2<f32>, shift: f32, columns: u32, eps: u32) -> vec2<f32> {
    if (!CENTRED) { return vec2<f32>(0.0, inverse_root(sums.x, columns, eps)); }
    let rest = sums.y / f32(columns);
    let variance = sums.x / f32(columns) - rest * rest;
    // Rounding may lead below zero; not `max`, which need not keep NaN.
    let square = select(variance, 0.0, variance < 0.0);
    return vec2<f32>(shift + rest, inverseSqrt(square + bitcast<f32>(eps)));
}

// Whether a row has an infinity or NaN in it, and so is NaN in every place. Asked of the bits, and
// said by bits where results are stored: see fast math.
fn is_undefined(squares: f32) -> bool {
    return CENTRED && (bitcast<u32>(squares) & 0x7f800000u) == 0x7f800000u;
}

fn undefined_or(value: f32, undefined: bool) -> f32 {
    var nan = 0x7fc00000u;
    return bitcast<f32>(select(bitcast<u32>(value), nan, undefined));
}
