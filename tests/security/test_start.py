"""Files and limits of the system that change under the server: one line, or it serves; never a signal."""

import json
import os
import pathlib
import resource
import signal
import struct
import subprocess
import time
import urllib.request

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TERN = os.environ.get("TERN", str(ROOT / "build" / "release" / "tern"))
TINY = ROOT / "tests" / "data" / "golden" / "llama_tied"
CONFIG = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 6,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "vocab_size": 16384,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "eos_token_id": 2,
    "bos_token_id": 1,
}


def complete(url):
    body = {"prompt": [5, 6, 7], "max_tokens": 5, "temperature": 0, "ignore_eos": True, "return_token_ids": True}
    request = urllib.request.Request(url + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as reply:
        return json.load(reply)["choices"][0]["completion_token_ids"]


def sparse_model(folder):
    """A model of 200 MB that takes no room on the disk: its weights are a hole."""
    c = CONFIG
    h, i, q, kv, d = c["hidden_size"], c["intermediate_size"], 16 * 64, 8 * 64, 64
    shapes = {"model.embed_tokens.weight": [c["vocab_size"], h], "model.norm.weight": [h]}
    for l in range(c["num_hidden_layers"]):
        shapes |= {
            f"model.layers.{l}.{name}.weight": shape
            for name, shape in {
                "input_layernorm": [h],
                "post_attention_layernorm": [h],
                "self_attn.q_norm": [d],
                "self_attn.k_norm": [d],
                "self_attn.q_proj": [q, h],
                "self_attn.k_proj": [kv, h],
                "self_attn.v_proj": [kv, h],
                "self_attn.o_proj": [h, q],
                "mlp.gate_proj": [i, h],
                "mlp.up_proj": [i, h],
                "mlp.down_proj": [h, i],
            }.items()
        }
    at, header = 0, {}
    for name, shape in shapes.items():
        size = 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(c))
    path = folder / "model.safetensors"
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        f.truncate(8 + len(text) + at)
    return path


def is_mapped(process, path):
    try:
        return str(path) in pathlib.Path(f"/proc/{process.pid}/maps").read_text()
    except OSError:
        return False


@pytest.mark.parametrize("left", [0, 100 << 20])
def test_weights_cut_while_they_are_loaded_end_with_a_line(start, tmp_path, left):
    for attempt in range(10):
        path = sparse_model(tmp_path / f"model-{attempt}")
        server = start("--cpu-threads", 1, model=path.parent)
        deadline = time.monotonic() + 30
        while not is_mapped(server.process, path) and time.monotonic() < deadline:
            assert server.process.poll() is None
        server.process.send_signal(signal.SIGSTOP)
        os.truncate(path, left)
        loading = is_mapped(server.process, path)
        server.process.send_signal(signal.SIGCONT)
        if loading:
            break
        server.stop(signal.SIGKILL)  # loaded already: once more
    assert loading
    assert server.process.wait(60) == 1
    lines = [l for l in server.output.read_text().splitlines() if "model.safetensors" in l]
    assert len(lines) == 1 and "was changed while it was read" in lines[0], server.output.read_text()


def test_weights_cut_after_loading_are_not_missed(start, tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    for file in ("config.json", "generation_config.json", "model.safetensors"):
        (folder / file).write_bytes((TINY / file).read_bytes())
    server = start(model=folder).wait_ready()
    before = complete(server.url)
    os.truncate(folder / "model.safetensors", 0)
    assert complete(server.url) == before
    assert server.stop() == 0


def limited(which, soft, hard, tmp_path, port=0):
    """A server under a limit, its output, and a wait for its end or its readiness."""
    out = tmp_path / "limited.txt"
    with open(out, "wb") as f:
        process = subprocess.Popen(
            [TERN, "serve", "--model", TINY, "--host", "127.0.0.1", "--port", str(port)],
            stdout=f,
            stderr=f,
            env=os.environ | {"FD_LOG_DIR": str(tmp_path / "log")},
            preexec_fn=lambda: resource.setrlimit(which, (soft, hard)),
        )
    deadline = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < deadline:
        text = out.read_text(errors="replace")
        if "running on http://" in text:
            return process, text.split("running on ")[1].split()[0]
        time.sleep(0.01)
    return process, None


def one_line(tmp_path):
    lines = [
        l for l in (tmp_path / "limited.txt").read_text(errors="replace").splitlines() if l and "no tokenizer files" not in l
    ]
    assert len(lines) == 1, lines
    return lines[0]


@pytest.mark.parametrize("files", [8, 12, 63])
def test_few_open_files_end_with_a_line(tmp_path, files):
    process, url = limited(resource.RLIMIT_NOFILE, files, files, tmp_path)
    assert url is None and process.wait(60) == 1
    assert one_line(tmp_path) == f"tern: {files} open files are not enough for a server: allow at least 64 (ulimit -n)"


@pytest.mark.parametrize("soft,hard", [(64, 64), (64, 4000)])
def test_the_soft_limit_of_files_is_raised_to_the_hard_one(tmp_path, soft, hard):
    process, url = limited(resource.RLIMIT_NOFILE, soft, hard, tmp_path)
    try:
        assert len(complete(url)) == 5
        limits = pathlib.Path(f"/proc/{process.pid}/limits").read_text()
        assert [l.split()[3:5] for l in limits.splitlines() if l.startswith("Max open files")] == [[str(hard), str(hard)]]
    finally:
        process.terminate()
        assert process.wait(30) == 0


def test_a_small_stack_ends_with_a_line(tmp_path):
    process, url = limited(resource.RLIMIT_STACK, 128 << 10, 128 << 10, tmp_path)
    assert url is None and process.wait(60) == 1
    assert one_line(tmp_path) == "tern: a stack of 128 KiB is too small: allow at least 512 (ulimit -s)"


@pytest.mark.parametrize("soft", [128 << 10, 1 << 20])
def test_a_small_stack_that_may_be_raised_serves(tmp_path, soft):
    process, url = limited(resource.RLIMIT_STACK, soft, 64 << 20, tmp_path)
    try:
        assert len(complete(url)) == 5
    finally:
        process.terminate()
        assert process.wait(30) == 0


@pytest.mark.parametrize("mebibytes", [20, 60, 100, 150, 200, 250, 300, 350, 400, 600, 800])
def test_a_small_address_space_ends_with_a_line_or_serves(tmp_path, mebibytes):
    process, url = limited(resource.RLIMIT_AS, mebibytes << 20, mebibytes << 20, tmp_path)
    if url is not None and process.poll() is None:
        try:
            assert len(complete(url)) == 5
            process.terminate()
        except OSError:
            pass  # the line below says why it ended
    assert process.wait(60) in (0, 1, 127), (tmp_path / "limited.txt").read_text()
    if process.returncode != 0:
        text = (tmp_path / "limited.txt").read_text()
        assert "terminate called" not in text and ("tern: " in text or "error while loading shared libraries" in text), text
