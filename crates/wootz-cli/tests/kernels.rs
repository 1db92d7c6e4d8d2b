//! `wootz kernels` as a user runs it. It needs no GPU.
#![allow(missing_docs)]

use std::process::{Command, Output, Stdio};

fn wootz(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_wootz"))
        .arg("kernels")
        .args(arguments)
        .env("RUST_BACKTRACE", "0")
        .output()
        .unwrap()
}

/// What is printed by a run that succeeds.
fn printed(arguments: &[&str]) -> String {
    let output = wootz(arguments);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

/// What a run complains of.
fn refused(arguments: &[&str]) -> String {
    let output = wootz(arguments);
    assert!(!output.status.success(), "{arguments:?}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
    String::from_utf8(output.stderr).unwrap()
}

fn heads(text: &str, mark: &str) -> Vec<String> {
    text.lines().filter(|line| line.starts_with(mark)).map(String::from).collect()
}

#[test]
fn the_kernels_of_an_operation_are_printed_in_each_language() {
    let wgsl = printed(&["softmax"]);
    let names = heads(&wgsl, "// softmax/");
    assert!(names.len() >= 3 && names.is_sorted(), "{names:?}");
    assert!(wgsl.contains("@compute @workgroup_size("));
    assert_eq!(wgsl, printed(&["softmax", "--wgsl"]));

    let msl = printed(&["--msl", "softmax"]);
    assert_eq!(heads(&msl, "// softmax/"), names);
    assert!(msl.contains("kernel void main_(") && msl.contains("[[buffer(0)]]"));
    assert!(!msl.contains("loop_bound"));
    assert!(printed(&["--msl", "--checked", "softmax"]).contains("loop_bound"));
}

#[test]
fn spirv_is_the_binary_of_one_kernel() {
    let error = refused(&["softmax", "--spirv"]);
    assert!(error.contains("choose one with --kernel:\n  "), "{error}");
    let name = error.lines().find_map(|line| line.strip_prefix("  softmax/")).unwrap();
    let arguments = ["softmax", "--spirv", "--kernel", &format!("softmax/{name}")];
    let output = wootz(&arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.stdout[..8], [0x03, 0x02, 0x23, 0x07, 0, 6, 1, 0]);

    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("softmax.spv");
    let mut arguments = arguments.to_vec();
    arguments.extend(["-o", path.to_str().unwrap()]);
    assert_eq!(printed(&arguments), "");
    assert_eq!(std::fs::read(&path).unwrap(), output.stdout);
    std::fs::remove_file(path).unwrap();

    // Only Apple's GPUs are sure to have matrices.
    assert!(printed(&["matmul"]).contains("cooperative"));
    assert!(!refused(&["matmul", "--spirv"]).contains("cooperative"));
}

#[test]
fn dtype_and_kernel_select() {
    let all = heads(&printed(&["exp"]), "// ");
    let one = heads(&printed(&["exp", "--dtype", "bfloat16"]), "// ");
    assert!(!one.is_empty() && one.len() < all.len());
    assert!(heads(&printed(&["exp", "-k", "float16"]), "// fused/").len() < all.len());
    assert!(refused(&["exp", "--dtype", "float8"]).contains("known are bool, "));
    assert!(refused(&["exp", "--dtype", "float64"]).contains("exp does not take float64"));
}

#[test]
fn the_list_has_a_line_for_each_kernel() {
    let list = printed(&["--dtype", "float32", "--kernel", "softmax/"]);
    let mut lines = list.lines();
    let head: Vec<&str> = lines.next().unwrap().split_whitespace().collect();
    let expected = ["OPERATION", "THREADS", "WORKGROUP", "MEMORY", "BUFFERS", "WGSL", "KERNEL"];
    assert_eq!(head, expected);
    let row = lines.find(|row| row.starts_with("softmax ")).unwrap();
    assert!(row.contains(" B  softmax/"), "{row}");
}

#[test]
fn what_cannot_be_honoured_is_an_error() {
    let error = refused(&["softmx"]);
    assert!(error.contains("no operation \"softmx\"; did you mean softmax, "), "{error}");
    assert!(refused(&["zzz"]).contains("`wootz kernels` lists all"));
    assert!(refused(&["exp", "--checked"]).contains("--checked changes MSL"));
    assert!(refused(&["exp", "--msl", "--wgsl"]).contains("cannot be used with"));
    assert!(refused(&["exp", "-o", "/nowhere/at/all"]).contains("cannot write"));
}

#[test]
fn a_reader_that_has_enough_is_no_error() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_wootz"))
        .args(["kernels", "exp"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
