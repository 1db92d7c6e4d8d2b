"""Layers with given parameters, and steps of optimizers.

A layer is the op `nn.Name`: its constructor's arguments are attributes, what it is called with are
inputs, and so are its parameters, under `parameters.` and their dotted names."""
import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optimizers
from mlx.utils import tree_flatten, tree_unflatten

from recorder import ABSENT

FLOATS = ("float32", "bfloat16")
PREFIX = "parameters."


def record(r):
    affine(r)
    norms(r)
    positions(r)
    recurrent(r)
    attention(r)
    steps(r)
    mixed(r)
    r.reserve()
    convolutions(r)
    pools(r)
    upsampled(r)


def run(op, values):
    """The results of a layer or of an optimizer's steps."""
    name = op.split(".")[1]
    return optimize(name, dict(values)) if op.startswith("optimizers.") else call(name, dict(values))


def call(name, values):
    training = values.pop("training", None)
    offset = values.pop("offset", None)
    arrays = {k: values.pop(k) for k in list(values) if isinstance(values[k], mx.array)}
    layer = getattr(nn, name)(**{k: tuple(v) if isinstance(v, list) else v for k, v in values.items()})
    own = [k for k in arrays if k.startswith(PREFIX)]
    if own:
        layer.update(tree_unflatten([(k[len(PREFIX):], arrays.pop(k)) for k in own]))
    if training is not None:
        layer.train(training)
    out = layer(*arrays.values(), **({} if offset is None else {"offset": offset}))
    if training:
        out = [out, layer.running_mean, layer.running_var]
    return out


def optimize(name, values):
    parameter, gradients = values.pop("parameter"), values.pop("gradients")
    optimizer = getattr(optimizers, name)(**values)
    tree, out = {"w": parameter}, []
    for gradient in gradients:
        tree = optimizer.apply_gradients({"w": gradient}, tree)
        out.append(tree["w"])
    return out + [x for _, x in sorted(optimizer.state["w"].items())]


def layer(r, name, inputs, dtype="float32", kind="contract", vjp=True, extra=None, **attributes):
    """One call; parameters are random, of the shapes that the layer gives them."""
    made = getattr(nn, name)(**attributes)
    low, high = (0.5, 1.5) if "Norm" in name else (-0.7, 0.7)
    parameters = {PREFIX + k: r.random(tuple(v.shape), dtype, low, high, seed=i)
                  for i, (k, v) in enumerate(tree_flatten(made.parameters()))}
    r.case(f"nn.{name}", kind=kind, vjp=vjp, **attributes, **(extra or {}), **inputs, **parameters)


def x(r, shape, dtype, seed=9):
    return r.random(shape, dtype, -2, 2, seed=seed)


def affine(r):
    for dtype in FLOATS:
        for bias in (True, False):
            layer(r, "Linear", {"x": x(r, (3, 4), dtype)}, dtype, input_dims=4, output_dims=5, bias=bias)
        layer(r, "Linear", {"x": x(r, (2, 3, 4), dtype)}, dtype, input_dims=4, output_dims=2, bias=True)
        layer(r, "Bilinear", {"x1": x(r, (3, 2), dtype), "x2": x(r, (3, 4), dtype)}, dtype,
              input1_dims=2, input2_dims=4, output_dims=3, bias=True)
        layer(r, "Embedding", {"x": r.integers((2, 3), 0, 5)}, dtype, num_embeddings=5, dims=4)
        layer(r, "PReLU", {"x": x(r, (3, 4), dtype)}, dtype, num_parameters=4, init=0.25)
        for stride, padding, dilation, groups in ((1, 0, 1, 1), (2, 1, 1, 1), (1, 2, 2, 1), (2, 3, 2, 2)):
            layer(r, "Conv1d", {"x": x(r, (2, 9, 4), dtype)}, dtype, vjp=groups == 1, in_channels=4,
                  out_channels=6, kernel_size=3, stride=stride, padding=padding, dilation=dilation,
                  groups=groups, bias=True)


def norms(r):
    for dtype in FLOATS:
        given = {"x": x(r, (3, 6), dtype)}
        layer(r, "RMSNorm", given, dtype, "reduce", dims=6, eps=1e-5)
        for affine, bias in ((True, True), (True, False), (False, False)):
            layer(r, "LayerNorm", given, dtype, "reduce", dims=6, eps=1e-5, affine=affine, bias=bias)
        image = {"x": x(r, (2, 3, 2, 6), dtype)}
        for affine in (True, False):
            layer(r, "InstanceNorm", image, dtype, "reduce", dims=6, eps=1e-5, affine=affine)
            for compatible in (True, False):
                layer(r, "GroupNorm", image, dtype, "reduce", num_groups=3, dims=6, eps=1e-3,
                      affine=affine, pytorch_compatible=compatible)
    for shape in ((5, 3), (2, 4, 3)):
        batch = {"x": x(r, shape, "float32")}
        for training in (True, False):
            layer(r, "BatchNorm", batch, kind="reduce", vjp=not training, extra={"training": training},
                  num_features=3, eps=1e-5, momentum=0.1, affine=True, track_running_stats=True)
    layer(r, "BatchNorm", batch, kind="reduce", extra={"training": False}, num_features=3, eps=1e-5,
          momentum=0.1, affine=False, track_running_stats=False)


def positions(r):
    for dtype in FLOATS:
        for traditional in (True, False):
            for dims, offset, scale in ((8, 0, 1.0), (4, 7, 0.5)):
                layer(r, "RoPE", {"x": x(r, (1, 2, 5, 8), dtype)}, dtype, extra={"offset": offset},
                      dims=dims, traditional=traditional, base=10000.0, scale=scale)
    for heads in (4, 6):
        layer(r, "ALiBi", {"x": x(r, (1, heads, 3, 5), "float32")}, kind="elementwise")
    for dims, cos_first, full_turns, scale in ((8, False, False, None), (2, True, True, 1.0)):
        layer(r, "SinusoidalPositionalEncoding", {"x": x(r, (5,), "float32")}, kind="reduce", dims=dims,
              min_freq=1e-4, max_freq=1.0, scale=scale, cos_first=cos_first, full_turns=full_turns)


def recurrent(r):
    given = {"x": x(r, (2, 4, 3), "float32")}
    hidden, cell = x(r, (2, 5), "float32", 10), x(r, (2, 5), "float32", 11)
    for name in ("RNN", "GRU", "LSTM"):
        for bias in (True, False):
            layer(r, name, given, input_size=3, hidden_size=5, bias=bias)
        more = {"hidden": hidden, "cell": cell} if name == "LSTM" else {"hidden": hidden}
        layer(r, name, {**given, **more}, input_size=3, hidden_size=5, bias=True)


def attention(r):
    for dtype in FLOATS:
        q, k, v = (x(r, shape, dtype, seed) for seed, shape in enumerate(((2, 3, 8), (2, 5, 8), (2, 5, 8))))
        mask = x(r, (3, 5), dtype, 12)
        for bias, more in ((False, {}), (True, {"mask": mask})):
            layer(r, "MultiHeadAttention", {"queries": q, "keys": k, "values": v, **more}, dtype, dims=8,
                  num_heads=2, bias=bias)
    mask = x(r, (3, 3), "float32", 13)
    for norm_first in (True, False):
        layer(r, "TransformerEncoderLayer", {"x": x(r, (2, 3, 8), "float32"), "mask": mask}, dims=8,
              num_heads=2, mlp_dims=16, norm_first=norm_first)
    given = {"x": x(r, (2, 3, 8), "float32"), "memory": x(r, (2, 5, 8), "float32", 14), "x_mask": mask,
             "memory_mask": x(r, (3, 5), "float32", 15)}
    widths = dict(dims=8, num_heads=2, mlp_dims=12)
    for norm_first in (True, False):
        layer(r, "TransformerDecoderLayer", given, norm_first=norm_first, **widths)
    for checkpoint in (True, False):
        layer(r, "TransformerEncoder", {"x": given["x"], "mask": mask}, num_layers=2, norm_first=True,
              checkpoint=checkpoint, **widths)
        layer(r, "TransformerDecoder", given, num_layers=2, norm_first=True, checkpoint=checkpoint, **widths)
    masks = {"src_mask": x(r, (5, 5), "float32", 16), "tgt_mask": mask, "memory_mask": given["memory_mask"]}
    layer(r, "Transformer", {"src": given["memory"], "tgt": given["x"], **masks}, num_encoder_layers=1,
          num_decoder_layers=1, norm_first=True, **widths)


def mixed(r):
    """Arguments of several dtypes, some of integers."""
    whole = r.random((3, 6), "int32")
    for dtype in ("float16", "float32"):
        row = r.random((6,), dtype, 0.5, 1.5)
        r.case("fast.rms_norm", kind="reduce", x=whole, weight=row, eps=1e-5)
        r.case("fast.layer_norm", kind="reduce", x=whole, weight=row, bias=ABSENT, eps=1e-5)
    half, row = r.random((3, 6), "bfloat16"), r.random((6,), "float32", 0.5, 1.5)
    r.case("fast.layer_norm", kind="reduce", x=half, weight=ABSENT, bias=row, eps=1e-5)
    r.case("fast.layer_norm", kind="reduce", x=half, weight=ABSENT, bias=r.random((6,), "int32"), eps=1e-5)
    r.case("fast.layer_norm", kind="reduce", x=half, weight=row, bias=r.random((6,), "float16"), eps=1e-5)
    r.error("fast.rms_norm", x=whole, weight=None, eps=1e-5)
    r.error("fast.layer_norm", x=whole, weight=None, bias=row, eps=1e-5)
    given = dict(stride=1, padding=1, dilation=1, groups=1)
    r.case("conv1d", kind="contract", input=r.random((2, 5, 3)), weight=r.random((4, 3, 3), "int32"), **given)
    r.error("conv1d", input=r.random((2, 5, 3), "int32"), weight=r.random((4, 3, 3)), **given)


ADAFACTOR = dict(learning_rate=None, eps=[1e-30, 1e-3], clip_threshold=1.0, decay_rate=-0.8, beta_1=None,
                 weight_decay=0.0, scale_parameter=True, relative_step=True, warmup_init=False)
OPTIMIZERS = [
    ("SGD", dict(learning_rate=0.1, momentum=0.0, weight_decay=0.0, dampening=0.0, nesterov=False)),
    ("SGD", dict(learning_rate=0.1, momentum=0.9, weight_decay=0.01, dampening=0.1, nesterov=False)),
    ("SGD", dict(learning_rate=0.1, momentum=0.9, weight_decay=0.0, dampening=0.0, nesterov=True)),
    ("Adam", dict(learning_rate=0.1, betas=[0.9, 0.999], eps=1e-8, bias_correction=False)),
    ("Adam", dict(learning_rate=0.1, betas=[0.8, 0.9], eps=1e-6, bias_correction=True)),
    ("AdamW", dict(learning_rate=0.1, betas=[0.9, 0.999], eps=1e-8, weight_decay=0.1, bias_correction=True)),
    ("Adamax", dict(learning_rate=0.1, betas=[0.9, 0.999], eps=1e-8)),
    ("Lion", dict(learning_rate=0.1, betas=[0.9, 0.99], weight_decay=0.1)),
    ("RMSprop", dict(learning_rate=0.1, alpha=0.9, eps=1e-8)),
    ("Adagrad", dict(learning_rate=0.1, eps=1e-8)),
    ("AdaDelta", dict(learning_rate=1.0, rho=0.9, eps=1e-6)),
    ("Muon", dict(learning_rate=0.1, momentum=0.95, weight_decay=0.01, nesterov=True, ns_steps=5)),
    ("Adafactor", ADAFACTOR),
    ("Adafactor", {**ADAFACTOR, "beta_1": 0.9, "weight_decay": 0.1, "warmup_init": True}),
    ("Adafactor", {**ADAFACTOR, "learning_rate": 0.1, "relative_step": False, "scale_parameter": False}),
]


def steps(r):
    for name, attributes in OPTIMIZERS:
        for shape in ((7,), (4, 6), (6, 2, 3)):
            gradients = [r.random(shape, "float32", -1, 1, seed=20 + i) for i in range(3)]
            r.case(f"optimizers.{name}", kind="contract" if name == "Muon" else "reduce", vjp=False,
                   parameter=x(r, shape, "float32"), gradients=gradients, **attributes)


# Of a signal, an image and a volume, with odd lengths, so that windows leave elements over.
SPATIAL = {1: (2, 9), 2: (1, 5, 6), 3: (1, 3, 4, 3)}


def spatial(r, rank, channels=2, dtype="float32"):
    return {"x": x(r, (*SPATIAL[rank], channels), dtype)}


def convolutions(r):
    given = dict(in_channels=2, out_channels=4, bias=True)
    for dtype in FLOATS:
        layer(r, "Conv2d", spatial(r, 2, dtype=dtype), dtype, kernel_size=3, stride=1, padding=1,
              dilation=1, groups=1, **given)
    for kernel, stride, padding, dilation, groups in (([3, 2], [2, 1], [1, 0], 1, 1), (3, 2, [2, 1], [2, 1], 1),
                                                      (2, 1, 0, 1, 2)):
        layer(r, "Conv2d", spatial(r, 2), vjp=groups == 1, kernel_size=kernel, stride=stride,
              padding=padding, dilation=dilation, groups=groups, **given)
    for kernel, stride, padding, dilation in ((2, 1, 0, 1), ([3, 2, 3], [2, 1, 2], [1, 0, 2], [1, 2, 1])):
        layer(r, "Conv3d", spatial(r, 3), kernel_size=kernel, stride=stride, padding=padding,
              dilation=dilation, **given)
    for rank in (1, 2, 3):
        more = [1, 0, 1][:rank] if rank > 1 else 1
        for stride, padding, dilation, output_padding in ((1, 0, 1, 0), (2, 1, 1, more), (2, 0, 2, 0)):
            # MLX's gradients have other shapes than the arguments where elements are appended.
            layer(r, f"ConvTranspose{rank}d", spatial(r, rank), vjp=output_padding == 0, kernel_size=3,
                  stride=stride, padding=padding, dilation=dilation, output_padding=output_padding, **given)
    layer(r, "ConvTranspose2d", spatial(r, 2), kernel_size=[3, 2], stride=[2, 1], padding=[1, 0],
          dilation=[1, 2], output_padding=0, in_channels=2, out_channels=3, bias=False)


def pools(r):
    for name in ("MaxPool", "AvgPool"):
        for rank in (1, 2, 3):
            each = [2, 3, 2][:rank]
            layer(r, f"{name}{rank}d", spatial(r, rank), kind="reduce", kernel_size=2, stride=None, padding=0)
            layer(r, f"{name}{rank}d", spatial(r, rank), kind="reduce", kernel_size=each, stride=[2, 1, 1][:rank],
                  padding=1)
        # Windows that tile an image, and narrow numbers.
        layer(r, f"{name}2d", {"x": x(r, (1, 4, 6, 2), "bfloat16")}, "bfloat16", kind="reduce",
              kernel_size=[2, 3], stride=None, padding=0)


def upsampled(r):
    layer(r, "Upsample", spatial(r, 1), scale_factor=2.0, mode="nearest", align_corners=False)
    layer(r, "Upsample", spatial(r, 2), scale_factor=[1.5, 0.6], mode="nearest", align_corners=False)
    for mode in ("linear", "cubic"):
        for align_corners in (False, True):
            for rank, scale in ((1, 2.5), (2, [2.0, 3.0]), (2, [1.5, 0.6])):
                layer(r, "Upsample", spatial(r, rank), scale_factor=scale, mode=mode,
                      align_corners=align_corners)
        for scale in (2.0, [0.5, 0.4]):
            layer(r, "Upsample", spatial(r, 2), scale_factor=scale, mode=mode, align_corners=False,
                  antialias=True)
    layer(r, "Upsample", spatial(r, 3), scale_factor=[1.0, 2.0, 0.5], mode="linear", align_corners=False)
    layer(r, "Upsample", spatial(r, 2, 2, "bfloat16"), "bfloat16", scale_factor=2.0, mode="linear",
          align_corners=False)
