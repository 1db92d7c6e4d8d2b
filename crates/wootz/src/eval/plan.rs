//! Plans: what a recorded function computes, as steps over memory that was laid out ahead. Replaying
//! a plan builds no nodes, infers no shapes and allocates only for results that the caller still
//! holds from earlier replays.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use smallvec::SmallVec;

use super::fusion::{self, InputRef, Task};
use super::order::Graph;
use super::program::{Fused, Program};
use super::{lock, schedule};
use crate::array::{Array, Meta, Node, Work};
use crate::buffer::Buffer;
use crate::device::Device;
use crate::encoder::{Encoder, Operand};
use crate::error::{Error, Result};
use crate::op::OpRef;

/// Memory that a step reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Of an argument of the call.
    Argument(usize),
    /// Of an array that the function captured or made.
    Constant(usize),
    /// Of the plan, used again and again.
    Slot(usize),
    /// Of a result, which the caller may keep.
    Result(usize),
}

/// A use of memory, and how it is seen.
struct Use {
    place: Place,
    meta: Meta,
}

struct Step {
    op: OpRef,
    /// How many of the plan's uses are its inputs, and how many, behind them, its outputs.
    inputs: usize,
    outputs: usize,
    scratch: Option<usize>,
}

/// What a function computes for arguments of one signature.
pub(crate) struct Plan {
    device: Device,
    steps: Vec<Step>,
    /// What the steps use, one after the other.
    uses: Vec<Use>,
    outputs: Vec<Use>,
    constants: Vec<Arc<Buffer>>,
    /// Bytes of each slot.
    slots: Vec<usize>,
    results: Vec<Outcome>,
    nodes: usize,
    memory: Mutex<Option<Memory>>,
}

/// Memory of a result.
struct Outcome {
    bytes: usize,
    /// Arguments in whose memory it can be computed, if the caller gives them away.
    donors: SmallVec<[usize; 4]>,
}

/// What a plan's steps run on; made when it is first replayed.
struct Memory {
    slots: Vec<Arc<Buffer>>,
    /// Buffers that results were written to, which are used again once their callers let go.
    results: Vec<Vec<Arc<Buffer>>>,
}

/// Buffers kept for a result: one that the caller reads and one to write, and one to spare.
const KEPT_RESULTS: usize = 3;

impl Plan {
    /// The plan that computes `outputs` from `arguments`, which are placeholders.
    pub(crate) fn new(arguments: &[Array], outputs: &[Array], device: &Device) -> Result<Plan> {
        let mut evaluation = lock();
        let graph = Graph::collect(evaluation.next_epoch(), &outputs.iter().collect::<Vec<_>>());
        let tasks = schedule::schedule(&graph, fusion::plan(&graph), true);
        let mut planner = Planner {
            device,
            arguments,
            graph: &graph,
            storages: Vec::new(),
            of_node: HashMap::new(),
            constants: Vec::new(),
            steps: Vec::with_capacity(tasks.len()),
        };
        for task in tasks {
            planner.add(task)?;
        }
        planner.finish(outputs)
    }

    /// Nodes of the graph that the plan stands for.
    pub(crate) fn nodes(&self) -> usize {
        self.nodes
    }

    /// Kernels that a replay runs.
    pub(crate) fn steps(&self) -> usize {
        self.steps.len()
    }

    /// Bytes that the first replay takes beside arguments and constants.
    pub(crate) fn bytes(&self) -> usize {
        let results = self.results.iter().map(|result| &result.bytes);
        self.slots.iter().chain(results).map(|&bytes| Buffer::taken(&self.device, bytes)).sum()
    }

    /// Computes the results for arguments that are evaluated, row-major and of the plan's signature.
    /// If they are `owned`, what nobody else holds may become memory of results.
    pub(crate) fn replay(&self, arguments: &[Array], owned: bool) -> Result<Vec<Array>> {
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        if memory.is_none() {
            *memory = Some(self.lay_out()?);
        }
        let Some(memory) = memory.as_mut() else { return Ok(Vec::new()) };
        let results = memory.next_results(self, if owned { arguments } else { &[] })?;
        let arguments = (arguments.iter())
            .map(|argument| argument.buffer().ok_or_else(lost))
            .collect::<Result<Vec<&Arc<Buffer>>>>()?;
        let buffer = |place: Place| match place {
            Place::Argument(index) => arguments[index],
            Place::Constant(index) => &self.constants[index],
            Place::Slot(index) => &memory.slots[index],
            Place::Result(index) => &results[index],
        };
        self.run(buffer)?;
        let array = |output: &Use| {
            let buffer = buffer(output.place).clone();
            Array::from_buffer(&self.device, output.meta.clone(), buffer)
        };
        Ok(self.outputs.iter().map(array).collect())
    }

    /// Runs all steps in the memory that `buffer` tells.
    fn run<'b>(&'b self, buffer: impl Fn(Place) -> &'b Arc<Buffer>) -> Result<()> {
        let evaluation = lock();
        let mut encoder = Encoder::new(&self.device)?;
        let operand = |used: &'b Use| Operand { meta: &used.meta, buffer: buffer(used.place) };
        let operands: Vec<Operand<'_>> = self.uses.iter().map(operand).collect();
        let mut rest = &operands[..];
        for step in &self.steps {
            let (inputs, others) = rest.split_at(step.inputs);
            let (outputs, others) = others.split_at(step.outputs);
            rest = others;
            let scratch = step.scratch.map(|slot| buffer(Place::Slot(slot)));
            encoder.record(&evaluation, &*step.op, inputs, outputs, scratch)?;
            if encoder.is_long() {
                std::mem::replace(&mut encoder, Encoder::new(&self.device)?).submit()?;
            }
        }
        encoder.submit()?;
        Ok(())
    }

    fn lay_out(&self) -> Result<Memory> {
        let alloc = |bytes: &usize| Buffer::alloc(&self.device, *bytes);
        Ok(Memory {
            slots: self.slots.iter().map(alloc).collect::<Result<_>>()?,
            results: self.results.iter().map(|_| Vec::new()).collect(),
        })
    }
}

impl Memory {
    /// Memory for each result that nobody holds: that of an argument which is given away, or of
    /// earlier results.
    fn next_results(&mut self, plan: &Plan, given: &[Array]) -> Result<Vec<Arc<Buffer>>> {
        let mut results: Vec<Arc<Buffer>> = Vec::with_capacity(plan.results.len());
        for (index, result) in plan.results.iter().enumerate() {
            // An argument may be a result of an earlier replay, which is kept here. One that has
            // been chosen is held by the result.
            let ours = |buffer: &Arc<Buffer>| {
                self.results.iter().flatten().any(|kept| Arc::ptr_eq(kept, buffer))
            };
            let free = |&donor: &usize| {
                let donor = given.get(donor)?;
                let buffer = donor.buffer().filter(|buffer| !buffer.is_read_only())?;
                // Outputs of one node may be given away together, each once.
                let of_node = |other: &&Array| Arc::ptr_eq(&other.node, &donor.node);
                let handles = Arc::strong_count(&donor.node);
                let together = || {
                    handles == given.iter().filter(of_node).count()
                        && given.iter().filter(|other| other.is_same(donor)).count() == 1
                };
                let alone = (handles == 1 || together())
                    && match Arc::strong_count(buffer) {
                        1 => true,
                        2 => ours(buffer),
                        _ => false,
                    };
                alone.then_some(buffer)
            };
            if let Some(buffer) = result.donors.iter().find_map(free) {
                results.push(buffer.clone());
                continue;
            }
            let kept = &mut self.results[index];
            if let Some(free) = kept.iter().find(|buffer| Arc::strong_count(buffer) == 1) {
                results.push(free.clone());
                continue;
            }
            let buffer = Buffer::alloc(&plan.device, result.bytes)?;
            if kept.len() == KEPT_RESULTS {
                kept.remove(0);
            }
            kept.push(buffer.clone());
            results.push(buffer);
        }
        Ok(results)
    }
}

/// Memory of the plan while it is made: who writes it, and when it is used last.
struct Storage {
    /// Known for arguments and constants; decided at the end for what steps write.
    place: Option<Place>,
    bytes: usize,
    last_use: usize,
}

/// A step whose memory is not yet decided.
struct LooseStep {
    op: OpRef,
    inputs: SmallVec<[(usize, Meta); 4]>,
    outputs: SmallVec<[(usize, Meta); 1]>,
    scratch: usize,
}

struct Planner<'a> {
    device: &'a Device,
    arguments: &'a [Array],
    graph: &'a Graph,
    storages: Vec<Storage>,
    /// The storages of a node's outputs.
    of_node: HashMap<*const Node, SmallVec<[usize; 1]>>,
    constants: Vec<Arc<Buffer>>,
    steps: Vec<LooseStep>,
}

impl Planner<'_> {
    fn add(&mut self, task: Task) -> Result<()> {
        let graph = self.graph;
        let nodes = task.places().iter().filter_map(|&place| graph.nodes[place].as_ref());
        let nodes: SmallVec<[&Arc<Node>; 2]> = nodes.collect();
        let Some(node) = nodes.first() else { return Ok(()) };
        if node.device != *self.device {
            let (here, there) = (self.device, &node.device);
            let op = node.work().map_or("an operation", |work| work.op.name());
            let reason = format!("the arguments are on {here}, and a result of {op} on {there}");
            return Err(failed(reason));
        }
        match task {
            Task::Node(_) => {
                let Some(work) = node.work() else { return Ok(()) };
                self.add_node(node, work)
            }
            Task::Fused { program, inputs, .. } => self.add_fused(&nodes, program, &inputs),
        }
    }

    fn add_node(&mut self, node: &Arc<Node>, work: Work) -> Result<()> {
        let argument = |argument: &Array| Arc::ptr_eq(&argument.node, node);
        if let Some(index) = self.arguments.iter().position(argument) {
            let storage = self.storage(Some(Place::Argument(index)), 0);
            self.of_node.insert(Arc::as_ptr(node), SmallVec::from_elem(storage, 1));
            return Ok(());
        }
        if work.op.is_transfer() {
            return Err(failed(format!("an array is moved between devices by {}", work.op.name())));
        }
        if work.op.is_view() {
            let seen = (0..node.outputs.len())
                .map(|output| self.input(&work.inputs[work.op.viewed(output)]))
                .collect::<Result<_>>()?;
            self.of_node.insert(Arc::as_ptr(node), seen);
            return Ok(());
        }
        let inputs: SmallVec<[&Array; 4]> = work.inputs.iter().collect();
        self.add_step(&[node], work.op.clone(), &inputs)
    }

    fn add_fused(
        &mut self,
        nodes: &[&Arc<Node>],
        program: Program,
        inputs: &[InputRef],
    ) -> Result<()> {
        let input = |reference: &InputRef| {
            let node = self.graph.nodes[reference.member].as_ref()?;
            node.with_work(|work| work.inputs[reference.input].clone())
        };
        let inputs: SmallVec<[Array; 4]> = inputs.iter().filter_map(input).collect();
        let op = Fused::new(program, nodes[0].outputs[0].shape());
        self.add_step(nodes, op.into(), &inputs.iter().collect::<SmallVec<[&Array; 4]>>())
    }

    /// Adds a step that computes all outputs of these nodes.
    fn add_step(&mut self, nodes: &[&Arc<Node>], op: OpRef, inputs: &[&Array]) -> Result<()> {
        let used =
            |planner: &mut Self, input: &&Array| Ok((planner.input(input)?, input.meta().clone()));
        let inputs = inputs
            .iter()
            .map(|input| used(self, input))
            .collect::<Result<SmallVec<[(usize, Meta); 4]>>>()?;
        let metas = inputs.iter().map(|(_, meta)| meta).collect::<SmallVec<[&Meta; 4]>>();
        let scratch = op.scratch(&metas, self.device.is_gpu());
        drop(metas);
        // Nothing to compute, and kernels need not know about empty arrays.
        let metas = || nodes.iter().flat_map(|node| &node.outputs);
        let empty = metas().all(|meta| meta.size() == 0);
        let place = empty.then_some(Place::Constant(self.constants.len()));
        if empty {
            self.constants.push(Buffer::alloc(self.device, 0)?);
        }
        let outputs: SmallVec<[(usize, Meta); 1]> =
            metas().map(|meta| (self.storage(place, meta.bytes()), meta.clone())).collect();
        let mut storages = outputs.iter().map(|&(storage, _)| storage);
        for node in nodes {
            let own = storages.by_ref().take(node.outputs.len()).collect();
            self.of_node.insert(Arc::as_ptr(node), own);
        }
        if empty {
            return Ok(());
        }
        let step = self.steps.len();
        for &(storage, _) in inputs.iter().chain(&outputs) {
            self.storages[storage].last_use = step;
        }
        self.steps.push(LooseStep { op, inputs, outputs, scratch });
        Ok(())
    }

    fn storage(&mut self, place: Option<Place>, bytes: usize) -> usize {
        self.storages.push(Storage { place, bytes, last_use: 0 });
        self.storages.len() - 1
    }

    /// The storage of an array: one that was planned, or the memory of an evaluated array.
    fn input(&mut self, array: &Array) -> Result<usize> {
        if let Some(storages) = self.of_node.get(&Arc::as_ptr(&array.node)) {
            return Ok(storages[array.output_index()]);
        }
        let Some(buffer) = array.buffer() else {
            return Err(failed("an array was not found in the recorded graph".into()));
        };
        let known = self.constants.iter().position(|constant| Arc::ptr_eq(constant, buffer));
        let constant = known.unwrap_or_else(|| {
            self.constants.push(buffer.clone());
            self.constants.len() - 1
        });
        Ok(self.storage(Some(Place::Constant(constant)), 0))
    }

    /// Gives memory to results, and to what they are computed from in place.
    fn place_results(&mut self, wanted: &[usize]) -> Vec<Outcome> {
        let mut results: Vec<Outcome> = Vec::new();
        let mut ends = Vec::new();
        for &storage in wanted {
            if self.storages[storage].place.is_none() {
                self.storages[storage].place = Some(Place::Result(results.len()));
                results
                    .push(Outcome { bytes: self.storages[storage].bytes, donors: SmallVec::new() });
                ends.push(storage);
            }
        }
        // The step that writes a storage, and which of its outputs that is.
        let mut writers = HashMap::new();
        for (number, step) in self.steps.iter().enumerate() {
            for (output, &(storage, _)) in step.outputs.iter().enumerate() {
                writers.insert(storage, (number, output));
            }
        }
        for (result, end) in ends.into_iter().enumerate() {
            // All of it: an input may be a view of the beginning of something larger.
            let bytes = results[result].bytes;
            let mut storage = end;
            while let Some(&(number, output)) = writers.get(&storage) {
                let inputs = || donors(&self.storages, number, &self.steps[number], output);
                let argument = |input: usize| match self.storages[input].place {
                    Some(Place::Argument(index)) if !wanted.contains(&input) => Some(index),
                    _ => None,
                };
                let fits = |&index: &usize| self.arguments[index].nbytes() == bytes;
                results[result].donors = inputs().filter_map(argument).filter(fits).collect();
                let made = |&input: &usize| {
                    let Storage { place, bytes: own, .. } = self.storages[input];
                    place.is_none() && own == bytes
                };
                let made = inputs().find(made);
                // Which of the arguments is free is known when they are there.
                match made {
                    Some(input) if results[result].donors.is_empty() => {
                        self.storages[input].place = Some(Place::Result(result));
                        storage = input;
                    }
                    _ => break,
                }
            }
        }
        results
    }

    /// Decides where everything lies.
    fn finish(mut self, outputs: &[Array]) -> Result<Plan> {
        let wanted =
            outputs.iter().map(|output| self.input(output)).collect::<Result<Vec<usize>>>()?;
        let results = self.place_results(&wanted);
        let mut uses = Vec::new();
        let mut slots = Slots::default();
        let mut steps = Vec::with_capacity(self.steps.len());
        for (number, step) in self.steps.into_iter().enumerate() {
            let mut given_away: SmallVec<[usize; 2]> = SmallVec::new();
            for (output, (storage, _)) in step.outputs.iter().enumerate() {
                if self.storages[*storage].place.is_some() {
                    continue;
                }
                // The memory of an input that is not needed any more, where the operation can.
                let slot_of = |input: usize| match self.storages[input].place {
                    Some(Place::Slot(slot)) if !given_away.contains(&input) => Some((input, slot)),
                    _ => None,
                };
                let donated = donors(&self.storages, number, &step, output).find_map(slot_of);
                let slot = match donated {
                    Some((input, slot)) => {
                        given_away.push(input);
                        slot
                    }
                    None => slots.take(self.storages[*storage].bytes),
                };
                self.storages[*storage].place = Some(Place::Slot(slot));
            }
            let scratch = (step.scratch > 0).then(|| slots.take(step.scratch));
            // What is not read after this step; an input may be there twice.
            let mut ended: SmallVec<[usize; 4]> = SmallVec::new();
            for &(storage, _) in step.inputs.iter().chain(&step.outputs) {
                let last = self.storages[storage].last_use == number;
                if last && !given_away.contains(&storage) && !ended.contains(&storage) {
                    ended.push(storage);
                    if let Some(Place::Slot(slot)) = self.storages[storage].place {
                        slots.give_back(slot);
                    }
                }
            }
            scratch.into_iter().for_each(|slot| slots.give_back(slot));
            let placed = |(storage, meta): (usize, Meta)| {
                let place = self.storages[storage].place.ok_or_else(lost)?;
                Ok(Use { place, meta })
            };
            let (inputs, outputs) = (step.inputs.len(), step.outputs.len());
            for used in step.inputs.into_iter().chain(step.outputs) {
                uses.push(placed(used)?);
            }
            steps.push(Step { op: step.op, inputs, outputs, scratch });
        }
        let outputs = (outputs.iter().zip(wanted))
            .map(|(output, storage)| {
                let place = self.storages[storage].place.ok_or_else(lost)?;
                Ok(Use { place, meta: output.meta().clone() })
            })
            .collect::<Result<_>>()?;
        Ok(Plan {
            device: self.device.clone(),
            steps,
            uses,
            outputs,
            constants: self.constants,
            slots: slots.bytes,
            results,
            nodes: self.graph.nodes.len(),
            memory: Mutex::new(None),
        })
    }
}

/// Inputs of a step whose memory one of its outputs may have: they are not read after it.
fn donors<'a>(
    storages: &'a [Storage],
    number: usize,
    step: &'a LooseStep,
    output: usize,
) -> impl Iterator<Item = usize> + 'a {
    step.op.may_alias().iter().filter_map(move |&(i, o)| {
        let (input, meta) = step.inputs.get(i)?;
        let alone = step.inputs.iter().filter(|(other, _)| other == input).count() == 1;
        let fits = o == output && *meta == step.outputs[output].1 && alone;
        (fits && storages[*input].last_use == number).then_some(*input)
    })
}

/// Slots as they are handed out: a free one that is large enough, or one that is made larger.
#[derive(Default)]
struct Slots {
    bytes: Vec<usize>,
    free: Vec<usize>,
}

impl Slots {
    fn take(&mut self, bytes: usize) -> usize {
        let fitting = |&(_, &slot): &(usize, &usize)| self.bytes[slot] >= bytes;
        let free = || self.free.iter().enumerate();
        let smallest = free().filter(fitting).min_by_key(|(_, slot)| self.bytes[**slot]);
        let chosen = smallest.or_else(|| free().max_by_key(|(_, slot)| self.bytes[**slot]));
        match chosen.map(|(position, _)| position) {
            Some(position) => {
                let slot = self.free.swap_remove(position);
                self.bytes[slot] = self.bytes[slot].max(bytes);
                slot
            }
            None => {
                self.bytes.push(bytes);
                self.bytes.len() - 1
            }
        }
    }

    fn give_back(&mut self, slot: usize) {
        self.free.push(slot);
    }
}

fn failed(reason: String) -> Error {
    Error::Transform { transform: "compile", reason }
}

fn lost() -> Error {
    failed("a step of the recorded graph has no memory".into())
}
