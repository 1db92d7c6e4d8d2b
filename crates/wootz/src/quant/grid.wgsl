// Points of a lattice: eight weights of a unit are number `part`. Two points are a word of the table.

fn point(i: u32) -> u32 { return (w_table[i >> 1u] >> (16u * (i & 1u))) & 0xffffu; }

fn signed(x: f32, sign: u32) -> f32 { return select(x, -x, (sign & 1u) == 1u); }

// Eight signs from seven: their number is even.
fn signs_of(word: u32) -> u32 {
    let seven = word & 127u;
    return seven | ((countOneBits(seven) & 1u) << 7u);
}

// Eight coordinates of 2 bits, for 8, 25 and 43.
fn eight(part: u32, scale: f32, point: u32, signs: u32, weights: ptr<function, array<f32, 32>>) {
    for (var i = 0u; i < 8u; i++) {
        let level = f32((0x2b1908u >> (8u * ((point >> (2u * i)) & 3u))) & 0xffu);
        (*weights)[8u * part + i] = signed(scale * level, signs >> i);
    }
}

// Eight coordinates of 2 bits for -1, 0 and 1, moved.
fn moved(part: u32, scale: f32, point: u32, by: f32, weights: ptr<function, array<f32, 32>>) {
    for (var i = 0u; i < 8u; i++) {
        (*weights)[8u * part + i] = scale * (f32((point >> (2u * i)) & 3u) - 1.0 + by);
    }
}
