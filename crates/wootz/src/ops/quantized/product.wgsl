// What kernels of products have in common: `x` of `m` rows of `k`, and `n` columns of the result.

struct Params {
    w_at: u32, scales_at: u32, biases_at: u32,
    x_at: u32, m: u32, n: u32, k: u32, groups: u32,
    lhs_at: u32, rhs_at: u32, lefts: u32, experts: u32, items: u32,
}
var<immediate> p: Params;

// A tile of the result: its matrix of weights, its first row and column, how many rows there are
// with that matrix, and how many products in a sum.
struct Place { batch: u32, matrix: u32, top: u32, left: u32, m: u32, k: u32 }
