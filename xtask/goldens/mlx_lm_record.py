#!/usr/bin/env python3
"""Records layers of mlx-lm and their gradients: `mlx_lm_record.py DIR` writes
DIR/sparse_experts.safetensors and DIR/gated_delta.safetensors. Run through `cargo xtask goldens`,
which pins the versions.

A case has the arrays `NAME.x`, `NAME.dy`, `NAME.y`, `NAME.dx`, and for each parameter
`NAME.PARAMETER` and `NAME.grad.PARAMETER`. Everything is float32."""
import pathlib
import sys

import mlx.core as mx
import mlx_lm
import numpy as np
from mlx.utils import tree_flatten, tree_map, tree_unflatten
from mlx_lm.models import qwen3_next

WANTED = "0.32.2"


def arguments(**given):
    sizes = dict(
        model_type="qwen3_next", hidden_size=16, num_hidden_layers=1, intermediate_size=16,
        num_attention_heads=2, linear_num_value_heads=4, linear_num_key_heads=2,
        linear_key_head_dim=8, linear_value_head_dim=6, linear_conv_kernel_dim=4, num_experts=8,
        num_experts_per_tok=3, decoder_sparse_step=1, shared_expert_intermediate_size=10,
        mlp_only_layers=[], moe_intermediate_size=12, rms_norm_eps=1e-6, vocab_size=16,
        num_key_value_heads=1, rope_theta=1e4, partial_rotary_factor=0.5,
        max_position_embeddings=64, head_dim=8, norm_topk_prob=True,
    )
    return qwen3_next.ModelArgs(**{**sizes, **given})


def randomise(module, generator, scale):
    """Parameters of the module, drawn in the order of their names."""
    names = sorted(tree_flatten(module.parameters()))
    drawn = [(name, mx.array(generator.normal(size=x.shape).astype(np.float32) * scale))
             for name, x in names]
    module.update(tree_unflatten(drawn))


def record(arrays, name, module, x, dy):
    def result(parameters, x):
        module.update(parameters)
        return module(x)

    def loss(parameters, x):
        return (result(parameters, x) * dy).sum()

    parameters = tree_map(lambda p: p, module.parameters())
    y = result(parameters, x)
    gradients, dx = mx.grad(loss, argnums=(0, 1))(parameters, x)
    found = {"x": x, "dy": dy, "y": y, "dx": dx}
    for prefix, tree in (("", parameters), ("grad.", gradients)):
        found.update({prefix + key: value for key, value in tree_flatten(tree)})
    for key, value in found.items():
        assert value.dtype == mx.float32, (key, value.dtype)
        arrays[f"{name}.{key}"] = value


def experts(arrays, name, seed, tie=None, **given):
    generator = np.random.default_rng(seed)
    block = qwen3_next.Qwen3NextSparseMoeBlock(arguments(**given))
    randomise(block, generator, 0.4)
    if tie is not None:
        # Experts whose logits are equal bit by bit: the same row of the router.
        rows = np.array(block.gate.weight)
        for to, source in tie:
            rows[to] = rows[source]
        block.gate.weight = mx.array(rows)
    x, dy = (mx.array(generator.normal(size=(2, 9, 16)).astype(np.float32)) for _ in range(2))
    record(arrays, name, block, x, dy)


def delta(arrays, name, seed, length, **given):
    generator = np.random.default_rng(seed)
    layer = qwen3_next.Qwen3NextGatedDeltaNet(arguments(**given))
    layer.train()
    randomise(layer, generator, 0.4)
    x, dy = (mx.array(generator.normal(size=(2, length, 16)).astype(np.float32)) for _ in range(2))
    record(arrays, name, layer, x, dy)


def main():
    if mlx_lm.__version__ != WANTED:
        raise SystemExit(f"mlx-lm {WANTED} is needed, this is {mlx_lm.__version__}")
    mx.set_default_device(mx.cpu)
    mx.disable_compile()
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    about = {"recorded_from": f"mlx-lm {mlx_lm.__version__}, MLX {mx.__version__}"}

    arrays = {}
    experts(arrays, "plain", 1)
    # Equal scores within the chosen, at their border and outside.
    experts(arrays, "ties", 2, tie=[(3, 1), (6, 1), (7, 1), (4, 0)])
    experts(arrays, "all_equal", 3, tie=[(i, 0) for i in range(1, 8)])
    # So many that mlx-lm sorts them by expert first.
    experts(arrays, "as_they_are", 4, norm_topk_prob=False, num_experts_per_tok=5)
    mx.save_safetensors(str(folder / "sparse_experts.safetensors"), dict(sorted(arrays.items())), about)

    arrays = {}
    delta(arrays, "short", 5, 3)
    delta(arrays, "longer", 6, 70)
    mx.save_safetensors(str(folder / "gated_delta.safetensors"), dict(sorted(arrays.items())), about)


if __name__ == "__main__":
    main()
