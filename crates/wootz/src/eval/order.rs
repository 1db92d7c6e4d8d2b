//! Finds the nodes an evaluation must run, in an order that respects their inputs, without
//! recursion: chains may be a million nodes long.

use std::sync::Arc;

use crate::array::{Array, Node};

/// The pending nodes behind some arrays.
pub(crate) struct Graph {
    pub(crate) epoch: u32,
    /// Inputs before users. Emptied as nodes run, so that handles tell who else needs a node.
    pub(crate) nodes: Vec<Option<Arc<Node>>>,
    /// How many inputs of nodes in this graph refer to each node.
    pub(crate) uses: Vec<u32>,
    /// Whether the caller asked for the node.
    pub(crate) wanted: Vec<bool>,
}

impl Graph {
    /// Collects everything pending that `arrays` depend on.
    pub(crate) fn collect(epoch: u32, arrays: &[&Array]) -> Graph {
        let mut graph = Graph { epoch, nodes: Vec::new(), uses: Vec::new(), wanted: Vec::new() };
        // A node is pushed once, revisited once per input, and placed after all its inputs.
        let mut stack: Vec<(Arc<Node>, usize)> = Vec::new();
        for array in arrays.iter().filter(|array| !array.is_evaluated()) {
            stack.push((array.node.clone(), 0));
            while let Some((node, next)) = stack.last_mut() {
                if node.place(epoch).is_some() {
                    stack.pop();
                    continue;
                }
                let input = node.with_work(|work| {
                    let rest = work.inputs.get(*next..).unwrap_or_default();
                    let skipped = rest.iter().position(|input| {
                        !input.node.is_evaluated() && input.node.place(epoch).is_none()
                    });
                    skipped.map(|skipped| (skipped, rest[skipped].node.clone()))
                });
                match input.flatten() {
                    Some((skipped, input)) => {
                        *next += skipped + 1;
                        stack.push((input, 0));
                    }
                    None => {
                        if let Some((node, _)) = stack.pop() {
                            graph.place(node);
                        }
                    }
                }
            }
            if let Some(place) = array.node.place(epoch) {
                graph.wanted[place as usize] = true;
            }
        }
        graph
    }

    fn place(&mut self, node: Arc<Node>) {
        node.with_work(|work| {
            for input in &work.inputs {
                if let Some(place) = input.node.place(self.epoch) {
                    self.uses[place as usize] += 1;
                }
            }
        });
        node.set_place(self.epoch, self.nodes.len() as u32);
        self.nodes.push(Some(node));
        self.uses.push(0);
        self.wanted.push(false);
    }

    /// The place of a pending node in this graph.
    pub(crate) fn place_of(&self, array: &Array) -> Option<usize> {
        array.node.place(self.epoch).map(|place| place as usize)
    }
}
