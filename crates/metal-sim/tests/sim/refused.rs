//! Mistakes that are refused before anything runs.

use metal_sim::{Kernel, Library, Msl, MslBinding, MslLaunch};

use crate::support::{PLAIN, cache};

/// A kernel written in MSL, with two buffers and one threadgroup variable.
pub(crate) fn msl(text: &str) -> Kernel {
    let binding = |binding, writes| MslBinding { binding, slot: binding, writes };
    let text = format!("#include <metal_stdlib>\nusing namespace metal;\n{text}");
    Kernel::msl(
        "test",
        Msl {
            text,
            entry: "k".into(),
            launch: MslLaunch {
                workgroup_size: [32, 1, 1],
                bindings: vec![binding(0, true), binding(1, false)],
                threadgroup: vec![1024],
                ..MslLaunch::default()
            },
        },
    )
}

pub(crate) const HEAD: &str = "kernel void k(device float *o [[buffer(0)]], constant float *c [[buffer(1)]], \
    threadgroup float *s [[threadgroup(0)]], uint t [[thread_index_in_threadgroup]]) {";

#[test]
fn a_kernel_written_by_hand_is_built() {
    let Some(cache) = cache() else { return };
    let text = format!(
        "float f(threadgroup const float *p, uint i) {{ return p[i]; }}\n{HEAD} s[t] = c[t]; \
         threadgroup_barrier(mem_flags::mem_threadgroup); o[t] = max(f(s, 31 - t), 0.5); }}"
    );
    Library::build(&cache, &[msl(&text)], PLAIN).unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn mistakes_in_msl_are_refused() {
    let Some(cache) = cache() else { return };
    let body = |text: &str| format!("{HEAD} {text} }}");
    let helper = |helper: &str, text: &str| format!("{helper}\n{HEAD} {text} }}");
    let signature = |arguments: &str| format!("kernel void k({arguments}) {{ o[0] = 1.0; }}");
    let cases = [
        (
            "threadgroup as device",
            helper("float f(device const float *p) { return p[0]; }", "o[t] = f(s);"),
        ),
        ("constant as device", body("device const float *p = c; o[t] = p[t];")),
        ("a write to constant memory", body("c[t] = o[t];")),
        (
            "a pointer without address space",
            helper("float f(const float *p) { return p[0]; }", "float x = 1.0; o[t] = f(&x);"),
        ),
        ("a local pointer without address space", body("float x = 1.0; float *p = &x; o[t] = *p;")),
        ("double", body("double d = o[t]; o[t] = d;")),
        ("too few components", body("float4 v = float4(1.0f, 2.0f); o[t] = v.x;")),
        ("a cast to a vector", body("int4 v = int4(1); float4 f = (float4)v; o[t] = f.x;")),
        ("float4 to half4", body("half4 h = float4(o[t]); o[t] = h.x;")),
        (
            "a buffer index twice",
            signature("device float *o [[buffer(0)]], device float *p [[buffer(0)]]"),
        ),
        ("max of float and int", body("o[t] = max(o[t], 0);")),
        (
            "positions of different dimensions",
            signature(
                "device float *o [[buffer(0)]], uint2 a [[thread_position_in_grid]], uint3 b [[threadgroup_position_in_grid]]",
            ),
        ),
        ("recursion", helper("int f(int n) { return n < 2 ? n : f(n - 1); }", "o[t] = f(5);")),
        ("a function of the C library", body("o[t] = expf(o[t]);")),
        ("new", body("thread float *p = new float[4]; o[t] = p[0];")),
        ("a local device variable", body("device float x = 1.0f; o[t] = x;")),
        (
            "a threadgroup variable in a function",
            helper("float f() { threadgroup float x[4]; return x[0]; }", "o[t] = f();"),
        ),
        ("a write to const", signature("device const float *o [[buffer(0)]]")),
        ("a buffer by value", signature("device float *o [[buffer(0)]], uint n [[buffer(1)]]")),
        (
            "a signed position",
            signature("device float *o [[buffer(0)]], int i [[thread_position_in_grid]]"),
        ),
        (
            "a vector for an index",
            signature("device float *o [[buffer(0)]], uint2 i [[thread_index_in_simdgroup]]"),
        ),
        ("an argument without attribute", signature("device float *o [[buffer(0)]], uint i")),
        (
            "an unknown attribute",
            signature("device float *o [[buffer(0)]], uint i [[thread_position_in_gird]]"),
        ),
        (
            "an atomic operation on a plain number",
            body(
                "device uint *p = (device uint *)o; atomic_fetch_add_explicit(p, 1u, memory_order_relaxed);",
            ),
        ),
        ("exceptions", body("try { o[t] = 1.0f; } catch (...) {}")),
        ("goto", body("if (t > 4) goto x; o[t] = 1.0f; x:;")),
        (
            "a missing return value",
            helper("float f(float x) { if (x > 0) return x; }", "o[t] = f(o[t]);"),
        ),
        ("a missing entry point", "kernel void other(device float *o [[buffer(0)]]) {}".to_owned()),
        ("as_type between sizes", body("o[t] = as_type<float>(half(1.0));")),
    ];
    let mut accepted = Vec::new();
    for (what, text) in cases {
        if Library::build(&cache, &[msl(&text)], PLAIN).is_ok() {
            accepted.push(what);
        }
    }
    assert!(accepted.is_empty(), "accepted: {accepted:?}");
}

#[test]
fn what_an_m1_does_not_have_is_refused() {
    let Some(cache) = cache() else { return };
    let kernel = |size: u32, words: u32, buffers: u32| {
        let binding =
            |i| format!("@group(0) @binding({i}) var<storage, read_write> b{i}: array<u32>;");
        let bindings = (0..buffers).map(binding).collect::<String>();
        let text = format!(
            "{bindings} var<workgroup> t: array<u32, {words}>;
            @compute @workgroup_size({size})
            fn main(@builtin(local_invocation_index) i: u32) {{
                t[i] = b0[i]; workgroupBarrier(); b0[i] = t[{size} - 1 - i];
            }}"
        );
        Kernel::wgsl("test", text)
    };
    Library::build(&cache, &[kernel(1024, 8192, 30)], PLAIN).unwrap_or_else(|e| panic!("{e}"));
    for (kernel, what) in [
        (kernel(64, 8193, 1), "threadgroup memory"),
        (kernel(1025, 8192, 1), "threads"),
        (kernel(64, 64, 31), "buffers"),
    ] {
        let error = Library::build(&cache, &[kernel], PLAIN).unwrap_err();
        assert!(error.to_string().contains(what), "{what}: {error}");
    }
}

#[test]
fn one_bad_kernel_does_not_spoil_the_others() {
    let Some(cache) = cache() else { return };
    let good = format!("{HEAD} o[t] = c[t] + 3.25; }}");
    let bad = format!("{HEAD} o[t] = c[t] + undeclared; }}");
    let kernels = [
        Kernel { name: "good".into(), ..msl(&good) },
        Kernel { name: "bad".into(), ..msl(&bad) },
        Kernel::wgsl("not WGSL", "fn main( {}"),
    ];
    let (library, error) = Library::build_all(&cache, &kernels, PLAIN);
    assert!(library.kernel("good").is_some() && library.kernel("bad").is_none());
    let names = error.refused.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>();
    assert_eq!(names, ["bad", "not WGSL"]);
    let message = &error.refused[0].1;
    assert!(message.contains("undeclared") && message.contains("msl:3:"), "{message}");
}
