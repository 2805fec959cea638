"""The running server as its operator sees it: logs, limits, signals, tern chat and tern bench serve."""

import datetime
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import urllib.request

import pytest

import tern_server
from tern_server import MODEL, TERN


class Server(tern_server.Server):
    def ready(self):
        return self.wait_ready()

    def get(self, path):
        with urllib.request.urlopen(self.url + path, timeout=60) as answer:
            return json.loads(answer.read())

    def post(self, path, **body):
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as r:
            return json.load(r)


@pytest.fixture
def start(tmp_path):
    servers = []

    def launch(*flags, **kw):
        servers.append(Server(tmp_path, *flags, **kw))
        return servers[-1]

    yield launch
    for s in servers:
        s.end()


def test_log_files(start):
    s = start(
        "--enable-mm",
        "--router",
        "127.0.0.1:1",
        "--allow-inert-flags",
        env={"FD_DEBUG": "0", "FD_LOG_REQUESTS_LEVEL": "2", "FD_LOG_MAX_LEN": "24"},
    ).ready()
    s.post("/v1/completions", prompt=[5, 6, 7], max_tokens=2)
    assert s.get("/config-info")["inert"] == ["--router"]
    s.process.send_signal(signal.SIGTERM)
    assert s.process.wait(20) == 0
    today = datetime.date.today().isoformat()
    for name in ("fastdeploy.log", "console.log", "api_server.log", "request.log", "workerlog.0"):
        assert os.readlink(s.logs / name).startswith(f"{name}.20"), name
    assert (s.logs / f"fastdeploy.log.{today}").exists()
    shape = re.compile(r"^(DEBUG|INFO|WARNING|ERROR) +\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} \d+ +[\w.]+\[line:\d+\] ")
    lines = (s.logs / "fastdeploy.log").read_text().splitlines()
    assert lines and all(shape.match(line) for line in lines)
    assert any("Reset block num, the total_block_num:" in line for line in lines)
    effects = [line for line in s.text().splitlines() if "accepted without effect" in line]
    assert len(effects) == 1 and "--enable-mm" in effects[0] and "--router" not in effects[0]
    allowed = [line for line in s.text().splitlines() if "--router has no effect: " in line]
    assert len(allowed) == 1 and allowed[0].startswith("tern: ")
    requests = (s.logs / "request.log").read_text().splitlines()
    assert all(shape.match(line) for line in requests)
    assert len([line for line in requests if "Receive request " in line]) == 1
    body = json.dumps(json.dumps({"prompt": [5, 6, 7], "max_tokens": 2})[:24])
    assert any(line.endswith(": body " + body) for line in requests), requests
    names = {p.name for p in s.logs.iterdir() if p.is_symlink()}
    assert names <= {"fastdeploy.log", "console.log", "api_server.log", "request.log", "workerlog.0", "scheduler.log"}
    assert "Uvicorn running on" in (s.logs / "console.log").read_text()


def test_a_full_disk_stops_the_log_not_the_server(start):
    # No file may grow beyond 8 KiB: to this process the disk is full.
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))
    with_pipe = start(preexec=limit, env={"FD_DEBUG": "1"}).ready()
    for _ in range(50):
        assert with_pipe.post("/v1/completions", prompt=[5, 6, 7], max_tokens=2)["choices"]
    assert with_pipe.process.poll() is None


def test_quantized_weights(start):
    s = start(
        "--quantization", '{"quantization": "wint4", "group_size": 32, "lm_head_quant_type": "wint8"}', "--device", "cpu"
    ).ready()
    assert s.post("/v1/completions", prompt=[5, 6, 7], max_tokens=4)["usage"]["completion_tokens"] > 0
    page = s.get("/config-info")
    assert page["inert"] == [] and page["flags"]["quantization"]["group_size"] == 32
    assert "1 output layer in wint8" in page["weight_formats"]
    log = (s.logs / "fastdeploy.log").read_text()
    assert len([line for line in log.splitlines() if "weights: " in line and "output layer in wint8" in line]) == 1, log


def test_no_tokenizer_serves_token_ids(start, tmp_path):
    folder = tmp_path / "bare"
    folder.mkdir()
    for path in MODEL.iterdir():
        if path.name in ("config.json", "generation_config.json") or path.suffix == ".safetensors":
            shutil.copy(path, folder)
    s = start(model=folder).ready()
    assert "has no tokenizer files" in s.text()
    assert s.post("/v1/completions", prompt=[5, 6, 7], max_tokens=2)["usage"]["completion_tokens"] >= 1
    with pytest.raises(urllib.error.HTTPError) as e:
        s.post("/v1/completions", prompt="text", max_tokens=2)
    assert e.value.code == 400


def test_a_key_is_never_printed(start):
    s = start("--api-key", "very-secret").ready()
    s.process.send_signal(signal.SIGINT)
    assert s.process.wait(20) == 0
    assert "very-secret" not in s.text()
    assert not any("very-secret" in p.read_text() for p in s.logs.iterdir() if p.is_file())


def test_no_key_on_a_public_host_is_a_warning(start):
    s = start("--host", "0.0.0.0").ready()
    assert "no --api-key is set" in s.text()


def test_chat_asks_the_server(start):
    s = start().ready()
    result = subprocess.run(
        [TERN, "chat", "--url", s.url + "/v1", "-q", "What is 12 + 30?", "--temperature", "0"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.returncode == 0 and "42" in result.stdout, result.stderr
    talk = subprocess.run(
        [TERN, "chat", "--url", s.url + "/v1", "--temperature", "0"],
        input="What is 12 + 30?\n",
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert talk.returncode == 0 and "42" in talk.stdout


def test_bench_serve(start):
    s = start("--max-num-seqs", 16).ready()
    result = subprocess.run(
        [
            TERN,
            "bench",
            "serve",
            "--url",
            s.url,
            "--requests",
            "20",
            "--concurrency",
            "8",
            "--input-len",
            "16",
            "--output-len",
            "8",
            "--vocab",
            "300",
            "--json",
        ],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    out = json.loads(result.stdout)
    assert (out["requests"], out["failed"], out["prompt_tokens"], out["output_tokens"]) == (20, 0, 320, 160)
    assert 0 < out["ttft_ms"]["p50"] <= out["e2el_ms"]["p50"]


def test_bench_serve_sends_the_sampling_it_is_told(start):
    s = start().ready()
    for more, failed, said in (
        (("--top-p", "0.8", "--repetition-penalty", "1.05"), 0, ""),
        (("--top-p", "7"), 2, "top_p"),
        (("--repetition-penalty", "0"), 2, "repetition_penalty"),
    ):
        result = subprocess.run(
            [
                TERN,
                "bench",
                "serve",
                "--url",
                s.url,
                "--requests",
                "2",
                "--input-len",
                "4",
                "--output-len",
                "4",
                "--vocab",
                "300",
                "--json",
                *more,
            ],
            capture_output=True,
            text=True,
            timeout=60,
        )
        out = json.loads(result.stdout)
        assert out["failed"] == failed and said in (out["first_error"] or ""), (more, out)


def test_forced_instruction_sets_answer_alike(start):
    answers = []
    for isa in ("scalar", "avx2"):
        s = start(env={"TERN_CPU_ISA": isa}).ready()
        reply = s.post("/v1/chat/completions", messages=[{"role": "user", "content": "What is 12 + 30?"}], temperature=0)
        answers.append(reply["choices"][0]["message"]["content"])
        s.process.kill()
    assert answers[0] == answers[1] and "42" in answers[0]
