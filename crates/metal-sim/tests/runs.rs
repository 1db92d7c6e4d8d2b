//! Kernels that are right give the values that Rust computes, in every build and order.

use metal_sim::{Build, Cache, Kernel, Launch, Library, Order, Toolchain, Worker};

#[test]
fn a_kernel_scales_its_input() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("metal-sim");
    let cache = Cache::open(&folder, Toolchain::find().unwrap()).unwrap();
    let text = "struct Params { n: u32, scale: f32 }
        var<immediate> p: Params;
        @group(0) @binding(0) var<storage, read> x: array<f32>;
        @group(0) @binding(1) var<storage, read_write> y: array<f32>;
        @compute @workgroup_size(64)
        fn main(@builtin(global_invocation_id) id: vec3u) {
            if (id.x < p.n) { y[id.x] = x[id.x] * p.scale; }
        }";
    for checked in [false, true] {
        let build = Build { checked, ..Default::default() };
        let library = Library::build(&cache, &[Kernel::wgsl("scale", text)], build).unwrap();
        let x = (0..100).flat_map(|i| (i as f32).to_le_bytes()).collect::<Vec<u8>>();
        let mut memory = vec![x, vec![0; 400]];
        let launch = Launch {
            kernel: library.kernel("scale").unwrap().clone(),
            params: vec![100, 2f32.to_bits()],
            groups: [2, 1, 1],
            bindings: vec![(0, false), (1, true)],
        };
        let mut worker = Worker::new(&cache).unwrap();
        worker.run(&[launch], &mut memory, Order::Forward).unwrap();
        assert_eq!(memory[1][396..], 198f32.to_le_bytes());
    }
}
