//! Trees of the standard library's types.

use std::collections::{BTreeMap, HashMap};
use std::hash::{Hash, Hasher};

use super::{Leaf, Mode, Parameter, Part, Path, Slot, State, Tree};
use crate::array::{Array, DType, Scalar};
use crate::device::Device;
use crate::error::Result;
use crate::nn::Module;

type Visitor<'a> = &'a mut dyn FnMut(&str, Leaf<'_>);
type PartVisitor<'a, 'tree> = &'a mut dyn FnMut(&str, Part<'tree>);
type VisitorMut<'a> = &'a mut dyn FnMut(&str, Slot<'_>) -> Result<()>;

macro_rules! leaves {
    ($($type:ident),*) => {$(
        impl Tree for $type {
            fn visit(&self, path: &mut Path, visitor: Visitor<'_>) {
                visitor(path.name(), Leaf::$type(self));
            }

            fn visit_mut(&mut self, path: &mut Path, visitor: VisitorMut<'_>) -> Result<()> {
                visitor(path.name(), Slot::$type(self))
            }
        }
    )*};
}

leaves!(Array, Parameter, State);

impl Tree for Mode {
    fn visit(&self, _: &mut Path, _: Visitor<'_>) {}

    fn visit_mut(&mut self, path: &mut Path, visitor: VisitorMut<'_>) -> Result<()> {
        visitor(path.name(), Slot::Mode(self))
    }
}

macro_rules! without_leaves {
    ($(|$value:ident, $state:ident| $write:expr => $($type:ty),*;)*) => {$($(
        impl Tree for $type {
            fn visit(&self, _: &mut Path, _: Visitor<'_>) {}

            fn visit_mut(&mut self, _: &mut Path, _: VisitorMut<'_>) -> Result<()> {
                Ok(())
            }

            fn fingerprint(&self, $state: &mut dyn Hasher) {
                let $value = self;
                $write
            }
        }
    )*)*};
}

without_leaves! {
    |value, state| write(value, state) =>
        (), bool, char, u8, u16, u32, u64, usize, i8, i16, i32, i64, isize, String, &'static str, DType;
    // Bits: what is computed of -0 can differ from what is computed of 0.
    |value, state| write(&value.to_bits(), state) => f32;
    |value, state| write(&value.to_bits(), state) => f64;
    |value, state| write(&value.to_string(), state) => Device;
    |value, state| write_scalar(value, state) => Scalar;
}

impl<T: Tree> Tree for Option<T> {
    fn visit(&self, path: &mut Path, visitor: Visitor<'_>) {
        if let Some(inner) = self {
            inner.visit(path, visitor);
        }
    }

    fn visit_modules<'tree>(&'tree self, path: &mut Path, visitor: PartVisitor<'_, 'tree>) {
        if let Some(inner) = self {
            inner.visit_modules(path, visitor);
        }
    }

    fn visit_mut(&mut self, path: &mut Path, visitor: VisitorMut<'_>) -> Result<()> {
        self.as_mut().map_or(Ok(()), |inner| inner.visit_mut(path, visitor))
    }

    fn fingerprint(&self, state: &mut dyn Hasher) {
        state.write_u8(self.is_some().into());
        if let Some(inner) = self {
            inner.fingerprint(state);
        }
    }
}

impl<T: Tree> Tree for Box<T> {
    fn visit(&self, path: &mut Path, visitor: Visitor<'_>) {
        (**self).visit(path, visitor);
    }

    fn visit_modules<'tree>(&'tree self, path: &mut Path, visitor: PartVisitor<'_, 'tree>) {
        (**self).visit_modules(path, visitor);
    }

    fn visit_mut(&mut self, path: &mut Path, visitor: VisitorMut<'_>) -> Result<()> {
        (**self).visit_mut(path, visitor)
    }

    fn fingerprint(&self, state: &mut dyn Hasher) {
        (**self).fingerprint(state);
    }
}

impl Tree for Box<dyn Module> {
    fn visit(&self, path: &mut Path, visitor: Visitor<'_>) {
        (**self).visit(path, visitor);
    }

    fn visit_modules<'tree>(&'tree self, path: &mut Path, visitor: PartVisitor<'_, 'tree>) {
        (**self).visit_modules(path, visitor);
    }

    fn visit_mut(&mut self, path: &mut Path, visitor: VisitorMut<'_>) -> Result<()> {
        visitor(path.name(), Slot::Module(self))?;
        (**self).visit_mut(path, visitor)
    }

    fn fingerprint(&self, state: &mut dyn Hasher) {
        (**self).fingerprint(state);
    }
}

macro_rules! sequences {
    ($([$($generics:tt)*] $type:ty),*) => {$(
        impl<$($generics)*> Tree for $type {
            fn visit(&self, path: &mut Path, visitor: Visitor<'_>) {
                for (index, item) in self.iter().enumerate() {
                    path.within(index, |path| item.visit(path, visitor));
                }
            }

            fn visit_modules<'tree>(&'tree self, path: &mut Path, visitor: PartVisitor<'_, 'tree>) {
                for (index, item) in self.iter().enumerate() {
                    path.within(index, |path| item.visit_modules(path, visitor));
                }
            }

            fn visit_mut(&mut self, path: &mut Path, visitor: VisitorMut<'_>) -> Result<()> {
                for (index, item) in self.iter_mut().enumerate() {
                    path.within(index, |path| item.visit_mut(path, visitor))?;
                }
                Ok(())
            }

            fn fingerprint(&self, state: &mut dyn Hasher) {
                state.write_usize(self.len());
                self.iter().for_each(|item| item.fingerprint(state));
            }
        }
    )*};
}

sequences!([T: Tree] Vec<T>, [T: Tree] [T], [T: Tree, const LENGTH: usize] [T; LENGTH]);

impl<T: Tree> Tree for BTreeMap<String, T> {
    fn visit(&self, path: &mut Path, visitor: Visitor<'_>) {
        for (key, item) in self {
            path.within(key, |path| item.visit(path, visitor));
        }
    }

    fn visit_modules<'tree>(&'tree self, path: &mut Path, visitor: PartVisitor<'_, 'tree>) {
        for (key, item) in self {
            path.within(key, |path| item.visit_modules(path, visitor));
        }
    }

    fn visit_mut(&mut self, path: &mut Path, visitor: VisitorMut<'_>) -> Result<()> {
        for (key, item) in self {
            path.within(key, |path| item.visit_mut(path, visitor))?;
        }
        Ok(())
    }

    fn fingerprint(&self, state: &mut dyn Hasher) {
        state.write_usize(self.len());
        for (key, item) in self {
            write(key, state);
            item.fingerprint(state);
        }
    }
}

impl<T: Tree> Tree for HashMap<String, T> {
    fn visit(&self, path: &mut Path, visitor: Visitor<'_>) {
        // In the order of keys, so that the order of leaves is the same in every run.
        let mut items: Vec<(&String, &T)> = self.iter().collect();
        items.sort_by_key(|(key, _)| *key);
        for (key, item) in items {
            path.within(key, |path| item.visit(path, visitor));
        }
    }

    fn visit_modules<'tree>(&'tree self, path: &mut Path, visitor: PartVisitor<'_, 'tree>) {
        let mut items: Vec<(&String, &T)> = self.iter().collect();
        items.sort_by_key(|(key, _)| *key);
        for (key, item) in items {
            path.within(key, |path| item.visit_modules(path, visitor));
        }
    }

    fn visit_mut(&mut self, path: &mut Path, visitor: VisitorMut<'_>) -> Result<()> {
        let mut items: Vec<(&String, &mut T)> = self.iter_mut().collect();
        items.sort_by_key(|(key, _)| *key);
        for (key, item) in items {
            path.within(key, |path| item.visit_mut(path, visitor))?;
        }
        Ok(())
    }

    fn fingerprint(&self, state: &mut dyn Hasher) {
        let mut items: Vec<(&String, &T)> = self.iter().collect();
        items.sort_by_key(|(key, _)| *key);
        state.write_usize(items.len());
        for (key, item) in items {
            write(key, state);
            item.fingerprint(state);
        }
    }
}

macro_rules! tuples {
    ($(($($name:ident $index:tt),*))*) => {$(
        impl<$($name: Tree),*> Tree for ($($name,)*) {
            fn visit(&self, path: &mut Path, visitor: Visitor<'_>) {
                $(path.within($index, |path| self.$index.visit(path, visitor));)*
            }

            fn visit_modules<'tree>(&'tree self, path: &mut Path, visitor: PartVisitor<'_, 'tree>) {
                $(path.within($index, |path| self.$index.visit_modules(path, visitor));)*
            }

            fn visit_mut(&mut self, path: &mut Path, visitor: VisitorMut<'_>) -> Result<()> {
                $(path.within($index, |path| self.$index.visit_mut(path, visitor))?;)*
                Ok(())
            }

            fn fingerprint(&self, state: &mut dyn Hasher) {
                $(self.$index.fingerprint(state);)*
            }
        }
    )*};
}

tuples! {
    (A 0)
    (A 0, B 1)
    (A 0, B 1, C 2)
    (A 0, B 1, C 2, D 3)
    (A 0, B 1, C 2, D 3, E 4)
    (A 0, B 1, C 2, D 3, E 4, F 5)
}

fn write(value: &impl Hash, mut state: &mut dyn Hasher) {
    value.hash(&mut state);
}

/// The kind of a number and its bits.
fn write_scalar(scalar: &Scalar, state: &mut dyn Hasher) {
    write(&std::mem::discriminant(scalar), state);
    match scalar {
        Scalar::Bool(value) => write(value, state),
        Scalar::Int(value) => write(value, state),
        Scalar::Float(value) => write(&value.to_bits(), state),
        Scalar::Complex(value) => write(&[value.re.to_bits(), value.im.to_bits()], state),
    }
}
