//! Runs elementwise programs tile by tile: one pass over memory whatever the number of steps.

use std::cell::RefCell;

use smallvec::SmallVec;

use super::tile::{self, TILE, Walk};
use super::{CpuCall, threads};
use crate::array::{Layout, collapse};
use crate::error::{Error, Result};
use crate::eval::{Argument, Program, StepKind};
use crate::op::TileFn;

/// Elements a thread takes at a time.
const CHUNK: usize = 16 * TILE;

thread_local! {
    /// Tiles of the running thread, reused from call to call.
    static REGISTERS: RefCell<Vec<Vec<u64>>> = const { RefCell::new(Vec::new()) };
}

/// Computes `program` over the call's inputs, broadcast to the output's shape.
pub(crate) fn run(program: &Program, call: &mut CpuCall<'_>) -> Result<()> {
    let output = &mut call.outputs[0];
    let layouts: SmallVec<[Layout; 5]> = std::iter::once(output.meta.layout.clone())
        .chain(call.inputs.iter().map(|input| input.meta.layout.broadcast_to(output.meta.shape())))
        .collect();
    let (shape, strides) = collapse(&layouts.iter().collect::<SmallVec<[&Layout; 5]>>());
    let inputs: SmallVec<[Option<Walk<'_>>; 4]> = (call.inputs.iter().zip(&strides[1..]))
        .map(|(input, strides)| {
            Some(Walk {
                bytes: input.bytes?,
                dtype: input.meta.dtype,
                offset: input.meta.layout.offset,
                strides,
            })
        })
        .collect();
    let plan = Plan::new(program, &inputs, &shape)?;
    let size = output.meta.dtype.size();
    threads::chunks_mut(output.bytes, CHUNK * size, |chunk, bytes| {
        REGISTERS.with_borrow_mut(|registers| {
            plan.run_chunk(registers, chunk * CHUNK, bytes, size);
        });
    });
    Ok(())
}

/// Where an operand of a step is found.
#[derive(Clone, Copy)]
enum Source {
    Register(usize),
    /// An input whose elements can be read in place.
    Direct(usize),
}

/// A program with its registers assigned.
struct Plan<'a> {
    shape: &'a [usize],
    inputs: &'a [Option<Walk<'a>>],
    /// Inputs that are loaded into a register, per tile or once per chunk.
    loads: SmallVec<[(usize, usize, bool); 4]>,
    constants: SmallVec<[(usize, u64, crate::array::Class); 4]>,
    steps: Vec<PlanStep>,
    registers: usize,
    dtype: crate::array::DType,
}

struct PlanStep {
    function: Option<TileFn>,
    arguments: SmallVec<[(Source, usize); 3]>,
    register: usize,
    dtype: crate::array::DType,
}

impl<'a> Plan<'a> {
    fn new(
        program: &Program,
        inputs: &'a [Option<Walk<'a>>],
        shape: &'a [usize],
    ) -> Result<Plan<'a>> {
        let mut plan = Plan {
            shape,
            inputs,
            loads: SmallVec::new(),
            constants: SmallVec::new(),
            steps: Vec::with_capacity(program.steps.len()),
            registers: 0,
            dtype: program.dtype(),
        };
        let flat = |walk: &Walk<'_>| matches!((walk.strides, shape), ([1], [_]));
        let mut input_sources: SmallVec<[Source; 4]> = SmallVec::new();
        for (index, walk) in inputs.iter().enumerate() {
            let direct = walk.as_ref().is_some_and(|walk| flat(walk) && tile::is_wide(walk.dtype));
            input_sources.push(if direct {
                Source::Direct(index)
            } else {
                let scalar = walk.as_ref().is_some_and(|w| w.strides.iter().all(|&s| s == 0));
                plan.loads.push((index, plan.registers, scalar));
                plan.registers += 1;
                Source::Register(plan.registers - 1)
            });
        }
        let mut last_use = vec![0usize; program.steps.len()];
        for (index, step) in program.steps.iter().enumerate() {
            for argument in &step.arguments {
                if let Argument::Step(used) = argument {
                    last_use[*used as usize] = index;
                }
            }
        }
        let mut free: Vec<usize> = Vec::new();
        let mut registers_of: Vec<usize> = Vec::with_capacity(program.steps.len());
        for (index, step) in program.steps.iter().enumerate() {
            let register = match step.kind {
                // Constants are filled once per chunk, so they keep their register.
                StepKind::Constant(_) => None,
                _ => free.pop(),
            };
            let register = register.unwrap_or_else(|| {
                plan.registers += 1;
                plan.registers - 1
            });
            registers_of.push(register);
            if let StepKind::Constant(bits) = step.kind {
                plan.constants.push((register, bits, step.dtype.class()));
                if program.steps.len() > 1 {
                    continue;
                }
            }
            let sources = step.arguments.iter().map(|argument| {
                let source = match *argument {
                    Argument::Input(input) => input_sources[input as usize],
                    Argument::Step(step) => Source::Register(registers_of[step as usize]),
                };
                (source, program.argument_dtype(*argument).class().size())
            });
            let arguments: SmallVec<[(Source, usize); 3]> = sources.collect();
            let function = match step.kind {
                StepKind::Constant(_) => None,
                StepKind::Cast => {
                    let from = program.argument_dtype(step.arguments[0]);
                    Some(super::cast::tile_fn(from.class(), step.dtype))
                }
                StepKind::Kernel(kernel) => {
                    // The last argument decides: in `where` the first is the condition.
                    let argument = step.arguments[step.arguments.len() - 1];
                    let dtype = program.argument_dtype(argument);
                    let function = (kernel.cpu)(dtype.class());
                    Some(function.ok_or_else(|| {
                        Error::dtype(kernel.name, "input", "a supported type", dtype)
                    })?)
                }
            };
            for (position, argument) in step.arguments.iter().enumerate() {
                if let Argument::Step(used) = *argument {
                    let constant =
                        matches!(program.steps[used as usize].kind, StepKind::Constant(_));
                    let repeated = step.arguments[..position].contains(argument);
                    if last_use[used as usize] == index && !constant && !repeated {
                        free.push(registers_of[used as usize]);
                    }
                }
            }
            plan.steps.push(PlanStep { function, arguments, register, dtype: step.dtype });
        }
        Ok(plan)
    }

    /// Computes the elements of one chunk of the output.
    fn run_chunk(&self, registers: &mut Vec<Vec<u64>>, start: usize, out: &mut [u8], size: usize) {
        while registers.len() < self.registers {
            registers.push(vec![0; TILE]);
        }
        for &(register, bits, class) in &self.constants {
            tile::fill(class, bits, bytemuck::cast_slice_mut(&mut registers[register]));
        }
        for &(input, register, scalar) in &self.loads {
            if let (true, Some(walk)) = (scalar, &self.inputs[input]) {
                let target = bytemuck::cast_slice_mut(&mut registers[register]);
                // Without axes, because the output may be shorter than a tile.
                walk.load(&[], 0, TILE, target);
            }
        }
        let tiles = out.chunks_mut(TILE * size).enumerate();
        for (index, out) in tiles {
            let start = start + index * TILE;
            let count = out.len() / size;
            for &(input, register, scalar) in &self.loads {
                let target = bytemuck::cast_slice_mut(&mut registers[register]);
                match &self.inputs[input] {
                    Some(walk) if !scalar => walk.load(self.shape, start, count, target),
                    Some(_) => {}
                    // The input gave its memory to the output: it is read from there.
                    None => tile::widen(self.dtype, out, target),
                }
            }
            for (position, step) in self.steps.iter().enumerate() {
                self.run_step(registers, step, position + 1 == self.steps.len(), start, count, out);
            }
        }
    }

    #[inline]
    fn run_step(
        &self,
        registers: &mut [Vec<u64>],
        step: &PlanStep,
        last: bool,
        start: usize,
        count: usize,
        out: &mut [u8],
    ) {
        let width = step.dtype.class().size();
        // The register is taken out so that others can be read while it is written.
        let mut target = std::mem::take(&mut registers[step.register]);
        {
            let result: &mut [u8] = if last && tile::is_wide(step.dtype) {
                &mut *out
            } else {
                &mut bytemuck::cast_slice_mut(&mut target)[..count * width]
            };
            if let Some(function) = step.function {
                let arguments: SmallVec<[&[u8]; 3]> = (step.arguments.iter())
                    .map(|&(source, width)| match source {
                        Source::Register(register) => {
                            &bytemuck::cast_slice::<u64, u8>(&registers[register])[..count * width]
                        }
                        Source::Direct(input) => {
                            self.inputs[input].as_ref().map_or(&[][..], |walk| {
                                &walk.bytes[(walk.offset + start) * width..][..count * width]
                            })
                        }
                    })
                    .collect();
                function(&arguments, result);
                tile::round(step.dtype, result);
            }
        }
        // A constant by itself has its value in the register; narrow results are stored from there.
        if last && (step.function.is_none() || !tile::is_wide(step.dtype)) {
            tile::narrow(step.dtype, &bytemuck::cast_slice(&target)[..count * width], out);
        }
        registers[step.register] = target;
    }
}
