#!/usr/bin/env python3
"""Makes small checkpoints and records what mlx-lm generates from them with samplers, penalties and seeds:
`generation_record.py DIR` writes DIR/MODEL/, DIR/cases.jsonl and DIR/perplexity.jsonl. Run through
`cargo xtask goldens`, which pins the versions.

Models: `full` attends to everything, `sliding` to a window of 8 in two of three layers, `recurrent` is a
gated delta net with attention in every second layer, `near` is `full` with other weights by a few percent,
as a draft model. A token is a byte, or one of four special ones.

A case has a model, a prompt's tokens, options by the names of `GenerateOptions`, and the tokens that
mlx-lm's `generate_step` draws after `mx.random.seed(seed)`, with their log-probabilities. DIR/perplexity.jsonl
has tokens and their perplexity in windows by mlx-lm's `eval_ppl`."""
import json
import os
import pathlib
import sys

# Fused functions would be compiled with the system's C++ compiler, if there is one.
os.environ["MLX_DISABLE_COMPILE"] = "1"

import mlx.core as mx
import mlx_lm
import numpy as np
from mlx.utils import tree_flatten
from mlx_lm.generate import generate_step
from mlx_lm.perplexity import eval_ppl
from mlx_lm.sample_utils import make_logits_processors, make_sampler
from mlx_lm.utils import _get_classes
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

WANTED = "0.32.2"
TOKENS = 24
SPECIAL = ["<s>", "</s>", "<|user|>", "<|assistant|>"]
VOCABULARY = 256 + len(SPECIAL)
COMMON = dict(
    hidden_size=32, num_attention_heads=4, num_key_value_heads=2, head_dim=16, intermediate_size=48,
    rms_norm_eps=1e-6, max_position_embeddings=256, vocab_size=VOCABULARY,
)
ENDS = dict(bos_token_id=0, eos_token_id=1)
CONFIGS = {
    "full": dict(
        model_type="llama", num_hidden_layers=2, rope_theta=1e4, tie_word_embeddings=False,
        **COMMON, **ENDS),
    "sliding": dict(
        model_type="gemma3", vocab_size=VOCABULARY, **ENDS, text_config=dict(
            model_type="gemma3_text", num_hidden_layers=3, rope_theta=1e6, rope_local_base_freq=1e4,
            query_pre_attn_scalar=16, sliding_window=8, sliding_window_pattern=3, **COMMON)),
    "recurrent": dict(
        model_type="qwen3_next", num_hidden_layers=2, rope_theta=1e4, partial_rotary_factor=0.5,
        tie_word_embeddings=False, linear_num_value_heads=4, linear_num_key_heads=2,
        linear_key_head_dim=16, linear_value_head_dim=16, linear_conv_kernel_dim=4, num_experts=4,
        num_experts_per_tok=2, decoder_sparse_step=1, shared_expert_intermediate_size=16,
        mlp_only_layers=[], moe_intermediate_size=16, norm_topk_prob=True, full_attention_interval=2,
        **COMMON, **ENDS),
}
OPTIONS = [
    {},
    {"repetition_penalty": 1.3},
    {"repetition_penalty": 1.5, "repetition_context_size": 5, "presence_penalty": 0.4},
    {"presence_penalty": 0.7, "frequency_penalty": 0.3, "frequency_context_size": 40},
    {"logit_bias": {"7": 3.0, "11": -4.0}, "frequency_penalty": 0.9},
    {"temperature": 1.0, "seed": 1},
    {"temperature": 0.7, "top_p": 0.9, "seed": 2},
    {"temperature": 1.3, "top_k": 20, "seed": 3},
    {"temperature": 1.0, "min_p": 0.05, "min_tokens_to_keep": 3, "seed": 4},
    {"temperature": 1.2, "top_p": 0.95, "min_p": 0.01, "top_k": 50, "seed": 5},
    {"temperature": 1.0, "xtc_probability": 0.6, "xtc_threshold": 0.02, "seed": 6},
    {"temperature": 0.9, "top_p": 0.9, "xtc_probability": 0.3, "xtc_threshold": 0.05, "top_k": 30,
     "repetition_penalty": 1.2, "seed": 2**40 + 7},
]


def write_tokenizer(folder):
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = {word: number for number, word in enumerate(SPECIAL + alphabet)}
    tokenizer = Tokenizer(models.BPE(vocab=words, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(word, special=True) for word in SPECIAL])
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    template = ("{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}{% endfor %}"
                "{% if add_generation_prompt %}<|assistant|>{% endif %}")
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>",
                "clean_up_tokenization_spaces": False, "chat_template": template}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=1) + "\n")


def drawn(name, shape, generator, gemma):
    """Weights that make a model say different things after different texts."""
    normal = generator.standard_normal(shape)
    if "norm" in name:
        # Gemma adds 1; a large last norm makes its logits as far apart as those of the others.
        base = (1.0 if name.endswith("model.norm.weight") else 0.0) if gemma else 1.0
        return base + 0.1 * normal
    if name.endswith("A_log"):
        return np.log(generator.uniform(0.5, 8.0, shape))
    if name.endswith("dt_bias") or "conv1d" in name:
        return 0.4 * normal
    if "embed_tokens" in name:
        return normal * (0.25 / shape[-1] ** 0.5 if gemma else 0.7)
    return normal * (1.7 / shape[-1] ** 0.5)


def write_model(folder, config, seed, noise=0.0):
    folder.mkdir(parents=True, exist_ok=True)
    model_class, arguments = _get_classes(config)
    model = model_class(arguments.from_dict(config))
    generator, other = np.random.default_rng(seed), np.random.default_rng(seed + 1)
    weights = {}
    for name, value in sorted(tree_flatten(model.parameters())):
        array = drawn(name, value.shape, generator, config["model_type"] == "gemma3")
        array = array * (1.0 + noise * other.standard_normal(value.shape))
        weights[name] = mx.array(array.astype(np.float32))
    mx.save_safetensors(str(folder / "model.safetensors"), weights, {"format": "mlx"})
    (folder / "config.json").write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")
    write_tokenizer(folder)


def tokens_of(model, tokenizer, prompt, options):
    options = dict(options)
    bias = {int(token): value for token, value in options.pop("logit_bias", {}).items()}
    names = [f"{kind}_{what}" for kind in ("repetition", "presence", "frequency")
             for what in ("penalty", "context_size")]
    processors = make_logits_processors(
        logit_bias=bias, **{name: options.pop(name) for name in names if name in options})
    seed = options.pop("seed", None)
    special = tokenizer.encode("\n", add_special_tokens=False) + list(tokenizer.eos_token_ids)
    sampler = make_sampler(
        temp=options.pop("temperature", 0.0), xtc_special_tokens=special, **options)
    if seed is not None:
        mx.random.seed(seed)
    steps = generate_step(
        mx.array(prompt), model, max_tokens=TOKENS, sampler=sampler, logits_processors=processors)
    drawn = [(token, round(logprobs[token].item(), 4)) for token, logprobs in steps]
    return [list(column) for column in zip(*drawn)]


def main():
    assert mlx_lm.__version__ == WANTED, f"mlx-lm {mlx_lm.__version__}, wanted {WANTED}"
    folder = pathlib.Path(sys.argv[1])
    for seed, (name, config) in enumerate(CONFIGS.items()):
        write_model(folder / name, config, 100 + seed)
    write_model(folder / "near", CONFIGS["full"], 100, noise=0.04)
    generator = np.random.default_rng(11)
    lines, perplexities = [], []
    for name in CONFIGS:
        model, tokenizer = mlx_lm.load(str(folder / name))
        for options in OPTIONS:
            length = int(generator.integers(3, 40))
            prompt = generator.integers(len(SPECIAL), VOCABULARY, length).tolist()
            tokens, logprobs = tokens_of(model, tokenizer, prompt, options)
            case = {"model": name, "prompt": prompt, "options": options, "tokens": tokens,
                    "logprobs": logprobs}
            lines.append(json.dumps(case))
        text = generator.integers(len(SPECIAL), VOCABULARY, 40)
        value, error = eval_ppl(model, mx.array(text[:36].reshape(3, 12)))
        case = {"tokens": text.tolist(), "window": 12, "perplexity": value, "standard_error": error}
        perplexities.append(json.dumps({"model": name, **case}))
    (folder / "cases.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "perplexity.jsonl").write_text("\n".join(perplexities) + "\n")


main()
