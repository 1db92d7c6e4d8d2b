//! The order in which tasks run, chosen so that little is in memory at a time: activations go as
//! soon as a gradient has used them, a tangent is computed beside its value, a gradient is consumed
//! when it is there.
//!
//! The order is found from its end, where what must be in memory is known: what the caller keeps.
//! Of the tasks whose users all come later, the one goes before them that has the most to gain: its
//! outputs need no memory before it ran, while its inputs do. Sources, as random masks or
//! converted weights, so run just before they are used.

use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;

use smallvec::SmallVec;

use super::fusion::Task;
use super::order::Graph;
use crate::array::{Array, Node};

/// Below this many bytes in all the order is left as it is.
const WORTHWHILE: u64 = 1 << 20;

/// The tasks in an order that needs little memory; inputs stay before their users.
pub(crate) fn schedule(graph: &Graph, tasks: Vec<Task>) -> Vec<Task> {
    let bytes = |task: &Task| match &graph.nodes[task.place()] {
        Some(node) => node.outputs.iter().map(|output| output.bytes() as u64).sum(),
        None => 0,
    };
    if tasks.len() < 3 || tasks.iter().map(bytes).sum::<u64>() < WORTHWHILE {
        return tasks;
    }
    let order = Schedule::new(graph, &tasks).run();
    let mut tasks: Vec<Option<Task>> = tasks.into_iter().map(Some).collect();
    order.into_iter().rev().filter_map(|task| tasks[task as usize].take()).collect()
}

/// Memory that tasks write or read.
struct Storage {
    bytes: i64,
    /// Whether it is needed by what comes later.
    live: bool,
    readers: SmallVec<[u32; 2]>,
}

/// A task as the scheduler sees it.
struct Step {
    /// Bytes of new memory; a view has none.
    writes: Option<i64>,
    reads: SmallVec<[u32; 4]>,
    /// Tasks that must run before.
    needs: SmallVec<[u32; 4]>,
    /// The length of the longest path to it. What lies deeper comes later, other things equal.
    level: u32,
    /// Users that have no place yet.
    users: u32,
    /// What placing it next would free, once it can be placed.
    gain: Option<i64>,
}

struct Schedule {
    storages: Vec<Storage>,
    steps: Vec<Step>,
    candidates: BinaryHeap<(i64, u32, u32)>,
}

impl Schedule {
    fn new(graph: &Graph, tasks: &[Task]) -> Schedule {
        let mut schedule = Schedule {
            storages: Vec::new(),
            steps: Vec::with_capacity(tasks.len()),
            candidates: BinaryHeap::new(),
        };
        let evaluated = schedule.add_evaluated(graph);
        // For each place the task that computes it, and the memory of its outputs.
        let mut places: HashMap<usize, (u32, SmallVec<[u32; 1]>)> = HashMap::new();
        for (number, task) in tasks.iter().enumerate() {
            let mut step = Step {
                writes: None,
                reads: SmallVec::new(),
                needs: SmallVec::new(),
                level: 0,
                users: 0,
                gain: None,
            };
            let place = task.place();
            let Some(node) = &graph.nodes[place] else {
                schedule.steps.push(step);
                continue;
            };
            let mut storage_of = |input: &Array| -> Option<u32> {
                if input.node.is_evaluated() {
                    return evaluated.get(&Arc::as_ptr(&input.node)).copied();
                }
                let (task, storages) = places.get(&graph.place_of(input)?)?;
                if !step.needs.contains(task) {
                    step.needs.push(*task);
                }
                storages.get(input.output_index()).copied()
            };
            let mut outputs: SmallVec<[u32; 1]> = SmallVec::new();
            let mut reads: SmallVec<[u32; 4]> = SmallVec::new();
            let mut view = false;
            for_each_input(graph, task, |input| reads.extend(storage_of(input)));
            node.with_work(|work| {
                view = work.op.is_view();
                if view {
                    let viewed = |output| storage_of(&work.inputs[work.op.viewed(output)]);
                    outputs = (0..node.outputs.len()).filter_map(viewed).collect();
                }
            });
            reads.sort_unstable();
            reads.dedup();
            step.reads = reads;
            let kept =
                graph.wanted[place] || Arc::strong_count(node) > graph.uses[place] as usize + 1;
            if view {
                for &storage in outputs.iter().filter(|_| kept) {
                    schedule.storages[storage as usize].live = true;
                }
            } else {
                step.writes = Some(0);
                for output in &node.outputs {
                    outputs.push(schedule.add_storage(output.bytes(), kept));
                    step.writes = step.writes.map(|bytes| bytes + output.bytes() as i64);
                }
            }
            places.insert(place, (number as u32, outputs));
            for &storage in &step.reads {
                schedule.storages[storage as usize].readers.push(number as u32);
            }
            let levels = step.needs.iter().map(|&need| schedule.steps[need as usize].level + 1);
            step.level = levels.max().unwrap_or(0);
            for &need in &step.needs {
                schedule.steps[need as usize].users += 1;
            }
            schedule.steps.push(step);
        }
        schedule
    }

    /// Adds the memory of arrays that are evaluated already: it is freed after its last use here,
    /// if nobody else holds it.
    fn add_evaluated(&mut self, graph: &Graph) -> HashMap<*const Node, u32> {
        let mut uses: HashMap<*const Node, (u32, usize)> = HashMap::new();
        let mut count = |input: &Array| {
            if input.node.is_evaluated() {
                let new = || {
                    let handles = Arc::strong_count(&input.node);
                    (self.add_storage(input.nbytes(), true), handles)
                };
                uses.entry(Arc::as_ptr(&input.node)).or_insert_with(new).1 -= 1;
            }
        };
        for node in graph.nodes.iter().flatten() {
            node.with_work(|work| work.inputs.iter().for_each(&mut count));
        }
        for &(storage, others) in uses.values() {
            self.storages[storage as usize].live = others > 0;
        }
        uses.into_iter().map(|(node, (storage, _))| (node, storage)).collect()
    }

    fn add_storage(&mut self, bytes: usize, live: bool) -> u32 {
        self.storages.push(Storage { bytes: bytes as i64, live, readers: SmallVec::new() });
        self.storages.len() as u32 - 1
    }

    /// The tasks from the last to the first.
    fn run(mut self) -> Vec<u32> {
        for number in 0..self.steps.len() as u32 {
            self.consider(number);
        }
        let mut order = Vec::with_capacity(self.steps.len());
        while let Some((gain, _, number)) = self.candidates.pop() {
            let step = &mut self.steps[number as usize];
            // An outdated entry, of a task that is placed or has come to gain more.
            if step.gain != Some(gain) {
                continue;
            }
            step.gain = None;
            order.push(number);
            for storage in std::mem::take(&mut step.reads) {
                self.need(storage);
            }
            for need in std::mem::take(&mut self.steps[number as usize].needs) {
                self.steps[need as usize].users -= 1;
                self.consider(need);
            }
        }
        order
    }

    /// Makes a task without users a candidate.
    fn consider(&mut self, number: u32) {
        let step = &mut self.steps[number as usize];
        if step.users > 0 {
            return;
        }
        let dead = |&&storage: &&u32| !self.storages[storage as usize].live;
        let cost = |&storage: &u32| self.storages[storage as usize].bytes;
        // Views cost nothing and let the tasks behind them be seen.
        let gain = match step.writes {
            Some(bytes) => bytes - step.reads.iter().filter(dead).map(cost).sum::<i64>(),
            None => i64::MAX,
        };
        step.gain = Some(gain);
        self.candidates.push((gain, step.level, number));
    }

    /// Notes that memory is needed; other candidates that read it need not pay for it any more.
    fn need(&mut self, storage: u32) {
        let storage = &mut self.storages[storage as usize];
        if std::mem::replace(&mut storage.live, true) {
            return;
        }
        for &reader in &storage.readers {
            let step = &mut self.steps[reader as usize];
            if let (Some(gain), Some(_)) = (&mut step.gain, step.writes) {
                *gain += storage.bytes;
                self.candidates.push((*gain, step.level, reader));
            }
        }
    }
}

/// Calls `each` with what a task reads.
fn for_each_input(graph: &Graph, task: &Task, mut each: impl FnMut(&Array)) {
    match task {
        Task::Node(place) => {
            if let Some(node) = &graph.nodes[*place] {
                node.with_work(|work| work.inputs.iter().for_each(each));
            }
        }
        Task::Fused { inputs, .. } => {
            for reference in inputs {
                if let Some(node) = &graph.nodes[reference.member] {
                    node.with_work(|work| each(&work.inputs[reference.input]));
                }
            }
        }
    }
}
