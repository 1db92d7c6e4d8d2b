//! Compiling kernels into libraries, many at a time, and keeping them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use crate::apple7::APPLE7;
use crate::clang::Toolchain;
use crate::cleaning::clean;
use crate::lint::lint;
use crate::msl::{Msl, to_msl};
use crate::rewrite::{Pass, rewrite};
use crate::scan;

/// How kernels are compiled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Build {
    /// With naga's bounds checks, loop bounds and division checks, and zeroed threadgroup memory.
    pub checked: bool,
    /// As Metal's default: NaN and infinities are assumed not to happen.
    pub fast_math: bool,
    /// With a look at every load and store: finds races and counts. Several times slower.
    pub counting: bool,
}

/// A kernel to compile.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// What messages call it.
    pub name: String,
    /// Its text.
    pub source: Source,
}

/// The text of a kernel.
#[derive(Clone, Debug)]
pub enum Source {
    /// WGSL with the entry point `main`.
    Wgsl(String),
    /// MSL as [`to_msl`] makes it, or written by hand.
    Msl(Msl),
}

impl Kernel {
    /// A kernel in WGSL.
    pub fn wgsl(name: impl Into<String>, text: impl Into<String>) -> Kernel {
        Kernel { name: name.into(), source: Source::Wgsl(text.into()) }
    }

    /// A kernel in MSL.
    pub fn msl(name: impl Into<String>, msl: Msl) -> Kernel {
        Kernel { name: name.into(), source: Source::Msl(msl) }
    }
}

/// A kernel in a library, ready to be launched.
#[derive(Debug)]
pub struct Compiled {
    /// What messages call it.
    pub name: String,
    /// The MSL and how it is launched.
    pub msl: Msl,
    /// How it was compiled.
    pub build: Build,
    pub(crate) symbol: String,
    pub(crate) library: PathBuf,
}

/// Kernels that were refused, each with the reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BuildError {
    /// Names and messages. The name is empty if no kernel is to blame.
    pub refused: Vec<(String, String)>,
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, message) in &self.refused {
            writeln!(f, "{name}: {}", message.trim_end())?;
        }
        Ok(())
    }
}

impl std::error::Error for BuildError {}

/// Where headers, the runner and compiled libraries are kept. Several processes may share one.
#[derive(Clone, Debug)]
pub struct Cache {
    /// Compilations at the same time.
    pub jobs: usize,
    toolchain: Toolchain,
    folder: PathBuf,
    /// The folder of the runner's source: kernels need not be compiled again if only that changes.
    runner: String,
}

impl Cache {
    /// A cache in a folder, which is made if needed. What was compiled by another clang, with other
    /// headers or for another processor is not used, and in the end removed.
    pub fn open(folder: &Path, toolchain: Toolchain) -> Result<Cache, String> {
        let processor = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let features = processor.lines().find(|line| line.starts_with("flags"));
        let flags = [CHECK, RUN, CHECKED, FAST_MATH, COUNTING];
        let key = (REWRITING, flags, HEADERS, toolchain.version(), features);
        let folder = folder.join(hash(&key));
        clean(&folder);
        let text = |error: std::io::Error| format!("{}: {error}", folder.display());
        let runner = format!("runner_{}", hash(&RUNNER));
        std::fs::create_dir_all(folder.join("kernels")).map_err(text)?;
        for (part, files) in [("headers", HEADERS), (&runner, RUNNER)] {
            std::fs::create_dir_all(folder.join(part)).map_err(text)?;
            for (name, content) in files {
                let file = folder.join(part).join(name);
                if !file.exists() {
                    write_whole(&file, content.as_bytes())?;
                }
            }
        }
        let jobs = std::thread::available_parallelism().map_or(1, |count| count.get());
        Ok(Cache { jobs, toolchain, folder, runner })
    }

    /// The program that runs kernels, compiled if it is not there.
    pub(crate) fn runner(&self) -> Result<PathBuf, String> {
        let folder = self.folder.join(&self.runner);
        let runner = folder.join("metal-runner");
        if !runner.exists() {
            let made = folder.join(unique("metal-runner"));
            let (source, output) = (folder.join("main.cpp"), made.to_string_lossy());
            let source = source.to_string_lossy();
            let arguments =
                ["-std=c++20", "-O2", "-rdynamic", &source, "-o", &output, "-ldl", "-lm"];
            self.toolchain.run(&self.folder, &arguments)?;
            std::fs::rename(&made, &runner).map_err(|error| error.to_string())?;
        }
        Ok(runner)
    }

    fn kernel_file(&self, name: &str) -> PathBuf {
        self.folder.join("kernels").join(name)
    }
}

/// Compiled kernels by name.
#[derive(Clone, Debug, Default)]
pub struct Library {
    kernels: HashMap<String, Arc<Compiled>>,
}

impl Library {
    /// Translates, checks and compiles kernels; those that the cache has are not compiled again.
    pub fn build(cache: &Cache, kernels: &[Kernel], build: Build) -> Result<Library, BuildError> {
        let (library, error) = Library::build_all(cache, kernels, build);
        match error.refused.is_empty() {
            true => Ok(library),
            false => Err(error),
        }
    }

    /// As [`Library::build`], but gives what could be compiled beside what was refused.
    pub fn build_all(cache: &Cache, kernels: &[Kernel], build: Build) -> (Library, BuildError) {
        let mut refused = BTreeMap::new();
        let mut prepared = Vec::new();
        let results = in_parallel(cache.jobs, kernels, |kernel| prepare(kernel, build));
        for (kernel, result) in kernels.iter().zip(results) {
            match result {
                Ok(kernel) => prepared.push(kernel),
                Err(message) => _ = refused.insert(kernel.name.clone(), message),
            }
        }
        let mut missing: BTreeMap<&str, &Prepared> = BTreeMap::new();
        for kernel in &prepared {
            if cache.library_of(&kernel.symbol).is_none() {
                missing.insert(&kernel.symbol, kernel);
            }
        }
        let missing = missing.into_values().collect::<Vec<_>>();
        for (symbol, message) in compile_batches(cache, &missing, build) {
            for kernel in prepared.iter().filter(|kernel| kernel.symbol == symbol) {
                refused.insert(kernel.name.clone(), message.clone());
            }
            if symbol.is_empty() {
                refused.insert(String::new(), message);
            }
        }
        let mut library = Library::default();
        for kernel in prepared {
            let Some(file) = cache.library_of(&kernel.symbol) else { continue };
            let Prepared { name, msl, symbol, .. } = kernel;
            let compiled = Compiled { name: name.clone(), msl, build, symbol, library: file };
            library.kernels.insert(name, Arc::new(compiled));
        }
        (library, BuildError { refused: refused.into_iter().collect() })
    }

    /// A kernel by its name.
    pub fn kernel(&self, name: &str) -> Option<&Arc<Compiled>> {
        self.kernels.get(name)
    }

    /// All kernels.
    pub fn kernels(&self) -> impl Iterator<Item = &Arc<Compiled>> {
        self.kernels.values()
    }
}

/// A kernel that was translated and linted.
struct Prepared {
    name: String,
    msl: Msl,
    /// Made from all that decides the machine code, so it names the kernel in every library.
    symbol: String,
    /// The same for all that decides the check.
    check: String,
}

fn prepare(kernel: &Kernel, build: Build) -> Result<Prepared, String> {
    let msl = match &kernel.source {
        Source::Wgsl(text) => to_msl(text, build.checked)?,
        Source::Msl(msl) => msl.clone(),
    };
    msl.launch.size([1; 3]).within(&APPLE7)?;
    let tokens = scan::tokens(&msl.text)?;
    let found = lint(&scan::items(&tokens), &msl.entry);
    if !found.is_empty() {
        return Err(found.join("\n"));
    }
    let check = format!("ok_{}", hash(&(&msl.text, &msl.entry)));
    let symbol = format!("k_{}", hash(&(&msl.text, &msl.entry, build)));
    Ok(Prepared { name: kernel.name.clone(), msl, symbol, check })
}

impl Cache {
    /// The library that has this kernel.
    fn library_of(&self, symbol: &str) -> Option<PathBuf> {
        let name = std::fs::read_to_string(self.kernel_file(symbol)).ok()?;
        let library = self.kernel_file(&name);
        library.exists().then_some(library)
    }
}

/// Kernels compiled at a time: enough to make the headers cheap, few enough for both cores to have
/// work to the end.
const BATCH: usize = 32;

/// Compiles all kernels; gives the symbols and messages of those that were refused.
fn compile_batches(cache: &Cache, kernels: &[&Prepared], build: Build) -> Vec<(String, String)> {
    let batches = kernels.chunks(BATCH).collect::<Vec<_>>();
    let refused = in_parallel(cache.jobs, &batches, |batch| compile_batch(cache, batch, build));
    refused.into_iter().flatten().collect()
}

/// The results of a function, computed by some threads.
fn in_parallel<T: Sync, R: Send>(
    jobs: usize,
    inputs: &[T],
    function: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::new());
    let work = || {
        loop {
            let index = next.fetch_add(1, Relaxed);
            let Some(input) = inputs.get(index) else { break };
            let result = function(input);
            results.lock().unwrap_or_else(PoisonError::into_inner).push((index, result));
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..jobs.min(inputs.len()) {
            scope.spawn(work);
        }
        work();
    });
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

/// Both passes over one batch. When some kernels are refused the others are compiled without them.
fn compile_batch(cache: &Cache, batch: &[&Prepared], build: Build) -> Vec<(String, String)> {
    let mut refused = Vec::new();
    let mut left = batch.to_vec();
    while !left.is_empty() {
        let result = check_batch(cache, &left).and_then(|()| run_batch(cache, &left, build));
        let Err(message) = result else { break };
        let blamed = blame(&message, &left);
        if blamed.is_empty() {
            refused.push((String::new(), message));
            break;
        }
        left.retain(|kernel| !blamed.contains_key(&kernel.symbol));
        refused.extend(blamed);
    }
    refused
}

fn check_batch(cache: &Cache, batch: &[&Prepared]) -> Result<(), String> {
    let unchecked = batch.iter().filter(|kernel| !cache.kernel_file(&kernel.check).exists());
    let unchecked = unchecked.copied().collect::<Vec<_>>();
    if unchecked.is_empty() {
        return Ok(());
    }
    let file = cache.kernel_file(&unique("check.clcpp"));
    write_whole(&file, unit(&unchecked, Pass::Check)?.as_bytes())?;
    let result = cache.toolchain.run(&cache.folder, &[CHECK, &[&file.to_string_lossy()]].concat());
    _ = std::fs::remove_file(&file);
    result?;
    unchecked.iter().try_for_each(|kernel| write_whole(&cache.kernel_file(&kernel.check), b""))
}

fn run_batch(cache: &Cache, batch: &[&Prepared], build: Build) -> Result<(), String> {
    let file = cache.kernel_file(&unique("run.cpp"));
    let (object, library) = (file.with_extension("o"), file.with_extension("so"));
    write_whole(&file, unit(batch, Pass::Run)?.as_bytes())?;
    let (source, object_name) = (file.to_string_lossy(), object.to_string_lossy());
    let mut arguments = RUN.to_vec();
    if build.checked {
        arguments.extend(CHECKED);
    }
    if build.fast_math {
        arguments.extend(FAST_MATH);
    }
    if build.counting {
        arguments.extend(COUNTING);
    }
    arguments.extend(["-c", &source, "-o", &object_name]);
    let result = cache.toolchain.run(&cache.folder, &arguments).and_then(|()| {
        let library = library.to_string_lossy();
        let arguments = ["-shared", "-nostdlib", &object_name, "-lm", "-o", &library];
        cache.toolchain.run(&cache.folder, &arguments)
    });
    _ = std::fs::remove_file(&file);
    _ = std::fs::remove_file(&object);
    result?;
    let name = library.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let note =
        |kernel: &&Prepared| write_whole(&cache.kernel_file(&kernel.symbol), name.as_bytes());
    batch.iter().try_for_each(note)
}

/// One file with many kernels, each in its namespace.
fn unit(batch: &[&Prepared], pass: Pass) -> Result<String, String> {
    let mut text = "#include \"headers/arguments.h\"\n#include \"headers/keywords.h\"\n".to_owned();
    let mut seen = HashSet::new();
    for Prepared { msl, symbol, .. } in batch {
        let tokens = scan::tokens(&msl.text)?;
        rewrite(&scan::items(&tokens), &msl.entry, symbol, pass, &mut seen, &mut text)
            .map_err(|message| format!("{symbol}:1:1: error: {message}"))?;
    }
    Ok(text)
}

/// clang's errors by the kernel they are in; `#line` made the symbol the name of the file.
fn blame(message: &str, batch: &[&Prepared]) -> HashMap<String, String> {
    let mut blamed: HashMap<String, String> = HashMap::new();
    let mut current: Option<&str> = None;
    for line in message.lines() {
        let place = batch.iter().map(|kernel| kernel.symbol.as_str());
        let place = place.into_iter().find(|symbol| line.contains(*symbol));
        if place.is_some() && line.contains("error: ") {
            current = place;
        }
        if let Some(symbol) = current {
            let text = blamed.entry(symbol.to_owned()).or_default();
            if text.len() < 4000 {
                text.push_str(&line.replace(symbol, "msl"));
                text.push('\n');
            }
        } else if let Some(symbol) = place {
            // An error in a header, with the kernel in the notes after it.
            blamed.entry(symbol.to_owned()).or_insert_with(|| message.to_owned());
        }
    }
    blamed
}

fn write_whole(path: &Path, content: &[u8]) -> Result<(), String> {
    let text = |error: std::io::Error| format!("{}: {error}", path.display());
    let made = path.with_file_name(unique("part"));
    std::fs::write(&made, content).map_err(text)?;
    std::fs::rename(&made, path).map_err(text)
}

/// A file name that nobody else uses.
fn unique(name: &str) -> String {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let time = since.map_or(0, |since| since.as_nanos());
    format!("{time:x}_{}_{}_{name}", std::process::id(), NEXT.fetch_add(1, Relaxed))
}

/// 128 bits, as two hashes with different beginnings.
fn hash(value: &impl Hash) -> String {
    let half = |start: u64| {
        let mut hasher = DefaultHasher::new();
        start.hash(&mut hasher);
        value.hash(&mut hasher);
        hasher.finish()
    };
    format!("{:016x}{:016x}", half(1), half(2))
}

/// What makes of a kernel's text what is compiled: with another one, kernels are compiled anew.
const REWRITING: [&str; 2] = [include_str!("rewrite.rs"), include_str!("scan.rs")];

const CHECK: &[&str] = &[
    "-x",
    "clcpp",
    "-cl-std=clc++2021",
    "-cl-no-stdinc",
    "-Xclang",
    "-cl-ext=+cl_khr_fp16",
    "-target",
    "x86_64-linux-gnu",
    "-DMSL_CHECK",
    "-fsyntax-only",
    "-I.",
    "-Wno-everything",
    "-Werror=return-type",
    "-ferror-limit=200",
    "-fno-color-diagnostics",
];

const RUN: &[&str] = &[
    "-x",
    "c++",
    "-std=c++20",
    "-O1",
    "-fPIC",
    "-march=native",
    "-DMSL_RUN",
    "-I.",
    "-fno-exceptions",
    "-fno-rtti",
    "-fno-math-errno",
    "-fconvergent-functions",
    "-ffp-contract=on",
    "-fno-unwind-tables",
    "-fno-asynchronous-unwind-tables",
    "-fvisibility=hidden",
    "-Wno-everything",
    "-Werror=return-type",
    "-ferror-limit=200",
    "-fno-color-diagnostics",
    "-Xclang",
    "-ffloat16-excess-precision=none",
];

/// Naga's checks are in the text, and what an optimiser makes of kernels is seen in the other builds: this one is
/// compiled in a third of the time.
const CHECKED: &[&str] = &["-O0"];

const FAST_MATH: &[&str] = &["-ffast-math", "-mrecip=none"];

/// The thread sanitizer's instrumentation without its runtime: the runner has the functions.
const COUNTING: &[&str] = &[
    "-DMSL_COUNT",
    "-fsanitize=thread",
    "-mllvm",
    "-tsan-instrument-func-entry-exit=0",
    "-mllvm",
    "-tsan-instrument-read-before-write=1",
];

/// The files that kernels include.
const HEADERS: &[(&str, &str)] = &[
    ("abi.h", include_str!("headers/abi.h")),
    ("arguments.h", include_str!("headers/arguments.h")),
    ("atomic.h", include_str!("headers/atomic.h")),
    ("convert.h", include_str!("headers/convert.h")),
    ("integer.h", include_str!("headers/integer.h")),
    ("keywords.h", include_str!("headers/keywords.h")),
    ("math.h", include_str!("headers/math.h")),
    ("simd.h", include_str!("headers/simd.h")),
    ("simdgroup_matrix.h", include_str!("headers/simdgroup_matrix.h")),
    ("types.h", include_str!("headers/types.h")),
];

/// The program that runs them.
const RUNNER: &[(&str, &str)] = &[
    ("main.cpp", include_str!("runner/main.cpp")),
    ("memory.h", include_str!("runner/memory.h")),
    ("observe.h", include_str!("runner/observe.h")),
    ("protocol.h", include_str!("runner/protocol.h")),
    ("scheduler.h", include_str!("runner/scheduler.h")),
];
