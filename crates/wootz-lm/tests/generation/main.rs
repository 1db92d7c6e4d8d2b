//! Generation from small models with random weights: tokens are mlx-lm's, and every way to them gives the
//! same.

mod long;
mod prompt_cache;

use std::path::PathBuf;

use serde_json::Value;
use wootz::Device;
use wootz_lm::generate::{FinishReason, GenerateOptions, Piece, TextModel};
use wootz_lm::models::LoadOptions;

/// Full attention, a sliding window, and a recurrent state beside attention.
const MODELS: [&str; 3] = ["full", "sliding", "recurrent"];

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../goldens/generation")
}

fn open(name: &str, device: &Device) -> TextModel {
    TextModel::open(folder().join(name), &LoadOptions { device: device.clone() }).unwrap()
}

/// The CPU, and a GPU if there is one or there must be.
fn devices() -> Vec<Device> {
    let wanted = std::env::var("WOOTZ_TEST_GPU").unwrap_or_default();
    let mut devices = vec![Device::cpu()];
    match Device::gpu() {
        _ if wanted == "skip" => eprintln!("SKIPPED: the GPU, as WOOTZ_TEST_GPU says"),
        Ok(gpu) => devices.push(gpu),
        Err(error) if wanted == "required" => panic!("{error}"),
        Err(error) => eprintln!("SKIPPED: the GPU: {error}"),
    }
    devices
}

fn on_cpu(name: &str) -> TextModel {
    open(name, &Device::cpu())
}

fn lines(file: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(folder().join(file)).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn numbers(value: &Value) -> Vec<u32> {
    serde_json::from_value(value.clone()).unwrap()
}

/// Tokens of a prompt that no other number has.
fn prompt(number: usize, length: usize) -> Vec<u32> {
    (0..length).map(|i| 4 + ((i * i * 7 + i * 31 + number * 101) % 256) as u32).collect()
}

fn greedy(max_tokens: usize) -> GenerateOptions {
    GenerateOptions { max_tokens, ignore_eos: true, ..GenerateOptions::default() }
}

fn sampled(max_tokens: usize, seed: u64) -> GenerateOptions {
    GenerateOptions { temperature: 1.0, top_p: 0.9, seed: Some(seed), ..greedy(max_tokens) }
}

fn pieces(model: &TextModel, prompt: &[u32], options: &GenerateOptions) -> Vec<Piece> {
    let generation = model.request(prompt.to_vec()).options(options).start().unwrap();
    generation.collect::<Result<_, _>>().unwrap()
}

fn tokens(model: &TextModel, prompt: &[u32], options: &GenerateOptions) -> Vec<u32> {
    pieces(model, prompt, options).iter().map(|piece| piece.token).collect()
}

#[test]
fn tokens_and_log_probabilities_are_those_of_mlx_lm() {
    for device in devices() {
        for name in MODELS {
            let model = open(name, &device);
            let cases = lines("cases.jsonl");
            let of_this: Vec<&Value> = cases.iter().filter(|case| case["model"] == name).collect();
            assert_eq!(of_this.len(), 12);
            // A software GPU takes its time: every third there.
            let step = if device.is_gpu() { 3 } else { 1 };
            for case in of_this.iter().step_by(step) {
                let mut options: GenerateOptions =
                    serde_json::from_value(case["options"].clone()).unwrap();
                let expected = numbers(&case["tokens"]);
                options = GenerateOptions {
                    max_tokens: expected.len(),
                    ignore_eos: true,
                    logprobs: 1,
                    ..options
                };
                let found = pieces(&model, &numbers(&case["prompt"]), &options);
                let got: Vec<u32> = found.iter().map(|piece| piece.token).collect();
                assert_eq!(got, expected, "{name} on {device}: {}", case["options"]);
                let logprobs: Vec<f32> = serde_json::from_value(case["logprobs"].clone()).unwrap();
                for (piece, expected) in found.iter().zip(logprobs) {
                    let got = piece.logprob.unwrap();
                    assert!((got - expected).abs() < 1e-3, "{name}: {got}, expected {expected}");
                }
            }
        }
    }
}

#[test]
fn a_seed_decides_about_the_tokens() {
    let model = on_cpu("full");
    let of_seed = |seed| tokens(&model, &prompt(1, 9), &sampled(20, seed));
    assert_eq!(of_seed(3), of_seed(3));
    assert_ne!(of_seed(3), of_seed(4));
    let unseeded = GenerateOptions { seed: None, ..sampled(20, 0) };
    let first = tokens(&model, &prompt(1, 9), &unseeded);
    assert_ne!(first, tokens(&model, &prompt(1, 9), &unseeded));
}

#[test]
fn all_probabilities_sum_to_one_and_the_best_come_first() {
    for device in devices() {
        let model = open("full", &device);
        let options = GenerateOptions { logprobs: 260, ..greedy(3) };
        for piece in pieces(&model, &prompt(2, 7), &options) {
            assert_eq!(piece.top_logprobs.len(), 260);
            let sum: f64 = piece.top_logprobs.iter().map(|(_, p)| f64::from(*p).exp()).sum();
            assert!((sum - 1.0).abs() < 1e-5, "{sum}");
            assert!(piece.top_logprobs.is_sorted_by(|a, b| a.1 >= b.1));
            assert_eq!(piece.top_logprobs[0], (piece.token, piece.logprob.unwrap()));
            let few = GenerateOptions { logprobs: 4, ..greedy(1) };
            let best = &pieces(&model, &prompt(2, 7), &few)[0].top_logprobs;
            assert_eq!(best.len(), 4);
        }
        assert_eq!(pieces(&model, &prompt(2, 7), &greedy(1))[0].logprob, None);
    }
}

#[test]
fn a_stop_text_ends_the_text_before_it() {
    let model = on_cpu("full");
    let (given, options) = (prompt(3, 8), greedy(40));
    let whole: String = pieces(&model, &given, &options).iter().map(|p| p.text.as_str()).collect();
    // Two characters from two tokens, in the midst of the text.
    let characters: Vec<char> = whole.chars().collect();
    let stop: String = characters[15..17].iter().collect();
    let options = GenerateOptions { stop: vec!["never said".into(), stop.clone()], ..options };
    let found = pieces(&model, &given, &options);
    let text: String = found.iter().map(|piece| piece.text.as_str()).collect();
    assert_eq!(text, whole.split(&stop).next().unwrap());
    let last = found.last().unwrap();
    assert_eq!(last.finish_reason, Some(FinishReason::StopText(stop)));
    assert!(found[..found.len() - 1].iter().all(|piece| piece.finish_reason.is_none()));
}

#[test]
fn tokens_that_end_a_text_are_not_shown() {
    let model = on_cpu("full");
    let given = prompt(4, 8);
    let all = tokens(&model, &given, &greedy(12));
    let end = all[5];
    let options = GenerateOptions { stop_tokens: vec![end], ..greedy(12) };
    let found = pieces(&model, &given, &options);
    let first = all.iter().position(|&token| token == end).unwrap();
    assert_eq!(found.len(), first + 1);
    let last = found.last().unwrap();
    assert_eq!(last.finish_reason, Some(FinishReason::EndToken(end)));
    let shown: String = found.iter().map(|piece| piece.text.as_str()).collect();
    let before = tokens(&model, &given, &greedy(first.max(1)));
    assert_eq!(shown, model.tokenizer.decode(&before[..first], false).unwrap());
}

#[test]
fn text_comes_in_whole_characters_and_is_the_tokens_text() {
    let model = on_cpu("sliding");
    let found = pieces(&model, &prompt(5, 12), &greedy(60));
    let all: Vec<u32> = found.iter().map(|piece| piece.token).collect();
    let text: String = found.iter().map(|piece| piece.text.as_str()).collect();
    assert_eq!(text, model.tokenizer.decode(&all, false).unwrap());
    assert_eq!(found.last().unwrap().finish_reason, Some(FinishReason::Length));
}

#[test]
fn the_context_ends_a_generation_and_longer_prompts_are_refused() {
    let model = on_cpu("full");
    let found = pieces(&model, &prompt(6, 250), &greedy(100));
    // Six more fit; what comes after the last of them needs no place.
    assert_eq!(found.len(), 7);
    assert_eq!(found[6].finish_reason, Some(FinishReason::Length));
    let error = |tokens: Vec<u32>| model.request(tokens).start().err().unwrap().to_string();
    assert!(error(prompt(6, 257)).contains("at most 256 tokens"), "{}", error(prompt(6, 257)));
    // Another limit may be asked for, in either direction.
    let within = |context: usize, length: usize| {
        let options = GenerateOptions { context_length: Some(context), ..greedy(100) };
        let request = model.request(prompt(6, length)).options(&options);
        request.start().map(|generation| generation.count()).map_err(|error| error.to_string())
    };
    assert_eq!(within(300, 290), Ok(11));
    assert!(within(300, 301).unwrap_err().contains("at most 300 tokens, as context_length says"));
    assert!(within(100, 101).unwrap_err().contains("at most 100 tokens"));
    assert_eq!(within(100, 97), Ok(4));
    assert!(error(vec![]).contains("at least one token"));
    assert!(error(vec![260]).contains("tokens below 260, got 260"));
    assert!(model.generate("", &greedy(1)).is_err());
}

#[test]
fn a_generation_config_gives_the_defaults() {
    let copy = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(folder().join("full")).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
    }
    let config = copy.path().join("generation_config.json");
    let open = || TextModel::open(copy.path(), &LoadOptions { device: Device::cpu() });
    assert_eq!(open().unwrap().defaults_from(), None);
    std::fs::write(&config, r#"{"do_sample": true, "temperature": 0.3, "top_k": 7}"#).unwrap();
    let model = open().unwrap();
    assert_eq!(model.defaults_from(), Some(config.as_path()));
    let defaults = model.default_options();
    assert_eq!((defaults.temperature, defaults.top_k), (0.3, 7));
    std::fs::write(&config, r#"{"do_sample": true, "temperature": -1}"#).unwrap();
    let error = open().err().unwrap().to_string();
    assert!(error.contains("generation_config.json") && error.contains("temperature"), "{error}");
}

#[test]
fn a_draft_model_changes_nothing_but_the_speed() {
    for device in devices() {
        let near = open("near", &device);
        for name in MODELS {
            // A software GPU takes its time: the model whose state is hardest to take back there.
            if device.is_gpu() && name != "recurrent" {
                continue;
            }
            let target = open(name, &device);
            let drafts = [&near, &target];
            let penalized = GenerateOptions { repetition_penalty: 1.4, ..greedy(30) };
            for options in [greedy(30), penalized, sampled(30, 8)] {
                let given = prompt(7, 13);
                let plain = tokens(&target, &given, &options);
                for (number, draft) in drafts.into_iter().enumerate() {
                    let request = target.request(given.clone()).options(&options).draft(draft);
                    let mut generation = request.start().unwrap();
                    let found: Vec<Piece> = generation.by_ref().collect::<Result<_, _>>().unwrap();
                    let got: Vec<u32> = found.iter().map(|piece| piece.token).collect();
                    assert_eq!(got, plain, "{name} with draft {number} on {device}");
                    let accepted = generation.statistics().draft_tokens;
                    assert_eq!(accepted, found.iter().filter(|piece| piece.from_draft).count());
                    // A model agrees with itself: three of four tokens are its proposals.
                    if number == 1 {
                        assert!(accepted >= 21, "{name}: {accepted}");
                    } else if name == "full" {
                        assert!((1..30).contains(&accepted), "{accepted}");
                    }
                }
                if device.is_gpu() {
                    break;
                }
            }
        }
    }
}

/// A copy of a checkpoint whose embeddings have so many rows, and whose tokenizer's file is changed.
fn copied(name: &str, rows: usize, tokenizer: impl Fn(String) -> String) -> TextModel {
    let (copy, source) = (tempfile::tempdir().unwrap(), folder().join(name));
    let mut weights = wootz::io::load_safetensors(&source.join("model.safetensors")).unwrap();
    for name in ["model.embed_tokens.weight", "lm_head.weight"] {
        let own = &weights[name];
        // Those that are added are the likeliest of all, if they count.
        let more = rows.saturating_sub(own.shape()[0]);
        let last = wootz::multiply(own.index(3..4).unwrap(), 50.0).unwrap();
        let longer = wootz::concatenate(&[vec![own; 1], vec![&last; more]].concat(), 0).unwrap();
        let cut = longer.index(..rows as i64).unwrap().contiguous().unwrap();
        weights.insert(name.to_string(), cut);
    }
    wootz::io::save_safetensors(&copy.path().join("model.safetensors"), &weights).unwrap();
    let read = |name: &str| std::fs::read_to_string(source.join(name)).unwrap();
    let size = format!("\"vocab_size\": {rows}");
    let config = read("config.json").replace("\"vocab_size\": 260", &size);
    std::fs::write(copy.path().join("config.json"), config).unwrap();
    let json = tokenizer(read("tokenizer.json"));
    std::fs::write(copy.path().join("tokenizer.json"), json).unwrap();
    TextModel::open(copy.path(), &LoadOptions { device: Device::cpu() }).unwrap()
}

#[test]
fn vocabularies_may_be_padded_to_different_sizes() {
    let target = on_cpu("full");
    // Of tokens that the shorter one has no row for.
    let unknown: Vec<u32> = (0..20).map(|i| 240 + i).collect();
    for rows in [250, 260, 290] {
        let draft = copied("near", rows, |text| text);
        assert_eq!(draft.model.info().vocab_size, rows);
        for (given, options, agrees) in [
            (prompt(7, 13), greedy(30), true),
            (prompt(7, 13), sampled(30, 8), false),
            (unknown.clone(), GenerateOptions { repetition_penalty: 1.4, ..greedy(30) }, false),
        ] {
            let plain = tokens(&target, &given, &options);
            let request = target.request(given).options(&options).draft(&draft);
            let mut generation = request.start().unwrap();
            let found: Vec<u32> = generation.by_ref().map(|piece| piece.unwrap().token).collect();
            assert_eq!(found, plain, "{rows} rows");
            assert!(!agrees || generation.statistics().draft_tokens > 0, "{rows} rows");
        }
        // The other way round, too.
        let given: Vec<u32> = prompt(7, 13).into_iter().map(|token| token % 250).collect();
        let options = greedy(20);
        let plain = tokens(&draft, &given, &options);
        let request = draft.request(given).options(&options).draft(&target);
        let found: Vec<u32> = request.start().unwrap().map(|piece| piece.unwrap().token).collect();
        assert_eq!(found, plain, "{rows} rows of the model");
    }
}

#[test]
fn a_draft_model_must_have_the_same_tokenizer() {
    let swapped = |text: String| {
        let mut json: Value = serde_json::from_str(&text).unwrap();
        let vocabulary = &mut json["model"]["vocab"];
        let (a, b) = (vocabulary["a"].clone(), vocabulary["b"].clone());
        (vocabulary["a"], vocabulary["b"]) = (b, a);
        json.to_string()
    };
    let (near, other) = (on_cpu("near"), copied("full", 260, swapped));
    let error = near.request(prompt(1, 4)).draft(&other).start().err().unwrap().to_string();
    let expected =
        "draft model: expected the model's tokenizer, in which token 68 is \"a\", got \"b\"";
    assert_eq!(error, expected);
}

fn assert_alone_as_together(
    model: &TextModel,
    prompts: &[Vec<u32>],
    options: &GenerateOptions,
    what: &str,
) {
    let mut together: Vec<Vec<Piece>> = vec![Vec::new(); prompts.len()];
    for piece in model.generate_batch(prompts, options).unwrap() {
        let (index, piece) = piece.unwrap();
        together[index].push(piece);
    }
    for (index, given) in prompts.iter().enumerate() {
        let seed = options.seed.map(|seed| seed + index as u64);
        let alone = pieces(model, given, &GenerateOptions { seed, ..options.clone() });
        assert_eq!(together[index], alone, "{what}, prompt {index}");
    }
}

#[test]
fn several_prompts_at_once_give_what_each_gives_alone() {
    for device in devices() {
        for name in MODELS {
            if device.is_gpu() && name != "sliding" {
                continue;
            }
            let model = open(name, &device);
            let prompts: Vec<Vec<u32>> =
                [3, 17, 9, 30].iter().enumerate().map(|(i, &n)| prompt(i, n)).collect();
            // An end that one of them reaches early.
            let end = tokens(&model, &prompts[1], &greedy(6))[4];
            let ending = GenerateOptions { stop_tokens: vec![end], ..greedy(20) };
            for options in [ending, sampled(12, 5)] {
                let what = format!("{name} on {device}");
                assert_alone_as_together(&model, &prompts, &options, &what);
                if device.is_gpu() {
                    break;
                }
            }
        }
    }
}

#[test]
fn perplexity_is_that_of_mlx_lm() {
    use wootz_lm::generate::{Convention, PerplexityOptions};
    for case in lines("perplexity.jsonl") {
        let model = on_cpu(case["model"].as_str().unwrap());
        let tokens = numbers(&case["tokens"]);
        let window = case["window"].as_u64().unwrap() as usize;
        let mut options = PerplexityOptions { window, ..PerplexityOptions::default() };
        let found = model.perplexity_of(&tokens, &options, &mut |_, _| {}).unwrap();
        let (expected, error) = (&case["perplexity"], &case["standard_error"]);
        let near = |a: f64, b: &Value| (a / b.as_f64().unwrap() - 1.0).abs() < 1e-4;
        assert!(near(found.perplexity, expected), "{} {expected}", found.perplexity);
        assert!(near(found.standard_error, error), "{} {error}", found.standard_error);
        assert_eq!((found.tokens, found.windows), (33, 3));
        // llama.cpp counts what comes after the middle of a window.
        let wide = PerplexityOptions { window: 257, ..options.clone() };
        let error = model.perplexity_of(&[5; 600], &wide, &mut |_, _| {}).unwrap_err().to_string();
        assert_eq!(error, "window: expected 2 to 256, got 257");
        let wide = PerplexityOptions { context_length: Some(257), ..wide };
        assert_eq!(model.perplexity_of(&[5; 600], &wide, &mut |_, _| {}).unwrap().windows, 2);
        options = PerplexityOptions {
            window: 20,
            convention: Convention::LlamaCpp,
            bos: false,
            ..options
        };
        let found = model.perplexity_of(&tokens, &options, &mut |_, _| {}).unwrap();
        assert_eq!((found.tokens, found.windows), (18, 2));
        options.window = 21;
        assert!(model.perplexity_of(&tokens, &options, &mut |_, _| {}).is_err());
    }
}
