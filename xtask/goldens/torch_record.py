"""Records attention and its gradients from PyTorch: python xtask/goldens/torch_record.py

Writes goldens/torch/attention.safetensors. Everything is computed in float64 from inputs that
float32 holds, and stored as float32.
"""
import json
import pathlib
import struct

import torch
import torch.nn.functional as F

SCALE = 0.4


def numbers(generator, *shape):
    return torch.randn(*shape, generator=generator, dtype=torch.float32)


def lower_right(queries, keys):
    return torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries)


def record(name, arrays, heads, key_heads, queries, keys, dims, mask):
    generator = torch.Generator().manual_seed(sum(name.encode()))
    q = numbers(generator, 2, heads, queries, dims)
    k = numbers(generator, 2, key_heads, keys, dims)
    v = numbers(generator, 2, key_heads, keys, dims)
    dout = numbers(generator, 2, heads, queries, dims)
    inputs = [x.double().requires_grad_(True) for x in (q, k, v)]
    shown = {None: None, "causal": lower_right(queries, keys)}.get(mask)
    if mask == "additive":
        added = numbers(generator, heads, queries, keys)
        arrays[f"{name}.mask"] = added
        shown = added.double().requires_grad_(True)
        inputs.append(shown)
    out = F.scaled_dot_product_attention(
        *inputs[:3], attn_mask=shown, scale=SCALE, enable_gqa=heads != key_heads
    )
    gradients = torch.autograd.grad(out, inputs, dout.double())
    for key, value in [("q", q), ("k", k), ("v", v), ("dout", dout), ("out", out)]:
        arrays[f"{name}.{key}"] = value
    for key, value in zip(["dq", "dk", "dv", "dmask"], gradients):
        arrays[f"{name}.{key}"] = value


def write(path, arrays, about):
    header, data = {"__metadata__": about}, b""
    for name, array in sorted(arrays.items()):
        bytes_ = array.detach().float().contiguous().numpy().tobytes()
        span = [len(data), len(data) + len(bytes_)]
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": span}
        data += bytes_
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def main():
    arrays = {}
    record("plain", arrays, 2, 2, 5, 7, 8, None)
    record("grouped", arrays, 4, 2, 9, 9, 8, "causal")
    record("more_keys", arrays, 2, 1, 5, 13, 16, "causal")
    record("additive", arrays, 4, 1, 6, 10, 5, "additive")
    about = {"recorded_from": f"PyTorch {torch.__version__}", "scale": str(SCALE)}
    root = pathlib.Path(__file__).parents[2]
    write(root / "goldens/torch/attention.safetensors", arrays, about)


main()
