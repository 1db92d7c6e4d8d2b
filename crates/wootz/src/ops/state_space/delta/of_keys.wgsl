// Keys and queries times keys.
const ONE = 2u * SIDE;
fn width() -> u32 { return KEYS; }
fn one(head: u32, step: u32, key: u32) -> f32 { return k(p.k + (head * p.steps + step) * KEYS + key); }
fn two(head: u32, step: u32, key: u32) -> f32 { return q(p.q + (head * p.steps + step) * KEYS + key); }
fn right(head: u32, step: u32, key: u32) -> f32 { return one(head, step, key); }
fn pairs_at() -> u32 { return p.pairs; }
