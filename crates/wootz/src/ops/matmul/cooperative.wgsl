// A workgroup computes a square tile of the output, in steps of DEPTH along k through workgroup
// memory, with matrices of 8x8 elements that the threads of a subgroup hold together. It has four
// parts of 32x32, one for each subgroup. There are at least four, because where there are such
// matrices a subgroup has 32 threads; of more, two would compute the same.
//
// Before this stand `fill`, which brings factors, and `write_two`, which takes two neighbours of
// the output.
alias Left = coop_mat8x8<Factor, A>;
alias Right = coop_mat8x8<Factor, B>;
alias Sum = coop_mat8x8<f32, C>;

const THREADS = 128u;
const TILE = 64u;
const PART = 32u;
// More than the tile, so that the rows of a matrix lie on different banks.
const A_PITCH = DEPTH + PAD;
const B_PITCH = TILE + PAD;
var<workgroup> a_tile: array<Factor, TILE * A_PITCH>;
var<workgroup> b_tile: array<Factor, DEPTH * B_PITCH>;

// Eight rows of each part.
const PART_SIZE = 8u * PART;
var<workgroup> results: array<f32, 4u * PART_SIZE>;
var<workgroup> sum_length: u32;

fn keep_a(row: u32, depth: u32, value: Factor) { a_tile[row * A_PITCH + depth] = value; }
fn keep_b(depth: u32, column: u32, value: Factor) { b_tile[depth * B_PITCH + column] = value; }

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
    @builtin(subgroup_id) subgroup: u32,
) {
    let group = wid.x + wid.y * groups.x;
    if (group >= p.groups) { return; }
    // A tile without rows is computed, too: all must come to where matrices are made.
    let tile = place(group, TILE);
    let part = subgroup % 4u;
    let row = (part / 2u) * PART;
    let column = (part % 2u) * PART;

    // Compilers need not agree on what a matrix made of nothing holds.
    for (var e = thread; e < 64u; e += THREADS) { results[e] = 0.0; }
    // All must agree on how many steps there are, although all compute the same tile.
    if (thread == 0u) { sum_length = tile.k; }
    let end = workgroupUniformLoad(&sum_length);
    let zero = coopLoadT<Sum>(&results[0], 8u);
    // Named one by one, so that they stay in registers.
    var s00 = zero; var s01 = zero; var s02 = zero; var s03 = zero;
    var s10 = zero; var s11 = zero; var s12 = zero; var s13 = zero;
    var s20 = zero; var s21 = zero; var s22 = zero; var s23 = zero;
    var s30 = zero; var s31 = zero; var s32 = zero; var s33 = zero;
    for (var start = 0u; start < end; start += DEPTH) {
        fill(thread, tile, start);
        workgroupBarrier();
        for (var depth = 0u; depth < DEPTH; depth += 8u) {
            let a_at = row * A_PITCH + depth;
            let a0 = coopLoadT<Left>(&a_tile[a_at], A_PITCH);
            let a1 = coopLoadT<Left>(&a_tile[a_at + 8u * A_PITCH], A_PITCH);
            let a2 = coopLoadT<Left>(&a_tile[a_at + 16u * A_PITCH], A_PITCH);
            let a3 = coopLoadT<Left>(&a_tile[a_at + 24u * A_PITCH], A_PITCH);
            let b_at = depth * B_PITCH + column;
            let b0 = coopLoadT<Right>(&b_tile[b_at], B_PITCH);
            s00 = coopMultiplyAdd(a0, b0, s00);
            s10 = coopMultiplyAdd(a1, b0, s10);
            s20 = coopMultiplyAdd(a2, b0, s20);
            s30 = coopMultiplyAdd(a3, b0, s30);
            let b1 = coopLoadT<Right>(&b_tile[b_at + 8u], B_PITCH);
            s01 = coopMultiplyAdd(a0, b1, s01);
            s11 = coopMultiplyAdd(a1, b1, s11);
            s21 = coopMultiplyAdd(a2, b1, s21);
            s31 = coopMultiplyAdd(a3, b1, s31);
            let b2 = coopLoadT<Right>(&b_tile[b_at + 16u], B_PITCH);
            s02 = coopMultiplyAdd(a0, b2, s02);
            s12 = coopMultiplyAdd(a1, b2, s12);
            s22 = coopMultiplyAdd(a2, b2, s22);
            s32 = coopMultiplyAdd(a3, b2, s32);
            let b3 = coopLoadT<Right>(&b_tile[b_at + 24u], B_PITCH);
            s03 = coopMultiplyAdd(a0, b3, s03);
            s13 = coopMultiplyAdd(a1, b3, s13);
            s23 = coopMultiplyAdd(a2, b3, s23);
            s33 = coopMultiplyAdd(a3, b3, s33);
        }
        workgroupBarrier();
    }

    let at = part * PART_SIZE;
    workgroupBarrier();
    store_row(at, s00, s01, s02, s03);
    write_rows(thread, tile, 0u);
    store_row(at, s10, s11, s12, s13);
    write_rows(thread, tile, 8u);
    store_row(at, s20, s21, s22, s23);
    write_rows(thread, tile, 16u);
    store_row(at, s30, s31, s32, s33);
    write_rows(thread, tile, 24u);
}

// Eight rows of a part.
fn store_row(at: u32, s0: Sum, s1: Sum, s2: Sum, s3: Sum) {
    coopStoreT(s0, &results[at], PART);
    coopStoreT(s1, &results[at + 8u], PART);
    coopStoreT(s2, &results[at + 16u], PART);
    coopStoreT(s3, &results[at + 24u], PART);
}

// Writes eight rows of every part to the output, where the first part's are those from `first` on.
fn write_rows(thread: u32, tile: Place, first: u32) {
    workgroupBarrier();
    for (var e = 2u * thread; e < 4u * PART_SIZE; e += 2u * THREADS) {
        let part = e / PART_SIZE;
        let row = tile.top + first + (part / 2u) * PART + (e % PART_SIZE) / PART;
        let column = tile.left + (part % 2u) * PART + e % PART;
        write_two(tile, row, column, results[e], results[e + 1u]);
    }
    workgroupBarrier();
}
