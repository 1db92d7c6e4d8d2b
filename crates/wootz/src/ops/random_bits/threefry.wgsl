// Elements in all, elements and words per key, and where the keys start.
struct Params { total: u32, count: u32, words: u32, offset: u32 }
var<immediate> p: Params;

fn rotate(x: u32, by: u32) -> u32 { return (x << by) | (x >> (32u - by)); }

fn mix(v: vec2u, by: u32) -> vec2u {
    let x = v.x + v.y;
    return vec2u(x, rotate(v.y, by) ^ x);
}

fn even(v: vec2u) -> vec2u { return mix(mix(mix(mix(v, 13u), 15u), 26u), 6u); }
fn odd(v: vec2u) -> vec2u { return mix(mix(mix(mix(v, 17u), 29u), 16u), 24u); }

fn threefry(key: vec2u, counter: vec2u) -> vec2u {
    let third = key.x ^ key.y ^ 0x1bd11bdau;
    var v = counter + key;
    v = even(v) + vec2u(key.y, third + 1u);
    v = odd(v) + vec2u(third, key.x + 2u);
    v = even(v) + vec2u(key.x, key.y + 3u);
    v = odd(v) + vec2u(key.y, third + 4u);
    return even(v) + vec2u(third, key.x + 5u);
}

fn element(i: u32) -> u32 {
    let number = i / p.count;
    let byte = (i - number * p.count) * SIZE;
    let index = byte / 4u;
    let pair = vec2u(key(p.offset + 2u * number), key(p.offset + 2u * number + 1u));
    // The first half of the words are first results of blocks, the second half second results.
    let half = p.words / 2u;
    let behind = p.words - half;
    var word: u32;
    if (index < half) {
        word = threefry(pair, vec2u(index, index + behind)).x;
    } else if (index < behind) {
        word = threefry(pair, vec2u(index, 0u)).x;
    } else {
        word = threefry(pair, vec2u(index - behind, index)).y;
    }
    return word >> (8u * (byte % 4u));
}
