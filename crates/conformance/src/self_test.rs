//! The runner's own test: expectations of cases that pass are corrupted, and every corruption must
//! be noticed.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::Value;
use wootz::{DType, Device};

use crate::case::{Case, Class, Expected, Folder, Tolerance};
use crate::execute::{Verdict, judge};
use crate::tensor::{Kind, Tensor, Wide};

/// Runs the passing cases of a folder with each corruption. Returns a summary, and the corruptions
/// that went unnoticed.
pub fn self_test(folder: &Folder, device: &Device) -> (String, Vec<String>) {
    let _quiet = crate::QuietPanics::install();
    let watchdog = crate::watchdog::Watchdog::start();
    let mut made: BTreeMap<&str, usize> = BTreeMap::new();
    let mut unnoticed = Vec::new();
    for case in folder.cases.iter().filter(|case| case.class != Class::Error) {
        watchdog.begin(case);
        let expected = Expected::of(case, &folder.tensors);
        let judge =
            |case: &Case, expected: &Expected| judge(case, expected, &folder.tensors, device);
        if judge(case, &expected) != Verdict::Passed {
            continue;
        }
        for (name, corrupted) in corruptions(case, &expected, folder) {
            *made.entry(name).or_default() += 1;
            if !matches!(judge(case, &corrupted), Verdict::Failed(_)) {
                unnoticed.push(format!("{} {}: {name}", case.id, case.op));
            }
        }
        *made.entry("no error where one is expected").or_default() += 1;
        let mut refused = case.clone();
        refused.class = Class::Error;
        if judge(&refused, &expected) == Verdict::Passed {
            unnoticed.push(format!("{} {}: taken for an error case", case.id, case.op));
        }
    }
    let mut text = String::new();
    for name in KINDS {
        let count = made.get(name).copied().unwrap_or(0);
        let _ = writeln!(text, "{name:<32} {count:>6} made");
        if count == 0 {
            unnoticed.push(format!("{name}: no passing case to try it on"));
        }
    }
    let total: usize = made.values().sum();
    let _ = writeln!(text, "{total} corruptions, {} unnoticed", unnoticed.len());
    (text, unnoticed)
}

const KINDS: [&str; 7] = [
    "one element",
    "dtype",
    "shape",
    "output order",
    "gradient",
    "NaN",
    "no error where one is expected",
];

/// The corruptions that make sense for a case.
fn corruptions(case: &Case, expected: &Expected, folder: &Folder) -> Vec<(&'static str, Expected)> {
    let mut list = Vec::new();
    let mut add = |name, change: &dyn Fn(&mut Expected) -> bool| {
        let mut corrupted = expected.clone();
        if change(&mut corrupted) {
            list.push((name, corrupted));
        }
    };
    let pick = case.id.bytes().fold(0, |sum, byte| sum * 31 % 65_521 + byte as usize);
    let output = pick % expected.outputs.len().max(1);
    // Factors are judged by their product, so their own elements are not compared.
    if case.class != Class::Sign {
        add("one element", &|e| change_element(case, &mut e.outputs[output], output, pick, folder));
        add("NaN", &|e| change_nan(&mut e.outputs[output], pick));
    }
    add("dtype", &|e| {
        e.outputs[output].kind = other_kind(e.outputs[output].kind);
        true
    });
    add("shape", &|e| {
        e.outputs[output].shape.push(1);
        true
    });
    add("output order", &|e| {
        let pairs = || e.outputs.iter().zip(e.outputs.iter().rev());
        let noticed = match case.class {
            Class::Sign => pairs().any(|(a, b)| a.shape != b.shape || a.kind != b.kind),
            _ => pairs().any(|(a, b)| far_apart(case, a, b)),
        };
        e.outputs.reverse();
        noticed
    });
    if let Some(gradient) = &case.gradient {
        let which = pick % gradient.tolerances.len();
        add("gradient", &|e| {
            move_float(&mut e.gradients[which], pick, Some(gradient.tolerances[which]))
        });
        add("gradient", &|e| {
            e.gradients[which].shape.insert(0, 1);
            true
        });
        add("NaN", &|e| change_nan(&mut e.gradients[which], pick));
    }
    list
}

fn change_element(
    case: &Case,
    tensor: &mut Tensor,
    output: usize,
    pick: usize,
    folder: &Folder,
) -> bool {
    let size = tensor.shape.iter().product::<usize>();
    if size == 0 {
        return false;
    }
    if case.op == "argpartition" {
        return change_pivot(case, tensor, folder);
    }
    if tensor.kind.is_inexact() {
        let tolerance = (case.class == Class::Close).then(|| case.tolerances[output]);
        return move_float(tensor, pick, tolerance);
    }
    // The lowest bit decides between neighbours, and between true and false.
    tensor.bytes[pick % size * tensor.kind.size()] ^= 1;
    true
}

/// Moves one element well out of the tolerance.
fn move_float(tensor: &mut Tensor, pick: usize, tolerance: Option<Tolerance>) -> bool {
    let values = match tensor.wide() {
        Wide::Floats(values) => values,
        Wide::Complex(values) => values.into_iter().map(|[re, _]| re).collect(),
        Wide::Ints(_) => return false,
    };
    if values.is_empty() {
        return false;
    }
    let index = pick % values.len();
    let value = values[index];
    let Tolerance { rtol, atol } = tolerance.unwrap_or_default();
    let moved = match value.is_finite() {
        true => value + 8.0 * (atol + rtol * value.abs()) + 0.05 * value.abs().max(1e-3),
        false => 0.0,
    };
    tensor.set_float(index, moved);
    true
}

/// Points the pivot of one lane at another value, if there is one.
fn change_pivot(case: &Case, tensor: &mut Tensor, folder: &Folder) -> bool {
    let plain = case.inputs.get("a").and_then(Value::as_str);
    let Some(a) = plain.map(|name| &folder.tensors[name]) else { return false };
    let kth = case.attrs.get("kth").and_then(Value::as_i64).unwrap_or(0);
    let last = case.attrs.get("axis").and_then(Value::as_i64) == Some(-1);
    let length = *tensor.shape.last().unwrap_or(&0);
    if !last || length == 0 {
        return false;
    }
    let values: Vec<f64> = match a.wide() {
        Wide::Floats(values) => values,
        Wide::Ints(values) => values.into_iter().map(|value| value as f64).collect(),
        Wide::Complex(_) => return false,
    };
    let Wide::Ints(indices) = tensor.wide() else { return false };
    let pivot = kth.rem_euclid(length as i64) as usize;
    let at = |place: usize| values[indices[place] as usize];
    let Some(other) = (0..length).find(|&place| at(place) != at(pivot)) else { return false };
    let width = tensor.kind.size();
    for byte in 0..width {
        tensor.bytes.swap(pivot * width + byte, other * width + byte);
    }
    true
}

/// Puts a NaN where there was a number, or a number where there was a NaN.
fn change_nan(tensor: &mut Tensor, pick: usize) -> bool {
    let values = match tensor.wide() {
        Wide::Floats(values) => values,
        Wide::Complex(values) => values.into_iter().map(|[re, im]| re + im).collect(),
        Wide::Ints(_) => return false,
    };
    if values.is_empty() {
        return false;
    }
    let index = pick % values.len();
    tensor.set_float(index, if values[index].is_nan() { 0.0 } else { f64::NAN });
    true
}

/// Another dtype of the same width.
fn other_kind(kind: Kind) -> Kind {
    Kind::Real(match kind {
        Kind::Complex64 => DType::F64,
        Kind::Real(DType::Bool) => DType::U8,
        Kind::Real(DType::U8) => DType::I8,
        Kind::Real(DType::F16) => DType::BF16,
        Kind::Real(DType::BF16) => DType::F16,
        Kind::Real(DType::U32) => DType::I32,
        Kind::Real(DType::I32) => DType::U32,
        Kind::Real(dtype) => match dtype.size() {
            1 => DType::Bool,
            2 => DType::F16,
            4 => DType::U32,
            _ if dtype == DType::I64 => DType::U64,
            _ => DType::I64,
        },
    })
}

/// Whether two outputs differ so much that exchanging them cannot pass.
fn far_apart(case: &Case, one: &Tensor, other: &Tensor) -> bool {
    if one.kind != other.kind || one.shape != other.shape {
        return true;
    }
    let slack = |value: f64| {
        let Tolerance { rtol, atol } = case.tolerances.iter().fold(Tolerance::default(), |a, b| {
            Tolerance { rtol: a.rtol.max(b.rtol), atol: a.atol.max(b.atol) }
        });
        8.0 * (atol + rtol * value.abs())
    };
    match (one.wide(), other.wide()) {
        (Wide::Ints(one), Wide::Ints(other)) => one != other,
        (Wide::Floats(one), Wide::Floats(other)) => {
            one.iter().zip(&other).any(|(x, y)| (x - y).abs() > slack(*x))
        }
        (Wide::Complex(one), Wide::Complex(other)) => {
            let far = |(x, y): (&[f64; 2], &[f64; 2])| {
                (x[0] - y[0]).hypot(x[1] - y[1]) > slack(x[0].hypot(x[1]))
            };
            one.iter().zip(&other).any(far)
        }
        _ => false,
    }
}
