// Before this stands `sequence`. Keys that a query sees by its position: the first, and one past the last.
fn sees(batch: u32, query: u32) -> vec2<u32> {
    // One past the last query of its sequence, and the sequence's keys.
    let own = sequence(batch, query);
    let length = i32(own.z - own.y);
    let next = i32(query) + 1i + length - i32(own.x);
    var end = length;
    if (p.causal != 0u) { end = clamp(next, 0i, length); }
    var start = 0i;
    if (p.window != 0u) { start = clamp(next - i32(p.window), 0i, end); }
    return own.y + vec2<u32>(u32(start), u32(end));
}
