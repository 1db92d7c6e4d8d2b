// Without a mask no tile is looked at before it is gone through.
const MASKED = false;
fn look_first(lid: u32) {}
fn finds_seen(batch: u32, row: u32, rows: u32, key: u32, keys: u32, span: u32, lid: u32) -> bool { return true; }
fn some_see(own: bool, lid: u32) -> bool { return true; }
