// Spans of a thread in a row: see gpu/rows.rs. The number of kept ones is known to the compiler.
fn span_steps(columns: u32) -> u32 {
    if (KEPT > 0u) { return KEPT; }
    return (columns + WIDTH * SPAN - 1u) / (WIDTH * SPAN);
}

fn span_column(step: u32, lid: u32) -> u32 {
    return (step * WIDTH + lid) * SPAN;
}
