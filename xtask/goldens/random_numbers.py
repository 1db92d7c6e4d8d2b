"""Random numbers: threefry2x32 with explicit keys."""
from recorder import Array, FLOATS, INTS, Weak

SEEDS = (0, 42, 2**40 + 7)
SHAPES = ([], [1], [3], [4], [2, 5], [0])


def key(seed):
    return Array([seed >> 32, seed & 0xFFFFFFFF], "uint32")


def record(r):
    for seed in SEEDS:
        r.case("random.key", seed=seed)
        for num in (2, 1, 5):
            r.case("random.split", key=key(seed), num=num)
        continuous(r, seed)
        discrete(r, seed)


def continuous(r, seed):
    k = key(seed)
    for dtype in FLOATS:
        for shape in SHAPES if dtype == "float32" else ([7], [2, 4]):
            r.case("random.uniform", low=Weak(0), high=Weak(1), shape=shape, dtype=dtype, key=k, vjp=False)
            r.case("random.normal", shape=shape, dtype=dtype, key=k, vjp=False)
            r.case("random.gumbel", shape=shape, dtype=dtype, key=k, vjp=False)
        r.case("random.uniform", low=Weak(-2.0), high=Weak(3.0), shape=[9], dtype=dtype, key=k, vjp=False)
        r.case("random.normal", shape=[9], dtype=dtype, loc=Weak(1.5), scale=Weak(0.5), key=k, vjp=False)
    r.case("random.uniform", low=Array([0, 1, 2], "float32"), high=Array([[1], [5]], "float32"), shape=[2, 3],
           dtype="float32", key=k, vjp=False)


def discrete(r, seed):
    k = key(seed)
    for shape in ([], [33], [4, 2]):
        r.case("random.bernoulli", p=Weak(0.3), shape=shape, key=k)
    r.case("random.bernoulli", p=Array([0.1, 0.5, 0.9], "float32"), shape=[2, 3], key=k, vjp=False)
    r.case("random.bernoulli", p=Array([0.0, 1.0, 0.5], "float32"), shape=None, key=k, vjp=False)
    for dtype in INTS:
        r.case("random.randint", low=Weak(0), high=Weak(100), shape=[8], dtype=dtype, key=k)
    r.case("random.randint", low=Weak(-50), high=Weak(50), shape=[3, 3], dtype="int32", key=k)
    r.case("random.randint", low=Array([0, 10], "int32"), high=Array([5, 20], "int32"), shape=[4, 2],
           dtype="int32", key=k)
    for n in (1, 2, 10, 11):
        r.case("random.permutation", x=n, axis=0, key=k)
    r.case("random.permutation", exact=True, x=r.random((4, 3)), axis=0, key=k, vjp=False)
    r.case("random.permutation", exact=True, x=r.random((2, 5), "int32"), axis=1, key=k)
    # One row with a shaped result takes the inverse CDF; everything else takes argmax of gumbel + logits.
    row, rows = r.random((1, 6)), r.random((3, 5))
    r.case("random.categorical", logits=row, axis=-1, shape=None, num_samples=None, key=k, vjp=False)
    r.case("random.categorical", logits=r.random((5,)), axis=-1, shape=None, num_samples=10, key=k, vjp=False)
    r.case("random.categorical", logits=r.random((5,)), axis=-1, shape=None, num_samples=None, key=k, vjp=False)
    r.case("random.categorical", logits=rows, axis=-1, shape=None, num_samples=None, key=k, vjp=False)
    r.case("random.categorical", logits=rows, axis=0, shape=None, num_samples=None, key=k, vjp=False)
    r.case("random.categorical", logits=rows, axis=-1, shape=None, num_samples=4, key=k, vjp=False)
    r.case("random.categorical", logits=rows, axis=1, shape=[2, 3], num_samples=None, key=k, vjp=False)
    for dtype in ("float16", "bfloat16"):
        r.case("random.categorical", logits=r.random((2, 4), dtype), axis=-1, shape=None, num_samples=None,
               key=k, vjp=False)
