//! The tokens that a model wants before and after every text.

use tokenizers::processors::template::{SpecialToken, Template, TemplateProcessing};

use super::failed;
use crate::error::Result;

/// A special token: its number and how the vocabulary writes it.
pub(super) type Token = (u32, String);

/// Puts tokens around every text.
pub(super) fn around(before: Option<Token>, after: Option<Token>) -> Result<TemplateProcessing> {
    // Names of our own: the library takes apart names with colons, as tokens may have them.
    let named = [("before", before), ("after", after)];
    let name = |wanted: &str| {
        let found = named.iter().find(|(name, token)| *name == wanted && token.is_some());
        found.map(|(name, _)| name.to_string())
    };
    let sequence = |text: &str| -> Result<Template> {
        let pieces: Vec<String> =
            [name("before"), Some(text.to_string()), name("after")].into_iter().flatten().collect();
        Template::try_from(pieces).map_err(failed)
    };
    let special = named
        .iter()
        .filter_map(|(name, token)| {
            let (id, text) = token.clone()?;
            Some(SpecialToken::new(name.to_string(), vec![id], vec![text]).map_err(failed))
        })
        .collect::<Result<Vec<_>>>()?;
    TemplateProcessing::builder()
        .single(sequence("$A")?)
        .pair(Template::try_from(vec!["$A", "$B:1"]).map_err(failed)?)
        .special_tokens(special)
        .build()
        .map_err(failed)
}
