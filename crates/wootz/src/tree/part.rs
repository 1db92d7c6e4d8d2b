//! Parts of trees: what MLX calls modules.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;

use super::{Path, Slot, Tree};
use crate::error::{Error, Result};
use crate::nn::Module;

/// A part of a tree: a structure or an enum that derives [`Tree`], as layers do.
#[derive(Clone, Copy)]
pub struct Part<'a> {
    tree: &'a dyn Tree,
    type_name: &'static str,
    depth: usize,
}

impl<'a> Part<'a> {
    /// The part that is found at a path.
    pub fn new<T: Tree>(tree: &'a T, path: &Path) -> Part<'a> {
        Part { tree, type_name: std::any::type_name::<T>(), depth: path.depth }
    }

    /// The name of its type, as `wootz::nn::linear::Linear`.
    pub fn type_name(&self) -> &'static str {
        self.type_name
    }
}

/// Its parameters and parts are those of the tree.
impl<'a> Deref for Part<'a> {
    type Target = dyn Tree + 'a;

    fn deref(&self) -> &(dyn Tree + 'a) {
        self.tree
    }
}

impl std::fmt::Debug for Part<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.type_name)
    }
}

pub(super) fn named_modules<T: Tree + ?Sized>(tree: &T) -> Vec<(String, Part<'_>)> {
    let mut parts = Vec::new();
    tree.visit_modules(&mut Path::default(), &mut |name, part| parts.push((name.into(), part)));
    parts
}

pub(super) fn children<T: Tree + ?Sized>(tree: &T) -> Vec<(String, Part<'_>)> {
    let mut parts = named_modules(tree);
    // A vector of layers, say, is no part itself.
    let own = parts.first().is_some_and(|(name, _)| name.is_empty());
    parts.retain(|(_, part)| part.depth == own as usize);
    parts
}

pub(super) fn leaf_modules<T: Tree + ?Sized>(tree: &T) -> Vec<(String, Part<'_>)> {
    let parts = named_modules(tree);
    let has_parts = |at: usize| match (parts.get(at), parts.get(at + 1)) {
        (Some((_, part)), Some((_, next))) => next.depth > part.depth,
        _ => false,
    };
    let leaves = parts.iter().enumerate().filter(|(at, _)| !has_parts(*at));
    leaves.map(|(_, part)| part.clone()).collect()
}

pub(super) fn update_modules<T: Tree + ?Sized>(
    tree: &mut T,
    op: &'static str,
    mut modules: BTreeMap<String, Box<dyn Module>>,
) -> Result<()> {
    let mut places = BTreeSet::new();
    tree.visit_mut(&mut Path::default(), &mut |name, slot| {
        if matches!(slot, Slot::Module(_)) {
            places.insert(name.to_string());
        }
        Ok(())
    })?;
    for name in modules.keys() {
        let within = |other: &String| name.starts_with(&format!("{other}."));
        let expected = match modules.keys().find(|other| within(other)) {
            Some(other) => format!("no place inside of {other:?}, which is replaced, too"),
            None if !places.contains(name) => "the name of a boxed module".to_string(),
            None => continue,
        };
        return Err(Error::argument(op, "name", expected, format!("{name:?}")));
    }
    tree.visit_mut(&mut Path::default(), &mut |name, slot| {
        if let Slot::Module(place) = slot
            && let Some(module) = modules.remove(name)
        {
            *place = module;
        }
        Ok(())
    })
}
