//! How text is split before it is merged, by the names that GGUF files have for it.
//!
//! A tokenizer's patterns are applied one after the other: each splits the pieces that the one before
//! left, into what it matches and what lies between.

use crate::error::{Error, Result};

/// How a named pre-tokenizer works.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pre {
    pub(super) patterns: &'static [&'static str],
    /// Pieces that are tokens are not put together of others.
    pub(super) whole_tokens: bool,
    /// Whether texts begin with a token of their own where the file does not say.
    pub(super) add_bos: bool,
    /// Spaces are marks and characters are themselves, instead of bytes.
    pub(super) marked: bool,
}

/// The pre-tokenizer of a name.
pub(super) fn named(name: &str) -> Result<Pre> {
    let found = TABLE.iter().find(|row| row.0.contains(&name));
    let Some((_, patterns, options)) = found else {
        let names: Vec<&str> = TABLE.iter().flat_map(|row| row.0).copied().collect();
        let what =
            format!("tokenizer.ggml.pre: {name:?} is not supported; {} are", names.join(", "));
        return Err(Error::Tokenizer(what));
    };
    let has = |option| options.contains(&option);
    Ok(Pre {
        patterns,
        whole_tokens: has(Options::WholeTokens),
        add_bos: has(Options::AddBos),
        marked: has(Options::Marked),
    })
}

/// The name for patterns that are applied one after the other, as `tokenizer.json` has them. Of several the one
/// that puts pieces together in the same way, if there is one.
pub(crate) fn name_of(patterns: &[String], whole_tokens: bool) -> Option<&'static str> {
    // The spaces that it ends with are left over without, as one piece each time, too.
    let known = |pattern: &String| match pattern.strip_suffix(r"|\s+") {
        Some(GPT2) => GPT2.to_string(),
        _ => pattern.clone(),
    };
    let patterns: Vec<String> = patterns.iter().map(known).collect();
    let rows = || TABLE.iter().filter(|row| row.1 == patterns && !row.2.contains(&Marked));
    let same = rows().find(|row| row.2.contains(&WholeTokens) == whole_tokens);
    let names = same.or_else(|| rows().next())?.0;
    let usual = names.iter().find(|name| ["llama-bpe", "smollm"].contains(name));
    usual.or(names.first()).copied()
}

/// The pattern of byte-level tokenizers that name none.
pub(crate) const BYTE_LEVEL: &str = GPT2;

#[derive(Clone, Copy, PartialEq)]
enum Options {
    WholeTokens,
    AddBos,
    Marked,
}
use Options::{AddBos, Marked, WholeTokens};

/// English contractions in either case, as the patterns of many tokenizers begin.
macro_rules! contractions {
    () => {
        "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
    };
}

/// Letters in upper case, then in lower case, with their marks.
macro_rules! cased {
    ($after:expr, $numbers:literal, $marks_end:literal) => {
        concat!(
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
            $after,
            r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*",
            $after,
            "|",
            $numbers,
            r"| ?[^\s\p{L}\p{N}]+",
            $marks_end,
            r"|\s*[\r\n]+|\s+(?!\S)|\s+"
        )
    };
}

/// Words, numbers, other signs, spaces: the pattern of GPT-4 and those after it.
macro_rules! words {
    ($begin:expr, $letters:literal, $numbers:literal, $signs:literal, $lines:literal) => {
        concat!(
            $begin,
            r"[^\r\n\p{L}\p{N}]?",
            $letters,
            "|",
            $numbers,
            "| ?",
            $signs,
            "|",
            $lines,
            r"|\s+(?!\S)|\s+"
        )
    };
}

const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)";
const DIGIT: &str = r"\p{N}";
const THREE_DIGITS: &str = r"\p{N}{1,3}";
/// Groups of three, counted from the end of a number.
const THOUSANDS: &str = r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))";
const NUMBER: &str = r"\p{N}+";
const HAN_AND_KANA: &str = "[一-龥\u{3040}-ゟ゠-ヿ]+";
const HAN_AND_HANGUL: &str = "[一-龥ࠀ-一가-\u{d7ff}]+";
const LINES: &str = r"[^\n]+|[\n]+";
const LLAMA3: &str = words!(
    concat!(contractions!(), "|"),
    r"\p{L}+",
    r"\p{N}{1,3}",
    r"[^\s\p{L}\p{N}]+[\r\n]*",
    r"\s*[\r\n]+"
);
const QWEN2: &str = words!(
    concat!(contractions!(), "|"),
    r"\p{L}+",
    r"\p{N}",
    r"[^\s\p{L}\p{N}]+[\r\n]*",
    r"\s*[\r\n]+"
);
const QWEN35: &str = words!(
    concat!(contractions!(), "|"),
    r"[\p{L}\p{M}]+",
    r"\p{N}",
    r"[^\s\p{L}\p{M}\p{N}]+[\r\n]*",
    r"\s*[\r\n]+"
);
const JAIS2: &str = concat!(
    contractions!(),
    r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+",
    r"|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)",
    r"|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1}"
);
const DEEPSEEK_LETTERS: &str = concat!(
    r"\s?[",
    "A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅ",
    "Ὀ-Ὅὐ-ὗὙὛὝὟ-\u{1f7d}ᾀ-ᾴᾶ-ᾼ\u{1fbe}ῂ-ῄῆ-ῌῐ-\u{1fd3}ῖ-\u{1fdb}ῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\u{2126}ℨ",
    "\u{212a}-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃",
    "]+"
);
const DEEPSEEK_SIGNS: &str = r"\s?[!-/:-~！-／：-～‘-‟　-。]+";
/// Signs with letters behind them, words, signs, spaces.
macro_rules! signed_words {
    ($lines:literal) => {
        concat!(
            r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"##,
            r"| ?[\p{P}\p{S}]+",
            $lines,
            r"|\s+(?!\S)|\s+"
        )
    };
}
const DEEPSEEK3: &str = signed_words!(r"[\r\n]*|\s*[\r\n]+");
const SPARK: &str = signed_words!(r"|[\r\n]");
const YOUTU: &str = cased!(concat!(contractions!(), "?"), r"\p{N}", r"[\r\n/]*");
const YOUTU_SCRIPTS: &str =
    "[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥\u{3040}-ゟ゠-ヿ]+";
const TEKKEN: &str = cased!("", r"\p{N}", r"[\r\n/]*");
const GPT4O: &str = cased!(concat!(contractions!(), "?"), r"\p{N}{1,3}", r"[\r\n/]*");
const KIMI: &str = concat!(
    r"\p{Han}+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+",
    contractions!(),
    r"?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*",
    contractions!(),
    r"?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);
const BLOOM: &str = r" ?[^(\s|.,!?…。，、।۔،)]+";
const BAILING: &str = words!(
    r"'(?i:[sdmt]|ll|ve|re)|",
    r"\p{L}+",
    r"\p{N}",
    r"[^\s\p{L}\p{N}]+[\r\n]*",
    r"\s*[\r\n]"
);
const SEED: &str = words!(
    concat!(contractions!(), "|"),
    r"\p{L}+",
    r"\p{N}",
    r"[^\s\p{L}\p{N}\r\n]+",
    r"\s*[\r\n]+"
);
const UFAKZEKA: &str = words!("", r"\p{L}+", r"\p{N}", r"[^\s\p{L}\p{N}]+[\r\n]*", r"\s*[\r\n]+");
const EXAONE_MOE: &str = words!(
    concat!(contractions!(), "|"),
    r"(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+",
    r"\p{N}",
    r"[^\s\p{L}\p{N}]+[\r\n/]?",
    r"\s*[\r\n]"
);
const MINICPM5: &str = words!(
    concat!(contractions!(), "|"),
    r"\p{L}+",
    r"\p{N}+",
    r"[^\s\p{L}\p{N}]+[\r\n]*",
    r"\s*[\r\n]+"
);
const ASIAN: &str = concat!(
    "[一-\u{9fff}㐀-䶿\u{f900}-\u{faff}\u{3040}-ゟ゠-ヿ･-ﾟ⼀-\u{2fdf}เ-\u{e7f}\u{e80}-\u{eff}ក-\u{17ff}",
    "က-႟ꩠ-ꩿꧠ-\u{a9ff}가-\u{d7af}ᄀ-ᇿ]+"
);

/// Names, patterns and what else is particular to them.
#[rustfmt::skip]
const TABLE: &[(&[&str], &[&str], &[Options])] = &[
    (&["default"],
        &[r"[\p{P}\$\+<=>\^~\|]+", GPT2, NUMBER, "[0-9][0-9][0-9]"], &[]),
    (&["llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano"],
        &[LLAMA3], &[WholeTokens, AddBos]),
    (&["dbrx", "smaug-bpe", "chatglm-bpe"], &[LLAMA3], &[]),
    (&["glm4", "glm5"], &[LLAMA3], &[WholeTokens]),
    (&["jais-2"], &[JAIS2], &[]),
    (&["minicpm5"], &[THREE_DIGITS, MINICPM5], &[WholeTokens]),
    (&["deepseek-llm"],
        &[r"[\r\n]", DEEPSEEK_LETTERS, DEEPSEEK_SIGNS, r"\s+$", HAN_AND_HANGUL, NUMBER], &[]),
    (&["deepseek-coder"], &[r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", HAN_AND_HANGUL, DIGIT], &[]),
    (&["deepseek-v3", "hunyuan-dense", "hy_v4", "joyai-llm"], &[THREE_DIGITS, HAN_AND_KANA, DEEPSEEK3], &[]),
    (&["spark2_5"], &[THREE_DIGITS, HAN_AND_KANA, SPARK, DIGIT], &[]),
    (&["youtu"], &[YOUTU_SCRIPTS, YOUTU], &[WholeTokens]),
    (&["falcon"], &[r"[\p{P}\$\+<=>\^~\|`]+", GPT2, "[0-9][0-9][0-9]"], &[]),
    (&["starcoder", "refact", "command-r", "smollm", "codeshell", "exaone", "minerva-7b", "mellum2"],
        &[DIGIT, GPT2], &[]),
    (&["gpt-2", "phi-2", "jina-es", "jina-de", "gigachat", "jina-v2-es", "jina-v2-de", "a.x-4.0", "mellum",
       "modern-bert", "jina-v1-en", "jina-v2-code", "roberta-bpe", "mpt", "olmo", "jais", "trillion",
       "granite-docling", "exaone4"],
        &[GPT2], &[]),
    (&["qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "stablelm2", "hunyuan", "solar-open", "megrez", "grok-2"],
        &[QWEN2], &[]),
    (&["qwen35"], &[QWEN35], &[]),
    (&["poro-chat", "bloom", "gpt3-finnish"], &[BLOOM], &[]),
    (&["viking"], &[BLOOM, DIGIT], &[]),
    (&["tekken"], &[TEKKEN], &[WholeTokens, AddBos]),
    (&["chameleon"],
        &["<sentinel:[0-9]+>", "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z", r"([\t\n]|    |  )", DIGIT,
          r"[\p{P}!-/:-@\[-`{-~]", GPT2], &[AddBos]),
    (&["gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"], &[GPT4O], &[]),
    (&["granite-embed-multi-97m"], &[GPT4O], &[WholeTokens]),
    (&["tiny_aya", "cohere2moe"], &[THOUSANDS, GPT4O], &[]),
    (&["kimi-k2"], &[KIMI], &[]),
    (&["superbpe"], &[NUMBER, THOUSANDS], &[]),
    (&["bailingmoe", "bailingmoe2", "llada-moe"], &[BAILING], &[]),
    (&["seed-coder"], &[SEED], &[]),
    (&["ufakzeka"], &[UFAKZEKA], &[]),
    (&["afmoe"], &[THOUSANDS, ASIAN, DEEPSEEK3], &[]),
    (&["laguna"], &[LINES, QWEN2], &[]),
    (&["exaone-moe"], &[EXAONE_MOE], &[]),
    (&["gemma4", "granite-embed-multi-311m", "sarvam-moe"], &[LINES], &[Marked]),
];

#[cfg(test)]
mod tests {
    use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
    use tokenizers::tokenizer::normalizer::SplitDelimiterBehavior::Isolated;

    use super::*;

    #[test]
    fn every_pattern_is_a_regular_expression() {
        for (names, patterns, _) in TABLE {
            for pattern in *patterns {
                let split = Split::new(SplitPattern::Regex(pattern.to_string()), Isolated, false);
                assert!(split.is_ok(), "{names:?}: {pattern}: {:?}", split.err());
            }
        }
    }

    #[test]
    fn patterns_have_the_name_of_their_row_and_no_others() {
        for (names, patterns, options) in TABLE.iter().filter(|row| !row.2.contains(&Marked)) {
            let patterns: Vec<String> = patterns.iter().map(ToString::to_string).collect();
            let name = name_of(&patterns, options.contains(&WholeTokens)).unwrap_or_default();
            let row = TABLE.iter().find(|row| row.0.contains(&name));
            let (_, found, others) = row.unwrap_or_else(|| panic!("{names:?}: {name:?}"));
            assert_eq!(found, &patterns, "{names:?}");
            assert_eq!(others.contains(&WholeTokens), options.contains(&WholeTokens), "{names:?}");
        }
        let of = |pattern: &str, whole| name_of(&[pattern.to_string()], whole);
        assert_eq!((of(LLAMA3, true), of(LLAMA3, false)), (Some("llama-bpe"), Some("dbrx")));
        assert_eq!((of(TEKKEN, true), of(GPT4O, false)), (Some("tekken"), Some("gpt-4o")));
        assert_eq!(of(&format!(r"{GPT2}|\s+"), false), Some("gpt-2"));
        let starts_alike = LLAMA3.replace("{1,3}", "{1,2}");
        assert_eq!((of(&starts_alike, true), of("x", false), of(LINES, false)), (None, None, None));
    }

    #[test]
    fn every_name_is_in_the_table_once() {
        let mut names: Vec<&str> = TABLE.iter().flat_map(|row| row.0).copied().collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
        assert!(named("no-such").is_err_and(|error| error.to_string().contains("qwen2")));
    }
}
