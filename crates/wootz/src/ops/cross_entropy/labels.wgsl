// Labels of rows: their columns, or none where a row does not count.
const NONE = 0xffffffffu;

fn column(row: u32) -> u32 {
    if (!counts(row)) { return NONE; }
    let found = place(labels(p.labels_offset + row), p.columns);
    // One out of range has been reported; nothing is written then.
    return select(NONE, found.x, found.y == 1u);
}
