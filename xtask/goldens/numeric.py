"""matmul, addmm, softmax and rms_norm, with their gradients."""
import numpy as np

from recorder import ABSENT, Array, FLOATS

INF, NAN = float("inf"), float("nan")


def record(r):
    matmul(r)
    addmm(r)
    softmax(r)
    rms_norm(r)


def matmul(r):
    shapes = [((3, 5), (5, 4)), ((1, 7), (7, 1)), ((5,), (5,)), ((5,), (5, 3)), ((4, 5), (5,)),
              ((2, 3, 5), (5, 4)), ((2, 1, 3, 4), (3, 4, 2)), ((3, 4), (2, 4, 3)), ((1, 33), (33, 17)),
              ((17, 9), (9, 18))]
    for a, b in shapes:
        for dtype in FLOATS:
            r.case("matmul", kind="contract", a=r.random(a, dtype, -1, 1),
                   b=r.random(b, dtype, -1, 1, seed=1))
    for a, b in (((0, 3), (3, 2)), ((2, 3), (3, 0)), ((2, 0), (0, 3))):
        r.case("matmul", kind="contract", a=Array(np.zeros(a), "float32"), b=Array(np.zeros(b), "float32"))
    x, y = r.random((5, 3), low=-1, high=1), r.random((4, 5), low=-1, high=1)
    r.case("matmul", kind="contract", a=x.viewed(["transpose", [1, 0]]), b=y.viewed(["transpose", [1, 0]]))
    r.case("matmul", kind="contract", a=y.viewed(["slice", [[None, None, -1], [None, None, 2]]]), b=x.viewed(
        ["slice", [[0, 3, None], [None, None, None]]]))
    r.case("matmul", kind="contract", a=r.random((1, 2, 3)).viewed(["broadcast_to", [4, 2, 3]]),
           b=r.random((4, 3, 2)))
    r.case("matmul", kind="contract", a=r.random((2, 3), "float16"), b=r.random((3, 2), "float32"))
    r.case("matmul", kind="contract", vjp=False, a=Array([[1, INF], [NAN, 1]], "float32"),
           b=Array([[1, 2], [1, -1]], "float32"))
    r.error("matmul", a=r.random((2, 3)), b=r.random((4, 2)))
    r.error("matmul", a=r.random((2, 3), "int32"), b=r.random((3, 2), "int32"))
    r.error("matmul", a=r.random(()), b=r.random((3, 2)))


def addmm(r):
    for dtype in FLOATS:
        for alpha, beta in ((1.0, 1.0), (0.5, 2.0), (1.0, 0.0)):
            r.case("addmm", kind="contract", c=r.random((3, 4), dtype, -1, 1),
                   a=r.random((3, 5), dtype, -1, 1), b=r.random((5, 4), dtype, -1, 1), alpha=alpha, beta=beta)
        r.case("addmm", kind="contract", c=r.random((4,), dtype, -1, 1), a=r.random((2, 3, 5), dtype, -1, 1),
               b=r.random((5, 4), dtype, -1, 1), alpha=1.0, beta=1.0)
    r.case("addmm", kind="contract", c=r.random((3, 1)), a=r.random((5, 3)).viewed(["transpose", [1, 0]]),
           b=r.random((4, 5)).viewed(["transpose", [1, 0]]), alpha=1.5, beta=1.0)


def softmax(r):
    rows = Array([[-INF, 0, 1], [INF, 0, 1], [NAN, 0, 1], [-INF, -INF, -INF], [0, -0.0, 0]], "float32")
    for dtype in FLOATS:
        for axis in (-1, 0, None, [0, 2]):
            r.case("softmax", kind="reduce", a=r.random((2, 3, 5), dtype, -4, 4), axis=axis, precise=False)
        r.case("softmax", kind="reduce", a=r.random((3, 33), dtype, -8, 8), axis=-1, precise=True)
        r.case("softmax", kind="reduce", a=r.random((2, 1), dtype), axis=-1, precise=False)
        r.case("softmax", kind="reduce", vjp=False, a=Array(rows.data, dtype), axis=-1, precise=False)
        r.case("softmax", kind="reduce", a=Array([[0, -INF, 2], [1, 3, -INF]], dtype), axis=-1, precise=False)
    r.case("softmax", kind="reduce", a=r.random((5, 4)).viewed(["transpose", [1, 0]]), axis=1, precise=False)
    r.case("softmax", kind="reduce", a=r.random((4, 9)).viewed(["slice", [[None, None, -1], [1, None, 2]]]),
           axis=1, precise=False)
    r.case("softmax", kind="reduce", a=Array([[1000, 1001, 999], [-1000, -1001, -999]], "float32"), axis=-1,
           precise=False)
    for dtype in ("int32", "uint8", "bool"):
        r.case("softmax", kind="reduce", a=r.random((2, 3), dtype), axis=-1, precise=False)
    r.case("softmax", kind="reduce", a=Array(np.zeros((0, 3)), "float32"), axis=-1, precise=False)
    r.error("softmax", a=r.random((2, 3)), axis=2, precise=False)


def rms_norm(r):
    for dtype in FLOATS:
        for shape in ((3, 8), (2, 3, 33), (1, 129), (5, 1), (7,)):
            for weight in (r.random(shape[-1:], dtype, 0.5, 1.5, seed=1), ABSENT):
                r.case("fast.rms_norm", kind="reduce", x=r.random(shape, dtype), weight=weight, eps=1e-5)
        r.case("fast.rms_norm", kind="reduce", x=Array(np.zeros((2, 4)), dtype),
               weight=r.random((4,), dtype, 0.5, 1.5), eps=1e-5)
        r.case("fast.rms_norm", kind="reduce", x=r.random((6, 4), dtype).viewed(["transpose", [1, 0]]),
               weight=r.random((6,), dtype, 0.5, 1.5), eps=1e-6)
    r.case("fast.rms_norm", kind="reduce", vjp=False, x=Array([[1, INF, 2], [NAN, 1, 2], [1, 2, 3]], "float32"),
           weight=Array([1, 2, 1], "float32"), eps=1e-5)
    r.error("fast.rms_norm", x=r.random((2, 3)), weight=r.random((4,)), eps=1e-5)
