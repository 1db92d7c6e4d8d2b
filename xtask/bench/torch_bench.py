"""PyTorch as a peer: one request per line on stdin, one JSON line per answer on stdout.

Request: `NAME SIZES... DTYPE reps N`, such as `softmax 4096 4096 f32 reps 5`. Answer: {"ms": best}
or {"error": text}. `version` answers {"version": ..., "threads": 2}; the end of stdin ends it.
Inputs and outputs are made once per request name and kept, so repeated requests time only the op.
"""
import json
import sys
import time

import torch
import torch.nn.functional as F

THREADS = 2
DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


def softmax(shape, dtype):
    x, out = torch.randn(shape, dtype=dtype), torch.empty(shape, dtype=dtype)
    return lambda: torch._softmax(x, -1, False, out=out)


def softmax_backward(shape, dtype):
    y, dy = torch.softmax(torch.randn(shape, dtype=dtype), -1), torch.randn(shape, dtype=dtype)
    out = torch.empty(shape, dtype=dtype)
    return lambda: torch._softmax_backward_data(dy, y, -1, dtype, grad_input=out)


def rms_norm(shape, dtype):
    x, w = torch.randn(shape, dtype=dtype), torch.ones(shape[-1], dtype=dtype)
    return lambda: F.rms_norm(x, (shape[-1],), w, 1e-5)


def rms_norm_backward(shape, dtype):
    x = torch.randn(shape, dtype=dtype, requires_grad=True)
    w = torch.ones(shape[-1], dtype=dtype, requires_grad=True)
    dy = torch.randn(shape, dtype=dtype)
    with torch.enable_grad():
        y = F.rms_norm(x, (shape[-1],), w, 1e-5)
    return lambda: torch.autograd.grad(y, (x, w), dy, retain_graph=True)


def chain8(shape, dtype):
    """Eight adds, multiplies and maxima of one array."""
    def f(x):
        for _ in range(2):
            x = torch.maximum((x + 0.5) * 1.5, x) + 0.25
        return x
    return quickest(f, torch.randn(shape, dtype=dtype))


def chain_exp_tanh(shape, dtype):
    def f(x):
        return torch.tanh(torch.exp(x * 0.5) + 0.25) * x
    return quickest(f, torch.randn(shape, dtype=dtype))


def matmul(shape, dtype):
    m, k, n = shape
    a, b = torch.randn(m, k, dtype=dtype), torch.randn(k, n, dtype=dtype)
    out = torch.empty(m, n, dtype=dtype)
    return lambda: torch.matmul(a, b, out=out)


def attention(shape, dtype):
    q, k, v = (torch.randn(shape, dtype=dtype) for _ in range(3))
    return lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True)


def attention_train(shape, dtype):
    q, k, v = (torch.randn(shape, dtype=dtype, requires_grad=True) for _ in range(3))
    dout = torch.randn(shape, dtype=dtype)

    def f():
        with torch.enable_grad():
            out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return torch.autograd.grad(out, (q, k, v), dout)
    return f


def attention_decode(shape, dtype):
    q = torch.randn((*shape[:2], 1, shape[3]), dtype=dtype)
    k, v = torch.randn(shape, dtype=dtype), torch.randn(shape, dtype=dtype)
    return lambda: F.scaled_dot_product_attention(q, k, v)


OPS = {f.__name__: f for f in (attention, attention_train, attention_decode, softmax,
                               softmax_backward, rms_norm, rms_norm_backward, chain8,
                               chain_exp_tanh, matmul)}


def quickest(f, x):
    """The compiled form if there is a C++ compiler and it is quicker, else the eager one."""
    try:
        compiled = torch.compile(f)
        if best(lambda: compiled(x), 3) < best(lambda: f(x), 3):
            return lambda: compiled(x)
    except Exception as e:
        print(f"torch.compile is not available: {str(e).splitlines()[0]}", file=sys.stderr)
    return lambda: f(x)


def best(f, reps):
    f()
    times = []
    for _ in range(reps):
        start = time.perf_counter()
        f()
        times.append(time.perf_counter() - start)
    return min(times)


def answer(line, ready):
    words = line.split()
    if words == ["version"]:
        return {"version": torch.__version__, "threads": torch.get_num_threads()}
    name, sizes, dtype, reps = words[0], words[1:-3], words[-3], int(words[-1])
    key = " ".join(words[:-2])
    if key not in ready:
        ready.clear()  # one set of inputs at a time
        ready[key] = OPS[name](tuple(map(int, sizes)), DTYPES[dtype])
    return {"ms": best(ready[key], reps) * 1e3}


def main():
    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    torch.set_grad_enabled(False)
    ready = {}
    for line in sys.stdin:
        try:
            out = answer(line, ready)
        except Exception as e:
            out = {"error": f"{type(e).__name__}: {e}"}
        print(json.dumps(out), flush=True)


if __name__ == "__main__":
    main()
