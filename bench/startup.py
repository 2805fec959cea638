#!/usr/bin/env python3
"""From process start to the first token, in seconds: the shipped model, and a 1.2 GB bfloat16 folder in the page cache. For the
shipped model also what PaddleNLP's ports cost beside it, without gRPC and with it, each with the memory that is resident then
and the shared libraries that are mapped.

  startup.py [--tern build/release/tern] [--runs 5]

The large folder has the Qwen3-0.6B shape and random weights; it is made once under build/bench/. Each run starts the server
on a free port, retries a one-token request until it is answered (and its gRPC port until it takes a connection), and stops
it. The ways to start the shipped model take turns.
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


PADDLENLP = ("SERVICE_HTTP_PORT", "HEALTH_HTTP_PORT", "METRICS_HTTP_PORT", "INTER_PROC_PORT", "SERVICE_GRPC_PORT")


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


class Start:
    """What a start took: seconds to the first token, MB that are resident then, shared libraries that are mapped."""

    def __init__(self, tern, model, log, ports="plain"):
        """`ports`: plain, "without gRPC" or "with gRPC", of PaddleNLP's server."""
        (port, *others), flags, env = free_ports(6), [], dict(os.environ, FD_LOG_DIR=log)
        if ports != "plain":
            flags = ["--paddlenlp"]
            env.update(zip(PADDLENLP, map(str, others)))
        if ports == "without gRPC":
            env["SERVICE_GRPC_PORT"] = "0"
        begin = time.perf_counter()
        self.process = subprocess.Popen(
            [tern, "serve", "--model", model, "--host", "127.0.0.1", "--port", str(port), *flags],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=env,
        )
        try:
            self.until(lambda: self.ask(port))
            if ports == "with gRPC":
                self.until(lambda: socket.create_connection(("127.0.0.1", others[-1])).close())
            self.seconds = time.perf_counter() - begin
            self.megabytes, self.libraries = self.size()
        finally:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(20)

    def until(self, done):
        while True:
            try:
                return done()
            except (ConnectionRefusedError, ConnectionResetError):
                if self.process.poll() is not None:
                    raise SystemExit(f"the server ended with {self.process.returncode}")
                time.sleep(0.002)

    def ask(self, port):
        body = json.dumps(dict(prompt=[5, 6, 7, 8], max_tokens=1, temperature=0))
        c = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        c.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
        reply = c.getresponse()
        text = reply.read()
        if reply.status != 200:
            raise SystemExit(f"{reply.status}: {text[:300]}")

    def size(self):
        folder = pathlib.Path(f"/proc/{self.process.pid}")
        resident = next(line for line in (folder / "status").read_text().splitlines() if line.startswith("VmRSS:"))
        files = {line.split()[-1] for line in (folder / "maps").read_text().splitlines() if ".so" in line}
        return int(resident.split()[1]) / 1024, len(files)


def report(what, starts):
    times = [s.seconds for s in starts]
    least, median = min(times), statistics.median(times)
    print(f"process start to first token, {what}: min {least:.3f} s, median {median:.3f} s, max {max(times):.3f} s", flush=True)
    note = f"best; median {median:.3f} s"
    rows.add(f"process start to first token, {what}", "bench/startup.py", round(least, 4), "s", note=note)


def report_size(what, starts):
    megabytes, libraries = min(s.megabytes for s in starts), starts[0].libraries
    print(f"resident at the first token, {what}: {megabytes:.1f} MB, {libraries} shared libraries", flush=True)
    note = f"{libraries} shared libraries"
    rows.add(f"resident at the first token, {what}", "bench/startup.py", round(megabytes, 1), "MB", note=note)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tern", default=str(ROOT / "build" / "release" / "tern"))
    parser.add_argument("--runs", type=int, default=5)
    args = parser.parse_args()
    large = ROOT / "build" / "bench" / "qwen3-0.6b-random"
    make_folder(large)
    (large / "model.safetensors").read_bytes()  # into the page cache
    shipped = str(ROOT / "models" / "tern-demo-ocr")
    ways = {"plain": "shipped model", **{p: f"shipped model, PaddleNLP's ports too, {p}" for p in ("without gRPC", "with gRPC")}}
    with tempfile.TemporaryDirectory() as log:
        turns = [{way: Start(args.tern, shipped, log, way) for way in ways} for _ in range(args.runs)]
        for way, name in ways.items():
            report(name, [turn[way] for turn in turns])
            report_size(name, [turn[way] for turn in turns])
        report("1.2 GB bfloat16 folder", [Start(args.tern, str(large), log) for _ in range(args.runs)])


if __name__ == "__main__":
    main()
