"""llama.cpp's server with a model of random weights that this makes: `llama_cpp.py FOLDER`. Prints its
address and serves until its input ends. Needs xllamacpp and gguf."""

import sys
from pathlib import Path

import gguf
import numpy
import xllamacpp

WIDTH, INNER, HEADS = 64, 128, 2
LETTERS = ["\u2581", *map(chr, range(33, 127))]
TOKENS = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *LETTERS]
TYPES = [2, 3, 3, *[6] * 256, *[1] * len(LETTERS)]


def make(path: Path) -> None:
    """A model of one block, whose tokens are bytes and letters."""
    out = gguf.GGUFWriter(str(path), "llama")
    out.add_context_length(2048)
    out.add_embedding_length(WIDTH)
    out.add_block_count(1)
    out.add_feed_forward_length(INNER)
    out.add_head_count(HEADS)
    out.add_head_count_kv(HEADS)
    out.add_layer_norm_rms_eps(1e-5)
    out.add_vocab_size(len(TOKENS))
    out.add_rope_dimension_count(WIDTH // HEADS)
    out.add_tokenizer_model("llama")
    out.add_token_list(TOKENS)
    out.add_token_scores([0.0] * len(TOKENS))
    out.add_token_types(TYPES)
    out.add_bos_token_id(1)
    out.add_eos_token_id(2)
    out.add_unk_token_id(0)
    chance = numpy.random.default_rng(7)
    shapes = {
        "token_embd": (len(TOKENS), WIDTH),
        "output": (len(TOKENS), WIDTH),
        **{f"blk.0.attn_{name}": (WIDTH, WIDTH) for name in ("q", "k", "v", "output")},
        "blk.0.ffn_gate": (INNER, WIDTH),
        "blk.0.ffn_up": (INNER, WIDTH),
        "blk.0.ffn_down": (WIDTH, INNER),
    }
    for name, shape in shapes.items():
        weights = (chance.standard_normal(shape) * 0.2).astype(numpy.float32)
        out.add_tensor(f"{name}.weight", weights)
    for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
        out.add_tensor(f"{name}.weight", numpy.ones(WIDTH, numpy.float32))
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def main(folder: Path) -> None:
    model = folder / "model.gguf"
    make(model)
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(model)
    parameters.n_ctx = 2048
    parameters.n_parallel = 2
    parameters.endpoint_metrics = True
    server = xllamacpp.Server(parameters)
    print(server.listening_address, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
