//! Decides what runs: joins elementwise nodes whose intermediate results nobody else needs into
//! one program, and leaves out nodes that became part of one.

use std::sync::Arc;

use smallvec::SmallVec;

use super::order::Graph;
use super::program::{Argument, Program, Step, StepKind};
use crate::array::{Array, Layout, Node};
use crate::op::Elementwise;

/// The longest fused run. Longer chains are cut, so that kernels and registers stay small.
pub(crate) const MAX_STEPS: usize = 48;
/// Inputs of a fused run: with its output they fit the 8 storage bindings every GPU has.
pub(crate) const MAX_INPUTS: usize = 7;
/// GPU parameters of a fused run, in words: shape, strides, offsets and constants.
const MAX_WORDS: usize = 30;

/// One thing to run.
pub(crate) enum Task {
    /// A node by itself.
    Node(usize),
    /// An elementwise run; `members` are the places of its nodes, the result's first.
    Fused { members: Vec<usize>, program: Program, inputs: SmallVec<[InputRef; 4]> },
}

impl Task {
    /// The place of the node whose outputs the task computes.
    pub(crate) fn place(&self) -> usize {
        match self {
            Task::Node(place) => *place,
            Task::Fused { members, .. } => members[0],
        }
    }
}

/// Input `input` of the node at place `member`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InputRef {
    pub(crate) member: usize,
    pub(crate) input: usize,
}

/// The tasks of a graph, in the order they run.
pub(crate) fn plan(graph: &Graph) -> Vec<Task> {
    let mut needed = graph.wanted.clone();
    let mut absorbed = vec![false; graph.nodes.len()];
    let mut tasks = Vec::new();
    for place in (0..graph.nodes.len()).rev() {
        if !needed[place] || absorbed[place] {
            continue;
        }
        let Some(node) = &graph.nodes[place] else { continue };
        let task = match elementwise(node) {
            Some(_) => grow(graph, place, &needed, &mut absorbed),
            None => Task::Node(place),
        };
        let mut need = |array: &Array| {
            if let Some(place) = graph.place_of(array) {
                needed[place] = true;
            }
        };
        match &task {
            Task::Node(_) => {
                node.with_work(|work| work.inputs.iter().for_each(&mut need));
            }
            Task::Fused { inputs, .. } => {
                for reference in inputs {
                    if let Some(node) = &graph.nodes[reference.member] {
                        node.with_work(|work| need(&work.inputs[reference.input]));
                    }
                }
            }
        }
        tasks.push(task);
    }
    tasks.reverse();
    tasks
}

fn elementwise(node: &Node) -> Option<Elementwise> {
    node.with_work(|work| work.op.elementwise()).flatten()
}

/// Grows a run backwards from its result at `root`.
fn grow(graph: &Graph, root: usize, needed: &[bool], absorbed: &mut [bool]) -> Task {
    let root_node = match &graph.nodes[root] {
        Some(node) => node,
        None => return Task::Node(root),
    };
    let shape = &root_node.outputs[0].layout.shape;
    let mut run =
        Run { members: vec![root], words: shape.len() + 1, externals: 0, undecided: Vec::new() };
    run.visit_inputs(graph, root, shape);
    // Candidates leave the heap from the last place to the first: when one is looked at, all its
    // users that could belong to the run have been.
    while let Some(Candidate { place, uses_in_run, words }) = run.pop_candidate() {
        let Some(node) = &graph.nodes[place] else { continue };
        let Some(kind) = elementwise(node) else {
            run.keep_outside(words);
            continue;
        };
        let constant = matches!(kind, Elementwise::Constant(_));
        // Nobody else holds the node: neither a handle nor a node outside the run.
        let private = !needed[place]
            && uses_in_run == graph.uses[place]
            && Arc::strong_count(node) == uses_in_run as usize + 1;
        let fits = run.members.len() < MAX_STEPS
            && node.outputs[0].layout.shape == *shape
            && node.device == root_node.device
            && private
            && run.room_for(node);
        if constant && node.device == root_node.device && run.words + 2 <= MAX_WORDS {
            run.members.push(place);
            run.words += 2;
        } else if fits {
            absorbed[place] = true;
            run.members.push(place);
            run.visit_inputs(graph, place, shape);
        } else {
            run.keep_outside(words);
        }
    }
    run.finish(graph)
}

/// A run under construction.
struct Run {
    members: Vec<usize>,
    /// Parameter words and bindings of the inputs decided so far.
    words: usize,
    externals: usize,
    undecided: Vec<Candidate>,
}

/// A pending input of a member.
struct Candidate {
    place: usize,
    uses_in_run: u32,
    words: usize,
}

impl Run {
    /// Takes the inputs of a new member into account.
    fn visit_inputs(&mut self, graph: &Graph, place: usize, shape: &[usize]) {
        let Some(node) = &graph.nodes[place] else { return };
        node.with_work(|work| {
            for input in &work.inputs {
                let words = words_of(&input.meta().layout, shape);
                match graph.place_of(input) {
                    Some(place) if !input.node.is_evaluated() => {
                        match self.undecided.iter_mut().find(|other| other.place == place) {
                            Some(candidate) => candidate.uses_in_run += 1,
                            None => self.undecided.push(Candidate { place, uses_in_run: 1, words }),
                        }
                    }
                    _ => self.keep_outside(words),
                }
            }
        });
    }

    fn keep_outside(&mut self, words: usize) {
        self.externals += 1;
        self.words += words;
    }

    fn pop_candidate(&mut self) -> Option<Candidate> {
        let places = self.undecided.iter().enumerate();
        let last = places.max_by_key(|(_, candidate)| candidate.place)?.0;
        Some(self.undecided.swap_remove(last))
    }

    /// Whether a node's inputs still fit the bindings and parameters of one kernel.
    fn room_for(&self, node: &Node) -> bool {
        let shape = &node.outputs[0].layout.shape;
        let cost = node.with_work(|work| {
            let words = work.inputs.iter().map(|input| words_of(&input.meta().layout, shape));
            (work.inputs.len(), words.sum::<usize>())
        });
        let Some((count, words)) = cost else { return false };
        let undecided: usize = self.undecided.iter().map(|candidate| candidate.words).sum();
        self.externals + self.undecided.len() + count <= MAX_INPUTS
            && self.words + undecided + words <= MAX_WORDS
    }

    /// Numbers the members and turns them into a program.
    fn finish(mut self, graph: &Graph) -> Task {
        let root = self.members[0];
        let mut places = std::mem::take(&mut self.members);
        places.sort_unstable();
        places.dedup();
        let mut program =
            Program { inputs: SmallVec::new(), steps: Vec::with_capacity(places.len()) };
        let mut inputs: SmallVec<[InputRef; 4]> = SmallVec::new();
        let mut known: SmallVec<[Array; 4]> = SmallVec::new();
        for &place in &places {
            let Some(node) = &graph.nodes[place] else { continue };
            let step = node.with_work(|work| {
                let kind = work.op.elementwise().map(StepKind::from)?;
                let mut arguments = SmallVec::new();
                for (index, input) in work.inputs.iter().enumerate() {
                    let member = graph.place_of(input).filter(|_| !input.node.is_evaluated());
                    let step = member.and_then(|member| places.binary_search(&member).ok());
                    arguments.push(match step {
                        Some(step) => Argument::Step(step as u16),
                        None => {
                            let same = |other: &Array| {
                                Arc::ptr_eq(&other.node, &input.node)
                                    && other.output_index() == input.output_index()
                            };
                            let position = known.iter().position(same).unwrap_or_else(|| {
                                known.push(input.clone());
                                inputs.push(InputRef { member: place, input: index });
                                program.inputs.push(input.dtype());
                                known.len() - 1
                            });
                            Argument::Input(position as u16)
                        }
                    });
                }
                Some(Step { kind, arguments, dtype: node.outputs[0].dtype })
            });
            match step.flatten() {
                Some(step) => program.steps.push(step),
                None => return Task::Node(root),
            }
        }
        places.retain(|&place| place != root);
        places.insert(0, root);
        Task::Fused { members: places, program, inputs }
    }
}

/// Parameter words that an input of this layout costs in a fused GPU kernel over `shape`.
fn words_of(layout: &Layout, shape: &[usize]) -> usize {
    let flat = layout.shape[..] == *shape && layout.is_contiguous();
    if flat || layout.size() == 1 { 1 } else { 1 + shape.len() }
}
