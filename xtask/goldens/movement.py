"""Movement: reshape, transpose, broadcast, slice, pad, concatenate and their like; creation."""
import numpy as np

from recorder import ALL, Array, Weak


def record(r):
    shapes(r)
    joins(r)
    pads(r)
    creation(r)


def views(r, dtype="float32"):
    """The same kind of array in the layouts an op may receive."""
    x = r.random((4, 6), dtype, -9, 9)
    yield r.random((3, 4), dtype, -9, 9)
    yield x.viewed(["transpose", [1, 0]])
    yield x.viewed(["slice", [[None, None, -1], [1, None, 2]]])
    yield r.random((1, 3), dtype, -9, 9).viewed(["broadcast_to", [2, 3]])


def shapes(r):
    def case(op, tier=1, **p):
        r.case(op, tier=tier, exact=True, **p)
    for dtype in ALL:
        for i, x in enumerate(views(r, dtype)):
            if i > 1 and dtype not in ("float32", "bfloat16", "bool"):
                break
            case("reshape", a=x, shape=[-1])
            case("contiguous", a=x, allow_col_major=False)
            case("flip", tier=2, a=x, axis=None if i == 0 else -1)
            case("repeat", array=x, repeats=2, axis=1)
            case("tile", a=x, reps=[2, 1])
            case("transpose", a=x, axes=None)
    x = r.random((2, 3, 4))
    empty = Array(np.zeros((2, 0, 3)), "float32")
    for shape in ([6, 4], [4, -1], [1, 2, 12], [24], [2, 3, 2, 2]):
        case("reshape", a=x, shape=shape)
    case("reshape", a=empty, shape=[0, 6])
    case("reshape", a=r.random(()), shape=[1, 1])
    r.error("reshape", a=x, shape=[5, 5])
    for axes in (None, [1, 0, 2], [2, 0, 1], [-1, 0, 1]):
        case("transpose", a=x, axes=axes)
    r.error("transpose", a=x, axes=[0, 1])
    case("swapaxes", a=x, axis1=0, axis2=-1)
    case("moveaxis", a=x, source=0, destination=2)
    case("matrix_transpose", tier=2, a=x)
    case("expand_dims", a=x, axis=1)
    case("expand_dims", a=x, axis=[0, -1])
    case("squeeze", a=r.random((1, 3, 1)), axis=None)
    case("squeeze", a=r.random((1, 3, 1)), axis=-1)
    r.error("squeeze", a=x, axis=0)
    case("flatten", a=x, start_axis=1, end_axis=-1)
    case("flatten", a=x, start_axis=0, end_axis=-1)
    case("unflatten", a=x, axis=2, shape=[2, 2])
    for shape in ([2, 3, 4], [5, 2, 3, 4]):
        case("broadcast_to", a=r.random((3, 1)), shape=shape)
    case("broadcast_to", a=r.random((), "bfloat16"), shape=[2, 3])
    case("broadcast_to", a=r.random((1, 3)), shape=[0, 3])
    r.error("broadcast_to", a=x, shape=[2, 3, 5])
    case("broadcast_arrays", arrays=[r.random((3, 1)), r.random((1, 4), "int32"), r.random(())])
    for axis in (0, [0, 2], None):
        case("flip", tier=2, a=x, axis=axis)
    case("flip", tier=2, a=empty, axis=0)
    for shift, axis in ((2, None), (-1, 0), ([1, 2], [0, 2]), (7, -1)):
        case("roll", tier=2, a=x, shift=shift, axis=axis)
    case("repeat", array=x, repeats=3, axis=None)
    case("repeat", array=x, repeats=0, axis=0)
    for reps in ([2], [2, 1, 2], [1, 2, 1, 1], [0, 1, 1]):
        case("tile", a=x, reps=reps)
    case("slice", a=x, start_indices=Array([1, 0], "int32"), axes=[1, 2], slice_size=[2, 2, 3])
    for dtype in ("float32", "bfloat16", "int8", "bool"):
        case("slice_update", a=r.random((3, 5), dtype), update=r.random((2, 2), dtype, seed=1),
             start_indices=Array([1, 2], "int32"), axes=[0, 1])
    for k in (-1, 0, 2):
        case("tril", x=r.random((3, 5)), k=k)
        case("triu", x=r.random((2, 4, 3), "bfloat16"), k=k)
        case("diag", tier=2, a=r.random((4,)), k=k)
        case("diag", tier=2, a=r.random((4, 5)), k=k)
    case("diagonal", tier=2, a=x, offset=1, axis1=1, axis2=2)


def joins(r):
    def case(op, tier=1, **p):
        r.case(op, tier=tier, exact=True, **p)
    for dtype in ALL:
        a, b = r.random((2, 3), dtype, -9, 9), r.random((1, 3), dtype, -9, 9, seed=1)
        case("concatenate", arrays=[a, b], axis=0)
        case("stack", arrays=[a, a], axis=1)
        case("split", a=r.random((6, 2), dtype, -9, 9), indices_or_sections=3, axis=0)
    x, y = r.random((2, 3)), r.random((2, 5), "float16")
    case("concatenate", arrays=[x, y], axis=1)
    case("concatenate", arrays=[x, y, x], axis=-1)
    case("concatenate", arrays=[Array(np.zeros((0, 3)), "float32"), x], axis=0)
    case("concatenate", arrays=[r.random((3, 2)).viewed(["transpose", [1, 0]]), x], axis=0)
    r.error("concatenate", arrays=[x, y], axis=0)
    for axis in (0, 2, -1):
        case("stack", arrays=[x, r.random((2, 3), seed=1), x], axis=axis)
    r.error("stack", arrays=[x, y], axis=0)
    case("split", a=r.random((2, 7)), indices_or_sections=[1, 4], axis=1)
    case("split", a=r.random((2, 7)), indices_or_sections=[0, 7], axis=-1)
    r.error("split", a=r.random((2, 7)), indices_or_sections=3, axis=1)


def pads(r):
    for dtype in ALL:
        r.case("pad", exact=True, a=r.random((2, 3), dtype, -9, 9), pad_width=[[1, 2], [0, 1]],
               mode="constant", constant_values=Weak(0))
    for width in ([[0, 0], [3, 0]], [[2, 1], [1, 1]]):
        for value in (Weak(1.5), Weak(-1)):
            r.case("pad", exact=True, a=r.random((2, 3), "float16"), pad_width=width,
                   mode="constant", constant_values=value)
    r.case("pad", exact=True, a=r.random((2, 3)), pad_width=[[1, 1], [2, 0]], mode="edge",
           constant_values=Weak(0))
    r.case("pad", exact=True, a=Array(np.zeros((0, 2)), "float32"), pad_width=[[1, 1], [0, 0]],
           mode="constant", constant_values=Weak(2.0))


def creation(r):
    for dtype in ALL:
        r.case("zeros", exact=True, shape=[2, 3], dtype=dtype)
        r.case("ones", exact=True, shape=[2, 0], dtype=dtype)
        r.case("full", exact=True, shape=[2, 2], vals=Weak(3), dtype=dtype)
        r.case("eye", exact=True, n=3, m=4, k=1, dtype=dtype)
        r.case("zeros_like", exact=True, vjp=False, a=r.random((2, 2), dtype), dtype=None)
        r.case("ones_like", exact=True, vjp=False, a=r.random((2, 2), dtype), dtype=None)
    r.case("full", exact=True, shape=[2, 3], vals=r.random((3,), "bfloat16"), dtype=None)
    r.case("full", exact=True, shape=[], vals=Weak(float("-inf")), dtype=None)
    for start, stop, step, dtype in ((0, 7, 1, None), (5, 0, -2, None), (0.0, 1.0, 0.25, None),
                                     (1, 6, 2, "float16"), (3, 3, 1, None), (0, 5, 1, "uint8")):
        r.case("arange", start=Weak(start), stop=Weak(stop), step=Weak(step), dtype=dtype)
    r.case("tri", exact=True, n=3, m=5, k=-1, dtype="float32")
