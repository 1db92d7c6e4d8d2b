//! Tests of the runtime on whatever Vulkan or Metal driver there is; a software driver will do.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::*;
use crate::error::{Error, Result};

/// `None` after saying so, if there is no driver. On CI a driver is required.
pub(super) fn open(options: &GpuOptions) -> Option<Arc<Gpu>> {
    if adapters().is_empty() {
        assert!(!crate::testing::ci(), "no Vulkan driver, and CI needs one");
        eprintln!("SKIPPED: no Vulkan driver");
        return None;
    }
    Some(Gpu::open(0, options).unwrap())
}

/// The device as shipped, and the one with runtime checks.
fn both() -> Vec<Arc<Gpu>> {
    let options = [false, true].map(|checked| GpuOptions { checked, ..Default::default() });
    options.iter().filter_map(open).collect()
}

const COPY: &str = "
@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3u) {
    if (id.x < arrayLength(&y)) { y[id.x] = x[id.x]; }
}";

const AFFINE: &str = "
struct Params { n: u32, factor: u32, term: u32 }
var<immediate> p: Params;
@group(0) @binding(0) var<storage, read_write> y: array<u32>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3u) {
    if (id.x < p.n) { y[id.x] = y[id.x] * p.factor + p.term; }
}";

const REPORT: &str = "
struct Params { code: u32, detail: u32 }
var<immediate> p: Params;
@group(0) @binding(0) var<storage, read_write> y: array<u32>;
@group(0) @binding(1) var<storage, read_write> status: array<atomic<u32>, 4>;
@compute @workgroup_size(1)
fn main() {
    if (atomicMin(&status[0], p.code) > p.code) { atomicStore(&status[1], p.detail); }
    y[0] = p.code;
}";

fn launch(
    recorder: &mut Recorder,
    name: &'static str,
    source: &str,
    bindings: &[(&Arc<GpuBuffer>, Access)],
    params: &[u32],
    groups: [u32; 3],
) -> Result<()> {
    recorder.launch(&Launch {
        key: KernelKey::new("test", name),
        source: &|| source.to_string(),
        bindings,
        params,
        groups,
        status: source.contains("status"),
    })
}

fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_ne_bytes()).collect()
}

fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks_exact(4).map(|b| u32::from_ne_bytes(b.try_into().unwrap())).collect()
}

fn filled(gpu: &Arc<Gpu>, data: &[u32]) -> Arc<GpuBuffer> {
    let buffer = Arc::new(gpu.alloc(data.len() as u64 * 4).unwrap());
    gpu.upload(&buffer, 0, &bytes(data)).unwrap();
    buffer
}

fn fetched(gpu: &Gpu, buffer: &GpuBuffer, len: usize) -> Vec<u32> {
    words(&gpu.download(buffer, 0, len as u64 * 4).unwrap())
}

#[test]
fn adapters_are_described() {
    for adapter in adapters() {
        eprintln!("{adapter:?}");
        assert!(!adapter.name.is_empty() && adapter.max_binding_bytes > 0);
    }
}

#[test]
fn an_adapter_that_is_not_there_is_an_error() {
    let error = Gpu::open(1000, &GpuOptions::default()).unwrap_err();
    assert!(matches!(error, Error::NoDevice { .. }), "{error}");
}

#[test]
fn a_copy_kernel_copies() {
    for gpu in both() {
        let data = (0..1000).collect::<Vec<u32>>();
        let (x, y) = (filled(&gpu, &data), filled(&gpu, &[0; 1000]));
        let mut recorder = gpu.recorder();
        let bindings = [(&x, Access::Read), (&y, Access::ReadWrite)];
        launch(&mut recorder, "copy", COPY, &bindings, &[], [16, 1, 1]).unwrap();
        assert_eq!((recorder.len(), recorder.is_empty()), (1, false));
        let submission = recorder.submit().unwrap();
        assert_eq!(submission.status().unwrap(), None);
        assert!(submission.is_done().unwrap());
        assert_eq!(fetched(&gpu, &y, 1000), data);
        let counters = gpu.counters();
        assert_eq!((counters.dispatches, counters.submissions), (1, 1));
        assert_eq!((counters.pipelines_created, counters.allocations), (1, 2));
        assert_eq!((counters.uploaded_bytes, counters.downloaded_bytes), (8000, 4000));
    }
}

#[test]
fn a_thousand_dependent_launches_run_in_order_in_one_submission() {
    for gpu in both() {
        let y = filled(&gpu, &[1; 100]);
        let mut recorder = gpu.recorder();
        let mut expected = 1u32;
        for i in 0..1000 {
            let (factor, term) = (3 + i % 5, i);
            expected = expected.wrapping_mul(factor).wrapping_add(term);
            let params = [100, factor, term];
            let bindings = [(&y, Access::ReadWrite)];
            launch(&mut recorder, "affine", AFFINE, &bindings, &params, [2, 1, 1]).unwrap();
        }
        recorder.submit().unwrap();
        assert_eq!(fetched(&gpu, &y, 100), vec![expected; 100]);
        let counters = gpu.counters();
        assert_eq!((counters.dispatches, counters.submissions), (1000, 1));
        assert_eq!((counters.pipelines_created, counters.bind_groups_created), (1, 1));
    }
}

#[test]
fn kernels_that_do_not_compile_are_errors_with_the_compilers_message() {
    for gpu in both() {
        let y = filled(&gpu, &[7]);
        let bindings = [(&y, Access::ReadWrite)];
        let broken = [
            ("syntax", "@compute fn main( {", "expected"),
            ("name", "@compute @workgroup_size(1) fn main() { nowhere[0] = 1u; }", "nowhere"),
            ("entry", "@compute @workgroup_size(1) fn start() { }", "main"),
            ("type", "@compute @workgroup_size(1) fn main() { var x: u32 = 1.5; }", "u32"),
            ("binding", COPY, "binding"),
            ("params", AFFINE, "12 bytes of parameters"),
            ("large", "@compute @workgroup_size(4096, 4096, 64) fn main() { }", "4096"),
        ];
        for (name, source, part) in broken {
            let mut recorder = gpu.recorder();
            let result = launch(&mut recorder, name, source, &bindings, &[], [1, 1, 1]);
            let error = result.expect_err(name);
            let Error::Kernel { op, kernel, message } = error else { panic!("{name}: {error}") };
            assert_eq!((op, kernel), ("test", format!("test/{name}")));
            assert!(message.contains(part), "{name}: {message}");
        }
        // A key stands for one text: other bindings or parameters are a defect of the caller.
        let mut recorder = gpu.recorder();
        launch(&mut recorder, "affine", AFFINE, &bindings, &[1, 2, 3], [1, 1, 1]).unwrap();
        let error = launch(&mut recorder, "affine", AFFINE, &bindings, &[1], [1, 1, 1]);
        assert!(matches!(error, Err(Error::Kernel { .. })), "{error:?}");
        // All that left the recorder and the device usable.
        recorder.submit().unwrap().wait().unwrap();
        assert_eq!(fetched(&gpu, &y, 1), [17]);

        let shape = KernelShape { accesses: [Access::ReadWrite].into_iter().collect(), params: 3 };
        gpu.compile_check(&KernelKey::new("test", "check"), AFFINE, &shape).unwrap();
        assert!(gpu.compile_check(&KernelKey::new("test", "check"), "fn", &shape).is_err());
    }
}

#[test]
fn launches_that_wgpu_would_refuse_are_errors_that_name_the_operation() {
    let Some(gpu) = open(&GpuOptions::default()) else { return };
    let Some(stranger) = open(&GpuOptions::default()) else { return };
    let (x, y, z) = (filled(&gpu, &[1]), filled(&gpu, &[2]), filled(&stranger, &[3]));
    let mut recorder = gpu.recorder();
    let rw = [(&y, Access::ReadWrite)];

    let both = [(&y, Access::Read), (&y, Access::ReadWrite)];
    let error = launch(&mut recorder, "copy", COPY, &both, &[], [1, 1, 1]).unwrap_err();
    assert!(error.to_string().contains("[test] binding 1"), "{error}");

    let foreign = [(&x, Access::Read), (&z, Access::ReadWrite)];
    let error = launch(&mut recorder, "copy", COPY, &foreign, &[], [1, 1, 1]).unwrap_err();
    assert!(matches!(error, Error::DeviceMismatch { op: "test", .. }), "{error}");

    let many = gpu.max_groups() + 1;
    let error = launch(&mut recorder, "affine", AFFINE, &rw, &[1, 1, 1], [1, many, 1]).unwrap_err();
    assert!(matches!(error, Error::SizeOverflow { limit: 65535, .. }), "{error}");

    let error = launch(&mut recorder, "affine", AFFINE, &rw, &[0; 33], [1, 1, 1]).unwrap_err();
    assert!(matches!(error, Error::SizeOverflow { limit: 32, .. }), "{error}");

    let crowd = vec![(&y, Access::ReadWrite); gpu.max_storage_bindings() + 1];
    let error = launch(&mut recorder, "affine", AFFINE, &crowd, &[], [1, 1, 1]).unwrap_err();
    assert!(matches!(error, Error::SizeOverflow { .. }), "{error}");

    // Nothing to do is not an error, and compiles nothing.
    launch(&mut recorder, "never", "not WGSL", &rw, &[], [5, 0, 1]).unwrap();
    assert!(recorder.is_empty());
    recorder.submit().unwrap().wait().unwrap();
    assert_eq!(gpu.counters().pipelines_created, 0);
}

#[test]
fn a_kernel_takes_thirty_two_words_of_parameters_of_any_kind() {
    let source = "
        struct Params { a: array<vec4<u32>, 7>, b: vec2<u32>, c: f32, d: i32 }
        var<immediate> p: Params;
        @group(0) @binding(0) var<storage, read_write> y: array<u32>;
        @compute @workgroup_size(1)
        fn main() {
            for (var i = 0u; i < 28u; i++) { y[i] = p.a[i / 4u][i % 4u]; }
            y[28] = p.b.x; y[29] = p.b.y; y[30] = bitcast<u32>(p.c); y[31] = bitcast<u32>(p.d);
        }";
    for gpu in both() {
        let params = (0..32).map(|i| i * 77).collect::<Vec<u32>>();
        let y = filled(&gpu, &[0; 32]);
        let mut recorder = gpu.recorder();
        let bindings = [(&y, Access::ReadWrite)];
        launch(&mut recorder, "params", source, &bindings, &params, [1, 1, 1]).unwrap();
        recorder.submit().unwrap();
        assert_eq!(fetched(&gpu, &y, 32), params);
    }
}

#[test]
fn bytes_survive_the_way_there_and_back_at_any_offset_and_length() {
    let Some(gpu) = open(&GpuOptions::default()) else { return };
    let buffer = gpu.alloc(61).unwrap();
    assert_eq!(buffer.size(), 64);
    let mut expected = (0..61).collect::<Vec<u8>>();
    gpu.upload(&buffer, 0, &expected).unwrap();
    for offset in 0..8 {
        for len in 0..10 {
            let patch = (0..len).map(|i| 100 + i as u8 + 10 * offset as u8).collect::<Vec<_>>();
            gpu.upload(&buffer, offset as u64, &patch).unwrap();
            expected[offset..offset + len].copy_from_slice(&patch);
            assert_eq!(gpu.download(&buffer, 0, 61).unwrap(), expected, "{offset} {len}");
            let part = gpu.download(&buffer, offset as u64, len as u64).unwrap();
            assert_eq!(part, patch);
        }
    }
    let parts = gpu.download_many(&[(&buffer, 3, 5), (&buffer, 0, 0), (&buffer, 8, 53)]).unwrap();
    assert_eq!(parts, [&expected[3..8], &[], &expected[8..61]]);

    let error = gpu.download(&buffer, 60, 5).unwrap_err();
    assert!(matches!(error, Error::SizeOverflow { limit: 64, .. }), "{error}");
    let error = gpu.upload(&buffer, u64::MAX, &[1]).unwrap_err();
    assert!(matches!(error, Error::SizeOverflow { limit: 64, .. }), "{error}");
}

#[test]
fn transfers_larger_than_one_staging_buffer_are_complete() {
    let Some(gpu) = open(&GpuOptions::default()) else { return };
    let len = (32 << 20) + 12345;
    let data = (0..len).map(|i| (i * 7 + i / 1000) as u8).collect::<Vec<_>>();
    let buffer = gpu.alloc(len as u64).unwrap();
    gpu.upload(&buffer, 0, &data).unwrap();
    assert!(gpu.download(&buffer, 0, len as u64).unwrap() == data);
    assert!(gpu.download(&buffer, 3, len as u64 - 3).unwrap() == data[3..]);
}

#[test]
fn a_device_with_small_limits_refuses_larger_buffers_with_both_numbers() {
    let options = GpuOptions { max_binding_bytes: Some(65536), ..Default::default() };
    let Some(gpu) = open(&options) else { return };
    assert_eq!(gpu.max_binding_bytes(), 65536);
    let whole = Arc::new(gpu.alloc(65536).unwrap());
    let error = gpu.alloc(65537).unwrap_err();
    let Error::SizeOverflow { got, limit, .. } = &error else { panic!("{error}") };
    assert_eq!((got.as_str(), *limit), ("65537", 65536));
    assert!(matches!(gpu.alloc(u64::MAX), Err(Error::SizeOverflow { .. })));
    gpu.upload(&whole, 0, &bytes(&[5; 16384])).unwrap();
    let mut recorder = gpu.recorder();
    let bindings = [(&whole, Access::ReadWrite)];
    launch(&mut recorder, "affine", AFFINE, &bindings, &[16384, 2, 1], [256, 1, 1]).unwrap();
    recorder.submit().unwrap();
    assert_eq!(fetched(&gpu, &whole, 16384), [11; 16384]);

    let options = GpuOptions { max_buffer_bytes: Some(4096), ..Default::default() };
    let Some(gpu) = open(&options) else { return };
    gpu.alloc(4096).unwrap();
    assert!(matches!(gpu.alloc(4097), Err(Error::SizeOverflow { limit: 4096, .. })));
    let Some(gpu) = open(&GpuOptions { without_int64: true, ..Default::default() }) else { return };
    assert!(!gpu.has_int64());
}

#[test]
fn freed_memory_is_reused_and_the_cache_is_bounded() {
    let Some(gpu) = open(&GpuOptions::default()) else { return };
    let first = gpu.alloc(1000).unwrap();
    let id = first.id();
    assert_eq!(gpu.memory().active, 1024);
    drop(first);
    assert_eq!((gpu.memory().active, gpu.memory().cached, gpu.memory().peak), (0, 1024, 1024));
    let second = gpu.alloc(990).unwrap();
    assert_eq!((second.id(), second.size(), gpu.counters().allocations), (id, 992, 1));
    drop(second);
    gpu.reset_peak();
    gpu.clear_cache();
    assert_eq!((gpu.memory().cached, gpu.memory().peak), (0, 0));

    gpu.set_cache_limit(10_000);
    let many = (0..20).map(|_| gpu.alloc(1024).unwrap()).collect::<Vec<_>>();
    assert_eq!(gpu.memory().active, 20 * 1024);
    drop(many);
    assert!((4096..=10_000).contains(&gpu.memory().cached), "{:?}", gpu.memory());
    gpu.set_cache_limit(0);
    assert_eq!(gpu.memory().cached, 0);
}

#[test]
fn the_memory_limit_is_kept_and_cached_memory_makes_room() {
    let Some(gpu) = open(&GpuOptions::default()) else { return };
    gpu.set_memory_limit(8192);
    let held = gpu.alloc(4096).unwrap();
    drop(gpu.alloc(2048).unwrap());
    assert_eq!(gpu.memory().cached, 2048);
    let allocations = gpu.counters().allocations;
    let error = gpu.alloc(8192).unwrap_err();
    let Error::OutOfMemory { requested, active, limit, .. } = error else { panic!("{error}") };
    assert_eq!((requested, active, limit), (8192, 4096, 8192));
    assert_eq!((gpu.counters().allocations, gpu.memory().active), (allocations, 4096));
    // There is room only once the cached block is gone.
    let more = gpu.alloc(4096).unwrap();
    assert_eq!((gpu.memory().active, gpu.memory().cached), (8192, 0));
    drop((held, more));
}

#[test]
fn memory_the_driver_refuses_is_an_error_and_the_device_goes_on() {
    let Some(gpu) = open(&GpuOptions::default()) else { return };
    let size = gpu.max_binding_bytes();
    let mut held = Vec::new();
    // Ends at the limit, or earlier where the driver refuses; never touches the memory.
    gpu.set_memory_limit(4 * size.min(1 << 30));
    let error = loop {
        match gpu.alloc(size.min(1 << 30)) {
            Ok(buffer) => held.push(buffer),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::OutOfMemory { .. }), "{error}");
    drop(held);
    gpu.clear_cache();
    let y = filled(&gpu, &[1, 2, 3]);
    assert_eq!(fetched(&gpu, &y, 3), [1, 2, 3]);
}

#[test]
fn the_smallest_reported_status_comes_back_with_its_detail() {
    for gpu in both() {
        let y = filled(&gpu, &[0]);
        let bindings = [(&y, Access::ReadWrite)];
        for round in 0..40 {
            let mut recorder = gpu.recorder();
            for code in [9 + round, 4 + round, 6 + round] {
                let params = [code, code * 10];
                launch(&mut recorder, "report", REPORT, &bindings, &params, [1, 1, 1]).unwrap();
            }
            let submission = recorder.submit().unwrap();
            assert_eq!(submission.status().unwrap(), Some(4 + round));
            assert_eq!(submission.status_details().unwrap(), [(4 + round) * 10, 0, 0]);
            // The next submission starts anew, though it uses the same words.
            let clean = gpu.recorder().submit().unwrap();
            assert_eq!(clean.status().unwrap(), None);
            assert_eq!(submission.status().unwrap(), Some(4 + round));
        }
        let unread = (0..5).map(|_| gpu.recorder().submit().unwrap()).collect::<Vec<_>>();
        assert!(unread.iter().rev().all(|s| s.status().unwrap().is_none()));
    }
}

#[test]
fn recorded_work_keeps_its_buffers_from_reuse_and_from_uploads() {
    let Some(gpu) = open(&GpuOptions::default()) else { return };
    let (x, y) = (filled(&gpu, &[1, 2, 3, 4]), filled(&gpu, &[0; 4]));
    let id = x.id();
    let mut recorder = gpu.recorder();
    let bindings = [(&x, Access::Read), (&y, Access::ReadWrite)];
    launch(&mut recorder, "copy", COPY, &bindings, &[], [1, 1, 1]).unwrap();
    assert!(matches!(gpu.upload(&x, 0, &[9; 4]), Err(Error::Gpu { .. })));
    assert!(matches!(gpu.download(&y, 0, 4), Err(Error::Gpu { .. })));
    assert_eq!(fetched(&gpu, &x, 4), [1, 2, 3, 4]);
    drop(x);
    // The copy has not been submitted: this may not be the memory it reads.
    let other = filled(&gpu, &[7; 4]);
    assert_ne!(other.id(), id);
    recorder.submit().unwrap();
    // Now it is queued, so its memory may be reused and overwritten behind it.
    let again = filled(&gpu, &[8; 4]);
    assert_eq!(again.id(), id);
    assert_eq!(fetched(&gpu, &y, 4), [1, 2, 3, 4]);

    // A recorder that is dropped lets go, too.
    let mut recorder = gpu.recorder();
    let bindings = [(&other, Access::Read), (&y, Access::ReadWrite)];
    launch(&mut recorder, "copy", COPY, &bindings, &[], [1, 1, 1]).unwrap();
    recorder.keep(again.clone());
    drop(recorder);
    gpu.upload(&y, 0, &bytes(&[6; 4])).unwrap();
    assert_eq!(fetched(&gpu, &y, 4), [6; 4]);
    assert_eq!(gpu.counters().dispatches, 1);
}

#[test]
fn a_lost_device_is_an_error_everywhere_and_others_go_on() {
    let Some(gpu) = open(&GpuOptions::default()) else { return };
    let Some(other) = open(&GpuOptions::default()) else { return };
    let y = filled(&gpu, &[1; 4]);
    let bindings = [(&y, Access::ReadWrite)];
    let mut before = gpu.recorder();
    launch(&mut before, "affine", AFFINE, &bindings, &[4, 2, 1], [1, 1, 1]).unwrap();
    let submission = before.submit().unwrap();
    let mut recorder = gpu.recorder();
    launch(&mut recorder, "affine", AFFINE, &bindings, &[4, 2, 1], [1, 1, 1]).unwrap();
    gpu.lose_for_test();

    let lost = |result: Result<()>| {
        assert!(matches!(result, Err(Error::DeviceLost { .. })), "{result:?}");
    };
    lost(submission.wait());
    lost(submission.status().map(drop));
    lost(submission.is_done().map(drop));
    lost(launch(&mut recorder, "affine", AFFINE, &bindings, &[4, 2, 1], [1, 1, 1]));
    lost(launch(&mut recorder, "other", COPY, &bindings, &[], [1, 1, 1]));
    lost(recorder.submit().map(drop));
    lost(gpu.recorder().submit().map(drop));
    lost(gpu.alloc(16).map(drop));
    lost(gpu.upload(&y, 0, &[1; 4]));
    lost(gpu.download(&y, 0, 4).map(drop));
    lost(gpu.check());
    gpu.clear_cache();
    drop((y, submission, gpu));

    let y = filled(&other, &[5]);
    assert_eq!(fetched(&other, &y, 1), [5]);
}

#[test]
fn a_device_lost_under_busy_threads_makes_none_of_them_hang_or_panic() {
    let Some(gpu) = open(&GpuOptions::default()) else { return };
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let work = || -> Result<()> {
                    loop {
                        let y = Arc::new(gpu.alloc(400)?);
                        gpu.upload(&y, 0, &bytes(&[3; 100]))?;
                        let mut recorder = gpu.recorder();
                        let bindings = [(&y, Access::ReadWrite)];
                        let params = [100, 2, 1];
                        launch(&mut recorder, "affine", AFFINE, &bindings, &params, [2, 1, 1])?;
                        recorder.submit()?.wait()?;
                        assert_eq!(words(&gpu.download(&y, 0, 400)?), [7; 100]);
                    }
                };
                let error = work().unwrap_err();
                assert!(matches!(error, Error::DeviceLost { .. }), "{error}");
            });
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
        gpu.lose_for_test();
    });
}

#[test]
fn two_threads_share_a_device() {
    for gpu in both() {
        let compiled = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for thread in 0..2u32 {
                let (gpu, compiled) = (&gpu, &compiled);
                scope.spawn(move || {
                    for round in 0..30u32 {
                        let start = thread * 1000 + round;
                        let y = filled(gpu, &[start; 100]);
                        let mut recorder = gpu.recorder();
                        for _ in 0..3 {
                            recorder
                                .launch(&Launch {
                                    key: KernelKey::new("test", "affine"),
                                    source: &|| {
                                        compiled.fetch_add(1, Relaxed);
                                        AFFINE.to_string()
                                    },
                                    bindings: &[(&y, Access::ReadWrite)],
                                    params: &[100, 2, 1],
                                    groups: [2, 1, 1],
                                    status: false,
                                })
                                .unwrap();
                        }
                        let submission = recorder.submit().unwrap();
                        if round % 2 == 0 {
                            submission.wait().unwrap();
                        }
                        assert_eq!(fetched(gpu, &y, 100), [start * 8 + 7; 100]);
                    }
                });
            }
        });
        assert_eq!(compiled.load(Relaxed), 1);
        assert_eq!((gpu.counters().dispatches, gpu.counters().submissions), (180, 60));
        assert_eq!(gpu.memory().active, 0);
    }
}

#[test]
fn wgsl_is_validated_and_translated_without_a_device() {
    for source in [COPY, AFFINE, REPORT] {
        validate_wgsl(source).unwrap();
        let msl = to_msl(source, false).unwrap().text;
        assert!(msl.contains("kernel void main_"), "{msl}");
    }
    let features = "
        enable f16;
        var<workgroup> shared_sum: array<f32, 64>;
        @group(0) @binding(0) var<storage, read_write> y: array<f16>;
        @group(0) @binding(1) var<storage, read_write> z: array<u64>;
        @compute @workgroup_size(64)
        fn main(@builtin(local_invocation_index) i: u32, @builtin(subgroup_id) s: u32) {
            shared_sum[i] = subgroupAdd(f32(y[i])) + unpack2x16float(s).x;
            workgroupBarrier();
            y[i] = f16(shared_sum[63u - i]);
            z[i] = u64(i) + 1lu;
        }";
    validate_wgsl(features).unwrap();
    assert!(to_msl(features, false).unwrap().text.contains("simd_sum"));
    let message = validate_wgsl("fn f() { x = 1; }").unwrap_err();
    assert!(message.contains("no definition in scope for identifier"), "{message}");
    assert!(validate_wgsl("fn f() -> u32 { return 1.5f; }").is_err());
}
