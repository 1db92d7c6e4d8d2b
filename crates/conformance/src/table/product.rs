//! Products of matrices.

use super::{one, rows};
use crate::call::Refusal;

rows! {
    "block_masked_mm" => |c| one(wootz::block_masked_mm(
        &c.array("a")?,
        &c.array("b")?,
        c.size("block_size")?,
        c.array_opt("mask_out")?.as_ref(),
        c.array_opt("mask_lhs")?.as_ref(),
        c.array_opt("mask_rhs")?.as_ref(),
    )),
    "einsum" => |c| one(wootz::einsum(c.word("subscripts")?, &c.arrays("operands")?)),
    "kron" => |c| one(wootz::kron(&c.array("a")?, &c.array("b")?)),
    "segmented_mm" => |c| {
        one(wootz::segmented_mm(&c.array("a")?, &c.array("b")?, &c.array("segments")?))
    },
    "vecdot" => |c| one(wootz::vecdot(&c.array("a")?, &c.array("b")?, c.int("axis")?)),
    "hadamard_transform" => |c| {
        let scale = if c.has("scale") { Some(c.float("scale")?) } else { None };
        c.ignore("scale");
        one(wootz::hadamard_transform(&c.array("a")?, scale))
    },
    "addmm" => |c| one(wootz::addmm(
        &c.array("c")?,
        &c.array("a")?,
        &c.array("b")?,
        c.float("alpha")?,
        c.float("beta")?,
    )),
    "gather_mm" => |c| one(wootz::gather_mm(
        &c.array("a")?,
        &c.array("b")?,
        c.array_opt("lhs_indices")?.as_ref(),
        c.array_opt("rhs_indices")?.as_ref(),
        c.flag("sorted_indices")?,
    )),
    "inner" => |c| one(wootz::inner(&c.array("a")?, &c.array("b")?)),
    "matmul" => |c| one(wootz::matmul(&c.array("a")?, &c.array("b")?)),
    "outer" => |c| one(wootz::outer(&c.array("a")?, &c.array("b")?)),
    "tensordot" => |c| {
        let (a, b) = (c.array("a")?, c.array("b")?);
        if !c.is_list("axes") {
            return one(wootz::tensordot(&a, &b, c.size("axes")?));
        }
        let lists = c.value("axes").cloned().unwrap_or_default();
        let [of_a, of_b]: [Vec<i64>; 2] = serde_json::from_value(lists)
            .map_err(|error| Refusal::Unknown(format!("axes: {error}")))?;
        one(wootz::tensordot_axes(&a, &b, &of_a, &of_b))
    },
}
