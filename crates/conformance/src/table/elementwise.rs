//! Functions of each element.

use super::{one, rows};

rows! {
    "add" => |c| one(wootz::add(c.arg("a")?, c.arg("b")?)),
    "astype" => |c| one(wootz::astype(&c.array("a")?, c.dtype("dtype")?)),
    "divide" => |c| one(wootz::divide(c.arg("a")?, c.arg("b")?)),
    "equal" => |c| one(wootz::equal(c.arg("a")?, c.arg("b")?)),
    "exp" => |c| one(wootz::exp(c.arg("a")?)),
    "multiply" => |c| one(wootz::multiply(c.arg("a")?, c.arg("b")?)),
    "negative" => |c| one(wootz::negative(c.arg("a")?)),
    "remainder" => |c| one(wootz::remainder(c.arg("a")?, c.arg("b")?)),
    "square" => |c| one(wootz::square(c.arg("a")?)),
    "subtract" => |c| one(wootz::subtract(c.arg("a")?, c.arg("b")?)),
}
