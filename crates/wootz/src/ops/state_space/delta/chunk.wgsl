// What kernels for chunks of steps share.

// The product of the gates from one step to another.
fn gates(step: u32, first: u32, last: u32) -> f32 {
    var product = 1.0;
    for (var i = first; i <= last; i++) { product *= g(step + i); }
    return product;
}

// Products of two keys, and of a query with a key.
fn of_keys(a: u32, b: u32) -> f32 {
    var sum = 0.0;
    for (var key = 0u; key < KEYS; key++) { sum += k(a + key) * k(b + key); }
    return sum;
}

fn of_query(a: u32, b: u32) -> f32 {
    var sum = 0.0;
    for (var key = 0u; key < KEYS; key++) { sum += q(a + key) * k(b + key); }
    return sum;
}
