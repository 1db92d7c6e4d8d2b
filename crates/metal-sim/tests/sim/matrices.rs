//! Cooperative matrices: 8x8 tiles spread over 32 lanes.

use metal_sim::{FailureKind, Order};

use crate::support::{Case, PLAIN, cache, floats, zeros};

/// One simdgroup computes C = A B for sizes that are multiples of 8, tile by tile.
fn matmul(element: &str, load: &str) -> String {
    format!(
        "enable f16; enable wgpu_cooperative_matrix;
        struct Params {{ m: u32, n: u32, k: u32 }}
        var<immediate> p: Params;
        @group(0) @binding(0) var<storage, read> a: array<{element}>;
        @group(0) @binding(1) var<storage, read> b: array<{element}>;
        @group(0) @binding(2) var<storage, read_write> c: array<f32>;
        @compute @workgroup_size(32)
        fn main(@builtin(workgroup_id) group: vec3u) {{
            let row = group.y * 8;
            let column = group.x * 8;
            var sum = coop_mat8x8<f32, C>();
            for (var k = 0u; k < p.k; k += 8) {{
                let x = coopLoadT<coop_mat8x8<{element}, A>>(&a[row * p.k + k], p.k);
                {load}
                sum = coopMultiplyAdd(x, y, sum);
            }}
            coopStoreT(sum, &c[row * p.n + column], p.n);
        }}"
    )
}

const ROWS: &str = "let y = coopLoadT<coop_mat8x8<ELEMENT, B>>(&b[k * p.n + column], p.n);";
const COLUMNS: &str = "let y = coopLoad<coop_mat8x8<ELEMENT, B>>(&b[column * p.k + k], p.k);";

fn check(element: &str, transposed: bool) {
    let (m, n, k) = (16usize, 24usize, 32usize);
    let a = |i: usize, j: usize| ((i * 7 + j * 3) % 11) as f32 - 5.0;
    let b = |i: usize, j: usize| ((i * 5 + j) % 13) as f32 - 6.0;
    let a_values = (0..m * k).map(|i| a(i / k, i % k));
    let b_values = (0..n * k).map(|i| match transposed {
        true => b(i % k, i / k),
        false => b(i / n, i % n),
    });
    let bytes = |values: Vec<f32>| match element {
        "f16" => values.into_iter().flat_map(|x| half(x).to_le_bytes()).collect(),
        _ => floats(values),
    };
    let load = if transposed { COLUMNS } else { ROWS }.replace("ELEMENT", element);
    let memory = vec![
        (bytes(a_values.collect()), false),
        (bytes(b_values.collect()), false),
        (zeros(m * n * 4), true),
    ];
    let params = [m as u32, n as u32, k as u32];
    let mut case = Case::wgsl(&matmul(element, &load), &params, 0, memory);
    case.groups = [n as u32 / 8, m as u32 / 8, 1];
    // Small whole numbers: every order of sums gives the same.
    let product = |i: usize, j: usize| (0..k).map(|l| a(i, l) * b(l, j)).sum::<f32>();
    case.gives(2, &floats((0..m * n).map(|i| product(i / n, i % n))));
}

/// The bits of a whole number as a half.
fn half(x: f32) -> u16 {
    let bits = x.to_bits();
    if x == 0.0 {
        return 0;
    }
    let exponent = (bits >> 23 & 0xff) as i32 - 127 + 15;
    ((bits >> 16 & 0x8000) | (exponent as u32) << 10 | (bits >> 13 & 0x3ff)) as u16
}

#[test]
fn products_of_floats() {
    check("f32", false);
}

#[test]
fn products_of_halves() {
    check("f16", false);
}

#[test]
fn tiles_may_lie_column_by_column() {
    check("f32", true);
}

#[test]
fn a_tile_in_workgroup_memory_is_turned() {
    let text = "enable wgpu_cooperative_matrix;
        @group(0) @binding(0) var<storage, read> x: array<f32>;
        @group(0) @binding(1) var<storage, read_write> y: array<f32>;
        var<workgroup> tile: array<f32, 64>;
        @compute @workgroup_size(32)
        fn main(@builtin(local_invocation_index) i: u32) {
            tile[i] = x[i];
            tile[i + 32] = x[i + 32];
            workgroupBarrier();
            let m = coopLoadT<coop_mat8x8<f32, C>>(&tile[0], 8u);
            coopStore(m, &y[0], 8u);
        }";
    let memory = vec![(floats((0..64).map(|i| i as f32)), false), (zeros(256), true)];
    let want = floats((0..64).map(|i| (i % 8 * 8 + i / 8) as f32));
    Case::wgsl(text, &[], 1, memory).gives(1, &want);
}

#[test]
fn all_lanes_must_take_part() {
    let Some(cache) = cache() else { return };
    let text = "enable wgpu_cooperative_matrix;
        @group(0) @binding(0) var<storage, read_write> y: array<f32>;
        @compute @workgroup_size(32)
        fn main(@builtin(local_invocation_index) i: u32) {
            if (i < 20) { coopStoreT(coop_mat8x8<f32, C>(), &y[0], 8u); }
        }";
    let case = Case::wgsl(text, &[], 1, vec![(zeros(256), true)]);
    let failure = case.run(&cache, PLAIN, Order::Forward).unwrap_err();
    assert_eq!(failure.kind, FailureKind::PartialSimdgroup, "{failure}");
}
