//! The table of operations: MLX's name, and the call of wootz that it means. One file a family;
//! an operation is one row.

mod elementwise;
mod movement;

use wootz::Array;

use crate::call::{Call, Outcome, Refusal};

/// Calls one operation with a case's arguments.
pub type Row = fn(&Call<'_>) -> Outcome;

/// The row of an operation.
pub fn find(op: &str) -> Option<Row> {
    let families: [fn(&str) -> Option<Row>; 2] = [elementwise::row, movement::row];
    families.iter().find_map(|family| family(op))
}

/// A family: rows of `"name" => |call| results`.
macro_rules! rows {
    ($($name:literal => $row:expr,)*) => {
        /// The row of an operation of this family.
        pub(super) fn row(op: &str) -> Option<$crate::table::Row> {
            match op {
                $($name => Some($row),)*
                _ => None,
            }
        }
    };
}
use rows;

/// The results of a function with one output.
fn one(array: wootz::Result<Array>) -> Outcome {
    Ok(vec![array?])
}

/// The results of a function with several.
#[allow(dead_code)]
fn many(arrays: wootz::Result<impl IntoIterator<Item = Array>>) -> Outcome {
    Ok(arrays?.into_iter().collect())
}

/// A call whose axis may be null, which means the flattened array.
#[allow(dead_code)]
fn flattened(c: &Call<'_>, name: &str) -> Result<(Array, i64), Refusal> {
    let array = c.array(name)?;
    match c.int_opt("axis")? {
        Some(axis) => Ok((array, axis)),
        None => Ok((wootz::reshape(&array, &[array.size()])?, 0)),
    }
}
