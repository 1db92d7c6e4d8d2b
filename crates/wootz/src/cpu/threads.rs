//! The process-wide thread team. The caller of [`for_each`] is a member; workers spin for some
//! tens of microseconds after their last job and then park, because decoding one token hands work
//! over hundreds of times.
//!
//! A job never waits for a worker that has not yet joined it: one that is slow to wake finds the
//! job closed and goes on waiting. So a hand-off never costs the caller a thread's wake-up time.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{PoisonError, TryLockError};
use std::time::Duration;

use super::sync::{
    Arc, AtomicBool, AtomicU64, AtomicUsize, Idle, Mutex, MutexGuard, Ordering, UnsafeCell, fence,
    global, thread,
};

use smallvec::SmallVec;

/// Sets how many threads CPU kernels use, the calling thread included. Zero counts as one.
///
/// Results do not depend on this number: the same input gives the same bits with any.
///
/// ```
/// wootz::set_threads(2);
/// assert_eq!(wootz::threads(), 2);
/// ```
pub fn set_threads(n: usize) {
    MEMBERS.store(n.clamp(1, MOST_MEMBERS), Ordering::Relaxed);
}

/// The number of threads CPU kernels use, the calling thread included. Unless
/// [`set_threads`] said otherwise it is the parallelism the system offers this process.
///
/// ```
/// assert!(wootz::threads() >= 1);
/// ```
pub fn threads() -> usize {
    match MEMBERS.load(Ordering::Relaxed) {
        0 => {
            let offered = std::thread::available_parallelism().map_or(1, |n| n.get());
            let offered = offered.min(MOST_MEMBERS);
            // Another thread may have called `set_threads` meanwhile; its number stays.
            match MEMBERS.compare_exchange(0, offered, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => offered,
                Err(set) => set,
            }
        }
        n => n,
    }
}

/// Runs `f(0)`, …, `f(tasks - 1)` on the team and returns when all have finished. Tasks are handed
/// out in order, one at a time. While the team is busy (a nested or a concurrent call) they run on
/// the calling thread.
///
/// A panic in a task reaches the caller after the other tasks have finished.
pub(crate) fn for_each(tasks: usize, f: impl Fn(usize) + Sync) {
    let members = threads().min(tasks);
    if members <= 1 {
        return (0..tasks).for_each(f);
    }
    let panic = match TEAM.try_workers() {
        Some(mut workers) => TEAM.run(&mut workers, members, tasks, &f),
        None => return (0..tasks).for_each(f),
    };
    // Only now, so that the lock on the workers is not poisoned.
    if let Some(payload) = panic {
        resume_unwind(payload);
    }
}

/// Cuts `data` into chunks of `chunk` elements (the last may be shorter) and runs
/// `f(index, chunk)` for each on the team. A `chunk` of zero counts as one.
pub(crate) fn chunks_mut<T: Send>(
    data: &mut [T],
    chunk: usize,
    f: impl Fn(usize, &mut [T]) + Sync,
) {
    let cut = Cut::new(data, chunk);
    for_each(cut.count(), |i| {
        // SAFETY: `for_each` hands out each index once, so no chunk is borrowed twice.
        f(i, unsafe { cut.chunk(i) });
    });
}

/// As [`chunks_mut`], for two slices cut side by side. Chunks that only one of them has are not
/// visited, so both must give the same number of chunks.
pub(crate) fn chunks2_mut<A: Send, B: Send>(
    a: &mut [A],
    chunk_a: usize,
    b: &mut [B],
    chunk_b: usize,
    f: impl Fn(usize, &mut [A], &mut [B]) + Sync,
) {
    let (a, b) = (Cut::new(a, chunk_a), Cut::new(b, chunk_b));
    debug_assert_eq!(a.count(), b.count(), "both slices have the same number of chunks");
    for_each(a.count().min(b.count()), |i| {
        // SAFETY: `for_each` hands out each index once, so no chunk is borrowed twice.
        let (a, b) = unsafe { (a.chunk(i), b.chunk(i)) };
        f(i, a, b);
    });
}

/// As [`chunks_mut`], for any number of slices, each with the length of its chunks. All must give
/// the same number of chunks.
pub(crate) fn chunks_all_mut<'a, T: Send + 'a>(
    slices: impl Iterator<Item = (&'a mut [T], usize)>,
    f: impl Fn(usize, &mut [&mut [T]]) + Sync,
) {
    let mut cuts: SmallVec<[Cut<T>; 2]> = SmallVec::new();
    for (data, chunk) in slices {
        cuts.push(Cut::new(data, chunk));
    }
    let count = cuts.iter().map(Cut::count).min().unwrap_or(0);
    debug_assert!(cuts.iter().all(|cut| cut.count() == count), "slices of as many chunks");
    for_each(count, |i| {
        let mut chunks: SmallVec<[&mut [T]; 2]> = SmallVec::new();
        for cut in &cuts {
            // SAFETY: `for_each` hands out each index once, so no chunk is borrowed twice.
            chunks.push(unsafe { cut.chunk(i) });
        }
        f(i, &mut chunks);
    });
}

/// A mutable slice to be given out in disjoint chunks.
struct Cut<T> {
    data: *mut T,
    len: usize,
    chunk: usize,
}

// SAFETY: chunks are disjoint `&mut [T]`, which may move to another thread when `T: Send`.
unsafe impl<T: Send> Sync for Cut<T> {}

impl<T> Cut<T> {
    fn new(data: &mut [T], chunk: usize) -> Self {
        Cut { data: data.as_mut_ptr(), len: data.len(), chunk: chunk.max(1) }
    }

    fn count(&self) -> usize {
        self.len.div_ceil(self.chunk)
    }

    /// # Safety
    /// `index` is below `count`, the slice is still borrowed, and this chunk is not given out
    /// elsewhere.
    #[expect(clippy::mut_from_ref, reason = "the caller guarantees that chunks are disjoint")]
    unsafe fn chunk(&self, index: usize) -> &mut [T] {
        let start = index * self.chunk;
        // SAFETY: `start < len` because `index < count`, and the chunk ends at or before `len`.
        unsafe {
            let len = self.chunk.min(self.len - start);
            std::slice::from_raw_parts_mut(self.data.add(start), len)
        }
    }
}

/// How long an idle worker spins before it parks.
const SPIN: Duration = Duration::from_micros(60);
/// How long the caller spins for the last tasks before it offers its core to others.
const SPIN_AT_END: Duration = Duration::from_micros(200);
/// The number of workers inside a job lives in ten bits of the team's state.
const MOST_MEMBERS: usize = 1 << 10;

/// Zero until it is first asked for or set. A setting, on which no order depends.
static MEMBERS: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);

global! {
    static TEAM: Team = Team {
        state: Line(AtomicU64::new(0)),
        next: Line(AtomicUsize::new(0)),
        job: UnsafeCell::new(Job { task: None, tasks: 0, members: 0 }),
        panic: Mutex::new(None),
        workers: Mutex::new(Vec::new()),
    };
}

// The state word: workers inside the job, whether the job is open to join, and its number.
const INSIDE: u64 = (MOST_MEMBERS as u64) - 1;
const OPEN: u64 = MOST_MEMBERS as u64;
const NUMBER: u64 = OPEN << 1;

/// What a task panicked with.
type Panic = Box<dyn Any + Send>;

struct Team {
    state: Line<AtomicU64>,
    /// The next task to hand out.
    next: Line<AtomicUsize>,
    /// Written by the holder of `workers` while the job is closed and nobody is inside; read by
    /// workers that are inside.
    job: UnsafeCell<Job>,
    /// The first panic of a task.
    panic: Mutex<Option<Panic>>,
    /// Locked for the whole of a job: its owner is the caller in charge of the team.
    workers: Mutex<Vec<Worker>>,
}

// SAFETY: `job` is the only part that is not `Sync` by itself, and the protocol written at the
// field orders its writes before the `OPEN` store and its reads after a successful join.
unsafe impl Sync for Team {}

#[derive(Clone, Copy)]
struct Job {
    task: Option<*const (dyn Fn(usize) + Sync)>,
    tasks: usize,
    /// The caller among them; none in the job that ends the team.
    members: usize,
}

struct Worker {
    handle: thread::JoinHandle<()>,
    parked: Arc<AtomicBool>,
}

/// Keeps words that different threads write apart from each other.
#[repr(align(128))]
struct Line<T>(T);

impl Team {
    fn try_workers(&self) -> Option<MutexGuard<'_, Vec<Worker>>> {
        match self.workers.try_lock() {
            Ok(workers) => Some(workers),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Runs a job, and tells what one of its tasks panicked with.
    fn run(
        &'static self,
        workers: &mut Vec<Worker>,
        members: usize,
        tasks: usize,
        f: &(dyn Fn(usize) + Sync),
    ) -> Option<Panic> {
        self.hire(workers, members - 1);
        // SAFETY: only the lifetime changes. Workers use the pointer between joining and leaving,
        // and this function does not return before the job is closed and nobody is inside.
        let task: &'static (dyn Fn(usize) + Sync) = unsafe { std::mem::transmute(f) };
        let job = Job { task: Some(task), tasks, members };
        self.open(job, &workers[..workers.len().min(members - 1)]);
        self.work(task, tasks);
        self.state.0.fetch_and(!OPEN, Ordering::AcqRel);
        let mut idle = Idle::new();
        while self.state.0.load(Ordering::Acquire) & INSIDE != 0 {
            if idle.spun(SPIN_AT_END) {
                thread::yield_now();
            }
        }
        self.panic.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Opens a job to be joined, and wakes these workers. The caller owns the lock on `workers`.
    fn open(&self, job: Job, sleepers: &[Worker]) {
        // SAFETY: the last job was closed and left by all, and we hold the lock on `workers`.
        self.job.with_mut(|place| unsafe { *place = job });
        self.next.0.store(0, Ordering::Relaxed);
        let number = number_of(self.state.0.load(Ordering::Relaxed)).wrapping_add(NUMBER);
        self.state.0.store(number | OPEN, Ordering::Release);
        // Pairs with the fence of a worker about to park: one of the two sees the other's store.
        fence(Ordering::SeqCst);
        for worker in sleepers {
            let parked = &worker.parked;
            if parked.load(Ordering::Relaxed) && parked.swap(false, Ordering::Relaxed) {
                worker.handle.thread().unpark();
            }
        }
    }

    /// Takes tasks until none are left.
    fn work(&self, task: &(dyn Fn(usize) + Sync), tasks: usize) {
        loop {
            let index = self.next.0.fetch_add(1, Ordering::Relaxed);
            if index >= tasks {
                return;
            }
            if let Err(payload) = catch_unwind(AssertUnwindSafe(|| task(index))) {
                let mut first = self.panic.lock().unwrap_or_else(PoisonError::into_inner);
                first.get_or_insert(payload);
            }
        }
    }

    /// Starts threads until there are `wanted`. If the system refuses, the team stays smaller.
    fn hire(&'static self, workers: &mut Vec<Worker>, wanted: usize) {
        while workers.len() < wanted {
            let seat = workers.len() + 1;
            let parked = Arc::new(AtomicBool::new(false));
            let flag = Arc::clone(&parked);
            let name = format!("wootz-{seat}");
            match thread::Builder::new().name(name).spawn(move || self.serve(seat, &flag)) {
                Ok(handle) => workers.push(Worker { handle, parked }),
                Err(_) => return,
            }
        }
    }

    /// A worker's life: wait for a job that is open, join it, take tasks, leave.
    fn serve(&self, seat: usize, parked: &AtomicBool) {
        let mut seen = 0;
        let mut idle = Idle::new();
        loop {
            let state = self.state.0.load(Ordering::Relaxed);
            if can_join(state, seen) {
                let joined = self.state.0.compare_exchange_weak(
                    state,
                    state + 1,
                    Ordering::AcqRel,
                    Ordering::Relaxed,
                );
                if joined.is_err() {
                    continue;
                }
                seen = number_of(state);
                // SAFETY: we are inside the job, so it is not written, and the join ordered this
                // read after the caller's writes.
                let job = self.job.with(|job| unsafe { *job });
                if let Some(task) = job.task.filter(|_| seat < job.members) {
                    // SAFETY: the caller keeps the closure alive until we leave.
                    self.work(unsafe { &*task }, job.tasks);
                    idle = Idle::new();
                }
                self.state.0.fetch_sub(1, Ordering::Release);
                if job.members == 0 {
                    return;
                }
            } else if idle.spun(SPIN) {
                // Swapped and not stored, because models know of no order between the stores of
                // two threads.
                parked.swap(true, Ordering::Relaxed);
                fence(Ordering::SeqCst);
                if !can_join(self.state.0.load(Ordering::Relaxed), seen) {
                    while parked.load(Ordering::Relaxed) {
                        thread::park();
                    }
                }
                parked.swap(false, Ordering::Relaxed);
                idle = Idle::new();
            }
        }
    }
}

/// The number of the job that a state is about.
fn number_of(state: u64) -> u64 {
    state & !(NUMBER - 1)
}

/// Whether the job can be joined by a worker that joined `seen` last.
fn can_join(state: u64, seen: u64) -> bool {
    state & OPEN != 0 && number_of(state) != seen
}

/// Ends every worker and waits for them. For models, whose threads must end; the next job hires
/// new workers.
#[allow(dead_code, reason = "models use it, in a crate of their own")]
pub(crate) fn dismiss() {
    let Some(mut workers) = TEAM.try_workers() else { return };
    TEAM.open(Job { task: None, tasks: 0, members: 0 }, &workers);
    for worker in workers.drain(..) {
        let _ended = worker.handle.join();
    }
    TEAM.state.0.fetch_and(!OPEN, Ordering::AcqRel);
}

#[cfg(test)]
mod tests {
    use super::*;

    // These tests share the team, and the number of threads, with every other test of the
    // process: they assert what holds with any.

    #[test]
    fn every_task_runs_exactly_once() {
        set_threads(3);
        for tasks in [0, 1, 2, 3, 17, 1000] {
            let ran: Vec<AtomicUsize> = (0..tasks).map(|_| AtomicUsize::new(0)).collect();
            for_each(tasks, |i| {
                ran[i].fetch_add(1, Ordering::Relaxed);
            });
            assert!(ran.iter().all(|n| n.load(Ordering::Relaxed) == 1));
        }
    }

    #[test]
    fn many_short_jobs_from_many_threads_lose_nothing() {
        set_threads(4);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for round in 0..2000 {
                        let sum = AtomicUsize::new(0);
                        for_each(5, |i| {
                            sum.fetch_add(i + round, Ordering::Relaxed);
                        });
                        assert_eq!(sum.into_inner(), 10 + 5 * round);
                    }
                });
            }
        });
    }

    #[test]
    fn workers_that_have_parked_wake_again() {
        set_threads(2);
        for _ in 0..5 {
            thread::sleep(Duration::from_millis(2));
            let ran = AtomicUsize::new(0);
            for_each(8, |_| {
                thread::sleep(Duration::from_micros(300));
                ran.fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!(ran.into_inner(), 8);
        }
    }

    #[test]
    fn nested_calls_finish() {
        set_threads(2);
        let ran = AtomicUsize::new(0);
        for_each(4, |_| {
            for_each(4, |_| {
                ran.fetch_add(1, Ordering::Relaxed);
            });
        });
        assert_eq!(ran.into_inner(), 16);
    }

    #[test]
    fn a_panic_reaches_the_caller_and_leaves_the_team_usable() {
        for members in [1, 2, 3] {
            set_threads(members);
            let caught = catch_unwind(|| {
                for_each(16, |i| {
                    if i == 3 {
                        panic!("task three");
                    }
                });
            });
            let payload = caught.unwrap_err();
            assert_eq!(payload.downcast_ref::<&str>(), Some(&"task three"));
            let ran = AtomicUsize::new(0);
            for_each(16, |_| {
                ran.fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!(ran.into_inner(), 16);
        }
    }

    #[test]
    fn chunks_cover_the_slice_in_order() {
        set_threads(2);
        for (len, chunk) in [(0, 4), (1, 4), (4, 4), (10, 4), (1000, 7), (3, 0)] {
            let mut data = vec![usize::MAX; len];
            chunks_mut(&mut data, chunk, |i, part| {
                for (j, value) in part.iter_mut().enumerate() {
                    *value = i * chunk.max(1) + j;
                }
            });
            assert!(data.iter().enumerate().all(|(i, &value)| i == value));
        }
    }

    #[test]
    fn two_slices_are_cut_side_by_side() {
        set_threads(2);
        let (mut a, mut b) = (vec![0usize; 10], vec![0u8; 5]);
        chunks2_mut(&mut a, 4, &mut b, 2, |i, a, b| {
            a.fill(i);
            b.fill(i as u8);
        });
        assert_eq!(a, [0, 0, 0, 0, 1, 1, 1, 1, 2, 2]);
        assert_eq!(b, [0, 0, 1, 1, 2]);
    }
}
