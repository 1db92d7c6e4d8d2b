//! Causal convolution on the GPU.

use super::backward::{CausalConv1dBackward, blocks_of};
use super::{CausalConv1d, Sizes};
use crate::array::DType;
use crate::error::Result;
use crate::gpu::rows::Rows;
use crate::gpu::{Bind, GpuCall, Kernel, MATH, grid, packed};

/// One launch for the result and one for the state; a thread owns a word.
pub(super) fn forward(call: &mut GpuCall<'_>, op: CausalConv1d) -> Result<()> {
    let Sizes { steps, channels, kept, .. } = Sizes::new(call.meta(0), call.meta(1));
    let dtype = call.meta(0).dtype;
    let offset = |input: Option<usize>| input.map_or(0, |input| call.meta(input).layout.offset);
    let state = op.stated.then_some(2);
    let mut params = vec![0, steps, channels];
    params.extend([offset(Some(0)), offset(Some(1)), offset(state), offset(op.bias())]);
    let mut params: Vec<u32> = params.into_iter().map(|word| word as u32).collect();
    // The state, if there is none, is not read: nor bound.
    let inputs = [Some(("x", 0)), Some(("weight", 1)), state.map(|input| ("state", input))];
    let bias = op.bias().map(|input| ("bias", input));
    for (output, value) in [(0, "convolved"), (1, "kept")] {
        let size = call.output_meta(output).size();
        if size == 0 {
            continue;
        }
        params[0] = size as u32;
        // What is kept is made of steps alone.
        let convolved = output == 0;
        let used: Vec<(&str, usize)> = (inputs.iter().copied().chain([bias]))
            .flatten()
            .filter(|(name, _)| convolved || !matches!(*name, "weight" | "bias"))
            // Without steps there is nothing of `x` to bind.
            .filter(|(name, _)| steps > 0 || *name != "x")
            .collect();
        let source = || {
            let mut text = format!("{MATH}{}", packed::PACKING);
            for (binding, (name, _)) in used.iter().enumerate() {
                text.push_str(&packed::reader(name, binding, dtype));
            }
            for name in ["x", "weight", "state", "bias"] {
                if used.iter().all(|(other, _)| *other != name) {
                    text.push_str(&format!("fn {name}(i: u32) -> f32 {{ return 0.0; }}\n"));
                }
            }
            text.push_str(&format!(
                "const TAPS = {}u;\nconst KEPT_STEPS = {kept}u;\nconst SILU = {};\n",
                kept + 1,
                op.silu
            ));
            text.push_str(concat!(include_str!("forward.wgsl"), include_str!("whole.wgsl")));
            text.push_str(&packed::word_writer("out", used.len(), dtype));
            text.push_str(&packed::word_main(dtype, "p.n", value));
            text
        };
        let mut bindings: Vec<Bind<'_>> =
            used.iter().map(|(_, input)| Bind::Input(*input)).collect();
        bindings.push(Bind::Output(output));
        let words = size.div_ceil(packed::per_word(dtype));
        call.launch(&Kernel {
            variant: format!(
                "{value}/{dtype}/{kept}/{}/{}/{}/{}",
                op.silu,
                op.stated,
                op.biased,
                steps > 0
            ),
            source: &source,
            bindings: &bindings,
            params: &params,
            groups: grid(words.div_ceil(packed::WORD_MAIN_GROUP)),
        })?;
    }
    Ok(())
}

/// Threads of a workgroup.
const WIDTH: usize = 64;

/// Blocks of rows, then the state, then the sums that blocks leave in the scratch memory.
pub(super) fn backward(call: &mut GpuCall<'_>, op: CausalConv1dBackward) -> Result<()> {
    let Sizes { batch, steps, channels, kept } = Sizes::new(call.meta(0), call.meta(1));
    let (forward, dtype, taps) = (op.forward, call.meta(0).dtype, kept + 1);
    let (blocks, per_block) = blocks_of(batch * steps, true);
    let stated = forward.stated.then_some(2);
    let bias = forward.bias().filter(|_| forward.silu);
    let named = [
        ("x", Some(0)),
        ("weight", Some(1)),
        ("state", stated),
        ("bias", bias),
        ("dy", Some(op.dy())),
        ("dnext", op.dnext()),
    ];
    let offsets = named.map(|(_, input)| input.map_or(0, |i| call.meta(i).layout.offset));
    let constants = format!(
        "const TAPS = {taps}u;\nconst KEPT_STEPS = {kept}u;\nconst SUMS = {}u;\n\
         const SILU = {};\nconst CONTINUED = {};\n",
        op.sums(taps),
        forward.silu,
        op.continued
    );
    let key = format!("{dtype}/{taps}/{forward:?}/{}", op.continued);
    // The sizes that a text of one output has, and then all offsets.
    let with_offsets =
        |sizes: &[usize]| sizes.iter().chain(&offsets).map(|&n| n as u32).collect::<Vec<_>>();
    let used = |wanted: &dyn Fn(&str) -> bool| {
        let used = named.into_iter().filter(|(name, _)| wanted(name));
        used.filter_map(|(name, input)| Some((name, input?))).collect::<Vec<_>>()
    };
    if call.meta(0).size() > 0 {
        let spans = Rows::new(dtype, channels, offsets, WIDTH, 0);
        let inputs = used(&|_| true);
        let source = || {
            let mut text = [packed::PACKING, MATH, &spans.types(), &constants].concat();
            text += &spans.each("span_sigmoid", "wz_sigmoid(value)");
            for (binding, (name, _)) in inputs.iter().enumerate() {
                text += &match *name {
                    "weight" => packed::reader(name, binding, dtype),
                    _ => spans.reader(name, binding),
                };
            }
            for (name, _) in named.iter().filter(|(name, _)| inputs.iter().all(|i| i.0 != *name)) {
                text += &spans.number(name, "0.0");
            }
            text += &spans.writer("out", inputs.len());
            let binding = inputs.len() + 1;
            text += &format!(
                "@group(0) @binding({binding}) var<storage, read_write> memory: array<f32>;\n"
            );
            spans.typed(&(text + include_str!("backward.wgsl")))
        };
        let across = channels / spans.span();
        let threads = blocks * across;
        let mut bindings: Vec<Bind<'_>> = inputs.iter().map(|i| Bind::Input(i.1)).collect();
        bindings.extend([Bind::Output(0), Bind::Scratch]);
        call.launch(&Kernel {
            variant: format!("rows/{key}/{}", spans.key()),
            source: &source,
            bindings: &bindings,
            params: &with_offsets(&[threads, across, steps, channels, batch * steps, per_block]),
            groups: grid(threads.div_ceil(WIDTH)),
        })?;
    }
    let mut output = 2;
    if forward.stated {
        let size = call.output_meta(output).size();
        let inputs = used(&|name| {
            // Without steps there is nothing of these to bind.
            (steps > 0 || !matches!(name, "x" | "dy"))
                && (forward.silu || !matches!(name, "x" | "state"))
        });
        let source = || {
            let mut text = [packed::PACKING, MATH, &constants].concat();
            for (binding, (name, _)) in inputs.iter().enumerate() {
                text += &packed::reader(name, binding, dtype);
            }
            for (name, _) in named.iter().filter(|(name, _)| inputs.iter().all(|i| i.0 != *name)) {
                text += &format!("fn {name}(i: u32) -> f32 {{ return 0.0; }}\n");
            }
            text += concat!(include_str!("state_gradient.wgsl"), include_str!("whole.wgsl"));
            text += &packed::word_writer("out", inputs.len(), dtype);
            text + &packed::word_main(dtype, "p.n", "of_state")
        };
        let mut bindings: Vec<Bind<'_>> = inputs.iter().map(|i| Bind::Input(i.1)).collect();
        bindings.push(Bind::Output(output));
        if size > 0 {
            call.launch(&Kernel {
                variant: format!("state/{key}/{}", steps > 0),
                source: &source,
                bindings: &bindings,
                params: &with_offsets(&[size, steps, channels]),
                groups: words(size, dtype),
            })?;
        }
        output += 1;
    }
    let stride = op.sums(taps) * channels;
    add_up(call, 1, [0, taps, channels, blocks, stride])?;
    if forward.biased {
        add_up(call, output, [taps * channels, 1, channels, blocks, stride])?;
    }
    Ok(())
}

/// Workgroups whose threads own the words of so many elements.
fn words(size: usize, dtype: DType) -> [u32; 3] {
    grid(size.div_ceil(packed::per_word(dtype)).div_ceil(packed::WORD_MAIN_GROUP))
}

fn add_up(call: &mut GpuCall<'_>, output: usize, params: [usize; 5]) -> Result<()> {
    let (size, dtype) = (call.output_meta(output).size(), call.output_meta(output).dtype);
    if size == 0 {
        return Ok(());
    }
    let source = || {
        [
            packed::PACKING,
            include_str!("sums.wgsl"),
            &packed::word_writer("out", 1, dtype),
            &packed::word_main(dtype, "p.n", "summed"),
        ]
        .concat()
    };
    let [start, taps, channels, blocks, stride] = params;
    call.launch(&Kernel {
        variant: format!("sums/{dtype}"),
        source: &source,
        bindings: &[Bind::Scratch, Bind::Output(output)],
        params: &[size, start, taps, channels, blocks, stride].map(|n| n as u32),
        groups: words(size, dtype),
    })
}
