//! What each token adds to a text, for the decoders that language models have.

use serde_json::Value;
use tokenizers::Tokenizer;

use super::failed;
use crate::error::Result;

/// How tokens become text.
///
/// Known decoders are run token by token, as bytes: a character may be made of several tokens, and
/// one token may end a character and begin another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Pieces {
    /// Every character stands for a byte.
    Bytes,
    /// SentencePiece's: a mark stands for a space, and tokens such as `<0x0A>` for bytes.
    Marked {
        /// Whether there are tokens for bytes.
        bytes: bool,
        /// Spaces that the encoder put first.
        strip: usize,
    },
    /// Marks stand for spaces, and those of the first token for nothing.
    Metaspace {
        /// Whether it does, or the encoder adds none.
        first: bool,
    },
    /// Anything else is decoded by the library.
    Other,
}

const MARK: &str = "\u{2581}";

impl Pieces {
    pub(super) fn of(tokenizer: &Tokenizer) -> Result<Pieces> {
        let Some(decoder) = tokenizer.get_decoder() else { return Ok(Pieces::Other) };
        let decoder = serde_json::to_value(decoder).map_err(failed)?;
        Ok(match kind(&decoder) {
            "ByteLevel" => Pieces::Bytes,
            "Metaspace" if decoder["replacement"] == MARK => {
                Pieces::Metaspace { first: decoder["prepend_scheme"] != "never" }
            }
            "Sequence" => decoder["decoders"]
                .as_array()
                .and_then(|all| sequence(all))
                .unwrap_or(Pieces::Other),
            _ => Pieces::Other,
        })
    }

    /// Appends what a token adds to a text.
    pub(super) fn append(self, token: &str, first: bool, out: &mut Vec<u8>) {
        match self {
            Pieces::Bytes => {
                let start = out.len();
                for character in token.chars() {
                    let Some(byte) = byte_of(character) else {
                        // A special token, which is written as it is.
                        out.truncate(start);
                        out.extend_from_slice(token.as_bytes());
                        return;
                    };
                    out.push(byte);
                }
            }
            Pieces::Marked { bytes: true, .. } if byte_token(token).is_some() => {
                out.extend(byte_token(token));
            }
            Pieces::Metaspace { first: true } if first => {
                out.extend_from_slice(token.replace(MARK, "").as_bytes());
            }
            Pieces::Marked { .. } | Pieces::Metaspace { .. } => {
                out.extend_from_slice(token.replace(MARK, " ").as_bytes());
            }
            Pieces::Other => out.extend_from_slice(token.as_bytes()),
        }
    }

    /// How many of the spaces that a text begins with are not part of it.
    pub(super) fn strip(self) -> usize {
        if let Pieces::Marked { strip, .. } = self { strip } else { 0 }
    }
}

fn kind(decoder: &Value) -> &str {
    decoder["type"].as_str().unwrap_or_default()
}

/// A chain of decoders that does what SentencePiece does.
fn sequence(decoders: &[Value]) -> Option<Pieces> {
    let (mut bytes, mut strip, mut fused, mut marked) = (false, 0, false, false);
    if let [one] = decoders {
        return (kind(one) == "ByteLevel").then_some(Pieces::Bytes);
    }
    for decoder in decoders {
        match kind(decoder) {
            "Replace" if decoder["pattern"]["String"] == MARK && decoder["content"] == " " => {
                marked = true;
            }
            "ByteFallback" if !fused => bytes = true,
            "Fuse" => fused = true,
            "Strip" if fused && decoder["content"] == " " && decoder["stop"] == 0 => {
                strip += usize::try_from(decoder["start"].as_u64()?).ok()?;
            }
            _ => return None,
        }
    }
    marked.then_some(Pieces::Marked { bytes, strip })
}

/// The byte of a token such as `<0x0A>`.
fn byte_token(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
    if digits.len() == 2 { u8::from_str_radix(digits, 16).ok() } else { None }
}

/// The byte that a character stands for: printable characters of Latin-1 for themselves, and those
/// from U+0100 for the other bytes, in order.
fn byte_of(character: char) -> Option<u8> {
    match u32::from(character) {
        code @ (0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff) => u8::try_from(code).ok(),
        code @ 0x100..=0x120 => u8::try_from(code - 0x100).ok(),
        code @ 0x121..=0x142 => u8::try_from(code - 0x121 + 0x7f).ok(),
        0x143 => Some(0xad),
        _ => None,
    }
}
