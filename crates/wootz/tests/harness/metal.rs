//! The Metal part: cases run as the MSL that Apple's driver would be given, compiled by clang and
//! executed on the CPU by `metal-sim`, on a device that claims to be an M1.
//!
//! First all cases run on a device that only collects kernel texts; then the texts are compiled,
//! many at a time; then the cases run. Without `full`, every case runs in one plain and in one packed
//! dtype if it is not large; in other layouts, with NaN and infinities and with an index out of range
//! only those that bring a kernel of their own.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use metal_sim::{Build, Cache, Compiled, Kernel, Launch, Library, Order, Toolchain, Worker};
use wootz::gpu::{
    Access, Collector, GpuOptions, KernelCost, SimulatedLaunch, Simulator, fits_apple7,
};
use wootz::op::Case;
use wootz::{DType, Device};

use super::cpu::compare_all;
use super::data::Host;
use super::layouts::{Layout, constant_along_broadcast};
use super::tolerance::{Against, compare_specials};
use super::traffic::{Counted, Traffic};
use super::watchdog::Watchdog;
use super::{
    Log, SPECIALS, Subject, draw, fails_with, follows_dtype, like_doubles, magnitudes, run,
    same_bits, with_bad_index, with_specials,
};

/// Elements of an array above which a case is left to a full run.
const LARGE: usize = 1 << 16;

/// What came of all cases.
pub(crate) struct Outcome {
    pub(crate) logs: Vec<Log>,
    pub(crate) summary: String,
    /// Lines of a table: operation, kernels, cases, checks, failures.
    pub(crate) table: String,
    /// How kernels used memory.
    pub(crate) traffic: Traffic,
}

/// Runs the cases; `Err` is the reason why none can run.
pub(crate) fn check_all(subjects: &[Subject], full: bool) -> Result<Outcome, String> {
    let cache = Arc::new(open_cache()?);
    let start = Instant::now();
    let mut plan = Plan::new(subjects, full);
    say(start, format!("{} kernel texts in {} cases", plan.kernels.len(), plan.units.len()));

    // Large ones first, so that at the end no thread waits long for the other.
    plan.units.sort_by_key(|unit| std::cmp::Reverse(unit.elements()));
    let mut logs = std::mem::take(&mut plan.unfit);
    let mut built = HashMap::new();
    for column in COLUMNS {
        let (kernels, failures) = build(&cache, &mut plan, column);
        logs.extend(failures);
        built.insert(column.name, Arc::new(kernels));
        say(start, format!("compiled {}", column.name));
    }
    let ran = Arc::new(Ran::default());
    let next = AtomicUsize::new(0);
    let work = || -> Result<(Vec<Log>, Traffic), String> {
        let watchdog = Watchdog::start();
        let devices = Devices::open(&cache, &built, &ran)?;
        let (mut logs, mut traffic) = (Vec::new(), Traffic::default());
        while let Some(unit) = plan.units.get(next.fetch_add(1, Ordering::Relaxed)) {
            watchdog.case(unit.subject, "simulated GPU");
            logs.push(unit.check(&devices, &mut traffic));
        }
        Ok((logs, traffic))
    };
    let results = std::thread::scope(|scope| {
        [scope.spawn(work), scope.spawn(work)].map(|worker| worker.join().unwrap())
    });
    let mut traffic = Traffic::default();
    for result in results {
        let (more, seen) = result?;
        logs.extend(more);
        traffic.merge(seen);
    }
    logs.extend(plan.never_ran(&ran));
    let summary = plan.summary(&ran, &logs);
    say(start, summary.clone());
    say(start, traffic.summary());
    Ok(Outcome { summary, table: plan.table(&logs), traffic, logs })
}

/// Where kernels are compiled to.
pub(crate) fn open_cache() -> Result<Cache, String> {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("metal-sim");
    Cache::open(&folder, Toolchain::find()?)
}

fn say(start: Instant, text: String) {
    println!("{:6.1} s  {text}", start.elapsed().as_secs_f64());
}

/// A way to compile and run every kernel.
#[derive(Clone, Copy)]
struct Column {
    name: &'static str,
    build: Build,
    orders: &'static [Order],
}

/// As shipped, in three orders of threads that must agree; with naga's checks; with races looked
/// for; and as Metal's compiler may do it by default.
const COLUMNS: [Column; 4] = [
    Column {
        name: "unchecked",
        build: Build { checked: false, fast_math: false, counting: false },
        orders: &[Order::Forward, Order::Reverse, Order::Shuffled(7)],
    },
    Column {
        name: "checked",
        build: Build { checked: true, fast_math: false, counting: false },
        orders: &[Order::Forward],
    },
    Column {
        name: "watched for races",
        build: Build { checked: false, fast_math: false, counting: true },
        orders: &[Order::Forward],
    },
    Column {
        name: "fast-math",
        build: Build { checked: false, fast_math: true, counting: false },
        orders: &[Order::Forward],
    },
];

/// The devices of one thread, one a column.
struct Devices {
    unchecked: Device,
    checked: Device,
    watched: Device,
    fast: Device,
    /// What the watched device has launched.
    counted: Arc<Mutex<Vec<Counted>>>,
}

/// Compiled kernels by their texts, each with what it costs at least.
type Kernels = HashMap<Arc<str>, (Arc<Compiled>, KernelCost)>;

impl Devices {
    fn open(
        cache: &Arc<Cache>,
        built: &HashMap<&'static str, Arc<Kernels>>,
        ran: &Arc<Ran>,
    ) -> Result<Devices, String> {
        let counted = Arc::new(Mutex::default());
        let open = |column: Column| -> Result<Device, String> {
            let worker = Mutex::new(Worker::new(cache)?);
            let kernels = built[column.name].clone();
            let (ran, counted) = (ran.clone(), Arc::clone(&counted));
            let simulator = Metal { column, kernels, worker, ran, counted };
            simulated(Arc::new(simulator))
        };
        let [unchecked, checked, watched, fast] = COLUMNS;
        Ok(Devices {
            unchecked: open(unchecked)?,
            checked: open(checked)?,
            watched: open(watched)?,
            fast: open(fast)?,
            counted,
        })
    }
}

fn simulated(simulator: Arc<dyn Simulator>) -> Result<Device, String> {
    let options = GpuOptions { simulator: Some(simulator), ..Default::default() };
    Device::gpu_with(0, &options).map_err(|error| error.to_string())
}

/// What was executed.
#[derive(Default)]
struct Ran {
    launches: AtomicUsize,
    texts: Mutex<BTreeSet<Arc<str>>>,
}

/// Runs launches as MSL.
struct Metal {
    column: Column,
    kernels: Arc<Kernels>,
    worker: Mutex<Worker>,
    ran: Arc<Ran>,
    counted: Arc<Mutex<Vec<Counted>>>,
}

impl Metal {
    fn known(&self, launch: &SimulatedLaunch) -> Result<&(Arc<Compiled>, KernelCost), String> {
        let known = self.kernels.get(&launch.source);
        known.ok_or_else(|| format!("{} was not compiled", launch.key))
    }
}

impl Simulator for Metal {
    fn run(&self, launches: &[SimulatedLaunch], memory: &mut [Vec<u8>]) -> Result<(), String> {
        let converted = launches
            .iter()
            .map(|launch| {
                let (kernel, _) = self.known(launch)?;
                let writes = |(place, access): &(usize, Access)| (*place, *access != Access::Read);
                Ok(Launch {
                    kernel: kernel.clone(),
                    params: launch.params.clone(),
                    groups: launch.groups,
                    bindings: launch.bindings.iter().map(writes).collect(),
                })
            })
            .collect::<Result<Vec<_>, String>>()?;
        let mut worker = self.worker.lock().unwrap();
        let before = memory.to_vec();
        for (number, &order) in self.column.orders.iter().enumerate() {
            let mut after = before.clone();
            let report = worker.run(&converted, &mut after, order);
            let report = report.map_err(|failure| failure.to_string())?;
            if self.column.build.counting {
                for (launch, report) in launches.iter().zip(report.launches) {
                    let places: Vec<usize> = launch.bindings.iter().map(|(i, _)| *i).collect();
                    let bytes: Vec<u64> = places.iter().map(|i| memory[*i].len() as u64).collect();
                    let cost = self.known(launch)?.1.clone().launched(launch.groups, &bytes);
                    let counted = Counted { key: launch.key.clone(), cost, places, report };
                    self.counted.lock().unwrap().push(counted);
                }
            }
            self.ran.launches.fetch_add(launches.len(), Ordering::Relaxed);
            if number == 0 {
                memory.clone_from_slice(&after);
            } else if let Some(place) = (0..memory.len()).find(|&i| memory[i] != after[i]) {
                let writer = |launch: &&SimulatedLaunch| {
                    launch.bindings.contains(&(place, Access::ReadWrite))
                };
                let names: Vec<String> =
                    launches.iter().filter(writer).map(|launch| launch.key.to_string()).collect();
                return Err(format!(
                    "other bits when threads run in the order {order:?}: written by {}",
                    names.join(", ")
                ));
            }
        }
        self.ran.texts.lock().unwrap().extend(launches.iter().map(|launch| launch.source.clone()));
        Ok(())
    }
}

/// One way to run a case.
struct Unit<'a> {
    subject: &'a Subject,
    dtype: DType,
    layout: Layout,
    values: Values,
}

/// Runs a case, also what it launched for results that are empty: nobody waits for that.
fn run_whole(
    case: &Case,
    hosts: &[Host],
    layout: Layout,
    device: &Device,
) -> Result<Vec<Host>, String> {
    let results = run(case, hosts, layout, device);
    settle(device).and(results)
}

fn settle(device: &Device) -> Result<(), String> {
    wootz::synchronize(device).map_err(|error| error.to_string())
}

/// What a case's inputs hold.
#[derive(Clone, Copy, PartialEq)]
enum Values {
    Drawn,
    /// These among them.
    Special(&'static [f64]),
    /// An index out of range among them.
    BadIndex,
}

impl Unit<'_> {
    /// Elements of the inputs, which tell how long it takes.
    fn elements(&self) -> usize {
        self.subject.case.inputs.iter().map(|input| input.shape.iter().product::<usize>()).sum()
    }

    fn inputs(&self) -> Option<Vec<Host>> {
        let hosts = draw(self.subject, self.dtype);
        match (self.values, self.layout) {
            (Values::Special(special), _) => with_specials(self.subject, &hosts, special),
            (Values::BadIndex, _) => with_bad_index(&self.subject.case, &hosts).map(|bad| bad.0),
            (_, Layout::Broadcast) => Some(hosts.iter().map(constant_along_broadcast).collect()),
            _ => Some(hosts),
        }
    }

    fn check(&self, devices: &Devices, traffic: &mut Traffic) -> Log {
        let mut log = Log::new(self.subject);
        let case = &self.subject.case;
        if self.values == Values::BadIndex {
            self.check_bad_index(devices, &mut log);
            return log;
        }
        let (Some(hosts), cpu) = (self.inputs(), Device::cpu()) else { return log };
        // The CPU's part reports a case that does not run there.
        let Ok(want) = run(case, &hosts, Layout::Contiguous, &cpu) else { return log };
        let scales = magnitudes(self.subject, &hosts);
        let on = |device: &Device| run_whole(case, &hosts, self.layout, device);
        let close = |got: &[Host], want: &[Host]| match self.values {
            Values::Special(_) => {
                got.iter().zip(want).try_for_each(|(got, want)| compare_specials(got, want))
            }
            _ => {
                let (class, against) = (case.tolerance, Against::Device);
                compare_all(got, want, scales.as_deref(), class, against, self.dtype)
            }
        };
        let right = |got: &[Host], device: &Device| match self.layout {
            // In sums of equal terms the rounding errors all have one sign, so that another order than
            // the CPU's has another result.
            Layout::Broadcast => close(got, &run_whole(case, &hosts, Layout::Contiguous, device)?),
            _ => close(got, &want),
        };
        let base = on(&devices.unchecked);
        let place = |column: &str| match self.values {
            Values::Special(special) => {
                format!("{} as Metal, {column}, with {special:?}", self.dtype)
            }
            _ => format!("{} as Metal, {column}, {:?}", self.dtype, self.layout),
        };
        let outcome = base.as_ref().map_err(String::clone);
        let outcome = outcome.and_then(|got| right(got, &devices.unchecked));
        log.check(&place("unchecked"), outcome);
        let outcome = on(&devices.fast).and_then(|got| right(&got, &devices.fast));
        log.check(&place("fast-math"), outcome);
        // Checks and races have nothing to do with values.
        let (Ok(base), Values::Drawn) = (base, self.values) else { return log };
        for (name, device) in [("checked", &devices.checked), ("watched", &devices.watched)] {
            log.check(&place(name), on(device).and_then(|got| same_bits(&got, &base)));
        }
        let launches = std::mem::take(&mut *devices.counted.lock().unwrap());
        if let (Some(moves), Layout::Contiguous) = (case.moves, self.layout) {
            let outcome = traffic.check_moved(self.subject, self.dtype, moves, &launches);
            log.check(&place("bytes moved"), outcome);
        }
        for counted in launches {
            let outcome = counted.check(self.subject.op, self.layout, traffic);
            log.check(&place("as modelled"), outcome);
        }
        log
    }

    /// Kernels must find the index and touch no memory for it.
    fn check_bad_index(&self, devices: &Devices, log: &mut Log) {
        let case = &self.subject.case;
        let Some((hosts, error)) = with_bad_index(case, &draw(self.subject, self.dtype)) else {
            return;
        };
        let Devices { unchecked, checked, watched, fast, counted } = devices;
        for (column, device) in [
            ("unchecked", unchecked),
            ("checked", checked),
            ("watched", watched),
            ("fast-math", fast),
        ] {
            let place = format!("{} as Metal, {column}, an index out of range", self.dtype);
            log.check(&place, fails_with(case, &hosts, &error, device).and(settle(device)));
        }
        // A kernel that gives up uses less memory than its cost says.
        counted.lock().unwrap().clear();
    }
}

/// What is to be run, and the kernels it needs.
struct Plan<'a> {
    units: Vec<Unit<'a>>,
    /// Names by text, and the operations whose cases launch them.
    kernels: BTreeMap<Arc<str>, String>,
    users: BTreeMap<&'static str, BTreeSet<Arc<str>>>,
    left_out: BTreeMap<&'static str, usize>,
    /// Kernels that would not fit an M1.
    unfit: Vec<Log>,
}

impl<'a> Plan<'a> {
    fn new(subjects: &'a [Subject], full: bool) -> Plan<'a> {
        let collector = Arc::new(Collector::default());
        let device = simulated(collector.clone()).unwrap();
        let mut plan = Plan {
            units: Vec::new(),
            kernels: BTreeMap::new(),
            users: BTreeMap::new(),
            left_out: BTreeMap::new(),
            unfit: Vec::new(),
        };
        for (number, subject) in subjects.iter().enumerate() {
            let mut brings_kernel = false;
            for unit in units(subject, number, full) {
                let Some(hosts) = unit.inputs() else { continue };
                // Bytes are counted in any size, row-major.
                let counted = unit.values == Values::Drawn
                    && unit.layout == Layout::Contiguous
                    && subject.case.moves.is_some();
                if !full && !counted && hosts.iter().any(|host| host.size() > LARGE) {
                    *plan.left_out.entry("large").or_default() += 1;
                    continue;
                }
                // Results are meaningless here, and so are errors about them.
                let _ = run_whole(&subject.case, &hosts, unit.layout, &device);
                let mut new = false;
                for kernel in collector.take() {
                    if let Err(message) = kernel.cost().and_then(|cost| fits_apple7(&cost)) {
                        let mut log = Log::new(subject);
                        log.check("on an M1", Err(message));
                        plan.unfit.push(log);
                    }
                    let text = kernel.launch.source;
                    plan.users.entry(subject.op).or_default().insert(text.clone());
                    new |= plan.kernels.insert(text, kernel.launch.key.to_string()).is_none();
                }
                // With special values and bad indices where the case itself brings a kernel.
                let drawn = unit.values == Values::Drawn;
                let plain = drawn && unit.layout == Layout::Contiguous;
                let follows = !drawn && brings_kernel;
                if plain {
                    brings_kernel = new;
                }
                if full || plain || new || follows {
                    plan.units.push(unit);
                } else {
                    *plan.left_out.entry("without a kernel of its own").or_default() += 1;
                }
            }
        }
        plan
    }

    /// A failure for each kernel that was compiled for a case and not launched by it.
    fn never_ran(&self, ran: &Ran) -> Vec<Log> {
        let ran = ran.texts.lock().unwrap();
        let missing = self.kernels.iter().filter(|(text, _)| !ran.contains(*text));
        let failed = |(_, name): (&Arc<str>, &String)| {
            let mut log = Log::of("metal-sim", name.clone());
            log.check("executed", Err("it never ran".into()));
            log
        };
        missing.map(failed).collect()
    }

    fn summary(&self, ran: &Ran, logs: &[Log]) -> String {
        let texts = ran.texts.lock().unwrap().len();
        let launches = ran.launches.load(Ordering::Relaxed);
        let checks: usize = logs.iter().map(|log| log.checks).sum();
        let failures: usize = logs.iter().map(|log| log.failures.len()).sum();
        let left: Vec<String> =
            self.left_out.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
        let left = if left.is_empty() { "none".into() } else { left.join(", ") };
        format!(
            "{texts} of {} kernels executed as MSL in {launches} launches: {} cases, {checks} \
             checks, {failures} failures; cases left to a full run: {left}",
            self.kernels.len(),
            self.units.len(),
        )
    }

    fn table(&self, logs: &[Log]) -> String {
        let mut text = String::from(
            "| operation | kernels | cases | checks | failures |\n|---|---|---|---|---|\n",
        );
        for (op, kernels) in &self.users {
            let cases = self.units.iter().filter(|unit| unit.subject.op == *op).count();
            let own = || logs.iter().filter(|log| log.op == *op);
            let checks: usize = own().map(|log| log.checks).sum();
            let failures: usize = own().map(|log| log.failures.len()).sum();
            let kernels = kernels.len();
            text += &format!("| {op} | {kernels} | {cases} | {checks} | {failures} |\n");
        }
        text
    }
}

/// The ways to run a case: in all dtypes and layouts, or in one plain dtype and, row-major only, in
/// one that is packed.
fn units(subject: &Subject, number: usize, full: bool) -> Vec<Unit<'_>> {
    let dtypes: Vec<DType> =
        subject.case.dtypes.iter().copied().filter(|&dtype| dtype != DType::F64).collect();
    let packed: Vec<DType> = dtypes.iter().copied().filter(|dtype| dtype.size() < 4).collect();
    let wide = dtypes.iter().copied().find(|&dtype| dtype == DType::F32);
    let wide = wide.or_else(|| dtypes.iter().copied().find(|dtype| dtype.size() >= 4));
    let narrow = (!packed.is_empty()).then(|| packed[number % packed.len()]);
    let chosen = if full { dtypes } else { wide.into_iter().chain(narrow).collect() };
    let mut units = Vec::new();
    for dtype in chosen {
        let unit = |layout, values| Unit { subject, dtype, layout, values };
        units.push(unit(Layout::Contiguous, Values::Drawn));
        units.push(unit(Layout::Contiguous, Values::BadIndex));
        // Packed views are left to a full run: their kernels would take a minute more to compile.
        let views = if full || Some(dtype) == wide { &Layout::VIEWS[..] } else { &[] };
        if dtype.is_float() && follows_dtype(&subject.case) && like_doubles(subject, dtype) {
            let special = |values| unit(Layout::Contiguous, Values::Special(values));
            units.extend(SPECIALS.map(special));
        }
        units.extend(views.iter().map(|&layout| unit(layout, Values::Drawn)));
    }
    units
}

/// Compiles all kernels for a column; those that are refused are failures.
fn build(cache: &Cache, plan: &mut Plan<'_>, column: Column) -> (Kernels, Vec<Log>) {
    let mut kernels = Vec::new();
    let mut names = HashMap::new();
    for (number, (text, name)) in plan.kernels.iter().enumerate() {
        let name = format!("{name}#{number}");
        kernels.push(Kernel::wgsl(&name, &**text));
        names.insert(name, text.clone());
    }
    let (library, error) = Library::build_all(cache, &kernels, column.build);
    let mut refused = error.refused;
    let mut compiled = Kernels::new();
    for kernel in library.kernels() {
        let text = names[&kernel.name].clone();
        match KernelCost::of(&kernel.name, &text) {
            Ok(cost) => _ = compiled.insert(text, (kernel.clone(), cost)),
            Err(message) => refused.push((kernel.name.clone(), message)),
        }
    }
    let logs = refused
        .into_iter()
        .map(|(name, message)| {
            let mut log = Log::of("metal-sim", name);
            log.check(column.name, Err(message));
            log
        })
        .collect();
    (compiled, logs)
}
