// As `block_tiled.wgsl`, of cooperative matrices: of the 32 × 16 elements of a product each of eight
// subgroups has a matrix. Of more subgroups two compute the same.
var<workgroup> parts: array<f32, STEPS * COLS>;

fn top_of(subgroup: u32) -> u32 { return subgroup % 8u / 2u * 8u; }
fn left_of(subgroup: u32) -> u32 { return subgroup % 2u * 8u; }

// A thread's elements of a product whose matrices the subgroups have. All matrices are whole before that.
fn rows_of(sum: Sum, thread: u32, subgroup: u32) -> Rows {
    coopStoreT(sum, &parts[top_of(subgroup) * COLS + left_of(subgroup)], COLS);
    workgroupBarrier();
    var rows: Rows;
    for (var i = 0u; i < OWN; i++) { rows.x[i] = parts[row_of(thread, i) * COLS + thread % COLS]; }
    workgroupBarrier();
    return rows;
}

fn look(row: u32, count: u32, thread: u32, subgroup: u32) -> Looked {
    let top = top_of(subgroup);
    let left = left_of(subgroup);
    let zero = coopLoadT<Sum>(&nothing[0], 8u);
    var known = zero;
    var seen = zero;
    for (var start = 0u; start < KEYS; start += DEPTH) {
        if (LOOKS_KNOWN) { stage(0u, PITCH, DEPTH, false, row, count, start, thread); }
        if (LOOKS_SEEN) { stage(STEPS * PITCH, PITCH, DEPTH, true, row, count, start, thread); }
        workgroupBarrier();
        for (var key = 0u; key < min(DEPTH, KEYS - start); key += 8u) {
            let x = coopLoadT<Right>(&s[(start + key) * COLS + left], COLS);
            if (LOOKS_KNOWN) {
                let k = coopLoadT<Left>(&tile[top * PITCH + key], PITCH);
                known = coopMultiplyAdd(k, x, known);
            }
            if (LOOKS_SEEN) {
                let q = coopLoadT<Left>(&tile[(STEPS + top) * PITCH + key], PITCH);
                seen = coopMultiplyAdd(q, x, seen);
            }
        }
        workgroupBarrier();
    }
    var looked: Looked;
    if (LOOKS_KNOWN) { looked.known = rows_of(known, thread, subgroup); }
    if (LOOKS_SEEN) { looked.seen = rows_of(seen, thread, subgroup); }
    return looked;
}

// All rows are multiplied; nobody looks at those that do not receive from the block.
fn beside(block: u32, thread: u32, subgroup: u32) -> Rows {
    let zero = coopLoadT<Sum>(&nothing[0], 8u);
    let m = coopLoadT<Left>(&tile[top_of(subgroup) * M_PITCH + block], M_PITCH);
    let x = coopLoadT<Right>(&u[block * COLS + left_of(subgroup)], COLS);
    return rows_of(coopMultiplyAdd(m, x, zero), thread, subgroup);
}

fn absorb(left: f32, of_queries: bool, row: u32, count: u32, thread: u32, subgroup: u32) {
    for (var i = thread; i < KEYS * COLS; i += 256u) { s[i] *= left; }
    for (var start = 0u; start < KEYS; start += STEPS) {
        stage(0u, M_PITCH, STEPS, of_queries, row, count, start, thread);
        workgroupBarrier();
        let at = (start + top_of(subgroup)) * COLS + left_of(subgroup);
        var sum = coopLoadT<Sum>(&s[at], COLS);
        for (var t = 0u; t < count; t += 8u) {
            let x = coopLoad<Left>(&tile[t * M_PITCH + top_of(subgroup)], M_PITCH);
            let y = coopLoadT<Right>(&u[t * COLS + left_of(subgroup)], COLS);
            sum = coopMultiplyAdd(x, y, sum);
        }
        // Two subgroups that have the same matrix both read it before one writes.
        workgroupBarrier();
        coopStoreT(sum, &s[at], COLS);
    }
    workgroupBarrier();
}
