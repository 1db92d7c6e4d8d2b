"""PyTorch as a peer: one request per line on stdin, one JSON line per answer on stdout.

Request: `NAME SIZES... DTYPE reps N`, such as `softmax 4096 4096 f32 reps 5`. Answer: {"ms": best},
with {"bytes": peak} where memory is compared, or {"error": text}. `version` answers {"version": ..., "threads": 2}; the end of stdin ends it.
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


def layer_norm(shape, dtype):
    x, w, b = (torch.randn(s, dtype=dtype) for s in (shape, shape[-1:], shape[-1:]))
    return lambda: F.layer_norm(x, shape[-1:], w, b, 1e-5)


def layer_norm_backward(shape, dtype):
    x = torch.randn(shape, dtype=dtype, requires_grad=True)
    w, b = (torch.randn(shape[-1:], dtype=dtype, requires_grad=True) for _ in range(2))
    dy = torch.randn(shape, dtype=dtype)
    with torch.enable_grad():
        y = F.layer_norm(x, shape[-1:], w, b, 1e-5)
    return lambda: torch.autograd.grad(y, (x, w, b), dy, retain_graph=True)


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


def cross_entropy_train(shape, dtype):
    logits = torch.randn(shape, dtype=dtype, requires_grad=True)
    labels, g = torch.randint(shape[1], (shape[0],)), torch.randn(shape[0], dtype=dtype)

    def f():
        with torch.enable_grad():
            loss = F.cross_entropy(logits, labels, reduction="none")
        return torch.autograd.grad(loss, logits, g)
    return f


def attention_decode(shape, dtype):
    q = torch.randn((*shape[:2], 1, shape[3]), dtype=dtype)
    k, v = torch.randn(shape, dtype=dtype), torch.randn(shape, dtype=dtype)

    def f():
        return F.scaled_dot_product_attention(q, k, v)
    f.times = 50 if shape[2] < 1024 else 10  # as wootz
    return f


def conv2d_depthwise(shape, dtype):
    return conv2d(shape, dtype, groups=shape[2])


def conv2d(shape, dtype, groups=1):
    """An image in either order of memory; of the two the one that is quicker."""
    height, width, channels, outputs, side = shape
    ways = []
    for order in (torch.contiguous_format, torch.channels_last):
        x = torch.randn(1, channels, height, width, dtype=dtype).to(memory_format=order)
        w = torch.randn(outputs, channels // groups, side, side, dtype=dtype)
        w = w.to(memory_format=order)
        ways.append(lambda x=x, w=w: F.conv2d(x, w, padding=side // 2, groups=groups))
    return min(ways, key=lambda way: best(way, 5))


def sort(shape, dtype):
    x = torch.rand(shape, dtype=dtype) * 2 - 1
    out = torch.empty(shape, dtype=dtype), torch.empty(shape, dtype=torch.int64)
    return lambda: torch.sort(x, out=out)


def argsort(shape, dtype):
    x = torch.rand(shape, dtype=dtype) * 2 - 1
    return lambda: torch.argsort(x)


def topk(shape, dtype):
    size, k = shape
    x = torch.rand(size, dtype=dtype) * 2 - 1
    return lambda: torch.topk(x, k)


def mlp_step(shape, dtype):
    return eager_step(lambda: mlp(shape, dtype))


def mlp_step_compiled(shape, dtype):
    return compiled_step(lambda: mlp(shape, dtype))


def gpt_step(shape, dtype):
    return eager_step(lambda: gpt_block(shape, dtype))


def eager_step(make):
    """A step of training with AdamW; of its implementations the one that is quickest."""
    return quickest_step([Step(*make(), {"fused": True}), Step(*make(), {}),
                          Step(*make(), {"foreach": True})])


def compiled_step(make):
    """As `eager_step`, with forward, backward and maybe the optimizer's step compiled."""
    steps = [Step(*make(), {"fused": True}), Step(*make(), {})]
    for step in steps:
        step.loss = torch.compile(step.loss)
    steps[1].step = torch.compile(steps[1].step, fullgraph=False)
    return quickest_step(steps)


def mlp(shape, dtype):
    layers, width, batch = shape
    stack = [torch.nn.Linear(width, width, dtype=dtype) for _ in range(layers)]
    for place in range(layers - 1, 0, -1):
        stack.insert(place, torch.nn.ReLU())
    return torch.nn.Sequential(*stack), (batch, width), dtype


def gpt_block(shape, dtype):
    dims, heads, length, batch = shape
    return GptBlock(dims, heads).to(dtype), (batch, length, dims), dtype


class GptBlock(torch.nn.Module):
    def __init__(self, dims, heads):
        super().__init__()
        self.heads = heads
        self.attention_norm, self.mlp_norm = torch.nn.LayerNorm(dims), torch.nn.LayerNorm(dims)
        self.qkv, self.out = torch.nn.Linear(dims, 3 * dims), torch.nn.Linear(dims, dims)
        self.up, self.down = torch.nn.Linear(dims, 4 * dims), torch.nn.Linear(4 * dims, dims)

    def forward(self, x):
        q, k, v = self.qkv(self.attention_norm(x)).unflatten(-1, (3, self.heads, -1)).unbind(-3)
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(-2))
        return x + self.down(F.gelu(self.up(self.mlp_norm(x))))


class Step:
    def __init__(self, model, shape, dtype, options):
        self.model = model
        self.x, self.y = torch.randn(shape, dtype=dtype), torch.randn(shape, dtype=dtype)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, **options)
        self.loss = lambda x, y: F.mse_loss(self.model(x), y)
        self.step = self.optimizer.step

    def __call__(self):
        with torch.enable_grad():
            self.optimizer.zero_grad(set_to_none=True)
            self.loss(self.x, self.y).backward()
            self.step()

    def peak_bytes(self):
        """What lives from step to step, and the most that the allocator gave out during one."""
        self.optimizer.zero_grad(set_to_none=True)
        kept = [self.x, self.y, *self.model.parameters()]
        for state in self.optimizer.state.values():
            kept += [value for value in state.values() if torch.is_tensor(value)]
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU],
                                    profile_memory=True) as profile:
            self()
        events = [e for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"]
        held = most = 0
        for event in sorted(events, key=lambda e: e.start_ns()):
            held += event.nbytes()
            most = max(most, held)
        return sum(tensor.nbytes for tensor in kept) + most


def quickest_step(steps):
    times = []
    for step in steps:
        try:
            times.append((best(step, 5), step))
        except Exception as e:
            print(f"{type(e).__name__}: {str(e).splitlines()[0]}", file=sys.stderr)
            failure = e
    if not times:
        raise failure
    return min(times, key=lambda time: time[0])[1]


OPS = {f.__name__: f for f in (softmax, softmax_backward, rms_norm, rms_norm_backward, layer_norm,
                               layer_norm_backward, chain8, chain_exp_tanh, matmul, attention,
                               attention_train, attention_decode, cross_entropy_train, conv2d,
                               conv2d_depthwise, sort, argsort, topk, mlp_step,
                               mlp_step_compiled, gpt_step)}


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
    out = {"ms": best(ready[key], reps * getattr(ready[key], "times", 1)) * 1e3}
    if hasattr(ready[key], "peak_bytes") and "bytes " + key not in ready:
        ready["bytes " + key] = ready[key].peak_bytes()
    if "bytes " + key in ready:
        out["bytes"] = ready["bytes " + key]
    return out


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
