// Where the state before a chunk is, counted in the heads that are kept: a row of values for each key; and the
// gradient of that behind it.
fn state_at(head: u32, chunk: u32, key: u32) -> u32 {
    return ((head * chunks() + chunk) * KEYS + key) * p.values;
}
fn end_at(head: u32, chunk: u32, key: u32) -> u32 {
    return (chunk_of(head, chunk) * KEYS + key) * p.values;
}
