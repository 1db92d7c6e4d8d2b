//! Structures of arrays: models, gradients, anything with arrays in it. A [`Tree`] hands out its
//! arrays with dotted names, which are the keys of a checkpoint: `layers.0.weight`.
//!
//! ```
//! use wootz::{Array, Result, Tree, grad_of, tree_flatten};
//!
//! #[derive(Clone, Tree)]
//! struct Line {
//!     slope: Array,
//!     offset: Array,
//!     degree: usize, // not an array: no leaf
//! }
//!
//! let number = |value: f64| Array::scalar(value, wootz::DType::F32);
//! let line = Line { slope: number(2.0)?, offset: number(1.0)?, degree: 1 };
//! let names: Vec<String> = tree_flatten(&line).into_iter().map(|(name, _)| name).collect();
//! assert_eq!(names, ["slope", "offset"]);
//!
//! // The gradient of a function of a structure is a structure of the same type.
//! let at_three: Line = grad_of(|l: &Line| Ok(&l.slope * 3.0 + &l.offset))(&line)?;
//! assert_eq!(at_three.slope.item::<f32>()?, 3.0);
//! assert_eq!(at_three.offset.item::<f32>()?, 1.0);
//! # Ok::<(), wootz::Error>(())
//! ```

mod compile;
mod functions;
mod grad;
mod impls;
mod leaf;
mod part;
mod transforms;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::fmt::Write as _;
use std::hash::Hasher;
use std::path::Path as FilePath;

pub use compile::{CompiledOf, compile_of};
pub use functions::{
    tree_flatten, tree_map, tree_map_with_path, tree_merge, tree_reduce, tree_unflatten,
};
pub use grad::{grad_of, value_and_grad_aux_of, value_and_grad_of};
pub use leaf::{Mode, Parameter, State};
pub use part::Part;
pub use transforms::{checkpoint_of, jvp_of, vmap_of};

use crate::array::{Array, DType};
use crate::error::{Error, Result};
use crate::nn::Module;

/// Something with arrays in it. Derive it: `#[derive(Tree)]` makes every field a branch with the
/// field's name, `#[wootz(rename = "…")]` gives another one, `#[wootz(skip)]` leaves a field out, and
/// `#[wootz(value)]` takes it for a value without arrays, whose `Hash` tells it from others.
/// Arrays, [parameters](Parameter), vectors, maps with string keys, tuples, options and boxes are
/// trees; numbers, truth values and strings are trees without leaves.
///
/// What is neither needs `skip`:
///
/// ```compile_fail
/// #[derive(wootz::Tree)]
/// struct Layer {
///     weight: wootz::Array,
///     activation: fn(f32) -> f32,
/// }
/// ```
///
/// Two fields cannot have one name:
///
/// ```compile_fail
/// #[derive(wootz::Tree)]
/// struct Layer {
///     weight: wootz::Array,
///     #[wootz(rename = "weight")]
///     other: wootz::Array,
/// }
/// ```
pub trait Tree {
    /// Hands every leaf with its dotted name to `visitor`, in the order of the fields.
    fn visit(&self, path: &mut Path, visitor: &mut dyn FnMut(&str, Leaf<'_>));

    /// Hands every place that can be changed to `visitor`; stops at the first error.
    fn visit_mut(
        &mut self,
        path: &mut Path,
        visitor: &mut dyn FnMut(&str, Slot<'_>) -> Result<()>,
    ) -> Result<()>;

    /// Hands every [part](Part) with its dotted name to `visitor`, one before those inside of it.
    fn visit_modules<'tree>(
        &'tree self,
        _path: &mut Path,
        _visitor: &mut dyn FnMut(&str, Part<'tree>),
    ) {
    }

    /// Writes what is no array and yet decides what a function of this tree computes: numbers, words,
    /// lengths, which variant and which type. [`compile_of`] keeps a plan for each.
    fn fingerprint(&self, _state: &mut dyn Hasher) {}

    /// This tree and all parts of it with their dotted names, one before those inside of it.
    ///
    /// ```
    /// use wootz::{Tree, nn};
    /// let model = nn::Sequential::new().then(nn::Linear::new(3, 2, true)?).then_fn(nn::relu);
    /// let names: Vec<String> = model.named_modules().into_iter().map(|(name, _)| name).collect();
    /// assert_eq!(names, ["", "layers.0", "layers.1"]);
    /// assert!(model.named_modules()[1].1.type_name().ends_with("Linear"));
    /// # Ok::<(), wootz::Error>(())
    /// ```
    fn named_modules(&self) -> Vec<(String, Part<'_>)> {
        part::named_modules(self)
    }

    /// This tree and all parts of it.
    fn modules(&self) -> Vec<Part<'_>> {
        self.named_modules().into_iter().map(|(_, part)| part).collect()
    }

    /// The parts that are in no other part of this tree.
    ///
    /// ```
    /// use wootz::{Tree, nn};
    /// let inner = nn::Sequential::new().then(nn::Linear::new(3, 2, true)?);
    /// let model = nn::Sequential::new().then(inner);
    /// let names: Vec<String> = model.children().into_iter().map(|(name, _)| name).collect();
    /// assert_eq!(names, ["layers.0"]);
    /// # Ok::<(), wootz::Error>(())
    /// ```
    fn children(&self) -> Vec<(String, Part<'_>)> {
        part::children(self)
    }

    /// The parts that have no parts.
    ///
    /// ```
    /// use wootz::{Tree, nn};
    /// let inner = nn::Sequential::new().then(nn::Linear::new(3, 2, true)?);
    /// let model = nn::Sequential::new().then(inner).then_fn(nn::relu);
    /// let names: Vec<String> = model.leaf_modules().into_iter().map(|(name, _)| name).collect();
    /// assert_eq!(names, ["layers.0.layers.0", "layers.1"]);
    /// # Ok::<(), wootz::Error>(())
    /// ```
    fn leaf_modules(&self) -> Vec<(String, Part<'_>)> {
        part::leaf_modules(self)
    }

    /// All arrays by their dotted names.
    ///
    /// ```
    /// use wootz::{Tree, nn};
    /// let layer = nn::Linear::new(3, 2, true)?;
    /// let names: Vec<String> = layer.parameters().into_keys().collect();
    /// assert_eq!(names, ["bias", "weight"]);
    /// # Ok::<(), wootz::Error>(())
    /// ```
    fn parameters(&self) -> BTreeMap<String, Array> {
        collect(self, |_| true)
    }

    /// The arrays that are trained: all but the frozen ones, parameters of integers, and [state](State).
    fn trainable_parameters(&self) -> BTreeMap<String, Array> {
        collect(self, |leaf| leaf.is_trainable())
    }

    /// Excludes all parameters from training.
    ///
    /// ```
    /// use wootz::{Tree, nn};
    /// let mut layer = nn::Linear::new(3, 2, true)?;
    /// layer.freeze()?;
    /// layer.unfreeze_keys(&["bias"])?;
    /// assert!(layer.trainable_parameters().into_keys().eq(["bias"]));
    /// # Ok::<(), wootz::Error>(())
    /// ```
    fn freeze(&mut self) -> Result<()> {
        set_trainable(self, "freeze", None, false)
    }

    /// Excludes the parameters with one of these names from training: `bias` means the `bias` of
    /// every part. A name that no parameter has is an error.
    fn freeze_keys(&mut self, keys: &[&str]) -> Result<()> {
        set_trainable(self, "freeze", Some(keys), false)
    }

    /// Makes all parameters trainable again but [fixed](Parameter::fixed) ones, as quantized weights are.
    fn unfreeze(&mut self) -> Result<()> {
        set_trainable(self, "unfreeze", None, true)
    }

    /// Makes the parameters with one of these names trainable again; see
    /// [`freeze_keys`](Tree::freeze_keys).
    fn unfreeze_keys(&mut self, keys: &[&str]) -> Result<()> {
        set_trainable(self, "unfreeze", Some(keys), true)
    }

    /// Says to every part whether it is trained, on which dropout and batch normalisation depend.
    fn set_training(&mut self, training: bool) -> Result<()> {
        self.visit_mut(&mut Path::default(), &mut |_, slot| {
            if let Slot::Mode(mode) = slot {
                *mode = Mode(training);
            }
            Ok(())
        })
    }

    /// Replaces the arrays that are named; others stay. A name that is not there, or another shape,
    /// is an error, and then nothing changes.
    ///
    /// ```
    /// use std::collections::BTreeMap;
    /// use wootz::{Array, DType, Tree, nn};
    /// let mut layer = nn::Linear::new(3, 2, true)?;
    /// let zeros = BTreeMap::from([("bias".to_string(), Array::zeros(&[2], DType::F32)?)]);
    /// layer.update(&zeros)?;
    /// let wrong = BTreeMap::from([("b".to_string(), Array::zeros(&[2], DType::F32)?)]);
    /// assert!(layer.update(&wrong).unwrap_err().to_string().contains("unexpected: b"));
    /// # Ok::<(), wootz::Error>(())
    /// ```
    fn update(&mut self, arrays: &BTreeMap<String, Array>) -> Result<()> {
        check_names("update", self)?;
        check_keys("update", &self.parameters(), arrays, Strictness::MayLack)?;
        replace(self, arrays)
    }

    /// Replaces every array by what `map` makes of its name and itself; see also
    /// [`tree_map`]. After an error, arrays before it are changed.
    ///
    /// ```
    /// use wootz::{Tree, nn, zeros_like};
    /// let mut layer = nn::Linear::new(3, 2, true)?;
    /// // layer.apply(lambda x: mx.zeros_like(x))
    /// layer.apply(&mut |_, x| zeros_like(x))?;
    /// assert_eq!(layer.weight.sum(())?.item::<f32>()?, 0.0);
    /// # Ok::<(), wootz::Error>(())
    /// ```
    fn apply(&mut self, map: &mut dyn FnMut(&str, &Array) -> Result<Array>) -> Result<()> {
        self.visit_mut(&mut Path::default(), &mut |name, mut slot| {
            if let Some(leaf) = slot.leaf() {
                let array = map(name, &leaf.array())?;
                slot.set(array);
            }
            Ok(())
        })
    }

    /// Converts all arrays of floats to a dtype.
    ///
    /// ```
    /// use wootz::{DType, Tree, nn};
    /// let mut layer = nn::Linear::new(3, 2, true)?;
    /// // layer.set_dtype(mx.bfloat16)
    /// layer.set_dtype(DType::BF16)?;
    /// assert_eq!(layer.weight.dtype(), DType::BF16);
    /// # Ok::<(), wootz::Error>(())
    /// ```
    fn set_dtype(&mut self, dtype: DType) -> Result<()> {
        self.apply(&mut |_, x| if x.dtype().is_float() { x.astype(dtype) } else { Ok(x.clone()) })
    }

    /// Reads the arrays from an npz file, if its extension says so, else a safetensors file. Its keys must be exactly the names of this tree
    /// if `strict`; else keys that are only on one side are left alone. Shapes must agree anyway,
    /// and dtypes become those of the file.
    fn load_weights(&mut self, file: &FilePath, strict: bool) -> Result<()> {
        check_names("load_weights", self)?;
        let arrays = match is_npz(file) {
            true => crate::io::load_npz(file)?,
            false => crate::io::load_safetensors(file)?,
        };
        let strictness = if strict { Strictness::Exact } else { Strictness::Any };
        check_keys("load_weights", &self.parameters(), &arrays, strictness)?;
        replace(self, &arrays)
    }

    /// Writes all arrays under their dotted names to an npz file, if its extension says so, else to a
    /// safetensors file. Two arrays with one name are an error.
    ///
    /// ```
    /// use wootz::{Tree, nn};
    /// let layer = nn::Linear::new(3, 2, true)?;
    /// let file = std::env::temp_dir().join("wootz-doc-weights.safetensors");
    /// layer.save_weights(&file)?;
    /// nn::Linear::new(3, 2, true)?.load_weights(&file, true)?;
    /// let wider = nn::Linear::new(4, 2, true)?.load_weights(&file, true);
    /// assert!(wider.unwrap_err().to_string().contains("weight: expected [2, 4], got [2, 3]"));
    /// # Ok::<(), wootz::Error>(())
    /// ```
    fn save_weights(&self, file: &FilePath) -> Result<()> {
        check_names("save_weights", self)?;
        match is_npz(file) {
            true => crate::io::savez(file, &self.parameters()),
            false => crate::io::save_safetensors(file, &self.parameters()),
        }
    }

    /// Puts another module in the place of the boxed one with this dotted name. A field of a type
    /// of its own is replaced by assigning to it.
    ///
    /// ```
    /// use wootz::{Tree, nn};
    /// let mut model = nn::Sequential::new().then(nn::Linear::new(3, 2, true)?);
    /// model.replace_module("layers.0", nn::Linear::new(3, 5, true)?)?;
    /// assert_eq!(model.parameters()["layers.0.weight"].shape(), [5, 3]);
    /// # Ok::<(), wootz::Error>(())
    /// ```
    fn replace_module(&mut self, name: &str, module: impl Module) -> Result<()>
    where
        Self: Sized,
    {
        let modules = BTreeMap::from([(name.to_string(), Box::new(module) as Box<dyn Module>)]);
        part::update_modules(self, "replace_module", modules)
    }

    /// Puts other modules in the places of the boxed ones with these dotted names. A name that no boxed
    /// module has is an error, and then nothing changes; so is a place inside of another.
    ///
    /// ```
    /// use std::collections::BTreeMap;
    /// use wootz::{Tree, nn::{self, Module}};
    /// let mut model = nn::Sequential::new().then(nn::Linear::new(3, 2, true)?);
    /// let wider: Box<dyn Module> = Box::new(nn::Linear::new(3, 5, true)?);
    /// model.update_modules(BTreeMap::from([("layers.0".to_string(), wider)]))?;
    /// assert_eq!(model.parameters()["layers.0.weight"].shape(), [5, 3]);
    /// # Ok::<(), wootz::Error>(())
    /// ```
    fn update_modules(&mut self, modules: BTreeMap<String, Box<dyn Module>>) -> Result<()> {
        part::update_modules(self, "update_modules", modules)
    }
}

/// One array of a tree.
#[derive(Clone, Copy, Debug)]
pub enum Leaf<'a> {
    /// A plain array, always trained.
    Array(&'a Array),
    /// A parameter, trained unless frozen.
    Parameter(&'a Parameter),
    /// State, never trained.
    State(&'a State),
}

impl Leaf<'_> {
    /// The array.
    pub fn array(&self) -> Array {
        match self {
            Leaf::Array(array) => (*array).clone(),
            Leaf::Parameter(parameter) => parameter.array().clone(),
            Leaf::State(state) => state.get(),
        }
    }

    /// Whether gradients are wanted.
    pub fn is_trainable(&self) -> bool {
        match self {
            Leaf::Array(_) => true,
            Leaf::Parameter(parameter) => parameter.is_trainable(),
            Leaf::State(_) => false,
        }
    }
}

/// One place of a tree that can be changed.
#[derive(Debug)]
pub enum Slot<'a> {
    /// A plain array.
    Array(&'a mut Array),
    /// A parameter.
    Parameter(&'a mut Parameter),
    /// State.
    State(&'a mut State),
    /// A switch between training and inference.
    Mode(&'a mut Mode),
    /// A boxed module, which can be another one afterwards; its own slots follow.
    Module(&'a mut Box<dyn Module>),
}

impl Slot<'_> {
    /// The array, if this is a leaf.
    pub fn leaf(&self) -> Option<Leaf<'_>> {
        match self {
            Slot::Array(array) => Some(Leaf::Array(array)),
            Slot::Parameter(parameter) => Some(Leaf::Parameter(parameter)),
            Slot::State(state) => Some(Leaf::State(state)),
            Slot::Mode(_) | Slot::Module(_) => None,
        }
    }

    /// Stores another array, if this is a leaf.
    pub fn set(&mut self, value: Array) {
        match self {
            Slot::Array(array) => **array = value,
            Slot::Parameter(parameter) => parameter.set(value),
            Slot::State(state) => state.replace(value),
            Slot::Mode(_) | Slot::Module(_) => {}
        }
    }
}

/// The dotted name of the place that is being visited.
#[derive(Clone, Debug, Default)]
pub struct Path {
    name: String,
    /// How many parts it is inside of.
    depth: usize,
}

impl Path {
    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs `body` inside of one more [`Part`].
    pub fn inside<T>(&mut self, body: impl FnOnce(&mut Path) -> T) -> T {
        self.depth += 1;
        let result = body(self);
        self.depth -= 1;
        result
    }

    /// Runs `body` with one more part to the name.
    pub fn within<T>(&mut self, part: impl Display, body: impl FnOnce(&mut Path) -> T) -> T {
        let length = self.name.len();
        let dot = if length == 0 { "" } else { "." };
        // Writing to a string does not fail.
        let _ = write!(self.name, "{dot}{part}");
        let result = body(self);
        self.name.truncate(length);
        result
    }
}

fn collect<T: Tree + ?Sized>(tree: &T, wanted: fn(&Leaf<'_>) -> bool) -> BTreeMap<String, Array> {
    let mut arrays = BTreeMap::new();
    tree.visit(&mut Path::default(), &mut |name, leaf| {
        if wanted(&leaf) {
            arrays.insert(name.to_string(), leaf.array());
        }
    });
    arrays
}

fn is_npz(file: &FilePath) -> bool {
    file.extension().is_some_and(|extension| extension == "npz")
}

/// Checks that no two arrays have one name: one of them would be lost.
pub(crate) fn check_names<T: Tree + ?Sized>(op: &'static str, tree: &T) -> Result<()> {
    let (mut seen, mut twice) = (BTreeSet::new(), None);
    tree.visit(&mut Path::default(), &mut |name, _| {
        if !seen.insert(name.to_string()) {
            twice = Some(name.to_string());
        }
    });
    match twice {
        None => Ok(()),
        Some(name) => Err(Error::argument(op, name, "one array of this name", "two")),
    }
}

/// Sets the arrays that are named. All names are known to be there.
pub(crate) fn replace<T: Tree + ?Sized>(
    tree: &mut T,
    arrays: &BTreeMap<String, Array>,
) -> Result<()> {
    tree.visit_mut(&mut Path::default(), &mut |name, mut slot| {
        if let (Some(array), Some(_)) = (arrays.get(name), slot.leaf()) {
            slot.set(array.clone());
        }
        Ok(())
    })
}

fn set_trainable<T: Tree + ?Sized>(
    tree: &mut T,
    op: &'static str,
    keys: Option<&[&str]>,
    trainable: bool,
) -> Result<()> {
    let mut unknown: BTreeSet<&str> = keys.unwrap_or_default().iter().copied().collect();
    tree.visit_mut(&mut Path::default(), &mut |name, slot| {
        let last = name.rsplit('.').next().unwrap_or_default();
        if keys.is_some_and(|keys| !keys.contains(&last)) || slot.leaf().is_none() {
            return Ok(());
        }
        unknown.remove(last);
        match slot {
            Slot::Parameter(fixed) if trainable && keys.is_none() && fixed.is_fixed() => {}
            Slot::Parameter(parameter) => parameter.set_trainable(trainable),
            Slot::Array(_) if !trainable => {
                let got = "a plain array, which is always trained";
                return Err(Error::argument(op, name, "a Parameter", got));
            }
            _ => {}
        }
        Ok(())
    })?;
    match unknown.first() {
        None => Ok(()),
        Some(key) => Err(Error::argument(op, "keys", "names of parameters", format!("{key:?}"))),
    }
}

/// How names on both sides must agree.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Strictness {
    /// The same names on both sides.
    Exact,
    /// Every given name must be there.
    MayLack,
    /// Names on one side only do not matter.
    Any,
}

/// Checks that the shapes of named arrays, and maybe their names, are those of what is there.
pub(crate) fn check_keys(
    op: &'static str,
    present: &BTreeMap<String, Array>,
    given: &BTreeMap<String, Array>,
    strictness: Strictness,
) -> Result<()> {
    let lacking = |a: &BTreeMap<String, Array>, b: &BTreeMap<String, Array>| -> Vec<String> {
        a.keys().filter(|name| !b.contains_key(*name)).cloned().collect()
    };
    let missing = match strictness {
        Strictness::Exact => lacking(present, given),
        _ => Vec::new(),
    };
    let unexpected = match strictness {
        Strictness::Any => Vec::new(),
        _ => lacking(given, present),
    };
    let mismatched = given.iter().filter_map(|(name, array)| {
        let (expected, got) = (present.get(name)?.shape(), array.shape());
        (expected != got).then(|| format!("{name}: expected {expected:?}, got {got:?}"))
    });
    let mismatched: Vec<String> = mismatched.collect();
    if missing.is_empty() && unexpected.is_empty() && mismatched.is_empty() {
        return Ok(());
    }
    Err(Error::Keys { op, missing, unexpected, mismatched })
}
