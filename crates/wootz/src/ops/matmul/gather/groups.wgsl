// Which products belong together: where those of each right matrix begin, and for each in that
// order its number, its left matrix and its right one.
@group(0) @binding(3) var<storage, read> groups_data: array<u32>;

fn starts(expert: u32) -> u32 { return groups_data[expert]; }
fn product(i: u32) -> u32 { return groups_data[p.experts + 1u + i]; }
fn left(i: u32) -> u32 { return groups_data[p.experts + 1u + p.items + i]; }
fn right(i: u32) -> u32 { return groups_data[p.experts + 1u + 2u * p.items + i]; }
