"""The whole program from the command line. TERN names it (default build/release/tern)."""

import http.server
import json
import os
import pathlib
import shlex
import shutil
import ssl
import subprocess
import sys
import threading

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TERN = os.environ.get("TERN", str(ROOT / "build" / "release" / "tern"))
MODEL = ROOT / "models" / "tern-demo-ocr"
sys.path.insert(0, str(ROOT / "tests" / "e2e"))
from vision_model import make_vision_model  # noqa: E402


def tern(*args, env=None, stdin="", timeout=60, cwd=None):
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("FD_", "TERN_", "ENABLE_V1"))}
    environment.update(env or {})
    return subprocess.run(
        [TERN, *map(str, args)], input=stdin, capture_output=True, text=True, timeout=timeout, env=environment, cwd=cwd
    )


def one_line(result, status):
    """The failure is one line on stderr, without a stack trace; gives that line."""
    assert result.returncode == status, (result.returncode, result.stdout, result.stderr)
    lines = [line for line in result.stderr.splitlines() if line]
    assert lines and lines[-1].startswith("tern: "), result.stderr
    assert "terminate called" not in result.stderr and "Aborted" not in result.stderr
    return lines[-1]


def seed_lines():
    for line in (ROOT / "tests" / "cli" / "seed_lines.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            words = shlex.split(line)
            env = dict(w.split("=", 1) for w in words if not w.startswith("-") and "=" in w and w.split("=")[0].isidentifier())
            yield pytest.param(env, words[len(env) :], id=words[len(env) + 1] + "-" + str(len(words)))


@pytest.mark.parametrize("env, flags", list(seed_lines()))
@pytest.mark.parametrize("command", [[], ["serve"], ["api_server"]], ids=["plain", "serve", "api_server"])
def test_published_launch_lines_pass_the_dry_run(env, flags, command, tmp_path):
    result = tern(*command, *flags, "--dry-run", "--allow-inert-flags", env=env, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    out = json.loads(result.stdout)
    alone = tern(*command, *flags, "--dry-run", env=env, cwd=tmp_path)
    assert alone.returncode == 0, alone.stderr
    assert out["inert"] == []
    assert out["model"]["found"] is False
    assert out["flags"]["model"] == flags[flags.index("--model") + 1]
    assert out["scheduler"]["version"] == "v1"
    assert not (tmp_path / "log").exists()


@pytest.mark.parametrize("env, flags", [line for line in seed_lines() if "VL" in line.values[1][1]])
def test_published_vision_lines_suit_a_model_folder(env, flags, tmp_path):
    model = make_vision_model(tmp_path / "model")
    at = flags.index("--model") + 1
    flags = [*flags[:at], str(model), *flags[at + 1 :]]
    result = tern(*flags, "--dry-run", "--allow-inert-flags", env=env, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    out = json.loads(result.stdout)
    assert out["model"]["found"] and out["model"]["vision"]["max_image_tokens"] == 128
    assert out["scheduler"]["prefix_caching"] is True
    assert out["flags"]["max_body_bytes"] == 256 << 20
    assert not any("limit-mm-per-prompt" in w for w in out["warnings"])


def test_dry_run_reads_the_model_folder():
    result = tern("serve", "--model", MODEL, "--api-key", "hidden-key", "--dry-run")
    assert result.returncode == 0, result.stderr
    assert "hidden-key" not in result.stdout
    out = json.loads(result.stdout)
    config = json.loads((MODEL / "config.json").read_text())
    assert out["model"]["architecture"] == config["architectures"][0]
    assert out["model"]["max_position_embeddings"] == config["max_position_embeddings"]
    assert out["scheduler"]["max_model_len"] == min(2048, config["max_position_embeddings"])
    assert out["sources"]["model"] == "command line"


def test_dry_run_without_weights(tmp_path):
    shutil.copy(MODEL / "config.json", tmp_path)
    result = tern("--model", tmp_path, "--model-override", '{"num_hidden_layers": 1}', "--dry-run")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["model"]["layers"] == 1


def test_config_file_and_environment(tmp_path):
    (tmp_path / "c.yaml").write_text(
        'max_model_len: 256\nport: 9000\nlimit_mm_per_prompt: \'{"image":100,"video":100}\'\nworkers: 4\n'
    )
    result = tern(
        "--config",
        tmp_path / "c.yaml",
        "--model",
        "nobody/nothing",
        "--port",
        9001,
        "--dry-run",
        env={"ENABLE_V1_KVCACHE_SCHEDULER": "0", "FD_API_KEY": "k1,k2"},
        cwd=tmp_path,
    )
    out = json.loads(result.stdout)
    assert (out["flags"]["max_model_len"], out["flags"]["port"]) == (256, 9001)
    assert out["sources"]["max_model_len"] == "file"
    assert out["scheduler"]["version"] == "legacy"
    assert "k1" not in result.stdout
    assert any("--workers" in w for w in out["warnings"])


@pytest.mark.parametrize(
    "args, status, words",
    [
        (["--max-num-seq", "4"], 2, ["unknown flag --max-num-seq", "--max-num-seqs"]),
        (["--max-num-seqs", "257"], 2, ["--max-num-seqs 257 is not between 1 and 256"]),
        (
            ["--splitwise-role", "decode"],
            2,
            [
                "--splitwise-role (this build runs prefill and decode in one place)",
                "no effect in this build",
                "--allow-inert-flags",
            ],
        ),
        (["--plas-attention-config", "{}", "--allow-inert-flags"], 2, ["--plas-attention-config is not available"]),
        (["--reasoning-parser", "qwen4"], 2, ['"qwen4" is none of ernie-45-vl']),
        (["--model", "/nowhere/at/all"], 1, ["there is no model folder /nowhere/at/all", "OWNER/NAME"]),
        (["--model", "baidu/ERNIE-4.5-0.3B-Paddle", "--no-download"], 1, ["there is no model folder", "FD_MODEL_CACHE"]),
        (["--config", "/nowhere.yaml"], 1, ["/nowhere.yaml cannot be read"]),
        (["--model", str(ROOT / "docs")], 1, ["has no config.json"]),
        (["--model", str(MODEL), "--tokenizer", "/nowhere"], 1, ["no tokenizer folder /nowhere"]),
        (["--model", str(MODEL), "--chat-template", "{% if %}"], 2, ["--chat-template"]),
        (["--model", str(MODEL), "--host", "not a host"], 2, ["not a host"]),
    ],
)
def test_mistakes_are_one_clear_line(args, status, words, tmp_path):
    line = one_line(tern("serve", *args, cwd=tmp_path), status)
    for word in words:
        assert word in line


def test_the_laboratory_runs_the_one_shape_that_is_named():
    said = one_line(tern("bench", "kernels", "--device", "cpu", "--shape", "silu"), 2)
    assert "--shape" in said and "--list" in said
    done = tern(
        "bench",
        "kernels",
        "--device",
        "cpu",
        "--ceiling-gib",
        "0.05",
        "--milliseconds",
        "0.1",
        "--shape",
        "silu, 1 x 3072",
        "--json",
    )
    assert done.returncode == 0, done.stderr
    assert [row["shape"] for row in json.loads(done.stdout)["rows"]] == ["silu, 1 x 3072"]


def test_unknown_architecture_names_the_known_ones(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["NobodyForCausalLM"], "hidden_size": 64}))
    for extra in ([], ["--dry-run"]):
        line = one_line(tern("serve", "--model", tmp_path, *extra, cwd=tmp_path), 1)
        assert "NobodyForCausalLM" in line and "Qwen3ForCausalLM" in line


def test_broken_files_are_one_clear_line(tmp_path):
    config = (MODEL / "config.json").read_text()
    for name, text in (("config.json", "{"), ("generation_config.json", '{"top_p": 7}')):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "config.json").write_text(config)
        (folder / name).write_text(text)
        assert name in one_line(tern("serve", "--model", folder, "--dry-run", cwd=tmp_path), 1)


def test_truncated_weights_are_one_clear_line(tmp_path):
    for path in MODEL.iterdir():
        if path.is_file():
            shutil.copy(path, tmp_path)
    weights = next(tmp_path.glob("*.safetensors"))
    weights.write_bytes(weights.read_bytes()[: weights.stat().st_size // 2])
    assert weights.name in one_line(tern("serve", "--model", tmp_path, "--port", 0, cwd=tmp_path), 1)


def test_help_and_version():
    assert "serve" in tern("--help").stdout and "bench" in tern("help").stdout
    text = tern("serve", "--help").stdout
    assert "API server:" in text and "Scheduler:" in text and "--max-num-batched-tokens" in text
    assert tern("--help").returncode == tern("serve", "--help").returncode == 0
    narrowed = tern("serve", "--help=prefix").stdout
    assert "--enable-prefix-caching" in narrowed and "--scheduler-ttl" not in narrowed
    assert tern("version").stdout.startswith("tern ") and tern("--version").stdout == tern("version").stdout
    for command in ("chat", "tokenize", "render"):
        result = tern(command, "--help")
        assert result.returncode == 0 and "--url" in result.stdout or "--model" in result.stdout
    assert "the nearest is serve" in one_line(tern("serv"), 2)


def test_flags_page_is_what_the_program_prints():
    assert tern("flags-markdown").stdout == (ROOT / "docs" / "flags.md").read_text()


def test_tokenize_both_ways(tmp_path):
    text = "What is 12 + 30?"
    ids = json.loads(tern("tokenize", "--model", MODEL, "--json", stdin=json.dumps({"text": text}) + "\n").stdout)["ids"]
    assert ids and all(isinstance(i, int) for i in ids)
    back = tern("tokenize", "--model", MODEL, "--json", stdin=json.dumps({"ids": ids}) + "\n").stdout
    assert json.loads(back)["text"] == text
    assert "no model folder /nowhere" in one_line(tern("tokenize", "--model", "/nowhere"), 1)


def test_render(tmp_path):
    line = json.dumps({"messages": [{"role": "user", "content": "hello"}], "add_generation_prompt": True})
    out = json.loads(tern("render", "--model", MODEL, stdin=line + "\n").stdout)
    assert "hello" in out["prompt"]
    (tmp_path / "t.jinja").write_text("<{{ messages[0].content }}>")
    out = json.loads(tern("render", "--model", MODEL, "--chat-template", tmp_path / "t.jinja", stdin=line + "\n").stdout)
    assert out["prompt"] == "<hello>"
    assert "error" in json.loads(tern("render", "--model", MODEL, stdin="{}\n").stdout)


def test_chat_without_a_server():
    line = one_line(tern("chat", "--url", "http://127.0.0.1:9/v1", "-q", "hi"), 1)
    assert "no answer from 127.0.0.1:9" in line
    one_line(tern("chat", "--url", "ftp://x", "-q", "hi"), 2)
    one_line(tern("chat", "--no-such"), 2)


class OneAnswer(http.server.BaseHTTPRequestHandler):
    """A chat's answer as a stream of one event."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        event = b'data: {"choices":[{"delta":{"content":"safely "}}]}\n\ndata: [DONE]\n\n'
        self.send_response(200)
        self.send_header("Content-Length", str(len(event)))
        self.end_headers()
        self.wfile.write(event)

    def log_message(self, *_):
        pass


def test_chat_by_https(tmp_path):
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make a certificate with")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
        + ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", certificate],
        check=True,
        capture_output=True,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), OneAnswer) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            ask = ["chat", "--url", f"https://localhost:{server.server_port}/v1", "-q", "hi"]
            answer = tern(*ask, "--ca-file", certificate)
            assert (answer.returncode, answer.stdout.strip()) == (0, "safely"), answer.stderr
            line = one_line(tern(*ask), 1)
            assert "no answer from localhost" in line and "certificate" in line
        finally:
            server.shutdown()


CASE = ROOT / "tests" / "data" / "golden" / "qwen3"


def gpu_here():
    return tern("verify", "--device", "cuda", CASE).returncode == 0


def test_a_gpu_that_is_asked_for_and_not_there_is_one_line(tmp_path):
    if gpu_here():
        pytest.skip("there is a GPU here")
    assert "device" in one_line(tern("serve", "--model", MODEL, "--device", "gpu"), 2)
    if "another build" in tern("verify", "--device", "cuda", CASE, cwd=tmp_path).stderr:
        pytest.skip("build/cuda is of an older build: make cuda")
    for command in (
        ["verify", "--device", "cuda", CASE],
        ["ocr", "--device", "cuda", ROOT / "models" / "demo.png"],
        ["bench", "load", "--device", "cuda:1", "--model", MODEL],
        ["serve", "--device", "cuda", "--model", MODEL, "--port", "0"],
    ):
        line = one_line(tern(*command, cwd=tmp_path), 1)
        assert "libtern_cuda.so" in line or "NVIDIA driver" in line, line


def test_a_library_that_is_none_is_named_and_auto_goes_on(tmp_path):
    (tmp_path / "libtern_cuda.so").write_text("no library")
    env = {"TERN_CUDA_LIBRARY": str(tmp_path)}
    line = one_line(tern("verify", "--device", "cuda", CASE, env=env), 2)
    assert str(tmp_path / "libtern_cuda.so") in line
    result = tern("verify", "--device", "auto", CASE, env=env)
    assert result.returncode == 0 and result.stdout.splitlines()[-1].endswith(" 0 failed"), result.stdout


def test_graph_and_fault_settings_that_make_no_sense():
    assert "TERN_FAULT" in one_line(tern("serve", "--model", MODEL, "--dry-run", env={"TERN_FAULT": "burn@1"}), 2)
    assert "watchdog-timeout" in one_line(tern("serve", "--model", MODEL, "--dry-run", "--watchdog-timeout", "-1"), 2)
