//! Decides what runs: joins elementwise nodes into one program. An intermediate result that only the
//! program reads is not stored, unless somebody holds on to it: then the program stores it, too, as
//! the state of an optimizer beside the parameter.

use std::collections::HashMap;
use std::sync::Arc;

use smallvec::SmallVec;

use super::order::Graph;
use super::program::{Argument, Program, Step, StepKind};
use crate::array::{Array, Layout, Node};
use crate::device::Device;
use crate::op::Elementwise;

/// The longest fused run. Longer chains are cut, so that kernels and registers stay small.
pub(crate) const MAX_STEPS: usize = 48;
/// Inputs and outputs of a fused run: every GPU has 8 storage bindings, and most have more.
const LEAST_BINDINGS: usize = 8;
const MOST_BINDINGS: usize = 12;
/// GPU parameters of a fused run, in words: shape, strides, offsets and constants.
const MAX_WORDS: usize = 30;

/// One thing to run.
pub(crate) enum Task {
    /// A node by itself.
    Node(usize),
    /// An elementwise run; `members` are the places of its nodes, and the first `outputs` of them
    /// those whose results are stored.
    Fused { members: Vec<usize>, outputs: usize, program: Program, inputs: SmallVec<[InputRef; 4]> },
}

impl Task {
    /// The places of the nodes whose outputs the task computes.
    pub(crate) fn places(&self) -> &[usize] {
        match self {
            Task::Node(place) => std::slice::from_ref(place),
            Task::Fused { members, outputs, .. } => &members[..*outputs],
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
    let siblings = Siblings::find(graph);
    let mut absorbed = vec![false; graph.nodes.len()];
    let mut tasks = Vec::new();
    for place in (0..graph.nodes.len()).rev() {
        if !needed[place] || absorbed[place] {
            continue;
        }
        let Some(node) = &graph.nodes[place] else { continue };
        let task = match elementwise(node) {
            Some(_) => grow(graph, place, siblings.of(place), &needed, &mut absorbed),
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

/// Results that belong into one pass over memory: nothing in the graph reads them, they have one shape,
/// and elementwise operations make them of common arrays. So a parameter and its state, or two
/// results that share the greater part of their work.
#[derive(Default)]
struct Siblings {
    /// The groups' members, and the group of each.
    groups: Vec<Vec<usize>>,
    group_of: HashMap<usize, usize>,
}

impl Siblings {
    fn find(graph: &Graph) -> Siblings {
        let mut siblings = Siblings::default();
        let last = |&place: &usize| {
            let node = graph.nodes[place].as_ref();
            graph.uses[place] == 0
                && node
                    .and_then(|node| elementwise(node))
                    .is_some_and(|kind| !matches!(kind, Elementwise::Constant(_)))
        };
        let results: Vec<usize> = (0..graph.nodes.len()).filter(last).collect();
        if results.len() < 2 {
            return siblings;
        }
        // Who makes something of an array.
        let mut makers: HashMap<(*const Node, usize), usize> = HashMap::new();
        for result in results {
            let arrays = made_of(graph, result);
            let known = arrays.iter().find_map(|array| makers.get(array).copied());
            let group = known.unwrap_or_else(|| {
                siblings.groups.push(Vec::new());
                siblings.groups.len() - 1
            });
            siblings.groups[group].push(result);
            siblings.group_of.insert(result, group);
            makers.extend(arrays.into_iter().map(|array| (array, group)));
        }
        siblings
    }

    /// The siblings of a result that come before it.
    fn of(&self, place: usize) -> &[usize] {
        let Some(&group) = self.group_of.get(&place) else { return &[] };
        let members = &self.groups[group];
        &members[..members.partition_point(|&member| member < place)]
    }
}

/// The arrays of a result's shape that elementwise operations make it of.
fn made_of(graph: &Graph, result: usize) -> Vec<(*const Node, usize)> {
    let mut arrays = Vec::new();
    let Some(root) = &graph.nodes[result] else { return arrays };
    let mut pending = vec![root.clone()];
    while let Some(node) = pending.pop() {
        node.with_work(|work| {
            for input in &work.inputs {
                let array = (Arc::as_ptr(&input.node), input.output_index());
                let fits = input.shape() == root.outputs[0].shape();
                if fits && arrays.len() < MAX_STEPS && !arrays.contains(&array) {
                    arrays.push(array);
                    if !input.node.is_evaluated() && elementwise(&input.node).is_some() {
                        pending.push(input.node.clone());
                    }
                }
            }
        });
    }
    arrays
}

/// Grows a run backwards from its result at `root`, and from siblings of it as far as there is room.
fn grow(
    graph: &Graph,
    root: usize,
    siblings: &[usize],
    needed: &[bool],
    absorbed: &mut [bool],
) -> Task {
    let root_node = match &graph.nodes[root] {
        Some(node) => node,
        None => return Task::Node(root),
    };
    let shape = &root_node.outputs[0].layout.shape;
    let mut run = Run {
        members: vec![root],
        held: SmallVec::from_elem(root, 1),
        words: shape.len() + 1,
        externals: 0,
        most_bindings: most_bindings(&root_node.device),
        undecided: Vec::new(),
    };
    run.visit_inputs(graph, root, shape);
    let free = siblings.iter().filter(|&&place| !absorbed[place]);
    run.undecided.extend(free.map(|&place| Candidate { place, uses_in_run: 0, words: 0 }));
    // Candidates leave the heap from the last place to the first: when one is looked at, all its
    // users that could belong to the run have been.
    while let Some(Candidate { place, uses_in_run, words }) = run.pop_candidate() {
        let Some(node) = &graph.nodes[place] else { continue };
        let Some(kind) = elementwise(node) else {
            run.keep_outside(words);
            continue;
        };
        let constant = matches!(kind, Elementwise::Constant(_));
        // No node outside the run reads it: what does could be an input of the run.
        let inside = uses_in_run == graph.uses[place];
        // Somebody will want to see it.
        let held = needed[place] || Arc::strong_count(node) != uses_in_run as usize + 1;
        let fits = run.members.len() < MAX_STEPS
            && node.outputs[0].layout.shape == *shape
            && node.device == root_node.device
            && inside
            && run.room_for(node, held);
        if constant && node.device == root_node.device && run.words + 2 <= MAX_WORDS {
            run.members.push(place);
            run.words += 2;
        } else if fits {
            absorbed[place] = true;
            run.members.push(place);
            if held {
                run.held.push(place);
            }
            run.visit_inputs(graph, place, shape);
        } else if uses_in_run > 0 {
            run.keep_outside(words);
        }
    }
    run.finish(graph)
}

/// A run under construction.
struct Run {
    members: Vec<usize>,
    /// Members whose results are stored, the last place first.
    held: SmallVec<[usize; 2]>,
    /// Parameter words and bindings of the inputs decided so far.
    words: usize,
    externals: usize,
    most_bindings: usize,
    undecided: Vec<Candidate>,
}

/// A pending input of a member, or a sibling of the result, which no member uses.
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

    /// Whether a node's inputs, and its result if it is held, still fit the bindings and parameters
    /// of one kernel.
    fn room_for(&self, node: &Node, held: bool) -> bool {
        let shape = &node.outputs[0].layout.shape;
        let cost = node.with_work(|work| {
            let words = work.inputs.iter().map(|input| words_of(&input.meta().layout, shape));
            (work.inputs.len(), words.sum::<usize>())
        });
        let Some((count, words)) = cost else { return false };
        let undecided: usize = self.undecided.iter().map(|candidate| candidate.words).sum();
        let outputs = self.held.len() + usize::from(held);
        self.externals + self.undecided.len() + count + outputs <= self.most_bindings
            && self.words + undecided + words <= MAX_WORDS
    }

    /// Numbers the members and turns them into a program.
    fn finish(mut self, graph: &Graph) -> Task {
        let root = self.members[0];
        let held = std::mem::take(&mut self.held);
        let mut places = std::mem::take(&mut self.members);
        places.sort_unstable();
        places.dedup();
        let step_of = |place: &usize| places.binary_search(place).unwrap_or_default() as u16;
        let mut program = Program {
            inputs: SmallVec::new(),
            steps: Vec::with_capacity(places.len()),
            outputs: held.iter().map(step_of).collect(),
        };
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
        places.retain(|place| !held.contains(place));
        places.splice(0..0, held.iter().copied());
        Task::Fused { members: places, outputs: held.len(), program, inputs }
    }
}

/// Inputs and outputs that a kernel of a device can have.
fn most_bindings(device: &Device) -> usize {
    #[cfg(feature = "gpu")]
    if let Some(gpu) = device.as_gpu() {
        return gpu.max_storage_bindings().clamp(LEAST_BINDINGS, MOST_BINDINGS);
    }
    let _ = device;
    MOST_BINDINGS.max(LEAST_BINDINGS)
}

/// Parameter words that an input of this layout costs in a fused GPU kernel over `shape`.
fn words_of(layout: &Layout, shape: &[usize]) -> usize {
    let flat = layout.shape[..] == *shape && layout.is_contiguous();
    if flat || layout.size() == 1 { 1 } else { 1 + shape.len() }
}
