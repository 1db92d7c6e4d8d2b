//! Kernels that are right give what Rust computes, bit for bit in every build and order.

use metal_sim::{Kernel, Launch, Library, Order, Worker};

use crate::support::{Case, FAST, PLAIN, cache, floats, to_floats, words, zeros};

#[test]
fn a_tail_is_left_alone() {
    let text = "struct Params { n: u32, scale: f32 }
        var<immediate> p: Params;
        @group(0) @binding(0) var<storage, read> x: array<f32>;
        @group(0) @binding(1) var<storage, read_write> y: array<f32>;
        @compute @workgroup_size(64)
        fn main(@builtin(global_invocation_id) id: vec3u) {
            if (id.x < p.n) { y[id.x] = x[id.x] * p.scale; }
        }";
    let memory = vec![(floats((0..100).map(|i| i as f32)), false), (zeros(400), true)];
    let want = floats((0..100).map(|i| 2.0 * i as f32));
    Case::wgsl(text, &[100, 2f32.to_bits()], 2, memory).gives(1, &want);
}

#[test]
fn threads_meet_in_workgroup_memory() {
    let text = "@group(0) @binding(0) var<storage, read> x: array<u32>;
        @group(0) @binding(1) var<storage, read_write> y: array<u32>;
        var<workgroup> part: array<u32, 96>;
        @compute @workgroup_size(96)
        fn main(@builtin(local_invocation_index) i: u32, @builtin(workgroup_id) group: vec3u) {
            part[i] = x[group.x * 96 + i];
            workgroupBarrier();
            for (var step = 48u; step >= 3; step /= 2) {
                if (i < step) { part[i] += part[i + step]; }
                workgroupBarrier();
            }
            if (i == 0) { y[group.x] = part[0] + part[1] + part[2]; }
        }";
    let memory = vec![(words(0..96 * 3), false), (zeros(12), true)];
    let want = words((0..3).map(|group| (group * 96..(group + 1) * 96).sum()));
    Case::wgsl(text, &[], 3, memory).gives(1, &want);
}

#[test]
fn simdgroups_have_32_lanes() {
    let text = "@group(0) @binding(0) var<storage, read_write> y: array<u32>;
        @compute @workgroup_size(80)
        fn main(@builtin(local_invocation_index) i: u32,
                @builtin(subgroup_invocation_id) lane: u32, @builtin(subgroup_id) group: u32,
                @builtin(subgroup_size) size: u32, @builtin(num_subgroups) count: u32) {
            var r = array<u32, 8>();
            r[0] = subgroupAdd(i);
            r[1] = subgroupExclusiveAdd(i + 1);
            r[2] = subgroupInclusiveMul(1u + (lane & 1u));
            r[3] = subgroupShuffleXor(i, 1u) + subgroupBroadcast(i, 3u);
            r[4] = subgroupBallot(lane % 3 == 0).x;
            r[5] = subgroupMax(i) * 1000 + subgroupMin(i);
            // Only some lanes take part.
            if (lane < 5) { r[6] = subgroupAdd(1u) + subgroupBroadcastFirst(i); }
            r[7] = group * 10000 + size * 100 + count + u32(subgroupAll(lane < 32));
            for (var k = 0u; k < 8; k++) { y[i * 8 + k] = r[k]; }
        }";
    let mut want = Vec::new();
    for i in 0..80u32 {
        let (lane, first) = (i % 32, i / 32 * 32);
        let last = (first + 32).min(80);
        want.push((first..last).sum());
        want.push((first..i).map(|i| i + 1).sum());
        want.push(1u32.wrapping_shl(lane.div_ceil(2) + u32::from(lane % 2 == 1) - lane % 2));
        want.push((i ^ 1) + first + 3);
        want.push((first..last).filter(|i| i % 32 % 3 == 0).map(|i| 1 << (i % 32)).sum());
        want.push((last - 1) * 1000 + first);
        want.push(if lane < 5 { 5 + first } else { 0 });
        want.push(i / 32 * 10000 + 3200 + 3 + 1);
    }
    Case::wgsl(text, &[], 1, vec![(zeros(80 * 32), true)]).gives(0, &words(want));
}

#[test]
fn lanes_that_leave_a_loop_wait_for_the_others() {
    let text = "@group(0) @binding(0) var<storage, read_write> y: array<u32>;
        @compute @workgroup_size(32)
        fn main(@builtin(local_invocation_index) i: u32) {
            var sum = 0u;
            for (var k = 0u; k < i % 4; k++) { sum += subgroupAdd(1u); }
            y[i] = sum * 100 + subgroupAdd(1u);
        }";
    // 24, 16 and 8 lanes are in the loop the first, second and third time.
    let want = (0..32u32).map(|i| [0, 24, 40, 48][i as usize % 4] * 100 + 32);
    Case::wgsl(text, &[], 1, vec![(zeros(128), true)]).gives(0, &words(want));
}

#[test]
fn atomics_count() {
    let text = "@group(0) @binding(0) var<storage, read_write> a: array<atomic<u32>, 4>;
        @group(0) @binding(1) var<storage, read_write> b: array<atomic<i32>>;
        var<workgroup> n: atomic<u32>;
        @compute @workgroup_size(40)
        fn main(@builtin(local_invocation_index) i: u32, @builtin(global_invocation_id) id: vec3u) {
            if (i == 0) { atomicStore(&n, 0u); }
            workgroupBarrier();
            atomicAdd(&n, i);
            atomicMax(&a[1], id.x);
            atomicOr(&a[2], 1u << (i % 32));
            atomicMin(&b[0], -i32(id.x));
            loop {
                let old = atomicLoad(&a[3]);
                if (atomicCompareExchangeWeak(&a[3], old, old + 3).exchanged) { break; }
            }
            workgroupBarrier();
            if (i == 0) { atomicAdd(&a[0], atomicLoad(&n)); }
        }";
    let case = Case::wgsl(text, &[], 2, vec![(zeros(16), true), (zeros(4), true)]);
    case.gives(0, &words([780 * 2, 79, u32::MAX, 240]));
    case.gives(1, &words([-79i32 as u32]));
}

#[test]
fn halves_longs_and_bits() {
    let text = "enable f16;
        @group(0) @binding(0) var<storage, read> h: array<f16>;
        @group(0) @binding(1) var<storage, read> l: array<i64>;
        @group(0) @binding(2) var<storage, read_write> y: array<u32>;
        @compute @workgroup_size(1)
        fn main() {
            let half = h[0] * h[1] + h[0];
            y[0] = bitcast<u32>(f32(half));
            y[1] = pack2x16float(vec2f(1.5, -2.0));
            y[2] = u32(unpack4xI8(0x80ff7f01u).w + 1000) + u32(unpack4xU8(0x80ff7f01u).z);
            let q = l[0] / l[1];
            y[3] = u32(q & i64(0xffffffff));
            y[4] = u32(q >> 32u);
            y[5] = countOneBits(0xf0f0u) + countLeadingZeros(1u) * 100 + firstLeadingBit(8u) * 10000;
            y[6] = extractBits(0xabcd1234u, 8u, 12u) + insertBits(0u, 5u, 28u, 4u);
            let near = vec4f(1.0, 2.0, 3.0, 4.0) > vec4f(2.5);
            let picked = select(vec4u(1, 2, 4, 8), vec4u(16, 32, 64, 128), near);
            y[7] = picked.x + picked.y + picked.z + picked.w + u32(all(near)) + 1000 * u32(any(near));
            let ones = vec4u(near);
            y[8] = ones.x + ones.y + ones.z + ones.w;
            y[9] = pack4x8unorm(vec4f(0.0, 0.5, 1.0, 2.0)) ^ reverseBits(1u);
            y[10] = u32(i32(floor(-2.5)) + 10) + u32(trunc(7.9)) * 100 + u32(fract(2.25) * 4) * 10000;
            y[11] = u32(dot4I8Packed(0x01020304u, 0x01010101u)) + u32(dot(vec2i(3, 4), vec2i(5, 6))) * 100;
        }";
    let quotient = -70_000_000_000_000i64 / 3;
    let want = [
        7.5f32.to_bits(),
        0xc000_3e00,
        (1000 - 128) + 255,
        quotient as u32,
        (quotient >> 32) as u32,
        8 + 31 * 100 + 3 * 10000,
        0xd12 + (5 << 28),
        1 + 2 + 64 + 128 + 1000,
        2,
        0xffff_8000u32 ^ (1 << 31),
        7 + 700 + 10000,
        10 + 3900,
    ];
    // 2.0 and 2.75 as halves.
    let halves = vec![0x00, 0x40, 0x80, 0x41, 0, 0, 0, 0];
    let longs = [-70_000_000_000_000i64, 3].iter().flat_map(|l| l.to_le_bytes()).collect();
    let memory = vec![(halves, false), (longs, false), (zeros(48), true)];
    Case::wgsl(text, &[], 1, memory).gives(2, &words(want));
}

#[test]
fn grids_have_three_dimensions() {
    let text = "@group(0) @binding(0) var<storage, read_write> y: array<u32>;
        @compute @workgroup_size(4, 3, 2)
        fn main(@builtin(global_invocation_id) id: vec3u, @builtin(num_workgroups) n: vec3u,
                @builtin(local_invocation_id) at: vec3u, @builtin(local_invocation_index) i: u32) {
            let size = n * vec3u(4, 3, 2);
            y[(id.z * size.y + id.y) * size.x + id.x] =
                id.x + 100 * id.y + 10000 * id.z + u32(i != (at.z * 3 + at.y) * 4 + at.x) * 1000000;
        }";
    let mut want = Vec::new();
    for z in 0..8 {
        for y in 0..6 {
            want.extend((0..12).map(|x| x + 100 * y + 10000 * z));
        }
    }
    let mut case = Case::wgsl(text, &[], 0, vec![(zeros(want.len() * 4), true)]);
    case.groups = [3, 2, 4];
    case.gives(0, &words(want));
}

#[test]
fn launches_see_what_those_before_them_wrote() {
    let Some(cache) = cache() else { return };
    let text = "var<immediate> p: vec2u;
        @group(0) @binding(0) var<storage, read> x: array<u32>;
        @group(0) @binding(1) var<storage, read_write> y: array<u32>;
        @compute @workgroup_size(8)
        fn main(@builtin(global_invocation_id) id: vec3u) {
            y[id.x] = x[id.x] * p.x + p.y + arrayLength(&x);
        }";
    let case = Case::wgsl(text, &[], 1, Vec::new());
    let library = Library::build(&cache, &[case.kernel], PLAIN).unwrap();
    let launch = |params: [u32; 2], from: usize, to: usize| Launch {
        kernel: library.kernel("test").unwrap().clone(),
        params: params.to_vec(),
        groups: [1, 1, 1],
        bindings: vec![(from, false), (to, true)],
    };
    let mut memory = vec![words(0..8), zeros(32), zeros(32)];
    let launches = [launch([3, 1], 0, 1), launch([2, 5], 1, 2)];
    let mut worker = Worker::new(&cache).unwrap();
    let report = worker.run(&launches, &mut memory, Order::Forward).unwrap();
    assert_eq!(memory[2], words((0..8).map(|i| (i * 3 + 9) * 2 + 13)));
    assert_eq!(memory[0], words(0..8));
    assert_eq!(report.launches[1].threads, 8);
}

#[test]
fn small_numbers_can_be_flushed() {
    let Some(cache) = cache() else { return };
    let text = "@group(0) @binding(0) var<storage, read_write> y: array<f32>;
        @compute @workgroup_size(1)
        fn main() { y[0] = y[0] * 2.0; }";
    let library = Library::build(&cache, &[Kernel::wgsl("test", text)], PLAIN).unwrap();
    let mut worker = Worker::new(&cache).unwrap();
    for (flush, want) in [(true, 0.0), (false, 4e-40)] {
        worker.flush_denormals = flush;
        let launch = Launch {
            kernel: library.kernel("test").unwrap().clone(),
            params: Vec::new(),
            groups: [1, 1, 1],
            bindings: vec![(0, true)],
        };
        let mut memory = vec![floats([2e-40])];
        worker.run(&[launch], &mut memory, Order::Forward).unwrap();
        if cfg!(target_arch = "x86_64") {
            assert_eq!(to_floats(&memory[0]), [want]);
        }
    }
}

/// Metal may assume that there is no NaN: a test with `!=` is then wrong, one on bits is right.
#[test]
fn fast_math_breaks_tests_for_nan_that_compare_floats() {
    let Some(cache) = cache() else { return };
    let text = "@group(0) @binding(0) var<storage, read> x: array<f32>;
        @group(0) @binding(1) var<storage, read_write> y: array<f32>;
        @compute @workgroup_size(1)
        fn main() {
            y[0] = select(1.0, 2.0, x[0] != x[0]);
            y[1] = select(1.0, 2.0, (bitcast<u32>(x[0]) & 0x7fffffffu) > 0x7f800000u);
        }";
    let memory = vec![(floats([f32::NAN]), false), (zeros(8), true)];
    let case = Case::wgsl(text, &[], 1, memory);
    for (build, want) in [(PLAIN, [2.0, 2.0]), (FAST, [1.0, 2.0])] {
        let (memory, _) = case.run(&cache, build, Order::Forward).unwrap();
        assert_eq!(to_floats(&memory[1]), want, "{build:?}");
    }
}
