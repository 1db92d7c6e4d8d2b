// What kernels share that take COLS values of a head through chunks: its state or the gradient of that, and
// what each step learns. A matrix of decayed products of steps is in the tile, between products with keys,
// which come through it in pieces. LOOKS_KNOWN and
// LOOKS_SEEN tell what is multiplied by the state, and BACKWARDS which of two steps receives from the other.
var<workgroup> s: array<f32, WHOLE_KEYS * COLS>;
var<workgroup> u: array<f32, STEPS * COLS>;
var<workgroup> rate: array<f32, STEPS>;

const LINES = 256u / COLS;
// Rows of STEPS that a thread has, LINES apart; where there are few columns, some threads have none.
const OWN = max(1u, STEPS / LINES);
fn has_rows(thread: u32) -> bool { return thread < STEPS * COLS; }
fn row_of(thread: u32, i: u32) -> u32 { return min(thread / COLS, STEPS - 1u) + i * LINES; }

struct Rows { x: array<f32, OWN> }
struct Looked { known: Rows, seen: Rows }

fn find_rates(thread: u32, step: u32, count: u32) {
    if (thread < count) { rate[thread] = beta(p.beta + step + thread); }
}

// Brings keys or queries of a chunk to the tile.
fn stage(
    at: u32, pitch: u32, width: u32, of_queries: bool, row: u32, count: u32, start: u32, thread: u32,
) {
    for (var i = thread; i < STEPS * width; i += 256u) {
        let t = i / width;
        let key = i % width;
        var x = 0.0;
        if (t < count && start + key < KEYS) {
            let source = row + t * KEYS + start + key;
            if (of_queries) { x = q(p.q + source); } else { x = k(p.k + source); }
        }
        tile[at + t * pitch + key] = x;
    }
}

// The matrix of products of steps: what one takes for known of what another got wrong, times its rate; or
// what one sees of what another learnt.
fn relate(of_known: bool, pairs: u32, decays: vec4<f32>, count: u32, thread: u32) {
    let earlier = earlier_of(thread);
    for (var i = 0u; i < 4u; i++) {
        let later = later_of(thread, i);
        let product = memory[pairs + select(SECOND, 0u, of_known) + later * STEPS + earlier];
        var x = 0.0;
        if (earlier <= later && later < count) {
            if (!of_known) {
                x = decays[i] * product;
            } else if (earlier < later) {
                x = -decays[i] * product * rate[select(earlier, later, BACKWARDS)];
            }
        }
        tile[select(later * M_PITCH + earlier, earlier * M_PITCH + later, BACKWARDS)] = x;
    }
    workgroupBarrier();
}

// Whether a step receives from a block of eight that it is not in.
fn receives(t: u32, block: u32) -> bool {
    if (BACKWARDS) { return t < block; }
    return t >= block + 8u;
}

// The product of the matrix with what is learnt, but for what is zero.
fn related(count: u32, thread: u32, subgroup: u32) -> Rows {
    var rows: Rows;
    for (var block = 0u; block < count; block += 8u) {
        let others = beside(block, thread, subgroup);
        for (var i = 0u; i < OWN; i++) {
            if (receives(row_of(thread, i), block)) { rows.x[i] += others.x[i]; }
        }
    }
    let col = thread % COLS;
    for (var i = 0u; i < OWN; i++) {
        let t = row_of(thread, i);
        let block = t & ~7u;
        var first = block;
        var end = t + 1u;
        if (BACKWARDS) {
            first = t;
            end = block + 8u;
        }
        for (var j = first; j < end; j++) { rows.x[i] += tile[t * M_PITCH + j] * u[j * COLS + col]; }
    }
    workgroupBarrier();
    return rows;
}

// Adds to what steps got wrong what they receive from others: eight of them one after the other, and from
// these to all that follow.
fn solve(count: u32, thread: u32, subgroup: u32) {
    let last = (count - 1u) & ~7u;
    for (var n = 0u; n < count; n += 8u) {
        let block = select(n, last - n, BACKWARDS);
        if (thread < COLS) {
            for (var i = 1u; i < 8u; i++) {
                let t = block + select(i, 7u - i, BACKWARDS);
                var sum = u[t * COLS + thread];
                for (var j = 0u; j < i; j++) {
                    let other = block + select(j, 7u - j, BACKWARDS);
                    sum += tile[t * M_PITCH + other] * u[other * COLS + thread];
                }
                u[t * COLS + thread] = sum;
            }
        }
        workgroupBarrier();
        let others = beside(block, thread, subgroup);
        for (var i = 0u; i < OWN; i++) {
            let t = row_of(thread, i);
            if (receives(t, block) && has_rows(thread)) { u[t * COLS + thread % COLS] += others.x[i]; }
        }
        workgroupBarrier();
    }
}
