//! The table of operations: MLX's name, and the call of wootz that it means. One file a family;
//! an operation is one row.

mod creation;
mod elementwise;
mod fft;
mod indexing;
mod linalg;
mod movement;
mod nn;
mod optimizers;
mod product;
mod quantized;
mod random;
mod reduce;
mod sort;

use wootz::Array;

use crate::call::{Call, Outcome};

/// Calls one operation with a case's arguments.
pub type Row = fn(&Call<'_>) -> Outcome;

const FAMILIES: &[fn(&str) -> Option<Row>] = &[
    creation::row,
    elementwise::row,
    fft::row,
    indexing::row,
    linalg::row,
    movement::row,
    nn::row,
    optimizers::row,
    product::row,
    quantized::row,
    random::row,
    reduce::row,
    sort::row,
];

/// The row of an operation.
pub fn find(op: &str) -> Option<Row> {
    FAMILIES.iter().find_map(|family| family(op))
}

/// A family: rows of `"name" => |call| results`, and where to look for others.
macro_rules! rows {
    ($($name:literal => $row:expr,)* $(otherwise $more:ident)?) => {
        /// The row of an operation of this family.
        pub(super) fn row(op: &str) -> Option<$crate::table::Row> {
            match op {
                $($name => Some($row),)*
                _ => $crate::table::rows!(@more op $($more)?),
            }
        }
    };
    (@more $op:ident $more:ident) => { $more($op) };
    (@more $op:ident) => { None };
}
use rows;

/// The results of a function with one output.
fn one(array: wootz::Result<Array>) -> Outcome {
    Ok(vec![array?])
}

/// The results of a function with several.
fn many(arrays: wootz::Result<impl IntoIterator<Item = Array>>) -> Outcome {
    Ok(arrays?.into_iter().collect())
}
