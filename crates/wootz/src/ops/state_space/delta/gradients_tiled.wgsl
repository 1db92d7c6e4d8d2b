// Products where a thread has the elements of two rows and two columns.
fn nothing_through() -> Through { return Through(vec4<f32>(0.0), vec4<f32>(0.0), vec4<f32>(0.0)); }

fn outer(a: vec4<f32>, b: vec4<f32>, x: vec4<f32>, y: vec4<f32>) -> vec4<f32> {
    return vec4<f32>(dot(a, x), dot(a, y), dot(b, x), dot(b, y));
}

fn add_through(sums: ptr<function, Through>, thread: u32, subgroup: u32) {
    let row = thread / 16u * PITCH;
    let column = thread % 16u * PITCH;
    for (var i = 0u; i < DEPTH; i += 4u) {
        let x = four(3u * SIDE + column + i);
        let y = four(3u * SIDE + column + 16u * PITCH + i);
        (*sums).of_results += outer(four(row + i), four(row + 16u * PITCH + i), x, y);
        if (CORRECTS) {
            let at = SIDE + row + i;
            (*sums).of_wrongs += outer(four(at), four(at + 16u * PITCH), x, y);
        }
        let z = four(4u * SIDE + column + i);
        let w = four(4u * SIDE + column + 16u * PITCH + i);
        let at = 2u * SIDE + row + i;
        (*sums).of_learnt += outer(four(at), four(at + 16u * PITCH), z, w);
    }
}

fn through_of(sums: ptr<function, Through>, thread: u32, subgroup: u32) -> Through { return *sums; }

struct Products { dq: vec4<f32>, dk: vec4<f32> }
fn no_products() -> Products { return Products(vec4<f32>(0.0), vec4<f32>(0.0)); }

// Two keys of a step, beside each other's weights of two steps.
fn keys_at(t: u32, thread: u32) -> vec4<f32> {
    let at = t * M_PITCH + thread % 16u;
    return vec4<f32>(tile[at], tile[at + 16u], tile[at], tile[at + 16u]);
}

fn add_keys(products: ptr<function, Products>, count: u32, thread: u32, subgroup: u32) {
    let step = thread / 16u;
    for (var t = 0u; t < count; t++) {
        let x = keys_at(t, thread);
        let at = step * M_PITCH + t;
        // Nothing times a number that is not finite would change it.
        if (t <= step) { (*products).dq += vec4<f32>(of_results[at] * x.xy, 0.0, 0.0); }
        let low = at + 16u * M_PITCH;
        if (t <= step + 16u) { (*products).dq += vec4<f32>(0.0, 0.0, of_results[low] * x.zw); }
        if (CORRECTS) {
            if (t != step) { (*products).dk += vec4<f32>(of_wrongs[at] * x.xy, 0.0, 0.0); }
            if (t != step + 16u) { (*products).dk += vec4<f32>(0.0, 0.0, of_wrongs[low] * x.zw); }
        }
    }
}

fn add_queries(products: ptr<function, Products>, count: u32, thread: u32, subgroup: u32) {
    let step = thread / 16u;
    for (var t = step; t < count; t++) {
        let x = keys_at(t, thread);
        let at = t * M_PITCH + step;
        (*products).dk += vec4<f32>(of_results[at] * x.xy, 0.0, 0.0);
        if (t >= step + 16u) { (*products).dk += vec4<f32>(0.0, 0.0, of_results[at + 16u] * x.zw); }
    }
}

fn dqueries_of(products: ptr<function, Products>, thread: u32, subgroup: u32) -> vec4<f32> {
    return (*products).dq;
}

fn dkeys_of(products: ptr<function, Products>, thread: u32, subgroup: u32) -> vec4<f32> {
    return (*products).dk;
}
