"""Writes small npy and npz files with NumPy and MLX, and what they hold: `arrays_record.py FOLDER`.

Fuzzing starts from them, so they hold a little of everything.

`expected.json` has for each file, or for each array of an npz file, its dtype, its shape and its bytes in
hexadecimal digits, little-endian and row-major. `hostile` has files that say what cannot be."""
import io
import json
import pathlib
import struct
import sys
import zipfile

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


def npy(header, data=b"", version=1):
    """An npy file with any header."""
    text = header.encode() if isinstance(header, str) else header
    length = struct.pack("<H" if version == 1 else "<I", len(text))
    return b"\x93NUMPY" + bytes([version, 0]) + length + text + data


def archive(*files, method=zipfile.ZIP_DEFLATED):
    """The bytes of a zip archive."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", method) as zipped:
        for name, data in files:
            zipped.writestr(zipfile.ZipInfo(name), data, method)
    return made.getvalue()


def with_field(made, magic, at, layout, value):
    """Every record of a zip archive that begins so, with another value in it."""
    made, place = bytearray(made), -1
    while (place := made.find(magic, place + 1)) >= 0:
        struct.pack_into(layout, made, place + at, value)
    return bytes(made)


def hostile():
    """Files that no reader should read, by name."""
    said = "{{'descr': '{}', 'fortran_order': False, 'shape': {}, }}"
    good = npy(said.format("<i4", "(1,)"), bytes(4))
    bomb = archive(("x.npy", npy(said.format("|u1", "(4000000,)"), bytes(4000000))))
    packed = archive(("x.npy", good))
    local, central, end = b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06"
    # Many names for one entry, so that a little data counts often.
    one = packed.index(central)
    last = packed.index(end)
    record = packed[one:last]
    names = [record.replace(b"x.npy", b"%05d" % i + b".npy").replace(b"\x05\0", b"\x09\0", 1) for i in range(40)]
    many = packed[:one] + b"".join(names)
    many += end + struct.pack("<HHHHIIH", 0, 0, 40, 40, sum(map(len, names)), one, 0)
    return {
        "overflow.npy": npy(said.format("<f8", "(4611686018427387904, 8)")),
        "overflow_with_zero.npy": npy(said.format("<f8", "(0, 4611686018427387904, 8)")),
        "huge.npy": npy(said.format("<f4", "(1000000000000,)"), bytes(64)),
        "negative.npy": npy(said.format("<f4", "(-1,)"), bytes(4)),
        "header_length.npy": npy("", version=2)[:8] + b"\xff\xff\xff\xff{",
        "deep.npy": npy("{'descr': " + "(" * 3000),
        "axes.npy": npy(said.format("|u1", "(" + "1," * 3000 + ")"), bytes(1)),
        "objects.npy": npy(said.format("|O", "(1,)"), b"cos\nsystem\n(S'true'\ntR."),
        "fields.npy": npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }", bytes(4)),
        "not_text.npy": npy(b"\xff\xfe{}"),
        "short.npy": good[:-1],
        "long.npy": good + b"\0",
        "bomb.npz": with_field(bomb, central, 24, "<I", 0x7fffffff),
        "size.npz": with_field(with_field(packed, central, 24, "<I", 7), local, 22, "<I", 7),
        "sum.npz": with_field(with_field(packed, central, 16, "<I", 7), local, 14, "<I", 7),
        "place.npz": with_field(packed, central, 42, "<I", 0xfffffff0),
        "method.npz": with_field(with_field(packed, central, 10, "<H", 99), local, 8, "<H", 99),
        "encrypted.npz": with_field(with_field(packed, central, 8, "<H", 1), local, 6, "<H", 1),
        "count.npz": with_field(packed, end, 10, "<H", 0xffff),
        "directory.npz": with_field(packed, end, 16, "<I", 0xffffff00),
        "names.npz": many,
        "text.npz": archive(("x.txt", b"text")),
        "twice.npz": with_field(archive(("x.npy", good), ("y.npy", good)), b"y.npy", 0, "<B", ord("x")),
    }


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
    (folder / "hostile").mkdir(exist_ok=True)
    for name, data in hostile().items():
        (folder / "hostile" / name).write_bytes(data)
    (folder / "expected.json").write_text(json.dumps(expected) + "\n")


main()
