//! Functions of whole trees, with MLX's names.

use std::collections::BTreeMap;

use super::{Path, Strictness, Tree, check_keys, check_names, replace};
use crate::array::Array;
use crate::error::Result;

/// The arrays of a tree with their dotted names, in the order of its fields.
///
/// ```
/// use wootz::{Array, tree_flatten};
/// let tree = (Array::new([1])?, vec![Array::new([2])?, Array::new([3])?]);
/// let names: Vec<String> = tree_flatten(&tree).into_iter().map(|(name, _)| name).collect();
/// assert_eq!(names, ["0", "1.0", "1.1"]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn tree_flatten<T: Tree + ?Sized>(tree: &T) -> Vec<(String, Array)> {
    let mut leaves = Vec::new();
    tree.visit(&mut Path::default(), &mut |name, leaf| {
        leaves.push((name.to_string(), leaf.array()));
    });
    leaves
}

/// The same tree with every array replaced by what `function` makes of its name and itself.
///
/// ```
/// use wootz::{Array, DType, tree_map};
/// let tree = vec![Array::new([1.5f32])?, Array::new([2.5f32])?];
/// let narrow = tree_map(&tree, |_, array| array.astype(DType::F16))?;
/// assert_eq!(narrow[1].dtype(), DType::F16);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn tree_map<T: Tree + Clone>(
    tree: &T,
    mut function: impl FnMut(&str, &Array) -> Result<Array>,
) -> Result<T> {
    let mut mapped = tree.clone();
    mapped.apply(&mut function)?;
    Ok(mapped)
}

/// As [`tree_map`], which tells names already.
///
/// ```
/// use wootz::{Array, tree_map_with_path};
/// let tree = (Array::new([1])?, vec![Array::new([2])?]);
/// // tree_map_with_path(lambda path, x: -x if path == "1.0" else x, tree)
/// let changed = tree_map_with_path(&tree, |path, x| match path {
///     "1.0" => Ok(-x),
///     _ => Ok(x.clone()),
/// })?;
/// assert_eq!(changed.1[0].item::<i32>()?, -2);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn tree_map_with_path<T: Tree + Clone>(
    tree: &T,
    function: impl FnMut(&str, &Array) -> Result<Array>,
) -> Result<T> {
    tree_map(tree, function)
}

/// A tree like `like` with these arrays. Names must be the same and shapes must agree: the error
/// tells what is missing, what is unexpected and what does not fit.
///
/// ```
/// use wootz::{Array, tree_flatten, tree_unflatten};
/// let like = (Array::new([0, 0])?, Array::new([0])?);
/// let leaves = tree_flatten(&(Array::new([1, 2])?, Array::new([3])?));
/// assert_eq!(tree_unflatten(&like, leaves)?.0.to_vec::<i32>()?, [1, 2]);
/// let error = tree_unflatten(&like, [("0".to_string(), Array::new([1, 2])?)]).unwrap_err();
/// assert_eq!(error.to_string(), "[tree_unflatten] missing: 1");
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn tree_unflatten<T: Tree + Clone>(
    like: &T,
    leaves: impl IntoIterator<Item = (String, Array)>,
) -> Result<T> {
    check_names("tree_unflatten", like)?;
    let leaves: BTreeMap<String, Array> = leaves.into_iter().collect();
    check_keys("tree_unflatten", &like.parameters(), &leaves, Strictness::Exact)?;
    let mut tree = like.clone();
    replace(&mut tree, &leaves)?;
    Ok(tree)
}

/// What `function` makes of a first value and all arrays of a tree, one after the other.
///
/// ```
/// use wootz::{Array, tree_reduce};
/// // tree_reduce(lambda acc, x: acc + x.size, tree, 0)
/// let tree = (Array::new([1, 2])?, vec![Array::new([3])?]);
/// assert_eq!(tree_reduce(&tree, 0, |count, x| Ok(count + x.size()))?, 3);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn tree_reduce<T: Tree + ?Sized, A>(
    tree: &T,
    initializer: A,
    mut function: impl FnMut(A, &Array) -> Result<A>,
) -> Result<A> {
    tree_flatten(tree).iter().try_fold(initializer, |value, (_, array)| function(value, array))
}

/// The arrays of two trees by name: those that are in one, and what `merge` makes of those that are in both.
///
/// ```
/// use std::collections::BTreeMap;
/// use wootz::{Array, add, tree_merge};
/// // tree_merge({"a": x, "b": x}, {"b": x, "c": x}, lambda a, b: a + b)
/// let x = Array::new([1, 2])?;
/// let tree = |names: [&str; 2]| BTreeMap::from(names.map(|name| (name.to_string(), x.clone())));
/// let merged = tree_merge(&tree(["a", "b"]), &tree(["b", "c"]), |_, a, b| add(a, b))?;
/// assert_eq!(merged.len(), 3);
/// assert_eq!(merged["b"].to_vec::<i32>()?, [2, 4]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn tree_merge<T: Tree + ?Sized, U: Tree + ?Sized>(
    tree_a: &T,
    tree_b: &U,
    mut merge: impl FnMut(&str, &Array, &Array) -> Result<Array>,
) -> Result<BTreeMap<String, Array>> {
    let mut merged: BTreeMap<String, Array> = tree_flatten(tree_a).into_iter().collect();
    for (name, array) in tree_flatten(tree_b) {
        let array = match merged.get(&name) {
            Some(other) => merge(&name, other, &array)?,
            None => array,
        };
        merged.insert(name, array);
    }
    Ok(merged)
}
