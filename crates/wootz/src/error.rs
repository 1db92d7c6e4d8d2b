//! The one error type of the crate. Every variant carries what a caller needs to act on it:
//! the operation, the argument, what was expected and what was given.

use std::fmt::Display;
use std::sync::Arc;

use crate::array::DType;

/// `Result` with [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that can go wrong. Cheap to clone, because a failed evaluation is reported to every
/// array that depended on it.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An argument's shape does not fit the operation.
    #[error("[{op}] {argument}: expected shape {expected}, got {got}")]
    Shape {
        /// The operation.
        op: &'static str,
        /// The argument's name.
        argument: String,
        /// What would have been accepted.
        expected: String,
        /// What was given.
        got: String,
    },
    /// An argument's dtype is not accepted by the operation.
    #[error("[{op}] {argument}: expected dtype {expected}, got {got}")]
    Dtype {
        /// The operation.
        op: &'static str,
        /// The argument's name.
        argument: String,
        /// What would have been accepted.
        expected: String,
        /// What was given.
        got: DType,
    },
    /// An axis is outside the array's rank, or named twice.
    #[error("[{op}] {argument}: axis {got} is not valid for an array of rank {rank}")]
    Axis {
        /// The operation.
        op: &'static str,
        /// The argument's name.
        argument: String,
        /// The axis given.
        got: i64,
        /// The array's rank.
        rank: usize,
    },
    /// An index is outside its axis.
    #[error("[{op}] {argument}: index {got} is out of range for an axis of length {length}")]
    Index {
        /// The operation.
        op: &'static str,
        /// The argument's name.
        argument: String,
        /// The offending index.
        got: i64,
        /// The length of the axis.
        length: usize,
    },
    /// An argument's value is not acceptable for any other reason.
    #[error("[{op}] {argument}: expected {expected}, got {got}")]
    Argument {
        /// The operation.
        op: &'static str,
        /// The argument's name.
        argument: String,
        /// What would have been accepted.
        expected: String,
        /// What was given.
        got: String,
    },
    /// The number of elements or bytes does not fit the machine's or the device's integers.
    #[error("[{op}] {argument}: size overflow, {got} exceeds {limit}")]
    SizeOverflow {
        /// The operation.
        op: &'static str,
        /// The argument's name.
        argument: String,
        /// The size asked for, as text because it may not fit an integer.
        got: String,
        /// The largest size possible.
        limit: u64,
    },
    /// A reduction over nothing that has no identity, such as the maximum of an empty array.
    #[error("[{op}] cannot reduce an axis of length 0: {op} has no identity (shape {shape})")]
    NoIdentity {
        /// The operation.
        op: &'static str,
        /// The shape reduced.
        shape: String,
    },
    /// Arrays of different devices met in one operation.
    #[error("[{op}] {argument}: expected an array on {expected}, got one on {got}")]
    DeviceMismatch {
        /// The operation.
        op: &'static str,
        /// The argument's name.
        argument: String,
        /// The device of the other arguments.
        expected: String,
        /// The device of this argument.
        got: String,
    },
    /// The operation has no kernel on the device.
    #[error("[{op}] no kernel on {device}: {reason}")]
    NotOnDevice {
        /// The operation.
        op: &'static str,
        /// The device.
        device: String,
        /// Why, and what to do about it.
        reason: String,
    },
    /// The operation has no derivative.
    #[error("[{op}] not differentiable by {transform}: {reason}")]
    NotDifferentiable {
        /// The operation.
        op: &'static str,
        /// `vjp`, which gradients are made by, or `jvp`.
        transform: &'static str,
        /// Why.
        reason: &'static str,
    },
    /// The device asked for does not exist or cannot be opened.
    #[error("no such device: {wanted} ({reason})")]
    NoDevice {
        /// What was asked for.
        wanted: String,
        /// Why it is not there.
        reason: String,
    },
    /// The driver lacks something the operation or device needs.
    #[error("{device} lacks {feature}, which {needed_by} needs")]
    MissingFeature {
        /// The device.
        device: String,
        /// The feature.
        feature: String,
        /// Who needs it.
        needed_by: String,
    },
    /// The device was lost. Arrays of other devices remain usable.
    #[error("device lost: {device}: {reason}")]
    DeviceLost {
        /// The device.
        device: String,
        /// The driver's words.
        reason: String,
    },
    /// An allocation would pass the memory limit, or the system refused it.
    #[error(
        "out of memory on {device}: {requested} bytes requested, {active} in use, limit {limit}"
    )]
    OutOfMemory {
        /// The device.
        device: String,
        /// Bytes requested.
        requested: u64,
        /// Bytes in use.
        active: u64,
        /// The limit in force.
        limit: u64,
    },
    /// A GPU kernel was rejected by the shader compiler or the driver.
    #[error("[{op}] kernel {kernel} does not compile: {message}")]
    Kernel {
        /// The operation.
        op: &'static str,
        /// The kernel's key.
        kernel: String,
        /// The compiler's message.
        message: String,
    },
    /// The GPU rejected a command for a reason that is a defect of this library.
    #[error("GPU command rejected: {message}")]
    Gpu {
        /// The driver's message.
        message: String,
    },
    /// A transform was used on something it does not apply to.
    #[error("[{transform}] {reason}")]
    Transform {
        /// `grad`, `vjp`, ….
        transform: &'static str,
        /// Why.
        reason: String,
    },
    /// Named arrays do not fit the structure they are meant for.
    #[error("[{op}] {}", keys(missing, unexpected, mismatched))]
    Keys {
        /// What was to be done with them.
        op: &'static str,
        /// Names that the structure has and the arrays lack.
        missing: Vec<String>,
        /// Names that the arrays have and the structure lacks.
        unexpected: Vec<String>,
        /// Names whose shapes or dtypes differ, with both.
        mismatched: Vec<String>,
    },
    /// A file does not hold what its format promises.
    #[error("{path}: {reason}")]
    Format {
        /// The path.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A file could not be read or written.
    #[error("{path}: {source}")]
    Io {
        /// The path.
        path: String,
        /// The system's error.
        source: Arc<std::io::Error>,
    },
}

impl Error {
    /// A shape error.
    pub fn shape(
        op: &'static str,
        argument: impl Into<String>,
        expected: impl Into<String>,
        got: &[usize],
    ) -> Self {
        let (argument, expected) = (argument.into(), expected.into());
        Error::Shape { op, argument, expected, got: format!("{got:?}") }
    }

    /// A dtype error.
    pub fn dtype(
        op: &'static str,
        argument: impl Into<String>,
        expected: impl Display,
        got: DType,
    ) -> Self {
        Error::Dtype { op, argument: argument.into(), expected: expected.to_string(), got }
    }

    /// The error of an operation without a gradient.
    pub fn not_differentiable(op: &'static str, reason: &'static str) -> Self {
        Error::NotDifferentiable { op, transform: "vjp", reason }
    }

    /// The same error, met by another transform.
    pub(crate) fn in_transform(self, transform: &'static str) -> Self {
        match self {
            Error::NotDifferentiable { op, reason, .. } => {
                Error::NotDifferentiable { op, transform, reason }
            }
            other => other,
        }
    }

    /// An error about an argument's value.
    pub fn argument(
        op: &'static str,
        argument: impl Into<String>,
        expected: impl Display,
        got: impl Display,
    ) -> Self {
        let argument = argument.into();
        Error::Argument { op, argument, expected: expected.to_string(), got: got.to_string() }
    }

    /// The same, of an argument that is part of what has a name.
    pub(crate) fn within(mut self, name: &str) -> Self {
        if let Error::Shape { argument, .. }
        | Error::Dtype { argument, .. }
        | Error::Argument { argument, .. } = &mut self
        {
            *argument = format!("{name}.{argument}");
        }
        self
    }
}

/// The lists that are not empty, each with its heading.
fn keys(missing: &[String], unexpected: &[String], mismatched: &[String]) -> String {
    let lists = [("missing", missing), ("unexpected", unexpected), ("mismatching", mismatched)];
    let said = lists.iter().filter(|(_, names)| !names.is_empty());
    said.map(|(what, names)| format!("{what}: {}", names.join(", "))).collect::<Vec<_>>().join("; ")
}
