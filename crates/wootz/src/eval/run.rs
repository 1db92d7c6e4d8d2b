//! Runs the tasks of an evaluation: memory for outputs, donation of memory nobody else needs,
//! views without copying, moves between devices.

use std::sync::{Arc, MutexGuard};

use smallvec::SmallVec;

use super::Evaluation;
use super::fusion::{InputRef, Task};
use super::order::Graph;
use super::program::{Fused, Program};
use crate::array::{Array, Buffers, Meta, Node, Work};
use crate::buffer::Buffer;
use crate::device::Device;
use crate::encoder::{Encoder, Operand};
use crate::error::{Error, Result};
use crate::op::Op;

/// Runs everything. What ran before an error stays computed; the rest stays pending.
pub(crate) fn run(
    evaluation: &MutexGuard<'_, Evaluation>,
    graph: Graph,
    tasks: Vec<Task>,
) -> Result<()> {
    let mut runner = Runner { evaluation, graph, encoders: SmallVec::new() };
    let result = tasks.into_iter().try_for_each(|task| runner.run(task));
    // Work recorded before the error is valid and its arrays count as evaluated: submit it.
    let submitted = runner.submit();
    result.and(submitted)
}

struct Runner<'a, 'b> {
    evaluation: &'a MutexGuard<'b, Evaluation>,
    graph: Graph,
    /// One open encoder per device that takes part.
    encoders: SmallVec<[(Device, Encoder); 2]>,
}

impl Runner<'_, '_> {
    fn run(&mut self, task: Task) -> Result<()> {
        match task {
            Task::Node(place) => {
                let Some(node) = self.graph.nodes[place].take() else { return Ok(()) };
                self.run_node(&node)
            }
            Task::Fused { members, outputs, program, inputs } => {
                self.run_fused(&members, outputs, program, &inputs)
            }
        }
    }

    /// Runs a node by itself.
    fn run_node(&mut self, node: &Arc<Node>) -> Result<()> {
        let Some(work) = node.work() else { return Ok(()) };
        if work.op.is_view() {
            let buffer = |output| work.inputs[work.op.viewed(output)].buffer().cloned();
            if let Some(buffers) = (0..node.outputs.len()).map(buffer).collect() {
                node.set_buffers(buffers);
            }
            drop(work);
            forget(node);
            return Ok(());
        }
        if work.op.is_transfer() {
            node.set_buffers(Buffers::from_elem(self.transfer(&work.inputs[0], &node.device)?, 1));
            drop(work);
            forget(node);
            return Ok(());
        }
        // Asked once: the transform may end meanwhile, on another thread.
        let retained = retains(node);
        let work = if retained { work } else { node.take_work().unwrap_or(work) };
        let op = work.op.clone();
        let inputs: SmallVec<[&Array; 4]> = work.inputs.iter().collect();
        let handles = |array: &Array| {
            let same = |other: &&&Array| Arc::ptr_eq(&other.node, &array.node);
            inputs.iter().filter(same).count() + usize::from(retained)
        };
        let metas: SmallVec<[&Meta; 2]> = node.outputs.iter().collect();
        match self.execute(&node.device, &metas, &*op, &inputs, !retained, handles) {
            Ok(buffers) => {
                node.set_buffers(buffers);
                drop(inputs);
                Ok(())
            }
            Err(error) => {
                drop(inputs);
                node.restore_work(work);
                Err(error)
            }
        }
    }

    /// Runs an elementwise program; the first `outputs` members are the nodes of its results.
    fn run_fused(
        &mut self,
        members: &[usize],
        outputs: usize,
        program: Program,
        inputs: &[InputRef],
    ) -> Result<()> {
        // A constant may be gone: evaluated by itself, for somebody who needed it in memory.
        let nodes: Vec<Option<Arc<Node>>> =
            members.iter().map(|&place| self.graph.nodes[place].clone()).collect();
        let results: SmallVec<[&Arc<Node>; 2]> = nodes[..outputs].iter().flatten().collect();
        let Some(root) = results.first().filter(|_| results.len() == outputs) else {
            return Ok(());
        };
        let metas: SmallVec<[&Meta; 2]> = results.iter().map(|node| &node.outputs[0]).collect();
        let retained = nodes.iter().flatten().any(|node| retains(node));
        let works: Vec<Option<Work>> =
            nodes.iter().map(|node| node.as_ref().and_then(|node| node.work())).collect();
        let position = |place| members.iter().position(|&member| member == place);
        let arrays: SmallVec<[&Array; 4]> = inputs
            .iter()
            .filter_map(|reference| works[position(reference.member)?].as_ref())
            .zip(inputs)
            .map(|(work, reference)| &work.inputs[reference.input])
            .collect();
        // Handles to an input that go away with this run: each appears in a node's work and in our copy.
        let handles = |array: &Array| {
            let same = |other: &&Array| Arc::ptr_eq(&other.node, &array.node);
            2 * works.iter().flatten().flat_map(|work| &work.inputs).filter(same).count()
        };
        let op = Fused::new(program, metas[0].shape());
        let buffers = self.execute(&root.device, &metas, &op, &arrays, !retained, handles)?;
        for (node, buffer) in results.iter().zip(buffers) {
            node.set_buffers(Buffers::from_elem(buffer, 1));
        }
        // Let go of the members, so that their inputs can be freed or donated. Constants may
        // serve several runs.
        for (index, (&place, work)) in members.iter().zip(&works).enumerate() {
            if index < outputs || work.as_ref().is_some_and(|work| !work.inputs.is_empty()) {
                self.graph.nodes[place] = None;
            }
        }
        drop(arrays);
        drop(works);
        results.iter().for_each(|node| forget(node));
        Ok(())
    }

    /// Gives an operation memory for outputs of these kinds and records it. `handles` tells how many
    /// of an input's handles end with this operation; an input without others may give its memory
    /// away.
    fn execute(
        &mut self,
        device: &Device,
        metas: &[&Meta],
        op: &dyn Op,
        inputs: &[&Array],
        may_donate: bool,
        handles: impl Fn(&Array) -> usize,
    ) -> Result<Buffers> {
        let operands = (inputs.iter().enumerate())
            .map(|(index, input)| Operand::of(op, index, input))
            .collect::<Result<SmallVec<[Operand<'_>; 4]>>>()?;
        let mut buffers: SmallVec<[Option<Arc<Buffer>>; 2]> = metas.iter().map(|_| None).collect();
        if may_donate {
            for &(i, o) in op.may_alias() {
                let (Some(operand), Some(meta)) = (operands.get(i), metas.get(o)) else { continue };
                let free = buffers[o].is_none()
                    && operand.meta == *meta
                    && !retains(&inputs[i].node)
                    && !operand.buffer.is_read_only()
                    && inputs.iter().filter(|other| other.is_same(inputs[i])).count() == 1
                    && Arc::strong_count(&inputs[i].node) == handles(inputs[i])
                    && Arc::strong_count(operand.buffer) == 1;
                if free {
                    buffers[o] = Some(operand.buffer.clone());
                }
            }
        }
        let buffers = (buffers.into_iter().zip(metas))
            .map(|(donated, meta)| donated.map_or_else(|| Buffer::alloc(device, meta.bytes()), Ok))
            .collect::<Result<Buffers>>()?;
        let outputs: SmallVec<[Operand<'_>; 2]> =
            metas.iter().zip(&buffers).map(|(meta, buffer)| Operand { meta, buffer }).collect();
        // Nothing to compute, and kernels need not know about empty arrays.
        if outputs.iter().any(|output| output.meta.size() > 0) {
            let metas: SmallVec<[&Meta; 4]> = operands.iter().map(|o| o.meta).collect();
            let scratch = op.scratch(&metas, device.is_gpu());
            let scratch = (scratch > 0).then(|| Buffer::alloc(device, scratch)).transpose()?;
            let evaluation = self.evaluation;
            let encoder = self.encoder(device)?;
            encoder.record(evaluation, op, &operands, &outputs, scratch.as_ref())?;
            self.submit_if_long()?;
        }
        drop(outputs);
        Ok(buffers)
    }

    fn encoder(&mut self, device: &Device) -> Result<&mut Encoder> {
        let position = match self.encoders.iter().position(|(open, _)| open == device) {
            Some(position) => position,
            None => {
                self.encoders.push((device.clone(), Encoder::new(device)?));
                self.encoders.len() - 1
            }
        };
        Ok(&mut self.encoders[position].1)
    }

    /// The bytes of an evaluated array in memory of another device.
    fn transfer(&mut self, array: &Array, device: &Device) -> Result<Arc<Buffer>> {
        if array.device() == device {
            return array.buffer().cloned().ok_or_else(not_evaluated);
        }
        self.submit()?;
        Buffer::from_bytes(device, &read_bytes(array)?)
    }

    fn submit(&mut self) -> Result<()> {
        for (_, encoder) in self.encoders.drain(..) {
            encoder.submit()?;
        }
        Ok(())
    }

    fn submit_if_long(&mut self) -> Result<()> {
        match self.encoders.iter().any(|(_, encoder)| encoder.is_long()) {
            true => self.submit(),
            false => Ok(()),
        }
    }
}

/// Whether a node keeps its history after it ran, for a transform that will walk it.
fn retains(node: &Node) -> bool {
    node.is_traced()
}

/// Drops the history of an evaluated node, unless a transform needs it.
fn forget(node: &Node) {
    if !retains(node) {
        drop(node.take_work());
    }
}

fn not_evaluated() -> Error {
    Error::argument("eval", "array", "an evaluated array", "one that is still lazy")
}

/// The bytes of an evaluated row-major array, if the work that wrote them went well.
pub(crate) fn read_bytes(array: &Array) -> Result<Vec<u8>> {
    let bytes = read_memory(array)?;
    // On a GPU the submission's status came along; asking for it does not wait again.
    finish(array)?;
    Ok(bytes)
}

/// The bytes of an evaluated row-major array, whatever became of the work that writes them.
pub(crate) fn read_memory(array: &Array) -> Result<Vec<u8>> {
    let meta = array.meta();
    let start = meta.layout.offset * meta.dtype.size();
    let buffer = array.buffer().ok_or_else(not_evaluated)?;
    match &**buffer {
        Buffer::Cpu(_) | Buffer::Mapped(_) => {
            let memory = buffer.read().ok_or_else(not_evaluated)?;
            Ok(memory.bytes()[start..start + meta.bytes()].to_vec())
        }
        #[cfg(feature = "gpu")]
        Buffer::Gpu(memory) => {
            let gpu = array.device().as_gpu().ok_or_else(not_evaluated)?;
            gpu.download(&memory.buffer, start as u64, meta.bytes() as u64)
        }
    }
}

/// Waits for an array that was submitted.
pub(crate) fn finish(array: &Array) -> Result<()> {
    #[cfg(feature = "gpu")]
    if let Some(memory) = array.buffer().and_then(|buffer| buffer.gpu()) {
        return memory.finish();
    }
    let _ = array;
    Ok(())
}
