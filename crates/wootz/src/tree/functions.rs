//! Functions of whole trees, with MLX's names.

use std::collections::BTreeMap;

use super::{Path, Strictness, Tree, check_keys, replace};
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
    mapped.visit_mut(&mut Path::default(), &mut |name, mut slot| {
        if let Some(leaf) = slot.leaf() {
            let array = function(name, &leaf.array())?;
            slot.set(array);
        }
        Ok(())
    })?;
    Ok(mapped)
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
    let leaves: BTreeMap<String, Array> = leaves.into_iter().collect();
    check_keys("tree_unflatten", &like.parameters(), &leaves, Strictness::Exact)?;
    let mut tree = like.clone();
    replace(&mut tree, &leaves)?;
    Ok(tree)
}
