//! Operations that the host computes for each matrix of a batch, whatever the device is.

use std::fmt::Debug;
use std::sync::OnceLock;

use num_complex::Complex32;
use smallvec::{SmallVec, smallvec};

use super::dense::{Complex, Failure, Matrix};
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

    /// The results for complex matrices, if it takes them.
    fn complex(&self) -> Option<ComplexFn<Self>> {
        None
    }

    /// As [`Op::vjp`], for real matrices.
    fn vjp(
        &self,
        inputs: &[Array],
        outputs: &[Array],
        cotangents: &[Option<Array>],
    ) -> Result<Vec<Option<Array>>>;
}

/// As [`Factorization::compute`], for complex matrices.
pub(super) type ComplexFn<F> = fn(&F, Vec<Matrix<Complex>>) -> Result<Vec<Values>, Failure>;

/// The shape of a result for one matrix, and what it is made of.
pub(super) struct Part {
    shape: SmallVec<[usize; 2]>,
    kind: Kind,
}

/// What a result is made of.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// As the argument.
    Same,
    /// Real numbers, whatever the argument is.
    Real,
    /// Complex numbers, whatever the argument is.
    Complex,
    Index,
}

impl Part {
    pub(super) fn scalar() -> Part {
        Part { shape: smallvec![], kind: Kind::Same }
    }

    pub(super) fn vector(length: usize) -> Part {
        Part { shape: smallvec![length], kind: Kind::Same }
    }

    pub(super) fn matrix(rows: usize, columns: usize) -> Part {
        Part { shape: smallvec![rows, columns], kind: Kind::Same }
    }

    /// Real numbers, also for complex matrices.
    pub(super) fn real(self) -> Part {
        Part { kind: Kind::Real, ..self }
    }

    /// Complex numbers, also for real matrices.
    pub(super) fn complex(self) -> Part {
        Part { kind: Kind::Complex, ..self }
    }

    pub(super) fn indices(length: usize) -> Part {
        Part { shape: smallvec![length], kind: Kind::Index }
    }
}

/// A result for one matrix.
pub(super) enum Values {
    Real(Vec<f64>),
    Complex(Vec<Complex>),
    Indices(Vec<u32>),
}

impl From<Matrix<Complex>> for Values {
    fn from(matrix: Matrix<Complex>) -> Values {
        Values::Complex(matrix.values)
    }
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
    match (meta.dtype, op.0.complex()) {
        (DType::F32 | DType::F64, _) | (DType::C64, Some(_)) => {}
        (other, None) => {
            return Err(Error::dtype(op.name(), name(), "float32 or float64", other));
        }
        (other, Some(_)) => {
            let expected = "float32, float64 or complex64";
            return Err(Error::dtype(op.name(), name(), expected, other));
        }
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
                let dtype = match (part.kind, inputs[0].dtype) {
                    (Kind::Index, _) => DType::U32,
                    (Kind::Complex, _) => DType::C64,
                    (Kind::Real, DType::C64) => DType::F32,
                    (_, dtype) => dtype,
                };
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
                let result = match self.0.complex().filter(|_| dtype == DType::C64) {
                    Some(compute) => {
                        compute(&self.0, sources.iter().map(|s| s.complex(place)).collect())
                    }
                    None => {
                        let inputs = sources.iter().map(|source| source.matrix(place)).collect();
                        self.0.compute(inputs, dtype)
                    }
                };
                // Each place is computed once.
                let _new = results[place].set(result);
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
        if inputs.iter().any(|input| input.dtype() == DType::C64) {
            let reason = "gradients of factors of complex matrices are not known here";
            return Err(Error::not_differentiable(self.name(), reason));
        }
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
    Complex(&'a [Complex32]),
}

impl<'a> Source<'a> {
    fn of(call: &CpuCall<'a>, input: usize) -> Result<Source<'a>> {
        let meta = call.meta(input);
        let [.., rows, columns] = *meta.shape() else {
            return Err(Error::shape("linalg", "input", "one of at least 2 axes", meta.shape()));
        };
        let elements = match meta.dtype {
            DType::F64 => Elements::Double(call.input(input)?),
            DType::C64 => Elements::Complex(call.input(input)?),
            _ => Elements::Single(call.input(input)?),
        };
        Ok(Source { rows, columns, elements })
    }

    /// One matrix, in doubles; of complex numbers the real parts.
    fn matrix(&self, place: usize) -> Matrix<f64> {
        let range = self.range(place);
        let values = match self.elements {
            Elements::Single(values) => values[range].iter().map(|&value| value.into()).collect(),
            Elements::Double(values) => values[range].to_vec(),
            Elements::Complex(values) => {
                values[range].iter().map(|value| value.re.into()).collect()
            }
        };
        Matrix::new(self.rows, self.columns, values)
    }

    /// One matrix, as complex numbers.
    fn complex(&self, place: usize) -> Matrix<Complex> {
        let values = match self.elements {
            Elements::Complex(values) => (values[self.range(place)].iter())
                .map(|value| Complex::new(value.re.into(), value.im.into()))
                .collect(),
            _ => self.matrix(place).values.into_iter().map(|re| Complex::new(re, 0.0)).collect(),
        };
        Matrix::new(self.rows, self.columns, values)
    }

    fn range(&self, place: usize) -> std::ops::Range<usize> {
        let size = self.rows * self.columns;
        place * size..(place + 1) * size
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
        _ => &[],
    };
    let complex = |values: &'a Values| match values {
        Values::Complex(values) => &values[..],
        _ => &[],
    };
    let index = |values: &'a Values| match values {
        Values::Indices(values) => &values[..],
        _ => &[],
    };
    match call.output_meta(output).dtype {
        DType::U32 => store(call.output(output)?, results.flat_map(index).copied()),
        DType::C64 => {
            let narrow = |value: &Complex| Complex32::new(value.re as f32, value.im as f32);
            store(call.output(output)?, results.flat_map(complex).map(narrow));
        }
        DType::F64 => store(call.output(output)?, results.flat_map(real).copied()),
        _ => store(call.output(output)?, results.flat_map(real).map(|&value| value as f32)),
    }
    Ok(())
}

fn store<T>(memory: &mut [T], values: impl Iterator<Item = T>) {
    memory.iter_mut().zip(values).for_each(|(place, value)| *place = value);
}
