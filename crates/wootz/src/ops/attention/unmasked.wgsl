// Without a mask no tile is looked at before it is gone through.
const MASKED = false;
fn look_first(lid: u32) {}
fn unmasked(range: vec2<u32>, mask_at: u32, key: u32) -> bool { return true; }
fn some_see(own: bool, lid: u32) -> bool { return true; }
