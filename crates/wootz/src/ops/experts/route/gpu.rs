//! The router on the GPU: a workgroup has a row, whose scores it keeps, and takes the best one by one.

use super::{MOST, Route};
use crate::array::DType;
use crate::error::Result;
use crate::gpu::{Bind, GpuCall, Kernel, MATH, grid, packed};
use crate::ops::experts::{Scores, Ties};

/// Threads of a workgroup.
const WIDTH: usize = 64;

pub(super) fn run(call: &mut GpuCall<'_>, op: Route) -> Result<()> {
    let &[rows, experts] = call.meta(0).shape() else { return Ok(()) };
    if rows == 0 {
        return Ok(());
    }
    if experts > MOST {
        return Err(call.not_on_device(format!("more than {MOST} experts")));
    }
    let (logits, weights) = (call.meta(0).dtype, call.output_meta(1).dtype);
    let bias = op.bias().map(|input| call.meta(input).dtype);
    // What is narrow is rounded after every step, as the composition does it.
    let preferred = if bias.is_none_or(|bias| bias == weights) { weights } else { DType::F32 };
    let groups = op.groups.map_or([1, 1, 1], |groups| [groups.count, groups.keep, groups.best]);
    let softmax = op.scores == Scores::Softmax;
    let higher = op.ties == Ties::HigherFirst;
    let source = || {
        let mut text = [packed::PACKING, MATH].concat();
        text.push_str(&packed::reader("logits", 0, logits));
        let mut binding = 1;
        for (name, dtype) in [("bias", bias), ("factor", op.scaled.then_some(weights))] {
            match dtype {
                Some(dtype) => {
                    text.push_str(&packed::reader(name, binding, dtype));
                    binding += 1;
                }
                None => text.push_str(&format!("fn {name}(i: u32) -> f32 {{ return 1.0; }}\n")),
            }
        }
        text.push_str(&packed::writer("indices", binding, DType::U32));
        text.push_str(&packed::writer("weights", binding + 1, weights));
        for (name, dtype) in [("rounded", weights), ("rounded_preferred", preferred)] {
            let value = packed::round(dtype, "value");
            text.push_str(&format!("fn {name}(value: f32) -> f32 {{ return {value}; }}\n"));
        }
        let [count, keep, best] = groups;
        text.push_str(&format!(
            "const WIDTH = {WIDTH}u;\nconst EXPERTS = {experts}u;\nconst K = {}u;\n\
             const GROUPS = {count}u;\nconst KEEP = {keep}u;\nconst BEST = {best}u;\n\
             const SOFTMAX = {softmax};\nconst BIASED = {};\nconst RENORMALISE = {};\n\
             const SCALED = {};\nconst FACTORS = {};\nconst HIGHER = {higher};\n",
            op.k,
            op.biased,
            op.renormalise,
            op.scale != 1.0,
            op.scaled,
        ));
        text + include_str!("../router.wgsl")
    };
    let offset = |input: Option<usize>| input.map_or(0, |i| call.meta(i).layout.offset as u32);
    let params = [
        rows as u32,
        (op.scale as f32).to_bits(),
        offset(Some(0)),
        offset(op.bias()),
        offset(op.factors()),
    ];
    let mut bindings: Vec<Bind<'_>> = (0..call.input_metas().count()).map(Bind::Input).collect();
    bindings.extend([Bind::Output(0), Bind::Output(1)]);
    call.launch(&Kernel {
        variant: format!(
            "row/{logits}/{weights}/{bias:?}/{experts}/{}/{groups:?}/{softmax}/{}/{}/{}/{higher}",
            op.k,
            op.renormalise,
            op.scale != 1.0,
            op.scaled,
        ),
        source: &source,
        bindings: &bindings,
        params: &params,
        groups: grid(rows),
    })
}
