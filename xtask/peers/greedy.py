#!/usr/bin/env python3
"""The likeliest tokens after a prompt, as mlx-lm or llama.cpp choose them of a model that `wootz convert` wrote:
`greedy.py mlx|llama MODEL COUNT PROMPT` prints one JSON line. Run through `cargo xtask converted`."""
import json
import sys


def of_mlx(path, count, prompt):
    import mlx.core as mx
    from mlx_lm import load
    from mlx_lm.generate import generate_step

    mx.set_default_device(mx.cpu)
    model, tokenizer = load(path)
    ids = tokenizer.encode(prompt)
    steps = generate_step(mx.array(ids), model, max_tokens=count)
    return ids, [int(token) for token, _ in steps]


def of_llama(path, count, prompt):
    import llama_cpp

    model = llama_cpp.Llama(path, n_ctx=512, n_threads=2, verbose=False, logits_all=False)
    ids = model.tokenize(prompt.encode(), add_bos=True, special=False)
    tokens = []
    for token in model.generate(ids, temp=0.0, top_k=1, repeat_penalty=1.0):
        tokens.append(int(token))
        if len(tokens) == count:
            break
    return ids, tokens


def main():
    peer, path, count, prompt = sys.argv[1:]
    ids, tokens = {"mlx": of_mlx, "llama": of_llama}[peer](path, int(count), prompt)
    print(json.dumps({"prompt": [int(token) for token in ids], "tokens": tokens}))


main()
