//! A small selection of cases that covers every operation.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::case::{Case, Folder};
use crate::tensor::Tensors;

/// No case with more bytes of tensors than this is chosen.
const CASE_BYTES: usize = 6 * 1024;
/// The most cases of one operation.
const PER_OP: usize = 8;

/// Chooses in the order of ids, for each operation, the first case of each feature that no chosen
/// case has: error, gradient, class, dtypes, views, weak scalars, attribute values.
pub fn sample(folder: &Folder) -> Folder {
    let mut by_op: BTreeMap<&str, Vec<&Case>> = BTreeMap::new();
    for case in &folder.cases {
        by_op.entry(&case.op).or_default().push(case);
    }
    let (mut cases, mut tensors) = (Vec::new(), Tensors::new());
    for list in by_op.into_values() {
        for case in choose(list, &folder.tensors) {
            for name in case.tensor_names() {
                let tensor = folder.tensors[&name].clone();
                tensors.insert(name, tensor);
            }
            cases.push(case.clone());
        }
    }
    Folder { cases, tensors }
}

fn choose<'a>(mut list: Vec<&'a Case>, tensors: &Tensors) -> Vec<&'a Case> {
    let bytes = |case: &Case| -> usize {
        case.tensor_names().iter().map(|name| tensors[name].bytes.len()).sum()
    };
    // Operations with large cases only give their smallest one.
    list.sort_by_key(|case| (bytes(case), &case.id));
    let smallest = list[0];
    list.retain(|case| bytes(case) <= CASE_BYTES);
    list.sort_by_key(|case| &case.id);
    let (mut chosen, mut seen) = (Vec::new(), BTreeSet::new());
    for case in list {
        let new = features(case, tensors).into_iter().filter(|f| seen.insert(f.clone())).count();
        if new > 0 && chosen.len() < PER_OP {
            chosen.push(case);
        }
    }
    if chosen.is_empty() {
        chosen.push(smallest);
    }
    chosen
}

fn features(case: &Case, tensors: &Tensors) -> Vec<String> {
    let mut features = vec![format!("{:?} {}", case.class, case.gradient.is_some())];
    for (name, value) in &case.inputs {
        let (view, kind) = (&value["view"][0][0], &value["type"]);
        features.push(format!("{name} {view} {kind}"));
        let tensor = value.as_str().or(value["t"].as_str()).and_then(|name| tensors.get(name));
        if let Some(tensor) = tensor {
            features.push(tensor.kind.name().to_string());
        }
    }
    for (name, value) in &case.attrs {
        features.push(match value {
            Value::Null | Value::Bool(_) | Value::String(_) => format!("{name} {value}"),
            Value::Array(items) => format!("{name} list {}", items.is_empty()),
            _ => format!("{name} number"),
        });
    }
    features
}
