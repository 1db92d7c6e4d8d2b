//! What is measured: one row per op and size, with its peers and its goals.

/// Who is measured beside wootz.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Peer {
    /// PyTorch, in a process of its own.
    Torch,
    /// candle's CPU device.
    Candle,
    /// The `gemm` crate.
    Gemm,
    /// faer's matrix product.
    Faer,
    /// llama.cpp's ggml, in a process of its own.
    Llama,
    /// MLX, in a process of its own.
    Mlx,
    /// wootz itself with activations of 8 bits.
    Fast,
    /// wootz itself in f32.
    Single,
}

/// What bounds a row.
#[derive(Clone, Copy)]
pub enum Work {
    /// Bytes that must be read and written.
    Bytes(f64),
    /// Bytes that must be read, and more than caches hold.
    Read(f64),
    /// Floating-point operations.
    Flops(f64),
    /// Calls, of which the time of one is told.
    Calls(f64),
}

/// What wootz must reach.
#[derive(Clone, Copy)]
pub enum Goal {
    /// At least this fraction of the machine's limit.
    OfLimit(f64),
    /// At least this many times this peer's speed.
    OfPeer(Peer, f64),
    /// At most this many nanoseconds a call.
    Nanoseconds(f64),
    /// At most this many times the memory that this peer takes.
    Memory(Peer, f64),
}

/// One line of the table.
pub struct Row {
    /// Name, also the operation's name in a request to PyTorch.
    pub name: &'static str,
    /// Sizes: rows and columns, or m, k, n.
    pub sizes: &'static [usize],
    /// `f32`, `f16` or `bf16`; or a format of quantized weights.
    pub dtype: &'static str,
    /// Bytes or operations of one run.
    pub work: Work,
    /// Measured in the same run.
    pub peers: &'static [Peer],
    /// Checked under `--check`.
    pub goals: &'static [Goal],
}

impl Row {
    /// Name, sizes and dtype, as PyTorch's side wants them.
    pub fn title(&self) -> String {
        let sizes: Vec<String> = self.sizes.iter().map(usize::to_string).collect();
        format!("{} {} {}", self.name, sizes.join(" "), self.dtype)
    }

    /// The same in f32, without goals.
    pub fn single(&self) -> Row {
        Row { dtype: "f32", peers: &[], goals: &[], ..*self }
    }

    /// How often everybody has a turn: fewer times where a turn is long.
    pub fn rounds(&self) -> usize {
        match self.name {
            "qmv_fast" | "qmv_exact" | "qmm_fast" | "qmm_exact" | "quantize" => 5,
            "sort" | "argsort" | "topk" | "cross_entropy_train" => 5,
            _ => crate::ROUNDS,
        }
    }
}

/// Every row, in the order of the table.
pub fn all() -> Vec<Row> {
    use Goal::{Memory, Nanoseconds, OfLimit, OfPeer};
    use Peer::{Candle, Faer, Gemm, Single, Torch};
    const SQUARE: &[usize] = &[4096, 4096];
    // Arrays of 4096 x 4096 f32 that an op must read or write.
    let pass = |name, arrays: f64, goals| Row {
        name,
        sizes: SQUARE,
        dtype: "f32",
        work: Work::Bytes(arrays * 4096.0 * 4096.0 * 4.0),
        peers: &[Torch],
        goals,
    };
    let product = |n: &'static [usize], dtype, peers, goals| Row {
        name: "matmul",
        sizes: n,
        dtype,
        work: Work::Flops(2.0 * n.iter().map(|&x| x as f64).product::<f64>()),
        peers,
        goals,
    };
    // Batch, heads, length and dims of causal attention: half of two products, and in training of
    // five more.
    const HEADS: &[usize] = &[1, 16, 1024, 64];
    let attention = |name, products: f64, dtype, goals| Row {
        name,
        sizes: HEADS,
        dtype,
        work: Work::Flops(products * HEADS.iter().map(|&x| x as f64).product::<f64>() * 1024.0),
        // PyTorch's bf16 and f16 are not made for processors without AVX-512.
        peers: if dtype == "f32" { &[Torch] } else { &[Single] },
        goals,
    };
    let calls = |name, goals| Row {
        name,
        sizes: &[1000],
        dtype: "f32",
        work: Work::Calls(1000.0),
        peers: &[],
        goals,
    };
    // Elements that are put in order, and how many of the largest are asked for.
    let ordered = |name, sizes: &'static [usize]| Row {
        name,
        sizes,
        dtype: "f32",
        work: Work::Bytes(2.0 * sizes[0] as f64 * 4.0),
        peers: &[Torch],
        goals: &[OfPeer(Torch, 1.0)],
    };
    // Layers, their width, and the batch. Each layer has three products, but the first has two: nobody
    // asks for the gradient of its input.
    const MLP: &[usize] = &[4, 1024, 256];
    let step = |name, goals| Row {
        name,
        sizes: MLP,
        dtype: "f32",
        work: Work::Flops((3 * MLP[0] - 1) as f64 * 2.0 * (MLP[1] * MLP[1] * MLP[2]) as f64),
        peers: &[Torch],
        goals,
    };
    // Dims, heads, tokens and batch. Twelve products of a token's dims, and attention's triangles.
    const BLOCK: &[usize] = &[512, 8, 256, 8];
    let tokens = (BLOCK[2] * BLOCK[3]) as f64;
    let block = |dtype, goals| Row {
        name: "gpt_step",
        sizes: BLOCK,
        dtype,
        work: Work::Flops(
            tokens * 512.0 * (3.0 * 2.0 * 12.0 * 512.0 + 3.5 * 2.0 * BLOCK[2] as f64),
        ),
        peers: if dtype == "f32" { &[Torch] } else { &[Single] },
        goals,
    };
    const K1: &[usize] = &[1024, 1024, 1024];
    const K2: &[usize] = &[2048, 2048, 2048];
    vec![
        pass("softmax", 2.0, &[OfLimit(0.8), OfPeer(Torch, 1.0)]),
        pass("softmax_backward", 3.0, &[OfLimit(0.8), OfPeer(Torch, 1.0)]),
        pass("rms_norm", 2.0, &[OfLimit(0.8), OfPeer(Torch, 1.0)]),
        pass("rms_norm_backward", 3.0, &[OfLimit(0.8), OfPeer(Torch, 1.0)]),
        pass("layer_norm", 2.0, &[OfLimit(0.8), OfPeer(Torch, 1.0)]),
        pass("layer_norm_backward", 3.0, &[OfLimit(0.8), OfPeer(Torch, 1.0)]),
        pass("chain8", 2.0, &[OfLimit(0.9)]),
        pass("chain_exp_tanh", 2.0, &[OfPeer(Torch, 1.0)]),
        product(K1, "f32", &[Torch, Faer, Gemm, Candle], &[OfPeer(Torch, 1.0)]),
        product(K2, "f32", &[Torch, Faer, Gemm, Candle], &[OfPeer(Torch, 1.0)]),
        product(K1, "bf16", &[Candle], &[OfPeer(Candle, 1.0)]),
        product(K1, "f16", &[Candle], &[OfPeer(Candle, 1.0)]),
        attention("attention", 2.0, "f32", &[OfPeer(Torch, 1.0)]),
        attention("attention", 2.0, "bf16", &[OfPeer(Single, 0.8)]),
        attention("attention", 2.0, "f16", &[OfPeer(Single, 0.8)]),
        attention("attention_train", 7.0, "f32", &[OfPeer(Torch, 1.0)]),
        attention("attention_train", 7.0, "bf16", &[OfPeer(Single, 0.8)]),
        attention("attention_train", 7.0, "f16", &[OfPeer(Single, 0.8)]),
        Row {
            name: "attention_decode",
            sizes: &[1, 16, 4096, 64],
            dtype: "f32",
            work: Work::Bytes(2.0 * 16.0 * 4096.0 * 64.0 * 4.0),
            peers: &[Torch],
            goals: &[OfPeer(Torch, 1.0)],
        },
        // What a short sequence costs beside its keys.
        Row {
            name: "attention_decode",
            sizes: &[1, 9, 64, 64],
            dtype: "f32",
            work: Work::Calls(1.0),
            peers: &[Torch],
            goals: &[OfPeer(Torch, 1.0)],
        },
        // Logits are read forward and backward, and their gradient is written.
        Row {
            name: "cross_entropy_train",
            sizes: &[4096, 32000],
            dtype: "f32",
            work: Work::Bytes(3.0 * 4096.0 * 32000.0 * 4.0),
            peers: &[Torch],
            goals: &[OfPeer(Torch, 1.0)],
        },
        // Queries or keys as a projection leaves them: batch, length, heads and dims.
        Row {
            name: "rope",
            sizes: &[1, 4096, 32, 128],
            dtype: "f32",
            work: Work::Bytes(2.0 * 4096.0 * 32.0 * 128.0 * 4.0),
            peers: &[],
            goals: &[OfLimit(0.8)],
        },
        // An image's height, width and channels, the channels of the result, and the window's side.
        Row {
            name: "conv2d",
            sizes: &[224, 224, 64, 64, 3],
            dtype: "f32",
            work: Work::Flops(2.0 * 224.0 * 224.0 * 64.0 * 64.0 * 9.0),
            peers: &[Torch],
            goals: &[OfPeer(Torch, 1.0)],
        },
        // The same with a window for each channel.
        Row {
            name: "conv2d_depthwise",
            sizes: &[112, 112, 128, 128, 3],
            dtype: "f32",
            work: Work::Bytes(2.0 * 112.0 * 112.0 * 128.0 * 4.0),
            peers: &[Torch],
            goals: &[OfPeer(Torch, 1.0)],
        },
        ordered("sort", &[1 << 24]),
        ordered("argsort", &[1 << 24]),
        ordered("topk", &[1 << 24, 100]),
        // A token drawn from the most probable ones of a vocabulary, as a plan.
        Row {
            name: "sample_top_p",
            sizes: &[1, 49152],
            dtype: "f32",
            work: Work::Calls(1.0),
            peers: &[],
            goals: &[Nanoseconds(300e3)],
        },
        calls("lazy_node", &[Nanoseconds(300.0)]),
        calls("replay_node", &[Nanoseconds(100.0)]),
        calls("replay_kernel", &[Nanoseconds(100.0)]),
        calls("replay_fused_node", &[Nanoseconds(100.0)]),
        step("mlp_step", &[OfPeer(Torch, 1.0), Memory(Torch, 1.0)]),
        step("mlp_step_compiled", &[OfPeer(Torch, 1.0), Memory(Torch, 1.0)]),
        block("f32", &[OfPeer(Torch, 1.0), Memory(Torch, 1.0)]),
        block("bf16", &[OfPeer(Single, 0.8), Memory(Single, 0.6)]),
    ]
}

/// Products with quantized weights: rows of weights and columns, after the rows of activations if there are many.
/// Those with one row of activations go through many distinct matrices.
pub fn quantized() -> Vec<Row> {
    use Goal::{OfLimit, OfPeer};
    use Peer::{Candle, Fast, Llama, Mlx};
    const SIZES: [&[usize]; 2] = [&[4096, 4096], &[11008, 4096]];
    const MANY: [&[usize]; 3] = [&[32, 4096, 4096], &[128, 4096, 4096], &[512, 4096, 4096]];
    let mut rows = Vec::new();
    for dtype in ["Q4_0", "Q4_K", "Q8_0", "affine4"] {
        let peers: &[Peer] = if dtype == "affine4" { &[Mlx] } else { &[Llama, Candle] };
        for sizes in SIZES {
            let work = Work::Read(crate::quantized::bytes_of_cycle(dtype, sizes));
            rows.push(Row { name: "qmv_fast", sizes, dtype, work, peers, goals: &[OfLimit(0.9)] });
            let goals: &[Goal] = &[OfPeer(Fast, 0.85)];
            rows.push(Row { name: "qmv_exact", sizes, dtype, work, peers: &[Fast], goals });
        }
        for sizes in MANY {
            let work = Work::Flops(2.0 * sizes.iter().map(|&x| x as f64).product::<f64>());
            let goals: &[Goal] = match dtype {
                "affine4" => &[OfPeer(Mlx, 1.0)],
                _ => &[OfPeer(Llama, 1.0), OfPeer(Candle, 1.0)],
            };
            for name in ["qmm_fast", "qmm_exact"] {
                rows.push(Row { name, sizes, dtype, work, peers, goals });
            }
        }
    }
    // Small matrices, of which a small model has hundreds: what a product costs beside its weights.
    for sizes in [&[576, 576][..], &[1536, 576], &[576, 1536]] {
        let (dtype, goals) = ("Q4_0", &[OfPeer(Llama, 1.0)][..]);
        let work = Work::Read(crate::quantized::bytes_of_cycle(dtype, sizes));
        for name in ["qmv_fast", "qmv_exact"] {
            rows.push(Row { name, sizes, dtype, work, peers: &[Llama], goals });
        }
    }
    // A matrix of a model, to be done 66 times for 1.1 billion weights.
    let weights = 4096.0 * 4096.0;
    for dtype in ["bf16", "f16", "f32"] {
        let work = Work::Calls(weights);
        rows.push(Row { name: "quantize", sizes: SIZES[0], dtype, work, peers: &[], goals: &[] });
    }
    rows
}
