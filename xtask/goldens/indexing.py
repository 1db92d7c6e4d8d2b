"""Reading and updating by index, and the sort family."""
import numpy as np

from recorder import ALL, Array, FLOATS, INTS, Index, Weak

NAN, INF = float("nan"), float("inf")
UPDATES = ("at_add", "at_subtract", "at_multiply", "at_divide", "at_maximum", "at_minimum")


def record(r):
    gathers(r)
    along_axis(r)
    subscripts(r)
    sorts(r)


def gathers(r):
    repeated = Array([[0, 2, 2], [-1, 0, 2]], "int32")
    for dtype in ALL:
        r.case("take", exact=True, a=r.random((4, 3), dtype, -9, 9), indices=repeated, axis=0)
    for index in INTS:
        r.case("take", exact=True, a=r.random((3, 4)), indices=Array([3, 0, 3], index), axis=1)
    x = r.random((2, 3, 4))
    for axis in (None, 0, 1, -1):
        r.case("take", exact=True, a=x, indices=Array([1, 0, 1, 1], "int32"), axis=axis)
    r.case("take", exact=True, a=x, indices=Array(2, "uint32"), axis=1)
    r.case("take", exact=True, a=x, indices=1, axis=1)
    r.case("take", exact=True, a=x, indices=Array(np.zeros((0,)), "int32"), axis=1)
    r.case("take", exact=True, a=r.random((4, 6), "bfloat16").viewed(["transpose", [1, 0]]),
           indices=Array([5, 5, 1], "int64"), axis=0)


def along_axis(r):
    for dtype in ALL:
        r.case("take_along_axis", exact=True, a=r.random((3, 5), dtype, -9, 9),
               indices=r.integers((3, 2), 0, 5), axis=1)
        r.case("put_along_axis", exact=True, a=r.random((3, 5), dtype, -9, 9),
               indices=Array([[1, 4], [0, 2], [3, 0]], "int32"),
               values=r.random((3, 2), dtype, -9, 9, seed=1), axis=1)
    for dtype in FLOATS:
        # Repeated indices: gradients add up.
        r.case("take_along_axis", exact=True, a=r.random((2, 4), dtype),
               indices=Array([[1, 1, 1, 3, 1], [0, -1, 0, 0, 2]], "int32"), axis=-1)
        r.case("take_along_axis", exact=True, a=r.random((4, 3), dtype, seed=2),
               indices=Array([[0, 0, 0], [0, 1, 3]], "uint32"), axis=0)
        r.case("take_along_axis", exact=True, a=r.random((2, 3), dtype),
               indices=Array([5, 0, 5], "int64"), axis=None)
    r.case("take_along_axis", exact=True, a=r.random((2, 3, 4)), indices=r.integers((2, 5, 4), 0, 3),
           axis=1)
    r.case("take_along_axis", exact=True, a=r.random((1, 4)), indices=r.integers((3, 2), 0, 4), axis=1)
    r.case("take_along_axis", exact=True, a=r.random((5, 4)).viewed(["transpose", [1, 0]]),
           indices=r.integers((4, 3), -5, 5), axis=1)
    r.case("take_along_axis", exact=True, a=r.random((3, 4)), indices=Array(np.zeros((3, 0)), "int32"),
           axis=1)
    r.error("take_along_axis", a=r.random((3, 4)), indices=r.integers((3,), 0, 3), axis=1)
    r.case("put_along_axis", exact=True, a=r.random((3, 4)), indices=Array([[2, 0, 1, 2]], "uint32"),
           values=r.random((1, 4), seed=1), axis=0)
    r.case("put_along_axis", exact=True, a=r.random((2, 3)), indices=Array([4, 1], "int32"),
           values=r.random((2,), seed=1), axis=None)
    r.case("put_along_axis", exact=True, a=r.random((2, 5), "float16"),
           indices=Array([[-1, 0], [2, -3]], "int32"), values=r.random((1,), "float16", seed=1), axis=1)


def subscripts(r):
    full = slice(None)
    rows, columns = Array([2, 0, 2], "int32"), Array([[1], [0]], "int32")
    indices = [
        Index(1), Index(-1, 2), Index(slice(1, 3)), Index(slice(None, None, -1)), Index(Ellipsis, 0),
        Index(full, None, slice(3, 0, -2)), Index(slice(-2, None), Ellipsis), Index(rows),
        Index(full, rows), Index(rows, rows), Index(columns, rows), Index(rows, full, Array([0, 1, 3], "uint32")),
        Index(0, full, rows), Index(rows, slice(1, 4, 2)), Index(None, rows, Ellipsis, 1),
        Index(slice(2, 2)), Index(slice(0, 100)), Index(),
    ]
    x = r.random((3, 3, 4))
    for index in indices:
        r.case("getitem", exact=True, a=x, index=index)
    for dtype in ALL:
        y = r.random((3, 4), dtype, -9, 9)
        r.case("getitem", exact=True, a=y, index=Index(slice(None, None, -2), Array([3, 1], "int32")))
        r.case("setitem", exact=True, a=y, value=Weak(1), index=Index(1, slice(1, None)))
        r.case("setitem", exact=True, a=y, value=r.random((2, 4), dtype, -9, 9, seed=1),
               index=Index(Array([2, 0], "int32")))
    distinct = Array([2, 0], "int32")
    for index, shape in ((Index(1), (3, 4)), (Index(full, slice(None, None, 2)), (3, 2, 4)),
                         (Index(distinct, Array([1, 1], "int32")), (2, 4)), (Index(Ellipsis, 0), (3,)),
                         (Index(distinct, slice(0, 2)), (2, 2, 4)), (Index(slice(None, None, -1)), ()),
                         (Index(full, distinct), (3, 2, 4)), (Index(), (3, 3, 4))):
        for dtype in ("float32", "bfloat16"):
            r.case("setitem", exact=True, a=r.random((3, 3, 4), dtype), value=r.random(shape, dtype, seed=1),
                   index=index)
    r.case("setitem", exact=True, vjp=False, a=r.random((4,), "int8"), value=r.random((4,), "float32"),
           index=Index(full))
    r.error("getitem", a=x, index=Index(0, 0, 0, 0))
    for op in UPDATES:
        tier = 2 if op in ("at_subtract", "at_divide") else 1
        kind = dict(tier=tier, exact=op != "at_divide")
        for dtype in FLOATS + ("int32", "uint8", "int64"):
            if op == "at_divide" and dtype not in FLOATS:
                continue
            a = r.random((4, 3), dtype, 1, 9)
            r.case(op, **kind, a=a, value=r.random((3, 3), dtype, 1, 3, seed=1), index=Index(rows))
            r.case(op, **kind, a=a, value=Weak(2), index=Index(slice(1, 3), 0))
        a = r.random((3, 3, 4), "float32", 1, 4)
        distinct_pair = Index(rows, Array([1, 0, 2], "int32"))
        r.case(op, **kind, a=a, value=r.random((3, 4), low=1, seed=1), index=distinct_pair)
        r.case(op, **kind, a=a, value=r.random((3, 1, 2), low=1, seed=1),
               index=Index(full, full, Array([1, 3], "uint32")))
    r.case("at_add", exact=True, a=Array(np.zeros((4,)), "int32"), value=Weak(1),
           index=Index(Array([0, 0, 0, 3], "int32")))


def sorts(r):
    odd = Array([[3, NAN, -1, INF, 0, -INF, 3], [1, 1, NAN, NAN, -2, 0.5, 7]], "float32")
    for dtype in ALL:
        x = r.random((3, 7), dtype, -9, 9)
        for axis in (-1, 0) if dtype != "bool" else (-1,):
            r.case("sort", exact=True, a=x, axis=axis)
            r.case("argsort", a=x, axis=axis)
        if dtype != "bool":
            r.case("argpartition", order="set", vjp=False, a=x, kth=3, axis=-1)
            r.case("partition", tier=2, order="set", vjp=False, a=x, kth=2, axis=0)
            r.case("topk", order="set", vjp=False, a=x, k=3, axis=-1)
    for axis in (-1, None):
        r.case("sort", exact=True, vjp=False, a=odd, axis=axis)
        r.case("argsort", a=Array([[3, 1, -1, 1, 0, -2, 3], [1, 1, 0, 0, -2, 0, 7]], "float32"), axis=axis)
    r.case("sort", exact=True, a=r.random((5, 4)).viewed(["transpose", [1, 0]]), axis=-1)
    r.case("sort", exact=True, a=r.random((4, 5)).viewed(["slice", [[None, None, -1], [None, None, 2]]]), axis=0)
    r.case("sort", exact=True, a=Array(np.zeros((0, 3)), "float32"), axis=1)
    r.case("sort", exact=True, a=r.random((1, 130), "bfloat16"), axis=-1)
    r.case("argsort", a=r.random((2, 70), "int8", -3, 3), axis=-1)
    r.case("argpartition", order="set", vjp=False, a=r.random((40,)), kth=-5, axis=None)
    r.case("topk", order="set", vjp=False, a=r.random((3, 33)), k=33, axis=-1)
    edges = Array([-2, 0, 0, 1, 4], "float32")
    for side in ("left", "right"):
        for dtype in ("float32", "int32", "uint8", "float16"):
            r.case("searchsorted", tier=2, sorted_sequence=Array([0, 1, 1, 4, 9], dtype),
                   values=Array([[0, 1, 2], [9, 10, 4]], dtype), side=side)
        r.case("searchsorted", tier=2, sorted_sequence=edges, values=Array([-INF, 0, INF], "float32"),
               side=side)
        r.case("searchsorted", tier=2, sorted_sequence=edges, values=Array(np.zeros((0,)), "float32"),
               side=side)
