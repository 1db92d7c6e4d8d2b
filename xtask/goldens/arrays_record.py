"""Writes small npy and npz files with NumPy and MLX, and what they hold: `arrays_record.py FOLDER`.

Fuzzing starts from them, so they hold a little of everything.

`expected.json` has for each file, or for each array of an npz file, its dtype, its shape and its bytes in
hexadecimal digits, little-endian and row-major."""
import json
import pathlib
import sys

import mlx.core as mx
import numpy as np

DTYPES = ["bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16",
          "float32", "float64"]


def drawn(number, shape, dtype):
    draw = np.random.default_rng(number)
    return draw.integers(0, 2 if dtype == "bool" else 100, size=shape).astype(dtype)


def told(x):
    """What an array is, as JSON. MLX's bfloat16 is two bytes."""
    if isinstance(x, mx.array):
        dtype = str(x.dtype).removeprefix("mlx.core.")
        x = np.array(x.view(mx.uint16) if dtype == "bfloat16" else x)
    else:
        dtype = x.dtype.name
    little = x.astype(x.dtype.newbyteorder("<"))
    return dict(dtype=dtype, shape=list(x.shape), bytes=little.tobytes().hex())


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    expected = {}

    def one(name, x, save):
        save(folder / f"{name}.npy", x)
        expected[f"{name}.npy"] = told(x)

    def all_of(name, save, **arrays):
        save(str(folder / f"{name}.npz"), **arrays)
        expected[f"{name}.npz"] = {key: told(x) for key, x in arrays.items()}

    def version(number):
        def write(path, x):
            with open(path, "wb") as file:
                np.lib.format.write_array(file, x, version=number)
        return write

    one("scalar", np.array(1.5, np.float32), np.save)
    one("empty", np.zeros((0, 3), np.int16), np.save)
    one("fortran", np.asfortranarray(drawn(1, (2, 3, 4), "float32")), np.save)
    one("big_endian", drawn(2, (2, 3), "int32").astype(">i4"), np.save)
    one("big_endian_fortran", np.asfortranarray(drawn(3, (2, 3), "float64").astype(">f8")), np.save)
    one("version_2", drawn(4, (3, 2), "uint16"), version((2, 0)))
    one("version_3", drawn(5, (5,), "int8"), version((3, 0)))
    one("mlx", mx.array(drawn(6, (2, 3), "float32")), lambda path, x: mx.save(str(path), x))
    brain = mx.array(drawn(7, (3, 2), "float32")).astype(mx.bfloat16)
    one("mlx_bfloat16", brain, lambda path, x: mx.save(str(path), x))
    one("mlx_scalar", mx.array(2.5), lambda path, x: mx.save(str(path), x))

    every = {dtype: drawn(10 + i, (i % 3, i + 1), dtype) for i, dtype in enumerate(DTYPES)}
    all_of("every", np.savez, **every)
    all_of("every_compressed", np.savez_compressed, **every)
    of_mlx = dict(x=mx.array(drawn(8, (2, 2), "int32")), brain=brain, t=mx.array(drawn(9, (2, 3), "float16")).T)
    all_of("mlx", mx.savez, **of_mlx)
    all_of("mlx_compressed", mx.savez_compressed, **of_mlx)
    all_of("zeros", np.savez_compressed, zeros=np.zeros(5_000, np.int8))
    (folder / "expected.json").write_text(json.dumps(expected) + "\n")


main()
