// Sorts products by their right matrices, by counting: one thread for each right matrix, and one
// for the end. Products of one right matrix stay in their order. After an error there are none.
//
// Many items a turn: lavapipe ends the loops of a thread after 65,535 turns of all of them together, which are so
// enough for 640,000 products.
struct Params { items: u32, experts: u32, lefts: u32, lhs_offset: u32, rhs_offset: u32 }
var<immediate> p: Params;
@group(0) @binding(2) var<storage, read_write> groups_data: array<u32>;

// Behind the last product no right matrix.
const NONE = 0xffffffffu;
var<workgroup> rights: array<u32, 256>;

// The thread's right matrix, and the products before the next of it.
var<private> expert: u32;
var<private> before: u32;

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    expert = (wid.x + wid.y * groups.x) * 256u + thread;
    before = 0u;
    let good = !failed();
    for (var start = 0u; start < p.items; start += 256u) {
        load(start, thread);
        workgroupBarrier();
        for (var i = 0u; i < 256u; i += 32u) {
            before += lower(i) + lower(i + 8u) + lower(i + 16u) + lower(i + 24u);
        }
        workgroupBarrier();
    }
    if (expert <= p.experts) { groups_data[expert] = select(0u, before, good); }
    // That of no product, so that nothing is written.
    if (!good || expert >= p.experts) { expert = NONE - 1u; }
    for (var start = 0u; start < p.items; start += 256u) {
        load(start, thread);
        workgroupBarrier();
        for (var i = 0u; i < 256u; i += 16u) {
            put(start, i);
            put(start, i + 1u);
            put(start, i + 2u);
            put(start, i + 3u);
            put(start, i + 4u);
            put(start, i + 5u);
            put(start, i + 6u);
            put(start, i + 7u);
            put(start, i + 8u);
            put(start, i + 9u);
            put(start, i + 10u);
            put(start, i + 11u);
            put(start, i + 12u);
            put(start, i + 13u);
            put(start, i + 14u);
            put(start, i + 15u);
        }
        workgroupBarrier();
    }
}

fn load(start: u32, thread: u32) {
    rights[thread] = NONE;
    if (start + thread < p.items) {
        let found = place(rhs(p.rhs_offset + start + thread), p.experts);
        if (found.y == 1u) { rights[thread] = found.x; }
    }
}

// How many of eight products are of lower right matrices.
fn lower(i: u32) -> u32 {
    return is_lower(i) + is_lower(i + 1u) + is_lower(i + 2u) + is_lower(i + 3u)
        + is_lower(i + 4u) + is_lower(i + 5u) + is_lower(i + 6u) + is_lower(i + 7u);
}

fn is_lower(i: u32) -> u32 {
    return select(0u, 1u, rights[i] < expert);
}

// Writes a product, if it is the right matrix's.
fn put(start: u32, i: u32) {
    if (rights[i] != expert) { return; }
    let at = p.experts + 1u + before;
    groups_data[at] = start + i;
    groups_data[at + p.items] = place(lhs(p.lhs_offset + start + i), p.lefts).x;
    groups_data[at + 2u * p.items] = expert;
    before += 1u;
}
