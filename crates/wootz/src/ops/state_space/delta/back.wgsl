// Walks back through some chunks, whose states it finds again. Sums over rows have a thread for each key.
var<workgroup> slope: array<f32, ROWS * KEYS>;
var<workgroup> two: array<f32, 256>;
var<workgroup> seen: array<f32, ROWS>;
var<workgroup> learnt: array<f32, ROWS>;
var<workgroup> dknown: array<f32, ROWS>;
var<workgroup> dbetas: array<f32, ROWS>;

// One step of the gradients; `i` is its place in the chunk.
fn back(t: u32, i: u32, thread: u32) {
    let step = head * p.steps + t;
    let at = key_at(t);
    let r = thread / LANES;
    let before = state_at(i);
    let after = state_at(i + 1u);
    var result = 0.0;
    if (row < p.values) { result = dy(p.dy + step * p.values + row); }
    // Through the result, and to what was learnt.
    var dlearnt = 0.0;
    var known = 0.0;
    for (var e = 0u; e < EACH; e++) {
        let key = lane + e * LANES;
        if (key < KEYS) {
            let place = r * KEYS + key;
            let factor = k(p.k + at + key);
            slope[place] += result * q(p.q + at + key);
            dlearnt += slope[place] * factor;
            known += memory[before + place] * gate(t, key) * factor;
        }
    }
    one[thread] = dlearnt;
    two[thread] = known;
    workgroupBarrier();
    if (lane == 0u) {
        dlearnt = sum_of_one(thread);
        known = 0.0;
        for (var j = 0u; j < USED; j++) { known += two[thread + j]; }
        let rate = beta(p.beta + step);
        let wrong = wrong_by(t, known);
        seen[r] = result;
        learnt[r] = wrong * rate;
        dknown[r] = select(0.0, -dlearnt * rate, CORRECTS);
        dbetas[r] = dlearnt * wrong;
        if (row < p.values) { memory[p.dv + step * p.values + row] = dlearnt * rate; }
    }
    workgroupBarrier();
    // Through what was known, and what was forgotten: a thread for each key.
    var dgates = 0.0;
    for (var key = thread; key < KEYS; key += 256u) {
        let factor = k(p.k + at + key);
        let g = gate(t, key);
        var dquery = 0.0;
        var dkey = 0.0;
        var dgate = 0.0;
        for (var j = 0u; j < ROWS; j++) {
            let place = j * KEYS + key;
            let old = memory[before + place];
            dquery += seen[j] * memory[after + place];
            dkey += learnt[j] * slope[place] + dknown[j] * old * g;
            let ddecayed = slope[place] + dknown[j] * factor;
            dgate += ddecayed * old;
            slope[place] = ddecayed * g;
        }
        // Blocks of rows add up, in their order.
        if (p.block > 0u) {
            dquery += memory[p.dq + step * KEYS + key];
            dkey += memory[p.dk + step * KEYS + key];
        }
        memory[p.dq + step * KEYS + key] = dquery;
        memory[p.dk + step * KEYS + key] = dkey;
        if (GATES == KEYS) {
            if (p.block > 0u) { dgate += memory[p.dg + step * GATES + key]; }
            memory[p.dg + step * GATES + key] = dgate;
        }
        dgates += dgate;
    }
    one[thread] = dgates;
    workgroupBarrier();
    if (thread == 0u) {
        var dbeta = 0.0;
        for (var j = 0u; j < ROWS; j++) { dbeta += dbetas[j]; }
        if (p.block > 0u) { dbeta += memory[p.dbeta + step]; }
        memory[p.dbeta + step] = dbeta;
        if (GATES != KEYS) {
            dgates = 0.0;
            for (var j = 0u; j < min(256u, KEYS); j++) { dgates += one[j]; }
            if (p.block > 0u) { dgates += memory[p.dg + step]; }
            memory[p.dg + step] = dgates;
        }
    }
    workgroupBarrier();
}

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let group = wid.x + wid.y * groups.x;
    if (group >= p.heads) { return; }
    head = group;
    lane = thread % LANES;
    row = p.block + thread / LANES;
    let row_at = (head * p.values + row) * KEYS;
    for (var e = 0u; e < EACH; e++) {
        let key = lane + e * LANES;
        if (key < KEYS) {
            var end = 0.0;
            if (row < p.values) {
                if (p.first_chunk == 0u) {
                    end = dnext(p.dnext + row_at + key);
                } else {
                    end = memory[p.dstate + row_at + key];
                }
            }
            slope[thread / LANES * KEYS + key] = end;
        }
    }
    let chunks = (p.steps + p.chunk - 1u) / p.chunk;
    for (var c = p.first_chunk; c < p.end_chunk; c++) {
        let chunk = chunks - 1u - c;
        let start = chunk * p.chunk;
        let count = min(p.chunk, p.steps - start);
        for (var e = 0u; e < EACH; e++) {
            let key = lane + e * LANES;
            s[e] = 0.0;
            if (key < KEYS) { s[e] = memory[start_at(chunk) + thread / LANES * KEYS + key]; }
        }
        for (var i = 0u; i < count; i++) {
            keep(state_at(i), thread);
            advance(start + i, thread);
        }
        keep(state_at(count), thread);
        // Sums over rows read what other threads kept.
        storageBarrier();
        workgroupBarrier();
        for (var i = 0u; i < count; i++) { back(start + count - 1u - i, count - 1u - i, thread); }
        // The next chunk writes where this one was read.
        storageBarrier();
        workgroupBarrier();
    }
    for (var e = 0u; e < EACH; e++) {
        let key = lane + e * LANES;
        if (row < p.values && key < KEYS) {
            memory[p.dstate + row_at + key] = slope[thread / LANES * KEYS + key];
        }
    }
}
