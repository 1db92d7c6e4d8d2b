"""llama.cpp as a peer for whole models, through llama-cpp-python: one request per line on stdin, one JSON line per
answer on stdout. `make FOLDER` instead writes the synthetic models that `cargo xtask bench lm` measures.

Requests: `version`; `load FILE`; `prompt N reps R` (the time of reading N tokens); `generate N reps R` (that of N
further tokens after a prompt, each the most likely one); the best of the repetitions counts.
"""
import ctypes
import json
import os
import pathlib
import sys
import time

THREADS = 2
CONTEXT = 1024
# Sizes of the synthetic model, a llama of 1.1 billion parameters.
HIDDEN, LAYERS, INNER, HEADS, KV_HEADS, VOCABULARY = 2048, 16, 8192, 32, 8, 32000


def tokens(count, vocabulary):
    """Tokens of all kinds, the same as wootz reads."""
    state, out = 1, []
    for _ in range(count):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        out.append((state >> 33) % vocabulary)
    return out


class Model:
    def __init__(self, path):
        parameters = llama.llama_model_default_params()
        self.model = llama.llama_model_load_from_file(path.encode(), parameters)
        if not self.model:
            raise ValueError(f"llama.cpp does not load {path}")
        parameters = llama.llama_context_default_params()
        parameters.n_ctx, parameters.n_batch, parameters.n_ubatch = CONTEXT, 512, 512
        parameters.n_threads = parameters.n_threads_batch = THREADS
        self.context = llama.llama_init_from_model(self.model, parameters)
        self.vocabulary = llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(self.model))

    def close(self):
        llama.llama_free(self.context)
        llama.llama_model_free(self.model)

    def read(self, ids):
        array = (llama.llama_token * len(ids))(*ids)
        if llama.llama_decode(self.context, llama.llama_batch_get_one(array, len(ids))) != 0:
            raise ValueError("llama_decode failed")
        logits = llama.llama_get_logits_ith(self.context, -1)
        return int(np.ctypeslib.as_array(logits, (self.vocabulary,)).argmax())

    def prompt(self, count):
        llama.llama_memory_clear(llama.llama_get_memory(self.context), True)
        start = time.perf_counter()
        token = self.read(tokens(count, self.vocabulary))
        return time.perf_counter() - start, token

    def generate(self, count):
        _, token = self.prompt(32)
        start = time.perf_counter()
        for _ in range(count):
            token = self.read([token])
        return time.perf_counter() - start


def answer(request, state):
    name, *rest = request.split()
    if name == "version":
        return {"version": llama.__version__, "threads": THREADS}
    if name == "load":
        if "model" in state:
            state.pop("model").close()
        state["model"] = Model(request[len("load "):])
        return {"loaded": True}
    count, reps = int(rest[0]), int(rest[2])
    runs = {"prompt": lambda: state["model"].prompt(count)[0], "generate": lambda: state["model"].generate(count)}
    return {"ms": 1e3 * min(runs[name]() for _ in range(reps))}


def serve():
    state = {}
    for line in sys.stdin:
        try:
            print(json.dumps(answer(line.strip(), state)), flush=True)
        except Exception as error:
            print(json.dumps({"error": f"{type(error).__name__}: {error}"}), flush=True)


def make(folder):
    """Writes the synthetic model as F16, and quantized by llama.cpp."""
    folder.mkdir(parents=True, exist_ok=True)
    source = folder / "synthetic-1.1b.F16.gguf"
    if not source.exists():
        write_f16(source.with_suffix(".part"))
        source.with_suffix(".part").rename(source)
    for name, kind in [("Q4_0", 2), ("Q4_K_M", 15), ("Q8_0", 7)]:
        path = folder / f"synthetic-1.1b.{name}.gguf"
        if path.exists():
            continue
        parameters = llama.llama_model_quantize_default_params()
        parameters.ftype, parameters.nthread = kind, THREADS
        part = path.with_suffix(".part")
        if llama.llama_model_quantize(str(source).encode(), str(part).encode(), ctypes.byref(parameters)) != 0:
            raise SystemExit(f"llama.cpp did not quantize to {name}")
        part.rename(path)
        print(f"{path} is written")


def write_f16(path):
    import gguf

    writer = gguf.GGUFWriter(str(path), "llama")
    width = HIDDEN // HEADS
    writer.add_name("synthetic-1.1b")
    writer.add_context_length(4096)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_dimension_count(width)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    writer.add_vocab_size(VOCABULARY)
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    bytes_ = [f"<0x{i:02X}>" for i in range(256)]
    words = [f"\u2581t{i}" for i in range(VOCABULARY - 3 - len(bytes_))]
    writer.add_token_list(["<unk>", "<s>", "</s>", *bytes_, *words])
    writer.add_token_scores([0.0] * VOCABULARY)
    writer.add_token_types([2, 3, 3] + [6] * len(bytes_) + [1] * len(words))
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    random = np.random.default_rng(0)

    def matrix(name, rows, columns):
        numbers = random.standard_normal((rows, columns), dtype=np.float32) * (0.7 / np.sqrt(columns))
        writer.add_tensor(name, numbers.astype(np.float16))

    ones = np.ones(HIDDEN, np.float32)
    matrix("token_embd.weight", VOCABULARY, HIDDEN)
    writer.add_tensor("output_norm.weight", ones)
    matrix("output.weight", VOCABULARY, HIDDEN)
    for layer in range(LAYERS):
        prefix = f"blk.{layer}."
        writer.add_tensor(prefix + "attn_norm.weight", ones)
        writer.add_tensor(prefix + "ffn_norm.weight", ones)
        for name, rows, columns in [
            ("attn_q", HIDDEN, HIDDEN),
            ("attn_k", KV_HEADS * width, HIDDEN),
            ("attn_v", KV_HEADS * width, HIDDEN),
            ("attn_output", HIDDEN, HIDDEN),
            ("ffn_gate", INNER, HIDDEN),
            ("ffn_up", INNER, HIDDEN),
            ("ffn_down", HIDDEN, INNER),
        ]:
            matrix(f"{prefix}{name}.weight", rows, columns)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    arguments = sys.argv[1:]
    # A folder of libraries to be measured instead of the package's own.
    if arguments[:1] == ["--libraries"]:
        os.environ["LLAMA_CPP_LIB_PATH"] = arguments[1]
        arguments = arguments[2:]
    import llama_cpp as llama
    import numpy as np

    # It would tell of every tensor that it loads.
    silent = llama.llama_log_callback(lambda level, text, data: None)
    llama.llama_log_set(silent, ctypes.c_void_p(0))
    llama.llama_backend_init()
    if arguments[:1] == ["make"]:
        make(pathlib.Path(arguments[1]))
    else:
        serve()
