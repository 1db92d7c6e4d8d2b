#!/usr/bin/env python3
"""Scores that llama.cpp gives for small models: `logits.py FOLDER`, whose `x.gguf` each have an `x.json` with a prompt
and the scores of all of its tokens. Prints one JSON line: for each model the largest difference, of the largest score,
and how many of the likeliest tokens are the same. Run through `cargo xtask converted`."""
import json
import pathlib
import sys

import llama_cpp
import numpy


def compared(path):
    expected = json.loads(path.with_suffix(".json").read_text())
    prompt = expected["prompt"]
    ours = numpy.array(expected["scores"], numpy.float32).reshape(len(prompt), -1)
    # Of a Phi-3 that first saw fewer tokens than the context has, the factors for long texts are taken. A cache in
    # single precision.
    model = llama_cpp.Llama(
        str(path),
        n_ctx=512,
        n_threads=2,
        verbose=False,
        logits_all=True,
        flash_attn=False,
        type_k=llama_cpp.GGML_TYPE_F32,
        type_v=llama_cpp.GGML_TYPE_F32,
    )
    model.eval(prompt)
    theirs = model.scores[: len(prompt)]
    difference = float(numpy.abs(ours - theirs).max() / numpy.abs(theirs).max())
    same = int((ours.argmax(-1) == theirs.argmax(-1)).sum())
    return {"name": path.stem, "difference": difference, "same": same, "tokens": len(prompt)}


paths = sorted(pathlib.Path(sys.argv[1]).glob("*.gguf"))
print(json.dumps({"models": [compared(path) for path in paths]}))
