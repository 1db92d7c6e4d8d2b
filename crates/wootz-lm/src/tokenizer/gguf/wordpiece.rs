//! Vocabularies of BERT: words, and pieces that words go on with.

use tokenizers::decoders::wordpiece::WordPiece as Decoder;
use tokenizers::models::bpe::Vocab;
use tokenizers::models::wordpiece::WordPiece;
use tokenizers::normalizers::BertNormalizer;
use tokenizers::pre_tokenizers::bert::BertPreTokenizer;

use super::{Kind, Made, Vocabulary, invalid};
use crate::error::Result;
use crate::tokenizer::failed;

/// What files write before tokens that begin a word; BERT writes something before the others.
const WORD: char = '\u{2581}';
const GOES_ON: &str = "##";

pub(super) fn tokenizer(vocabulary: &Vocabulary<'_>) -> Result<Made> {
    let written = |token: &str, id: u32| match token.strip_prefix(WORD) {
        _ if vocabulary.kind(id) != Kind::Normal => token.to_string(),
        Some(word) => word.to_string(),
        None => format!("{GOES_ON}{token}"),
    };
    let tokens: Vocab = vocabulary.pairs().map(|(token, id)| (written(token, id), id)).collect();
    // The numbers of BERT, where a file says nothing.
    let or = |id: Option<u32>, usual: u32| id.or(vocabulary.token(usual).map(|_| usual));
    let unknown = or(vocabulary.special("unknown_token_id")?, 100);
    let unknown = unknown
        .and_then(|id| Some(written(vocabulary.token(id)?, id)))
        .ok_or_else(|| invalid("tokenizer.ggml.unknown_token_id", "missing"))?;
    let model = WordPiece::builder().vocab(tokens).unk_token(unknown).build().map_err(failed)?;
    let mut inner = tokenizers::Tokenizer::new(model);
    let lowercase = vocabulary.flag("normalizer.lowercase")?.unwrap_or(true);
    let strip_accents = vocabulary.flag("normalizer.strip_accents")?.unwrap_or(lowercase);
    let normalizer = BertNormalizer::new(true, true, Some(strip_accents), lowercase);
    inner.with_normalizer(Some(normalizer)).map_err(failed)?;
    inner.with_pre_tokenizer(Some(BertPreTokenizer));
    inner.with_decoder(Some(Decoder::new(GOES_ON.into(), true)));
    let bos = or(vocabulary.special("cls_token_id")?, 101);
    let eos = or(vocabulary.special("seperator_token_id")?, 102);
    Ok(Made { inner, bos, eos, add_bos: true, add_eos: true })
}
