struct Params { total: u32, length: u32, offset: u32, start: u32 }
var<immediate> p: Params;
@group(0) @binding(1) var<storage, read_write> order: array<u32>;
