// Where a chunk's state is, counted in the heads that are kept: a row of values for each key.
fn state_at(head: u32, chunk: u32, key: u32) -> u32 {
    return ((head * chunks() + chunk) * KEYS + key) * p.values;
}
