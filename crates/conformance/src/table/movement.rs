//! Operations that rearrange elements.

use wootz::Array;

use super::{one, rows};
use crate::call::Refusal;

rows! {
    "broadcast_to" => |c| one(wootz::broadcast_to(&c.array("a")?, &c.shape("shape")?)),
    "reshape" => |c| {
        let a = c.array("a")?;
        one(wootz::reshape(&a, &inferred(&a, &c.ints("shape")?)?))
    },
    "transpose" => |c| one(match c.ints_opt("axes")? {
        None => wootz::transpose(&c.array("a")?),
        Some(axes) => wootz::transpose_axes(&c.array("a")?, &axes),
    }),
}

/// A shape in which one length may be -1, to be inferred from the number of elements.
fn inferred(a: &Array, shape: &[i64]) -> Result<Vec<usize>, Refusal> {
    let known: i64 = shape.iter().filter(|&&length| length != -1).product();
    let rest = if known == 0 { 0 } else { a.size() as i64 / known };
    let length = |&length: &i64| if length == -1 { rest } else { length };
    shape.iter().map(length).map(|length| crate::call::sayable("shape", length)).collect()
}
