#!/usr/bin/env python3
"""Makes two small tokenizers and records what they do: `tokenizers_record.py DIR` writes
DIR/bytes (byte-pair encoding, in the layout of Hugging Face), DIR/bytes.gguf (the same as a GGUF
vocabulary) and DIR/marked.gguf (SentencePiece with scores and bytes). Beside each vocabulary are
texts (`.inp`) and the tokens that the packages tokenizers and sentencepiece make of them (`.out`),
as llama.cpp has them. Run through `cargo xtask goldens`, which pins the versions."""
import io
import json
import pathlib
import sys

import gguf
import sentencepiece
import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, pre_tokenizers, processors, trainers

SEPARATOR = "\n__ggml_vocab_test__\n"
WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
TEXT = """The smith heats the steel, folds it, and waits. Patterns come of layers: dark and bright, dark and bright.
A blade that was forged too cold breaks; a blade that was forged too hot is soft. It's the smith who knows the colour.
What isn't written can't be read, they'd say, and we'll never know how Wootz was made. There were 300 furnaces in 1820.
Der Schmied erhitzt den Stahl und wartet. Über den Öfen flimmert die Luft; Größe und Güte sind nicht dasselbe.
Le forgeron chauffe l'acier où l'été brûle déjà. ¿Quién sabía cómo se hacía? Сталь куют, пока горячо. 鋼は熱いうちに打て。
fn main() { let steel = forge(1200.0, 3); println!("{steel:?}"); }  // 42 layers
The steel is folded, and folded again, and again: layers of layers of layers. The smith waits and waits.
""" * 4
TEXTS = [
    "", " ", "  ", "   ", "\n", "\n\n", "\t\n", "Hello", " Hello", "  Hello world!", "The smith waits.", "the the  the",
    "It's what they'd say; WE'LL see, isn't it?", "300 furnaces, 1820, 3.14159", "Über Größe", "où l'été brûle",
    "Сталь куют", "鋼は熱い", "🙂 smiles 👩‍🔬 and more", "a\u0301 combining", "\u00a0nbsp\u2003em", "fn main() { let x = 1; }\n\n\n    // done\n",
    "line\r\nline\r\n\r\nline", "trailing   ", "   leading", "tabs\tand\t\ttabs", "layers of layers of layers", "\u0000\u0001\u007f", "x" * 40,
]
TEMPLATE = "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}" \
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def expected(folder, name, encode, texts):
    write(folder / f"{name}.gguf.inp", SEPARATOR.join(texts) + SEPARATOR)
    write(folder / f"{name}.gguf.out", "".join("".join(f" {id}" for id in encode(text)) + "\n" for text in texts))


def vocabulary(folder, name, model, pre, tokens, types, more):
    writer = gguf.GGUFWriter(folder / f"{name}.gguf", "llama")
    writer.add_name(name)
    writer.add_tokenizer_model(model)
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    more(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def merged_bytes(folder):
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(WORDS), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=480, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(TEXT.splitlines(keepends=True), trainer)
    tokenizer.add_special_tokens([AddedToken(text, normalized=False, special=True) for text in special])
    tokenizer.add_tokens([AddedToken("<tool>", normalized=False)])
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    write(folder / "bytes/tokenizer.json", tokenizer.to_str())
    ids = {text: tokenizer.token_to_id(text) for text in special}
    config = {
        "add_bos_token": True, "bos_token": {"content": special[0], "__type": "AddedToken"}, "eos_token": special[2],
        "clean_up_tokenization_spaces": False, "model_max_length": 1e30,
        "chat_template": [{"name": "default", "template": TEMPLATE},
                          {"name": "tool_use", "template": "{{ tools | tojson }}\n" + TEMPLATE}]}
    write(folder / "bytes/tokenizer_config.json", json.dumps(config, indent=1) + "\n")
    write(folder / "bytes/special_tokens_map.json", json.dumps({"unk_token": special[0]}) + "\n")
    write(folder / "bytes/generation_config.json", json.dumps({"eos_token_id": [ids[special[2]], ids[special[0]]]}) + "\n")
    write(folder / "bytes/config.json", json.dumps({"eos_token_id": ids[special[0]]}) + "\n")

    model = json.loads(tokenizer.to_str())["model"]
    tokens = [tokenizer.id_to_token(id) for id in range(tokenizer.get_vocab_size())]
    types = [gguf.TokenType.CONTROL if token in special else gguf.TokenType.USER_DEFINED if token == "<tool>" else
             gguf.TokenType.NORMAL for token in tokens]

    def more(writer):
        writer.add_token_merges([" ".join(merge) for merge in model["merges"]])
        writer.add_bos_token_id(ids[special[0]])
        writer.add_eos_token_id(ids[special[2]])
        writer.add_add_bos_token(True)
        writer.add_chat_template(TEMPLATE)

    vocabulary(folder, "bytes", "gpt2", "qwen2", tokens, types, more)
    texts = [*TEXTS, "a<|im_end|>b <tool> c<|im_start|>"]
    expected(folder, "bytes", lambda text: tokenizer.encode(text, add_special_tokens=False).ids, texts)


def scored_pieces(folder):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT.splitlines()), model_writer=model, model_type="bpe", vocab_size=640,
        byte_fallback=True, character_coverage=0.99, normalization_rule_name="identity", remove_extra_whitespaces=False,
        split_digits=True, user_defined_symbols=["<tool>"], control_symbols=["<|im_end|>"], num_threads=1, minloglevel=2)
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    kinds = [(processor.is_unknown, gguf.TokenType.UNKNOWN), (processor.is_byte, gguf.TokenType.BYTE),
             (processor.is_control, gguf.TokenType.CONTROL), (lambda id: id == processor.piece_to_id("<tool>"), gguf.TokenType.USER_DEFINED)]
    ids = range(processor.vocab_size())
    types = [next((kind for is_kind, kind in kinds if is_kind(id)), gguf.TokenType.NORMAL) for id in ids]

    def more(writer):
        writer.add_token_scores([processor.get_score(id) for id in ids])
        writer.add_bos_token_id(processor.bos_id())
        writer.add_eos_token_id(processor.eos_id())
        writer.add_unk_token_id(processor.unk_id())

    vocabulary(folder, "marked", "llama", "default", [processor.id_to_piece(id) for id in ids], types, more)
    expected(folder, "marked", processor.encode, TEXTS)


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    merged_bytes(folder)
    scored_pieces(folder)


if __name__ == "__main__":
    main()
