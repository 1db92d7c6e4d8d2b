#!/usr/bin/env python3
"""Writes small model files with the packages `gguf` and `safetensors`, and what these packages read
in them: `files_record.py DIR`. Run through `cargo xtask goldens`, which pins the versions. The
files are also what fuzzing starts from, so they hold a little of everything.

`expected.json` has for each file its metadata and for each tensor its type, its shape and its bytes in
hexadecimal digits."""
import json
import pathlib
import struct
import sys

import gguf
import numpy as np
import safetensors.numpy
from gguf import GGMLQuantizationType as Type
from gguf import GGUFValueType as Kind

SCALARS = [
    (Kind.UINT8, 200), (Kind.INT8, -100), (Kind.UINT16, 60000), (Kind.INT16, -30000),
    (Kind.UINT32, 4000000000), (Kind.INT32, -2000000000), (Kind.FLOAT32, 0.15625),
    (Kind.UINT64, 1 << 63), (Kind.INT64, -(1 << 62)), (Kind.FLOAT64, 1e-300),
    (Kind.BOOL, True), (Kind.STRING, "a \u00e9 \U0001f600"),
]


def generator(number):
    return np.random.default_rng(number)


def writer(path, **options):
    made = gguf.GGUFWriter(None, "llama", **options)
    made.path = path
    return made


def finish(made):
    made.write_header_to_file(made.path)
    made.write_kv_data_to_file()
    made.write_tensors_to_file()
    made.close()


def add_numbers(made, draw):
    for number, dtype in enumerate([np.float32, np.float16, np.float64, np.int8, np.int16,
                                    np.int32, np.int64]):
        values = (draw.normal(size=(number % 3 + 1, 3, number + 1)) * 50).astype(dtype)
        made.add_tensor(f"numbers.{np.dtype(dtype).name}", values)
    bits = draw.integers(0, 256, size=(2, 6), dtype=np.uint8)
    made.add_tensor("numbers.bfloat16", bits, raw_dtype=Type.BF16)


def add_blocks(made, draw, types):
    for kind in types:
        elements, size = gguf.GGML_QUANT_SIZES[kind]
        blocks = draw.integers(0, 256, size=(2, 512 // elements * size // 2), dtype=np.uint8)
        made.add_tensor(f"blocks.{kind.name}", blocks, raw_dtype=kind)


def write_gguf(folder):
    draw = generator(1)
    every = writer(folder / "every.gguf")
    for kind, value in SCALARS:
        every.add_key_value(f"scalar.{kind.name.lower()}", value, kind)
        if kind != Kind.BOOL:
            every.add_key_value(f"array.{kind.name.lower()}", [value] * 3, Kind.ARRAY, kind)
    every.add_array("array.bool", [True, False])
    every.add_array("nested", [[1, 2, 3], [4]])
    every.add_array("words", ["one", "", "three"])
    add_numbers(every, draw)
    add_blocks(every, draw, [Type.Q4_0, Type.Q8_0, Type.Q4_K, Type.Q6_K, Type.IQ4_XS, Type.MXFP4])
    finish(every)

    aligned = writer(folder / "aligned.gguf")
    aligned.add_custom_alignment(8)
    aligned.add_tensor("odd", draw.normal(size=3).astype(np.float32))
    aligned.add_tensor("behind", draw.normal(size=(1, 2)).astype(np.float16))
    finish(aligned)

    version = (folder / "aligned.gguf").read_bytes()
    (folder / "older.gguf").write_bytes(version[:4] + struct.pack("<I", 2) + version[8:])
    # Only the version's bytes are turned round: that is where a reader stops.
    (folder / "big_endian.gguf").write_bytes(version[:4] + struct.pack(">I", 3) + version[8:])

    # Of Q8_1 the package writes blocks of 40 bytes.
    draw_types = generator(3)
    blocks = writer(folder / "blocks.gguf")
    add_blocks(blocks, draw_types, [kind for kind, (elements, _) in gguf.GGML_QUANT_SIZES.items() if elements > 1])
    blocks.add_tensor("behind", draw_types.normal(size=2).astype(np.float32))
    finish(blocks)

    only = writer(folder / "metadata.gguf")
    only.add_name("no tensors")
    finish(only)

    parts = writer(folder / "split.gguf", split_max_tensors=1)
    for name in ["first", "second"]:
        parts.add_tensor(name, draw.normal(size=(2, 2)).astype(np.float32))
    finish(parts)


def read_gguf(path):
    reader = gguf.GGUFReader(path)
    metadata = {name: field.contents() for name, field in reader.fields.items()
                if not name.startswith("GGUF.")}
    tensors = {t.name: dict(type=t.tensor_type.name, shape=t.shape.tolist()[::-1],
                            bytes=t.data.tobytes().hex())
               for t in reader.tensors}
    return dict(metadata=metadata, tensors=tensors)


def write_safetensors(folder):
    draw = generator(2)
    arrays = {}
    for number, dtype in enumerate([np.bool_, np.uint8, np.uint16, np.uint32, np.uint64, np.int8,
                                    np.int16, np.int32, np.int64, np.float16, np.float32,
                                    np.float64]):
        arrays[np.dtype(dtype).name] = draw.integers(0, 2, size=(number % 3, number + 1)).astype(dtype)
    arrays["scalar"] = np.array(1.5, np.float32)
    safetensors.numpy.save_file(arrays, folder / "every.safetensors", {"format": "np", "\u00e9": "x"})

    # As MLX writes: nothing is aligned, neither the data nor an array in it.
    header = {
        "byte": dict(dtype="U8", shape=[1], data_offsets=[0, 1]),
        "words": dict(dtype="U32", shape=[2], data_offsets=[1, 9]),
        "small": dict(dtype="F8_E4M3", shape=[3], data_offsets=[9, 12]),
        "brain": dict(dtype="BF16", shape=[1, 2], data_offsets=[12, 16]),
    }
    text = json.dumps(header).encode()
    text += b" " * (8 - len(text) % 8 + 1)
    data = draw.integers(0, 256, size=16, dtype=np.uint8).tobytes()
    (folder / "odd.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)

    sharded = folder / "sharded"
    sharded.mkdir(exist_ok=True)
    index = dict(metadata=dict(total_size=32), weight_map={})
    for number, names in enumerate([["a", "c"], ["b"]]):
        part = f"model-0000{number + 1}-of-00002.safetensors"
        made = {name: draw.normal(size=(1, 2)).astype(np.float32) for name in names}
        safetensors.numpy.save_file(made, sharded / part)
        index["weight_map"].update({name: part for name in names})
    (sharded / "model.safetensors.index.json").write_text(json.dumps(index, indent=4))


def read_safetensors(path):
    with safetensors.safe_open(path, framework="np") as opened:
        metadata = opened.metadata()
    names = {np.dtype(k).name: v for k, v in [
        (np.bool_, "BOOL"), (np.uint8, "U8"), (np.uint16, "U16"), (np.uint32, "U32"),
        (np.uint64, "U64"), (np.int8, "I8"), (np.int16, "I16"), (np.int32, "I32"),
        (np.int64, "I64"), (np.float16, "F16"), (np.float32, "F32"), (np.float64, "F64")]}
    tensors = {name: dict(type=names[x.dtype.name], shape=list(x.shape), bytes=x.tobytes().hex())
               for name, x in sorted(safetensors.numpy.load_file(path).items())}
    return dict(metadata=metadata, tensors=tensors)


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    write_gguf(folder)
    write_safetensors(folder)
    expected = {}
    for path in sorted(folder.glob("*.gguf")):
        if path.name != "big_endian.gguf":
            expected[path.name] = read_gguf(path)
    expected["every.safetensors"] = read_safetensors(folder / "every.safetensors")
    (folder / "expected.json").write_text(json.dumps(expected) + "\n")


main()
