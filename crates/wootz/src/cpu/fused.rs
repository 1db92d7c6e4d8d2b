//! Runs elementwise programs tile by tile: one pass over memory whatever the number of steps.

use std::cell::RefCell;
use std::ops::Range;

use smallvec::SmallVec;

use super::simd::{Ahead, stream};
use super::tile::{self, TILE, Walk};
use super::{CpuCall, threads};
use crate::array::{Class, DType, Layout, collapse};
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

/// Computes `program` over the call's inputs, broadcast to the output's shape.
pub(crate) fn run(program: &Program, call: &mut CpuCall<'_>) -> Result<()> {
    // A walk over a transposed input would read one element of each cache line.
    let copies = matches!(&program.steps[..], [step] if matches!(step.kind, StepKind::Cast));
    if copies && super::copy::transposed(call)? {
        return Ok(());
    }
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
    // Not where the output holds an input, which is in the cache when it is written.
    let streamed = inputs.iter().all(Option::is_some) && stream::pays(output.meta.bytes());
    let plan = Plan::new(program, &inputs, &shape, streamed)?;
    let size = output.meta.dtype.size();
    threads::chunks_mut(output.bytes, CHUNK * size, |chunk, bytes| {
        REGISTERS.with_borrow_mut(|registers| {
            plan.run_chunk(registers, chunk * CHUNK, bytes, size);
            stream::finish_if(plan.streamed);
        });
    });
    Ok(())
}

/// Where an operand of a step is found.
#[derive(Clone, Copy)]
enum Source {
    /// A tile.
    Register(usize),
    /// One block of a register, which stands for all: a constant or scalar.
    Block(usize),
    /// An input whose elements can be read in place, and the register to read it from where the
    /// rest of the array is shorter than whole blocks.
    Direct(usize, usize),
}

/// A program with its registers assigned.
struct Plan<'a> {
    shape: &'a [usize],
    inputs: &'a [Option<Walk<'a>>],
    /// Inputs that are loaded into a register for every tile.
    loads: SmallVec<[(usize, usize); 4]>,
    /// Inputs that are read in place, with their registers.
    direct: SmallVec<[(usize, usize); 4]>,
    /// Inputs of one element, and constants: filled in once per chunk.
    scalars: SmallVec<[(usize, usize); 4]>,
    constants: SmallVec<[(usize, u64, Class); 4]>,
    steps: Vec<PlanStep>,
    registers: usize,
    dtype: DType,
    /// Whether the result goes past the caches.
    streamed: bool,
}

struct PlanStep {
    function: Option<TileFn>,
    arguments: SmallVec<[(Source, usize); MOST_ARGUMENTS]>,
    register: usize,
    dtype: DType,
    /// Bytes of an element while it is computed, and whether it is stored so.
    width: usize,
    wide: bool,
}

impl<'a> Plan<'a> {
    fn new(
        program: &Program,
        inputs: &'a [Option<Walk<'a>>],
        shape: &'a [usize],
        streamed: bool,
    ) -> Result<Plan<'a>> {
        let mut plan = Plan {
            shape,
            inputs,
            loads: SmallVec::new(),
            direct: SmallVec::new(),
            scalars: SmallVec::new(),
            constants: SmallVec::new(),
            steps: Vec::with_capacity(program.steps.len()),
            registers: 0,
            dtype: program.dtype(),
            streamed,
        };
        let input_sources: SmallVec<[Source; 4]> =
            inputs.iter().enumerate().map(|(index, walk)| plan.place_input(index, walk)).collect();
        let mut last_use = vec![0usize; program.steps.len()];
        for (index, step) in program.steps.iter().enumerate() {
            for argument in &step.arguments {
                if let Argument::Step(used) = argument {
                    last_use[*used as usize] = index;
                }
            }
        }
        // Constants are filled once per chunk, so they keep their registers.
        let mut sources = vec![Source::Block(0); program.steps.len()];
        for (index, step) in program.steps.iter().enumerate() {
            if let StepKind::Constant(bits) = step.kind {
                let register = plan.next_register();
                sources[index] = Source::Block(register);
                plan.constants.push((register, bits, step.dtype.class()));
            }
        }
        let computed = |step: &Step| !matches!(step.kind, StepKind::Constant(_));
        let mut order: Vec<usize> =
            (0..program.steps.len()).filter(|&index| computed(&program.steps[index])).collect();
        if order.is_empty() {
            // A constant by itself.
            order.push(0);
        }
        let mut free: Vec<usize> = Vec::new();
        let mut order = order.into_iter().peekable();
        while let Some(first) = order.next() {
            let mut index = first;
            let mut function = step_function(program, &program.steps[first])?;
            let mut arguments: SmallVec<[Argument; MOST_ARGUMENTS]> =
                program.steps[first].arguments.iter().copied().collect();
            if let Some(&next) = order.peek()
                && last_use[first] == next
                && let Some((joined, other)) = join(program, first, next)
            {
                order.next();
                index = next;
                function = Some(joined);
                arguments.push(other);
            }
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
                    && let Source::Register(register) = sources[used as usize]
                    && last_use[used as usize] <= index
                    && !arguments[..position].contains(argument)
                {
                    free.push(register);
                }
            }
            if computed(step) {
                sources[index] = Source::Register(register);
            }
            let (dtype, width) = (step.dtype, step.dtype.class().size());
            let wide = tile::is_wide(dtype);
            plan.steps.push(PlanStep { function, arguments: placed, register, dtype, width, wide });
        }
        Ok(plan)
    }

    fn next_register(&mut self) -> usize {
        self.registers += 1;
        self.registers - 1
    }

    /// Decides how an input is read.
    fn place_input(&mut self, index: usize, walk: &Option<Walk<'_>>) -> Source {
        let register = self.next_register();
        match walk {
            Some(walk) if walk.strides.iter().all(|&stride| stride == 0) => {
                self.scalars.push((index, register));
                Source::Block(register)
            }
            Some(walk) if walk.strides == [1] && tile::is_wide(walk.dtype) => {
                self.direct.push((index, register));
                Source::Direct(index, register)
            }
            _ => {
                self.loads.push((index, register));
                Source::Register(register)
            }
        }
    }

    /// Computes the elements of one chunk of the output.
    fn run_chunk(&self, registers: &mut Registers, start: usize, out: &mut [u8], size: usize) {
        let registers = registers.bytes(self.registers);
        // A constant by itself fills tiles; elsewhere a block of it is enough.
        let elements = if self.steps[0].function.is_none() { TILE } else { BLOCK };
        for &(place, bits, class) in &self.constants {
            let tile = register(registers, place);
            tile::fill(class, bits, &mut tile[..elements * class.size()]);
        }
        for &(input, place) in &self.scalars {
            if let Some(walk) = &self.inputs[input] {
                walk.load(&[], 0, BLOCK, register(registers, place));
            }
        }
        let share = TILE.div_ceil(self.steps.len());
        for (index, out) in out.chunks_mut(TILE * size).enumerate() {
            let start = start + index * TILE;
            let count = out.len() / size;
            for &(input, place) in &self.loads {
                let target = register(registers, place);
                match &self.inputs[input] {
                    Some(walk) => walk.load(self.shape, start, count, target),
                    // The input gave its memory to the output: it is read from there.
                    None => tile::widen(self.dtype, out, target),
                }
            }
            // Kernels work on whole blocks: the end of an array is copied to where there are some.
            let padded = !count.is_multiple_of(BLOCK);
            if padded {
                for &(input, place) in &self.direct {
                    if let Some(walk) = &self.inputs[input] {
                        let target = register(registers, place);
                        walk.load(self.shape, start, count, target);
                    }
                }
            }
            let tile = Tile { start, count, padded };
            for (position, step) in self.steps.iter().enumerate() {
                let last = position + 1 == self.steps.len();
                if !last {
                    let part = (position * share).min(count)..((position + 1) * share).min(count);
                    self.fetch_next(part, &tile, Ahead::behind(out), size);
                }
                self.run_step(registers, step, &tile, last.then_some(&mut *out));
            }
        }
    }

    /// Starts to fetch a part of what the next tile reads and writes. Only the first and the last
    /// step touch memory; the steps between them would leave it idle.
    #[inline]
    fn fetch_next(&self, part: Range<usize>, tile: &Tile, out: Ahead, size: usize) {
        if !self.streamed {
            out.fetch_all(part.start * size..part.end * size);
        }
        for &(input, _) in &self.direct {
            if let Some(walk) = &self.inputs[input] {
                let size = walk.dtype.size();
                let next = (walk.offset + tile.start + tile.count) * size;
                let next = walk.bytes.get(next..).unwrap_or_default();
                Ahead::of(next).fetch_all(part.start * size..part.end * size);
            }
        }
    }

    /// Runs one step over a tile. The last step stores into `out`.
    #[inline]
    fn run_step(&self, registers: &mut [u8], step: &PlanStep, tile: &Tile, out: Option<&mut [u8]>) {
        let elements = tile.count.next_multiple_of(BLOCK);
        let width = step.width;
        // The others can be read while this register is written.
        let (before, rest) = registers.split_at_mut(step.register * STRIDE);
        let (target, behind) = rest.split_at_mut(STRIDE);
        let place = |index: usize, bytes: usize| match index.checked_sub(step.register + 1) {
            Some(index) => &behind[index * STRIDE..][..bytes],
            None => &before[index * STRIDE..][..bytes],
        };
        let mut arguments: [&[u8]; MOST_ARGUMENTS] = [&[]; MOST_ARGUMENTS];
        for (slot, &(source, width)) in arguments.iter_mut().zip(&step.arguments) {
            *slot = match source {
                Source::Block(index) => place(index, BLOCK * width),
                Source::Direct(input, _) if !tile.padded => match &self.inputs[input] {
                    Some(walk) => {
                        &walk.bytes[(walk.offset + tile.start) * width..][..elements * width]
                    }
                    None => &[],
                },
                Source::Register(index) | Source::Direct(_, index) => {
                    place(index, elements * width)
                }
            };
        }
        let arguments = &arguments[..step.arguments.len()];
        let register = &mut target[..elements * width];
        match (step.function, out) {
            (Some(function), Some(out)) if step.wide && !tile.padded && self.streamed => {
                function(arguments, register);
                stream::copy(register, out);
            }
            (Some(function), Some(out)) if step.wide && !tile.padded => {
                function(arguments, out);
            }
            (function, out) => {
                if let Some(function) = function {
                    function(arguments, register);
                    if !step.wide {
                        tile::round(step.dtype, register);
                    }
                }
                if let Some(out) = out {
                    tile::narrow(step.dtype, &register[..tile.count * width], out);
                }
            }
        }
    }
}

/// The part of the output being computed.
struct Tile {
    start: usize,
    count: usize,
    /// Whether the last block is not whole.
    padded: bool,
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
