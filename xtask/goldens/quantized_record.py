#!/usr/bin/env python3
"""Records quantized weights and what they decode to: `quantized_record.py DIR` writes
DIR/blocks.safetensors from the gguf package, with `FORMAT.blocks` and `FORMAT.weights`, and where it encodes
`FORMAT.w` and `FORMAT.encoded`; and DIR/words.safetensors from MLX, where a case has `CASE.w`,
`CASE.codes`, `CASE.scales`, for affine ones `CASE.biases`, and `CASE.weights`. DIR/planted_words.safetensors has the
same of words and scales that no weights were encoded to; DIR/planted_blocks.safetensors has blocks with planted
scales, which walk through all of a grid, and a digest of what each decodes to. Run through `cargo xtask goldens`, which
pins the versions."""
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
    # The other pairs of width and group come last: numbers are seeds.
    pairs = [("affine", bits, group) for bits in (1, 2, 3, 4, 5, 6, 8) for group in (32, 64, 128)]
    cases += [pair for pair in pairs if pair not in cases]
    for number, (mode, bits, group) in enumerate(cases):
        for dtype in (mx.float32, mx.float16, mx.bfloat16):
            w = odd_weights(np.random.default_rng(number), 128)
            w = mx.array(w).astype(dtype)
            found = dict(zip(("codes", "scales", "biases"), mx.quantize(w, group, bits, mode)))
            found["weights"] = mx.dequantize(*found.values(), group_size=group, bits=bits, mode=mode)
            name = f"{mode}_{bits}_{group}_{str(dtype).split('.')[-1]}"
            arrays.update({f"{name}.{key}": value for key, value in (found | {"w": w}).items()})
    save(folder / "words.safetensors", arrays)


# Where float16 scales lie in a block.
HALVES = {"Q4_1": (0, 2), "Q5_1": (0, 2), "Q2_K": (80, 82), "Q3_K": (108,), "Q4_K": (0, 2), "Q5_K": (0, 2),
          "Q6_K": (208,), "TQ1_0": (52,), "TQ2_0": (64,), "IQ1_M": (), "MXFP4": (), "NVFP4": ()}
# Infinities, the smallest number, NaN and a zero with a sign.
PLANTED = (0x7C00, 0xFC00, 0x0001, 0x7E00, 0x8000)


def planted_blocks(folder):
    arrays = {}
    for number, name in enumerate(FORMATS):
        kind = GGMLQuantizationType[name]
        size = GGML_QUANT_SIZES[kind][1]
        generator = np.random.default_rng(100 + number)
        on_grid = name[:3] in ("IQ1", "IQ2", "IQ3")
        drawn = generator.integers(0, 256, (96 if on_grid else 16, size), dtype=np.uint8)
        if on_grid:
            walk(name, drawn)
        plant_scales(name, drawn, generator)
        with np.errstate(all="ignore"):
            weights = gguf.quants.dequantize(drawn, kind)
        weights[np.isnan(weights)] = np.nan
        arrays[f"{name}.blocks"] = mx.array(drawn)
        arrays[f"{name}.digests"] = mx.array(digests(weights.view(np.uint32)))
    save(folder / "planted_blocks.safetensors", arrays)


def plant_scales(name, drawn, generator):
    """Scales of a usual size, and before them the planted ones, each half in blocks of its own."""
    count = len(drawn)
    if name == "MXFP4":
        drawn[:6, 0] = (0, 1, 2, 127, 254, 255)
        return
    if name == "NVFP4":
        drawn[:2, :4] = ((0, 0x7F, 0x80, 0xFF), (1, 0x7E, 0x38, 0xFE))
        return
    usual = generator.integers(0x2000, 0x3C00, (count, 2)) | generator.integers(0, 2, (count, 2)) << 15
    if name == "IQ1_M":
        # The scale is in the high nibbles of the last four words.
        usual[:len(PLANTED), 0] = PLANTED
        for nibble in range(4):
            at = 48 + 2 * nibble + 1
            drawn[:, at] = drawn[:, at] & 15 | (usual[:, 0] >> (4 * nibble) & 15) << 4
        return
    for half, at in enumerate(HALVES.get(name, (0,))):
        first = half * len(PLANTED)
        usual[first:first + len(PLANTED), half] = PLANTED
        drawn[:, at], drawn[:, at + 1] = usual[:, half] & 255, usual[:, half] >> 8


def walk(name, drawn):
    """Every point of the format's grid, one after the other, beginning behind the planted scales."""
    points = 64 if name[:3] == "IQ3" else 32
    index = np.arange(len(drawn) * points).reshape(len(drawn), points)
    index = (index - len(PLANTED) * points) % {
        "IQ1_S": 2048, "IQ1_M": 2048, "IQ2_XXS": 256, "IQ2_XS": 512, "IQ2_S": 1024, "IQ3_XXS": 256, "IQ3_S": 512,
    }[name]
    low, high = (index & 255).astype(np.uint8), (index >> 8).astype(np.uint8)

    def mix(at, count, width, of):
        """Writes `width` low bits of every `of` bits in bytes from `at` on."""
        per = 8 // of
        for i in range(count):
            byte, shift = at + i // per, i % per * of
            mask = np.uint8(((1 << width) - 1) << shift)
            drawn[:, byte] = drawn[:, byte] & ~mask | (high[:, i] << np.uint8(shift)) & mask

    if name == "IQ1_S":
        drawn[:, 2:34] = low
        words = drawn[:, 34:50].copy().view(np.uint16)
        words &= np.uint16(0xF000)
        for i in range(32):
            words[:, i // 4] |= high[:, i].astype(np.uint16) << np.uint16(3 * (i % 4))
        drawn[:, 34:50] = words.view(np.uint8)
    elif name == "IQ1_M":
        drawn[:, :32] = low
        mix(32, 32, 3, 4)
    elif name == "IQ2_XXS":
        # Four points in the first half of each eight bytes.
        for i in range(32):
            drawn[:, 2 + i // 4 * 8 + i % 4] = low[:, i]
    elif name == "IQ2_XS":
        drawn[:, 2:66:2] = low
        drawn[:, 3:67:2] = drawn[:, 3:67:2] & 0xFE | high
    elif name == "IQ2_S":
        drawn[:, 2:34] = low
        mix(66, 32, 2, 2)
    elif name == "IQ3_XXS":
        drawn[:, 2:66] = low
    elif name == "IQ3_S":
        drawn[:, 2:66] = low
        mix(66, 64, 1, 1)


def digests(bits):
    """Of each row of words: FNV-1a, a word at a time."""
    found = np.full(len(bits), 0x811C9DC5, np.uint32)
    with np.errstate(over="ignore"):
        for column in bits.T:
            found = (found ^ column) * np.uint32(0x01000193)
    return found


def planted_words(folder):
    arrays = {}
    modes = [("affine", bits, group) for bits in (1, 2, 3, 4, 5, 6, 8) for group in (32, 64, 128)]
    modes += [("mxfp4", 4, 32), ("mxfp8", 8, 32), ("nvfp4", 4, 16)]
    for number, (mode, bits, group) in enumerate(modes):
        generator = np.random.default_rng(200 + number)
        for dtype in (mx.float32, mx.float16, mx.bfloat16):
            tiny = {mx.float32: 1e-45, mx.float16: 6e-8, mx.bfloat16: 1e-40}[dtype]
            if mode == "affine":
                scales = [0, np.nan, np.inf, -np.inf, tiny, 0.37, -1.5, 0.37, 0.37]
                biases = [1.25, 0.5, 0.5, 0.5, tiny, -0.71, 0.3, np.inf, np.nan]
                found = {"scales": mx.array([scales]).astype(dtype), "biases": mx.array([biases]).astype(dtype)}
            else:
                # The last are powers of two at the ends of half precision.
                scales = [0, 0x7F, 0x80, 0xFF, 1, 0x38, 0xB8, 0xFE, 0x66, 0x67, 0x8E, 0x8F]
                found = {"scales": mx.array([scales], dtype=mx.uint8)}
            words = generator.integers(0, 1 << 32, (len(scales), group * bits // 32), dtype=np.uint32)
            if mode in ("mxfp4", "nvfp4"):
                # All codes in every group.
                words[:, 0], words[:, 1] = 0x76543210, 0xFEDCBA98
            found = {"codes": mx.array(words.reshape(1, -1))} | found
            weights = mx.dequantize(*found.values(), group_size=group, bits=bits, mode=mode, dtype=dtype)
            name = f"{mode}_{bits}_{group}_{str(dtype).split('.')[-1]}"
            arrays.update({f"{name}.{key}": value for key, value in (found | {"weights": weights}).items()})
    save(folder / "planted_words.safetensors", arrays)


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
    planted_blocks(folder)
    planted_words(folder)


if __name__ == "__main__":
    main()
