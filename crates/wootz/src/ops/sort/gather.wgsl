// Outputs are the ends of rows, of `kept` elements each.
struct Params { total: u32, length: u32, kept: u32, offset: u32, start: u32 }
var<immediate> p: Params;
@group(0) @binding(1) var<storage, read_write> order: array<u32>;

fn place(i: u32) -> u32 { return (i / p.kept + 1u) * p.length - p.kept + i % p.kept; }
