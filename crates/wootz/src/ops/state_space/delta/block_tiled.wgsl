// Products of kernels by blocks of columns, where each thread has a few elements.

// Keys and queries times the state.
fn look(row: u32, count: u32, thread: u32, subgroup: u32) -> Looked {
    var looked: Looked;
    let col = thread % COLS;
    for (var start = 0u; start < KEYS; start += DEPTH) {
        if (LOOKS_KNOWN) { stage(0u, PITCH, DEPTH, false, row, count, start, thread); }
        if (LOOKS_SEEN) { stage(STEPS * PITCH, PITCH, DEPTH, true, row, count, start, thread); }
        workgroupBarrier();
        for (var key = 0u; key < min(DEPTH, KEYS - start); key += 4u) {
            let at = (start + key) * COLS + col;
            let x = vec4<f32>(s[at], s[at + COLS], s[at + 2u * COLS], s[at + 3u * COLS]);
            for (var i = 0u; i < OWN; i++) {
                let source = row_of(thread, i) * PITCH + key;
                if (LOOKS_KNOWN) { looked.known.x[i] += dot(four(source), x); }
                if (LOOKS_SEEN) { looked.seen.x[i] += dot(four(STEPS * PITCH + source), x); }
            }
        }
        workgroupBarrier();
    }
    return looked;
}

// The part of the matrix's product with what is learnt that comes from eight steps.
fn beside(block: u32, thread: u32, subgroup: u32) -> Rows {
    var rows: Rows;
    let at = block * COLS + thread % COLS;
    let x = vec4<f32>(u[at], u[at + COLS], u[at + 2u * COLS], u[at + 3u * COLS]);
    let y = vec4<f32>(u[at + 4u * COLS], u[at + 5u * COLS], u[at + 6u * COLS], u[at + 7u * COLS]);
    for (var i = 0u; i < OWN; i++) {
        let source = row_of(thread, i) * M_PITCH + block;
        rows.x[i] = dot(four(source), x) + dot(four(source + 4u), y);
    }
    return rows;
}

// What is left of the state, and keys or queries times what is learnt.
fn absorb(left: f32, of_queries: bool, row: u32, count: u32, thread: u32, subgroup: u32) {
    let col = thread % COLS;
    for (var start = 0u; start < KEYS; start += STEPS) {
        stage(0u, M_PITCH, STEPS, of_queries, row, count, start, thread);
        workgroupBarrier();
        for (var i = 0u; i < OWN; i++) {
            let key = row_of(thread, i);
            var sum = 0.0;
            for (var t = 0u; t < count; t += 8u) {
                let source = t * M_PITCH + key;
                let at = t * COLS + col;
                sum += dot(column(source), learnt_by(at));
                sum += dot(column(source + 4u * M_PITCH), learnt_by(at + 4u * COLS));
            }
            if (start + key < KEYS && has_rows(thread)) {
                let at = (start + key) * COLS + col;
                s[at] = s[at] * left + sum;
            }
        }
        workgroupBarrier();
    }
}

fn column(at: u32) -> vec4<f32> {
    return vec4<f32>(tile[at], tile[at + M_PITCH], tile[at + 2u * M_PITCH], tile[at + 3u * M_PITCH]);
}

fn learnt_by(at: u32) -> vec4<f32> {
    return vec4<f32>(u[at], u[at + COLS], u[at + 2u * COLS], u[at + 3u * COLS]);
}
