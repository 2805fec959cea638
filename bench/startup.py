#!/usr/bin/env python3
"""From process start to the first token, in seconds: the shipped model, and a 1.2 GB bfloat16 folder in the page cache.

  startup.py [--tern build/release/tern] [--runs 5]

The large folder has the Qwen3-0.6B shape and random weights; it is made once under build/bench/. Each run starts the server
on a free port, retries a one-token request until it is answered, and stops it.
"""

import argparse
import http.client
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools" / "gpu_check"))
import rows  # noqa: E402


def tensors(c):
    h, d = c["hidden_size"], c["head_dim"]
    q, kv, i = c["num_attention_heads"] * d, c["num_key_value_heads"] * d, c["intermediate_size"]
    yield "model.embed_tokens.weight", [c["vocab_size"], h]
    for l in range(c["num_hidden_layers"]):
        p = f"model.layers.{l}."
        yield p + "input_layernorm.weight", [h]
        yield p + "post_attention_layernorm.weight", [h]
        yield p + "self_attn.q_norm.weight", [d]
        yield p + "self_attn.k_norm.weight", [d]
        for name, shape in (
            ("self_attn.q_proj", [q, h]),
            ("self_attn.k_proj", [kv, h]),
            ("self_attn.v_proj", [kv, h]),
            ("self_attn.o_proj", [h, q]),
            ("mlp.gate_proj", [i, h]),
            ("mlp.up_proj", [i, h]),
            ("mlp.down_proj", [h, i]),
        ):
            yield p + name + ".weight", shape
    yield "model.norm.weight", [h]


def make_folder(folder):
    if (folder / "model.safetensors").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    shape = ROOT / "bench" / "shapes" / "qwen3-0.6b" / "config.json"
    shutil.copy(shape, folder)
    header, at = {}, 0
    for name, dims in tensors(json.loads(shape.read_text())):
        size = 2
        for n in dims:
            size *= n
        header[name] = {"dtype": "BF16", "shape": dims, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    # Values between 2^-7 and 2^-6 of either sign, from a repeated random chunk: finite whatever is drawn.
    draw = random.Random(1)
    chunk = b"".join(struct.pack("<H", 0x3C00 | draw.getrandbits(7) | draw.getrandbits(1) << 15) for _ in range(1 << 19))
    with open(folder / "model.safetensors.part", "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        left = at
        while left:
            n = min(left, len(chunk))
            out.write(chunk[:n])
            left -= n
    (folder / "model.safetensors.part").rename(folder / "model.safetensors")


def first_token(tern, model, log):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    body = json.dumps(dict(prompt=[5, 6, 7, 8], max_tokens=1, temperature=0))
    begin = time.perf_counter()
    process = subprocess.Popen(
        [tern, "serve", "--model", model, "--host", "127.0.0.1", "--port", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=dict(os.environ, FD_LOG_DIR=log),
    )
    try:
        while True:
            try:
                c = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
                c.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
                reply = c.getresponse()
                text = reply.read()
                if reply.status != 200:
                    raise SystemExit(f"{reply.status}: {text[:300]}")
                return time.perf_counter() - begin
            except (ConnectionRefusedError, ConnectionResetError):
                if process.poll() is not None:
                    raise SystemExit(f"the server ended with {process.returncode}")
                time.sleep(0.002)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tern", default=str(ROOT / "build" / "release" / "tern"))
    parser.add_argument("--runs", type=int, default=5)
    args = parser.parse_args()
    large = ROOT / "build" / "bench" / "qwen3-0.6b-random"
    make_folder(large)
    (large / "model.safetensors").read_bytes()  # into the page cache
    with tempfile.TemporaryDirectory() as log:
        for name, model in (("shipped model", ROOT / "models" / "tern-demo-ocr"), ("1.2 GB bfloat16 folder", large)):
            times = [first_token(args.tern, str(model), log) for _ in range(args.runs)]
            print(
                f"process start to first token, {name}: min {min(times):.3f} s, median {statistics.median(times):.3f} s, "
                f"max {max(times):.3f} s",
                flush=True,
            )
            median = f"median {statistics.median(times):.3f} s"
            rows.add(
                f"process start to first token, {name}", "bench/startup.py", round(min(times), 4), "s", note=f"best; {median}"
            )


if __name__ == "__main__":
    main()
