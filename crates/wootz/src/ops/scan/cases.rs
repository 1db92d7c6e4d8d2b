//! Cases of the scans.

use super::*;
use crate::op::{Case, EVERY, Entry, FLOATS, Tolerance};

/// Cases: both directions, with and without the own element, any axis, more than one chunk.
pub(crate) fn entries() -> Vec<Entry> {
    let entry = |row: &'static Row| {
        let case = |label: &str, shape: &[usize], axis: Axes, reverse, inclusive| {
            let range = if row.start == Start::One { 0.5..1.5 } else { -2.0..2.0 };
            Case::new(label, &[shape], move |x| {
                Ok(vec![apply(row, &x[0], &axis, reverse, inclusive)?])
            })
            .range(range)
            .dtypes(if row.float { FLOATS } else { EVERY })
            .tolerance(Tolerance::Reduction)
        };
        let mut cases = vec![
            case("flattened", &[2, 3], Axes::All, false, true),
            case("last axis", &[3, 5], (-1).into(), false, true),
            case("reverse", &[2, 5, 3], 1.into(), true, true),
            case("exclusive", &[4, 3], 0.into(), false, false),
            case("reverse exclusive", &[2, 7], 1.into(), true, false),
            case("empty", &[0, 3], 1.into(), false, true),
            case("single", &[1], 0.into(), false, true),
        ];
        if row.start != Start::One {
            cases.push(case("long", &[2, 515], 1.into(), false, true));
        }
        Entry { name: row.name, cases }
    };
    ROWS.iter().map(entry).chain(super::diff::entries()).collect()
}
