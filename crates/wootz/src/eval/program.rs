//! Programs: elementwise runs as a list of steps that one pass over memory executes.

use smallvec::SmallVec;

use crate::array::{Array, DType, Meta, Shape, broadcast_shapes};
use crate::cpu::CpuCall;
use crate::error::{Error, Result};
#[cfg(feature = "gpu")]
use crate::gpu::GpuCall;
use crate::op::{ElementKernel, Elementwise, Metas, Op};

/// Steps over inputs; the last step is the result.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) inputs: SmallVec<[DType; 4]>,
    pub(crate) steps: Vec<Step>,
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
        Program { inputs: SmallVec::from_slice(inputs), steps: vec![step] }
    }

    /// The type of an argument.
    pub(crate) fn argument_dtype(&self, argument: Argument) -> DType {
        match argument {
            Argument::Input(input) => self.inputs[input as usize],
            Argument::Step(step) => self.steps[step as usize].dtype,
        }
    }

    /// The type of the result.
    pub(crate) fn dtype(&self) -> DType {
        self.steps.last().map_or(DType::F32, |step| step.dtype)
    }
}

/// A fused run as an operation, so that it is executed like any other.
#[derive(Debug)]
pub(crate) struct Fused {
    pub(crate) program: Program,
    pub(crate) shape: Shape,
}

/// Any input may give its memory to the output: each element is read before it is written.
pub(crate) const ELEMENTWISE_ALIASES: &[(usize, usize)] =
    &[(0, 0), (1, 0), (2, 0), (3, 0), (4, 0), (5, 0), (6, 0), (7, 0)];

impl Op for Fused {
    fn name(&self) -> &'static str {
        "fused"
    }

    fn infer(&self, inputs: &[&Meta]) -> Result<Metas> {
        for input in inputs {
            broadcast_shapes(self.name(), input.shape(), &self.shape)?;
        }
        Ok(Metas::from_elem(Meta::new(self.name(), &self.shape, self.program.dtype())?, 1))
    }

    fn may_alias(&self) -> &'static [(usize, usize)] {
        ELEMENTWISE_ALIASES
    }

    fn cpu(&self, call: &mut CpuCall<'_>) -> Result<()> {
        crate::cpu::fused::run(&self.program, call)
    }

    #[cfg(feature = "gpu")]
    fn gpu(&self, call: &mut GpuCall<'_>) -> Result<()> {
        crate::gpu::fused::run(&self.program, call)
    }

    fn vjp(&self, _: &[Array], _: &[Array], _: &[Option<Array>]) -> Result<Vec<Option<Array>>> {
        let reason = "a fused run exists only during evaluation";
        Err(Error::NotDifferentiable { op: self.name(), reason })
    }
}
