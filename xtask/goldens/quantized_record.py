#!/usr/bin/env python3
"""Records quantized weights and what they decode to: `quantized_record.py DIR` writes
DIR/blocks.safetensors from the gguf package, with `FORMAT.blocks` and `FORMAT.weights`, and where it encodes
`FORMAT.w` and `FORMAT.encoded`; and DIR/words.safetensors from MLX, where a case has `CASE.w`,
`CASE.codes`, `CASE.scales`, for affine ones `CASE.biases`, and `CASE.weights`. Run through `cargo xtask
goldens`, which pins the versions."""
import importlib.metadata
import pathlib
import sys

import gguf
import mlx.core as mx
import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

WANTED = "0.19.0"

FORMATS = """Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K IQ2_XXS IQ2_XS IQ2_S IQ3_XXS IQ3_S IQ1_S
IQ1_M IQ4_NL IQ4_XS TQ1_0 TQ2_0 MXFP4 NVFP4""".split()
ENCODED = "Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 TQ1_0 TQ2_0 MXFP4".split()


def odd_weights(generator, width):
    """A row of bell shape, one of one sign, one of whole numbers, and one of zeros, of one value and of
    small and large numbers."""
    w = generator.normal(size=(4, width)).astype(np.float32)
    w[1] = -np.abs(w[1])
    w[2] = np.round(2 * w[2])
    quarter = width // 4
    w[3, :quarter], w[3, quarter:2 * quarter] = 0, 3
    w[3, 2 * quarter:3 * quarter] *= np.float32(1e-2)
    w[3, 3 * quarter:] *= np.float32(1e3)
    return w


def blocks(folder):
    arrays = {}
    for number, name in enumerate(FORMATS):
        kind = GGMLQuantizationType[name]
        elements, size = GGML_QUANT_SIZES[kind]
        generator = np.random.default_rng(number)
        # Scales are random as well: NaN, infinities and the smallest numbers are among them.
        count = max(4, 512 // elements)
        drawn = generator.integers(0, 256, (count, size), dtype=np.uint8)
        drawn[0], drawn[1] = 0, 255
        with np.errstate(all="ignore"):
            weights = gguf.quants.dequantize(drawn, kind)
        # Which NaN it is has no meaning.
        weights[np.isnan(weights)] = np.nan
        arrays[f"{name}.blocks"], arrays[f"{name}.weights"] = mx.array(drawn), mx.array(weights)
        if name in ENCODED:
            w = odd_weights(generator, 256)
            arrays[f"{name}.w"] = mx.array(w)
            arrays[f"{name}.encoded"] = mx.array(gguf.quants.quantize(w, kind))
    save(folder / "blocks.safetensors", arrays)


def words(folder):
    arrays = {}
    cases = [("affine", bits, (32, 64, 128)[i % 3]) for i, bits in enumerate((1, 2, 3, 4, 5, 6, 8))]
    cases += [("mxfp4", 4, 32), ("mxfp8", 8, 32), ("nvfp4", 4, 16)]
    for number, (mode, bits, group) in enumerate(cases):
        for dtype in (mx.float32, mx.float16, mx.bfloat16):
            w = odd_weights(np.random.default_rng(number), 128)
            w = mx.array(w).astype(dtype)
            found = dict(zip(("codes", "scales", "biases"), mx.quantize(w, group, bits, mode)))
            found["weights"] = mx.dequantize(*found.values(), group_size=group, bits=bits, mode=mode)
            name = f"{mode}_{bits}_{group}_{str(dtype).split('.')[-1]}"
            arrays.update({f"{name}.{key}": value for key, value in (found | {"w": w}).items()})
    save(folder / "words.safetensors", arrays)


def save(path, arrays):
    about = {"recorded_from": f"gguf {WANTED}, MLX {mx.__version__}"}
    mx.save_safetensors(str(path), dict(sorted(arrays.items())), about)


def main():
    if importlib.metadata.version("gguf") != WANTED:
        raise SystemExit(f"gguf {WANTED} is needed")
    mx.set_default_device(mx.cpu)
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    blocks(folder)
    words(folder)


if __name__ == "__main__":
    main()
