//! Counts of kernels whose memory use is known, and races.

use metal_sim::{FailureKind, Order};

use crate::refused::{HEAD, msl};
use crate::support::{COUNTING, Case, PLAIN, cache, words, zeros};

fn copy(index: &str) -> String {
    format!(
        "@group(0) @binding(0) var<storage, read> x: array<u32>;
        @group(0) @binding(1) var<storage, read_write> y: array<u32>;
        @compute @workgroup_size(64)
        fn main(@builtin(global_invocation_id) id: vec3u) {{ y[id.x] = x[{index}]; }}"
    )
}

#[test]
fn neighbours_share_cache_lines() {
    let Some(cache) = cache() else { return };
    // 256 threads are 8 simdgroups. 32 neighbouring words are one line; words 32 apart are 32.
    for (index, bytes, lines, once) in [
        ("id.x", 4096, 8, 1024),
        ("id.x * 32", 4 * 32 * 256, 8 * 32, 1024),
        ("id.x / 64", 4096, 8, 16),
    ] {
        let memory = vec![(zeros(bytes), false), (zeros(1024), true)];
        let case = Case::wgsl(&copy(index), &[], 4, memory);
        let (_, report) = case.run(&cache, COUNTING, Order::Shuffled(1)).unwrap();
        let launch = &report.launches[0];
        let [x, y] = launch.bindings[..] else { panic!("{report:?}") };
        assert_eq!((x.loads, x.stores, x.load_bytes), (256, 0, 1024), "{index}");
        assert_eq!((x.load_accesses, x.load_lines), (8, lines), "{index}");
        assert_eq!((x.loaded_bytes, x.stored_bytes, y.stored_bytes), (once, 0, 1024), "{index}");
        assert_eq!((y.loads, y.stores, y.store_bytes, y.store_lines), (0, 256, 1024, 8), "{index}");
        assert_eq!((launch.groups, launch.threads, launch.barriers), (4, 256, 0));
    }
}

#[test]
fn accesses_are_compared_with_those_between_the_same_barriers() {
    let Some(cache) = cache() else { return };
    // In each of four steps fewer lanes read a line, so that lanes do not come as often to the place that reads.
    let text = "@group(0) @binding(0) var<storage, read> x: array<u32>;
        @group(0) @binding(1) var<storage, read_write> y: array<u32>;
        @compute @workgroup_size(32)
        fn main(@builtin(local_invocation_index) i: u32) {
            var sum = 0u;
            for (var step = 0u; step < 4u; step++) {
                for (var n = 0u; n < select(1u, 0u, i < step); n++) { sum += x[step * 32u + i]; }
                storageBarrier();
            }
            y[i] = sum;
        }";
    let memory = vec![(zeros(4 * 128), false), (zeros(128), true)];
    let case = Case::wgsl(text, &[], 1, memory);
    let (_, report) = case.run(&cache, COUNTING, Order::Forward).unwrap();
    let x = report.launches[0].bindings[0];
    assert_eq!((x.loads, x.load_accesses, x.load_lines), (32 + 31 + 30 + 29, 4, 4));
}

#[test]
fn barriers_atomics_and_threadgroup_memory_are_counted() {
    let Some(cache) = cache() else { return };
    let text = "@group(0) @binding(0) var<storage, read_write> n: array<atomic<u32>>;
        var<workgroup> part: array<vec4u, 32>;
        @compute @workgroup_size(32)
        fn main(@builtin(local_invocation_index) i: u32) {
            part[i] = vec4u(i);
            workgroupBarrier();
            atomicAdd(&n[0], part[31 - i].x);
            workgroupBarrier();
            atomicAdd(&n[0], part[i ^ 1].y);
        }";
    let case = Case::wgsl(text, &[], 3, vec![(zeros(4), true)]);
    let (memory, report) = case.run(&cache, COUNTING, Order::Forward).unwrap();
    assert_eq!(memory[0], words([3 * 2 * 496]));
    let launch = &report.launches[0];
    assert_eq!((launch.barriers, launch.threadgroup_bytes), (6, 512));
    assert_eq!((launch.threadgroup.stores, launch.threadgroup.store_bytes), (96, 96 * 16));
    assert_eq!((launch.threadgroup.loads, launch.threadgroup.load_bytes), (192, 192 * 4));
    assert_eq!((launch.bindings[0].atomics, launch.bindings[0].stores), (192, 192));
}

/// A kernel with `BODY`, over 64 threads in two simdgroups, and `groups` threadgroups.
fn races(body: &str, groups: u32) -> Option<String> {
    let cache = cache()?;
    let text = format!(
        "@group(0) @binding(0) var<storage, read_write> y: array<u32>;
        @group(0) @binding(1) var<storage, read_write> a: array<atomic<u32>>;
        var<workgroup> t: array<u32, 64>;
        @compute @workgroup_size(64)
        fn main(@builtin(local_invocation_index) i: u32, @builtin(workgroup_id) group: vec3u) {{
            {body}
            atomicAdd(&a[0], t[i] + y[i]);
        }}"
    );
    let case = Case::wgsl(&text, &[], groups, vec![(zeros(1024), true), (zeros(4), true)]);
    // Without the look at every access these run through.
    case.run(&cache, PLAIN, Order::Forward).unwrap();
    match case.run(&cache, COUNTING, Order::Forward) {
        Ok(_) => Some(String::new()),
        Err(failure) => {
            assert_eq!(failure.kind, FailureKind::Race, "{failure}");
            Some(failure.to_string())
        }
    }
}

#[track_caller]
fn is_race(body: &str, groups: u32, says: &str) {
    let Some(text) = races(body, groups) else { return };
    assert!(!says.is_empty() || text.is_empty(), "{text}");
    assert!(text.contains(says) && text.is_empty() == says.is_empty(), "{says:?}: {text:?}");
}

#[test]
fn missing_barriers_are_races() {
    let write = "t[i] = i;";
    is_race(&format!("{write} workgroupBarrier(); let z = t[63 - i]; y[128 + i] = z;"), 1, "");
    is_race(&format!("{write} let z = t[63 - i]; y[128 + i] = z;"), 1, "no barrier between");
    // A barrier for workgroup memory does not order storage, and the other way round.
    let reads = "y[128 + i] = y[63 - i] + t[63 - i];";
    is_race(&format!("{write} y[i] = i; workgroupBarrier(); {reads}"), 1, "binding 0");
    is_race(&format!("{write} y[i] = i; storageBarrier(); {reads}"), 1, "no barrier between");
    is_race(&format!("{write} y[i] = i; workgroupBarrier(); storageBarrier(); {reads}"), 1, "");
    // Reading first and writing afterwards is one too.
    is_race("y[128 + i] = t[63 - i]; t[i] = i;", 1, "no barrier between");
    is_race("t[i / 2] = i;", 1, "writes byte");
}

#[test]
fn a_simdgroup_barrier_orders_one_simdgroup() {
    is_race("t[i] = i; subgroupBarrier(); y[128 + i] = t[i ^ 1];", 1, "");
    is_race("t[i] = i; subgroupBarrier(); y[128 + i] = t[i ^ 32];", 1, "no barrier between");
    // Operations over lanes order nothing.
    is_race("t[i] = i; y[128 + i] = subgroupAdd(1u) + t[i ^ 1];", 1, "no barrier between");
}

#[test]
fn threadgroups_of_a_launch_are_not_ordered() {
    is_race("t[i] = 0; y[i + 64 * group.x] = i;", 1, "");
    is_race("t[i] = 0; y[i + 64] = i;", 2, "another threadgroup");
    is_race("t[i] = 0; if (group.x == 1) { y[i] = i; }", 2, "another threadgroup");
    is_race("t[i] = 0; atomicAdd(&a[0], 1u);", 2, "");
}

/// A barrier that is for no memory lets threads meet, but orders nothing.
#[test]
fn a_barrier_without_memory_orders_nothing() {
    let Some(cache) = cache() else { return };
    for (flag, right) in [("mem_threadgroup", true), ("mem_none", false)] {
        let text = format!(
            "{HEAD} s[t] = c[t]; threadgroup_barrier(mem_flags::{flag}); o[t] = s[31 - t]; }}"
        );
        let memory = vec![(zeros(128), true), (zeros(128), false)];
        let case = Case { kernel: msl(&text), params: &[], groups: [1, 1, 1], memory };
        let outcome = case.run(&cache, COUNTING, Order::Forward);
        assert_eq!(outcome.is_ok(), right, "{flag}: {outcome:?}");
    }
}
