"""llama.cpp's ggml, or MLX, as a peer for products with quantized weights: as torch_bench.py, one request per line on
stdin, one JSON line per answer on stdout.

Request: `NAME SIZES... FORMAT reps N`, where the sizes are rows of activations (one if there are two sizes), rows of
weights and columns. A run multiplies as many distinct matrices as `qmv` asks for: at least 256 MiB of them; `qmm` has
one. ggml's weights lie in the buffer that llama.cpp would choose for them, so that they are repacked if it would.
"""
import ctypes
import importlib.util
import json
import pathlib
import subprocess
import sys
import time

import numpy as np

THREADS = 2
CYCLE = 256 << 20
# Number in ggml, weights and bytes of a block, and where its float16 lie.
FORMATS = {"Q4_0": (2, 32, 18, (0,)), "Q8_0": (8, 32, 34, (0,)), "Q4_K": (12, 256, 144, (0, 2))}


def blocks(name, n, k, seed):
    """The blocks that wootz's side multiplies with: see `blocks` in crates/bench/src/quantized.rs."""
    _, weights, size, halves = FORMATS[name]
    count = n * k // weights * size
    start = (seed * 0xD1342543DE82EF95) & 0xFFFFFFFFFFFFFFFF
    words = np.arange(1, -(-count // 8) + 1, dtype=np.uint64)
    words *= np.uint64(0x9E3779B97F4A7C15)
    words += np.uint64(start)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        words ^= words >> np.uint64(shift)
        words *= np.uint64(factor)
    words ^= words >> np.uint64(31)
    blocks = words.view(np.uint8)[:count].reshape(-1, size)
    for half in halves:
        blocks[:, half : half + 2] = np.array([0.01], np.float16).view(np.uint8)
    return blocks


class InitParams(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("buffer", ctypes.c_void_p), ("no_alloc", ctypes.c_bool)]


class Ggml:
    """ggml through the shared libraries of llama-cpp-python, or of a folder that is given."""

    def __init__(self, folder=None, only=None):
        if not folder:
            package = importlib.util.find_spec("llama_cpp").origin
            folder = pathlib.Path(package).parent / "lib"
        self.libraries = [
            ctypes.CDLL(str(next(pathlib.Path(folder).rglob(f"libggml-{part}.so"))), ctypes.RTLD_GLOBAL)
            for part in ("base", "cpu")
        ]
        self.folder, self.only, self.kept = str(folder), only, []
        # It would tell of every matrix that it repacks.
        silent = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda *_: None)
        self.kept.append(silent)
        self.call("ggml_log_set", silent, None, returns=None)
        self.backend = self.call("ggml_backend_cpu_init")
        self.call("ggml_backend_cpu_set_n_threads", self.backend, ctypes.c_int(THREADS), returns=None)
        pool = self.call("ggml_threadpool_new", self.pool_params())
        self.call("ggml_backend_cpu_set_threadpool", self.backend, pool, returns=None)

    def call(self, name, *arguments, returns=ctypes.c_void_p):
        for library in self.libraries:
            try:
                function = getattr(library, name)
            except AttributeError:
                continue
            function.restype = returns
            wrapped = [ctypes.c_void_p(a) if isinstance(a, int) else a for a in arguments]
            return function(*wrapped)
        raise AttributeError(name)

    def pool_params(self):
        # A structure of less than this size.
        params = ctypes.create_string_buffer(4096)
        self.call("ggml_threadpool_params_init", params, ctypes.c_int(THREADS), returns=None)
        self.kept.append(params)
        return params

    def version(self):
        return "llama.cpp's ggml " + self.call("ggml_version", returns=ctypes.c_char_p).decode()

    def context(self):
        params = InitParams(16 << 20, None, True)
        return self.call("ggml_init", params)

    def buffers(self):
        """The kinds of memory that llama.cpp tries in turn."""
        device = self.call("ggml_backend_get_device", self.backend)
        registry = self.call("ggml_backend_dev_backend_reg", device)
        name = ctypes.c_char_p(b"ggml_backend_dev_get_extra_bufts")
        address = self.call("ggml_backend_reg_get_proc_address", registry, name)
        kinds = []
        if address:
            function = ctypes.CFUNCTYPE(ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p)(address)
            extra = function(device)
            while extra and extra[len(kinds)]:
                kinds.append(extra[len(kinds)])
        kinds.append(self.call("ggml_backend_cpu_buffer_type"))
        if self.only is None:
            self.only = [name for name in map(self.name, kinds) if self.works(name)]
        return device, [kind for kind in kinds if self.name(kind) in self.only]

    def name(self, kind):
        return self.call("ggml_backend_buft_name", kind, returns=ctypes.c_char_p).decode()

    def works(self, name):
        """Whether this machine runs what is compiled for a kind of memory: it may lack an instruction after all."""
        command = [sys.executable, "-B", __file__, "llama", self.folder, name]
        request = "qmm 4 512 512 Q4_0 reps 1\n"
        done = subprocess.run(command, input=request, text=True, capture_output=True)
        if done.returncode != 0:
            print(f"{name}: ended with {done.returncode} and is not used", file=sys.stderr)
        return done.returncode == 0

    def products(self, m, n, k, name, count):
        number = FORMATS[name][0]
        device, kinds = self.buffers()
        two = lambda context, kind, a, b: self.call(
            "ggml_new_tensor_2d", context, ctypes.c_int(kind), ctypes.c_int64(a), ctypes.c_int64(b)
        )
        for kind in kinds:
            context, others = self.context(), self.context()
            matrices = [two(context, number, k, n) for _ in range(count)]
            memory = self.call("ggml_backend_alloc_ctx_tensors_from_buft", context, kind)
            x = two(others, 0, k, m)
            results = [self.call("ggml_mul_mat", others, w, x) for w in matrices]
            if self.call("ggml_backend_dev_supports_op", device, results[0], returns=ctypes.c_bool):
                break
            self.call("ggml_backend_buffer_free", memory, returns=None)
        host = self.call("ggml_backend_cpu_buffer_type")
        self.call("ggml_backend_alloc_ctx_tensors_from_buft", others, host)
        random = np.random.default_rng(1)
        for seed, matrix in enumerate(matrices):
            self.set(matrix, blocks(name, n, k, seed))
        self.set(x, random.uniform(-1, 1, (m, k)).astype(np.float32))
        graph = self.call("ggml_new_graph", others)
        for result in results:
            self.call("ggml_build_forward_expand", graph, result, returns=None)
        run = lambda: self.call("ggml_backend_graph_compute", self.backend, graph, returns=ctypes.c_int)
        return run, self.name(kind)

    def set(self, tensor, values):
        data = ctypes.c_void_p(values.ctypes.data)
        size = ctypes.c_size_t(values.nbytes)
        self.call("ggml_backend_tensor_set", tensor, data, ctypes.c_size_t(0), size, returns=None)


class Mlx:
    """MLX on the CPU, which has a thread of its own."""

    def __init__(self):
        import mlx.core as mx

        self.mx = mx
        mx.set_default_device(mx.cpu)

    def version(self):
        return "MLX " + self.mx.__version__

    def products(self, m, n, k, name, count):
        if name != "affine4":
            raise ValueError(f"MLX has no {name}")
        mx = self.mx
        # As on wootz's side, whose random numbers are MLX's.
        words = lambda seed: blocks("Q8_0", n, k, seed).reshape(-1)[: n * k // 2].view(np.uint32)
        codes = [mx.array(words(seed).reshape(n, k // 8)) for seed in range(count)]
        numbers = lambda seed: mx.random.uniform(0.005, 0.01, (n, k // 64), mx.bfloat16, mx.random.key(seed))
        scales = [numbers(seed) for seed in range(count)]
        x = mx.random.uniform(-1, 1, (m, k), key=mx.random.key(7))
        mx.eval(codes, scales, x)
        pairs = list(zip(codes, scales))
        run = lambda: mx.eval([mx.quantized_matmul(x, w, s, s, True, 64, 4) for w, s in pairs])
        return run, "CPU"


def best(f, reps):
    f()
    times = []
    for _ in range(reps):
        start = time.perf_counter()
        f()
        times.append(time.perf_counter() - start)
    return min(times)


def answer(peer, line, ready):
    words = line.split()
    if words == ["version"]:
        return {"version": peer.version(), "threads": THREADS}
    sizes, name, reps = [int(word) for word in words[1:-3]], words[-3], int(words[-1])
    m, n, k = [1, *sizes][-3:]
    key = " ".join([str(m), str(n), str(k), name])
    if key not in ready:
        ready.clear()
        bytes_of = n * k // 64 * 36 if name == "affine4" else n * k // FORMATS[name][1] * FORMATS[name][2]
        count = -(-CYCLE // bytes_of) if words[0].startswith("qmv") else 1
        ready[key] = peer.products(m, n, k, name, count)
    return {"ms": best(ready[key][0], reps) * 1e3, "where": ready[key][1]}


def main():
    # After a folder of libraries comes the only kind of memory to be tried.
    peer = Mlx() if sys.argv[1] == "mlx" else Ggml(*sys.argv[2:3], *[[name] for name in sys.argv[3:4]])
    ready = {}
    for line in sys.stdin:
        try:
            out = answer(peer, line, ready)
        except Exception as e:
            out = {"error": f"{type(e).__name__}: {e}"}
        print(json.dumps(out), flush=True)


if __name__ == "__main__":
    main()
