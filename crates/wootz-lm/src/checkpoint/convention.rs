//! Tensors as Hugging Face has them, made those of MLX.

use wootz::{Array, add, moveaxis, stack};

use super::Loader;
use crate::Result;

impl Loader<'_> {
    /// Joins the experts `{path}.experts.{e}.{theirs}` to one `{path}.switch_mlp.{ours}`, where they
    /// are apart.
    pub fn join_experts(
        &mut self,
        path: &str,
        experts: usize,
        names: &[(&str, &str)],
    ) -> Result<()> {
        for (theirs, ours) in names {
            for kind in ["weight", "scales", "biases"] {
                let name = |expert: usize| format!("{path}.experts.{expert}.{theirs}.{kind}");
                if !self.contains(&name(0)) {
                    continue;
                }
                let mut parts = Vec::new();
                for expert in 0..experts {
                    // With one missing, whoever wants the joined one says that there is none.
                    let Some(part) = self.take(&name(expert))? else { break };
                    parts.push(part);
                }
                if parts.len() == experts {
                    self.insert(&format!("{path}.switch_mlp.{ours}.{kind}"), stack(&parts, 0)?);
                }
            }
        }
        Ok(())
    }

    /// Convolutions' weights with channels last, where they are not.
    pub fn move_channels(&mut self) -> Result<bool> {
        let mut moved = false;
        for name in self.names() {
            let theirs = self.shape(&name).is_some_and(|shape| shape.last() != Some(&1));
            if name.contains("conv1d.weight") && theirs {
                self.change(&name, |array| moveaxis(array, 2, 1))?;
                moved = true;
            }
        }
        Ok(moved)
    }

    /// Adds 1 to weights of norms whose names end so.
    pub fn add_one(&mut self, suffixes: &[&str]) -> Result<()> {
        for name in self.names() {
            let one = self.shape(&name).is_some_and(|shape| shape.len() == 1);
            if one && suffixes.iter().any(|suffix| name.ends_with(suffix)) {
                self.change(&name, |array| add(array, 1.0))?;
            }
        }
        Ok(())
    }

    /// Puts what a function makes of a tensor in its place.
    pub fn change(
        &mut self,
        name: &str,
        change: impl FnOnce(&Array) -> wootz::Result<Array>,
    ) -> Result<()> {
        if let Some(array) = self.take(name)? {
            self.insert(name, change(&array)?);
        }
        Ok(())
    }
}
