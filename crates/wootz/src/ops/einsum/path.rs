//! The order in which `einsum` contracts its operands: greedily, what frees the most memory first, as
//! MLX and NumPy do.

use std::collections::{BTreeMap, BTreeSet};

use super::subscripts::{Equation, Label};

type Labels = BTreeSet<Label>;

/// The contractions, and what they cost beside doing all at once.
pub(super) struct Path {
    /// One after the other.
    pub(super) steps: Vec<Step>,
    /// All operands at once.
    pub(super) naive: Cost,
    /// In steps.
    pub(super) optimized: Cost,
}

/// Operands that are contracted together. The result is put behind those that are left.
pub(super) struct Step {
    /// Their places among the operands that are left, ascending.
    pub(super) positions: Vec<usize>,
    /// The labels that the result keeps.
    pub(super) keeps: Labels,
}

/// Multiplications and additions, and the most axes that a step has.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Cost {
    pub(super) flops: u128,
    pub(super) scaling: usize,
}

impl Cost {
    /// Of a contraction of so many operands, which have these labels, to those that are kept.
    fn new(lengths: &Lengths<'_>, labels: &Labels, keeps: &Labels, operands: usize) -> Cost {
        let sums = !labels.is_subset(keeps);
        let each = operands.saturating_sub(1).max(1) + usize::from(sums);
        let flops = lengths.size(labels).saturating_mul(each as u128);
        Cost { flops, scaling: labels.len() }
    }

    fn then(self, next: Cost) -> Cost {
        let flops = self.flops.saturating_add(next.flops);
        Cost { flops, scaling: self.scaling.max(next.scaling) }
    }
}

struct Lengths<'a>(&'a BTreeMap<Label, usize>);

impl Lengths<'_> {
    fn size(&self, labels: &Labels) -> u128 {
        let length = |label| *self.0.get(label).unwrap_or(&1) as u128;
        labels.iter().map(length).fold(1, u128::saturating_mul)
    }
}

/// Two terms that could be contracted next.
struct Candidate {
    /// Numbers of the terms.
    terms: [usize; 2],
    keeps: Labels,
    /// Elements that are no longer needed afterwards, less those that are new.
    freed: i128,
    cost: Cost,
}

impl Path {
    pub(super) fn new(equation: &Equation) -> Path {
        let lengths = Lengths(&equation.lengths);
        let output: Labels = equation.output.iter().copied().collect();
        let terms: Vec<Labels> =
            equation.inputs.iter().map(|input| input.iter().copied().collect()).collect();
        let all: Labels = terms.iter().flatten().copied().collect();
        let naive = Cost::new(&lengths, &all, &output, terms.len());
        if terms.len() > 2 {
            return greedy(&lengths, terms, output, naive);
        }
        let step = Step { positions: (0..terms.len()).collect(), keeps: output };
        Path { steps: vec![step], naive, optimized: naive }
    }
}

/// Steps that together cost no more than `naive`, with results no larger than the largest operand or the
/// output. What is left when there are no such is contracted at once.
fn greedy(lengths: &Lengths<'_>, inputs: Vec<Labels>, output: Labels, naive: Cost) -> Path {
    let largest = inputs.iter().chain([&output]).map(|term| lengths.size(term)).max().unwrap_or(1);
    let mut terms: Vec<(usize, Labels)> = inputs.into_iter().enumerate().collect();
    let mut next_number = terms.len();
    let mut steps = Vec::new();
    let mut optimized = Cost::default();
    let mut candidates: Vec<Candidate> = Vec::new();
    let mut pairs: Vec<(usize, usize)> = (0..terms.len())
        .flat_map(|first| (first + 1..terms.len()).map(move |second| (first, second)))
        .collect();
    while terms.len() > 1 {
        let candidate = |&(first, second): &(usize, usize)| {
            let found = Candidate::new(lengths, &terms, first, second, &output);
            let cheap = optimized.flops.saturating_add(found.cost.flops) <= naive.flops;
            (cheap && lengths.size(&found.keeps) <= largest).then_some(found)
        };
        // Products of all with all come last.
        let joined = pairs.iter().filter(|(a, b)| !terms[*a].1.is_disjoint(&terms[*b].1));
        candidates.extend(joined.filter_map(candidate));
        if candidates.is_empty() {
            candidates.extend(pairs.iter().filter_map(candidate));
        }
        // Of equal ones the first.
        let better = |a: &Candidate, b: &Candidate| {
            (a.freed, std::cmp::Reverse(a.cost.flops)) > (b.freed, std::cmp::Reverse(b.cost.flops))
        };
        let best = candidates.iter().enumerate().fold(None, |best: Option<usize>, (i, one)| {
            best.filter(|&best| !better(one, &candidates[best])).or(Some(i))
        });
        let Some(best) = best.map(|best| candidates.remove(best)) else {
            let all: Labels = terms.iter().flat_map(|(_, term)| term).copied().collect();
            optimized = optimized.then(Cost::new(lengths, &all, &output, terms.len()));
            steps.push(Step { positions: (0..terms.len()).collect(), keeps: output });
            return Path { steps, naive, optimized };
        };
        optimized = optimized.then(best.cost);
        let used = |number: &usize| best.terms.contains(number);
        let positions =
            (0..terms.len()).filter(|&position| used(&terms[position].0)).collect::<Vec<_>>();
        terms.retain(|(number, _)| !used(number));
        candidates.retain(|candidate| !candidate.terms.iter().any(used));
        terms.push((next_number, best.keeps.clone()));
        next_number += 1;
        pairs = (0..terms.len() - 1).map(|first| (first, terms.len() - 1)).collect();
        steps.push(Step { positions, keeps: best.keeps });
    }
    Path { steps, naive, optimized }
}

impl Candidate {
    fn new(
        lengths: &Lengths<'_>,
        terms: &[(usize, Labels)],
        first: usize,
        second: usize,
        output: &Labels,
    ) -> Candidate {
        let [a, b] = [first, second].map(|place| &terms[place]);
        let labels: Labels = a.1.union(&b.1).copied().collect();
        let others = terms.iter().filter(|(number, _)| *number != a.0 && *number != b.0);
        let needed: Labels = others.flat_map(|(_, term)| term).chain(output).copied().collect();
        let keeps: Labels = labels.intersection(&needed).copied().collect();
        let size = |labels: &Labels| i128::try_from(lengths.size(labels)).unwrap_or(i128::MAX);
        let freed = size(&a.1).saturating_add(size(&b.1)).saturating_sub(size(&keeps));
        let cost = Cost::new(lengths, &labels, &keeps, 2);
        Candidate { terms: [a.0, b.0], keeps, freed, cost }
    }
}
