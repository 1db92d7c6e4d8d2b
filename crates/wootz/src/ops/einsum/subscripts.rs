//! Subscripts of `einsum`: what each axis of each operand is called, and how long axes of a name are.

use std::collections::BTreeMap;

use crate::error::{Error, Result};

/// The name of an axis: a letter's code, or [`ELLIPSIS`] and the distance from the last of the axes
/// that the dots stand for.
pub(super) type Label = usize;

const ELLIPSIS: Label = 256;

/// Subscripts that fit their operands.
pub(super) struct Equation {
    /// The labels of each operand's axes.
    pub(super) inputs: Vec<Vec<Label>>,
    /// Those of the result.
    pub(super) output: Vec<Label>,
    /// How long the axes are, those of length 1 broadcast.
    pub(super) lengths: BTreeMap<Label, usize>,
}

/// Who asks, and for what: for errors.
#[derive(Clone, Copy)]
pub(super) struct Asked<'a> {
    pub(super) op: &'static str,
    pub(super) subscripts: &'a str,
}

impl Asked<'_> {
    /// An error about the subscripts.
    pub(super) fn expected(self, expected: impl Into<String>) -> Error {
        Error::argument(self.op, "subscripts", expected.into(), format!("{:?}", self.subscripts))
    }

    /// An error about an operand.
    fn shape(self, operand: usize, expected: &str, shape: &[usize]) -> Error {
        let expected = format!("{expected} for {:?}", self.subscripts);
        Error::shape(self.op, format!("operands[{operand}]"), expected, shape)
    }
}

impl Equation {
    pub(super) fn new(asked: Asked<'_>, shapes: &[&[usize]]) -> Result<Equation> {
        let text: String = asked.subscripts.chars().filter(|letter| *letter != ' ').collect();
        let (left, right) = match text.split_once("->") {
            Some((left, right)) => (left, Some(right)),
            None => (&text[..], None),
        };
        let terms =
            left.split(',').map(|term| Term::new(asked, term)).collect::<Result<Vec<_>>>()?;
        if terms.len() != shapes.len() || shapes.is_empty() {
            let expected = format!("as many terms as operands, which are {}", shapes.len());
            return Err(asked.expected(expected));
        }
        let mut inputs = Vec::with_capacity(terms.len());
        let mut most = 0;
        for (operand, (term, shape)) in terms.iter().zip(shapes).enumerate() {
            let (letters, rank) = (term.letters.len(), shape.len());
            let fits = if term.ellipsis.is_some() { rank >= letters } else { rank == letters };
            if !fits {
                let least = if term.ellipsis.is_some() { "at least " } else { "" };
                return Err(asked.shape(operand, &format!("one of {least}{letters} axes"), shape));
            }
            most = most.max(rank - letters);
            inputs.push(term.labels(rank - letters));
        }
        let output = match right {
            Some(right) => Term::new(asked, right)?.labels(most),
            None => implicit(&terms, &inputs, most),
        };
        for (place, label) in output.iter().enumerate() {
            if output[..place].contains(label) {
                return Err(asked.expected("no subscript twice in the output"));
            }
            if !inputs.iter().any(|input| input.contains(label)) {
                return Err(asked.expected("subscripts in the output that operands have"));
            }
        }
        let lengths = lengths(asked, &inputs, shapes)?;
        Ok(Equation { inputs, output, lengths })
    }
}

/// Without an output, it has the axes of the dots, and then in the order of the alphabet the letters
/// that occur once.
fn implicit(terms: &[Term], inputs: &[Vec<Label>], most: usize) -> Vec<Label> {
    let mut counts = BTreeMap::new();
    for &label in inputs.iter().flatten().filter(|label| **label < ELLIPSIS) {
        *counts.entry(label).or_insert(0) += 1;
    }
    let dots = terms.iter().any(|term| term.ellipsis.is_some());
    let mut output = if dots { ellipsis(most) } else { Vec::new() };
    output.extend(counts.into_iter().filter(|(_, count)| *count == 1).map(|(label, _)| label));
    output
}

/// The length of each label's axes; those of one operand must be equal, others may be 1.
fn lengths(
    asked: Asked<'_>,
    inputs: &[Vec<Label>],
    shapes: &[&[usize]],
) -> Result<BTreeMap<Label, usize>> {
    let mut lengths = BTreeMap::new();
    for (operand, (labels, shape)) in inputs.iter().zip(shapes).enumerate() {
        for (axis, (label, &length)) in labels.iter().zip(*shape).enumerate() {
            let first = labels.iter().position(|other| other == label).unwrap_or(axis);
            if shape[first] != length {
                let expected = format!("axes {first} and {axis} of one length");
                return Err(asked.shape(operand, &expected, shape));
            }
            let known = lengths.entry(*label).or_insert(1);
            if *known != 1 && length != 1 && *known != length {
                let expected = format!("length {known} or 1 along axis {axis}");
                return Err(asked.shape(operand, &expected, shape));
            }
            if *known == 1 {
                *known = length;
            }
        }
    }
    Ok(lengths)
}

/// The subscripts of one operand or of the result.
struct Term {
    letters: Vec<Label>,
    /// How many letters are before the dots, if there are dots.
    ellipsis: Option<usize>,
}

impl Term {
    fn new(asked: Asked<'_>, text: &str) -> Result<Term> {
        let mut term = Term { letters: Vec::new(), ellipsis: None };
        let mut rest = text;
        while let Some(letter) = rest.chars().next() {
            if let Some(after) = rest.strip_prefix("...") {
                if term.ellipsis.is_some() {
                    return Err(asked.expected("\"...\" at most once in a term"));
                }
                term.ellipsis = Some(term.letters.len());
                rest = after;
            } else if letter.is_ascii_alphabetic() {
                term.letters.push(letter as Label);
                rest = &rest[1..];
            } else {
                let known = "letters, commas, \"...\" and one \"->\"";
                return Err(asked.expected(format!("{known}, and not {letter:?}")));
            }
        }
        Ok(term)
    }

    /// Labels of all axes, where the dots stand for so many.
    fn labels(&self, dots: usize) -> Vec<Label> {
        let (before, after) = self.letters.split_at(self.ellipsis.unwrap_or(self.letters.len()));
        let dots = if self.ellipsis.is_some() { ellipsis(dots) } else { Vec::new() };
        [before, &dots, after].concat()
    }
}

/// Labels of axes that dots stand for. They are counted from the last, as broadcasting aligns them.
fn ellipsis(count: usize) -> Vec<Label> {
    (0..count).rev().map(|from_last| ELLIPSIS + from_last).collect()
}
