//! Long prompts of the tiny checkpoints: where it matters how a prompt is cut into chunks, it is cut as mlx-lm cuts it.

use std::path::PathBuf;
use std::sync::Mutex;

use serde_json::Value;
use wootz::{Array, Device, cross_entropy};
use wootz_lm::cache::CacheOptions;
use wootz_lm::checkpoint::Checkpoint;
use wootz_lm::generate::{
    GenerateOptions, PerplexityOptions, Piece, PromptCache, Session, TextModel,
};
use wootz_lm::models::{LoadOptions, load};
use wootz_lm::tokenizer::Tokenizer;

use super::{assert_alone_as_together, greedy, numbers, pieces, prompt, sampled};

fn goldens() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../goldens")
}

/// A tiny checkpoint, with a tokenizer that knows at least as many tokens.
fn open(name: &str) -> TextModel {
    let checkpoint = Checkpoint::open(goldens().join("tiny-models").join(name)).unwrap();
    let model = load(&checkpoint, &LoadOptions { device: Device::cpu() }).unwrap();
    TextModel::new(model, Tokenizer::open(goldens().join("tokenizers/bytes")).unwrap())
}

const DYNAMIC: &str = "small-mistral";

/// Tokens that the model with dynamic rotation has.
fn few(length: usize) -> Vec<u32> {
    prompt(1, length).into_iter().map(|token| token % 64).collect()
}

fn told(pieces: &[Piece]) -> (Vec<u32>, Vec<f32>) {
    pieces.iter().map(|piece| (piece.token, piece.logprob.unwrap())).unzip()
}

#[test]
fn a_prompt_is_read_as_mlx_lm_reads_it_where_that_decides() {
    let text = std::fs::read_to_string(goldens().join("tiny-models/generations.jsonl")).unwrap();
    let mut others = 0;
    for line in text.lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let (name, given) = (case["model"].as_str().unwrap(), numbers(&case["prompt"]));
        let expected = numbers(&case["tokens"]);
        let options: GenerateOptions = serde_json::from_value(case["options"].clone()).unwrap();
        let options = GenerateOptions {
            max_tokens: expected.len(),
            ignore_eos: true,
            logprobs: 1,
            // mlx-lm knows no limit.
            context_length: (name != DYNAMIC).then_some(4096),
            ..options
        };
        let model = open(name);
        let what = format!("{name}, {} tokens, {}", given.len(), case["options"]);
        let (tokens, found) = told(&pieces(&model, &given, &options));
        assert_eq!(tokens, expected, "{what}");
        let logprobs: Vec<f32> = serde_json::from_value(case["logprobs"].clone()).unwrap();
        let worst = |found: &[f32]| {
            found.iter().zip(&logprobs).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
        };
        assert!(worst(&found) < 2e-3, "{what}: {found:?}, expected {logprobs:?}");
        let options = GenerateOptions { prefill_step: Some(256), ..options };
        let (tokens, found) = told(&pieces(&model, &given, &options));
        others += usize::from(tokens != expected || worst(&found) > 2e-3);
    }
    // The usual chunks say something else of most.
    assert!(others >= 5, "{others}");
}

#[test]
fn texts_may_be_of_any_length_where_rotation_follows_it() {
    let model = open(DYNAMIC);
    let info = model.model.info();
    assert_eq!((info.context_length, info.dynamic_from), (None, Some(16)));
    let given = few(40);
    let options = GenerateOptions { logprobs: 1, ..greedy(1) };
    let (tokens, found) = told(&pieces(&model, &given, &options));
    // All but the last token at once, and then that.
    let mut session = Session::new(model.model.clone(), &CacheOptions::default()).unwrap();
    session.logits_of(&given[..39]).unwrap();
    let scores = session.decode(&Array::from_slice(&given[39..], &[1, 1]).unwrap()).unwrap();
    let loss = |scores: &Array, tokens: &[u32]| {
        let tokens = Array::from_slice(tokens, &[tokens.len()]).unwrap();
        cross_entropy(scores, &tokens).unwrap().to_vec::<f32>().unwrap()
    };
    assert!((loss(&scores, &tokens)[0] + found[0]).abs() < 1e-5);
    // A window of a perplexity is read at once.
    let options = PerplexityOptions { window: 300, ..PerplexityOptions::default() };
    let window = few(300);
    let measured = model.perplexity_of(&window, &options, &mut |_, _| {}).unwrap();
    let mut session = Session::new(model.model.clone(), &CacheOptions::default()).unwrap();
    let losses = loss(&session.logits_of(&window[..299]).unwrap(), &window[1..]);
    let mean = losses.iter().sum::<f32>() / 299.0;
    assert!((measured.perplexity.ln() as f32 - mean).abs() < 1e-5, "{mean}");
}

#[test]
fn several_prompts_at_once_give_what_each_gives_alone_where_rotation_follows_the_length() {
    let (model, prompts) = (open(DYNAMIC), [few(30), few(3), few(14)]);
    assert_alone_as_together(&model, &prompts, &sampled(12, 5), DYNAMIC);
}

/// Some are quantized at once, some on the way, some never: each when it would be without the others.
#[test]
fn several_prompts_at_once_are_quantized_as_each_is_alone() {
    for name in ["llama-4bit-f32", "gemma3-4bit-f32", "qwen3_next-4bit-f32"] {
        let model = open(name);
        let lengths = [3, 40, 20, 4, 17, 41, 20];
        let prompts: Vec<Vec<u32>> =
            (lengths.iter().enumerate()).map(|(i, &length)| prompt(i, length)).collect();
        for start in [0, 21, 40, 5000] {
            let options = GenerateOptions {
                kv_bits: Some(4),
                kv_group_size: 32,
                quantized_kv_start: start,
                ..sampled(8, 3)
            };
            assert_alone_as_together(&model, &prompts, &options, &format!("{name}, from {start}"));
        }
    }
}

#[test]
fn a_draft_model_changes_nothing_where_rotation_follows_the_length() {
    let model = open(DYNAMIC);
    let (given, options) = (few(8), greedy(24));
    let plain: Vec<u32> =
        pieces(&model, &given, &options).iter().map(|piece| piece.token).collect();
    let request = model.request(given).options(&options).draft(&model);
    let mut generation = request.start().unwrap();
    let found: Vec<u32> = generation.by_ref().map(|piece| piece.unwrap().token).collect();
    assert_eq!(found, plain);
    // Up to 16 tokens it proposes.
    assert!(generation.statistics().draft_tokens > 0);
}

#[test]
fn a_draft_model_changes_nothing_whatever_memory_is_like() {
    let quantized = |bits, start| GenerateOptions {
        kv_bits: Some(bits),
        kv_group_size: 32,
        quantized_kv_start: start,
        ..greedy(40)
    };
    let ring = |size, options| GenerateOptions { max_kv_size: Some(size), ..options };
    let settings = [
        ("quantized to 8 bits", quantized(8, 0)),
        ("quantized to 6 bits", quantized(6, 0)),
        ("quantized to 4 bits", quantized(4, 0)),
        ("quantized from later on", quantized(4, 50)),
        ("a ring", ring(24, greedy(40))),
        ("a ring that fills", ring(50, greedy(40))),
        ("a ring that fills, drawn", ring(50, sampled(40, 3))),
        ("a ring that is quantized", ring(50, quantized(8, 0))),
    ];
    let target = open("llama-4bit-f32");
    for draft in [open("llama-4bit-f32"), open("qwen3-4bit-f32")] {
        for (what, options) in &settings {
            let kept = [(); 2].map(|()| Mutex::new(PromptCache::new(1 << 30)));
            let mut given = Vec::new();
            // What was kept of an answer is gone on from, with a draft model and without.
            for turn in 0..2 {
                given.extend(if turn == 0 { prompt(5, 30) } else { prompt(6, 7) });
                let request = || target.request(given.clone()).options(options);
                let plain = request().prompt_cache(&kept[0]).start().unwrap();
                let plain: Vec<Piece> = plain.map(|piece| piece.unwrap()).collect();
                let request = request().draft(&draft).prompt_cache(&kept[1]);
                let mut generation = request.start().unwrap();
                let found: Vec<Piece> = generation.by_ref().map(|piece| piece.unwrap()).collect();
                let of = |pieces: &[Piece]| pieces.iter().map(|p| p.token).collect::<Vec<_>>();
                assert_eq!(of(&found), of(&plain), "{what}, turn {turn}");
                let statistics = generation.statistics();
                assert_eq!(statistics.cached_tokens > 0, turn == 1, "{what}");
                let itself = draft.model.info().architecture == "llama";
                if itself && options.temperature == 0.0 && options.max_kv_size.is_none() {
                    let (proposed, all) = (statistics.draft_tokens, found.len());
                    assert!(proposed * 2 >= all, "{what}: {proposed} of {all}");
                }
                given.extend(of(&found));
            }
        }
    }
}
