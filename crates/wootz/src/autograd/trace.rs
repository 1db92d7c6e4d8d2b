//! Which transforms are running, and which of them look at an array.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use smallvec::SmallVec;

use crate::array::Array;

/// A running transform. What depends on its arguments carries its mark: while it runs, such nodes
/// keep the history that it may still walk when they are evaluated. Afterwards the mark means nothing.
pub(crate) struct Trace(Arc<Mark>);

struct Mark {
    running: AtomicBool,
    /// The transform, if its arguments have no values.
    recording: Option<&'static str>,
}

impl Trace {
    /// Of a transform whose arguments have values.
    pub(crate) fn start() -> Trace {
        Trace::with(None)
    }

    /// Of a transform that shows placeholders to the function.
    pub(crate) fn recording(transform: &'static str) -> Trace {
        Trace::with(Some(transform))
    }

    fn with(recording: Option<&'static str>) -> Trace {
        Trace(Arc::new(Mark { running: AtomicBool::new(true), recording }))
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        self.0.running.store(false, Ordering::Relaxed);
    }
}

/// The transforms whose arguments a node depends on.
#[derive(Clone, Default)]
pub(crate) struct Marks(SmallVec<[Arc<Mark>; 1]>);

impl Marks {
    /// Those of a node with these inputs. Transforms of several threads end in any order, so each
    /// that is running counts.
    pub(crate) fn of(inputs: &[Array]) -> Marks {
        let mut marks = Marks::default();
        for input in inputs {
            input.node.marks.running().for_each(|mark| marks.add(mark));
        }
        marks
    }

    /// These and that of a transform.
    pub(crate) fn and(mut self, trace: &Trace) -> Marks {
        self.add(&trace.0);
        self
    }

    fn add(&mut self, mark: &Arc<Mark>) {
        if !self.0.iter().any(|known| Arc::ptr_eq(known, mark)) {
            self.0.push(mark.clone());
        }
    }

    fn running(&self) -> impl Iterator<Item = &Arc<Mark>> {
        self.0.iter().filter(|mark| mark.running.load(Ordering::Relaxed))
    }

    /// Whether a transform is running that looks at the node.
    pub(crate) fn is_traced(&self) -> bool {
        self.running().next().is_some()
    }

    /// A transform that runs without values, and looks at this and not at the other.
    pub(crate) fn recorded_beside(&self, other: &Marks) -> Option<&'static str> {
        let known = |mark: &Arc<Mark>| other.0.iter().any(|known| Arc::ptr_eq(known, mark));
        self.running().filter(|mark| !known(mark)).find_map(|mark| mark.recording)
    }
}
