//! Vocabularies of SentencePiece: pieces with scores, the better of which are merged first.

use tokenizers::decoders::DecoderWrapper;
use tokenizers::decoders::byte_fallback::ByteFallback;
use tokenizers::decoders::fuse::Fuse;
use tokenizers::decoders::sequence::Sequence as Decoders;
use tokenizers::decoders::strip::Strip;
use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::normalizers::{NormalizerWrapper, Prepend, Replace, Sequence};
use wootz::io::gguf::Value;

use super::{Kind, Made, Vocabulary, invalid};
use crate::error::Result;
use crate::tokenizer::failed;

const MARK: &str = "\u{2581}";

pub(super) fn tokenizer(vocabulary: &Vocabulary<'_>) -> Result<Made> {
    let space_first = vocabulary.flag("add_space_prefix")?.unwrap_or(true);
    let inner = merging(vocabulary, merges(vocabulary)?, space_first)?;
    // Numbers of the first vocabulary of this kind, which old files rely on.
    let [bos, eos] = [1, 2].map(|id| vocabulary.token(id).map(|_| id));
    Ok(Made { inner, bos, eos, add_bos: true, add_eos: false })
}

/// A tokenizer that writes spaces as marks, merges what comes, and falls back to bytes.
pub(super) fn merging(
    vocabulary: &Vocabulary<'_>,
    merges: Vec<(String, String)>,
    space_first: bool,
) -> Result<tokenizers::Tokenizer> {
    let tokens: Vocab = vocabulary.pairs().map(|(token, id)| (token.to_string(), id)).collect();
    let mut model =
        BPE::builder().vocab_and_merges(tokens, merges).byte_fallback(true).fuse_unk(true);
    let unknown = vocabulary.pairs().find(|(_, id)| vocabulary.kind(*id) == Kind::Unknown);
    if let Some((unknown, _)) = unknown {
        model = model.unk_token(unknown.to_string());
    }
    let mut inner = tokenizers::Tokenizer::new(model.build().map_err(failed)?);
    let mark: NormalizerWrapper = Replace::new(" ", MARK).map_err(failed)?.into();
    let normalizer = if space_first {
        Sequence::new(vec![Prepend::new(MARK.into()).into(), mark]).into()
    } else {
        mark
    };
    inner.with_normalizer(Some(normalizer)).map_err(failed)?;
    let space: DecoderWrapper = Replace::new(MARK, " ").map_err(failed)?.into();
    let mut decoders = vec![space, ByteFallback::new().into(), Fuse::new().into()];
    if space_first {
        decoders.push(Strip::new(' ', 1, 0).into());
    }
    inner.with_decoder(Some(Decoders::new(decoders)));
    Ok(inner)
}

/// Every way to put a piece together of two others, those of the best pieces first.
fn merges(vocabulary: &Vocabulary<'_>) -> Result<Vec<(String, String)>> {
    const KEY: &str = "tokenizer.ggml.scores";
    let scores = vocabulary.of_tokens(KEY)?.ok_or_else(|| invalid(KEY, "missing"))?;
    let scores: Vec<f64> =
        scores.iter().map(|score: Value| score.as_f64().unwrap_or(0.0)).collect();
    let mut found: Vec<(f64, u32, u32, u32)> = Vec::new();
    for ((token, id), score) in vocabulary.tokens.iter().zip(0u32..).zip(scores) {
        if !matches!(vocabulary.kind(id), Kind::Normal | Kind::UserDefined) {
            continue;
        }
        for (place, _) in token.char_indices().skip(1) {
            let (left, right) = token.split_at(place);
            let (left, right) = (vocabulary.ids.get(left), vocabulary.ids.get(right));
            if let (Some(left), Some(right)) = (left, right) {
                found.push((score, id, *left, *right));
            }
        }
    }
    found.sort_by(|a, b| b.0.total_cmp(&a.0).then((a.1, a.2, a.3).cmp(&(b.1, b.2, b.3))));
    let token = |id: u32| vocabulary.token(id).unwrap_or_default().to_string();
    Ok(found.into_iter().map(|(_, _, left, right)| (token(left), token(right))).collect())
}
