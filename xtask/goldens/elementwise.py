"""Elementwise and comparison rows, `where`, `clip` and `astype`."""
import numpy as np

from recorder import ABSENT, ALL, Array, FLOATS, INTS, Weak

NAN, INF = float("nan"), float("inf")
SPECIAL = [NAN, INF, -INF, -0.0, 0.0, 1.0, -1.0]
TRICKY = [0.5, -0.5, 1.5, 2.5, -2.5, 1e-3, 100.0, -7.25]

# name: (low, high, tier, result is exact)
FLOAT_UNARY = {
    "exp": (-4, 4, 1, False), "log": (0.05, 6, 1, False), "sqrt": (0, 6, 1, False),
    "rsqrt": (0.05, 6, 1, False), "sigmoid": (-6, 6, 1, False), "tanh": (-3, 3, 1, False),
    "sin": (-6, 6, 1, False), "cos": (-6, 6, 1, False), "erf": (-2.5, 2.5, 1, False),
    "reciprocal": (0.2, 5, 1, False), "log1p": (-0.9, 6, 2, False), "log2": (0.05, 6, 2, False),
    "log10": (0.05, 6, 2, False), "expm1": (-3, 3, 2, False), "erfinv": (-0.97, 0.97, 2, False),
    "arccos": (-0.95, 0.95, 2, False), "arcsin": (-0.95, 0.95, 2, False),
    "arctan": (-4, 4, 2, False), "arccosh": (1.1, 6, 2, False), "arcsinh": (-4, 4, 2, False),
    "arctanh": (-0.9, 0.9, 2, False), "sinh": (-3, 3, 2, False), "cosh": (-3, 3, 2, False),
    "tan": (-1.4, 1.4, 2, False), "degrees": (-4, 4, 2, False), "radians": (-200, 200, 2, False),
}
KEEPING_UNARY = {  # these keep the dtype of their input
    "abs": 1, "square": 1, "sign": 1, "negative": 1, "floor": 1, "ceil": 2, "trunc": 2,
    "positive": 2, "stop_gradient": 1,
}
TESTS = {"isnan": 1, "isinf": 1, "isfinite": 1, "isposinf": 2, "isneginf": 2, "logical_not": 1}
COMPARE = {"equal": 1, "not_equal": 1, "less": 1, "less_equal": 1, "greater": 1,
           "greater_equal": 1}
LOGICAL = {"logical_and": 1, "logical_or": 1, "logical_xor": 2}
BITWISE = ("bitwise_and", "bitwise_or", "bitwise_xor")


def record(r):
    unary(r)
    binary(r)
    comparisons(r)
    where_and_clip(r)
    casts(r)


def unary(r):
    for op, (low, high, tier, _) in FLOAT_UNARY.items():
        for dtype in FLOATS:
            r.case(op, tier=tier, a=r.random((3, 5), dtype, low, high))
        for dtype in ("int32", "uint8", "bool"):
            if low < 1 <= high or low > 1:
                r.case(op, tier=tier, a=r.random((4,), dtype, max(low, 1), min(high, 6)))
        r.case(op, tier=tier, vjp=False, a=Array(SPECIAL, "float32"))
        r.case(op, tier=tier, a=Array(np.zeros((0, 3)), "float32"))
        r.case(op, tier=tier, a=r.random((5, 4), "float32", low, high, seed=1).viewed(
            ["slice", [[None, None, -2], [1, None, None]]], ["transpose", [1, 0]]))
        r.case(op, tier=tier, a=r.random((), "float32", low, high, seed=2))
    for op, tier in KEEPING_UNARY.items():
        exact = op != "square"
        for dtype in ALL:
            if op == "negative" and dtype == "bool":
                continue
            r.case(op, tier=tier, exact=exact, a=r.random((3, 5), dtype, -6, 6))
        for dtype in FLOATS:
            r.case(op, tier=tier, exact=exact, vjp=False, a=Array(SPECIAL + TRICKY, dtype))
        r.case(op, tier=tier, exact=exact, a=Array(np.zeros((2, 0)), "float32"))
    r.error("negative", a=Array([True, False], "bool"))
    for op, tier in TESTS.items():
        for dtype in FLOATS + ("int32", "bool"):
            values = SPECIAL + TRICKY if dtype in FLOATS else [0, 1, 5, 0]
            r.case(op, tier=tier, a=Array(values, dtype))
        r.case(op, tier=tier, a=Array(np.zeros((0,)), "float32"))
    for dtype in FLOATS:
        for decimals in (0, 1, -1):
            r.case("round", exact=decimals == 0, vjp=decimals == 0,
                   a=Array(TRICKY + [0.25, 3.75, 12.5], dtype), decimals=decimals)
        r.case("nan_to_num", tier=2, exact=True, a=Array(SPECIAL, dtype), nan=0, posinf=None,
               neginf=None)
        r.case("nan_to_num", tier=2, exact=True, a=Array(SPECIAL, dtype), nan=1.5, posinf=8.0,
               neginf=-8.0)
    r.case("round", exact=True, a=Array([-0.0, NAN, INF, 0.5, 1.5], "float32"), decimals=0)
    for dtype in INTS + ("bool",):
        r.case("round", exact=True, a=r.random((6,), dtype, -9, 9), decimals=0)
        r.case("bitwise_invert", tier=2, a=r.random((6,), dtype, -9, 9))
    for name in ("real", "imag"):
        r.case(name, tier=2, exact=True, vjp=False, a=r.random((4,), "float32"))


def binary(r):
    arithmetic = {"add": True, "subtract": True, "multiply": False, "divide": False,
                  "maximum": True, "minimum": True}
    for op, exact in arithmetic.items():
        for dtype in ALL:
            if op == "subtract" and dtype == "bool":
                continue
            low = 1 if op == "divide" else -5
            r.case(op, exact=exact, a=r.random((3, 4), dtype, -5, 5),
                   b=r.random((3, 4), dtype, low, 6, seed=1))
        pairs(r, op, exact)
    for op in ("floor_divide", "remainder", "divmod"):
        tier = 2 if op == "divmod" else 1
        for dtype in INTS + FLOATS:
            a, b = r.random((3, 4), dtype, -9, 9), r.random((3, 4), dtype, 1, 4, seed=1)
            r.case(op, tier=tier, vjp=False, a=a, b=b)
            if dtype.startswith("int") or dtype in FLOATS:
                r.case(op, tier=tier, vjp=False, a=a, b=r.random((3, 4), dtype, -4, -1, seed=2))
        r.case(op, tier=tier, vjp=False, a=r.random((5,), "int32", -9, 9), b=Weak(4))
        r.case(op, tier=tier, vjp=False, a=r.random((5,), "float32", -9, 9), b=Weak(2.5))
    for dtype in FLOATS:
        r.case("remainder", a=r.random((7,), dtype, -9, 9), b=r.random((7,), dtype, 2, 4, seed=1))
        r.case("power", a=r.random((7,), dtype, 0.2, 3), b=r.random((7,), dtype, -2, 2, seed=1))
        r.case("logaddexp", a=r.random((7,), dtype), b=r.random((7,), dtype, seed=1))
        r.case("arctan2", tier=2, a=r.random((7,), dtype), b=r.random((7,), dtype, seed=1))
    for dtype in INTS:
        r.case("power", a=r.random((7,), dtype, -4, 4), b=r.random((7,), dtype, 0, 3, seed=1))
    r.case("power", a=r.random((6,), "float32", -3, 3), b=Weak(2))
    r.case("power", a=r.random((6,), "float32", 0.5, 3), b=Weak(0.5))
    r.case("power", a=Weak(2.0), b=r.random((6,), "float32"))
    grid = np.array([[a, b] for a in SPECIAL for b in SPECIAL], dtype=np.float32)
    for op in ("add", "subtract", "multiply", "divide", "maximum", "minimum", "logaddexp",
               "power", "arctan2"):
        r.case(op, tier=2 if op == "arctan2" else 1, vjp=False, exact=arithmetic.get(op, False),
               a=Array(grid[:, 0], "float32"), b=Array(grid[:, 1], "float32"))
    for op in BITWISE:
        for dtype in INTS + ("bool",):
            r.case(op, tier=2, a=r.random((6,), dtype, -40, 40),
                   b=r.random((6,), dtype, -40, 40, seed=1))
    for op in ("left_shift", "right_shift"):
        for dtype in INTS:
            r.case(op, tier=2, a=r.random((6,), dtype, -40, 40),
                   b=r.random((6,), dtype, 0, 4, seed=1))
    r.error("add", a=r.random((3, 4)), b=r.random((3, 5)))
    r.error("bitwise_and", tier=2, a=r.random((3,)), b=r.random((3,)))


def pairs(r, op, exact):
    """Promotion across dtypes, weak scalars, broadcasting, views, empty arrays."""
    mixed = [("int8", "uint8"), ("uint8", "uint16"), ("int32", "uint32"), ("bool", "int8"),
             ("int64", "float16"), ("float16", "bfloat16"), ("bfloat16", "float32"),
             ("uint64", "int32"), ("bool", "float16"), ("int16", "float32")]
    for left, right in mixed:
        r.case(op, exact=exact, a=r.random((5,), left, 1, 6), b=r.random((5,), right, 1, 6, seed=1))
    for dtype in ("int32", "uint8", "float16", "bfloat16", "float32", "bool"):
        if op == "subtract" and dtype == "bool":
            continue
        r.case(op, exact=exact, a=r.random((5,), dtype, 1, 6), b=Weak(3))
        r.case(op, exact=exact, a=Weak(2.5), b=r.random((5,), dtype, 1, 1))
    r.case(op, exact=exact, a=r.random((2, 1, 3), low=1), b=r.random((4, 1), low=1))
    r.case(op, exact=exact, a=r.random((), low=1), b=r.random((3, 1), "bfloat16", low=1))
    r.case(op, exact=exact, a=Array(np.zeros((0, 3)), "float32"), b=r.random((1, 3), low=1))
    r.case(op, exact=exact, a=r.random((4, 3), low=1).viewed(["transpose", [1, 0]]),
           b=r.random((1, 4), low=1, seed=1).viewed(["broadcast_to", [3, 4]]))


def comparisons(r):
    grid = np.array([[a, b] for a in SPECIAL for b in SPECIAL])
    for op, tier in {**COMPARE, **LOGICAL}.items():
        for dtype in ALL:
            r.case(op, tier=tier, a=r.random((8,), dtype, -1, 2), b=r.random((8,), dtype, -1, 2, seed=1))
        for dtype in FLOATS:
            r.case(op, tier=tier, a=Array(grid[:, 0], dtype), b=Array(grid[:, 1], dtype))
        r.case(op, tier=tier, a=r.random((2, 1, 3)), b=r.random((4, 1)))
        r.case(op, tier=tier, a=r.random((5,), "int32"), b=Weak(1))
        r.case(op, tier=tier, a=r.random((5,), "uint8", 0, 3), b=r.random((5,), "int8", -3, 3))
        r.case(op, tier=tier, a=Array(np.zeros((0,)), "float32"), b=Weak(1.0))
    for equal_nan in (False, True):
        a, b = Array(SPECIAL, "float32"), Array([NAN, INF, INF, 0.0, 1e-9, 1.000001, -2], "float32")
        r.case("isclose", tier=2, a=a, b=b, rtol=1e-5, atol=1e-8, equal_nan=equal_nan)
        r.case("allclose", tier=2, a=a, b=a, rtol=1e-5, atol=1e-8, equal_nan=equal_nan)
        r.case("array_equal", tier=3, a=a, b=a, equal_nan=equal_nan)


def where_and_clip(r):
    for dtype in ALL:
        r.case("where", exact=True, condition=r.random((3, 4), "bool"), x=r.random((3, 4), dtype),
               y=r.random((3, 4), dtype, seed=1))
        r.case("clip", exact=True, a=r.random((9,), dtype, -6, 6), a_min=Weak(1), a_max=Weak(4))
    r.case("where", exact=True, condition=r.random((3, 1), "bool"), x=r.random((4,), "float16"),
           y=Weak(0.5))
    r.case("where", exact=True, condition=r.random((4,), "int32", 0, 1), x=r.random((4,), "int8"),
           y=r.random((4,), "bfloat16"))
    r.case("where", exact=True, condition=r.random((4,), "bool"), x=Weak(1.0), y=Weak(float("nan")))
    r.case("where", exact=True, condition=r.random((4, 3), "bool").viewed(["transpose", [1, 0]]),
           x=r.random((3, 4)), y=r.random((), "float32"))
    r.case("where", exact=True, condition=Array(np.zeros((0, 2)), "bool"), x=r.random((1, 2)),
           y=Weak(1))
    for dtype in FLOATS:
        x = r.random((2, 6), dtype, -6, 6)
        r.case("clip", exact=True, a=x, a_min=r.random((6,), dtype, -4, -1, seed=1),
               a_max=r.random((2, 1), dtype, 1, 3, seed=2))
        r.case("clip", exact=True, a=x, a_min=Weak(-1.5), a_max=ABSENT)
        r.case("clip", exact=True, a=x, a_min=ABSENT, a_max=Weak(1.5))
    r.case("clip", exact=True, vjp=False, a=Array(SPECIAL, "float32"), a_min=Weak(-2.0),
           a_max=Weak(2.0))


def casts(r):
    for source in ALL + ("float64",):
        for target in ALL + ("float64",):
            values = r.random((5,), source if source != "float64" else "float32", 0, 9)
            if source == "float64":
                values = Array(values.data, "float64")
            r.case("astype", exact=True, vjp=source in FLOATS and target in FLOATS, a=values,
                   dtype=target)
    for target in FLOATS + ("bool",):
        for source in FLOATS:
            r.case("astype", exact=True, vjp=False, a=Array(SPECIAL + [1e-8, 70000.0, 3e38, 1.0009765],
                                                           source), dtype=target)
    wide = Array([0, 1, -1, 127, 128, 255, 256, -129, 65536, 2**31 - 1, -2**31], "int32")
    for target in INTS + ("bool",):
        r.case("astype", exact=True, a=wide, dtype=target)
    for target in ("int8", "int16", "int32", "int64"):
        for source in FLOATS:
            r.case("astype", exact=True, vjp=False, a=Array([1.9, -1.9, 0.5, -0.5, 100.0], source),
                   dtype=target)
    big = Array([2**24 + 1, 2**53 + 1, -2**62 - 1], "int64")
    for target in FLOATS + ("float64",):
        r.case("astype", exact=True, a=big, dtype=target)
    r.case("astype", exact=True, a=Array(np.zeros((0, 2)), "float32"), dtype="int8")
