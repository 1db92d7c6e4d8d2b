//! Which layers of a model are quantized, and how: mlx-lm's choices.

use std::fmt;
use std::str::FromStr;

use wootz::quant::Scheme;

use crate::{Error, Result};

/// More bits for the layers that need them: mlx-lm's mixed recipes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Recipe {
    /// 2 bits, and 6 for what matters more.
    Mixed2_6,
    /// 3 bits, and 4 for what matters more.
    Mixed3_4,
    /// 3 bits, and 6 for what matters more.
    Mixed3_6,
    /// 4 bits, and 6 for what matters more.
    Mixed4_6,
}

impl Recipe {
    /// Every recipe, with its name.
    pub const ALL: [(&'static str, Recipe); 4] = [
        ("mixed_2_6", Recipe::Mixed2_6),
        ("mixed_3_4", Recipe::Mixed3_4),
        ("mixed_3_6", Recipe::Mixed3_6),
        ("mixed_4_6", Recipe::Mixed4_6),
    ];

    fn bits(self) -> (usize, usize) {
        match self {
            Recipe::Mixed2_6 => (2, 6),
            Recipe::Mixed3_4 => (3, 4),
            Recipe::Mixed3_6 => (3, 6),
            Recipe::Mixed4_6 => (4, 6),
        }
    }
}

impl fmt::Display for Recipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Recipe::ALL.iter().find(|(_, recipe)| recipe == self).map(|(name, _)| *name);
        f.pad(name.unwrap_or_default())
    }
}

impl FromStr for Recipe {
    type Err = Error;

    fn from_str(name: &str) -> Result<Recipe> {
        let found = Recipe::ALL.iter().find(|(known, _)| *known == name);
        let known = || Recipe::ALL.map(|(name, _)| name).join(", ");
        found.map(|(_, recipe)| *recipe).ok_or_else(|| Error::argument("recipe", known(), name))
    }
}

/// How layers are quantized.
#[derive(Clone, Debug)]
pub(super) struct Choice {
    /// Of layers that nothing else is said of.
    pub(super) scheme: Scheme,
    recipe: Option<Recipe>,
    architecture: String,
    layers: usize,
    /// Which part of a layer's path is its number.
    position: usize,
}

impl Choice {
    /// For a model of an architecture, with so many layers, whose tensors have these names.
    pub(super) fn new<'a>(
        scheme: Scheme,
        recipe: Option<Recipe>,
        architecture: &str,
        layers: usize,
        names: impl Iterator<Item = &'a str>,
    ) -> Result<Choice> {
        let mut position = 0;
        if recipe.is_some() {
            if !matches!(scheme, Scheme::Affine { .. }) {
                return Err(Error::argument("recipe", "affine quantization", scheme));
            }
            let mut names = names;
            let down = names.find(|name| name.contains("down_proj"));
            let numbered =
                |name: &str| name.split('.').position(|part| part.parse::<usize>().is_ok());
            position = down.and_then(numbered).ok_or_else(|| {
                Error::argument("recipe", "a model with layers that have down_proj", "one without")
            })?;
        }
        Ok(Choice { scheme, recipe, architecture: architecture.to_string(), layers, position })
    }

    /// How a layer is quantized, if it is.
    pub(super) fn of(&self, path: &str, shape: &[usize]) -> Option<Scheme> {
        let [.., _, columns] = *shape else { return None };
        // Convolutions are no matrices.
        if path.ends_with("conv1d") || columns % group_size(self.scheme) != 0 {
            return None;
        }
        if let (Some(recipe), Scheme::Affine { group_size, .. }) = (self.recipe, self.scheme) {
            let (low, high) = recipe.bits();
            let bits = if self.matters(path) { high } else { low };
            return Some(Scheme::Affine { group_size, bits });
        }
        if self.wants_more(path) && columns % 64 == 0 {
            return Some(Scheme::Affine { group_size: 64, bits: 8 });
        }
        Some(self.scheme)
    }

    /// Whether a recipe gives a layer more bits: values and what comes down in some layers, and the
    /// output.
    fn matters(&self, path: &str) -> bool {
        let number = path.split('.').nth(self.position).and_then(|part| part.parse().ok());
        let some = has_more_bits(number.unwrap_or(0), self.layers);
        let named = ["v_proj", "v_a_proj", "v_b_proj", "down_proj"];
        path.contains("lm_head") || (some && named.iter().any(|name| path.contains(name)))
    }

    /// Whether an architecture asks for 8 bits: routers, and what is small in granite.
    fn wants_more(&self, path: &str) -> bool {
        match self.architecture.as_str() {
            "qwen3_moe" => path.ends_with("mlp.gate"),
            "qwen3_next" | "qwen3_5" | "qwen3_5_moe" => {
                path.ends_with("mlp.gate") || path.ends_with("shared_expert_gate")
            }
            "gpt_oss" => path.ends_with("router"),
            "granite" => {
                path.ends_with("self_attn.o_proj")
                    || path.ends_with("mlp.down_proj")
                    || path == "lm_head"
            }
            _ => false,
        }
    }
}

/// Which of so many layers have more bits: the first and the last eighth, and every third between.
pub(super) fn has_more_bits(layer: usize, layers: usize) -> bool {
    let eighth = layers / 8;
    match layer.checked_sub(eighth) {
        Some(between) if layer < 7 * layers / 8 => between % 3 == 2,
        _ => true,
    }
}

/// Weights that share a scale.
pub(super) fn group_size(scheme: Scheme) -> usize {
    match scheme {
        Scheme::Affine { group_size, .. } => group_size,
        Scheme::Blocks(format) => format.block_elements(),
        Scheme::Nvfp4 => 16,
        _ => 32,
    }
}

/// Bits of a code.
pub(super) fn bits(scheme: Scheme) -> usize {
    match scheme {
        Scheme::Affine { bits, .. } => bits,
        Scheme::Mxfp8 => 8,
        _ => 4,
    }
}

/// MLX's word for a scheme.
pub(super) fn mode(scheme: Scheme) -> &'static str {
    match scheme {
        Scheme::Mxfp4 => "mxfp4",
        Scheme::Mxfp8 => "mxfp8",
        Scheme::Nvfp4 => "nvfp4",
        _ => "affine",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AFFINE: Scheme = Scheme::Affine { group_size: 64, bits: 4 };

    #[test]
    fn a_recipe_gives_more_bits_to_the_layers_that_mlx_lm_gives_them_to() {
        let names = ["model.layers.0.mlp.down_proj.weight"];
        let choice =
            Choice::new(AFFINE, Some(Recipe::Mixed3_6), "llama", 16, names.into_iter()).unwrap();
        let bits = |path: &str| match choice.of(path, &[64, 128]) {
            Some(Scheme::Affine { bits, .. }) => bits,
            other => panic!("{path}: {other:?}"),
        };
        // Of mlx_lm.convert's predicate, for 16 layers.
        let more = [0, 1, 4, 7, 10, 13, 14, 15];
        for layer in 0..16 {
            let expected = if more.contains(&layer) { 6 } else { 3 };
            assert_eq!(bits(&format!("model.layers.{layer}.mlp.down_proj")), expected, "{layer}");
            assert_eq!(
                bits(&format!("model.layers.{layer}.self_attn.v_proj")),
                expected,
                "{layer}"
            );
            assert_eq!(bits(&format!("model.layers.{layer}.self_attn.q_proj")), 3);
        }
        assert_eq!(bits("lm_head"), 6);
        assert_eq!(bits("model.embed_tokens"), 3);
    }

    #[test]
    fn rows_that_are_no_whole_groups_and_vectors_stay_as_they_are() {
        let choice = Choice::new(AFFINE, None, "llama", 2, std::iter::empty()).unwrap();
        assert_eq!(choice.of("model.norm", &[64]), None);
        assert_eq!(choice.of("a", &[64, 96]), None);
        assert_eq!(choice.of("a", &[64, 128]), Some(AFFINE));
        let routers = Choice::new(Scheme::Mxfp4, None, "qwen3_moe", 2, std::iter::empty()).unwrap();
        let eight = Scheme::Affine { group_size: 64, bits: 8 };
        assert_eq!(routers.of("model.layers.0.mlp.gate", &[8, 64]), Some(eight));
        assert!(
            Choice::new(
                Scheme::Mxfp4,
                Some(Recipe::Mixed4_6),
                "llama",
                2,
                ["a.0.down_proj"].into_iter()
            )
            .is_err()
        );
    }
}
