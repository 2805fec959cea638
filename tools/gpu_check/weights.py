"""A folder with weights of a published shape: random values, written fast. For loading, not for what is said."""

import json
import os
import shutil
import struct

PART = 4 << 30  # bytes of a file


def dense_tensors(config):
    """(name, shape) of a Qwen3 or Llama model, in the order of use."""
    hidden, inner, dim = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    heads, kv = config["num_attention_heads"], config["num_key_value_heads"]
    yield "model.embed_tokens.weight", (config["vocab_size"], hidden)
    for i in range(config["num_hidden_layers"]):
        at = f"model.layers.{i}."
        yield at + "input_layernorm.weight", (hidden,)
        for name, rows in (("q", heads), ("k", kv), ("v", kv)):
            yield at + f"self_attn.{name}_proj.weight", (rows * dim, hidden)
        yield at + "self_attn.o_proj.weight", (hidden, heads * dim)
        if config["model_type"].startswith("qwen3"):
            yield at + "self_attn.q_norm.weight", (dim,)
            yield at + "self_attn.k_norm.weight", (dim,)
        yield at + "post_attention_layernorm.weight", (hidden,)
        for name in ("gate", "up"):
            yield at + f"mlp.{name}_proj.weight", (inner, hidden)
        yield at + "mlp.down_proj.weight", (hidden, inner)
    yield "model.norm.weight", (hidden,)
    if not config.get("tie_word_embeddings"):
        yield "lm_head.weight", (config["vocab_size"], hidden)


def random_block(size=32 << 20):
    """bfloat16 between 2^-8 and 2^-6 in size, either sign."""
    low, high = os.urandom(size // 2), os.urandom(size // 2)
    tops = bytes((b & 0x80) | 0x3B + (b & 1) for b in range(256))
    block = bytearray(size)
    block[0::2], block[1::2] = low, high.translate(tops)
    return bytes(block)


def write_part(path, tensors, block):
    header, at = {}, 0
    for name, shape, size in tensors:
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        while at > 0:
            out.write(memoryview(block)[: min(at, len(block))])
            at -= min(at, len(block))


def write(shape, folder):
    """Copies the configuration of `shape` to `folder` and writes weights beside it; the bytes of all."""
    for path in shape.iterdir():
        shutil.copy(path, folder)
    config = json.loads((shape / "config.json").read_text())
    parts, room = [[]], PART
    for name, dims in dense_tensors(config):
        size = 2
        for d in dims:
            size *= d
        if size > room and parts[-1]:
            parts.append([])
            room = PART
        parts[-1].append((name, list(dims), size))
        room -= size
    block, names, total = random_block(), {}, 0
    for i, tensors in enumerate(parts):
        file = f"model-{i + 1:05}-of-{len(parts):05}.safetensors"
        write_part(folder / file, tensors, block)
        names.update({name: file for name, _, _ in tensors})
        total += sum(size for _, _, size in tensors)
    index = {"metadata": {"total_size": total}, "weight_map": names}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return total
