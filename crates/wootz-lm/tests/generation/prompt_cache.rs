//! Caches that are kept between prompts: the same tokens as without, and less to compute.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Mutex;

use wootz::Array;
use wootz_lm::Error;
use wootz_lm::generate::{Conversation, GenerateOptions, PromptCache, TextModel};

use crate::{MODELS, on_cpu as open, prompt};

fn options() -> GenerateOptions {
    GenerateOptions {
        max_tokens: 12,
        ignore_eos: true,
        prefill_step: Some(16),
        ..GenerateOptions::default()
    }
}

/// The generated tokens, and how many of the prompt's were cached.
fn run(model: &TextModel, prompt: &[u32], kept: Option<&Mutex<PromptCache>>) -> (Vec<u32>, usize) {
    run_with(model, prompt, kept, &options())
}

fn run_with(
    model: &TextModel,
    prompt: &[u32],
    kept: Option<&Mutex<PromptCache>>,
    options: &GenerateOptions,
) -> (Vec<u32>, usize) {
    let mut request = model.request(prompt.to_vec()).options(options);
    if let Some(kept) = kept {
        request = request.prompt_cache(kept);
    }
    let mut generation = request.start().unwrap();
    let pieces: Vec<_> = generation.by_ref().map(|piece| piece.unwrap()).collect();
    let cached = generation.statistics().cached_tokens;
    (pieces.iter().map(|piece| piece.token).collect(), cached)
}

#[test]
fn a_prompt_goes_on_from_what_is_known_of_it() {
    for name in MODELS {
        let model = open(name);
        let kept = Mutex::new(PromptCache::new(1 << 30));
        let first = prompt(1, 50);
        let (answer, cached) = run(&model, &first, Some(&kept));
        assert_eq!((&answer, cached), (&run(&model, &first, None).0, 0), "{name}");
        // The prompt and its answer, and more: all but the last token of the answer is known.
        let longer = [first.clone(), answer.clone(), prompt(2, 5)].concat();
        let (found, cached) = run(&model, &longer, Some(&kept));
        assert_eq!((found, cached), (run(&model, &longer, None).0, 61), "{name}");
        // The same beginning: to the token, or to the end of a chunk where state cannot be cut.
        let other = [&first[..40], &prompt(3, 9)].concat();
        let (found, cached) = run(&model, &other, Some(&kept));
        let expected = if name == "full" { 40 } else { 32 };
        assert_eq!((found, cached), (run(&model, &other, None).0, expected), "{name}");
        // The whole prompt again: its last token is computed.
        let (found, cached) = run(&model, &first, Some(&kept));
        assert_eq!((&found, cached), (&answer, 49), "{name}");
        // Nothing in common.
        assert_eq!(run(&model, &prompt(4, 20), Some(&kept)).1, 0);
    }
}

#[test]
fn a_cache_goes_through_a_file() {
    let folder = tempfile::tempdir().unwrap();
    for name in MODELS {
        let model = open(name);
        let kept = Mutex::new(PromptCache::new(1 << 30));
        let first = prompt(5, 30);
        let (answer, _) = run(&model, &first, Some(&kept));
        let path = folder.path().join(format!("{name}.safetensors"));
        kept.lock().unwrap().save(&path, model.model.as_ref()).unwrap();
        let mut loaded = PromptCache::new(1 << 30);
        assert_eq!(loaded.load(&path, model.model.as_ref()).unwrap(), 41, "{name}");
        let longer = [first, answer, prompt(6, 4)].concat();
        let (found, cached) = run(&model, &longer, Some(&Mutex::new(loaded)));
        assert_eq!((found, cached), (run(&model, &longer, None).0, 41), "{name}");
    }
    let other = open("recurrent");
    let path = folder.path().join("full.safetensors");
    let wrong = PromptCache::new(0).load(path, other.model.as_ref());
    assert!(wrong.unwrap_err().to_string().contains("of another model"));
    let nowhere = folder.path().join("none");
    assert!(PromptCache::new(0).save(nowhere, other.model.as_ref()).is_err());
}

/// Caches that cannot be cut: a recurrent state, a sliding window, and full attention that goes around.
const UNCUT: [(&str, Option<usize>); 3] =
    [("recurrent", None), ("sliding", None), ("full", Some(24))];

#[test]
fn checkpoints_go_through_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cache.safetensors");
    for (name, max_kv_size) in UNCUT {
        let model = open(name);
        // In chunks, and at once.
        for (step, shared) in [(16, 32), (2048, 0)] {
            let options = GenerateOptions { max_kv_size, prefill_step: Some(step), ..options() };
            let alone = |prompt: &[u32]| run_with(&model, prompt, None, &options).0;
            let load = || {
                let mut loaded = PromptCache::new(1 << 30);
                assert_eq!(loaded.load(&path, model.model.as_ref()).unwrap(), 61, "{name}");
                Mutex::new(loaded)
            };
            let kept = Mutex::new(PromptCache::new(1 << 30));
            let first = prompt(8, 50);
            let (answer, cached) = run_with(&model, &first, Some(&kept), &options);
            assert_eq!((&answer, cached), (&alone(&first), 0), "{name}");
            kept.lock().unwrap().save(&path, model.model.as_ref()).unwrap();
            // The same prompt, twice: what a loaded cache left is written and read like any other.
            for _ in 0..2 {
                let kept = load();
                let (found, cached) = run_with(&model, &first, Some(&kept), &options);
                assert_eq!((&found, cached), (&answer, 49), "{name} in chunks of {step}");
                kept.lock().unwrap().save(&path, model.model.as_ref()).unwrap();
            }
            // Another, that begins alike.
            let other = [&first[..40], &prompt(9, 9)].concat();
            let (found, cached) = run_with(&model, &other, Some(&load()), &options);
            assert_eq!((found, cached), (alone(&other), shared), "{name} in chunks of {step}");
        }
    }
}

#[test]
fn a_file_whose_checkpoints_contradict_it_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cache.safetensors");
    for (name, max_kv_size) in UNCUT {
        let model = open(name);
        let kept = Mutex::new(PromptCache::new(1 << 30));
        let options = GenerateOptions { max_kv_size, ..options() };
        run_with(&model, &prompt(8, 50), Some(&kept), &options);
        kept.lock().unwrap().save(&path, model.model.as_ref()).unwrap();
        let arrays = wootz::io::load_safetensors(&path).unwrap();
        let texts = wootz::io::Safetensors::open(&path).unwrap().metadata().clone();
        assert_eq!(texts["wootz.marks"], "16;32;48;49");
        let error_with = |marks: Option<&str>, arrays: &BTreeMap<String, Array>| {
            let mut texts = texts.clone();
            match marks {
                Some(marks) => drop(texts.insert("wootz.marks".to_string(), marks.to_string())),
                None => drop(texts.remove("wootz.marks")),
            }
            let broken = folder.path().join("broken.safetensors");
            wootz::io::save_safetensors_with(&broken, arrays, &texts).unwrap();
            let loaded = PromptCache::new(1 << 30).load(&broken, model.model.as_ref());
            loaded.unwrap_err().to_string()
        };
        for (marks, said) in [
            (Some("16;32;48;62"), "mark 3 is at 62 of 61 tokens"),
            (Some("16;32;48;0"), "mark 3 is at 0 of 61 tokens"),
            (Some("16;32;48;49,49"), "mark 3 is at 49,49 of 61 tokens"),
            (Some("16;32;48;x"), "damaged lengths of marks"),
            (Some("16;32;48"), "mark.3."),
            (Some("16;32;48;49;50"), "mark.4."),
            (None, "mark.0."),
        ] {
            let error = error_with(marks, &arrays);
            assert!(error.contains(said), "{name}: {error}");
        }
        let mut fewer = arrays.clone();
        let first = arrays.keys().find(|key| key.starts_with("mark.1.")).unwrap();
        fewer.remove(first);
        let error = error_with(Some("16;32;48;49"), &fewer);
        assert!(error.contains("mark.1.") && error.contains("got nothing"), "{name}: {error}");
        if name == "full" {
            // Windows are full from there on, so that only the order says that it is wrong.
            let error = error_with(Some("16;48;32;49"), &arrays);
            assert!(error.contains("mark 2 is at 32"), "{error}");
            let error = error_with(Some("17;32;48;49"), &arrays);
            assert!(error.contains("layer mark.0.0: expected"), "{error}");
        }
    }
}

#[test]
fn a_file_of_other_weights_or_kept_otherwise_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let model = open("full");
    let kept = Mutex::new(PromptCache::new(1 << 30));
    let given = prompt(5, 30);
    let (answer, _) = run(&model, &given, Some(&kept));
    let path = folder.path().join("cache.safetensors");
    kept.lock().unwrap().save(&path, model.model.as_ref()).unwrap();

    // The same sizes, one number of the last norm another.
    let from = crate::folder().join("full");
    let other = folder.path().join("other");
    std::fs::create_dir(&other).unwrap();
    for entry in std::fs::read_dir(&from).unwrap() {
        let file = entry.unwrap().path();
        std::fs::copy(&file, other.join(file.file_name().unwrap())).unwrap();
    }
    let weights = other.join("model.safetensors");
    let mut arrays = wootz::io::load_safetensors(&weights).unwrap();
    arrays.values().for_each(|array| array.eval().unwrap());
    arrays.get_mut("model.norm.weight").unwrap().set(0, 3.0).unwrap();
    std::fs::remove_file(&weights).unwrap();
    wootz::io::save_safetensors(&weights, &arrays).unwrap();
    let load = wootz_lm::models::LoadOptions { device: wootz::Device::cpu() };
    let other = TextModel::open(&other, &load).unwrap();
    let error = PromptCache::new(1 << 30).load(&path, other.model.as_ref()).unwrap_err();
    assert!(error.to_string().contains("of another model"), "{error}");

    let mut loaded = PromptCache::new(1 << 30);
    loaded.load(&path, model.model.as_ref()).unwrap();
    let loaded = Mutex::new(loaded);
    let longer = [given, answer, prompt(6, 4)].concat();
    let settings = GenerateOptions { max_kv_size: Some(64), ..options() };
    let request = model.request(longer.clone()).options(&settings).prompt_cache(&loaded);
    let Err(error) = request.start() else { panic!("max_kv_size is ignored") };
    assert!(error.to_string().starts_with("max_kv_size"), "{error}");
    // It is still there for whoever can use it.
    let (found, cached) = run(&model, &longer, Some(&loaded));
    assert_eq!((found, cached), (run(&model, &longer, None).0, 41));

    // A layer whose arrays are missing.
    let mut arrays = wootz::io::load_safetensors(&path).unwrap();
    let texts = wootz::io::Safetensors::open(&path).unwrap().metadata().clone();
    arrays.remove("1.0").unwrap();
    let broken = folder.path().join("broken.safetensors");
    wootz::io::save_safetensors_with(&broken, &arrays, &texts).unwrap();
    let error = PromptCache::new(1 << 30).load(&broken, model.model.as_ref()).unwrap_err();
    assert!(error.to_string().contains("layer 1"), "{error}");
}

#[test]
fn the_least_recently_used_cache_goes_when_bytes_run_out() {
    let model = open("full");
    let kept = Mutex::new(PromptCache::new(1 << 30));
    run(&model, &prompt(1, 20), Some(&kept));
    let one = kept.lock().unwrap().bytes();
    assert!(one > 0);
    let kept = Mutex::new(PromptCache::new(2 * one + one / 2));
    for number in [1, 2] {
        run(&model, &prompt(number, 20), Some(&kept));
    }
    // The first is used again, so the second goes for the third.
    assert_eq!(run(&model, &prompt(1, 20), Some(&kept)).1, 19);
    run(&model, &prompt(3, 20), Some(&kept));
    assert!(kept.lock().unwrap().bytes() <= 2 * one + one / 2);
    assert_eq!(run(&model, &prompt(1, 20), Some(&kept)).1, 19);
    assert_eq!(run(&model, &prompt(2, 20), Some(&kept)).1, 0);
    let nothing = Mutex::new(PromptCache::new(0));
    run(&model, &prompt(1, 20), Some(&nothing));
    assert!(nothing.lock().unwrap().is_empty());
}

#[test]
fn reading_a_prompt_can_be_interrupted_and_goes_on_later() {
    let model = open("recurrent");
    let kept = Mutex::new(PromptCache::new(1 << 30));
    let given = prompt(7, 60);
    let request = model.request(given.clone()).options(&options()).prompt_cache(&kept);
    let mut heard = Vec::new();
    let error = request.start_with(&mut |done, total| {
        heard.push((done, total));
        if done >= 32 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    let Err(Error::Interrupted { done: 32, total: 60 }) = error else {
        panic!("not interrupted");
    };
    assert_eq!(heard, [(0, 60), (16, 60), (32, 60)]);
    let (found, cached) = run(&model, &given, Some(&kept));
    assert_eq!((found, cached), (run(&model, &given, None).0, 32));
}

#[test]
fn a_draft_model_that_reads_the_prompt_can_be_interrupted_too() {
    let (model, draft) = (open("full"), open("near"));
    let kept = Mutex::new(PromptCache::new(1 << 30));
    let (given, options) = (prompt(7, 60), options());
    let request = model.request(given.clone()).options(&options).draft(&draft).prompt_cache(&kept);
    let mut ended = 0;
    let error = request.start_with(&mut |done, total| {
        ended += usize::from(done == total);
        if ended == 1 && done == 32 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    let Err(Error::Interrupted { done: 32, total: 60 }) = error else {
        panic!("not interrupted");
    };
    // What the model itself has read stays.
    let (found, cached) = run(&model, &given, Some(&kept));
    assert_eq!((found, cached), (run(&model, &given, None).0, 59));
}

#[test]
fn a_conversation_computes_only_its_last_message() {
    for name in MODELS {
        let model = open(name);
        let settings = GenerateOptions { max_tokens: 10, ..options() };
        let mut conversation = Conversation::new(&model, &settings);
        conversation.system("short");
        let mut reply = conversation.send("Hello there!").unwrap();
        let first: String = reply.by_ref().map(|piece| piece.unwrap().text).collect();
        drop(reply);
        let mut reply = conversation.send("And then?").unwrap();
        let second: String = reply.by_ref().map(|piece| piece.unwrap().text).collect();
        let cached = reply.statistics().cached_tokens;
        drop(reply);
        assert!(cached >= 16, "{name}: {cached}");
        let said: Vec<(&str, &str)> =
            conversation.messages().iter().map(|m| (m.role.as_str(), m.content.as_str())).collect();
        let expected = [
            ("system", "short"),
            ("user", "Hello there!"),
            ("assistant", first.as_str()),
            ("user", "And then?"),
            ("assistant", second.as_str()),
        ];
        assert_eq!(said, expected);
        // As if the history had been given at once.
        let mut fresh = Conversation::new(&model, &settings);
        fresh.set_messages(conversation.messages()[..3].to_vec());
        let again: String =
            fresh.send("And then?").unwrap().map(|piece| piece.unwrap().text).collect();
        assert_eq!(again, second, "{name}");
        conversation.reset();
        assert_eq!(conversation.messages().len(), 1);
        // Stopped in the midst: what was said stays.
        let mut reply = conversation.send("Go on").unwrap();
        let begun: String = reply.by_ref().take(4).map(|piece| piece.unwrap().text).collect();
        drop(reply);
        assert_eq!(conversation.messages()[2].content, begun);
    }
}
