#!/usr/bin/env python3
"""Records expected values from MLX: `record.py DIR` writes DIR/cases.jsonl and
DIR/tensors.safetensors. Run through `cargo xtask goldens`, which pins the versions."""
import sys

import mlx.core as mx

import elementwise
import indexing
import movement
import networks
import numeric
import random_numbers
import reduce
from recorder import Recorder

WANTED = "0.32.4"


def main():
    if mx.__version__ != WANTED:
        raise SystemExit(f"MLX {WANTED} is needed, this is {mx.__version__}")
    mx.set_default_device(mx.cpu)
    mx.disable_compile()
    r = Recorder()
    for family in (elementwise, reduce, movement, indexing, numeric, random_numbers, networks):
        r.family = family.__name__
        before = len(r.cases)
        family.record(r)
        print(f"{family.__name__}: {len(r.cases) - before} cases", flush=True)
    r.finish()
    r.write(sys.argv[1])
    for op, what in r.dropped:
        print(f"dropped: {op}: {what}")


if __name__ == "__main__":
    main()
