//! Commands on a small model, as a user runs them, and the shape of what they print.
#![allow(missing_docs)]

mod common;

use std::io::Write;
use std::process::Stdio;

use common::{Run, World, model};
use serde_json::Value;

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// The types of an object's fields.
#[track_caller]
fn expect(object: &Value, fields: &[(&str, fn(&Value) -> bool)]) {
    for (name, is) in fields {
        assert!(is(&object[name]), "{name} of {object}");
    }
}

fn is_setting(value: &Value) -> bool {
    value["device"] == "cpu" && value["threads"].is_u64() && value["activations"].is_string()
}

fn is_statistics(value: &Value) -> bool {
    let fields = [
        "prompt_tokens",
        "cached_tokens",
        "prompt_tokens_per_second",
        "time_to_first_token",
        "generation_tokens",
        "generation_tokens_per_second",
        "generation_time",
        "draft_tokens",
        "peak_memory",
    ];
    fields.iter().all(|field| value[field].is_number())
}

#[test]
fn generate_prints_text_between_lines_and_three_lines_of_numbers() {
    let (world, model) = (World::new(), model());
    let out =
        world.run(&["generate", "-m", &model, "-p", "hello", "-n", "8", "--device", "cpu"]).good();
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines[0], "==========", "{out}");
    let end = lines.iter().rposition(|line| *line == "==========").unwrap();
    assert!(
        end > 0
            && lines[end + 1].starts_with("Prompt: ")
            && lines[end + 1].ends_with(" tokens-per-sec")
    );
    assert!(lines[end + 2].starts_with("Generation: 8 tokens, "), "{out}");
    assert!(
        lines[end + 3].starts_with("Peak memory: ") && lines[end + 3].ends_with(" GB"),
        "{out}"
    );
    assert_eq!(lines[end + 4], "Activations: exact");
    let quiet = world
        .run(&["generate", "-m", &model, "-p", "hello", "-n", "8", "--quiet", "--device", "cpu"])
        .good();
    assert_eq!(lines[1..end].join("\n") + "\n", quiet);
}

#[test]
fn generate_as_json_has_the_documented_fields_and_seeds_repeat() {
    let (world, model) = (World::new(), model());
    let arguments = [
        "generate",
        "-m",
        &model,
        "-p",
        "hello",
        "-n",
        "6",
        "--json",
        "--temp",
        "1",
        "--seed",
        "7",
        "--logprobs",
        "2",
        "--device",
        "cpu",
        "--activations",
        "fast",
    ];
    let object = json(&world.run(&arguments).good());
    expect(
        &object,
        &[
            ("model", Value::is_string),
            ("path", Value::is_string),
            ("text", Value::is_string),
            ("tokens", Value::is_array),
            ("finish_reason", Value::is_string),
            ("setting", is_setting),
            ("statistics", is_statistics),
            ("logprobs", Value::is_array),
        ],
    );
    assert_eq!(object["setting"]["activations"], "fast");
    let count = object["tokens"].as_array().unwrap().len();
    assert_eq!(object["logprobs"].as_array().unwrap().len(), count);
    assert_eq!(object["logprobs"][0]["top_logprobs"].as_array().unwrap().len(), 2);
    let again = json(&world.run(&arguments).good());
    assert_eq!((&again["text"], &again["tokens"]), (&object["text"], &object["tokens"]));
}

#[test]
fn a_prompt_comes_from_a_pipe_too_and_must_be_text() {
    let (world, model) = (World::new(), model());
    let piped = |input: &[u8], arguments: &[&str]| {
        let mut command = world.command();
        command
            .args(["generate", "-m", &model, "-n", "4", "--quiet", "--device", "cpu"])
            .args(arguments);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let _closed_early = child.stdin.take().unwrap().write_all(input);
        Run::from(child.wait_with_output().unwrap())
    };
    let given = world
        .run(&["generate", "-m", &model, "-n", "4", "--quiet", "-p", "hello", "--device", "cpu"])
        .good();
    assert_eq!(piped(b"hello", &[]).good(), given);
    assert_eq!(piped(b"hello", &["-p", "-"]).good(), given);
    assert!(piped(b"", &[]).failed(2).contains("the prompt is empty"));
    assert!(piped(&[b'a', 0xff], &[]).failed(1).contains("not UTF-8 from byte 1 on"));
    let long = "word ".repeat(200);
    let error = piped(long.as_bytes(), &[]).failed(1);
    assert!(error.contains("at most 256 tokens, the model's context"), "{error}");
}

#[test]
fn several_prompts_are_answered_at_once_each_as_alone() {
    let (world, model) = (World::new(), model());
    let prompts = ["hello", "something longer than that", "third"];
    let with = |prompts: &[&str], more: &[&str]| {
        let given: Vec<&str> = prompts.iter().flat_map(|prompt| ["-p", prompt]).collect();
        let common = ["generate", "-m", &model, "-n", "6", "--device", "cpu"];
        world.run(&[&common[..], &given, more].concat())
    };
    let out = with(&prompts, &["--json", "--logprobs", "1"]).good();
    assert_eq!(out.lines().count(), 3, "{out}");
    let (mut all, mut told) = (0, Value::Null);
    for (index, (line, prompt)) in out.lines().zip(prompts).enumerate() {
        let object = json(line);
        let alone = json(&with(&[prompt], &["--json", "--logprobs", "1"]).good());
        assert_eq!((&object["index"], &object["prompt"]), (&index.into(), &prompt.into()));
        for field in ["model", "path", "text", "tokens", "finish_reason", "setting"] {
            assert_eq!(object[field], alone[field], "{field} of {prompt}");
        }
        assert!(is_statistics(&object["statistics"]), "{object}");
        let count = object["tokens"].as_array().unwrap().len();
        assert_eq!(object["logprobs"].as_array().unwrap().len(), count);
        (all, told) = (all + count, object["statistics"]["generation_tokens"].clone());
    }
    // Of all together, some of which may end early.
    assert_eq!(told, all);
    let alone = prompts.map(|prompt| with(&[prompt], &["--quiet"]).good());
    assert_eq!(with(&prompts, &["--quiet"]).good(), alone.join("==========\n"));
    let out = with(&prompts, &[]).good();
    assert!(
        out.starts_with("========== 1 of 3\n") && out.contains("\n========== 3 of 3\n"),
        "{out}"
    );
    assert!(out.contains("\n==========\nPrompt: "), "{out}");
    for option in ["--draft-model", "--prompt-cache-file"] {
        let error = with(&prompts, &[option, "x"]).failed(2);
        assert!(error.contains(&format!("{option} is for one prompt, and 3 are given")), "{error}");
    }
    assert!(with(&["hello", ""], &[]).failed(2).contains("the prompt is empty"));
}

#[test]
fn a_longer_context_may_be_asked_for() {
    let (world, model) = (World::new(), model());
    let long = "word ".repeat(80);
    let with = |more: &[&str]| {
        let common =
            ["generate", "-m", &model, "-p", &long, "-n", "2", "--quiet", "--device", "cpu"];
        world.run(&[&common[..], more].concat())
    };
    assert!(with(&[]).failed(1).contains("at most 256 tokens"));
    with(&["--context", "1000"]).good();
    assert!(
        with(&["--context", "300"]).failed(1).contains("at most 300 tokens, as context_length")
    );
    assert!(with(&["--context", "0"]).failed(2).contains("context_length"));
}

#[test]
fn options_that_cannot_be_honoured_are_errors() {
    let (world, model) = (World::new(), model());
    let with = |arguments: &[&str]| {
        let all =
            [&["generate", "-m", &model, "-p", "x", "--device", "cpu"][..], arguments].concat();
        world.run(&all)
    };
    assert!(with(&["--top-p", "1.5"]).failed(2).contains("top_p: expected 0 to 1, got 1.5"));
    assert!(with(&["--logit-bias", "x"]).failed(2).contains("--logit-bias"));
    assert!(with(&["--chat-template-config", "[]"]).failed(2).contains("--chat-template-config"));
    assert!(with(&["--extra-eos-token", "nope"]).failed(1).contains("no token \"nope\""));
    assert!(with(&["--draft-model", "nowhere.gguf"]).failed(1).contains("--draft-model"));
}

#[test]
fn a_prompt_cache_is_kept_in_a_file_and_used() {
    let (world, model) = (World::new(), model());
    let arguments = [
        "generate",
        "-m",
        &model,
        "-p",
        "a prompt that is long enough",
        "-n",
        "4",
        "--json",
        "--device",
        "cpu",
        "--prompt-cache-file",
        "cache.safetensors",
    ];
    let first = json(&world.run(&arguments).good());
    assert_eq!(first["statistics"]["cached_tokens"], 0);
    let second = json(&world.run(&arguments).good());
    assert!(second["statistics"]["cached_tokens"].as_u64().unwrap() > 0, "{second}");
    assert_eq!(first["tokens"], second["tokens"]);
}

#[test]
fn perplexity_bench_and_info_print_what_is_documented() {
    let (world, model) = (World::new(), model());
    std::fs::write(
        world.path("text.txt"),
        "The quick brown fox jumps over the lazy dog. ".repeat(4),
    )
    .unwrap();
    let object = json(
        &world
            .run(&["perplexity", "-m", &model, "text.txt", "-c", "64", "--json", "--device", "cpu"])
            .good(),
    );
    expect(
        &object,
        &[
            ("model", Value::is_string),
            ("file", Value::is_string),
            ("window", Value::is_u64),
            ("convention", Value::is_string),
            ("seconds", Value::is_number),
            ("peak_memory", Value::is_u64),
            ("setting", is_setting),
        ],
    );
    for field in ["perplexity", "standard_error", "tokens", "windows"] {
        assert!(object["perplexity"][field].is_number(), "{object}");
    }
    let out = world
        .run(&[
            "perplexity",
            "-m",
            &model,
            "text.txt",
            "-n",
            "40",
            "--window",
            "40",
            "--no-bos",
            "--device",
            "cpu",
        ])
        .good();
    assert!(
        out.starts_with("Perplexity: ") && out.contains("Tokens: 39 in 1 windows of 40"),
        "{out}"
    );

    let bench = [
        "bench", "-m", &model, "-p", "8,16", "-g", "4", "-n", "2", "--json", "--plot", "a.svg",
        "--device", "cpu",
    ];
    let object = json(&world.run(&bench).good());
    expect(
        &object,
        &[
            ("setting", is_setting),
            ("generation_tokens", Value::is_u64),
            ("results", Value::is_array),
        ],
    );
    let row = &object["results"][1];
    assert_eq!(
        (&row["prompt_tokens"], row["runs"].as_array().unwrap().len()),
        (&Value::from(16), 2)
    );
    assert!(row["prompt_tokens_per_second"]["mean"].as_f64().unwrap() > 0.0);
    assert!(row["runs"].as_array().unwrap().iter().all(is_statistics));
    assert!(std::fs::read_to_string(world.path("a.svg")).unwrap().starts_with("<svg "));

    let object = json(&world.run(&["info", "-m", &model, "--json", "--tensors"]).good());
    assert_eq!(
        (&object["architecture"], &object["layers"]),
        (&Value::from("llama"), &Value::from(2))
    );
    // Two layers with two heads of 16 keys and values each, for 256 tokens of single precision.
    assert_eq!(object["cache_bytes"], 2 * 2 * (16 + 16) * 256 * 4);
    assert_eq!(object["formats"][0]["format"], "F32");
    assert!(object["tensors"].as_array().unwrap().len() > 10);
    assert!(world.run(&["info", "-m", &model]).good().contains("Architecture:  llama"));
}

#[test]
fn chat_answers_line_by_line_and_knows_commands() {
    let (world, model) = (World::new(), model());
    let mut command = world.command();
    command.args(["chat", "-m", &model, "-n", "4", "--device", "cpu"]);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let input = "/help\nhello\n/stats\n/save talk.json\n/reset\nfirst \\\nsecond\n/nonsense\n/save\n/exit\nnever\n";
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let run = Run::from(child.wait_with_output().unwrap());
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(run.err.contains("/reset          forget the conversation"), "{run:?}");
    assert!(run.err.contains("Generation: ") && run.err.contains("(forgotten)"), "{run:?}");
    assert!(
        run.err.contains("there is no command /nonsense") && run.err.contains("/save: which file?"),
        "{run:?}"
    );
    let saved = json(&std::fs::read_to_string(world.path("talk.json")).unwrap());
    let roles: Vec<&str> =
        saved.as_array().unwrap().iter().filter_map(|m| m["role"].as_str()).collect();
    assert_eq!(roles, ["user", "assistant"]);
}

#[test]
fn convert_refuses_to_overwrite_and_a_full_disk_leaves_what_was_there() {
    let (world, model) = (World::new(), model());
    let out = world
        .run(&["convert", "-m", &model, "-o", "small", "-q", "--q-group-size", "32", "--json"])
        .good();
    let object = json(&out);
    expect(
        &object,
        &[
            ("path", Value::is_string),
            ("tensors", Value::is_u64),
            ("bytes", Value::is_u64),
            ("parameters", Value::is_u64),
            ("bits_per_weight", Value::is_number),
            ("seconds", Value::is_number),
        ],
    );
    let error = world.run(&["convert", "-m", &model, "-o", "small", "-q"]).failed(1);
    assert!(error.contains("which exists") && error.contains("hint: --overwrite"), "{error}");
    let told = world
        .run(&["generate", "-m", "small", "-p", "hello", "-n", "4", "--quiet", "--device", "cpu"])
        .good();
    if cfg!(unix) {
        // Files may not grow beyond 8 blocks: writing fails as it does where there is no room.
        let command = world.command();
        let mut limited = std::process::Command::new("sh");
        limited
            .env_clear()
            .envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        limited.current_dir(world.folder.path());
        limited
            .args(["-c", "trap '' XFSZ; ulimit -f 8; exec \"$0\" \"$@\""])
            .arg(command.get_program());
        limited.args(["convert", "-m", &model, "-o", "small", "--overwrite"]);
        let error = Run::of(&mut limited).failed(1);
        assert!(error.contains("error: "), "{error}");
    }
    let again = world
        .run(&["generate", "-m", "small", "-p", "hello", "-n", "4", "--quiet", "--device", "cpu"])
        .good();
    assert_eq!(told, again);
    assert!(!world.path(".small.converting").exists());
}
