//! A conversion holds a tensor at a time. Alone in its program, because memory is counted for all of it.

use std::collections::BTreeMap;
use std::path::Path;

use wootz::Device;
use wootz::quant::Format;
use wootz_lm::convert::{ConvertOptions, Quantize, convert};

/// A small llama of mlx-lm's, for its configuration and its tokenizer.
const SMALL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../goldens/generation/full");

const LAYERS: usize = 8;
const WIDTH: usize = 256;

#[test]
fn memory_does_not_grow_with_the_number_of_shards() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("source");
    let largest = write_model(&source);
    let affine =
        Quantize::Mlx { mode: "affine".into(), group_size: None, bits: None, recipe: None };
    let blocks = Quantize::Gguf { format: Format::Q4_K, mixed: false };
    for (to, quantize) in
        [("affine", Some(affine)), ("dense", None), ("q4.gguf", Some(blocks)), ("dense.gguf", None)]
    {
        let options = ConvertOptions { quantize, ..ConvertOptions::default() };
        let peak =
            peak_of(|| convert(&source, folder.path().join(to), &options).map(drop).unwrap());
        println!("{to}: {peak} bytes, the largest shard has {largest}");
        assert!(2 * peak < 3 * largest, "{to}: {peak} bytes for shards of at most {largest}");
    }
    // From GGUF, of which every tensor is brought into another order or decoded.
    let dequantize = ConvertOptions { dequantize: true, ..ConvertOptions::default() };
    let (from, to) = (folder.path().join("q4.gguf"), folder.path().join("again"));
    let peak = peak_of(|| convert(&from, &to, &dequantize).map(drop).unwrap());
    assert!(2 * peak < 3 * largest, "{peak} bytes for shards of at most {largest}");

    let quantize = Some(Quantize::Gguf { format: Format::IQ2_S, mixed: false });
    let options = ConvertOptions { quantize, ..ConvertOptions::default() };
    let error = convert(&source, folder.path().join("iq2.gguf"), &options).unwrap_err();
    assert!(error.to_string().contains("token_embd.weight: [quantize] format"), "{error}");
}

/// The most bytes that are in memory at once beside those that are there before.
fn peak_of(work: impl FnOnce()) -> u64 {
    let cpu = Device::cpu();
    cpu.reset_peak_memory();
    let before = cpu.memory().active;
    work();
    cpu.memory().peak - before
}

/// Writes a model with a file for each layer, whose tensors begin at odd bytes, and tells the largest file's size.
fn write_model(folder: &Path) -> u64 {
    std::fs::create_dir_all(folder).unwrap();
    for file in ["tokenizer.json", "tokenizer_config.json"] {
        std::fs::copy(Path::new(SMALL).join(file), folder.join(file)).unwrap();
    }
    let config = std::fs::read(Path::new(SMALL).join("config.json")).unwrap();
    let mut config: serde_json::Value = serde_json::from_slice(&config).unwrap();
    let vocabulary = config["vocab_size"].as_u64().unwrap() as usize;
    for (key, value) in [
        ("hidden_size", WIDTH),
        ("intermediate_size", 4 * WIDTH),
        ("num_hidden_layers", LAYERS),
        ("num_attention_heads", 4),
        ("num_key_value_heads", 4),
        ("head_dim", WIDTH / 4),
    ] {
        config[key] = value.into();
    }
    config["tie_word_embeddings"] = true.into();
    config["torch_dtype"] = "bfloat16".into();
    std::fs::write(folder.join("config.json"), config.to_string()).unwrap();
    let sizes = (0..LAYERS).map(|layer| {
        let name = format!("model-{:05}-of-{LAYERS:05}.safetensors", layer + 1);
        write_shard(&folder.join(name), &tensors(layer, vocabulary))
    });
    sizes.max().unwrap()
}

/// The tensors of a layer; the first has those of the whole model, too.
fn tensors(layer: usize, vocabulary: usize) -> BTreeMap<String, Vec<usize>> {
    let mut tensors = BTreeMap::new();
    let mut add = |name: &str, shape: &[usize]| {
        tensors.insert(format!("model.{name}.weight"), shape.to_vec());
    };
    for part in ["q", "k", "v", "o"] {
        add(&format!("layers.{layer}.self_attn.{part}_proj"), &[WIDTH, WIDTH]);
    }
    for (part, shape) in
        [("gate", [4 * WIDTH, WIDTH]), ("up", [4 * WIDTH, WIDTH]), ("down", [WIDTH, 4 * WIDTH])]
    {
        add(&format!("layers.{layer}.mlp.{part}_proj"), &shape);
    }
    for norm in ["input_layernorm", "post_attention_layernorm"] {
        add(&format!("layers.{layer}.{norm}"), &[WIDTH]);
    }
    if layer == 0 {
        add("embed_tokens", &[vocabulary, WIDTH]);
        add("norm", &[WIDTH]);
    }
    tensors
}

/// Writes numbers of bfloat16, small and of one sign, and tells the file's size.
fn write_shard(file: &Path, tensors: &BTreeMap<String, Vec<usize>>) -> u64 {
    let (mut header, mut data) = (serde_json::Map::new(), Vec::new());
    for (name, shape) in tensors {
        let start = data.len();
        let count = shape.iter().product::<usize>();
        data.extend((0..count).flat_map(|i| [(i * 37 % 251) as u8, 0x3c]));
        let entry = serde_json::json!({ "dtype": "BF16", "shape": shape, "data_offsets": [start, data.len()] });
        header.insert(name.clone(), entry);
    }
    let mut header = serde_json::Value::Object(header).to_string();
    if header.len().is_multiple_of(2) {
        header.push(' ');
    }
    let bytes = [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &data].concat();
    std::fs::write(file, &bytes).unwrap();
    bytes.len() as u64
}
