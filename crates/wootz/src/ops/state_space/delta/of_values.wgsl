// The gradients of what was wrong and of results, times what was learnt.
const ONE = 0u;
fn width() -> u32 { return p.values; }
fn at_value(head: u32, step: u32, value: u32) -> u32 { return (head * p.steps + step) * p.values + value; }
fn one(head: u32, step: u32, value: u32) -> f32 {
    return memory[p.dv + at_value(p.first_head + head, step, value)];
}
fn two(head: u32, step: u32, value: u32) -> f32 {
    return dy(p.dy + at_value(p.first_head + head, step, value));
}
fn right(head: u32, step: u32, value: u32) -> f32 { return memory[p.learnt + at_value(head, step, value)]; }
fn pairs_at() -> u32 { return p.slopes; }
