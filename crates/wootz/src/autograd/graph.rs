//! The part of a graph that a transform walks.

use std::collections::HashMap;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::array::{Array, Node};
use crate::error::{Error, Result};
use crate::op::Elementwise;

/// What a transform has for each output of the nodes it walked.
pub(super) struct Values(HashMap<*const Node, SmallVec<[Option<Array>; 1]>>);

impl Values {
    pub(super) fn new() -> Values {
        Values(HashMap::new())
    }

    pub(super) fn insert(&mut self, array: &Array, value: Array) {
        let values = self.0.entry(Arc::as_ptr(&array.node)).or_default();
        let index = array.output_index();
        if values.len() <= index {
            values.resize(index + 1, None);
        }
        values[index] = Some(value);
    }

    pub(super) fn get(&self, array: &Array) -> Option<&Array> {
        self.0.get(&Arc::as_ptr(&array.node))?.get(array.output_index())?.as_ref()
    }
}

/// The nodes between `arguments` and `outputs` that depend on an argument, inputs first. What lies
/// behind the arrays of `border` is known not to depend on one, and is not looked at.
pub(super) fn dependents(
    arguments: &[Array],
    outputs: &[Array],
    border: &[&[Array]],
) -> Vec<Arc<Node>> {
    let mut order: Vec<Arc<Node>> = Vec::new();
    // false while a node's inputs are being visited, then whether it depends on an argument.
    let mut depends: HashMap<*const Node, bool> = HashMap::new();
    for array in border.iter().copied().flatten() {
        depends.insert(Arc::as_ptr(&array.node), false);
    }
    for argument in arguments {
        depends.insert(Arc::as_ptr(&argument.node), true);
        order.push(argument.node.clone());
    }
    let mut stack: Vec<(Arc<Node>, usize)> = Vec::new();
    for output in outputs {
        stack.push((output.node.clone(), 0));
        while let Some((node, next)) = stack.last_mut() {
            let pointer = Arc::as_ptr(node);
            if !node.is_traced() || (*next == 0 && depends.contains_key(&pointer)) {
                stack.pop();
                continue;
            }
            depends.entry(pointer).or_insert(false);
            let index = *next;
            *next += 1;
            let input =
                node.with_work(|work| work.inputs.get(index).map(|i| i.node.clone())).flatten();
            match input {
                Some(input) => stack.push((input, 0)),
                None => {
                    let any = node.with_work(|work| {
                        let depends =
                            |input: &Array| depends.get(&Arc::as_ptr(&input.node)) == Some(&true);
                        work.inputs.iter().any(depends)
                    });
                    if let Some((node, _)) = stack.pop()
                        && any == Some(true)
                    {
                        depends.insert(pointer, true);
                        order.push(node);
                    }
                }
            }
        }
    }
    order
}

/// Computes what the recorded part of a graph reads and does not depend on its arguments: it is the
/// same every time. An array that a transform around is looking at cannot be such a constant.
pub(crate) fn settle_constants(
    transform: &'static str,
    arguments: &[Array],
    outputs: &[Array],
) -> Result<()> {
    // Not by marks: custom functions hide from transforms what their results depend on.
    let mut depends: HashMap<*const Node, bool> =
        arguments.iter().map(|argument| (Arc::as_ptr(&argument.node), true)).collect();
    let mut constants: Vec<Array> = Vec::new();
    let settle = |array: &Array, depends: bool, constants: &mut Vec<Array>| {
        if !depends && !array.is_evaluated() && !is_inlined(array) {
            constants.push(array.clone());
        }
    };
    // The second time an array comes up, its inputs are known.
    let mut stack: Vec<(Array, bool)> = outputs.iter().map(|x| (x.clone(), false)).collect();
    while let Some((array, inputs_known)) = stack.pop() {
        let pointer = Arc::as_ptr(&array.node);
        if depends.contains_key(&pointer) {
            continue;
        }
        let inputs = array.node.work().map(|work| work.inputs).unwrap_or_default();
        if array.node.is_traced() && !inputs.iter().any(|input| input.node.is_traced()) {
            let reason = "the function captures an array that a transform around it looks at; \
                          make it an argument";
            return Err(Error::Transform { transform, reason: reason.into() });
        }
        if !inputs_known {
            stack.push((array, true));
            stack.extend(inputs.into_iter().map(|input| (input, false)));
            continue;
        }
        let known = |input: &Array| depends.get(&Arc::as_ptr(&input.node)) == Some(&true);
        let any = inputs.iter().any(known);
        if any {
            inputs.iter().for_each(|input| settle(input, known(input), &mut constants));
        }
        depends.insert(pointer, any);
    }
    for output in outputs {
        settle(output, depends.get(&Arc::as_ptr(&output.node)) == Some(&true), &mut constants);
    }
    crate::eval(&constants)
}

/// Whether an array is a number that kernels are given with their parameters.
fn is_inlined(array: &Array) -> bool {
    let Some(work) = array.node.work() else { return false };
    match work.op.elementwise() {
        Some(Elementwise::Constant(_)) => true,
        _ => work.op.is_view() && work.inputs.first().is_some_and(is_inlined),
    }
}
