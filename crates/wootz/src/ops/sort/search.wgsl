struct Params { total: u32, length: u32, offset: u32, values: u32 }
var<immediate> p: Params;

fn place(i: u32) -> u32 {
    let mine = key(value(p.values + i));
    var low = 0u;
    var high = p.length;
    while (low < high) {
        let middle = low + (high - low) / 2u;
        let other = key(x(p.offset + middle));
        if (BEFORE) { low = middle + 1u; } else { high = middle; }
    }
    return low;
}
