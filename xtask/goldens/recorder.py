"""Collects cases, runs each one on MLX and writes cases.jsonl and tensors.safetensors.

A case is written as `r.case("clip", a=x, a_min=0.0, a_max=Array(...))`: keyword order is MLX's
parameter order, arrays and weak scalars become `inputs`, everything else becomes `attrs`.
"""
import faulthandler
import hashlib
import json
import os
import struct
import zlib

import mlx.core as mx
import numpy as np

SAFETENSORS = {"bool": "BOOL", "uint8": "U8", "uint16": "U16", "uint32": "U32", "uint64": "U64",
               "int8": "I8", "int16": "I16", "int32": "I32", "int64": "I64", "float16": "F16",
               "bfloat16": "BF16", "float32": "F32", "float64": "F64"}
FLOATS = ("float16", "bfloat16", "float32")
INTS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
ALL = ("bool",) + INTS + FLOATS
WIDER = {"float16": "float32", "bfloat16": "float32", "float32": "float64"}

# (rtol, atol as a factor of the largest finite expected value) by dtype and kind of op.
TOLERANCE = {
    "float32": {"elementwise": (1e-5, 1e-7), "reduce": (2e-5, 2e-6), "contract": (1e-4, 1e-5),
                "gradient": (1e-4, 1e-5)},
    "bfloat16": {"elementwise": (8e-3, 1e-3), "reduce": (1.6e-2, 4e-3), "contract": (2e-2, 8e-3),
                 "gradient": (3e-2, 1e-2)},
    "float16": {"elementwise": (1e-3, 1e-4), "reduce": (2e-3, 5e-4), "contract": (3e-3, 1e-3),
                "gradient": (4e-3, 1.5e-3)},
    "float64": {"elementwise": (1e-7, 1e-9), "reduce": (1e-7, 1e-8), "contract": (1e-6, 1e-7),
                "gradient": (1e-6, 1e-7)},
}
# Parameters that MLX takes only by keyword.
KEYWORD_ONLY = {"precise", "reverse", "inclusive", "equal_nan"}
MODULES = {"": mx, "fast": mx.fast, "random": mx.random}


class Array:
    """A tensor of the file: numpy values with a dtype name, and view steps applied on loading."""

    def __init__(self, values, dtype, view=()):
        self.dtype, self.view = dtype, [list(step) for step in view]
        with np.errstate(all="ignore"):
            if dtype == "bfloat16":
                exact = np.array(values, dtype=np.float32)
                self.data = np.array(mx.array(exact).astype(mx.bfloat16).view(mx.uint16))
                self.data = self.data.reshape(exact.shape)
            else:
                self.data = np.array(values, dtype=np.dtype(dtype))

    @staticmethod
    def of(result):
        """The tensor of an evaluated MLX array."""
        out = Array.__new__(Array)
        out.dtype, out.view = str(result.dtype).split(".")[-1].replace("bool_", "bool"), []
        out.data = np.array(result.view(mx.uint16) if out.dtype == "bfloat16" else result)
        return out

    def viewed(self, *steps):
        """The same tensor, seen through `steps` (see the case format)."""
        out = Array.__new__(Array)
        out.dtype, out.data, out.view = self.dtype, self.data, [list(s) for s in steps]
        return out

    def mlx(self, wide=False):
        """This tensor on MLX, one precision higher if `wide`."""
        if self.dtype == "bfloat16":
            a = mx.array(self.data).view(mx.bfloat16)
        else:
            a = mx.array(self.data, dtype=mlx_dtype(self.dtype))
        if wide and self.dtype in WIDER:
            a = a.astype(mlx_dtype(WIDER[self.dtype]))
        for kind, arg in self.view:
            if kind == "transpose":
                a = a.transpose(arg)
            elif kind == "slice":
                a = a[tuple(slice(*x) for x in arg)]
            else:
                a = mx.broadcast_to(a, arg)
        return a


class Weak:
    """A weakly typed scalar (int, float or bool)."""

    def __init__(self, value):
        self.value = value

    def json(self):
        kind = type(self.value).__name__
        value = self.value
        if kind == "float" and not np.isfinite(value):
            value = str(value)
        return {"scalar": value, "type": kind}


class Index:
    """An index expression: a list of ints, slices, None, Ellipsis and integer `Array`s."""

    def __init__(self, *items):
        self.items = items

    def mlx(self):
        out = [i.mlx() if isinstance(i, Array) else i for i in self.items]
        return out[0] if len(out) == 1 else tuple(out)

    def json(self, recorder):
        out = []
        for i in self.items:
            if isinstance(i, Array):
                out.append({"array": recorder.tensor(i)})
            elif isinstance(i, slice):
                out.append({"slice": [i.start, i.stop, i.step]})
            elif i is None:
                out.append({"newaxis": True})
            elif i is Ellipsis:
                out.append({"ellipsis": True})
            else:
                out.append({"int": i})
        return out


ABSENT = object()  # an optional array that is not given


def mlx_dtype(name):
    return getattr(mx, "bool_" if name == "bool" else name)


def widen(name, wide):
    return WIDER.get(name, name) if wide else name


class Recorder:
    """The cases recorded so far and their tensors, shared by content."""

    def __init__(self):
        self.cases, self.tensors, self.ids = [], {}, set()
        self.dropped, self.rejected = [], []
        self.family = ""

    # ---- inputs -------------------------------------------------------------------------------
    def random(self, shape, dtype="float32", low=-3.0, high=3.0, seed=0):
        """Uniform values; the same arguments give the same tensor."""
        text = f"{self.family} {shape} {dtype} {low} {high} {seed}"
        rng = np.random.RandomState(zlib.crc32(text.encode()))
        if dtype == "bool":
            return Array(rng.randint(0, 2, size=shape) > 0, dtype)
        if dtype in INTS:
            low = max(int(low), 0) if dtype.startswith("u") else int(low)
            return Array(rng.randint(low, max(int(high), low + 1) + 1, size=shape), dtype)
        return Array(rng.random_sample(shape) * (high - low) + low, dtype)

    def integers(self, shape, low, high, dtype="int32", seed=0):
        """Integers of [low, high)."""
        rng = np.random.RandomState(zlib.crc32(f"{shape} {low} {high} {seed}".encode()))
        return Array(rng.randint(low, high, size=shape), dtype)

    # ---- cases --------------------------------------------------------------------------------
    def case(self, op, *, kind="elementwise", exact=False, order=None, tier=1, vjp=True, **params):
        """Runs one call and stores it. `order="set"` marks results without a promised order."""
        out = [Array.of(x) for x in self.call(op, params)]
        inputs, attrs = {}, {}
        for name, value in params.items():
            if isinstance(value, Index):
                attrs[name] = value.json(self)
            elif is_input(value):
                inputs[name] = self.input(value)
            elif value is not ABSENT:
                attrs[name] = value
        c = {"op": op, "tier": tier, "src": "generated", "inputs": inputs, "attrs": attrs,
             "out": [self.tensor(o) for o in out]}
        if order == "set":
            c["class"], c["tol"] = "set", [{"rtol": 0, "atol": 0}]
        elif exact or all(o.dtype not in TOLERANCE for o in out):
            c["class"] = "exact"
        else:
            c["class"] = "close"
            c["tol"] = self.tolerances(out, kind, None if op.startswith("random.")
                                       else lambda: self.call(op, params, wide=True))
            if c["tol"] is None:
                self.dropped.append((op, "value: MLX is too far from a more precise result"))
                return
        if vjp:
            self.gradient(c, op, params, out)
        self.store(c)

    def error(self, op, *, tier=1, **params):
        """A call that MLX rejects. It is tried by `finish`."""
        self.rejected.append((op, tier, params))

    def finish(self):
        """Records the error cases: after all others, because a rejected call can leave MLX's
        scheduler in a state in which a later call never returns."""
        for op, tier, params in self.rejected:
            try:
                self.call(op, params)
            except Exception:
                self.store(self.refusal(op, tier, params))
                continue
            raise SystemExit(f"{op} was expected to fail: {params}")

    def reserve(self):
        """Names the tensors of the error cases so far: cases that follow leave them their names."""
        for op, tier, params in self.rejected:
            self.refusal(op, tier, params)

    def refusal(self, op, tier, params):
        return {"op": op, "tier": tier, "src": "generated",
                "inputs": {k: self.input(v) for k, v in params.items() if is_input(v)},
                "attrs": {k: v.json(self) if isinstance(v, Index) else v
                          for k, v in params.items() if not is_input(v)},
                "class": "error", "error": True}

    def gradient(self, c, op, params, out):
        """Adds the vector-Jacobian product for every float input, if there is one."""
        wrt = [p for p, a in array_paths(params) if a.dtype in FLOATS]
        use = [i for i, o in enumerate(out) if o.dtype in FLOATS]
        # MLX's own reductions over empty arrays do not always return.
        empty = any(a.data.size == 0 for _, a in array_paths(params)) or any(
            o.data.size == 0 for o in out)
        if not wrt or not use or empty:
            return
        cotangents = [self.random(out[i].data.shape, out[i].dtype, -2, 2, seed=i + 1) for i in use]

        def run(wide):
            arrays = dict(array_paths(params))

            def f(*xs):
                got = self.call(op, params, wide, dict(zip(wrt, xs)))
                return [got[i] for i in use]
            _, g = mx.vjp(f, [arrays[p].mlx(wide) for p in wrt], [t.mlx(wide) for t in cotangents])
            mx.eval(g)
            return g
        try:
            grads = [Array.of(g) for g in run(False)]
        except (RuntimeError, ValueError) as e:
            self.dropped.append((op, f"gradient: {e}"))
            return
        tol = self.tolerances(grads, "gradient", lambda: run(True))
        if tol is None:
            self.dropped.append((op, "gradient: MLX is too far from a more precise result"))
            return
        named = iter(cotangents)
        c["vjp"] = {"wrt": wrt,
                    "cotangents": [self.tensor(next(named)) if i in use else None
                                   for i in range(len(out))],
                    "grads": [self.tensor(g) for g in grads], "tol": tol}

    def call(self, op, params, wide=False, replace=None):
        """The results of the op as evaluated MLX arrays (traced ones when `replace` is given)."""
        values = {}
        for name, v in params.items():
            if isinstance(v, list) and v and isinstance(v[0], Array):
                v = [pick(replace, f"{name}[{i}]", a, wide) for i, a in enumerate(v)]
            elif isinstance(v, Array):
                v = pick(replace, name, v, wide)
            elif isinstance(v, Weak):
                v = v.value
            elif isinstance(v, Index):
                v = v.mlx()
            elif v is ABSENT:
                v = None
            elif name == "dtype" and v is not None:
                v = mlx_dtype(widen(v, wide))
            values[name] = v
        faulthandler.dump_traceback_later(60, exit=True)  # MLX can dead-lock: stop loudly
        out = self.invoke(op, values)
        out = list(out) if isinstance(out, (list, tuple)) else [out]
        if replace is None:
            mx.eval(out)
        faulthandler.cancel_dump_traceback_later()
        return out

    @staticmethod
    def invoke(op, v):
        if op == "getitem":
            return v["a"][v["index"]]
        if op == "setitem":
            out = mx.array(v["a"])
            out[v["index"]] = v["value"]
            return out
        if op.startswith("at_"):
            return getattr(v["a"].at[v["index"]], op[3:])(v["value"])
        if op == "astype":
            return v["a"].astype(v["dtype"])
        if op.startswith(("nn.", "optimizers.")):
            import networks  # which needs this module
            return networks.run(op, v)
        module, _, name = op.rpartition(".")
        f = getattr(MODULES[module], name)
        keyword = {k: x for k, x in v.items() if k in KEYWORD_ONLY or op.startswith("cum") and k == "dtype"}
        if module == "random":
            return f(**v)
        if op == "broadcast_arrays":
            return f(*v["arrays"])
        return f(*(x for k, x in v.items() if k not in keyword), **keyword)

    def tolerances(self, out, kind, precise):
        """One tolerance per output, widened where MLX itself is far from a more precise result;
        None if it is too far for the case to be worth keeping."""
        tol = []
        try:
            better = [wide(Array.of(x)) for x in precise()] if precise else None
        except Exception:
            better = None  # MLX has no more precise version of this op
        for i, o in enumerate(out):
            if o.dtype not in TOLERANCE:
                tol.append({"rtol": 0, "atol": 0})
                continue
            rtol, factor = TOLERANCE[o.dtype][kind]
            e = wide(o)
            scale = float(np.abs(e[np.isfinite(e)]).max(initial=0.0))
            atol = factor * scale
            if better is not None:
                ok = np.isfinite(e) & np.isfinite(better[i])
                if not np.array_equal(np.isnan(e), np.isnan(better[i])):
                    return None
                used = np.abs(e[ok] - better[i][ok]) / np.maximum(atol + rtol * np.abs(e[ok]), 1e-300)
                worst = float(used.max(initial=0.0))
                if worst > 12:
                    return None
                if worst > 0.5:
                    rtol, atol = rtol * 2 * worst, atol * 2 * worst
            tol.append({"rtol": number(rtol), "atol": number(max(atol, 1e-30))})
        return tol

    # ---- storage ------------------------------------------------------------------------------
    def input(self, v):
        if isinstance(v, list):
            return [self.input(x) for x in v]
        if isinstance(v, Weak):
            return v.json()
        return {"t": self.tensor(v), "view": v.view} if v.view else self.tensor(v)

    def tensor(self, a):
        """The name of the tensor with this content."""
        data = np.ascontiguousarray(a.data).reshape(a.data.shape)
        key = (a.dtype, data.shape, data.tobytes())
        if key not in self.tensors:
            self.tensors[key] = f"t{len(self.tensors)}"
        return self.tensors[key]

    def store(self, c):
        # Tensors are named by content order, so the digest of the text is a digest of the case.
        digest = hashlib.sha256(json.dumps(c, sort_keys=True).encode()).hexdigest()[:12]
        if digest not in self.ids:
            self.ids.add(digest)
            self.cases.append({"id": digest, **c})

    def write(self, folder):
        """Writes both files; the same cases give the same bytes."""
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, "cases.jsonl"), "w") as f:
            for c in self.cases:
                f.write(json.dumps(c, separators=(",", ":"), allow_nan=False) + "\n")
        head = {"__metadata__": {"recorded_from": f"mlx {mx.__version__}, CPU backend",
                                 "script": "xtask/goldens/record.py"}}
        blobs, offset = [], 0
        size = lambda key: np.dtype({"bfloat16": "uint16"}.get(key[0], key[0])).itemsize
        for key in sorted(self.tensors, key=lambda k: -size(k)):
            dtype, shape, blob = key
            head[self.tensors[key]] = {"dtype": SAFETENSORS[dtype], "shape": list(shape),
                                       "data_offsets": [offset, offset + len(blob)]}
            blobs.append(blob)
            offset += len(blob)
        text = json.dumps(head, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        with open(os.path.join(folder, "tensors.safetensors"), "wb") as f:
            f.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def is_input(v):
    return isinstance(v, (Array, Weak)) or isinstance(v, list) and bool(v) and isinstance(v[0], Array)


def array_paths(params):
    for name, v in params.items():
        if isinstance(v, Array):
            yield name, v
        elif isinstance(v, list):
            yield from ((f"{name}[{i}]", a) for i, a in enumerate(v) if isinstance(a, Array))


def pick(replace, path, array, wide):
    return replace[path] if replace and path in replace else array.mlx(wide)


def wide(a):
    """Values as float64, integers as they are."""
    if a.dtype == "bfloat16":
        return (a.data.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return a.data.astype(np.float64) if a.data.dtype.kind == "f" else a.data


def number(x):
    return float(f"{x:.3g}")
