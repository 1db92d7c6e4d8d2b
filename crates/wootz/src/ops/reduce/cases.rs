//! Cases of the reductions.

use super::*;
use crate::op::{Case, EVERY, Entry, FLOATS, Gradient, Tolerance};

/// Cases: every axis and several, one output and many, lengths around lanes, tiles and blocks.
pub(crate) fn entries() -> Vec<Entry> {
    let shapes: &[(&[usize], Axes)] = &[
        (&[3, 5], Axes::All),
        (&[3, 5], 0.into()),
        (&[3, 5], (-1).into()),
        (&[2, 3, 4, 5], [0, 2].into()),
        (&[2, 3, 4, 5], [1, 3].into()),
        (&[7, 1, 33], 2.into()),
        (&[33, 9], 0.into()),
        (&[], Axes::All),
        (&[1], 0.into()),
        (&[2, 0], 0.into()),
    ];
    let long: &[(&[usize], Axes)] =
        &[(&[4097], Axes::All), (&[2, 4099], 1.into()), (&[4099, 2], 0.into())];
    let mut entries = Vec::new();
    for row in ROWS.iter().chain([&ARGMAX, &ARGMIN, &LOGSUMEXP, &moments::MEAN, &moments::VAR]) {
        let product = row.name == "prod";
        let mut cases = Vec::new();
        for (shape, axes) in shapes.iter().chain(long) {
            let arg = row.output == Output::Index;
            let several = matches!(axes, Axes::These(axes) if axes.len() > 1);
            let empty = shape.contains(&0) && row.empty == Empty::Nothing;
            if (arg && several) || empty || (product && shape.contains(&4099)) {
                continue;
            }
            let keepdims = shape.len() == 4;
            let float = matches!(row.name, "logsumexp" | "mean" | "var");
            let call = {
                let axes = axes.clone();
                move |x: &[Array]| {
                    let x = &x[0];
                    Ok(vec![if arg {
                        arg_reduce(row, x, axes.clone(), keepdims)?
                    } else {
                        match row.name {
                            "logsumexp" => logsumexp(x, axes.clone(), keepdims)?,
                            "var" => var(x, axes.clone(), keepdims, 0)?,
                            _ => apply(row, x, &axes, keepdims)?,
                        }
                    }])
                }
            };
            let exact = matches!(row.name, "max" | "min" | "all" | "any" | "argmax" | "argmin");
            // A long product of numbers away from 1 leaves the range of the type.
            let range = match product {
                true if shape.iter().product::<usize>() > 1000 => 0.999..1.001,
                true => 0.5..1.5,
                false => -2.0..2.0,
            };
            cases.push(
                Case::new(format!("{shape:?} over {axes:?}"), &[*shape], call)
                    .range(range)
                    .dtypes(if float { FLOATS } else { EVERY })
                    .tolerance(if exact { Tolerance::Exact } else { Tolerance::Reduction })
                    .gradient(match row.vjp {
                        Some(_) => Gradient::Checked,
                        None => Gradient::Zero,
                    }),
            );
        }
        if row.name == "var" {
            cases.push(
                Case::new("unbiased", &[&[4, 5, 3]], |x| Ok(vec![var(&x[0], 1, true, 1)?]))
                    .tolerance(Tolerance::Reduction),
            );
        }
        entries.push(Entry { name: row.name, cases });
    }
    let composed = |label: &str, call: fn(&Array) -> Result<Array>| {
        Case::new(label, &[&[4, 5, 3]], move |x| Ok(vec![call(&x[0])?]))
            .tolerance(Tolerance::Reduction)
    };
    entries.extend([
        Entry { name: "std", cases: vec![composed("last axis", |x| std(x, -1, false, 0))] },
        Entry {
            name: "count_nonzero",
            cases: vec![
                composed("last axis", |x| count_nonzero(x, -1, false)).gradient(Gradient::Zero),
            ],
        },
        Entry {
            name: "minmax",
            cases: vec![
                Case::new("first axis", &[&[4, 5]], |x| {
                    let (low, high) = minmax(&x[0], 0, false)?;
                    Ok(vec![low, high])
                })
                .tolerance(Tolerance::Exact),
            ],
        },
    ]);
    entries
}
