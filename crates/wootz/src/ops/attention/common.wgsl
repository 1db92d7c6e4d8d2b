// What the kernels of attention share. Before this stand constants: D and DV, the dims of keys and
// of values; R, the rows that a workgroup of 256 holds; LINES, the lines of a tile that it goes
// through.

struct Params {
    groups: u32, batch: u32, heads: u32, key_heads: u32, queries: u32, keys: u32,
    kinds: u32, rows: u32, splits: u32, split_keys: u32,
    scale: f32, softcap: f32, causal: u32, window: u32,
    q_offset: u32, k_offset: u32, v_offset: u32, dout_offset: u32, lse_offset: u32, d_offset: u32,
    mask_offset: u32, sinks_offset: u32, length_offset: u32,
    mask_batch: u32, mask_head: u32, mask_query: u32, mask_key: u32, site: u32,
    sequences: u32, key_ends_offset: u32,
    // Scales and biases of quantized keys and values take the places from `dout_offset` on, and the last this.
    last_offset: u32,
}
var<immediate> p: Params;

const WIDTH = 256u;
const LANES = WIDTH / R;
// Scores that a thread computes of a tile.
const PER = LINES / LANES;
const LOWEST = -3.4028235e38;
// The bits of a score that takes no part, and those of its weight: a zero that no other weight is.
const HIDDEN = 0xffffffffu;
const ABSENT = 0x80000000u;
// The first key that rows see of which nothing is to be written.
const NOWHERE = 0xffffffffu;

// Bits of a NaN are those of one NaN.
fn bits_of(score: f32) -> u32 {
    return select(bitcast<u32>(score), 0x7fc00000u, wz_isnan(score));
}

// Scores of which a row becomes NaN.
fn strange(bits: u32) -> bool {
    return (bits & 0x7fffffffu) > 0x7f800000u || bits == 0x7f800000u;
}

fn power_of(bits: u32, base: f32) -> f32 {
    return select(wz_exp(bitcast<f32>(bits) - base), wz_nan(), strange(bits));
}
