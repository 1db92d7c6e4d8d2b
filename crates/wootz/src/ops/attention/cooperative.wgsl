// Products of tiles by matrices of 8x8 elements that the threads of a subgroup hold together. The tiles here are 16 rows of
// 32, eight matrices: one for each subgroup. There are at least eight, because where there are such matrices a subgroup has
// 32 threads; of more, two compute the same.

alias Left = coop_mat8x8<f32, A>;
alias Right = coop_mat8x8<f32, B>;
alias Sum = coop_mat8x8<f32, C>;

// More than the tile, so that the rows of a matrix lie on different banks.
const PITCH = 36u;
var<private> subgroup_number: u32;
var<workgroup> zeros: array<f32, 64>;
var<workgroup> powers: array<f32, R * PITCH>;
var<workgroup> results: array<f32, R * PITCH>;
// Whether a value was NaN or infinite: then zeros of keys that are not seen may not be multiplied with it.
var<workgroup> odd: atomic<u32>;

// Compilers need not agree on what a matrix made of nothing holds.
fn make_zeros(lid: u32) {
    if (lid < 64u) { zeros[lid] = 0.0; }
    workgroupBarrier();
}

// Where a subgroup's rows and columns begin.
fn part() -> vec2<u32> {
    let number = subgroup_number % 8u;
    return vec2<u32>(number / 4u * 8u, number % 4u * 8u);
}

// The powers of a tile, with zeros for keys that are not seen.
fn keep_powers(lid: u32) {
    for (var e = lid; e < R * C; e += WIDTH) {
        let bits = tile[e];
        powers[e / C * PITCH + e % C] = bitcast<f32>(select(bits, 0u, bits == HIDDEN));
    }
}
