//! Sessions and caches on a tiny checkpoint: what is recorded, and every kind of cache
//! beside mlx-lm's or beside a plain one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::json;
use wootz::io::Safetensors;
use wootz::testing::worst;
use wootz::{Array, DType, Device, concatenate};
use wootz_lm::cache::{Cache, CacheOptions};
use wootz_lm::checkpoint::Checkpoint;
use wootz_lm::generate::{Kept, PromptCache, Session};
use wootz_lm::models::{LanguageModel, LoadOptions, load};

fn goldens() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../goldens/tiny-models")
}

fn model(name: &str) -> Arc<dyn LanguageModel> {
    let checkpoint = Checkpoint::open(goldens().join(name)).unwrap();
    load(&checkpoint, &LoadOptions { device: Device::cpu() }).unwrap()
}

fn session(name: &str, options: &CacheOptions) -> Session {
    Session::new(model(name), options).unwrap()
}

/// The prompt and the tokens that follow it.
fn tokens(name: &str) -> (Vec<u32>, Vec<u32>) {
    let file = Safetensors::open(goldens().join(name).join("expected.safetensors")).unwrap();
    let read = |name: &str| -> Vec<u32> {
        let numbers = file.tensor_on(name, &Device::cpu()).unwrap().to_vec::<i32>().unwrap();
        numbers.into_iter().map(|token| token as u32).collect()
    };
    (read("prompt"), read("greedy_tokens"))
}

fn token(id: u32) -> Array {
    Array::from_slice(&[id], &[1, 1]).unwrap()
}

/// The scores after the prompt and after each token but the last.
fn scores(session: &mut Session, prompt: &[u32], tokens: &[u32], chunk: usize) -> Array {
    let mut rows = vec![session.prefill(prompt, chunk, &mut |_, _| ()).unwrap()];
    for &id in &tokens[..tokens.len() - 1] {
        rows.push(session.decode(&token(id)).unwrap());
    }
    concatenate(&rows, 0).unwrap()
}

fn distance(a: &Array, b: &Array) -> f32 {
    let (a, b) = (a.to_vec::<f32>().unwrap(), b.to_vec::<f32>().unwrap());
    assert_eq!(a.len(), b.len());
    let largest = b.iter().fold(0.0f32, |most, x| most.max(x.abs()));
    worst(a.iter().zip(&b).map(|(a, b)| (a - b).abs() as f64)) as f32 / largest
}

const LLAMA: &str = "llama-4bit-f32";
const HYBRID: &str = "qwen3_next-4bit-f32";

#[test]
fn ten_thousand_steps_are_recorded_only_when_capacity_grows() {
    // Kernels are too small to be shared between threads.
    wootz::set_threads(1);
    let mut session = session(LLAMA, &CacheOptions::default());
    session.prefill(&[5], 1, &mut |_, _| ()).unwrap();
    let id = token(7);
    session.decode(&id).unwrap();
    let first = session.plan().unwrap();
    for _ in 1..10_000 {
        session.decode(&id).unwrap();
    }
    let stats = session.stats();
    assert_eq!((stats.traces, stats.replays), (10_001u64.div_ceil(256), 10_000));
    assert_eq!(session.cache().length(), 10_001);
    // The last step is made of the same kernels in the same memory as the first; only attention has more keys.
    let last = session.plan().unwrap();
    assert_eq!((last.nodes, last.kernels), (first.nodes, first.kernels));
    let caches = session.cache().bytes();
    assert!(last.bytes - caches <= first.bytes, "{} bytes, {} at first", last.bytes, first.bytes);
}

#[test]
fn a_full_ring_is_recorded_once_and_its_steps_cost_the_same() {
    wootz::set_threads(1);
    let quantized = CacheOptions { kv_bits: Some(4), kv_group_size: 32, ..CacheOptions::default() };
    for options in [CacheOptions::default(), quantized] {
        let options = CacheOptions { max_kv_size: Some(64), ..options };
        let mut session = session(LLAMA, &options);
        session.prefill(&[5; 70], 70, &mut |_, _| ()).unwrap();
        let id = token(7);
        session.decode(&id).unwrap();
        let first = (session.plan().unwrap(), session.cache().bytes());
        for _ in 1..2_000 {
            session.decode(&id).unwrap();
        }
        assert_eq!(session.stats().traces, 1);
        assert_eq!((session.plan().unwrap(), session.cache().bytes()), first);
    }
}

#[test]
fn prompts_give_the_same_scores_in_chunks_of_any_length() {
    let (prompt, _) = tokens(LLAMA);
    for name in [LLAMA, HYBRID, "gemma3-4bit-f32"] {
        let whole = session(name, &CacheOptions::default()).logits_of(&prompt).unwrap();
        let last = whole.index(-1).unwrap();
        for chunk in [1, 5, 16, 23, 100] {
            let mut session = session(name, &CacheOptions::default());
            let mut heard = Vec::new();
            let got = session.prefill(&prompt, chunk, &mut |done, all| heard.push((done, all)));
            assert!(distance(&got.unwrap(), &last) < 2e-5, "{name} in chunks of {chunk}");
            assert_eq!(heard.first(), Some(&(0, prompt.len())));
            assert_eq!(heard.last(), Some(&(prompt.len(), prompt.len())));
        }
    }
}

#[test]
fn rotating_and_quantized_caches_give_what_mlx_lm_gave() {
    let file = Safetensors::open(goldens().join("caches.safetensors")).unwrap();
    let (prompt, following) = tokens(LLAMA);
    let quantized =
        |bits| CacheOptions { kv_bits: Some(bits), kv_group_size: 32, ..CacheOptions::default() };
    let rotating = CacheOptions { max_kv_size: Some(20), keep: 4, ..CacheOptions::default() };
    let cases = [
        ("rotating_20_keep_4", rotating, 1e-4),
        ("quantized_8", quantized(8), 1e-3),
        ("quantized_6", quantized(6), 1e-3),
        ("quantized_4", quantized(4), 1e-3),
    ];
    for (name, options, tolerance) in cases {
        let expected = file.tensor_on(name, &Device::cpu()).unwrap();
        let mut session = session(LLAMA, &options);
        session.prefill(&prompt[..9], 9, &mut |_, _| ()).unwrap();
        let got = scores(&mut session, &prompt[9..], &following, 100);
        let error = distance(&got, &expected);
        assert!(error < tolerance, "{name}: {error:.1e}");
    }
}

#[test]
fn a_rotating_cache_may_be_quantized_and_begin_late() {
    let (prompt, following) = tokens(LLAMA);
    let rotating = CacheOptions { max_kv_size: Some(20), keep: 4, ..CacheOptions::default() };
    let exact = scores(&mut session(LLAMA, &rotating), &prompt, &following, 7);
    let bits = CacheOptions { kv_bits: Some(8), kv_group_size: 32, ..rotating };
    let late = CacheOptions { quantized_kv_start: prompt.len() + 5, ..bits.clone() };
    let coarse = scores(&mut session(LLAMA, &bits), &prompt, &following, 7);
    let partly = scores(&mut session(LLAMA, &late), &prompt, &following, 7);
    let error = distance(&coarse, &exact);
    assert!((1e-6..1e-1).contains(&error), "{error:.1e}");
    let first = |x: &Array| x.index(..5).unwrap();
    assert_eq!(distance(&first(&partly), &first(&exact)), 0.0);
    let error = distance(&partly, &exact);
    assert!((1e-6..1e-1).contains(&error), "{error:.1e}");
}

#[test]
fn texts_side_by_side_are_each_as_alone() {
    for name in [LLAMA, HYBRID, "gemma3-4bit-f32"] {
        let (prompt, following) = tokens(name);
        let prompts = [&prompt[..3], &prompt[..], &prompt[5..17]];
        let mut caches = Vec::new();
        for text in prompts {
            let mut session = session(name, &CacheOptions::default());
            session.prefill(text, 100, &mut |_, _| ()).unwrap();
            caches.push(session.cache().clone());
        }
        let mut together = session(name, &CacheOptions::default());
        together.set_cache(Cache::stack(&caches).unwrap()).unwrap();
        let mut alone: Vec<Session> =
            caches.iter().map(|_| session(name, &CacheOptions::default())).collect();
        for (session, cache) in alone.iter_mut().zip(caches) {
            session.set_cache(cache).unwrap();
        }
        for &id in &following {
            let ids = Array::from_slice(&[id; 3], &[3, 1]).unwrap();
            let got = together.decode(&ids).unwrap();
            let rows: Vec<Array> =
                alone.iter_mut().map(|session| session.decode(&token(id)).unwrap()).collect();
            let error = distance(&got, &concatenate(&rows, 0).unwrap());
            assert!(error < 2e-5, "{name}: {error:.1e}");
        }
        let chosen = together.cache().select(&[2, 0]).unwrap();
        assert_eq!(chosen.lengths(), [12 + following.len(), 3 + following.len()]);
    }
}

#[test]
fn a_cache_that_was_saved_goes_on_as_if_it_had_not_been() {
    let folder = tempfile::tempdir().unwrap();
    let quantized = CacheOptions { kv_bits: Some(8), kv_group_size: 32, ..CacheOptions::default() };
    let rotating = CacheOptions { max_kv_size: Some(20), ..CacheOptions::default() };
    let plain = CacheOptions::default();
    for (name, options) in
        [(LLAMA, &plain), (LLAMA, &quantized), (LLAMA, &rotating), (HYBRID, &plain)]
    {
        let (prompt, following) = tokens(name);
        let mut session = session(name, options);
        session.prefill(&prompt, 100, &mut |_, _| ()).unwrap();
        let file = folder.path().join("cache.safetensors");
        let texts = BTreeMap::from([("tokens".to_string(), "24".to_string())]);
        session.cache().save(&file, &texts).unwrap();
        let kinds = session.model().layers();
        let (cache, read) = Cache::load(&file, &kinds, &Device::cpu()).unwrap();
        assert_eq!(read.get("tokens").map(String::as_str), Some("24"));
        let mut again = Session::new(session.model().clone(), options).unwrap();
        again.set_cache(cache).unwrap();
        for &id in &following {
            let (a, b) = (session.decode(&token(id)).unwrap(), again.decode(&token(id)).unwrap());
            assert_eq!(distance(&a, &b), 0.0, "{name}");
        }
        assert!(Cache::load(&file, &kinds[1..], &Device::cpu()).is_err());
    }
}

#[test]
fn checkpoints_of_a_quantized_ring_go_through_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("cache.safetensors");
    let (prompt, following) = tokens(LLAMA);
    let (early, late) = (8, prompt.len() - 2);
    // The first checkpoint is of before keys are quantized.
    let options = CacheOptions {
        max_kv_size: Some(12),
        kv_bits: Some(8),
        kv_group_size: 32,
        quantized_kv_start: early + 1,
        ..CacheOptions::default()
    };
    let mut session = session(LLAMA, &options);
    let mut checkpoints = Vec::new();
    let mut scores = Vec::new();
    for part in [&prompt[..early], &prompt[early..late], &prompt[late..]] {
        checkpoints.push(session.cache().mark(usize::MAX));
        scores.push(session.prefill(part, 100, &mut |_, _| ()).unwrap());
    }
    let kept = Kept {
        tokens: prompt.clone(),
        cache: session.cache().clone(),
        checkpoints: checkpoints.split_off(1),
    };
    let mut cache = PromptCache::new(1 << 30);
    cache.insert(kept).unwrap();
    cache.save(&file, session.model().as_ref()).unwrap();
    for (length, number) in [(early, 1), (late, 2)] {
        let mut loaded = PromptCache::new(1 << 30);
        loaded.load(&file, session.model().as_ref()).unwrap();
        let other = [&prompt[..length], &[prompt[length] + 1]].concat();
        let found = loaded.take(&other).unwrap().unwrap();
        assert_eq!(found.tokens, prompt[..length]);
        session.set_cache(found.cache).unwrap();
        let end = if number == 1 { late } else { prompt.len() };
        let again = session.prefill(&prompt[length..end], 100, &mut |_, _| ()).unwrap();
        assert_eq!(distance(&again, &scores[number]), 0.0, "from {length}");
    }
    // A mark of only a few tokens later is not one to go back to at any time.
    let short = Session::new(session.model().clone(), &options).unwrap().cache().mark(5);
    let (tokens, cache) = (vec![following[0]; prompt.len()], session.cache().clone());
    let mut kept = PromptCache::new(1 << 30);
    kept.insert(Kept { tokens, cache, checkpoints: vec![short] }).unwrap();
    assert!(kept.save(&file, session.model().as_ref()).is_err());
}

#[test]
fn snapshots_stay_whole_and_tokens_can_be_forgotten() {
    let (prompt, following) = tokens(LLAMA);
    for name in [LLAMA, HYBRID] {
        let mut session = session(name, &CacheOptions::default());
        session.prefill(&prompt, 100, &mut |_, _| ()).unwrap();
        let snapshot = session.cache().clone();
        let first = session.decode(&token(following[0])).unwrap();
        session.decode(&token(3)).unwrap();
        session.set_cache(snapshot).unwrap();
        let again = session.decode(&token(following[0])).unwrap();
        assert_eq!(distance(&first, &again), 0.0, "{name}");
        assert_eq!(session.cache().can_trim(1), name == LLAMA);
        assert_eq!(session.trim(1).is_ok(), name == LLAMA);
    }
    let mut session = session(LLAMA, &CacheOptions::default());
    session.prefill(&prompt, 100, &mut |_, _| ()).unwrap();
    session.trim(5).unwrap();
    let again = session.prefill(&prompt[prompt.len() - 5..], 100, &mut |_, _| ()).unwrap();
    let whole = self::session(LLAMA, &CacheOptions::default()).logits_of(&prompt).unwrap();
    assert!(distance(&again, &whole.index(-1).unwrap()) < 2e-5);
    assert!(session.trim(1000).is_err());
}

#[test]
fn what_cannot_be_read_is_refused() {
    let mut session = session(LLAMA, &CacheOptions::default());
    for wrong in
        [session.prefill(&[], 5, &mut |_, _| ()), session.prefill(&[384], 5, &mut |_, _| ())]
    {
        assert!(wrong.unwrap_err().to_string().contains("tokens"));
    }
    assert!(session.decode(&Array::zeros(&[2, 1], DType::U32).unwrap()).is_err());
    let model = model(LLAMA);
    let odd = CacheOptions { kv_bits: Some(7), ..CacheOptions::default() };
    assert!(Session::new(model.clone(), &odd).is_err());
    let wide = CacheOptions { kv_bits: Some(8), kv_group_size: 64, ..CacheOptions::default() };
    let error = Session::new(model, &wide).err().unwrap().to_string();
    assert!(error.contains("kv_group_size"), "{error}");
}

#[test]
fn tensors_that_do_not_fit_are_listed() {
    let folder = tempfile::tempdir().unwrap();
    let source = goldens().join(LLAMA);
    std::fs::copy(source.join("config.json"), folder.path().join("config.json")).unwrap();
    let mut arrays = wootz::io::load_safetensors(&source.join("model.safetensors")).unwrap();
    arrays.remove("model.norm.weight");
    arrays.insert("extra.weight".to_string(), Array::zeros(&[3], DType::F32).unwrap());
    let narrow = Array::zeros(&[5], DType::F32).unwrap();
    arrays.insert("model.layers.0.input_layernorm.weight".to_string(), narrow);
    wootz::io::save_safetensors(&folder.path().join("model.safetensors"), &arrays).unwrap();
    let checkpoint = Checkpoint::open(folder.path()).unwrap();
    let error = load(&checkpoint, &LoadOptions::default()).err().unwrap().to_string();
    for part in ["missing: model.norm.weight", "unexpected: extra.weight", "[128], got [5]"] {
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn a_configuration_that_contradicts_a_layers_weights_is_an_error() {
    let path = "model.layers.0.mlp.down_proj";
    for (scheme, said) in [
        (json!({ "group_size": 64, "bits": 8 }), "8 bits in groups of 64 has, got [128, 24]"),
        (json!({ "group_size": 32, "bits": 4 }), "scales"),
        (
            json!({ "group_size": 32, "bits": 4, "mode": "mxfp4" }),
            "biases: expected none for mxfp4",
        ),
    ] {
        let error = error_of(LLAMA, |config| config["quantization"][path] = scheme.clone());
        assert!(error.contains(path) && error.contains(said), "{error}");
    }
}

#[test]
fn a_scale_of_a_whole_matrix_is_refused_by_name() {
    let name = "model.layers.0.mlp.down_proj.global_scale";
    let insert = |arrays: &mut BTreeMap<String, Array>| {
        arrays.insert(name.to_string(), Array::zeros(&[1], DType::F32).unwrap());
    };
    let error = load_changed(LLAMA, |_| (), insert).err().unwrap().to_string();
    assert!(error.contains(&format!("wrong: {name}: expected none")), "{error}");
    assert!(!error.contains("unexpected"), "{error}");
}

/// As in mlx-lm: what is said of all layers stands for those that have no arrays yet.
#[test]
fn layers_that_no_configuration_names_are_as_their_arrays_are() {
    let wrong = json!({ "group_size": 32, "bits": 8 });
    let changed = load_changed(LLAMA, |config| config["quantization"] = wrong.clone(), |_| ());
    let (prompt, following) = tokens(LLAMA);
    let all = [model(LLAMA), changed.unwrap()].map(|model| {
        let mut session = Session::new(model, &CacheOptions::default()).unwrap();
        scores(&mut session, &prompt, &following, 7).to_vec::<f32>().unwrap()
    });
    assert_eq!(all[0], all[1]);
}

/// The error of a copy of the checkpoint whose configuration was changed.
fn error_of(name: &str, change: impl Fn(&mut serde_json::Value)) -> String {
    match load_changed(name, change, |_| ()) {
        Ok(_) => panic!("no error"),
        Err(error) => error.to_string(),
    }
}

/// A copy of a checkpoint, with another configuration and other arrays.
fn load_changed(
    name: &str,
    change: impl Fn(&mut serde_json::Value),
    change_arrays: impl Fn(&mut BTreeMap<String, Array>),
) -> wootz_lm::Result<Arc<dyn LanguageModel>> {
    let (folder, source) = (tempfile::tempdir().unwrap(), goldens().join(name));
    let config = std::fs::read_to_string(source.join("config.json")).unwrap();
    let mut config = serde_json::from_str(&config).unwrap();
    change(&mut config);
    std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    let mut arrays = wootz::io::load_safetensors(&source.join("model.safetensors")).unwrap();
    change_arrays(&mut arrays);
    wootz::io::save_safetensors(&folder.path().join("model.safetensors"), &arrays).unwrap();
    load(&Checkpoint::open(folder.path()).unwrap(), &LoadOptions { device: Device::cpu() })
}

#[test]
fn sizes_that_no_model_has_are_errors_at_once() {
    let gemma = "gemma3-4bit-f32";
    let error = error_of(gemma, |config| config["text_config"]["sliding_window"] = 0.into());
    assert!(error.starts_with("sliding_window: expected more than 0"), "{error}");
    for name in [LLAMA, HYBRID] {
        let error = error_of(name, |config| config["num_hidden_layers"] = (1u64 << 60).into());
        assert!(error.starts_with("num_hidden_layers"), "{error}");
    }
    let error = error_of(LLAMA, |config| config["quantize_activations"] = true.into());
    assert!(error.starts_with("quantize_activations"), "{error}");
}

#[test]
fn a_layer_that_is_said_to_be_quantized_must_have_scales() {
    let path = "model.layers.0.mlp.down_proj";
    let scheme = json!({ "group_size": 64, "bits": 4 });
    let loaded = load_changed(
        LLAMA,
        |config| config["quantization"][path] = scheme.clone(),
        |arrays| {
            arrays.insert(format!("{path}.weight"), Array::zeros(&[128, 192], DType::F32).unwrap());
            arrays.remove(&format!("{path}.scales"));
            arrays.remove(&format!("{path}.biases"));
        },
    );
    let error = loaded.err().unwrap().to_string();
    assert!(error.contains(path) && error.contains("no scales"), "{error}");
}

#[test]
fn norms_in_single_precision_make_everything_behind_them_so() {
    let wide = |arrays: &mut BTreeMap<String, Array>| {
        for (name, array) in arrays.iter_mut().filter(|(name, _)| name.contains("norm")) {
            assert_eq!(array.dtype(), DType::BF16, "{name}");
            *array = array.astype(DType::F32).unwrap();
        }
    };
    let model = load_changed("llama-4bit", |_| (), wide).unwrap();
    assert_eq!(model.info().dtype, DType::F32);
    // Keys and values are not rounded: a text in chunks gives what it gives at once.
    let (prompt, following) = tokens("llama-4bit");
    let all = [&prompt[..], &following[..following.len() - 1]].concat();
    let mut whole = Session::new(model.clone(), &CacheOptions::default()).unwrap();
    let rows = whole.logits_of(&all).unwrap();
    assert_eq!(rows.dtype(), DType::F32);
    let mut session = Session::new(model, &CacheOptions::default()).unwrap();
    let steps = scores(&mut session, &prompt, &following, 7);
    let rows = rows.index(prompt.len() as i64 - 1..).unwrap().contiguous().unwrap();
    assert!(distance(&steps, &rows) < 1e-5, "{}", distance(&steps, &rows));
}
