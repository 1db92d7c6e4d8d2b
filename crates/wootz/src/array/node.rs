//! Graph nodes: what an array handle points to.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use smallvec::SmallVec;

use super::{Array, Meta};
use crate::autograd::Marks;
use crate::buffer::Buffer;
use crate::device::Device;
use crate::op::{Metas, OpRef};

/// The buffers of a node's outputs.
pub(crate) type Buffers = SmallVec<[Arc<Buffer>; 1]>;

/// A node of the graph: an operation with its inputs until it is evaluated, its data afterwards.
pub(crate) struct Node {
    pub(crate) device: Device,
    pub(crate) outputs: Metas,
    /// The transforms that may still walk through this node.
    pub(crate) marks: Marks,
    /// Scratch of the evaluator: which evaluation saw this node last, and where it put it.
    pub(crate) mark: AtomicU64,
    work: Mutex<Option<Work>>,
    data: OnceLock<Buffers>,
}

/// How a node's outputs come about.
#[derive(Clone)]
pub(crate) struct Work {
    pub(crate) op: OpRef,
    pub(crate) inputs: SmallVec<[Array; 2]>,
}

impl Node {
    /// A node that waits to be evaluated.
    pub(crate) fn pending(device: Device, outputs: Metas, work: Work) -> Node {
        let marks = Marks::of(&work.inputs);
        Node::marked(device, outputs, work, marks)
    }

    /// As [`pending`](Self::pending), for transforms that its inputs do not tell.
    pub(crate) fn marked(device: Device, outputs: Metas, work: Work, marks: Marks) -> Node {
        Node {
            device,
            outputs,
            marks,
            mark: AtomicU64::new(0),
            work: Mutex::new(Some(work)),
            data: OnceLock::new(),
        }
    }

    /// A node with data and without history.
    pub(crate) fn leaf(device: Device, meta: Meta, buffer: Arc<Buffer>) -> Node {
        Node {
            device,
            outputs: Metas::from_elem(meta, 1),
            marks: Marks::default(),
            mark: AtomicU64::new(0),
            work: Mutex::new(None),
            data: OnceLock::from(Buffers::from_elem(buffer, 1)),
        }
    }

    /// Depends on the argument of a transform that is running.
    pub(crate) fn is_traced(&self) -> bool {
        self.marks.is_traced()
    }

    pub(crate) fn buffers(&self) -> Option<&Buffers> {
        self.data.get()
    }

    pub(crate) fn is_evaluated(&self) -> bool {
        self.data.get().is_some()
    }

    /// Publishes the data. Only the holder of the evaluation lock calls this, so it is set once.
    pub(crate) fn set_buffers(&self, buffers: Buffers) {
        let _already_there = self.data.set(buffers);
    }

    fn lock_work(&self) -> MutexGuard<'_, Option<Work>> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The operation and inputs, if they are still known.
    pub(crate) fn work(&self) -> Option<Work> {
        self.lock_work().clone()
    }

    /// Calls `read` with the operation and inputs, without copying handles.
    pub(crate) fn with_work<T>(&self, read: impl FnOnce(&Work) -> T) -> Option<T> {
        self.lock_work().as_ref().map(read)
    }

    /// Forgets the history, so that what it held can be freed.
    pub(crate) fn take_work(&self) -> Option<Work> {
        self.lock_work().take()
    }

    /// Puts history back after a failed attempt to run.
    pub(crate) fn restore_work(&self, work: Work) {
        *self.lock_work() = Some(work);
    }

    /// The place this node has in the evaluation `epoch`, if it was seen.
    pub(crate) fn place(&self, epoch: u32) -> Option<u32> {
        let mark = self.mark.load(Ordering::Relaxed);
        (mark >> 32 == epoch as u64).then_some(mark as u32)
    }

    /// Remembers the place of this node in the evaluation `epoch`.
    pub(crate) fn set_place(&self, epoch: u32, place: u32) {
        self.mark.store((epoch as u64) << 32 | place as u64, Ordering::Relaxed);
    }
}

impl Drop for Node {
    /// Frees long chains of nodes in a loop: the default would recurse once per node.
    fn drop(&mut self) {
        let work = self.work.get_mut().unwrap_or_else(PoisonError::into_inner);
        let Some(work) = work.take() else { return };
        let mut pending: Vec<Array> = work.inputs.into_iter().collect();
        while let Some(array) = pending.pop() {
            if let Some(mut node) = Arc::into_inner(array.node) {
                let work = node.work.get_mut().unwrap_or_else(PoisonError::into_inner);
                if let Some(work) = work.take() {
                    pending.extend(work.inputs);
                }
            }
        }
    }
}
