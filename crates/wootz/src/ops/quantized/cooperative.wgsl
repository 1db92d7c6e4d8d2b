// A workgroup computes 64 rows of 64 columns, in steps of 32 along k: half of its threads decode 32 weights
// each into workgroup memory, the others bring rows of `x`, and then subgroups multiply matrices of 8x8 elements, which
// their threads hold together. The tile has four parts of 32x32, one for each subgroup. There are at least four, because
// where there are such matrices a subgroup has 32 threads; of more, two would compute the same.

alias Left = coop_mat8x8<f32, A>;
alias Right = coop_mat8x8<f32, B>;
alias Sum = coop_mat8x8<f32, C>;

const THREADS = 128u;
const SIDE = 64u;
const PART = 32u;
// More than the tile, so that the rows of a matrix lie on different banks.
const X_PITCH = 36u;
const W_PITCH = 68u;
var<workgroup> x_tile: array<f32, SIDE * X_PITCH>;
var<workgroup> w_tile: array<f32, 32u * W_PITCH>;

// Eight rows of each part.
const PART_SIZE = 8u * PART;
var<workgroup> results: array<f32, 4u * PART_SIZE>;

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lid: u32, @builtin(subgroup_id) subgroup: u32) {
    let group = wid.x + wid.y * groups.x;
    if (group >= p.groups) { return; }
    // A tile without rows is computed, too: all must come to where matrices are made.
    let tile = tile_of(group, SIDE, SIDE);
    let part = subgroup % 4u;
    let row = (part / 2u) * PART;
    let column = (part % 2u) * PART;

    // Compilers need not agree on what a matrix made of nothing holds.
    for (var e = lid; e < 64u; e += THREADS) { results[e] = 0.0; }
    workgroupBarrier();
    let zero = coopLoadT<Sum>(&results[0], 8u);
    // Named one by one, so that they stay in registers.
    var s00 = zero; var s01 = zero; var s02 = zero; var s03 = zero;
    var s10 = zero; var s11 = zero; var s12 = zero; var s13 = zero;
    var s20 = zero; var s21 = zero; var s22 = zero; var s23 = zero;
    var s30 = zero; var s31 = zero; var s32 = zero; var s33 = zero;
    for (var start = 0u; start < p.k; start += 32u) {
        if (lid < SIDE) { fill_w(lid, tile, start); } else { fill_x(lid - SIDE, tile, start); }
        workgroupBarrier();
        for (var depth = 0u; depth < 32u; depth += 8u) {
            let x_at = row * X_PITCH + depth;
            let a0 = coopLoadT<Left>(&x_tile[x_at], X_PITCH);
            let a1 = coopLoadT<Left>(&x_tile[x_at + 8u * X_PITCH], X_PITCH);
            let a2 = coopLoadT<Left>(&x_tile[x_at + 16u * X_PITCH], X_PITCH);
            let a3 = coopLoadT<Left>(&x_tile[x_at + 24u * X_PITCH], X_PITCH);
            let w_at = depth * W_PITCH + column;
            let b0 = coopLoadT<Right>(&w_tile[w_at], W_PITCH);
            s00 = coopMultiplyAdd(a0, b0, s00);
            s10 = coopMultiplyAdd(a1, b0, s10);
            s20 = coopMultiplyAdd(a2, b0, s20);
            s30 = coopMultiplyAdd(a3, b0, s30);
            let b1 = coopLoadT<Right>(&w_tile[w_at + 8u], W_PITCH);
            s01 = coopMultiplyAdd(a0, b1, s01);
            s11 = coopMultiplyAdd(a1, b1, s11);
            s21 = coopMultiplyAdd(a2, b1, s21);
            s31 = coopMultiplyAdd(a3, b1, s31);
            let b2 = coopLoadT<Right>(&w_tile[w_at + 16u], W_PITCH);
            s02 = coopMultiplyAdd(a0, b2, s02);
            s12 = coopMultiplyAdd(a1, b2, s12);
            s22 = coopMultiplyAdd(a2, b2, s22);
            s32 = coopMultiplyAdd(a3, b2, s32);
            let b3 = coopLoadT<Right>(&w_tile[w_at + 24u], W_PITCH);
            s03 = coopMultiplyAdd(a0, b3, s03);
            s13 = coopMultiplyAdd(a1, b3, s13);
            s23 = coopMultiplyAdd(a2, b3, s23);
            s33 = coopMultiplyAdd(a3, b3, s33);
        }
        workgroupBarrier();
    }

    let at = part * PART_SIZE;
    store_row(at, s00, s01, s02, s03);
    write_rows(lid, tile, 0u);
    store_row(at, s10, s11, s12, s13);
    write_rows(lid, tile, 8u);
    store_row(at, s20, s21, s22, s23);
    write_rows(lid, tile, 16u);
    store_row(at, s30, s31, s32, s33);
    write_rows(lid, tile, 24u);
}

// A row of `x` lies in the order of the threads; zeros past the ends.
fn fill_x(thread: u32, tile: Tile, start: u32) {
    for (var e = thread; e < SIDE * 32u; e += SIDE) {
        let row = tile.top + e / 32u;
        let depth = start + e % 32u;
        var value = 0.0;
        if (row < tile.rows && depth < p.k) { value = x(x_row(tile, row) + depth); }
        x_tile[e / 32u * X_PITCH + e % 32u] = value;
    }
}

fn fill_w(thread: u32, tile: Tile, start: u32) {
    var weights: array<f32, 32>;
    for (var i = 0u; i < 32u; i++) { weights[i] = 0.0; }
    if (TRANSPOSE) {
        // Units lie along k: a thread has a column.
        let column = tile.left + thread;
        if (column < p.n) {
            weights_of((tile.matrix * p.n + column) * (p.k / 32u) + start / 32u, &weights);
        }
        for (var i = 0u; i < 32u; i++) { w_tile[i * W_PITCH + thread] = weights[i]; }
    } else {
        // Units lie along n: two threads have a row.
        let depth = start + thread / 2u;
        let unit = tile.left / 32u + thread % 2u;
        if (depth < p.k && unit < p.n / 32u) {
            weights_of((tile.matrix * p.k + depth) * (p.n / 32u) + unit, &weights);
        }
        for (var i = 0u; i < 32u; i++) {
            w_tile[thread / 2u * W_PITCH + thread % 2u * 32u + i] = weights[i];
        }
    }
}

// Eight rows of a part.
fn store_row(at: u32, s0: Sum, s1: Sum, s2: Sum, s3: Sum) {
    coopStoreT(s0, &results[at], PART);
    coopStoreT(s1, &results[at + 8u], PART);
    coopStoreT(s2, &results[at + 16u], PART);
    coopStoreT(s3, &results[at + 24u], PART);
}

// Writes eight rows of every part to the output, where the first part's are those from `first` on.
fn write_rows(thread: u32, tile: Tile, first: u32) {
    workgroupBarrier();
    for (var e = thread; e < 4u * PART_SIZE; e += THREADS) {
        let part = e / PART_SIZE;
        let row = tile.top + first + (part / 2u) * PART + (e % PART_SIZE) / PART;
        let column = tile.left + (part % 2u) * PART + e % PART;
        if (row < tile.rows && column < p.n) { out_set(out_row(tile, row) + column, results[e]); }
    }
    workgroupBarrier();
}
