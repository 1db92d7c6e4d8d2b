//! Models of the thread team.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::thread;

use crate::Model;
use crate::cpu::threads::{dismiss, for_each, set_threads};

pub(crate) const MODELS: &[Model] = &[
    ("every task runs once, and the caller sees what it wrote", Some(3), two_jobs),
    ("two workers share a job", Some(1), three_members),
    ("a worker that is about to park is woken", Some(4), wake),
    ("two callers at once do not mix their tasks", Some(2), two_callers),
    ("a call inside a task runs on its thread", Some(3), nested),
    ("a panic reaches the caller, and the team goes on", Some(3), panics),
];

/// Memory that tasks write without any synchronization of its own: loom finds two accesses that
/// the team does not order.
struct Cells(Vec<UnsafeCell<usize>>);

// SAFETY: that no two threads access a cell at once is what models check.
unsafe impl Sync for Cells {}
// SAFETY: as above.
unsafe impl Send for Cells {}

impl Cells {
    fn new(count: usize) -> Cells {
        Cells((0..count).map(|_| UnsafeCell::new(0)).collect())
    }

    fn add(&self, index: usize, value: usize) {
        // SAFETY: loom ends the run if another thread accesses the cell meanwhile.
        self.0[index].with_mut(|cell| unsafe { *cell += value });
    }

    fn values(&self) -> Vec<usize> {
        // SAFETY: as above.
        self.0.iter().map(|cell| cell.with(|cell| unsafe { *cell })).collect()
    }
}

/// Runs a job in which each task adds to its own cell.
fn job(cells: &Cells, value: usize) {
    for_each(cells.0.len(), |task| cells.add(task, value));
}

fn two_jobs() {
    set_threads(2);
    let cells = Cells::new(2);
    job(&cells, 1);
    assert_eq!(cells.values(), [1, 1]);
    job(&cells, 10);
    assert_eq!(cells.values(), [11, 11]);
    dismiss();
}

fn three_members() {
    set_threads(3);
    let cells = Cells::new(3);
    job(&cells, 1);
    assert_eq!(cells.values(), [1; 3]);
    dismiss();
}

/// To dismiss a worker is to wake it and to wait for it: a wake-up that is lost is a deadlock.
fn wake() {
    set_threads(2);
    job(&Cells::new(2), 1);
    dismiss();
}

fn two_callers() {
    set_threads(2);
    let other = thread::spawn(|| {
        let cells = Cells::new(2);
        job(&cells, 2);
        assert_eq!(cells.values(), [2, 2]);
    });
    let cells = Cells::new(2);
    job(&cells, 1);
    assert_eq!(cells.values(), [1, 1]);
    assert!(other.join().is_ok());
    dismiss();
}

fn nested() {
    set_threads(2);
    let cells = Arc::new(Cells::new(4));
    for_each(2, |outer| for_each(2, |inner| cells.add(2 * outer + inner, 1)));
    assert_eq!(cells.values(), [1; 4]);
    dismiss();
}

fn panics() {
    set_threads(2);
    // Not `panic!`, which would print in every run.
    let failing = || for_each(2, |task| resume_unwind(Box::new(task)));
    let payload = catch_unwind(AssertUnwindSafe(failing)).err();
    assert!(payload.is_some_and(|payload| payload.downcast_ref::<usize>().is_some_and(|&t| t < 2)));
    let cells = Cells::new(2);
    job(&cells, 1);
    assert_eq!(cells.values(), [1, 1]);
    dismiss();
}
