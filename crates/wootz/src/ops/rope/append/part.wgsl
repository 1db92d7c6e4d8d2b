// One of the arrays that are moved: its thread number `id` takes an item of a row.
fn move_part(id: u32) {
    let item = id % ITEMS;
    let row = (id / ITEMS) % p.length;
    let head = id / (ITEMS * p.length);
    let text = head / HEADS;
    let source = p.at + text * p.per_text + (head % HEADS) * p.per_head + row * p.per_row;
    let to = (TARGET) * FEATURES;
    move_item(item, PAIRED, source, to, TURNS);
}
