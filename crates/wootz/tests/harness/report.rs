//! What ran, as the table `docs/ops.md`, and what failed, as text.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use wootz::DType;
use wootz::op::Tolerance;

use super::gpu::Work;
use super::transforms::Transform;
use super::{Failure, Log, Subject};

/// Operations that must run as one kernel operation on a GPU, whatever their arguments.
#[rustfmt::skip]
const KERNELS: &[&str] = &[
    "abs", "add", "add_layer_norm", "add_rms_norm", "addmm", "all", "any", "arange", "arccos", "arccosh", "arcsin",
    "arcsinh", "arctan", "arctan2", "arctanh", "argmax", "argmin", "argpartition", "argsort", "astype",
    "attention_backward", "attention_backward_d", "attention_backward_mask", "bitwise_and", "bitwise_invert",
    "bitwise_or", "bitwise_xor", "causal_conv1d", "ceil", "clip", "combine_experts", "combine_experts_backward",
    "complex", "concatenate", "conjugate", "conv1d", "conv2d", "conv3d", "conv_backward_weight", "conv_general", "conv_transpose1d",
    "conv_transpose2d", "conv_transpose3d", "convolve", "copy", "cos", "cosh", "cross_entropy",
    "cross_entropy_backward", "cummax", "cummin", "cumprod", "cumsum", "degrees", "dequantize", "divide", "equal",
    "erf", "erfinv", "exp", "expm1", "floor", "floor_divide", "gated_delta", "gated_delta_backward", "gather",
    "gather_mm", "gather_mm_backward", "gather_qmm", "geglu", "geglu_approx", "gelu", "gelu_approx",
    "gelu_fast_approx", "greater", "greater_equal", "group_norm", "group_norm_backward", "hadamard_transform",
    "imag", "isfinite", "isinf", "isnan", "isneginf", "isposinf", "kl_divergence", "kl_divergence_backward",
    "l2_norm", "l2_norm_backward", "layer_norm", "layer_norm_backward", "left_shift", "less", "less_equal", "log",
    "log10", "log1p", "log2", "log_sigmoid", "logaddexp", "logcumsumexp", "logical_and", "logical_not",
    "logical_or", "logical_xor", "logsumexp", "matmul", "max", "maximum", "mean", "min", "minimum", "mish",
    "multiply", "nan_to_num", "negative", "normal_cdf", "not_equal", "pad", "power", "prod", "put_along_axis", "quantize",
    "quantized_attention", "quantized_matmul", "radians", "random_bits", "real", "reciprocal", "relu", "relu2",
    "remainder", "repeat", "right_shift", "rint", "rms_inv", "rms_norm", "rms_norm_add", "rms_norm_add_rms_norm",
    "rms_norm_backward", "rms_norm_backward_dw", "rms_norm_backward_dx", "rope", "rope_append", "round", "router",
    "rsqrt", "scaled_dot_product_attention", "scatter", "searchsorted", "selective_scan", "selective_scan2",
    "selective_scan_backward", "sigmoid", "sign", "silu", "sin", "sinh", "slice_update", "softcap", "softmax",
    "softmax_backward", "softplus", "sort", "sqrt", "square", "stack", "subtract", "sum", "swiglu", "take",
    "take_along_axis", "take_along_axis_backward", "tan", "tanh", "tile", "topk", "trunc", "var",
    "where",
];

/// Cases of kernels that take another operation first, and why.
const PREPARED: &[(&str, &[&str], &str)] = &[
    ("argsort", &["middle axis"], "another axis than the last is made row-major first"),
    (
        "gated_delta",
        &[
            "17 steps",
            "255 steps",
            "a gate for each key",
            "heads that share keys",
            "more than a block of rows",
            "one step",
            "several chunks",
            "several chunks, a gate for each key",
        ],
        "heads are put before steps, and gates widened",
    ),
    ("gather", &["windows"], "starts of windows of several elements become one index for each"),
    (
        "gather_mm",
        &["batches", "large tiles", "matrices", "nothing to sum", "one column"],
        "indices of two types become those of one",
    ),
    (
        "gather_mm",
        &[
            "1025 tokens",
            "experts",
            "experts, more than a tile",
            "packed weights",
            "weights that are read once",
        ],
        "indices that are not given are counted, and what is broadcast is copied, of the indices",
    ),
    ("gather_qmm", &["many rows"], "indices of two types become those of one"),
    (
        "gather_qmm",
        &["rows of weights", "experts"],
        "what is broadcast is copied first, of the indices",
    ),
    (
        "hadamard_transform",
        &["8192, scaled", "2 × 5120", "2 × 6144", "2 × 7168"],
        "what a workgroup's memory does not hold is transformed in two passes",
    ),
    ("pad", &["edge", "reflect", "symmetric"], "of the array's own elements axis after axis"),
    ("put_along_axis", &["first, broadcast", "flat"], "what is broadcast is copied first"),
    ("quantized_matmul", &["batch"], "indices choose the weights that a batch shares"),
    (
        "router",
        &["softmax of scores far apart", "sigmoids of scores far apart"],
        "the case makes its logits of numbers that it multiplies",
    ),
    (
        "router",
        &["more experts than a workgroup holds"],
        "a workgroup holds 1,024 experts; of more, sorting finds the best",
    ),
    ("selective_scan", &["nothing"], "without steps there is nothing to walk through"),
    (
        "selective_scan2",
        &["17 steps", "255 steps", "from a state, groups", "from zeros", "several chunks"],
        "rates become decays and heads are put before steps; what is skipped is added behind",
    ),
    ("softmax", &["axis 0"], "another axis than the last is made row-major first"),
    ("sort", &["first axis"], "another axis than the last is made row-major first"),
    ("take_along_axis", &["first, broadcast"], "what is broadcast is copied first"),
    ("topk", &["largest"], "another axis than the last is made row-major first"),
];

/// What ran for one operation.
#[derive(Default)]
struct Row {
    cases: usize,
    checks: usize,
    dtypes: BTreeSet<DType>,
    work: Option<Work>,
    /// Cases that took more than one kernel operation.
    composed: BTreeSet<String>,
    /// Those that may, with the reasons.
    prepared: BTreeSet<(String, &'static str)>,
    transforms: BTreeSet<(Transform, &'static str)>,
    reference: bool,
    exceptions: BTreeSet<String>,
}

impl Row {
    /// What a transform was found to do; a case without floats says nothing beside one with.
    fn of(&self, transform: Transform) -> String {
        let found = self.transforms.iter().filter(|(of, _)| *of == transform);
        let mut words: Vec<&str> = found.map(|(_, what)| *what).collect();
        if words.len() > 1 {
            words.retain(|word| *word != "—");
        }
        words.join(", ")
    }
}

/// Everything that ran.
#[derive(Default)]
pub(crate) struct Report {
    rows: BTreeMap<&'static str, Row>,
    pub(crate) failures: Vec<Failure>,
}

impl Report {
    pub(crate) fn subject(&mut self, subject: &Subject) {
        let row = self.rows.entry(subject.op).or_default();
        let case = &subject.case;
        row.cases += 1;
        row.dtypes.extend(case.dtypes);
        row.reference |= subject.reference.is_some();
        match case.tolerance {
            Tolerance::Because(factor, reason) => {
                row.exceptions.insert(format!("×{factor} in single precision: {reason}"));
            }
            Tolerance::Twice(reason) => {
                row.exceptions.insert(format!("two roundings: {reason}"));
            }
            Tolerance::Rounded(factor, reason) => {
                row.exceptions.insert(format!("×{factor}: {reason}"));
            }
            _ => {}
        }
    }

    pub(crate) fn add(&mut self, log: Log, work: Option<Work>) {
        let row = self.rows.entry(log.op).or_default();
        row.checks += log.checks;
        row.transforms.extend(log.transforms);
        let prepared = |(op, cases, _): &&(&str, &[&str], &str)| {
            *op == log.op && cases.contains(&&log.case[..])
        };
        match PREPARED.iter().find(prepared) {
            Some((_, _, reason)) if work == Some(Work::Composed) => {
                row.work = row.work.max(Some(Work::Kernel));
                row.prepared.insert((log.case, reason));
            }
            _ => {
                row.work = row.work.max(work);
                if work > Some(Work::Kernel) {
                    row.composed.insert(log.case);
                }
            }
        }
        self.failures.extend(log.failures);
    }

    /// The checks that ran.
    pub(crate) fn checks(&self) -> usize {
        self.rows.values().map(|row| row.checks).sum()
    }

    /// Operations that must be kernels and are not. In a run of all, the unknown ones too.
    pub(crate) fn not_kernels(&self, all: bool) -> Vec<Failure> {
        let failure = |&op: &&'static str| {
            let message = match self.rows.get(op) {
                Some(Row { work: Some(Work::Kernel), .. }) => return None,
                Some(row) => {
                    format!("must be a kernel, is {:?} in cases {:?}", row.work, row.composed)
                }
                None if all => "must be a kernel, and is not registered".into(),
                None => return None,
            };
            Some(Failure { op, place: "gpu".into(), message })
        };
        let stale = |(op, cases, _): &(&'static str, &[&str], &str)| {
            let row = self.rows.get(op).filter(|row| row.work.is_some())?;
            let stale = cases.iter().find(|case| row.prepared.iter().all(|had| had.0 != **case))?;
            let message = format!("case '{stale}' takes one operation and has a reason for more");
            Some(Failure { op, place: "gpu".into(), message })
        };
        KERNELS.iter().filter_map(failure).chain(PREPARED.iter().filter_map(stale)).collect()
    }

    /// Operations of which it is not known what a transform does.
    pub(crate) fn untransformed(&self) -> Vec<Failure> {
        let unknown = |(op, row): (&&'static str, &Row)| {
            let missing = Transform::ALL.into_iter().filter(|t| row.of(*t).is_empty());
            let failure = |transform| Failure {
                op,
                place: format!("{transform:?}"),
                message: "was not checked for any case".into(),
            };
            missing.map(failure).collect::<Vec<_>>()
        };
        self.rows.iter().flat_map(unknown).collect()
    }

    /// The table.
    pub(crate) fn table(&self) -> String {
        let mut text = String::from(
            "# Operations\n\n\
             Written by the test harness from what ran (`cargo xtask docs` copies it here).\n\n\
             - GPU: `kernel`, one operation ran, a node or a fused run, maybe with views around it;\n  \
             `composed`, several ran one after the other; `view`, no element moves; `host`, bytes\n  \
             went through the host. Counted by the device; of several cases the worst counts, but for\n  \
             those listed below that take another operation first.\n\
             - vjp: `yes`, checked in float64 against finite differences and in every float dtype on\n  \
             both devices; `zero`, piecewise constant; `none`, asking is an error; `—`, no float\n  \
             argument. jvp: as vjp, and checked to be its transpose. Second order: the gradient of the\n  \
             gradient against finite differences.\n\
             - vmap: `yes`, a batch, and its gradients, compared with a loop, along the first and the last\n  \
             axis and with each argument alone a batch; `—`, no argument.\n\
             - Reference: compared with naive loops in float64 that share no code with the kernels.\n\n\
             | Operation | GPU | Dtypes | vjp | jvp | vmap | Second order | Reference | Cases | Checks |\n\
             |---|---|---|---|---|---|---|---|---|---|\n",
        );
        for (name, row) in &self.rows {
            let work = match row.work {
                Some(Work::View) => "view",
                Some(Work::Kernel) => "kernel",
                Some(Work::Composed) => "composed",
                Some(Work::Host) => "host",
                None => "—",
            };
            let transforms = Transform::ALL.map(|transform| row.of(transform)).join(" | ");
            let _ = writeln!(
                text,
                "| {name} | {work} | {} | {transforms} | {} | {} | {} |",
                dtypes(&row.dtypes),
                if row.reference { "yes" } else { "—" },
                row.cases,
                row.checks,
            );
        }
        let exceptions: Vec<_> =
            self.rows.iter().filter(|(_, row)| !row.exceptions.is_empty()).collect();
        if !exceptions.is_empty() {
            text.push_str("\n## Wider tolerances\n\n");
            for (name, row) in exceptions {
                for exception in &row.exceptions {
                    let _ = writeln!(text, "- {name}: {exception}");
                }
            }
        }
        let prepared: Vec<_> =
            self.rows.iter().filter(|(_, row)| !row.prepared.is_empty()).collect();
        if !prepared.is_empty() {
            text.push_str("\n## Kernels that take another operation first\n\n");
            for (name, row) in prepared {
                for (case, reason) in &row.prepared {
                    let _ = writeln!(text, "- {name}, case '{case}': {reason}");
                }
            }
        }
        text
    }

    /// The failures, at most some for each operation.
    pub(crate) fn failures_text(&self, most: usize) -> String {
        let mut by_op: BTreeMap<&str, Vec<&Failure>> = BTreeMap::new();
        for failure in &self.failures {
            by_op.entry(failure.op).or_default().push(failure);
        }
        let mut text = String::new();
        for (op, failures) in by_op {
            let _ = writeln!(text, "\n{op}: {} failures", failures.len());
            for Failure { place, message, .. } in failures.iter().take(most) {
                let _ = writeln!(text, "  {place}: {message}");
            }
        }
        text
    }
}

/// Dtypes in words: whole families by their name.
fn dtypes(set: &BTreeSet<DType>) -> String {
    let mut left = set.clone();
    let mut words = Vec::new();
    let families = [
        ("every", wootz::op::EVERY),
        ("integers", wootz::op::INTEGERS),
        ("floats", wootz::op::FLOATS),
    ];
    for (word, family) in families {
        if family.iter().all(|dtype| left.contains(dtype)) {
            words.push(word.to_string());
            left.retain(|dtype| !family.contains(dtype));
        }
    }
    words.extend(left.iter().map(|dtype| dtype.to_string()));
    words.join(", ")
}
