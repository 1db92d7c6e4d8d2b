//! How kernels use memory: what metal-sim counts of a launch against what the launch's static cost
//! says, and whether the lanes of a simdgroup touch neighbouring memory.
//!
//! The cost knows a kernel's text, its grid and its buffers, and says that every byte of a buffer is
//! read or written if the text reads or writes it. Counted is each byte once, too:
//!
//! - more than that, or anything where the text has no access, is a failure;
//! - less is one, except where the cost is only an upper bound: views of arrays, which are parts of
//!   buffers; buffers that are read only by atomic updates, which count as stores; and [`PARTS`].
//!
//! A buffer is a multiple of 16 bytes long, and that of an array without elements has 16.
//!
//! An access of a simdgroup touches at best as many cache lines as its bytes fill, and one more if
//! it does not start at a line. What touches more than [`LINES`] times the best is a failure unless
//! it is a view or one of [`SCATTERED`].
//!
//! Cases that say what their kernels move at best are held to it, as often as threads load and store
//! anything; but what is small beside the rest comes from a cache after the first time.

use std::collections::{BTreeMap, BTreeSet};

use metal_sim::{Counts, LaunchReport};
use wootz::gpu::{KernelCost, KernelKey};

use wootz::DType;
use wootz::op::Moves;

use super::Subject;
use super::layouts::Layout;

/// Cache lines touched, for each that is needed at best.
const LINES: f64 = 2.0;

/// Bytes of a cache line.
const LINE: u64 = 128;

/// A buffer has at most so many bytes more than its array.
const PADDED: u64 = 16;

/// Operations, or kernels of operations, that use only parts of buffers, and why.
const PARTS: &[(&[&str], &str)] = &[
    (&["sort", "argsort", "topk"], "blocks are merged from one half of the memory to the other"),
    (&["searchsorted"], "looks where a value may be, and not everywhere"),
    (
        &["gather", "take", "take_along_axis", "index", "slice"],
        "reads what is asked for and nothing else",
    ),
    (
        &["at", "scatter", "slice_update", "put_along_axis", "rope_append"],
        "changes what is asked for and nothing else",
    ),
    (&["take_along_axis_backward"], "a launch takes a run of the indices"),
    (&["concatenate", "pad"], "a launch writes the part of the result that comes from one array"),
    (
        &["rms_norm_backward", "layer_norm_backward"],
        "sums of a block of rows are read again if it has a second row",
    ),
    (
        &[
            "argpartition",
            "block_masked_mm",
            "diag",
            "diagonal",
            "einsum",
            "fft",
            "fftn",
            "linalg.cross",
            "linalg.lu",
            "linalg.lu_factor",
            "linalg.svd",
            "median",
            "partition",
            "split",
            "trace",
            "unique",
            "unstack",
        ],
        "goes on with a view of an array",
    ),
    (
        &[
            "scaled_dot_product_attention",
            "attention_backward",
            "attention_backward_mask",
            "quantized_attention",
        ],
        "keys that no query sees are not read, and rows that see none have no scores",
    ),
    (&["real", "imag"], "one part of a complex number is made of one array of the two"),
    (
        &["cross_entropy", "cross_entropy_backward", "kl_divergence", "kl_divergence_backward"],
        "rows that do not count are not read",
    ),
    (&["addmm"], "what is added is not read if it is multiplied by zero"),
    (
        &["gather_mm", "gather_mm_backward"],
        "reads the matrices that are asked for, and of what says where they are what it needs",
    ),
    (&["gather_qmm"], "reads the matrices that are asked for"),
    (&["causal_conv1d"], "a state is made of the last steps"),
    (&["conv", "conv_backward_weight"], "windows pass over elements between their steps"),
    (
        &[
            "causal_conv1d_backward",
            "gated_delta_backward",
            "group_norm_backward",
            "selective_scan_backward",
        ],
        "each kernel has parts of the scratch memory",
    ),
    (&["selective_scan"], "a state that is not given is not read"),
    (
        &["gated_delta"],
        "a launch has some of the chunks, and of products of two steps those that count",
    ),
    (&["router"], "factors of experts that nobody is sent to are not read"),
    (
        &["isfinite", "isinf", "isnan", "isneginf", "isposinf"],
        "integers need not be read to know that they are finite",
    ),
];

/// Kernels of operations whose lanes do not touch neighbouring memory, with what is
/// touched at most for each line that is needed at best, and why.
const SCATTERED: &[(&[&str], f64, &str)] = &[
    (&["sort", "argsort", "topk"], 32.0, "elements lie where their order says"),
    (&["searchsorted"], 32.0, "every lane looks for a value of its own"),
    (
        &["gather", "index", "slice", "take", "take_along_axis"],
        32.0,
        "lanes read what indices name",
    ),
    (
        &["take_along_axis_backward"],
        4.0,
        "a lane goes through a row of indices of its own, beside those of the next inner axis",
    ),
    (
        &["at", "put_along_axis", "rope_append", "scatter", "slice_update"],
        32.0,
        "lanes write what indices name",
    ),
    (&["concatenate", "pad"], 8.0, "short rows of an array lie a row of the result apart"),
    (
        &["scaled_dot_product_attention", "attention_backward_mask"],
        4.0,
        "eight lanes have a row of a tile of cooperative matrices, and four rows lie apart",
    ),
    (
        &["attention_backward"],
        7.0,
        "lanes have rows of a tile, and where those are keys a mask lies across them",
    ),
    (
        &["combine_experts"],
        4.0,
        "between short results of an expert for two tokens lie those of other experts",
    ),
    (&["group_norm", "group_norm_backward"], 4.0, "a group has a few neighbours of every row"),
    (&["quantized_attention"], 4.0, "rows of few words lie where the tile before them ends"),
    (&["rope"], 4.0, "the two sides of pairs lie apart in a row, and rows may be short"),
    (&["fused"], 4.0, "a lane reads the four elements for one word of a packed result"),
    (
        &["matmul", "addmm"],
        5.0,
        "a matrix of 8x8 lies in eight rows, and eight lanes read a row of a tile of packed pairs",
    ),
    (&["gather_mm", "gather_mm_backward"], 5.0, "rows lie where indices say"),
    (&["quantize"], 13.0, "a lane has a run of weights of its own, beside that of the next"),
    (
        &["dequantize", "gather_qmm", "matmul_each", "matmul_glu", "quantized_matmul"],
        5.0,
        "a lane has a run of codes of its own, beside that of the next",
    ),
    (
        &["conv", "conv_backward_weight"],
        5.0,
        "lanes read windows, or rows of weights, of their own",
    ),
    (
        &["layer_norm_backward", "rms_norm_backward", "rms_norm_backward_dw"],
        4.0,
        "a lane has two neighbours of a packed type, whose sums it stores one after the other",
    ),
    (
        &["causal_conv1d", "causal_conv1d_backward"],
        10.0,
        "the taps of a channel lie side by side, and so do channels; few of them lie beside those of other rows",
    ),
    (&["recurrence"], 4.0, "short lines of several sequences lie apart"),
    (
        &["gated_delta", "gated_delta_backward"],
        5.0,
        "few threads have a row, and what a step needs is the same for all",
    ),
    (
        &["selective_scan", "selective_scan_backward"],
        20.0,
        "a lane has the rates and the state of a channel of its own, beside those of the next",
    ),
    (
        &[
            "all",
            "any",
            "argmax",
            "argmin",
            "logsumexp",
            "max",
            "mean",
            "min",
            "prod",
            "sum",
            "var",
        ],
        4.0,
        "short rows are taken several at a time",
    ),
];

/// Operations made of several, which copy an array with its axes in another order in between: as in [`SCATTERED`].
const TURNED: &[(&str, f64, &str)] = &[(
    "hadamard_transform",
    28.0,
    "the 12, 20 or 28 parts of a long row are put side by side for the second pass",
)];

/// A buffer of at most this part of the largest one stays in a cache.
const CACHED: u64 = 16;

/// Why the bytes of views are an upper bound, and why their lines are not counted.
const VIEW: &str = "an argument is a view";

/// A launch of a counting build.
pub(crate) struct Counted {
    pub(crate) key: KernelKey,
    pub(crate) cost: KernelCost,
    /// Which memory each binding is.
    pub(crate) places: Vec<usize>,
    pub(crate) report: LaunchReport,
}

impl Counted {
    /// Whether the launch did what its cost says, for a case of an operation with its arguments in a
    /// layout. The reasons why parts of it need not are added.
    pub(crate) fn check(
        &self,
        op: &str,
        layout: Layout,
        traffic: &mut Traffic,
    ) -> Result<(), String> {
        let Counted { key, cost, report, .. } = self;
        let differs = |what: &str, counted: u64, modelled: u64| {
            Err(format!("{key}: {what}: counted {counted}, modelled {modelled}"))
        };
        for (what, counted, modelled) in [
            ("threadgroups", report.groups, cost.group_count()),
            ("threads", report.threads, cost.threads()),
        ] {
            if counted != modelled {
                return differs(what, counted, modelled);
            }
        }
        // Small cases do not fill a tile.
        let touched = report.threadgroup.stored_bytes.max(report.threadgroup.loaded_bytes);
        if touched > cost.workgroup_bytes {
            return differs("bytes of threadgroup memory", touched, cost.workgroup_bytes);
        }
        // A branch that all threads of a group take alike may leave barriers out.
        let barriers = cost.barriers as u64 * cost.group_count();
        if cost.barriers_in_loops == 0 && report.barriers > barriers {
            return differs("barriers", report.barriers, barriers);
        }
        for used in self.uses() {
            let names = [op, key.op];
            let view = layout != Layout::Contiguous && !used.writes;
            used.check(names, view, traffic).map_err(|message| format!("{key}: {message}"))?;
        }
        Ok(())
    }

    /// Loads and stores of each buffer. One that is bound twice is counted as the first of both.
    fn uses(&self) -> Vec<Use<'_>> {
        let mut uses = Vec::new();
        for (i, binding) in self.cost.bindings.iter().enumerate() {
            let same: Vec<_> = (self.cost.bindings.iter().zip(&self.places))
                .filter(|(_, place)| **place == self.places[i])
                .map(|(binding, _)| binding)
                .collect();
            // What went wrong is told in words of four bytes, in few cases.
            let status = binding.atomic && binding.name == "status";
            if status || self.places[..i].contains(&self.places[i]) {
                continue;
            }
            let Some(counts) = self.report.bindings.get(i) else { continue };
            let Counts { load_bytes, load_accesses, load_lines, loaded_bytes, .. } = *counts;
            let Counts { store_bytes, store_accesses, store_lines, stored_bytes, .. } = *counts;
            let used = Use {
                kernel: self.key.op,
                buffer: &binding.name,
                atomic: binding.atomic,
                ..Use::default()
            };
            uses.push(Use {
                modelled: same.iter().map(|binding| binding.bytes_read()).max().unwrap_or(0),
                counted: loaded_bytes,
                moved: load_bytes,
                accesses: load_accesses,
                lines: load_lines,
                ..used
            });
            uses.push(Use {
                writes: true,
                modelled: same.iter().map(|binding| binding.bytes_written()).max().unwrap_or(0),
                counted: stored_bytes,
                moved: store_bytes,
                accesses: store_accesses,
                lines: store_lines,
                ..used
            });
        }
        uses
    }
}

/// What a launch does with a buffer, in one direction.
#[derive(Clone, Copy, Default)]
struct Use<'a> {
    kernel: &'static str,
    buffer: &'a str,
    atomic: bool,
    writes: bool,
    /// Bytes that the cost says are touched.
    modelled: u64,
    /// Bytes that were, each once.
    counted: u64,
    /// Bytes that threads loaded or stored, as often as they did.
    moved: u64,
    /// By simdgroups.
    accesses: u64,
    lines: u64,
}

impl Use<'_> {
    fn check(&self, names: [&str; 2], view: bool, traffic: &mut Traffic) -> Result<(), String> {
        let Use { buffer, modelled, counted, lines, .. } = *self;
        let verb = if self.writes { "written" } else { "read" };
        // Atomic updates count as stores, although the text reads.
        let updated = self.atomic && !self.writes;
        if counted == 0 && (modelled == 0 || updated) {
            return Ok(());
        }
        let part = PARTS.iter().find(|(known, _)| names.iter().any(|name| known.contains(name)));
        let part = part.map(|(_, reason)| *reason);
        let updated = updated.then_some("atomic updates count as stores");
        let bound = updated.or(view.then_some(VIEW)).or(part);
        let whole = counted + PADDED >= modelled;
        if counted > modelled || (!whole && bound.is_none()) {
            return Err(format!(
                "bytes of {buffer} {verb}: counted {counted}, modelled {modelled}"
            ));
        }
        let turned = TURNED.iter().find(|(op, ..)| self.kernel == "fused" && names.contains(op));
        let scattered = SCATTERED.iter().find(|(known, ..)| known.contains(&self.kernel));
        let (limit, reason) = match (turned, scattered) {
            _ if view => (f64::INFINITY, Some(VIEW)),
            (Some((_, limit, reason)), _) | (None, Some((_, limit, reason))) => {
                (*limit, Some(*reason))
            }
            (None, None) => (LINES, None),
        };
        let ratio = self.ratio();
        if ratio > limit {
            return Err(format!(
                "cache lines of {buffer} {verb}: counted {lines}, {ratio:.1} times the best, at most {limit}"
            ));
        }
        // How far apart a view's elements lie is not the kernel's doing.
        let ratio = if view { 0.0 } else { ratio };
        let reasons = [bound.filter(|_| !whole), reason.filter(|_| ratio > LINES)];
        traffic.add(self, whole, ratio, reasons.into_iter().flatten());
        Ok(())
    }

    /// Cache lines touched for each that is needed at best.
    fn ratio(&self) -> f64 {
        let best = self.accesses.max(self.moved.div_ceil(LINE)).max(1);
        self.lines as f64 / best as f64
    }
}

/// The uses of buffers of all launches, by kernel, buffer and direction.
#[derive(Default)]
pub(crate) struct Traffic {
    rows: BTreeMap<(&'static str, String, bool), Row>,
    /// Lines about what was moved against what must be.
    moved: BTreeSet<String>,
}

#[derive(Default)]
struct Row {
    launches: usize,
    /// Launches that touched every byte.
    whole: usize,
    moved: u64,
    counted: u64,
    /// The worst of all launches.
    ratio: f64,
    reasons: BTreeSet<&'static str>,
}

impl Traffic {
    fn add(
        &mut self,
        used: &Use<'_>,
        whole: bool,
        ratio: f64,
        reasons: impl Iterator<Item = &'static str>,
    ) {
        let key = (used.kernel, used.buffer.to_string(), used.writes);
        let row = self.rows.entry(key).or_default();
        row.launches += 1;
        row.whole += usize::from(whole);
        row.moved += used.moved;
        row.counted += used.counted;
        row.ratio = row.ratio.max(ratio);
        row.reasons.extend(reasons);
    }

    /// Whether the launches of a case moved as few bytes as it says.
    pub(crate) fn check_moved(
        &mut self,
        subject: &Subject,
        dtype: DType,
        moves: Moves,
        launches: &[Counted],
    ) -> Result<(), String> {
        let best = (moves.elements * dtype.size()) as u64;
        let uses: Vec<Use<'_>> = launches.iter().flat_map(Counted::uses).collect();
        let largest = uses.iter().map(|used| used.modelled).max().unwrap_or(0);
        let bytes = |used: &Use<'_>| match used.modelled * CACHED <= largest {
            true => used.counted,
            false => used.moved,
        };
        let moved: u64 = uses.iter().map(bytes).sum();
        let (ratio, limit) = (moved as f64 / best as f64, moves.limit);
        let Subject { op, case, .. } = subject;
        let label = &case.label;
        self.moved.insert(format!(
            "| {op} | {label} | {dtype} | {best} | {moved} | {ratio:.2} | {limit} |\n"
        ));
        if ratio > limit {
            return Err(format!("{moved} bytes moved, {ratio:.2} times {best}, at most {limit}"));
        }
        Ok(())
    }

    /// Adds what was seen elsewhere.
    pub(crate) fn merge(&mut self, other: Traffic) {
        self.moved.extend(other.moved);
        for (key, other) in other.rows {
            let row = self.rows.entry(key).or_default();
            row.launches += other.launches;
            row.whole += other.whole;
            row.moved += other.moved;
            row.counted += other.counted;
            row.ratio = row.ratio.max(other.ratio);
            row.reasons.extend(other.reasons);
        }
    }

    /// One line.
    pub(crate) fn summary(&self) -> String {
        let launches: usize = self.rows.values().map(|row| row.launches).sum();
        let whole: usize = self.rows.values().map(|row| row.whole).sum();
        let near = self.rows.values().filter(|row| row.ratio <= LINES).count();
        format!(
            "memory as modelled: of {launches} uses of buffers by launches {whole} touched every byte \
             and the others fewer, with a reason; of {} buffers of kernels {near} were touched in at \
             most {LINES} times the cache lines needed",
            self.rows.len()
        )
    }

    /// The lines of a table of cases and the bytes that their kernels moved.
    pub(crate) fn moved_table(&self) -> String {
        let head = "| operation | case | dtype | bytes at best | moved | times | at most |\n\
                    |---|---|---|---|---|---|---|\n";
        head.to_string() + &Vec::from_iter(self.moved.iter().map(String::as_str)).concat()
    }

    /// The lines of a table.
    pub(crate) fn table(&self) -> String {
        let mut text = String::from(
            "Launches that touch every byte of the buffer, as modelled; how often they load or store each \
             byte they touch; and the cache lines of 128 bytes that a simdgroup touches at once, at \
             most, for each that its bytes would fill.\n\n\
             | kernels of | buffer | launches | every byte | times each byte | lines | why |\n\
             |---|---|---|---|---|---|---|\n",
        );
        for ((kernel, buffer, writes), row) in &self.rows {
            let verb = if *writes { "written" } else { "read" };
            let times = row.moved as f64 / row.counted.max(1) as f64;
            let reasons = Vec::from_iter(row.reasons.iter().copied()).join("; ");
            let Row { launches, whole, ratio, .. } = row;
            text += &format!(
                "| {kernel} | {buffer} {verb} | {launches} | {whole} | {times:.1} | {ratio:.1} | {reasons} |\n"
            );
        }
        text
    }
}

/// Kernels that use memory badly, or otherwise than their cost says.
#[test]
fn what_is_counted_otherwise_than_modelled_is_seen() {
    let cache = match super::metal::open_cache() {
        Ok(cache) => cache,
        Err(reason) if !wootz::testing::ci() => {
            return eprintln!("SKIPPED: {reason}");
        }
        Err(reason) => panic!("{reason}"),
    };
    let text = |statement: &str| {
        format!(
            "@group(0) @binding(0) var<storage, read> x: array<u32>;
             @group(0) @binding(1) var<storage, read_write> y: array<u32>;
             @compute @workgroup_size(64)
             fn main(@builtin(global_invocation_id) id: vec3u) {{ let i = id.x; {statement} }}"
        )
    };
    // Runs 256 threads over 256 words; the cost is that of the second kernel.
    let check = |op: &'static str, run: &str, cost: &str, traffic: &mut Traffic| {
        let kernel = metal_sim::Kernel::wgsl("planted", text(run));
        let build = metal_sim::Build { counting: true, ..Default::default() };
        let library = metal_sim::Library::build(&cache, &[kernel], build).unwrap();
        let launch = metal_sim::Launch {
            kernel: library.kernel("planted").unwrap().clone(),
            params: Vec::new(),
            groups: [4, 1, 1],
            bindings: vec![(0, false), (1, true)],
        };
        let mut memory = vec![vec![0; 1024]; 2];
        let mut worker = metal_sim::Worker::new(&cache).unwrap();
        let report = worker.run(&[launch], &mut memory, metal_sim::Order::Forward).unwrap();
        let cost = KernelCost::of("planted", &text(cost)).unwrap();
        let counted = Counted {
            key: KernelKey::new(op, "planted"),
            cost: cost.launched([4, 1, 1], &[1024, 1024]),
            places: vec![0, 1],
            report: report.launches[0].clone(),
        };
        counted.check(op, Layout::Contiguous, traffic)
    };
    let mut traffic = Traffic::default();
    let good = "y[i] = x[i];";
    assert_eq!(check("add", good, good, &mut traffic), Ok(()));
    assert!(
        traffic.table().contains("| add | x read | 1 | 1 | 1.0 | 1.0 |  |"),
        "{}",
        traffic.table()
    );
    // Every word once, but eight lines apart.
    let far = "y[i] = x[i % 8u * 32u + i / 8u];";
    let half = "y[i] = x[i / 2u];";
    let few = "if (i < 128u) { y[i] = i; }";
    for (run, cost, message) in [
        (far, far, "cache lines of x read: counted 64, 8.0 times the best, at most 2"),
        (half, half, "bytes of x read: counted 512, modelled 1024"),
        (few, few, "bytes of y written: counted 512, modelled 1024"),
        (good, few, "bytes of x read: counted 1024, modelled 0"),
    ] {
        let outcome = check("add", run, cost, &mut traffic);
        assert_eq!(outcome, Err(format!("add/planted: {message}")));
    }
    // Listed kernels may, and the table says why.
    assert_eq!(check("gather", far, far, &mut traffic), Ok(()));
    assert_eq!(check("gather", half, half, &mut traffic), Ok(()));
    let row = "| gather | x read | 2 | 1 | 1.3 | 8.0 | lanes read what indices name; reads what";
    assert!(traffic.table().contains(row), "{}", traffic.table());
}
