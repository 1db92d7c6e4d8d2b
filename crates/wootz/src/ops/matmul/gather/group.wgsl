// Sorts products by their right matrices, by counting: one thread for each right matrix, and one
// for the end. Products of one right matrix stay in their order. After an error there are none.
struct Params { items: u32, experts: u32, lefts: u32, lhs_offset: u32, rhs_offset: u32 }
var<immediate> p: Params;
@group(0) @binding(2) var<storage, read_write> groups_data: array<u32>;

var<workgroup> rights: array<u32, 256>;

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let expert = (wid.x + wid.y * groups.x) * 256u + thread;
    let good = !failed();
    var before = 0u;
    for (var start = 0u; start < p.items; start += 256u) {
        load(start, thread);
        workgroupBarrier();
        for (var i = 0u; i < min(256u, p.items - start); i++) {
            before += select(0u, 1u, rights[i] < expert);
        }
        workgroupBarrier();
    }
    if (expert <= p.experts) { groups_data[expert] = select(0u, before, good); }
    for (var start = 0u; start < p.items; start += 256u) {
        load(start, thread);
        workgroupBarrier();
        for (var i = 0u; i < min(256u, p.items - start); i++) {
            if (good && rights[i] == expert) {
                let at = p.experts + 1u + before;
                groups_data[at] = start + i;
                groups_data[at + p.items] = place(lhs(p.lhs_offset + start + i), p.lefts).x;
                groups_data[at + 2u * p.items] = expert;
                before += 1u;
            }
        }
        workgroupBarrier();
    }
}

fn load(start: u32, thread: u32) {
    if (start + thread < p.items) {
        rights[thread] = place(rhs(p.rhs_offset + start + thread), p.experts).x;
    }
}
