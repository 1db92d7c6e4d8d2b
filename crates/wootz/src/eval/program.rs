//! Programs: elementwise runs as a list of steps that one pass over memory executes.

use std::sync::OnceLock;

use smallvec::SmallVec;

use crate::array::{Array, DType, Meta, Shape, broadcast_shapes};
use crate::cpu::CpuCall;
use crate::cpu::fused::Prepared;
use crate::error::{Error, Result};
#[cfg(feature = "gpu")]
use crate::gpu::GpuCall;
use crate::op::{ElementKernel, Elementwise, Metas, Op};

/// Steps over inputs, some of which are results: always the last, which nothing reads.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) inputs: SmallVec<[DType; 4]>,
    pub(crate) steps: Vec<Step>,
    /// The steps whose values are stored, in the order of the outputs.
    pub(crate) outputs: SmallVec<[u16; 2]>,
}

/// One operation of a program.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) kind: StepKind,
    pub(crate) arguments: SmallVec<[Argument; 3]>,
    /// The type the result is rounded to.
    pub(crate) dtype: DType,
}

/// What a step does.
#[derive(Clone, Copy, Debug)]
pub(crate) enum StepKind {
    Kernel(&'static ElementKernel),
    Cast,
    Constant(u64),
}

/// Where a step's argument comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Argument {
    Input(u16),
    Step(u16),
}

impl From<Elementwise> for StepKind {
    fn from(elementwise: Elementwise) -> StepKind {
        match elementwise {
            Elementwise::Kernel(kernel) => StepKind::Kernel(kernel),
            Elementwise::Cast => StepKind::Cast,
            Elementwise::Constant(bits) => StepKind::Constant(bits),
        }
    }
}

impl Program {
    /// The program of one operation.
    pub(crate) fn single(kind: Elementwise, inputs: &[DType], dtype: DType) -> Program {
        let arguments = (0..inputs.len() as u16).map(Argument::Input).collect();
        let step = Step { kind: kind.into(), arguments, dtype };
        let outputs = SmallVec::from_elem(0, 1);
        Program { inputs: SmallVec::from_slice(inputs), steps: vec![step], outputs }
    }

    /// The type of an argument.
    pub(crate) fn argument_dtype(&self, argument: Argument) -> DType {
        match argument {
            Argument::Input(input) => self.inputs[input as usize],
            Argument::Step(step) => self.steps[step as usize].dtype,
        }
    }

    /// The types of the results.
    pub(crate) fn output_dtypes(&self) -> impl Iterator<Item = DType> {
        self.outputs.iter().map(|&step| self.steps[step as usize].dtype)
    }
}

/// A fused run as an operation, so that it is executed like any other.
#[derive(Debug)]
pub(crate) struct Fused {
    program: Program,
    shape: Shape,
    /// What the CPU needs to know before it runs, found out once: the operands of a run have the
    /// same layouts each time.
    prepared: OnceLock<Prepared>,
}

impl Fused {
    pub(crate) fn new(program: Program, shape: &[usize]) -> Fused {
        Fused { program, shape: Shape::from_slice(shape), prepared: OnceLock::new() }
    }
}

/// Any input may give its memory to the output: each element is read before it is written.
pub(crate) const ELEMENTWISE_ALIASES: &[(usize, usize)] =
    &[(0, 0), (1, 0), (2, 0), (3, 0), (4, 0), (5, 0), (6, 0), (7, 0)];

/// The same for the first inputs and outputs of a fused run.
const FUSED_ALIASES: &[(usize, usize)] = {
    const PAIRS: [(usize, usize); 64] = {
        let mut pairs = [(0, 0); 64];
        let mut index = 0;
        while index < 64 {
            pairs[index] = (index % 8, index / 8);
            index += 1;
        }
        pairs
    };
    &PAIRS
};

impl Op for Fused {
    fn name(&self) -> &'static str {
        "fused"
    }

    fn infer(&self, inputs: &[&Meta]) -> Result<Metas> {
        for input in inputs {
            broadcast_shapes(self.name(), input.shape(), &self.shape)?;
        }
        let meta = |dtype| Meta::new(self.name(), &self.shape, dtype);
        self.program.output_dtypes().map(meta).collect()
    }

    fn may_alias(&self) -> &'static [(usize, usize)] {
        FUSED_ALIASES
    }

    fn cpu(&self, call: &mut CpuCall<'_>) -> Result<()> {
        crate::cpu::fused::run_prepared(&self.program, &self.prepared, call)
    }

    #[cfg(feature = "gpu")]
    fn gpu(&self, call: &mut GpuCall<'_>) -> Result<()> {
        crate::gpu::fused::run(&self.program, call)
    }

    fn vjp(&self, _: &[Array], _: &[Array], _: &[Option<Array>]) -> Result<Vec<Option<Array>>> {
        let reason = "a fused run exists only during evaluation";
        Err(Error::not_differentiable(self.name(), reason))
    }
}
