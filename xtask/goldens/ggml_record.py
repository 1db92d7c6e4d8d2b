#!/usr/bin/env python3
"""Records how llama.cpp's ggml encodes weights without an importance matrix: `ggml_record.py DIR [LIBRARIES]` writes
DIR/encoders.safetensors, with the weights of four data sets, and `FORMAT.SET`, the blocks that ggml makes of them, for
formats that the gguf package does not encode; and DIR/decoded.safetensors, with `FORMAT.blocks` and `FORMAT.weights` of
formats that it does not decode. Run through `cargo xtask goldens`, which pins the version of
llama-cpp-python; LIBRARIES is a folder with libggml-base.so, if it is not that of the package."""
import ctypes
import functools
import importlib.util
import json
import operator
import pathlib
import random
import sys

import numpy as np

# The number of the type, weights and bytes of a block.
FORMATS = {
    "Q2_K": (10, 256, 84), "Q3_K": (11, 256, 110), "Q4_K": (12, 256, 144), "Q5_K": (13, 256, 176),
    "Q6_K": (14, 256, 210), "Q8_K": (15, 256, 292), "IQ4_NL": (20, 32, 18), "IQ4_XS": (23, 256, 136),
    "NVFP4": (40, 64, 36),
}
COUNT = 4096
# Bytes of a block and weights in it, of what only functions for rows decode.
DECODED = {"Q8_K": (292, 256, "dequantize_row_q8_K"), "Q1_0": (18, 128, "dequantize_row_q1_0")}


def library(folder):
    if not folder:
        folder = pathlib.Path(importlib.util.find_spec("llama_cpp").origin).parent / "lib"
    return ctypes.CDLL(str(next(pathlib.Path(folder).rglob("libggml-base.so"))))


def data_sets():
    # The same numbers with any version of Python and NumPy.
    uniform = random.Random(6).random
    bell = lambda: functools.reduce(operator.add, (uniform() for _ in range(12))) - 6
    made = lambda number: np.array([0.02 * number() for _ in range(COUNT)], np.float32)
    wide = made(bell).view(np.uint32)
    # To the nearest, ties to even.
    rounded = (wide + np.uint32(0x7FFF) + (wide >> 16 & 1)) & np.uint32(0xFFFF0000)
    return {
        "bell": made(bell),
        "heavy_tail": made(lambda: bell() / max(uniform(), 0.02)),
        "one_sided": made(lambda: abs(bell() + 1.5)),
        "bfloat16": rounded.view(np.float32),
    }


def encoded(ggml, name, weights):
    number, elements, size = FORMATS[name]
    blocks = np.zeros(COUNT // elements * size, np.uint8)
    source, target = ctypes.c_void_p(weights.ctypes.data), ctypes.c_void_p(blocks.ctypes.data)
    if name == "Q8_K":
        # Not a type of files, so that only the function for rows knows it.
        ggml.quantize_row_q8_K_ref(source, target, ctypes.c_int64(COUNT))
        return blocks
    quantize = ggml.ggml_quantize_chunk
    quantize.restype = ctypes.c_size_t
    written = quantize(ctypes.c_int(number), source, target, ctypes.c_int64(0), ctypes.c_int64(1),
                       ctypes.c_int64(COUNT), None)
    if written != len(blocks):
        raise SystemExit(f"{name}: {written} bytes, expected {len(blocks)}")
    return blocks


def decoded(ggml, sets):
    arrays = {}
    drawn = random.Random(7)
    for name, (size, elements, function) in DECODED.items():
        # Scales are random as well: NaN, infinities and the smallest numbers are among them.
        blocks = np.array([[drawn.getrandbits(8) for _ in range(size)] for _ in range(16)], np.uint8)
        blocks[0], blocks[1] = 0, 255
        weights = np.zeros((16, elements), np.float32)
        source, target = ctypes.c_void_p(blocks.ctypes.data), ctypes.c_void_p(weights.ctypes.data)
        getattr(ggml, function)(source, target, ctypes.c_int64(weights.size))
        # Which NaN it is has no meaning.
        weights[np.isnan(weights)] = np.nan
        arrays[f"{name}.blocks"], arrays[f"{name}.weights"] = blocks, weights
    # Nothing in ggml decodes what it rounds activations to: these are the weights that blocks were made of.
    blocks = np.zeros((COUNT // 32, 36), np.uint8)
    source, target = ctypes.c_void_p(sets["bell"].ctypes.data), ctypes.c_void_p(blocks.ctypes.data)
    ggml.quantize_row_q8_1_ref(source, target, ctypes.c_int64(COUNT))
    arrays["Q8_1.blocks"], arrays["Q8_1.encoded_of"] = blocks, sets["bell"].reshape(-1, 32)
    return arrays


def save(path, arrays, about):
    header, data = {"__metadata__": about}, b""
    for name, array in sorted(arrays.items()):
        dtype = {"float32": "F32", "uint8": "U8"}[str(array.dtype)]
        place = [len(data), len(data) + array.nbytes]
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": place}
        data += array.tobytes()
    text = json.dumps(header).encode()
    text += b" " * (-(8 + len(text)) % 64)
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    ggml = library(sys.argv[2] if len(sys.argv) > 2 else None)
    sets = data_sets()
    arrays = dict(sets)
    for name in FORMATS:
        for kind, weights in sets.items():
            arrays[f"{name}.{kind}"] = encoded(ggml, name, weights)
    about = {"recorded_from": "llama-cpp-python 0.3.36"}
    save(folder / "encoders.safetensors", arrays, about)
    save(folder / "decoded.safetensors", decoded(ggml, sets), about)


if __name__ == "__main__":
    main()
