//! Tokenizers beside what the packages tokenizers and sentencepiece do, chat templates beside Jinja2.

use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use serde_json::json;
use tempfile::TempDir;
use wootz_lm::tokenizer::{ChatOptions, Message, Tokenizer};

mod reference;

fn goldens(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../goldens").join(path)
}

fn all_pass(outcomes: &[reference::Outcome], at_least: usize) {
    for outcome in outcomes {
        match outcome.known() {
            Some(reason) => println!("{} differs: {reason}", outcome.name),
            None => assert!(outcome.failures.is_empty(), "{outcome:#?}"),
        }
    }
    let compared: usize = outcomes.iter().map(|outcome| outcome.compared).sum();
    assert!(compared >= at_least, "only {compared} were compared");
}

fn recorded(path: &Path) -> serde_json::Value {
    serde_json::from_str(&fs::read_to_string(path).expect("recorded")).expect("JSON")
}

#[test]
fn gguf_vocabularies_give_the_tokens_of_tokenizers_and_sentencepiece() {
    all_pass(&reference::vocabularies(&goldens("tokenizers")), 50);
}

#[test]
fn templates_render_as_jinja2_renders_them() {
    let renderings = recorded(&goldens("templates/renderings.json"));
    all_pass(&reference::templates(&goldens("templates"), &renderings), 100);
}

#[test]
fn every_vocabulary_of_llama_cpp_gives_the_recorded_tokens() {
    let Some(folder) = std::env::var_os("WOOTZ_LLAMA_MODELS") else {
        println!("SKIPPED: WOOTZ_LLAMA_MODELS does not name llama.cpp's folder of models");
        return;
    };
    let outcomes = reference::vocabularies(Path::new(&folder));
    all_pass(&outcomes, 600);
}

#[test]
fn a_folder_gives_the_tokens_of_tokenizers() {
    let tokenizer = Tokenizer::open(goldens("tokenizers/bytes")).expect("opens");
    let same = Tokenizer::open(goldens("tokenizers/bytes.gguf")).expect("opens");
    for text in ["The smith waits.", "Größe 🙂\n\n", "a<|im_end|>b <tool> c"] {
        let tokens = tokenizer.encode(text, false).expect("encodes");
        assert_eq!(tokens, same.encode(text, false).expect("encodes"));
        assert_eq!(tokenizer.decode(&tokens, false).expect("decodes"), text);
    }
    assert_eq!(tokenizer.vocab_size(), same.vocab_size());
    assert_eq!(tokenizer.token(tokenizer.id("<tool>").expect("known")).as_deref(), Some("<tool>"));
}

#[test]
fn special_tokens_come_from_all_files_of_a_folder() {
    let tokenizer = Tokenizer::open(goldens("tokenizers/bytes")).expect("opens");
    let id = |text: &str| tokenizer.id(text).expect("known");
    let (begin, end) = (id("<|endoftext|>"), id("<|im_end|>"));
    assert_eq!(tokenizer.bos(), Some(begin));
    assert_eq!(tokenizer.eos(), [end, begin]);
    assert_eq!(tokenizer.special_token("eos_token"), Some("<|im_end|>"));
    assert_eq!(tokenizer.special_token("unk_token"), Some("<|endoftext|>"));
    // add_bos_token of tokenizer_config.json, which tokenizer.json does not have.
    let tokens = tokenizer.encode("steel", true).expect("encodes");
    assert_eq!(tokens.first(), Some(&begin));
    assert_eq!(tokens[1..], tokenizer.encode("steel", false).expect("encodes"));
    assert!(tokenizer.is_special(end) && !tokenizer.is_special(id("<tool>")));
    let text = tokenizer.encode("a<|im_end|>b<tool>", false).expect("encodes");
    assert_eq!(tokenizer.decode(&text, true).expect("decodes"), "ab<tool>");
}

/// As in mlx-lm: one of the files, and the token of that role.
#[test]
fn ends_are_those_of_generations_or_else_of_the_model() {
    let folder = TempDir::new().expect("a folder");
    for file in ["tokenizer.json", "tokenizer_config.json"] {
        fs::copy(goldens("tokenizers/bytes").join(file), folder.path().join(file)).expect("copied");
    }
    let ends = |generation: &str, model: &str| {
        for (file, text) in [("generation_config.json", generation), ("config.json", model)] {
            fs::write(folder.path().join(file), text).expect("written");
        }
        Tokenizer::open(folder.path()).expect("opens").eos().to_vec()
    };
    let model = r#"{"eos_token_id": [7, 8], "text_config": {"eos_token_id": 9}}"#;
    let (own, of) = (ends("{}", "{}"), |more: &[u32]| [&[482], more].concat());
    assert_eq!(own, of(&[]));
    assert_eq!(ends(r#"{"eos_token_id": 5}"#, model), of(&[5]));
    assert_eq!(ends(r#"{"eos_token_id": [5, 482, 6]}"#, model), of(&[5, 6]));
    for nothing in
        ["{}", r#"{"eos_token_id": null}"#, r#"{"eos_token_id": 0}"#, r#"{"eos_token_id": []}"#]
    {
        assert_eq!(ends(nothing, model), of(&[7, 8]), "{nothing}");
    }
    assert_eq!(ends("{}", r#"{"text_config": {"eos_token_id": 9}}"#), own);
    assert_eq!(ends("{}", r#"{"eos_token_id": 0}"#), of(&[0]));
}

#[test]
fn special_tokens_of_a_gguf_file_are_as_it_says() {
    let tokenizer = Tokenizer::open(goldens("tokenizers/marked.gguf")).expect("opens");
    assert_eq!(tokenizer.bos(), Some(1));
    assert_eq!(tokenizer.eos().first(), Some(&2));
    assert!(tokenizer.eos().contains(&tokenizer.id("<|im_end|>").expect("known")));
    let tokens = tokenizer.encode("steel", true).expect("encodes");
    assert_eq!(tokens.first(), Some(&1));
    assert_eq!(tokenizer.decode(&tokens, true).expect("decodes"), "steel");
    assert!(!tokenizer.has_chat_template());
    let error = tokenizer.apply_chat_template(&[], &ChatOptions::default()).expect_err("has none");
    assert_eq!(error.to_string(), "chat template: the model has none");
}

#[test]
fn tokens_that_only_the_configuration_has_are_added() {
    let folder = TempDir::new().expect("a folder");
    let tokenizer = fs::read(goldens("tokenizers/bytes/tokenizer.json")).expect("read");
    fs::write(folder.path().join("tokenizer.json"), tokenizer).expect("written");
    let size = Tokenizer::open(folder.path()).expect("opens").vocab_size();
    let config = |id: usize| {
        let token = json!({"content": "<late>", "special": true});
        let config =
            json!({"added_tokens_decoder": {id.to_string(): token}, "eos_token": "<late>"});
        fs::write(folder.path().join("tokenizer_config.json"), config.to_string())
            .expect("written");
        Tokenizer::open(folder.path())
    };
    let tokenizer = config(size).expect("opens");
    let late = u32::try_from(size).expect("a number");
    assert_eq!(tokenizer.eos(), [late]);
    assert_eq!(tokenizer.encode("<late>", false).expect("encodes"), [late]);
    assert!(config(size + 1).is_err_and(|error| error.to_string().contains("<late>")));
}

#[test]
fn a_tokenizer_can_be_shared_by_threads() {
    fn shared<T: Send + Sync>(value: T) -> T {
        value
    }
    let tokenizer = shared(Tokenizer::open(goldens("tokenizers/bytes")).expect("opens"));
    shared(tokenizer.detokenizer());
}

#[test]
fn a_tokenizer_of_a_gguf_file_is_the_same_as_json() {
    for tokenizer in both() {
        let again =
            Tokenizer::from_json(tokenizer.to_json().expect("JSON").as_bytes()).expect("reads");
        for text in ["The smith waits.", " Größe 🙂\n\n", "a<|im_end|>b <tool> c", ""] {
            let tokens = tokenizer.encode(text, true).expect("encodes");
            assert_eq!(again.encode(text, true).expect("encodes"), tokens);
            assert_eq!(again.decode(&tokens, true).ok(), tokenizer.decode(&tokens, true).ok());
        }
    }
}

#[test]
fn a_template_for_tools_is_used_where_there_are_tools() {
    let tokenizer = Tokenizer::open(goldens("tokenizers/bytes")).expect("opens");
    let messages = [Message::new("user", "Hi")];
    let mut options = ChatOptions::default();
    let plain = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n";
    assert_eq!(tokenizer.apply_chat_template(&messages, &options).expect("renders"), plain);
    options.tools = vec![json!({"z": 1, "a": "<&>"})];
    let with_tools = format!("[{{\"z\": 1, \"a\": \"<&>\"}}]\n{plain}");
    assert_eq!(tokenizer.apply_chat_template(&messages, &options).expect("renders"), with_tools);
    options.template = Some("default".into());
    assert_eq!(tokenizer.apply_chat_template(&messages, &options).expect("renders"), plain);
    options.template = Some("rag".into());
    let error = tokenizer.apply_chat_template(&messages, &options).expect_err("no such");
    assert!(error.to_string().contains("default, tool_use"), "{error}");
}

#[test]
fn errors_of_templates_name_the_line_or_what_the_template_says() {
    let mut tokenizer = Tokenizer::open(goldens("tokenizers/bytes")).expect("opens");
    let mut error = |source: &str| {
        tokenizer.set_chat_template(source);
        let options = ChatOptions::default();
        tokenizer.apply_chat_template(&[], &options).expect_err(source).to_string()
    };
    assert!(error("one\ntwo\n{% if %}").contains("line 3"), "{}", error("one\ntwo\n{% if %}"));
    assert!(error("one\n{{ no_such() }}").contains("line 2"));
    assert_eq!(error("{{ raise_exception('Not so.') }}"), "chat template: Not so.");
    // Inside of a macro, too.
    let inner = "{% macro m() %}{{ raise_exception('Not so.') }}{% endmacro %}{{ m() }}";
    assert_eq!(error(inner), "chat template: Not so.");
}

#[test]
fn messages_are_read_and_written_as_they_are() {
    for text in [
        r#"{"role":"user","content":"Hi"}"#,
        r#"{"role":"assistant","content":null,"tool_calls":[{"z":1,"a":2}]}"#,
        r#"{"role":"user","content":[{"type":"text","text":"Hi"}]}"#,
    ] {
        let message: Message = serde_json::from_str(text).expect("a message");
        assert_eq!(serde_json::to_string(&message).expect("JSON"), text);
    }
    assert!(serde_json::from_str::<Message>(r#"{"content":"Hi"}"#).is_err());
    assert!(serde_json::from_str::<Message>(r#"{"role":"user","content":1}"#).is_err());
}

#[test]
fn bad_files_are_errors_that_name_them() {
    let folder = TempDir::new().expect("a folder");
    let error = || Tokenizer::open(folder.path()).expect_err("bad").to_string();
    assert!(error().contains("tokenizer.json") && error().contains("GGUF"), "{}", error());
    fs::write(folder.path().join("tokenizer.model"), b"x").expect("written");
    assert!(error().contains("tokenizer.model"), "{}", error());
    let long = r#"{"model": {"type": "BPE", "vocab": {"ab": 0, "cd": 1}, "merges": ["ab cd"]}}"#;
    for bad in ["", "{", "\u{fffd}", "{\"model\": 1}", "[]", long] {
        fs::write(folder.path().join("tokenizer.json"), bad).expect("written");
        assert!(error().contains("tokenizer.json"), "{bad}: {}", error());
    }
    fs::write(folder.path().join("tokenizer.json"), [0xff, 0xfe, 0x00]).expect("written");
    assert!(error().contains("tokenizer.json"));
    let good = fs::read(goldens("tokenizers/bytes/tokenizer.json")).expect("read");
    fs::write(folder.path().join("tokenizer.json"), good).expect("written");
    for (file, bad) in [
        ("tokenizer_config.json", "{\"chat_template\": 3}"),
        ("tokenizer_config.json", "{\"add_bos_token\": \"yes\"}"),
        ("generation_config.json", "{\"eos_token_id\": -1}"),
        ("config.json", "{\"eos_token_id\": [1, \"x\"]}"),
        ("special_tokens_map.json", "{"),
    ] {
        fs::write(folder.path().join(file), bad).expect("written");
        assert!(error().contains(file), "{file}: {bad}: {}", error());
        fs::remove_file(folder.path().join(file)).expect("removed");
    }
    assert!(Tokenizer::open(folder.path()).is_ok());
    assert!(Tokenizer::open(folder.path().join("no such")).is_err());
}

#[test]
fn spaces_are_cleaned_up_where_the_configuration_says_so() {
    let folder = TempDir::new().expect("a folder");
    let words = ["it", "'s", "good", ".", "do", "n't", ",", "'", "?", "!", "we", "'ve"];
    let vocabulary: serde_json::Map<_, _> =
        words.iter().enumerate().map(|(id, word)| (word.to_string(), json!(id))).collect();
    let tokenizer = json!({"added_tokens": [], "model":
        {"type": "WordLevel", "vocab": vocabulary, "unk_token": "it"}});
    fs::write(folder.path().join("tokenizer.json"), tokenizer.to_string()).expect("written");
    let decoded = |tokens: &[u32]| {
        let tokenizer = Tokenizer::open(folder.path()).expect("opens");
        let mut detokenizer = tokenizer.detokenizer();
        let mut text = String::new();
        for token in tokens {
            text.extend(detokenizer.push(*token).expect("decodes"));
        }
        text + &detokenizer.finish().expect("decodes")
    };
    let tokens = [0, 1, 2, 3, 4, 5, 6, 0, 7, 0, 8, 9, 10, 11, 7];
    assert_eq!(decoded(&tokens), "it 's good . do n't , it ' it ? ! we 've '");
    let config = "{\"clean_up_tokenization_spaces\": true}";
    fs::write(folder.path().join("tokenizer_config.json"), config).expect("written");
    assert_eq!(decoded(&tokens), "it's good. don't, it'it?! we've '");
}

/// Decodes token by token, and checks that all that is given out is whole.
fn streamed(tokenizer: &Tokenizer, tokens: &[u32]) -> String {
    let mut detokenizer = tokenizer.detokenizer();
    let mut text = String::new();
    for token in tokens {
        let piece = detokenizer.push(*token).expect("decodes");
        assert_ne!(piece.as_deref(), Some(""));
        text.extend(piece);
    }
    text + &detokenizer.finish().expect("decodes")
}

fn both() -> [Tokenizer; 2] {
    ["bytes.gguf", "marked.gguf"]
        .map(|file| Tokenizer::open(goldens("tokenizers").join(file)).expect("opens"))
}

/// What tokens stand for, worked out from the vocabulary alone.
fn bytes_of(tokenizer: &Tokenizer, tokens: &[u32]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for token in tokens.iter().filter_map(|token| tokenizer.token(*token)) {
        match token.strip_prefix("<0x").and_then(|rest| rest.strip_suffix('>')) {
            Some(digits) => bytes.push(u8::from_str_radix(digits, 16).expect("a byte")),
            None => bytes.extend(token.replace('\u{2581}', " ").bytes()),
        }
    }
    bytes
}

proptest! {
    #[test]
    fn what_is_streamed_is_what_is_decoded(tokens in prop::collection::vec(0u32..660, 0..60)) {
        for tokenizer in &both() {
            prop_assert_eq!(streamed(tokenizer, &tokens), tokenizer.decode(&tokens, false).expect("decodes"));
        }
        let library = tokenizers::Tokenizer::from_file(goldens("tokenizers/bytes/tokenizer.json")).expect("opens");
        let [bytes, marked] = both();
        prop_assert_eq!(streamed(&bytes, &tokens), library.decode(&tokens, false).expect("decodes"));
        let bytes = bytes_of(&marked, &tokens);
        let expected = String::from_utf8_lossy(&bytes);
        let expected = expected.strip_prefix(' ').unwrap_or(&expected);
        prop_assert_eq!(streamed(&marked, &tokens), expected);
    }

    #[test]
    fn text_survives_encoding_and_streaming(text in "\\PC{0,40}|[ a-zé\n鋼🙂]{0,40}") {
        for tokenizer in &both() {
            // Marks are spaces once they are decoded.
            let text = text.replace('\u{2581}', "");
            let tokens = tokenizer.encode(&text, false).expect("encodes");
            prop_assert_eq!(&streamed(tokenizer, &tokens), &text);
        }
    }
}

#[test]
fn a_character_is_given_out_when_it_is_whole() {
    for tokenizer in both() {
        let tokens = tokenizer.encode("🙂ж", false).expect("encodes");
        assert!(tokens.len() >= 6, "the vocabulary has no such characters: {tokens:?}");
        let mut detokenizer = tokenizer.detokenizer();
        let pieces: Vec<String> =
            tokens.iter().filter_map(|token| detokenizer.push(*token).expect("decodes")).collect();
        assert_eq!(pieces, ["🙂", "ж"]);
    }
}
