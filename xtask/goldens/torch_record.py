"""Records results and gradients from PyTorch: python xtask/goldens/torch_record.py

Writes to goldens/torch attention.safetensors, unseen.safetensors with attention of queries that see nothing, and
rows.safetensors, which has cross entropy, divergences and layer norms. Everything is computed in float64 from inputs that
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


def record_formulas(name, arrays, heads, key_heads, queries, keys, dims):
    """Causal attention with more queries than keys. PyTorch has NaN in rows that see nothing, so that the formulas are
    written out: such rows are zeros, and have no gradients."""
    generator = torch.Generator().manual_seed(sum(name.encode()))
    q = numbers(generator, 2, heads, queries, dims)
    k = numbers(generator, 2, key_heads, keys, dims)
    v = numbers(generator, 2, key_heads, keys, dims)
    dout = numbers(generator, 2, heads, queries, dims)
    shown = lower_right(queries, keys)
    group = heads // key_heads
    ks, vs = (x.double().repeat_interleave(group, 1) for x in (k, v))
    scores = (q.double() @ ks.mT * SCALE).masked_fill(~shown, -torch.inf)
    most = scores.amax(-1, keepdim=True)
    powers = torch.exp(scores - most.masked_fill(most.isinf(), 0))
    sums = powers.sum(-1, keepdim=True)
    p = powers / sums.masked_fill(sums == 0, 1)
    out, dp = p @ vs, dout.double() @ vs.mT
    ds = p * (dp - (p * dp).sum(-1, keepdim=True)) * SCALE
    shared = lambda x: x.unflatten(1, (key_heads, group)).sum(2)
    dq, dk, dv = ds @ ks, shared(ds.mT @ q.double()), shared(p.mT @ dout.double())
    named = {"q": q, "k": k, "v": v, "dout": dout, "out": out, "dq": dq, "dk": dk, "dv": dv}
    arrays.update({f"{name}.{key}": value for key, value in named.items()})


def doubles(*arrays):
    return [x.double().requires_grad_(True) for x in arrays]


def cross_entropy(name, arrays, rows, classes, smoothing, ignored):
    generator = torch.Generator().manual_seed(sum(name.encode()))
    logits, g = numbers(generator, rows, classes) * 5, numbers(generator, rows)
    labels = torch.randint(classes, (rows,), generator=generator)
    labels[:ignored] = -100
    (x,) = doubles(logits)
    loss = F.cross_entropy(x, labels, reduction="none", label_smoothing=smoothing)
    (dx,) = torch.autograd.grad(loss, [x], g.double())
    named = {"logits": logits, "labels": labels, "g": g, "loss": loss, "dlogits": dx}
    arrays.update({f"{name}.{key}": value for key, value in named.items()})


def divergence(name, arrays, rows, classes):
    generator = torch.Generator().manual_seed(sum(name.encode()))
    p, q, g = (numbers(generator, *shape) for shape in [(rows, classes)] * 2 + [(rows,)])
    inputs = doubles(p, q)
    logs = [F.log_softmax(x, -1) for x in inputs]
    loss = F.kl_div(logs[1], logs[0], reduction="none", log_target=True).sum(-1)
    dp, dq = torch.autograd.grad(loss, inputs, g.double())
    named = {"p": p, "q": q, "g": g, "loss": loss, "dp": dp, "dq": dq}
    arrays.update({f"{name}.{key}": value for key, value in named.items()})


def layer_norm(name, arrays, rows, columns):
    generator = torch.Generator().manual_seed(sum(name.encode()))
    x, dy = numbers(generator, rows, columns) * 3 + 1, numbers(generator, rows, columns)
    weight, bias = numbers(generator, columns), numbers(generator, columns)
    inputs = doubles(x, weight, bias)
    y = F.layer_norm(inputs[0], [columns], inputs[1], inputs[2], eps=1e-5)
    dx, dweight, dbias = torch.autograd.grad(y, inputs, dy.double())
    named = {"x": x, "weight": weight, "bias": bias, "dy": dy, "y": y}
    named.update({"dx": dx, "dweight": dweight, "dbias": dbias})
    arrays.update({f"{name}.{key}": value for key, value in named.items()})


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
    arrays = {}
    record_formulas("more_queries", arrays, 4, 2, 9, 5, 8)
    write(root / "goldens/torch/unseen.safetensors", arrays, about)
    arrays = {}
    cross_entropy("labels", arrays, 5, 37, 0.0, 0)
    cross_entropy("smoothed", arrays, 6, 300, 0.1, 2)
    divergence("divergence", arrays, 4, 50)
    layer_norm("layer_norm", arrays, 7, 33)
    write(root / "goldens/torch/rows.safetensors", arrays, {"recorded_from": about["recorded_from"]})


main()
