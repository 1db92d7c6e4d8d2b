#!/usr/bin/env python3
"""Makes tiny language models with mlx-lm and records what it computes of them: `tiny_models_record.py DIR`.
Run through `cargo xtask goldens`, which pins the versions.

Each folder is a checkpoint in MLX's layout, with weights from a seeded generator, and `expected.safetensors`: a
prompt, the scores of each of its positions with and without a cache, the results of each layer, and the tokens of
greedy generation with the scores that chose them. `caches.safetensors` has those scores for other caches. The models in
`SMALL` are one of each other architecture, with odd shapes, those in `OTHERS` other configurations of architectures, and of these
only the scores with a cache, but for narrow types. `variants.json` has changes
of their configurations, and `variants.safetensors` the scores of the prompt's last positions with each. `generations.jsonl` has
long prompts, and what `generate_step` says behind them."""
import json
import pathlib
import sys

import mlx.core as mx
import mlx_lm
import numpy as np
from mlx.utils import tree_flatten, tree_unflatten
from mlx_lm.generate import generate_step, maybe_quantize_kv_cache
from mlx_lm.models.cache import KVCache, RotatingKVCache, make_prompt_cache
from mlx_lm.utils import _get_classes, load_model, quantize_model, save_config, save_model

WANTED = "0.32.2"
VOCABULARY, PROMPT, NEW = 384, 24, 16

BASE = dict(vocab_size=VOCABULARY, rms_norm_eps=1e-6, max_position_embeddings=512, bos_token_id=0,
            eos_token_id=1, torch_dtype="float32")
MIDDLE = dict(BASE, hidden_size=128, num_hidden_layers=2, intermediate_size=192, num_attention_heads=4,
              num_key_value_heads=2)
QUANTIZED = dict(kv_group_size=32, quantized_kv_start=0)
# Models, lengths of prompts and options: rotation that follows the length, rings, and caches that are quantized. `max_kv_size`
# is for models that do not make caches of their own.
GENERATIONS = [
    ("small-mistral", 17, {}),
    ("small-mistral", 300, {}),
    ("small-mistral", 2100, {}),
    ("qwen3-4bit-f32", 262, dict(max_kv_size=20)),
    ("qwen3-4bit-f32", 2100, dict(max_kv_size=20)),
    ("llama-4bit-f32", 300, dict(QUANTIZED, kv_bits=8)),
    ("llama-4bit-f32", 300, dict(QUANTIZED, kv_bits=4)),
    ("llama-4bit-f32", 2100, dict(QUANTIZED, kv_bits=4, quantized_kv_start=100)),
]
CONFIGS = {
    "llama": dict(MIDDLE, model_type="llama", architectures=["LlamaForCausalLM"], head_dim=32,
                  rope_theta=10000.0, tie_word_embeddings=False, attention_bias=False, mlp_bias=False),
    "qwen3": dict(MIDDLE, model_type="qwen3", architectures=["Qwen3ForCausalLM"], head_dim=64,
                  rope_theta=1000000.0, tie_word_embeddings=True),
    "qwen3_next": dict(
        BASE, model_type="qwen3_next", architectures=["Qwen3NextForCausalLM"], hidden_size=64,
        num_hidden_layers=4, intermediate_size=128, num_attention_heads=4, num_key_value_heads=2, head_dim=32,
        rope_theta=10000000.0, partial_rotary_factor=0.5, tie_word_embeddings=False, linear_num_value_heads=4,
        linear_num_key_heads=2, linear_key_head_dim=32, linear_value_head_dim=32, linear_conv_kernel_dim=4,
        num_experts=8, num_experts_per_tok=2, decoder_sparse_step=1, shared_expert_intermediate_size=64,
        mlp_only_layers=[], moe_intermediate_size=64, norm_topk_prob=True, full_attention_interval=4),
    "gemma3": dict(
        model_type="gemma3", architectures=["Gemma3ForConditionalGeneration"], vocab_size=VOCABULARY,
        eos_token_id=1, bos_token_id=0, torch_dtype="float32",
        text_config=dict(
            model_type="gemma3_text", hidden_size=128, num_hidden_layers=3, intermediate_size=192,
            num_attention_heads=4, num_key_value_heads=2, head_dim=32, rms_norm_eps=1e-6, rope_theta=1000000.0,
            rope_local_base_freq=10000.0, query_pre_attn_scalar=32, sliding_window=16, sliding_window_pattern=3,
            max_position_embeddings=512)),
}
# One of each other architecture: odd numbers of heads, prompts that are longer than windows and original contexts.
TINY = dict(BASE, vocab_size=64, hidden_size=32, num_hidden_layers=2, intermediate_size=64, num_attention_heads=2,
            num_key_value_heads=1)
DELTA = dict(TINY, num_attention_heads=2, head_dim=32, linear_num_value_heads=2, linear_num_key_heads=1,
             linear_key_head_dim=16, linear_value_head_dim=16, linear_conv_kernel_dim=3, full_attention_interval=2)
# Gates are quantized in groups of 64.
EXPERTS = dict(hidden_size=64, num_experts=3, num_experts_per_tok=2, moe_intermediate_size=32)
SMALL = {
    "gemma2": dict(TINY, num_attention_heads=3, head_dim=16, query_pre_attn_scalar=16, attn_logit_softcapping=5.0,
                   final_logit_softcapping=8.0),
    "gemma3_text": dict(TINY, num_attention_heads=3, head_dim=16, rope_theta=1e6, rope_local_base_freq=1e4,
                        query_pre_attn_scalar=16, sliding_window=7, sliding_window_pattern=2,
                        rope_scaling=dict(rope_type="linear", factor=8.0)),
    "gpt_oss": dict(TINY, hidden_size=64, num_attention_heads=3, head_dim=16, num_local_experts=3, num_experts_per_tok=2,
                    intermediate_size=32, sliding_window=7, rope_theta=150000,
                    layer_types=["sliding_attention", "full_attention"],
                    rope_scaling=dict(rope_type="yarn", factor=4.0, beta_fast=32.0, beta_slow=1.0,
                                      original_max_position_embeddings=64, truncate=False)),
    "granite": dict(TINY, hidden_size=64, logits_scaling=4.0, attention_multiplier=0.1, embedding_multiplier=1.5,
                    residual_multiplier=1.3, attention_bias=True, mlp_bias=True, rope_theta=1e4,
                    tie_word_embeddings=True),
    "mistral": dict(TINY, num_attention_heads=3, head_dim=16, tie_word_embeddings=True, max_position_embeddings=16,
                    rope_scaling=dict(type="dynamic", factor=2.0)),
    "mixtral": dict(TINY, hidden_size=64, num_local_experts=3, num_experts_per_tok=2, intermediate_size=32, rope_theta=1e6),
    "olmo2": dict(TINY, num_key_value_heads=2, rope_theta=5e5, tie_word_embeddings=False),
    "phi3": dict(TINY, partial_rotary_factor=0.75, original_max_position_embeddings=8, max_position_embeddings=64,
                 rope_scaling=dict(type="longrope", long_factor=[1.0, 1.5, 2.0, 2.5, 3.0, 3.5],
                                   short_factor=[1.0, 1.1, 1.2, 1.3, 1.4, 1.5])),
    "qwen2": dict(TINY, rope_theta=1e6, tie_word_embeddings=True),
    "qwen3_moe": dict(TINY | EXPERTS, num_hidden_layers=3, head_dim=16, rope_theta=1e6, tie_word_embeddings=True,
                      decoder_sparse_step=2, mlp_only_layers=[0], norm_topk_prob=False),
    "qwen3_5": dict(text_config=dict(DELTA, model_type="qwen3_5_text", rope_parameters=dict(
        rope_type="default", rope_theta=1e7, partial_rotary_factor=0.25))),
    "qwen3_5_moe": dict(text_config=dict(DELTA | EXPERTS, model_type="qwen3_5_moe_text", norm_topk_prob=True,
                                         shared_expert_intermediate_size=32, rope_parameters=dict(
        rope_type="default", rope_theta=1e7, partial_rotary_factor=0.5))),
    "smollm3": dict(TINY, num_hidden_layers=3, no_rope_layers=[1, 0, 1], rope_theta=1e4, tie_word_embeddings=True),
}
# Architectures again, with biases, with and without an output layer of their own, and with windows that all but the first tokens
# leave. The wide one has matrices of more weights than are multiplied as floats: their activations are rounded.
OTHERS = {
    "llama3-biases": dict(TINY, model_type="llama", num_attention_heads=3, head_dim=16, attention_bias=True, mlp_bias=True,
                          rope_theta=5e5, tie_word_embeddings=False,
                          rope_scaling=dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                            original_max_position_embeddings=64)),
    "llama-windows": dict(TINY, model_type="llama", num_hidden_layers=3, rope_theta=1e4, tie_word_embeddings=True,
                          sliding_window=6, layer_types=["sliding_attention", "full_attention", "sliding_attention"]),
    "llama-wide": dict(TINY, model_type="llama", hidden_size=192, num_hidden_layers=1, intermediate_size=352, head_dim=16,
                       rope_theta=1e4, tie_word_embeddings=True),
    "gemma3_text-head": dict(SMALL["gemma3_text"], model_type="gemma3_text", sliding_window=5),
    "granite-untied": dict(SMALL["granite"], model_type="granite", attention_bias=False, mlp_bias=False,
                           tie_word_embeddings=False),
    "mixtral-tied": dict(SMALL["mixtral"], model_type="mixtral", tie_word_embeddings=True),
    "mixtral-equal": dict(SMALL["mixtral"], model_type="mixtral", num_hidden_layers=1),
    "qwen2-untied": dict(SMALL["qwen2"], model_type="qwen2", num_attention_heads=3, hidden_size=96, tie_word_embeddings=False),
    "qwen3_next-biases": dict(DELTA | EXPERTS, model_type="qwen3_next", rope_theta=1e7, partial_rotary_factor=0.5,
                              attention_bias=True, tie_word_embeddings=True, decoder_sparse_step=1, mlp_only_layers=[],
                              shared_expert_intermediate_size=32, norm_topk_prob=True),
}
NARROW = ["llama-wide"]
OWN_HEAD = ["gemma3_text-head"]
# All experts have the same score: which of them are taken?
EQUAL = ["mixtral-equal"]
# Changes of configurations that the same weights fit: which keys are read, and which of two that contradict each other.
YARN = dict(factor=4.0, original_max_position_embeddings=16)
LINEAR = dict(rope_type="linear", factor=2.0, rope_theta=300.0)
FACTORS = dict(long_factor=[1.0, 1.5, 2.0, 2.5, 3.0, 3.5], short_factor=[1.0] * 6)
VARIANTS = {
    "yarn": ("small-mistral", dict(rope_scaling=dict(YARN, type="yarn"))),
    "yarn-attention-factor": ("small-mistral", dict(rope_scaling=dict(YARN, type="yarn", attention_factor=0.5))),
    "yarn-mscale": ("small-mistral", dict(rope_scaling=dict(YARN, type="yarn", beta_fast=8, beta_slow=2, mscale=0.7,
                                                            mscale_all_dim=0.5, truncate=False))),
    "longrope-traditional": ("small-mistral", dict(rope_traditional=True, rope_scaling=dict(
        rope_type="longrope", original_max_position_embeddings=8, long_factor=[1.0 + 0.2 * i for i in range(8)],
        short_factor=[1.0] * 8, attention_factor=2.0))),
    "older-beside-newer": ("small-mistral", dict(rope_theta=5000.0, rope_scaling=None, rope_parameters=LINEAR)),
    "context-as-float": ("small-mistral", dict(max_position_embeddings=4096.0, attention_bias=None, mlp_bias=None)),
    "windows": ("small-mistral", dict(layer_types=["full_attention", "sliding_attention"], sliding_window=5)),
    "other-layer-types": ("small-mistral", dict(layer_types=["full_attention", "chunked_attention"], sliding_window=5)),
    "newer-alone": ("small-mistral", dict(rope_scaling=None, rope_parameters=LINEAR)),
    "gemma2-newer-alone": ("small-gemma2", dict(rope_parameters=LINEAR)),
    "phi3-newer-alone": ("small-phi3", dict(rope_scaling=None, rope_parameters=dict(
        FACTORS, type="longrope", rope_theta=300.0, original_max_position_embeddings=9))),
    "qwen2-older-beside-newer": ("small-qwen2", dict(rope_parameters=LINEAR)),
    "qwen3-newer-scaling": ("qwen3-4bit-f32", dict(rope_parameters=LINEAR)),
    "qwen3-older-scaling": ("qwen3-4bit-f32", dict(rope_scaling=dict(type="default"), rope_parameters=LINEAR)),
    "qwen3-yarn": ("qwen3-4bit-f32", dict(rope_parameters=dict(YARN, rope_type="yarn", attention_factor=0.7))),
    "qwen3-traditional": ("qwen3-4bit-f32", dict(rope_traditional=True)),
    "qwen3_moe-traditional": ("small-qwen3_moe", dict(rope_traditional=True, rope_scaling=dict(YARN, type="yarn"))),
    "qwen3_5-older": ("small-qwen3_5", dict(rope_theta=50.0, partial_rotary_factor=0.5, rope_parameters=None,
                                            rope_scaling=dict(type="linear", factor=3.0))),
    "qwen3_5-older-beside-newer": ("small-qwen3_5", dict(rope_theta=50.0, partial_rotary_factor=0.5,
                                                         rope_parameters=dict(type="default"))),
    "phi3-traditional": ("small-phi3", dict(rope_traditional=True)),
    "phi3-other-type": ("small-phi3", dict(rope_scaling=dict(FACTORS, type="yarn", factor=2.0))),
    "phi3-lengths": ("small-phi3", dict(rope_scaling=dict(FACTORS, type="su", original_max_position_embeddings=7))),
    "gpt_oss-no-layer-types": ("small-gpt_oss", dict(layer_types=[])),
    "gpt_oss-more-layer-types": ("small-gpt_oss", dict(layer_types=["full_attention", "sliding_attention", "full_attention"])),
    "gpt_oss-other-layer-types": ("small-gpt_oss", dict(layer_types=["full_attention", "sliding_attention"],
                                                        rope_scaling=dict(YARN, rope_type="yarn", attention_factor=0.5))),
    "smollm3-no-interval": ("small-smollm3", dict(no_rope_layers=[0, 1, 0], no_rope_layer_interval=0)),
}
# Their seeds.
SEEDS = dict(gemma2=2, gemma3_text=3, gpt_oss=2, granite=2, mistral=5, mixtral=4, olmo2=5, phi3=4, qwen2=6, qwen3_moe=4,
             qwen3_5=1, qwen3_5_moe=4, smollm3=7) | {
    "llama3-biases": 11, "llama-windows": 4, "llama-wide": 8, "gemma3_text-head": 1, "granite-untied": 2, "mixtral-tied": 7, "mixtral-equal": 2,
    "qwen2-untied": 12, "qwen3_next-biases": 5}
# Architecture, name, dtype, seed: seeds with clear choices of tokens.
MODELS = [
    ("llama", "llama-4bit-f32", mx.float32, 4),
    ("llama", "llama-4bit", mx.bfloat16, 1),
    ("qwen3", "qwen3-4bit-f32", mx.float32, 1),
    ("gemma3", "gemma3-4bit-f32", mx.float32, 1),
    ("qwen3_next", "qwen3_next-4bit-f32", mx.float32, 9),
]


def weights(model, seed, gemma, tied):
    rng = np.random.default_rng(seed)
    made = []
    for name, value in sorted(tree_flatten(model.parameters())):
        shape = value.shape
        if gemma and name.endswith("model.norm.weight"):
            numbers = 7.0 + 0.15 * rng.standard_normal(shape)
        elif name.endswith("norm.weight") or "layernorm" in name:
            numbers = (0.0 if gemma else 1.0) + 0.15 * rng.standard_normal(shape)
        elif name.endswith("A_log"):
            numbers = np.log(rng.uniform(0.5, 8.0, shape))
        elif name.endswith(("dt_bias", "sinks", ".bias")):
            numbers = 0.3 * rng.standard_normal(shape)
        elif "embed_tokens" in name:
            scale = 0.25 / shape[-1] ** 0.5 if gemma else 0.25 if tied else 0.7
            numbers = rng.standard_normal(shape) * scale
        elif "conv1d" in name:
            numbers = 0.4 * rng.standard_normal(shape)
        else:
            numbers = rng.standard_normal(shape) * (1.6 / shape[-1] ** 0.5)
        made.append((name, mx.array(numbers.astype(np.float32))))
    return made


def text_part(model):
    return model.language_model if hasattr(model, "language_model") else model


def make(folder, architecture, config, dtype, seed, group_size, own_head=False, equal=False):
    config = json.loads(json.dumps(config))
    config["torch_dtype"] = "bfloat16" if dtype == mx.bfloat16 else "float32"
    Model, Arguments = _get_classes(config)
    model = Model(Arguments.from_dict(config))
    gemma = architecture.startswith("gemma")
    if architecture.startswith("gemma3") and not own_head:
        text_part(model).sanitize({})
    made = weights(model, seed, gemma, config.get("tie_word_embeddings", False))
    if equal:
        made = [(name, mx.repeat(x[:1], len(x), axis=0) if name.endswith("moe.gate.weight") else x) for name, x in made]
    model.load_weights(made)
    keeps = getattr(model, "cast_predicate", lambda name: True)
    cast = [(name, x.astype(dtype) if keeps(name) else x) for name, x in tree_flatten(model.parameters())]
    model.update(tree_unflatten(cast))
    model, config = quantize_model(model, config, group_size=group_size, bits=4, mode="affine")
    save_model(folder, model)
    (folder / "model.safetensors.index.json").unlink()
    save_config(config, folder / "config.json")


def watched(part, name, seen):
    class Watched(type(part)):
        def __call__(self, *arguments, **named):
            seen[name] = super().__call__(*arguments, **named)
            return seen[name]

    part.__class__ = Watched


def layers(folder, prompt):
    """Scores without a cache, and the results of each layer."""
    results = {}
    model, _ = load_model(folder)
    seen, inner = {}, text_part(model).model
    watched(inner.embed_tokens, "embed", seen)
    watched(inner.norm, "final_norm", seen)
    for number, layer in enumerate(inner.layers):
        watched(layer, f"layer_{number}", seen)
    results["logits_nocache"] = model(mx.array(prompt)[None])[0].astype(mx.float32)
    for name, array in seen.items():
        results[name] = array[0].astype(mx.float32)
    return results


def expected(folder, vocabulary, new, with_layers):
    prompt = np.random.default_rng(7).integers(4, vocabulary, PROMPT).astype(np.int32)
    results = {"prompt": mx.array(prompt)}
    if with_layers:
        results.update(layers(folder, prompt))
    model, _ = load_model(folder)
    cache = make_prompt_cache(model)
    results["logits"] = model(mx.array(prompt)[None], cache=cache)[0].astype(mx.float32)
    tokens, steps, scores = [], [], results["logits"][-1]
    for _ in range(new):
        steps.append(np.array(scores.astype(mx.float32)))
        tokens.append(int(steps[-1].argmax()))
        scores = model(mx.array([[tokens[-1]]]), cache=cache)[0, -1]
    results["greedy_tokens"] = mx.array(np.array(tokens, np.int32))
    results["greedy_logits"] = mx.array(np.stack(steps))
    mx.save_safetensors(str(folder / "expected.safetensors"), results)
    best = np.sort(np.stack(steps))
    return (best[:, -1] - best[:, -2]).min() / np.abs(best).max(), len(set(tokens))


def caches(folder):
    """Scores of the same tokens with caches that rotate or are quantized, the prompt in two parts: as `generate_step`
    quantizes a cache, after the first."""
    model, _ = load_model(folder)
    known, results = mx.load(str(folder / "expected.safetensors")), {}
    kinds = {"rotating_20_keep_4": (lambda: RotatingKVCache(max_size=20, keep=4), None)}
    for bits in (8, 6, 4):
        kinds[f"quantized_{bits}"] = (KVCache, bits)
    for name, (kind, bits) in kinds.items():
        cache = [kind() for _ in model.layers]
        prompt, steps = known["prompt"][None], []
        model(prompt[:, :9], cache=cache)
        maybe_quantize_kv_cache(cache, quantized_kv_start=0, kv_group_size=32, kv_bits=bits)
        scores = model(prompt[:, 9:], cache=cache)[0, -1]
        for token in known["greedy_tokens"].tolist():
            steps.append(np.array(scores))
            scores = model(mx.array([[token]]), cache=cache)[0, -1]
        results[name] = mx.array(np.stack(steps))
    mx.save_safetensors(str(folder.parent / "caches.safetensors"), results)


def variants(target):
    """Scores of the prompt's last positions, with configurations changed as `VARIANTS` says. Nested ones are in `text_config`."""
    results, changes = {}, {}
    for name, (of, config) in VARIANTS.items():
        folder, config = target / of, json.loads(json.dumps(config))
        text = json.loads((folder / "config.json").read_text()).get("text_config")
        changes[name] = dict(of=of, config=dict(text_config=dict(text, **config)) if text else config)
        model, _ = load_model(folder, model_config=json.loads(json.dumps(changes[name]["config"])))
        prompt = mx.load(str(folder / "expected.safetensors"))["prompt"]
        results[name] = model(prompt[None], cache=make_prompt_cache(model))[0, -4:].astype(mx.float32)
    mx.save_safetensors(str(target / "variants.safetensors"), results)
    (target / "variants.json").write_text(json.dumps(changes, indent=1) + "\n")


def generations(target):
    """Tokens behind prompts that `generate_step` reads in chunks which decide about them, with their log-probabilities."""
    lines = []
    for name, length, options in GENERATIONS:
        model, config = load_model(target / name)
        prompt = [4 + (i * i * 7 + i * 31) % (config["vocab_size"] - 4) for i in range(length)]
        steps = generate_step(mx.array(prompt), model, max_tokens=8, stream=mx.default_stream(mx.cpu), **options)
        tokens, logprobs = zip(*((token, round(scores[token].item(), 5)) for token, scores in steps))
        lines.append(dict(model=name, prompt=prompt, options=options, tokens=tokens, logprobs=logprobs))
    (target / "generations.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def main():
    assert mlx_lm.__version__ == WANTED, mlx_lm.__version__
    mx.set_default_device(mx.cpu)
    target = pathlib.Path(sys.argv[1])
    for architecture, name, dtype, seed in MODELS:
        folder = target / name
        folder.mkdir(parents=True, exist_ok=True)
        make(folder, architecture, CONFIGS[architecture], dtype, seed, 64)
        expected(folder, VOCABULARY, NEW, True)
    for architecture, config in SMALL.items():
        folder = target / f"small-{architecture}"
        folder.mkdir(parents=True, exist_ok=True)
        config = dict(config, model_type=architecture)
        make(folder, architecture, config, mx.float32, SEEDS[architecture], 32)
        expected(folder, TINY["vocab_size"], NEW // 2, False)
    for name, config in OTHERS.items():
        folder = target / f"small-{name}"
        folder.mkdir(parents=True, exist_ok=True)
        dtype = mx.bfloat16 if name in NARROW else mx.float32
        make(folder, config["model_type"], config, dtype, SEEDS[name], 32, name in OWN_HEAD, name in EQUAL)
        expected(folder, TINY["vocab_size"], NEW // 2, name in NARROW)
    caches(target / "llama-4bit-f32")
    variants(target)
    generations(target)


if __name__ == "__main__":
    main()
