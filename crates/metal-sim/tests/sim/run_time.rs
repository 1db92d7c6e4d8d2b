//! Mistakes that show when a kernel runs.

use metal_sim::{FailureKind, Order};

use crate::support::{CHECKED, Case, ORDERS, PLAIN, cache, floats, to_floats, words, zeros};

fn fails(text: &str, memory: Vec<(Vec<u8>, bool)>) -> Option<metal_sim::Failure> {
    let cache = cache()?;
    Some(Case::wgsl(text, &[], 2, memory).run(&cache, PLAIN, Order::Forward).unwrap_err())
}

#[test]
fn a_missing_barrier_shows_in_another_order() {
    let Some(cache) = cache() else { return };
    let text = "@group(0) @binding(0) var<storage, read_write> y: array<u32>;
        var<workgroup> t: array<u32, 64>;
        @compute @workgroup_size(64)
        fn main(@builtin(local_invocation_index) i: u32) { t[i] = i; y[i] = t[63 - i]; }";
    let case = Case::wgsl(text, &[], 1, vec![(zeros(256), true)]);
    let results = ORDERS.map(|order| case.run(&cache, PLAIN, order).unwrap().0);
    assert_ne!(results[0], results[1]);
    assert_ne!(results[1], results[2]);
}

#[test]
fn a_barrier_in_a_branch() {
    let text = "@group(0) @binding(0) var<storage, read_write> y: array<u32>;
        fn half(i: u32) { if (i < 32) { workgroupBarrier(); } }
        @compute @workgroup_size(64)
        fn main(@builtin(local_invocation_index) i: u32) { half(i); y[i] = i; }";
    let Some(failure) = fails(text, vec![(zeros(256), true)]) else { return };
    assert_eq!(failure.kind, FailureKind::DivergentBarrier, "{failure}");
    assert_eq!((failure.group, failure.kernel.as_str()), (Some([0; 3]), "test"));
}

#[test]
fn different_barriers() {
    let text = "@group(0) @binding(0) var<storage, read_write> y: array<u32>;
        @compute @workgroup_size(64)
        fn main(@builtin(local_invocation_index) i: u32) {
            if (y[i] == 0) { y[i] = 1; workgroupBarrier(); y[i] += 1; }
            else { y[i] = 7; workgroupBarrier(); y[i] += 4; }
        }";
    let memory = vec![(words((0..64).map(|i| i % 3)), true)];
    let Some(failure) = fails(text, memory) else { return };
    assert_eq!(failure.kind, FailureKind::DivergentBarrier, "{failure}");
}

const OFF_BY_ONE: &str = "@group(0) @binding(0) var<storage, read> x: array<u32>;
    @group(0) @binding(1) var<storage, read_write> y: array<u32>;
    @compute @workgroup_size(8)
    fn main(@builtin(global_invocation_id) id: vec3u) { y[id.x] = x[id.x + 1]; }";

#[test]
fn an_index_past_the_end() {
    let memory = vec![(zeros(64), false), (zeros(64), true)];
    let Some(failure) = fails(OFF_BY_ONE, memory.clone()) else { return };
    assert_eq!(failure.kind, FailureKind::OutOfBounds, "{failure}");
    assert_eq!((failure.binding, failure.group), (Some(0), Some([1, 0, 0])), "{failure}");
    assert_eq!(failure.thread, Some([7, 0, 0]));
    assert!(failure.message.contains("byte 64 of a binding of 64 bytes"), "{failure}");
    // With runtime checks the index is held inside.
    let Some(cache) = cache() else { return };
    Case::wgsl(OFF_BY_ONE, &[], 2, memory).run(&cache, CHECKED, Order::Forward).unwrap();
}

#[test]
fn an_index_far_out_and_before_the_beginning() {
    for index in ["id.x + 500000000u", "id.x - 1u"] {
        let text = format!(
            "@group(0) @binding(0) var<storage, read_write> y: array<vec4u>;
            @compute @workgroup_size(8)
            fn main(@builtin(global_invocation_id) id: vec3u) {{ y[{index}].x = 1; }}"
        );
        let Some(failure) = fails(&text, vec![(zeros(256), true)]) else { return };
        assert_eq!(failure.kind, FailureKind::OutOfBounds, "{index}: {failure}");
        assert_eq!(failure.binding, Some(0), "{index}");
    }
}

#[test]
fn a_write_into_the_padding_of_a_binding() {
    let text = "@group(0) @binding(0) var<storage, read_write> y: array<u32>;
        @compute @workgroup_size(8)
        fn main(@builtin(global_invocation_id) id: vec3u) { if (id.x < 6) { y[id.x] = 1; } }";
    let Some(failure) = fails(text, vec![(zeros(20), true)]) else { return };
    assert_eq!((failure.kind, failure.binding), (FailureKind::OutOfBounds, Some(0)), "{failure}");
}

#[test]
fn an_index_past_workgroup_memory() {
    let text = "@group(0) @binding(0) var<storage, read_write> y: array<u32>;
        var<workgroup> t: array<u32, 8>;
        @compute @workgroup_size(8)
        fn main(@builtin(local_invocation_index) i: u32) { t[i + y[0]] = i; y[i] = t[i]; }";
    let memory = vec![(words([1, 1, 1, 1, 1, 1, 1, 1]), true)];
    let Some(failure) = fails(text, memory) else { return };
    assert_eq!(failure.kind, FailureKind::OutOfBounds, "{failure}");
    assert!(failure.message.contains("threadgroup variable"), "{failure}");
}

#[test]
fn workgroup_memory_that_was_not_written_is_nan() {
    let Some(cache) = cache() else { return };
    let text = "@group(0) @binding(0) var<storage, read_write> y: array<f32>;
        var<workgroup> t: array<f32, 8>;
        @compute @workgroup_size(8)
        fn main(@builtin(local_invocation_index) i: u32) {
            if (i != 5) { t[i] = 1.0; }
            workgroupBarrier();
            y[i] = t[i];
        }";
    let case = Case::wgsl(text, &[], 1, vec![(floats([0.0; 8]), true)]);
    let (memory, _) = case.run(&cache, PLAIN, Order::Forward).unwrap();
    assert!(to_floats(&memory[0])[5].is_nan());
    let (memory, _) = case.run(&cache, CHECKED, Order::Forward).unwrap();
    assert_eq!(to_floats(&memory[0])[5], 0.0);
}

#[test]
fn a_loop_without_end() {
    let text = "@group(0) @binding(0) var<storage, read_write> y: array<atomic<u32>>;
        @compute @workgroup_size(8)
        fn main() { while (atomicLoad(&y[0]) == 0) { atomicAdd(&y[1], 1u); } }";
    let Some(failure) = fails(text, vec![(zeros(8), true)]) else { return };
    assert_eq!(failure.kind, FailureKind::Timeout, "{failure}");
}

#[test]
fn a_division_by_zero() {
    let text = "@group(0) @binding(0) var<storage, read_write> y: array<u32>;
        @compute @workgroup_size(8)
        fn main(@builtin(local_invocation_index) i: u32) { y[i] = 100 / y[i]; }";
    let Some(failure) = fails(text, vec![(words(1..8), true)]) else { return };
    assert!(matches!(failure.kind, FailureKind::Crash | FailureKind::OutOfBounds), "{failure}");
    let Some(failure) = fails(text, vec![(words([1, 2, 3, 4, 5, 6, 7, 0]), true)]) else { return };
    assert_eq!(failure.kind, FailureKind::Crash, "{failure}");
    assert_eq!(failure.thread, Some([7, 0, 0]), "{failure}");
}

#[test]
fn a_worker_goes_on_after_a_failure() {
    use metal_sim::{Kernel, Launch, Library, Worker};
    let Some(cache) = cache() else { return };
    let library = Library::build(&cache, &[Kernel::wgsl("test", OFF_BY_ONE)], PLAIN).unwrap();
    let launch = |groups: u32, bindings: Vec<(usize, bool)>| Launch {
        kernel: library.kernel("test").unwrap().clone(),
        params: Vec::new(),
        groups: [groups, 1, 1],
        bindings,
    };
    let mut worker = Worker::new(&cache).unwrap();
    let mut memory = vec![words(0..16), zeros(64)];
    let right = vec![(0, false), (1, true)];
    let mut run = |launch| worker.run(&[launch], &mut memory, Order::Forward);
    assert_eq!(run(launch(2, right.clone())).unwrap_err().kind, FailureKind::OutOfBounds);
    run(launch(1, right.clone())).unwrap();
    for (groups, bindings) in [
        (1, vec![(0, false)]),
        (1, vec![(0, true), (1, true)]),
        (1, vec![(0, false), (0, true)]),
        (1, vec![(0, false), (9, true)]),
        (70_000, right),
    ] {
        assert_eq!(run(launch(groups, bindings)).unwrap_err().kind, FailureKind::Launch);
    }
    assert_eq!(memory[1][..32], words(1..9));
}
