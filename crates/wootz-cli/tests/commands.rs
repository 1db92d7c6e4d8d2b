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
    // Of no other tokens: each has its own, of one prompt and of several.
    let with = |listed: &str, prompts: &[&str]| {
        let given = ["generate", "-m", &model, "-n", "6", "--json", "--device", "cpu"];
        let all = [&given[..], prompts, &["--logprobs", listed]].concat();
        let out = world.run(&all).good();
        json(if prompts.len() > 2 { out.lines().next().unwrap() } else { &out })
    };
    for prompts in [&["-p", "hello"][..], &["-p", "hello", "-p", "there"]] {
        let (none, one) = (with("0", prompts), with("1", prompts));
        for (none, one) in
            none["logprobs"].as_array().unwrap().iter().zip(one["logprobs"].as_array().unwrap())
        {
            assert!(none["logprob"].is_number(), "{none}");
            assert_eq!((&none["token"], &none["logprob"]), (&one["token"], &one["logprob"]));
            assert_eq!(none["top_logprobs"], serde_json::json!([]));
            assert_eq!(one["top_logprobs"].as_array().unwrap().len(), 1);
        }
    }
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
    // More than the context holds would end early.
    let bench = |sizes: [&str; 2]| {
        let [prompt, generated] = sizes;
        world.run(&[
            "bench", "-m", &model, "-p", prompt, "-g", generated, "-n", "1", "--device", "cpu",
        ])
    };
    let error = bench(["8,250", "128"]).failed(2);
    let expected = "--prompt-tokens 250 and --generation-tokens 128: expected at most 256 together";
    assert!(error.contains(expected) && error.contains("got 378"), "{error}");
    let out = bench(["250", "6"]).good();
    assert!(out.contains("Generation: 6 tokens"), "{out}");
    assert!(bench(["0", "6"]).failed(2).contains("--prompt-tokens"));

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
fn info_counts_what_the_model_takes_and_says_what_is_left_out() {
    let world = World::new();
    let source = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../goldens/tiny-models/small-qwen3_5");
    std::fs::create_dir(world.path("seeing")).unwrap();
    std::fs::copy(source.join("config.json"), world.path("seeing/config.json")).unwrap();
    let mut arrays = wootz::io::load_safetensors(&source.join("model.safetensors")).unwrap();
    let write = |arrays: &std::collections::BTreeMap<String, wootz::Array>| {
        wootz::io::save_safetensors(&world.path("seeing/model.safetensors"), arrays).unwrap();
        json(&world.run(&["info", "-m", "seeing", "--json", "--tensors"]).good())
    };
    let alone = write(&arrays);
    assert_eq!(alone["unused"], serde_json::json!({ "tensors": 0, "bytes": 0 }));
    for (name, count) in [("vision_tower.patch.weight", 40), ("mtp.fc.weight", 2)] {
        let array = wootz::Array::zeros(&[count], wootz::DType::F32).unwrap();
        arrays.insert(name.to_string(), array);
    }
    let seeing = write(&arrays);
    assert_eq!(seeing["unused"], serde_json::json!({ "tensors": 2, "bytes": 168 }));
    for field in ["formats", "weights_bytes", "bits_per_weight", "parameters", "memory_bytes"] {
        assert_eq!(seeing[field], alone[field], "{field}");
    }
    let tensors = seeing["tensors"].as_array().unwrap();
    let left: Vec<&Value> =
        tensors.iter().filter(|of| of["used"] == false).map(|of| &of["name"]).collect();
    assert_eq!(left, ["mtp.fc.weight", "vision_tower.patch.weight"]);
    let out = world.run(&["info", "-m", "seeing"]).good();
    assert!(out.contains("Left out:      2 tensors of parts that are not used, 168 B"), "{out}");
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

/// A conversation through a pipe; what it printed, and what `/save` wrote.
fn talk(world: &World, input: &str) -> (Run, Value) {
    let mut command = world.command();
    command.args(["chat", "-m", &model(), "-n", "6", "--device", "cpu"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let input = format!("{input}/save talk.json\n/exit\n");
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let run = Run::from(child.wait_with_output().unwrap());
    assert_eq!(run.code, Some(0), "{run:?}");
    let saved = json(&std::fs::read_to_string(world.path("talk.json")).unwrap());
    (run, saved)
}

/// Who said what.
fn said(saved: &Value) -> Vec<(&str, &str)> {
    let all = saved.as_array().unwrap().iter();
    all.map(|one| (one["role"].as_str().unwrap(), one["content"].as_str().unwrap())).collect()
}

#[test]
fn chat_takes_texts_of_several_lines_a_system_message_and_an_earlier_conversation() {
    let world = World::new();
    let (_, saved) = talk(&world, "\"\"\"one\n/reset\n\ntwo \\\nthree\"\"\"\n/stats\n");
    let earlier = saved;
    let [("user", question), ("assistant", answer)] = said(&earlier)[..] else {
        panic!("{earlier}")
    };
    // Commands and line ends are text within marks.
    assert_eq!(question, "one\n/reset\n\ntwo \\\nthree");
    std::fs::rename(world.path("talk.json"), world.path("earlier.json")).unwrap();

    let (run, saved) = talk(&world, "hello\n/load earlier.json\nfour\n");
    assert!(run.err.contains("(2 messages)"), "{run:?}");
    let all = said(&saved);
    assert_eq!(all[..3], [("user", question), ("assistant", answer), ("user", "four")]);
    let (run, _) = talk(&world, "/load nowhere.json\nhello\n");
    assert!(run.err.contains("error: nowhere.json: "), "{run:?}");

    // A system message is the first, and what was before it is forgotten.
    let (_, saved) = talk(&world, "hello\n/system Be brief.\nfour\n/system Be long.\nfive\n");
    let all = said(&saved);
    assert_eq!(all[..2], [("system", "Be long."), ("user", "five")]);
    assert_eq!((all.len(), all[2].0), (3, "assistant"));
}

#[test]
fn what_chat_forgets_has_no_part_in_its_answers() {
    let world = World::new();
    let last = |input: &str| {
        let (_, saved) = talk(&world, input);
        said(&saved).last().unwrap().1.to_string()
    };
    let fresh = last("a question\n");
    let behind = last("a long story of something else\na question\n");
    assert_ne!(behind, fresh);
    assert_eq!(last("a long story of something else\n/reset\na question\n"), fresh);
    assert_eq!(
        last("a long story of something else\n/system x\na question\n"),
        last("/system x\na question\n")
    );
    assert_ne!(last("/system x\na question\n"), fresh);
}

#[test]
fn colours_are_for_terminals_and_those_who_want_them() {
    let there = std::process::Command::new("script").arg("--version").stdin(Stdio::null()).output();
    if !cfg!(target_os = "linux") || !there.is_ok_and(|done| done.status.success()) {
        eprintln!("SKIPPED: there is no `script` that makes a terminal");
        return;
    }
    let world = World::new();
    let in_terminal = |no_color: Option<&str>| {
        let plain = world.command();
        let mut command = std::process::Command::new("script");
        command.env_clear();
        command.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.env("PROGRAM", plain.get_program()).env("TERM", "xterm").env("SHELL", "/bin/sh");
        no_color.map(|value| command.env("NO_COLOR", value));
        command.args(["-qec", "\"$PROGRAM\" info -m xyz", "/dev/null"]).stdin(Stdio::null());
        let run = Run::of(command.current_dir(world.folder.path()));
        assert_eq!(run.code, Some(1), "{run:?}");
        // A terminal has one stream.
        run.out
    };
    let coloured = in_terminal(None);
    assert!(
        coloured.contains("\x1b[1;31merror:\x1b[0m ") && coloured.contains("\x1b[1;36mhint:"),
        "{coloured:?}"
    );
    // As https://no-color.org says, an empty value is none.
    assert_eq!(in_terminal(Some("")), coloured);
    let plain = in_terminal(Some("1"));
    assert!(plain.contains("error: there is no model") && !plain.contains('\x1b'), "{plain:?}");
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
        assert!(error.contains("error: ") && error.contains("hint: make room"), "{error}");
    }
    let again = world
        .run(&["generate", "-m", "small", "-p", "hello", "-n", "4", "--quiet", "--device", "cpu"])
        .good();
    assert_eq!(told, again);
    assert!(!world.path(".small.converting").exists());
}
