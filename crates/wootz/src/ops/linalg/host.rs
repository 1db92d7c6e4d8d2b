//! Operations that the host computes for each matrix of a batch, whatever the device is.

use std::fmt::Debug;
use std::sync::OnceLock;

use smallvec::{SmallVec, smallvec};

use super::dense::{Failure, Matrix};
use crate::array::{Array, DType, Meta, Shape};
use crate::cpu::{CpuCall, threads};
use crate::error::{Error, Result};
use crate::op::{Batch, Metas, Op, argument_name, expect_contiguous};

/// What an operation does with one matrix, or one of each argument.
pub(super) trait Factorization: Copy + Debug + Send + Sync + 'static {
    fn name(&self) -> &'static str;

    /// Names of the inputs followed by those of the outputs.
    fn arguments(&self) -> &'static [&'static str];

    fn inputs(&self) -> usize {
        1
    }

    /// Whether all inputs must be square.
    fn is_square(&self) -> bool;

    /// What comes out of matrices of these sizes, which each input has been checked for alone.
    fn parts(&self, sizes: &[[usize; 2]]) -> Result<Vec<Part>>;

    /// The results; `dtype` is that of the arrays.
    fn compute(&self, inputs: Vec<Matrix<f64>>, dtype: DType) -> Result<Vec<Values>, Failure>;

    /// As [`Op::vjp`].
    fn vjp(
        &self,
        inputs: &[Array],
        outputs: &[Array],
        cotangents: &[Option<Array>],
    ) -> Result<Vec<Option<Array>>>;
}

/// The shape of a result for one matrix, and whether it is made of indices.
pub(super) struct Part {
    shape: SmallVec<[usize; 2]>,
    index: bool,
}

impl Part {
    pub(super) fn scalar() -> Part {
        Part { shape: smallvec![], index: false }
    }

    pub(super) fn vector(length: usize) -> Part {
        Part { shape: smallvec![length], index: false }
    }

    pub(super) fn matrix(rows: usize, columns: usize) -> Part {
        Part { shape: smallvec![rows, columns], index: false }
    }

    pub(super) fn indices(length: usize) -> Part {
        Part { shape: smallvec![length], index: true }
    }
}

/// A result for one matrix.
pub(super) enum Values {
    Real(Vec<f64>),
    Indices(Vec<u32>),
}

impl From<Matrix<f64>> for Values {
    fn from(matrix: Matrix<f64>) -> Values {
        Values::Real(matrix.values)
    }
}

/// Applies a factorization to the matrices in the last two axes of the inputs.
pub(super) fn apply<F: Factorization>(
    factorization: F,
    inputs: &[&Array],
) -> Result<SmallVec<[Array; 1]>> {
    let op = OnHost(factorization);
    // Before the copies, so that an error names what the caller gave.
    for (index, input) in inputs.iter().enumerate() {
        check(&op, index, input.meta())?;
    }
    let dense = inputs.iter().map(|input| input.contiguous()).collect::<Result<Vec<_>>>()?;
    Array::apply_all(op, &dense.iter().collect::<Vec<_>>())
}

/// As [`apply`], for factorizations with one result.
pub(super) fn apply_one<F: Factorization>(factorization: F, inputs: &[&Array]) -> Result<Array> {
    let name = factorization.name();
    let mut outputs = apply(factorization, inputs)?;
    outputs.pop().ok_or_else(|| Error::argument(name, "outputs", "one array", "none"))
}

/// A factorization as an operation.
#[derive(Clone, Copy, Debug)]
struct OnHost<F>(F);

/// Checks dtype and shape of an input, and tells the size of its matrices.
fn check<F: Factorization>(op: &OnHost<F>, index: usize, meta: &Meta) -> Result<[usize; 2]> {
    let name = || argument_name(op, index);
    if !matches!(meta.dtype, DType::F32 | DType::F64) {
        return Err(Error::dtype(op.name(), name(), "float32 or float64", meta.dtype));
    }
    let [.., rows, columns] = *meta.shape() else {
        return Err(Error::shape(op.name(), name(), "one of at least 2 axes", meta.shape()));
    };
    if index == 0 && op.0.is_square() && rows != columns {
        return Err(Error::shape(op.name(), name(), "square matrices", meta.shape()));
    }
    Ok([rows, columns])
}

/// Elements of matrices that are worth a task of the thread team.
const TASK_ELEMENTS: usize = 1024;

impl<F: Factorization> Op for OnHost<F> {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn arguments(&self) -> &'static [&'static str] {
        self.0.arguments()
    }

    fn host(&self) -> bool {
        true
    }

    fn infer(&self, inputs: &[&Meta]) -> Result<Metas> {
        crate::op::expect_inputs(self, inputs, self.0.inputs())?;
        let batch = &inputs[0].shape()[..inputs[0].shape().len().saturating_sub(2)];
        let mut sizes: SmallVec<[[usize; 2]; 2]> = SmallVec::new();
        for (index, meta) in inputs.iter().enumerate() {
            sizes.push(check(self, index, meta)?);
            expect_contiguous(self, inputs, index)?;
            crate::op::expect_dtype(self, inputs, index, inputs[0].dtype)?;
            if meta.shape()[..meta.shape().len() - 2] != *batch {
                let expected = format!("{batch:?} before the last two axes");
                let name = argument_name(self, index);
                return Err(Error::shape(self.name(), name, expected, meta.shape()));
            }
        }
        (self.0.parts(&sizes)?.iter())
            .map(|part| {
                let shape: Shape = batch.iter().chain(&part.shape).copied().collect();
                let dtype = if part.index { DType::U32 } else { inputs[0].dtype };
                Meta::new(self.name(), &shape, dtype)
            })
            .collect()
    }

    fn cpu(&self, call: &mut CpuCall<'_>) -> Result<()> {
        let shape = call.meta(0).shape();
        let count: usize = shape[..shape.len() - 2].iter().product();
        let dtype = call.meta(0).dtype;
        let sources = (0..self.0.inputs())
            .map(|index| Source::of(call, index))
            .collect::<Result<Vec<Source<'_>>>>()?;
        let results: Vec<OnceLock<Result<Vec<Values>, Failure>>> =
            (0..count).map(|_| OnceLock::new()).collect();
        let elements: usize = shape[shape.len() - 2..].iter().product();
        let per_task = (TASK_ELEMENTS / elements.max(1)).max(1);
        threads::for_each(count.div_ceil(per_task), |task| {
            for place in task * per_task..count.min((task + 1) * per_task) {
                let inputs = sources.iter().map(|source| source.matrix(place)).collect();
                // Each place is computed once.
                let _new = results[place].set(self.0.compute(inputs, dtype));
            }
        });
        let mut all = Vec::with_capacity(count);
        for (place, result) in results.into_iter().enumerate() {
            match result.into_inner() {
                Some(Ok(values)) => all.push(values),
                Some(Err(failure)) => return Err(self.failed(failure, place, count)),
                None => return Err(self.failed(Failure::Endless, place, count)),
            }
        }
        for output in 0..all.first().map_or(0, Vec::len) {
            write(call, output, all.iter().map(|values| &values[output]))?;
        }
        Ok(())
    }

    fn vjp(
        &self,
        inputs: &[Array],
        outputs: &[Array],
        cotangents: &[Option<Array>],
    ) -> Result<Vec<Option<Array>>> {
        self.0.vjp(inputs, outputs, cotangents)
    }

    fn vmap(&self, batch: &Batch<'_>) -> Result<Vec<Array>> {
        batch.again(&batch.dense()?)
    }
}

impl<F: Factorization> OnHost<F> {
    fn failed(&self, failure: Failure, place: usize, count: usize) -> Error {
        let of = if count == 1 { String::new() } else { format!(", matrix {place} of {count}") };
        let (expected, got) = match failure {
            Failure::Singular(row) => {
                ("a matrix that can be inverted", format!("a singular one: pivot {row} is 0{of}"))
            }
            Failure::Endless => {
                ("a matrix whose values can be found", format!("one without convergence{of}"))
            }
        };
        Error::argument(self.name(), argument_name(self, 0), expected, got)
    }
}

/// The matrices of an input.
struct Source<'a> {
    rows: usize,
    columns: usize,
    elements: Elements<'a>,
}

enum Elements<'a> {
    Single(&'a [f32]),
    Double(&'a [f64]),
}

impl<'a> Source<'a> {
    fn of(call: &CpuCall<'a>, input: usize) -> Result<Source<'a>> {
        let meta = call.meta(input);
        let [.., rows, columns] = *meta.shape() else {
            return Err(Error::shape("linalg", "input", "one of at least 2 axes", meta.shape()));
        };
        let elements = match meta.dtype {
            DType::F64 => Elements::Double(call.input(input)?),
            _ => Elements::Single(call.input(input)?),
        };
        Ok(Source { rows, columns, elements })
    }

    /// One matrix, in doubles.
    fn matrix(&self, place: usize) -> Matrix<f64> {
        let size = self.rows * self.columns;
        let range = place * size..(place + 1) * size;
        let values = match self.elements {
            Elements::Single(values) => values[range].iter().map(|&value| value.into()).collect(),
            Elements::Double(values) => values[range].to_vec(),
        };
        Matrix::new(self.rows, self.columns, values)
    }
}

/// Stores the results of all matrices one after the other, rounded to the output's dtype.
fn write<'a>(
    call: &mut CpuCall<'_>,
    output: usize,
    results: impl Iterator<Item = &'a Values>,
) -> Result<()> {
    let real = |values: &'a Values| match values {
        Values::Real(values) => &values[..],
        Values::Indices(_) => &[],
    };
    let index = |values: &'a Values| match values {
        Values::Real(_) => &[],
        Values::Indices(values) => &values[..],
    };
    match call.output_meta(output).dtype {
        DType::U32 => store(call.output(output)?, results.flat_map(index).copied()),
        DType::F64 => store(call.output(output)?, results.flat_map(real).copied()),
        _ => store(call.output(output)?, results.flat_map(real).map(|&value| value as f32)),
    }
    Ok(())
}

fn store<T>(memory: &mut [T], values: impl Iterator<Item = T>) {
    memory.iter_mut().zip(values).for_each(|(place, value)| *place = value);
}
