//! The order in which tasks run, chosen so that little is in memory at a time: activations go as
//! soon as a gradient has used them, a tangent is computed beside its value, a gradient is consumed
//! when it is there.
//!
//! Orders are made from their end, where what must be in memory is known: what the caller keeps.
//! Of the tasks whose users all come later, one goes before them: one that needs less memory before
//! it ran than after, if there is any, so that sources, as random masks or converted weights, run
//! just before they are used. Which of the others is best nobody knows quickly; there are several
//! [policies](Policy), and the order with the lowest peak is taken.

use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;

use smallvec::SmallVec;

use super::fusion::Task;
use super::order::Graph;
use crate::array::{Array, Node};

/// Below this many bytes in all the order is left as it is.
const WORTHWHILE: u64 = 1 << 20;

/// The tasks in an order that needs little memory; inputs stay before their users.
///
/// In memory that is `laid_out` what comes from the caller and what goes to it has its place from the
/// beginning to the end, and only what lies between counts.
pub(crate) fn schedule(graph: &Graph, tasks: Vec<Task>, laid_out: bool) -> Vec<Task> {
    let bytes = |task: &Task| -> u64 {
        let nodes = task.places().iter().filter_map(|&place| graph.nodes[place].as_ref());
        nodes.flat_map(|node| &node.outputs).map(|output| output.bytes() as u64).sum()
    };
    if tasks.len() < 3 || tasks.iter().map(bytes).sum::<u64>() < WORTHWHILE {
        return tasks;
    }
    let schedule = Schedule::new(graph, &tasks, laid_out);
    let orders = Policy::ALL.map(|policy| schedule.order(policy));
    let Some(best) = orders.into_iter().min_by_key(|order| order.peak) else { return tasks };
    let mut tasks: Vec<Option<Task>> = tasks.into_iter().map(Some).collect();
    best.reversed.into_iter().rev().filter_map(|task| tasks[task as usize].take()).collect()
}

/// Which task comes next, from the end, of those that need more memory before they ran than after.
#[derive(Clone, Copy, PartialEq)]
enum Policy {
    /// The order that the caller's arrays were found in.
    Found,
    /// The one with the longest path to it: parts that belong together advance together.
    Deepest,
    /// The one that became possible last: a part is finished before another one begins.
    Newest,
    /// The one that needs the least.
    Cheapest,
}

impl Policy {
    // Of equal peaks the first is taken.
    const ALL: [Policy; 4] = [Policy::Found, Policy::Deepest, Policy::Newest, Policy::Cheapest];
}

/// Memory that tasks write or read.
struct Storage {
    bytes: i64,
    /// Whether it is needed at the end.
    kept: bool,
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
    /// Tasks that need it.
    users: u32,
}

struct Schedule {
    storages: Vec<Storage>,
    steps: Vec<Step>,
}

/// An order of tasks from the last to the first, and the bytes it takes at most.
struct Order {
    reversed: Vec<u32>,
    peak: i64,
}

impl Schedule {
    fn new(graph: &Graph, tasks: &[Task], laid_out: bool) -> Schedule {
        let mut schedule =
            Schedule { storages: Vec::new(), steps: Vec::with_capacity(tasks.len()) };
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
            };
            let mut writes = None;
            let mut made: SmallVec<[_; 2]> = SmallVec::new();
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
            let mut reads: SmallVec<[u32; 4]> = SmallVec::new();
            for_each_input(graph, task, |input| reads.extend(storage_of(input)));
            reads.sort_unstable();
            reads.dedup();
            for &place in task.places() {
                let Some(node) = &graph.nodes[place] else { continue };
                let mut outputs: SmallVec<[u32; 1]> = SmallVec::new();
                let mut view = false;
                node.with_work(|work| {
                    view = work.op.is_view();
                    if view {
                        let viewed = |output| storage_of(&work.inputs[work.op.viewed(output)]);
                        outputs = (0..node.outputs.len()).filter_map(viewed).collect();
                    }
                });
                let kept =
                    graph.wanted[place] || Arc::strong_count(node) > graph.uses[place] as usize + 1;
                if view {
                    for &storage in outputs.iter().filter(|_| kept) {
                        schedule.storages[storage as usize].kept = true;
                    }
                } else {
                    for output in &node.outputs {
                        let bytes = if laid_out && kept { 0 } else { output.bytes() };
                        outputs.push(schedule.add_storage(bytes, kept));
                        writes = Some(writes.unwrap_or(0) + bytes as i64);
                    }
                }
                made.push((place, (number as u32, outputs)));
            }
            places.extend(made);
            (step.reads, step.writes) = (reads, writes);
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
            self.storages[storage as usize].kept = others > 0;
        }
        uses.into_iter().map(|(node, (storage, _))| (node, storage)).collect()
    }

    fn add_storage(&mut self, bytes: usize, kept: bool) -> u32 {
        self.storages.push(Storage { bytes: bytes as i64, kept, readers: SmallVec::new() });
        self.storages.len() as u32 - 1
    }

    /// The order that a policy makes.
    fn order(&self, policy: Policy) -> Order {
        let mut making = Making {
            schedule: self,
            policy,
            live: self.storages.iter().map(|storage| storage.kept).collect(),
            users: self.steps.iter().map(|step| step.users).collect(),
            gains: vec![None; self.steps.len()],
            candidates: BinaryHeap::new(),
            considered: 0,
        };
        let kept = self.storages.iter().filter(|storage| storage.kept);
        let mut bytes: i64 = kept.map(|storage| storage.bytes).sum();
        let mut order = Order { reversed: Vec::with_capacity(self.steps.len()), peak: bytes };
        let mut place = |making: &mut Making<'_>, number: u32| {
            // While a task runs both its outputs and its inputs are there.
            let step = &self.steps[number as usize];
            bytes += step.reads.iter().map(|&storage| making.need(storage)).sum::<i64>();
            order.peak = order.peak.max(bytes);
            bytes -= step.writes.unwrap_or(0);
            order.reversed.push(number);
        };
        if policy == Policy::Found {
            (0..self.steps.len() as u32).rev().for_each(|number| place(&mut making, number));
            return order;
        }
        for number in 0..self.steps.len() as u32 {
            making.consider(number);
        }
        while let Some(Candidate { number, gain, .. }) = making.candidates.pop() {
            // An outdated entry, of a task that is placed or has come to gain more.
            if making.gains[number as usize] != Some(gain) {
                continue;
            }
            making.gains[number as usize] = None;
            place(&mut making, number);
            for &need in &self.steps[number as usize].needs {
                making.users[need as usize] -= 1;
                making.consider(need);
            }
        }
        order
    }
}

/// A task that can be placed, by how good that is.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    /// Whether it frees as much as it needs; then the more the better.
    free: bool,
    merit: i64,
    level: u32,
    number: u32,
    gain: i64,
}

/// An order in the making.
struct Making<'a> {
    schedule: &'a Schedule,
    policy: Policy,
    /// Whether memory is needed by what is placed.
    live: Vec<bool>,
    /// Users that have no place yet.
    users: Vec<u32>,
    /// What placing a candidate next would free.
    gains: Vec<Option<i64>>,
    candidates: BinaryHeap<Candidate>,
    /// How many candidates there were so far.
    considered: i64,
}

impl Making<'_> {
    /// Makes a task without users a candidate.
    fn consider(&mut self, number: u32) {
        if self.users[number as usize] > 0 {
            return;
        }
        let step = &self.schedule.steps[number as usize];
        let dead = |&&storage: &&u32| !self.live[storage as usize];
        let cost = |&storage: &u32| self.schedule.storages[storage as usize].bytes;
        // Views cost nothing and let the tasks behind them be seen.
        let gain = match step.writes {
            Some(bytes) => bytes - step.reads.iter().filter(dead).map(cost).sum::<i64>(),
            None => i64::MAX,
        };
        self.considered += 1;
        self.push(number, gain);
    }

    fn push(&mut self, number: u32, gain: i64) {
        let level = self.schedule.steps[number as usize].level;
        let merit = match self.policy {
            _ if gain >= 0 => gain,
            Policy::Deepest => level as i64,
            Policy::Newest => self.considered,
            Policy::Cheapest | Policy::Found => gain,
        };
        self.gains[number as usize] = Some(gain);
        self.candidates.push(Candidate { free: gain >= 0, merit, level, number, gain });
    }

    /// Notes that memory is needed, and tells how much that is. Other candidates that read it need
    /// not pay for it any more.
    fn need(&mut self, number: u32) -> i64 {
        if std::mem::replace(&mut self.live[number as usize], true) {
            return 0;
        }
        let storage = &self.schedule.storages[number as usize];
        for &reader in &storage.readers {
            if let (Some(gain), Some(_)) =
                (self.gains[reader as usize], self.schedule.steps[reader as usize].writes)
            {
                self.push(reader, gain + storage.bytes);
            }
        }
        storage.bytes
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
