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

fn results_at(step: u32, t: u32) -> vec4<f32> {
    let a = of_results[step * M_PITCH + t];
    let b = of_results[(step + 16u) * M_PITCH + t];
    return vec4<f32>(a, a, b, b);
}

fn wrongs_at(step: u32, t: u32) -> vec4<f32> {
    let a = of_wrongs[step * M_PITCH + t];
    let b = of_wrongs[(step + 16u) * M_PITCH + t];
    return vec4<f32>(a, a, b, b);
}

fn queries_at(step: u32, t: u32) -> vec4<f32> {
    let at = t * M_PITCH + step;
    return vec4<f32>(of_results[at], of_results[at], of_results[at + 16u], of_results[at + 16u]);
}

fn add_keys(products: ptr<function, Products>, count: u32, thread: u32, subgroup: u32) {
    let step = thread / 16u;
    for (var t = 0u; t < count; t += 2u) {
        let x = keys_at(t, thread);
        let y = keys_at(t + 1u, thread);
        (*products).dq += results_at(step, t) * x + results_at(step, t + 1u) * y;
        if (CORRECTS) { (*products).dk += wrongs_at(step, t) * x + wrongs_at(step, t + 1u) * y; }
    }
}

fn add_queries(products: ptr<function, Products>, count: u32, thread: u32, subgroup: u32) {
    let step = thread / 16u;
    for (var t = 0u; t < count; t += 2u) {
        (*products).dk += queries_at(step, t) * keys_at(t, thread);
        (*products).dk += queries_at(step, t + 1u) * keys_at(t + 1u, thread);
    }
}

fn dqueries_of(products: ptr<function, Products>, thread: u32, subgroup: u32) -> vec4<f32> {
    return (*products).dq;
}

fn dkeys_of(products: ptr<function, Products>, thread: u32, subgroup: u32) -> vec4<f32> {
    return (*products).dk;
}
