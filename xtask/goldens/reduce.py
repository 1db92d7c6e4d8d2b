"""Reductions and scans. None is over an empty axis: MLX does not always return from those."""
import numpy as np

from recorder import ALL, Array, FLOATS, INTS

NAN, INF = float("nan"), float("inf")
SPECIAL = [[1.0, NAN, 2.0], [INF, 1.0, 2.0], [-INF, INF, 0.0], [-INF, -INF, -INF], [-0.0, 0.0, -0.0]]
AXES = ((None, False), (0, False), (-1, True), ([0, 2], False), ([0, 1, 2], True))
# name: tier, arguments beside axis and keepdims
REDUCE = {"sum": 1, "prod": 2, "max": 1, "min": 1, "mean": 1, "var": 1, "std": 2, "all": 1,
          "any": 1, "logsumexp": 1}


def record(r):
    reductions(r)
    positions(r)
    scans(r)


def extra(op):
    return {"ddof": 0} if op in ("var", "std") else {}


def reductions(r):
    for op, tier in REDUCE.items():
        exact = op in ("max", "min", "all", "any")
        small = op in ("prod",)
        for dtype in ALL:
            x = r.random((2, 3, 5), dtype, 1 if small else -3, 2 if small else 3)
            for axis, keepdims in AXES if dtype in ("float32", "bfloat16", "int32") else AXES[:2]:
                r.case(op, kind="reduce", tier=tier, exact=exact, a=x, axis=axis, keepdims=keepdims,
                       **extra(op))
        special = Array(SPECIAL, "float32")
        for axis in (-1, 0):
            r.case(op, kind="reduce", tier=tier, exact=exact, vjp=False, a=special, axis=axis,
                   keepdims=False, **extra(op))
        r.case(op, kind="reduce", tier=tier, exact=exact, vjp=False, a=Array(SPECIAL, "bfloat16"),
               axis=-1, keepdims=False, **extra(op))
        x = r.random((5, 7), "float32", seed=3)
        r.case(op, kind="reduce", tier=tier, exact=exact, a=x.viewed(["transpose", [1, 0]]), axis=0,
               keepdims=False, **extra(op))
        strided = x.viewed(["slice", [[None, None, -1], [1, None, 2]]])
        r.case(op, kind="reduce", tier=tier, exact=exact, a=strided, axis=1, keepdims=False,
               **extra(op))
        r.case(op, kind="reduce", tier=tier, exact=exact, a=r.random((), "float32"), axis=None,
               keepdims=False, **extra(op))
        r.case(op, kind="reduce", tier=tier, exact=exact, a=r.random((3, 257), "float16", 0.99, 1.01),
               axis=-1, keepdims=False, **extra(op))
        r.error(op, tier=tier, a=r.random((2, 3)), axis=2, keepdims=False, **extra(op))
    for op in ("var", "std"):
        for dtype in FLOATS:
            r.case(op, kind="reduce", tier=REDUCE[op], a=r.random((3, 6), dtype), axis=-1,
                   keepdims=False, ddof=1)
    for op in ("max", "min"):
        # Ties share the gradient evenly.
        r.case(op, exact=True, a=Array([[1, 3, 3, 1], [2, 2, 2, 2]], "float32"), axis=-1,
               keepdims=False)
        r.error(op, a=Array(np.zeros((0, 3)), "float32"), axis=0, keepdims=False)


def positions(r):
    for op in ("argmax", "argmin"):
        for dtype in ALL:
            x = r.random((2, 3, 5), dtype)
            for axis, keepdims in ((None, False), (0, False), (1, True), (-1, False)):
                r.case(op, a=x, axis=axis, keepdims=keepdims)
        r.case(op, a=Array([[2, 1, 2, 1], [0, -0.0, 0, 0]], "float32"), axis=-1, keepdims=False)
        r.case(op, a=Array([INF, -INF, 3, -INF, INF], "float32"), axis=0, keepdims=False)
        r.case(op, a=r.random((4, 6)).viewed(["transpose", [1, 0]]), axis=0, keepdims=False)


def scans(r):
    for op, tier in (("cumsum", 1), ("cumprod", 2), ("cummax", 2), ("cummin", 2), ("logcumsumexp", 2)):
        typed = {"dtype": None} if op in ("cumsum", "cumprod") else {}
        exact = op in ("cummax", "cummin")
        dtypes = FLOATS if op == "logcumsumexp" else FLOATS + INTS + ("bool",)
        for dtype in dtypes:
            if dtype == "bool" and exact:
                continue
            x = r.random((3, 5), dtype, 1 if op == "cumprod" else -3, 2 if op == "cumprod" else 3)
            options = ((0, False, True), (-1, True, True), (1, False, False), (None, True, False))
            for axis, reverse, inclusive in options if dtype in ("float32", "int32") else options[:2]:
                if exact and not inclusive and dtype not in FLOATS:
                    continue
                r.case(op, kind="reduce", tier=tier, exact=exact, a=x, axis=axis, reverse=reverse,
                       inclusive=inclusive, **typed)
        r.case(op, kind="reduce", tier=tier, exact=exact, a=r.random((5, 4), seed=1).viewed(
            ["transpose", [1, 0]]), axis=1, reverse=False, inclusive=True, **typed)
