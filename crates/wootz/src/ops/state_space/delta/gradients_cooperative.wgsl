// As `gradients_tiled.wgsl`, of cooperative matrices: of the 32 × 32 elements of a product each of eight
// subgroups has two matrices, side by side. Of more subgroups two compute the same.
struct Two { a: Sum, b: Sum }
struct Sums { of_results: Two, of_wrongs: Two, of_learnt: Two }

fn top_of(subgroup: u32) -> u32 { return subgroup % 8u / 2u * 8u; }
fn left_of(subgroup: u32) -> u32 { return subgroup % 2u * 16u; }

fn none() -> Two {
    let zero = coopLoadT<Sum>(&nothing[0], 8u);
    return Two(zero, zero);
}

// A thread's elements of a product. All have read what is in the tile before.
fn four_of(two: Two, thread: u32, subgroup: u32) -> vec4<f32> {
    let to = top_of(subgroup) * M_PITCH + left_of(subgroup);
    coopStoreT(two.a, &tile[to], M_PITCH);
    coopStoreT(two.b, &tile[to + 8u], M_PITCH);
    workgroupBarrier();
    let x = four_of_keys(thread);
    workgroupBarrier();
    return x;
}

fn nothing_through() -> Sums { return Sums(none(), none(), none()); }

fn add_through(sums: ptr<function, Sums>, thread: u32, subgroup: u32) {
    let row = top_of(subgroup) * PITCH;
    let column = left_of(subgroup) * PITCH;
    for (var i = 0u; i < DEPTH; i += 8u) {
        let x = coopLoad<Right>(&tile[3u * SIDE + column + i], PITCH);
        let y = coopLoad<Right>(&tile[3u * SIDE + column + 8u * PITCH + i], PITCH);
        let result = coopLoadT<Left>(&tile[row + i], PITCH);
        (*sums).of_results.a = coopMultiplyAdd(result, x, (*sums).of_results.a);
        (*sums).of_results.b = coopMultiplyAdd(result, y, (*sums).of_results.b);
        if (CORRECTS) {
            let wrong = coopLoadT<Left>(&tile[SIDE + row + i], PITCH);
            (*sums).of_wrongs.a = coopMultiplyAdd(wrong, x, (*sums).of_wrongs.a);
            (*sums).of_wrongs.b = coopMultiplyAdd(wrong, y, (*sums).of_wrongs.b);
        }
        let z = coopLoad<Right>(&tile[4u * SIDE + column + i], PITCH);
        let w = coopLoad<Right>(&tile[4u * SIDE + column + 8u * PITCH + i], PITCH);
        let learnt = coopLoadT<Left>(&tile[2u * SIDE + row + i], PITCH);
        (*sums).of_learnt.a = coopMultiplyAdd(learnt, z, (*sums).of_learnt.a);
        (*sums).of_learnt.b = coopMultiplyAdd(learnt, w, (*sums).of_learnt.b);
    }
}

fn through_of(sums: ptr<function, Sums>, thread: u32, subgroup: u32) -> Through {
    var through: Through;
    through.of_results = four_of((*sums).of_results, thread, subgroup);
    if (CORRECTS) { through.of_wrongs = four_of((*sums).of_wrongs, thread, subgroup); }
    through.of_learnt = four_of((*sums).of_learnt, thread, subgroup);
    return through;
}

// What steps make of others comes from matrices but for those of the same eight, among which some have none.
struct Products { dq: Two, dk: Two, near_dq: vec4<f32>, near_dk: vec4<f32> }
fn no_products() -> Products { return Products(none(), none(), vec4<f32>(0.0), vec4<f32>(0.0)); }

// Two keys of a step, and of that 16 behind it.
fn near_keys(t: u32, thread: u32) -> vec4<f32> {
    let at = t * M_PITCH + thread % 16u;
    let low = at + 16u * M_PITCH;
    return vec4<f32>(tile[at], tile[at + 16u], tile[low], tile[low + 16u]);
}

fn near_results(at: u32) -> vec4<f32> {
    let low = at + 16u * M_PITCH + 16u;
    return vec4<f32>(of_results[at], of_results[at], of_results[low], of_results[low]);
}

fn near_wrongs(at: u32) -> vec4<f32> {
    let low = at + 16u * M_PITCH + 16u;
    return vec4<f32>(of_wrongs[at], of_wrongs[at], of_wrongs[low], of_wrongs[low]);
}

fn add_keys(products: ptr<function, Products>, count: u32, thread: u32, subgroup: u32) {
    let top = top_of(subgroup);
    let left = left_of(subgroup);
    for (var t = 0u; t < top; t += 8u) {
        let x = coopLoadT<Right>(&tile[t * M_PITCH + left], M_PITCH);
        let y = coopLoadT<Right>(&tile[t * M_PITCH + left + 8u], M_PITCH);
        let result = coopLoadT<Left>(&of_results[top * M_PITCH + t], M_PITCH);
        (*products).dq.a = coopMultiplyAdd(result, x, (*products).dq.a);
        (*products).dq.b = coopMultiplyAdd(result, y, (*products).dq.b);
        if (CORRECTS) {
            let wrong = coopLoadT<Left>(&of_wrongs[top * M_PITCH + t], M_PITCH);
            (*products).dk.a = coopMultiplyAdd(wrong, x, (*products).dk.a);
            (*products).dk.b = coopMultiplyAdd(wrong, y, (*products).dk.b);
        }
    }
    if (CORRECTS) {
        for (var t = top + 8u; t < count; t += 8u) {
            let x = coopLoadT<Right>(&tile[t * M_PITCH + left], M_PITCH);
            let y = coopLoadT<Right>(&tile[t * M_PITCH + left + 8u], M_PITCH);
            let wrong = coopLoadT<Left>(&of_wrongs[top * M_PITCH + t], M_PITCH);
            (*products).dk.a = coopMultiplyAdd(wrong, x, (*products).dk.a);
            (*products).dk.b = coopMultiplyAdd(wrong, y, (*products).dk.b);
        }
    }
    let step = thread / 16u;
    for (var i = 0u; i < 8u; i++) {
        let t = (step & ~7u) + i;
        let x = near_keys(t, thread);
        if (t <= step) { (*products).near_dq += near_results(step * M_PITCH + t) * x; }
        if (CORRECTS && t != step) { (*products).near_dk += near_wrongs(step * M_PITCH + t) * x; }
    }
}

fn add_queries(products: ptr<function, Products>, count: u32, thread: u32, subgroup: u32) {
    let top = top_of(subgroup);
    let left = left_of(subgroup);
    for (var t = top + 8u; t < count; t += 8u) {
        let x = coopLoadT<Right>(&tile[t * M_PITCH + left], M_PITCH);
        let y = coopLoadT<Right>(&tile[t * M_PITCH + left + 8u], M_PITCH);
        let result = coopLoad<Left>(&of_results[t * M_PITCH + top], M_PITCH);
        (*products).dk.a = coopMultiplyAdd(result, x, (*products).dk.a);
        (*products).dk.b = coopMultiplyAdd(result, y, (*products).dk.b);
    }
    let step = thread / 16u;
    for (var t = step; t < (step & ~7u) + 8u; t++) {
        (*products).near_dk += near_results(t * M_PITCH + step) * near_keys(t, thread);
    }
}

fn dqueries_of(products: ptr<function, Products>, thread: u32, subgroup: u32) -> vec4<f32> {
    return four_of((*products).dq, thread, subgroup) + (*products).near_dq;
}

fn dkeys_of(products: ptr<function, Products>, thread: u32, subgroup: u32) -> vec4<f32> {
    return four_of((*products).dk, thread, subgroup) + (*products).near_dk;
}
