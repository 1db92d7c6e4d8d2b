//! Runs elementwise programs tile by tile: one pass over memory whatever the number of steps.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::OnceLock;

use smallvec::SmallVec;

use super::simd::{Ahead, stream};
use super::tile::{self, TILE, Walk};
use super::{CpuCall, CpuInput, CpuOutput, threads};
use crate::array::{Class, DType, Layout, Shape, Strides, collapse};
use crate::error::{Error, Result};
use crate::eval::{Argument, Program, Step, StepKind};
use crate::op::{BLOCK, TileFn};

/// Elements a thread takes at a time.
const CHUNK: usize = 16 * TILE;
/// Arguments of a step.
const MOST_ARGUMENTS: usize = 4;

thread_local! {
    /// Tiles of the running thread, reused from call to call.
    static REGISTERS: RefCell<Registers> = const { RefCell::new(Registers(Vec::new())) };
}

/// Room for tiles of any class, one behind the other.
struct Registers(Vec<Line>);

/// A cache line: vectors that cross one cost twice.
#[repr(C, align(64))]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct Line([u64; 8]);

/// Bytes from one register to the next: the largest tile and some lines. Processors take a load for
/// one that waits for a store if their addresses differ by a multiple of 4 KiB; so neighbours are
/// shifted against each other.
const STRIDE: usize = TILE * 8 + 5 * size_of::<Line>();

impl Registers {
    /// The bytes of that many registers.
    fn bytes(&mut self, count: usize) -> &mut [u8] {
        let lines = count * STRIDE / size_of::<Line>();
        if self.0.len() < lines {
            self.0.resize(lines, bytemuck::Zeroable::zeroed());
        }
        bytemuck::cast_slice_mut(&mut self.0)
    }
}

/// The bytes of one register.
#[inline]
fn register(registers: &mut [u8], index: usize) -> &mut [u8] {
    &mut registers[index * STRIDE..][..TILE * 8]
}

/// Computes `program` over the call's inputs, broadcast to the outputs' shape.
pub(crate) fn run(program: &Program, call: &mut CpuCall<'_>) -> Result<()> {
    if !copied(program, call)? {
        Prepared::new(program, call)?.run(call);
    }
    Ok(())
}

/// As [`run`], for calls that all have the same layouts: what can be known before is kept in
/// `kept` by the first of them.
pub(crate) fn run_prepared(
    program: &Program,
    kept: &OnceLock<Prepared>,
    call: &mut CpuCall<'_>,
) -> Result<()> {
    match kept.get() {
        Some(prepared) if prepared.fits(call) => prepared.run(call),
        _ if copied(program, call)? => {}
        Some(_) => Prepared::new(program, call)?.run(call),
        None => {
            let prepared = Prepared::new(program, call)?;
            kept.get_or_init(|| prepared).run(call);
        }
    }
    Ok(())
}

/// Copies a transposed input, if that is what the program does. A walk over it would read one
/// element of each cache line.
fn copied(program: &Program, call: &mut CpuCall<'_>) -> Result<bool> {
    let copies = matches!(&program.steps[..], [step] if matches!(step.kind, StepKind::Cast));
    Ok(copies && super::copy::transposed(call)?)
}

/// Where an operand of a step is found.
#[derive(Clone, Copy, Debug)]
enum Source {
    /// A tile.
    Register(usize),
    /// One block of a register, which stands for all: a constant or scalar.
    Block(usize),
    /// An input whose elements can be read in place, and the register to read it from where the
    /// rest of the array is shorter than whole blocks.
    Direct(usize, usize),
    /// The same of an output: what has been stored there, or an input that gave it its memory.
    Stored(usize, usize),
}

/// Steps that are computed together: the last of them, with what all of them take.
struct Joined {
    index: usize,
    function: Option<TileFn>,
    arguments: SmallVec<[Argument; MOST_ARGUMENTS]>,
}

/// A program for operands of some layouts, with its registers assigned.
#[derive(Debug)]
pub(crate) struct Prepared {
    /// The shape in as few axes as possible.
    shape: Shape,
    inputs: SmallVec<[Input; 4]>,
    outputs: SmallVec<[Output; 2]>,
    /// Inputs that are loaded into a register for every tile.
    loads: SmallVec<[(usize, usize); 4]>,
    /// Inputs that are read in place, with their registers.
    direct: SmallVec<[(usize, usize); 4]>,
    /// Inputs that are read from the output that they gave their memory to, with their registers.
    given: SmallVec<[(usize, usize); 4]>,
    /// Inputs of one element, and constants: filled in once per chunk.
    scalars: SmallVec<[(usize, usize); 4]>,
    constants: SmallVec<[(usize, u64, Class); 4]>,
    steps: Vec<PlanStep>,
    registers: usize,
    /// All elements, and those of a tile that are fetched ahead in each step.
    elements: usize,
    share: usize,
}

#[derive(Debug)]
struct Input {
    dtype: DType,
    offset: usize,
    strides: Strides,
    /// The output that it gave its memory to.
    alias: Option<usize>,
}

#[derive(Debug)]
struct Output {
    dtype: DType,
    size: usize,
    /// Whether it goes past the caches.
    streamed: bool,
}

#[derive(Debug)]
struct PlanStep {
    function: Option<TileFn>,
    arguments: SmallVec<[(Source, usize); MOST_ARGUMENTS]>,
    register: usize,
    dtype: DType,
    /// Bytes of an element while it is computed, and whether it is stored so.
    width: usize,
    wide: bool,
    /// The output that it is stored to.
    output: Option<usize>,
}

impl Prepared {
    fn new(program: &Program, call: &CpuCall<'_>) -> Result<Prepared> {
        let output_meta = call.outputs[0].meta;
        let broadcast = |input: &CpuInput<'_>| input.meta.layout.broadcast_to(output_meta.shape());
        let layouts: SmallVec<[Layout; 5]> = std::iter::once(output_meta.layout.clone())
            .chain(call.inputs.iter().map(broadcast))
            .collect();
        let (shape, strides) = collapse(&layouts.iter().collect::<SmallVec<[&Layout; 5]>>());
        let input = |(input, strides): (&CpuInput<'_>, Strides)| Input {
            dtype: input.meta.dtype,
            offset: input.meta.layout.offset,
            strides,
            alias: input.alias,
        };
        let inputs: SmallVec<[Input; 4]> =
            call.inputs.iter().zip(strides.into_iter().skip(1)).map(input).collect();
        let output = |(index, output): (usize, &CpuOutput<'_>)| Output {
            dtype: output.meta.dtype,
            size: output.meta.dtype.size(),
            // Not where it holds an input, which is in the cache when it is written.
            streamed: inputs.iter().all(|input| input.alias != Some(index))
                && stream::pays(output.meta.bytes()),
        };
        let outputs = call.outputs.iter().enumerate().map(output).collect();
        let mut plan = Prepared {
            shape,
            inputs,
            outputs,
            loads: SmallVec::new(),
            direct: SmallVec::new(),
            given: SmallVec::new(),
            scalars: SmallVec::new(),
            constants: SmallVec::new(),
            steps: Vec::with_capacity(program.steps.len()),
            registers: 0,
            elements: output_meta.size(),
            share: 0,
        };
        let stored = |step: usize| program.outputs.iter().position(|&o| o as usize == step);
        let mut last_use = vec![0usize; program.steps.len()];
        for (index, step) in program.steps.iter().enumerate() {
            for argument in &step.arguments {
                if let Argument::Step(used) = argument {
                    last_use[*used as usize] = index;
                }
            }
        }
        let joined = joined_steps(program, &last_use)?;
        let input_sources: SmallVec<[Source; 4]> = (0..plan.inputs.len())
            .map(|index| {
                // Whether all that read the input come before what takes its place.
                let reads = |step: &Joined| step.arguments.contains(&Argument::Input(index as u16));
                let last = joined.iter().rposition(reads);
                let replaced = |step: &Joined| stored(step.index) == plan.inputs[index].alias;
                let free = last < joined.iter().position(replaced);
                plan.place_input(index, free)
            })
            .collect();
        // Constants are filled once per chunk, so they keep their registers.
        let mut sources = vec![Source::Block(0); program.steps.len()];
        for (index, step) in program.steps.iter().enumerate() {
            if let StepKind::Constant(bits) = step.kind {
                let register = plan.next_register();
                sources[index] = Source::Block(register);
                plan.constants.push((register, bits, step.dtype.class()));
            }
        }
        let mut free: Vec<usize> = Vec::new();
        for Joined { index, function, arguments } in joined {
            let step = &program.steps[index];
            let register = match sources[index] {
                Source::Block(register) if !computed(step) => register,
                _ => free.pop().unwrap_or_else(|| plan.next_register()),
            };
            let place = |argument: &Argument| {
                let source = match *argument {
                    Argument::Input(input) => input_sources[input as usize],
                    Argument::Step(step) => sources[step as usize],
                };
                (source, program.argument_dtype(*argument).class().size())
            };
            let placed = arguments.iter().map(place).collect();
            for (position, argument) in arguments.iter().enumerate() {
                if let Argument::Step(used) = *argument
                    && let Source::Register(register) | Source::Stored(_, register) =
                        sources[used as usize]
                    && last_use[used as usize] <= index
                    && !arguments[..position].contains(argument)
                {
                    free.push(register);
                }
            }
            let (dtype, width) = (step.dtype, step.dtype.class().size());
            let wide = tile::is_wide(dtype);
            let output = stored(index);
            if computed(step) {
                sources[index] = match output {
                    Some(output) if wide && !plan.outputs[output].streamed => {
                        Source::Stored(output, register)
                    }
                    _ => Source::Register(register),
                };
            }
            let arguments = placed;
            plan.steps.push(PlanStep { function, arguments, register, dtype, width, wide, output });
        }
        plan.share = TILE.div_ceil(plan.steps.len());
        Ok(plan)
    }

    fn next_register(&mut self) -> usize {
        self.registers += 1;
        self.registers - 1
    }

    /// Decides how an input is read; `free`: one that gave its memory away is not read any more when that
    /// memory is written.
    fn place_input(&mut self, index: usize, free: bool) -> Source {
        let register = self.next_register();
        let Input { dtype, strides, alias, .. } = &self.inputs[index];
        if alias.is_none() && strides.iter().all(|&stride| stride == 0) {
            self.scalars.push((index, register));
            Source::Block(register)
        } else if alias.is_none() && strides[..] == [1] && tile::is_wide(*dtype) {
            self.direct.push((index, register));
            Source::Direct(index, register)
        } else if let Some(output) = *alias
            && free
            && tile::is_wide(*dtype)
        {
            self.given.push((output, register));
            Source::Stored(output, register)
        } else {
            self.loads.push((index, register));
            Source::Register(register)
        }
    }

    /// Whether this is the plan for a call, which has the same layouts.
    fn fits(&self, call: &CpuCall<'_>) -> bool {
        self.inputs.iter().zip(&call.inputs).all(|(input, given)| input.alias == given.alias)
    }

    fn run(&self, call: &mut CpuCall<'_>) {
        let mut run = Run { plan: self, inputs: SmallVec::new() };
        for (input, given) in self.inputs.iter().zip(&call.inputs) {
            run.inputs.push(Walk {
                // An input that gave its memory away is read from the output.
                bytes: given.bytes.unwrap_or_default(),
                dtype: input.dtype,
                offset: input.offset,
                strides: &input.strides,
            });
        }
        let streamed = self.outputs.iter().any(|output| output.streamed);
        let chunk = |chunk: usize, outputs: &mut [&mut [u8]]| {
            REGISTERS.with_borrow_mut(|registers| {
                run.chunk(registers.bytes(self.registers), chunk * CHUNK, outputs);
                stream::finish_if(streamed);
            });
        };
        if self.elements <= CHUNK {
            // Nothing to share out, and the cost of a small kernel counts.
            let mut outputs: SmallVec<[&mut [u8]; 2]> = SmallVec::new();
            for output in &mut call.outputs {
                outputs.push(&mut *output.bytes);
            }
            return chunk(0, &mut outputs);
        }
        let outputs = call.outputs.iter_mut().zip(&self.outputs);
        let outputs = outputs.map(|(given, output)| (&mut *given.bytes, CHUNK * output.size));
        threads::chunks_all_mut(outputs, chunk);
    }
}

/// One run of a program.
struct Run<'a> {
    plan: &'a Prepared,
    inputs: SmallVec<[Walk<'a>; 4]>,
}

impl Run<'_> {
    /// Computes the elements of one chunk of the outputs.
    fn chunk(&self, registers: &mut [u8], start: usize, outputs: &mut [&mut [u8]]) {
        let Prepared { shape, steps, .. } = self.plan;
        // A constant by itself fills tiles; elsewhere a block of it is enough.
        let elements = if steps[0].function.is_none() { TILE } else { BLOCK };
        for &(place, bits, class) in &self.plan.constants {
            let tile = register(registers, place);
            tile::fill(class, bits, &mut tile[..elements * class.size()]);
        }
        for &(input, place) in &self.plan.scalars {
            self.inputs[input].load(&[], 0, BLOCK, register(registers, place));
        }
        let elements = CHUNK.min(self.plan.elements - start);
        for first in (0..elements).step_by(TILE) {
            let count = TILE.min(elements - first);
            let tile =
                Tile { first, start: start + first, count, padded: !count.is_multiple_of(BLOCK) };
            for &(input, place) in &self.plan.loads {
                let target = register(registers, place);
                match self.plan.inputs[input].alias {
                    None => self.inputs[input].load(shape, tile.start, count, target),
                    Some(output) => {
                        let Output { dtype, size, .. } = self.plan.outputs[output];
                        tile::widen(dtype, &outputs[output][tile.bytes(size)], target);
                    }
                }
            }
            // Kernels work on whole blocks: the end of an array is copied to where there are some.
            if tile.padded {
                for &(input, place) in &self.plan.direct {
                    let target = register(registers, place);
                    self.inputs[input].load(shape, tile.start, count, target);
                }
                for &(output, place) in &self.plan.given {
                    let Output { dtype, size, .. } = self.plan.outputs[output];
                    let from = &outputs[output][tile.bytes(size)];
                    tile::widen(dtype, from, register(registers, place));
                }
            }
            for (position, step) in steps.iter().enumerate() {
                if position + 1 != steps.len() {
                    let part = position * self.plan.share..(position + 1) * self.plan.share;
                    let part = part.start.min(count)..part.end.min(count);
                    self.fetch_next(part, &tile, outputs);
                }
                self.step(registers, step, &tile, outputs);
            }
        }
    }

    /// Starts to fetch a part of what the next tile reads and writes. Only the first and the last
    /// steps touch memory; the steps between them would leave it idle.
    #[inline]
    fn fetch_next(&self, part: Range<usize>, tile: &Tile, outputs: &[&mut [u8]]) {
        let lines = |size: usize| part.start * size..part.end * size;
        for (bytes, output) in outputs.iter().zip(&self.plan.outputs) {
            if !output.streamed {
                Ahead::behind(&bytes[tile.bytes(output.size)]).fetch_all(lines(output.size));
            }
        }
        for &(input, _) in &self.plan.direct {
            let walk = &self.inputs[input];
            let size = walk.dtype.size();
            let next = (walk.offset + tile.start + tile.count) * size;
            Ahead::of(walk.bytes.get(next..).unwrap_or_default()).fetch_all(lines(size));
        }
    }

    /// Runs one step over a tile, and stores the result where it is an output.
    #[inline]
    fn step(&self, registers: &mut [u8], step: &PlanStep, tile: &Tile, outputs: &mut [&mut [u8]]) {
        let elements = tile.count.next_multiple_of(BLOCK);
        let width = step.width;
        // The others can be read while this register and this output are written.
        let (before, rest) = registers.split_at_mut(step.register * STRIDE);
        let (target, behind) = rest.split_at_mut(STRIDE);
        let place = |index: usize, bytes: usize| match index.checked_sub(step.register + 1) {
            Some(index) => &behind[index * STRIDE..][..bytes],
            None => &before[index * STRIDE..][..bytes],
        };
        let (earlier, rest) = outputs.split_at_mut(step.output.unwrap_or(0));
        let (own, later) = rest.split_at_mut(step.output.is_some() as usize);
        let first = earlier.len() + own.len();
        let stored = |output: usize| match output.checked_sub(first) {
            Some(output) => &*later[output],
            None => &*earlier[output],
        };
        let mut arguments: [&[u8]; MOST_ARGUMENTS] = [&[]; MOST_ARGUMENTS];
        for (slot, &(source, width)) in arguments.iter_mut().zip(&step.arguments) {
            *slot = match source {
                Source::Block(index) => place(index, BLOCK * width),
                Source::Direct(input, _) if !tile.padded => {
                    let walk = &self.inputs[input];
                    &walk.bytes[(walk.offset + tile.start) * width..][..elements * width]
                }
                Source::Stored(output, _) if !tile.padded => &stored(output)[tile.bytes(width)],
                Source::Register(index) | Source::Direct(_, index) | Source::Stored(_, index) => {
                    place(index, elements * width)
                }
            };
        }
        let arguments = &arguments[..step.arguments.len()];
        let register = &mut target[..elements * width];
        let whole = step.wide && !tile.padded;
        let out = step.output.zip(own.first_mut()).map(|(output, out)| {
            let Output { size, streamed, .. } = self.plan.outputs[output];
            (&mut out[tile.bytes(size)], streamed)
        });
        match (step.function, out) {
            (Some(function), Some((out, true))) if whole => {
                function(arguments, register);
                stream::copy(register, out);
            }
            (Some(function), Some((out, false))) if whole => function(arguments, out),
            (function, out) => {
                if let Some(function) = function {
                    function(arguments, register);
                    if !step.wide {
                        tile::round(step.dtype, register);
                    }
                }
                if let Some((out, _)) = out {
                    tile::narrow(step.dtype, &register[..tile.count * width], out);
                }
            }
        }
    }
}

/// The part of the outputs being computed.
struct Tile {
    /// Where it starts in the chunk, and in the whole.
    first: usize,
    start: usize,
    count: usize,
    /// Whether the last block is not whole.
    padded: bool,
}

impl Tile {
    /// Where its elements lie in the chunk of an output with elements of `size` bytes.
    fn bytes(&self, size: usize) -> Range<usize> {
        self.first * size..(self.first + self.count) * size
    }
}

fn computed(step: &Step) -> bool {
    !matches!(step.kind, StepKind::Constant(_))
}

/// The steps that are computed, two together where one function does both.
fn joined_steps(program: &Program, last_use: &[usize]) -> Result<Vec<Joined>> {
    let mut order: Vec<usize> =
        (0..program.steps.len()).filter(|&index| computed(&program.steps[index])).collect();
    if order.is_empty() {
        // A constant by itself.
        order.push(0);
    }
    let mut steps = Vec::with_capacity(order.len());
    let mut order = order.into_iter().peekable();
    while let Some(first) = order.next() {
        let step = &program.steps[first];
        let arguments = step.arguments.iter().copied().collect();
        let function = step_function(program, step)?;
        let mut joined = Joined { index: first, function, arguments };
        if let Some(&next) = order.peek()
            && last_use[first] == next
            && !program.outputs.iter().any(|&output| output as usize == first)
            && let Some((function, other)) = join(program, first, next)
        {
            order.next();
            joined.index = next;
            joined.function = Some(function);
            joined.arguments.push(other);
        }
        steps.push(joined);
    }
    Ok(steps)
}

/// One function for two steps, the second of which takes the result of the first; and the second's
/// other argument.
fn join(program: &Program, first: usize, second: usize) -> Option<(TileFn, Argument)> {
    let (before, after) = (&program.steps[first], &program.steps[second]);
    let (StepKind::Kernel(kernel), StepKind::Kernel(next)) = (before.kind, after.kind) else {
        return None;
    };
    let result = Argument::Step(first as u16);
    let (position, other) = match after.arguments[..] {
        [a, b] if a == result && b != result => (0, b),
        [a, b] if b == result && a != result => (1, a),
        _ => return None,
    };
    // Narrower results are rounded in between.
    let inputs = before.arguments.iter().chain([&other]);
    let single = after.dtype == DType::F32
        && inputs.into_iter().all(|&argument| program.argument_dtype(argument) == DType::F32);
    if single { Some(((kernel.joined)(next, position)?, other)) } else { None }
}

/// The function that computes a step; constants have none.
fn step_function(program: &Program, step: &Step) -> Result<Option<TileFn>> {
    Ok(match step.kind {
        StepKind::Constant(_) => None,
        StepKind::Cast => {
            let from = program.argument_dtype(step.arguments[0]);
            Some(super::cast::tile_fn(from.class(), step.dtype))
        }
        StepKind::Kernel(kernel) => {
            // The last argument decides: in `where` the first is the condition.
            let dtype = program.argument_dtype(step.arguments[step.arguments.len() - 1]);
            let missing = || Error::dtype(kernel.name, "input", "a supported type", dtype);
            Some((kernel.cpu)(dtype.class()).ok_or_else(missing)?)
        }
    })
}
