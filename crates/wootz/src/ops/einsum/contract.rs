//! The contractions of `einsum`, made of diagonals, sums, transposes and matrix products.

use super::path::Step;
use super::subscripts::{Asked, Equation, Label};
use crate::array::{Array, DType};
use crate::error::{Error, Result};
use crate::ops::{Axes, broadcast_to, diagonal, matmul, multiply, reshape, sum, transpose_axes};

/// An array whose axes have labels.
struct Term {
    array: Array,
    labels: Vec<Label>,
}

/// Contracts the operands step by step.
pub(super) fn contract(
    asked: Asked<'_>,
    equation: &Equation,
    steps: &[Step],
    operands: Vec<Array>,
) -> Result<Array> {
    let labels = equation.inputs.iter().cloned();
    let mut terms: Vec<Term> =
        operands.into_iter().zip(labels).map(|(array, labels)| Term { array, labels }).collect();
    for step in steps {
        let mut taken = Vec::with_capacity(step.positions.len());
        for &position in step.positions.iter().rev() {
            taken.insert(0, terms.remove(position));
        }
        terms.push(together(asked, equation, step, taken)?);
    }
    match terms.pop() {
        Some(result) => result.ordered(&equation.output),
        None => Err(asked.expected("at least one operand")),
    }
}

/// One step: labels that occur twice in an operand become diagonals, those that nobody else has are summed
/// over, and what is left is multiplied pair by pair.
fn together(asked: Asked<'_>, equation: &Equation, step: &Step, terms: Vec<Term>) -> Result<Term> {
    let mut singles = Vec::with_capacity(terms.len());
    for term in terms {
        singles.push(term.without_repeats()?);
    }
    for place in 0..singles.len() {
        let elsewhere = |label: &Label| {
            step.keeps.contains(label)
                || (singles.iter().enumerate())
                    .any(|(other, term)| other != place && term.labels.contains(label))
        };
        let lonely: Vec<Label> =
            singles[place].labels.iter().copied().filter(|label| !elsewhere(label)).collect();
        singles[place] = singles[place].summed(&lonely)?;
    }
    // As in MLX, only what is not made of two may be integers that are summed over.
    let two = singles.len() == 2;
    let mut rest = singles.into_iter();
    let Some(mut result) = rest.next() else {
        return Err(asked.expected("at least one operand"));
    };
    while let Some(next) = rest.next() {
        let later = rest.as_slice();
        let kept = |label: &Label| {
            step.keeps.contains(label) || later.iter().any(|term| term.labels.contains(label))
        };
        let over: Vec<Label> = result.labels.iter().copied().filter(|l| !kept(l)).collect();
        let dtype = DType::promote(result.array.dtype(), next.array.dtype());
        let whole = dtype.is_integer() || dtype == DType::Bool;
        if !over.is_empty() && two && whole {
            let expected = format!("a floating-point type for {:?}", asked.subscripts);
            return Err(Error::dtype(asked.op, "operands", expected, dtype));
        }
        result = match over.is_empty() || whole {
            true => result.times(&next)?.summed(&over)?,
            false => result.product(&next, &over, equation)?,
        };
    }
    Ok(result)
}

impl Term {
    /// The diagonals of axes with the same label.
    fn without_repeats(mut self) -> Result<Term> {
        let repeated = |labels: &[Label]| {
            let pair = |second: &usize| labels[..*second].contains(&labels[*second]);
            (0..labels.len()).find(pair)
        };
        while let Some(second) = repeated(&self.labels) {
            let label = self.labels.remove(second);
            let Some(first) = self.labels.iter().position(|other| *other == label) else { break };
            self.labels.remove(first);
            self.array = diagonal(&self.array, 0, first as i64, second as i64)?;
            // The diagonal is the last axis.
            self.labels.push(label);
        }
        Ok(self)
    }

    /// Summed over the axes of these labels.
    fn summed(&self, over: &[Label]) -> Result<Term> {
        let axes: Vec<i64> = self.places(over).collect();
        let labels = self.labels.iter().copied().filter(|label| !over.contains(label)).collect();
        let array = match axes.is_empty() {
            true => self.array.clone(),
            false => sum(&self.array, Axes::These(axes), false)?,
        };
        Ok(Term { array, labels })
    }

    /// The product of elements whose labels agree.
    fn times(&self, other: &Term) -> Result<Term> {
        let mut labels = self.labels.clone();
        labels.extend(other.labels.iter().filter(|label| !self.labels.contains(label)));
        let array = multiply(self.spread(&labels)?, other.spread(&labels)?)?;
        Ok(Term { array, labels })
    }

    /// The sum of products over labels that both have: a product of matrices, in batches of the other
    /// labels that both have.
    fn product(&self, other: &Term, over: &[Label], equation: &Equation) -> Result<Term> {
        let shared = |label: &Label| other.labels.contains(label) && !over.contains(label);
        let batch: Vec<Label> = self.labels.iter().copied().filter(shared).collect();
        let own = |term: &Term| -> Vec<Label> {
            let taken = |label: &Label| batch.contains(label) || over.contains(label);
            term.labels.iter().copied().filter(|label| !taken(label)).collect()
        };
        let (rows, columns) = (own(self), own(other));
        let lengths = |labels: &[Label]| -> Vec<usize> {
            labels.iter().map(|label| *equation.lengths.get(label).unwrap_or(&1)).collect()
        };
        let matrices = |term: &Term, first: &[Label], second: &[Label]| {
            let order = [&batch, first, second].concat();
            let array = term.ordered(&order)?;
            // Axes of length 1 are broadcast where they are summed over; a batch's broadcast anyway.
            let mut shape = array.shape()[..batch.len()].to_vec();
            let whole = [shape.clone(), lengths(first), lengths(second)].concat();
            shape.extend([first, second].map(|labels| lengths(labels).iter().product::<usize>()));
            reshape(&broadcast_to(&array, &whole)?, &shape)
        };
        let a = matrices(self, &rows, over)?;
        let b = matrices(other, over, &columns)?;
        let labels = [&batch[..], &rows, &columns].concat();
        let product = matmul(&a, &b)?;
        let batch = product.shape()[..batch.len()].to_vec();
        let array = reshape(&product, &[batch, lengths(&rows), lengths(&columns)].concat())?;
        Ok(Term { array, labels })
    }

    /// The array with its axes in this order.
    fn ordered(&self, labels: &[Label]) -> Result<Array> {
        let order: Vec<i64> = self.places(labels).collect();
        match order.iter().enumerate().all(|(place, axis)| place as i64 == *axis) {
            true => Ok(self.array.clone()),
            false => transpose_axes(&self.array, &order),
        }
    }

    /// The array with these axes, of which it has some; the others have length 1.
    fn spread(&self, labels: &[Label]) -> Result<Array> {
        let present: Vec<Label> =
            labels.iter().copied().filter(|label| self.labels.contains(label)).collect();
        let array = self.ordered(&present)?;
        let mut lengths = array.shape().iter().copied();
        let length = |label: &Label| match present.contains(label) {
            true => lengths.next().unwrap_or(1),
            false => 1,
        };
        let shape: Vec<usize> = labels.iter().map(length).collect();
        reshape(&array, &shape)
    }

    /// Where these labels are.
    fn places<'a>(&'a self, labels: &'a [Label]) -> impl Iterator<Item = i64> + 'a {
        let place = |label: &Label| self.labels.iter().position(|other| other == label);
        labels.iter().filter_map(place).map(|axis| axis as i64)
    }
}
