// What is taken away from a row before its squares are summed, lest those of a large mean drown the
// variance: the mean of its first elements, a span for each thread.
fn row_shift(first: u32, columns: u32, lid: u32) -> f32 {
    if (!CENTRED) { return 0.0; }
    let column = span_column(0u, lid);
    var value = 0.0;
    if (column < columns) { value = span_sum(x_row(0u, first + column)); }
    return group_sum(vec2<f32>(value, 0.0), lid).x / f32(min(columns, WIDTH * SPAN));
}

// What sums over a row are divided by.
fn count_of(columns: u32) -> u32 {
    return select(columns, 1u, SUMMED);
}

// Mean and factor of a row from the sums of the squares and of the values less the shift.
fn mean_and_scale(sums: vec2<f32>, shift: f32, columns: u32, eps: u32) -> vec2<f32> {
    if (!CENTRED) { return vec2<f32>(0.0, inverse_root(sums.x, count_of(columns), eps)); }
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

fn undefined_or(value: Span, undefined: bool) -> Span {
    var nan = SpanBits(0x7fc00000u);
    return bitcast<Span>(select(bitcast<SpanBits>(value), nan, undefined));
}
