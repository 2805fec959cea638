"""`tern run-batch`: a file of requests answered without a port, in order, and gone on with after an interruption."""

import http.server
import json
import os
import signal
import subprocess
import threading
import time

import pytest
from tern_server import MODEL, TERN, wait_for


def entry(custom_id, text, url="/v1/chat/completions", **body):
    if url == "/v1/chat/completions":
        body = {"messages": [{"role": "user", "content": text}], "max_tokens": 8, "temperature": 0, **body}
    else:
        body = {"prompt": text, "max_tokens": 8, "temperature": 0, **body}
    return {"custom_id": custom_id, "method": "POST", "url": url, "body": body}


def write(path, entries):
    path.write_text("".join(json.dumps(e) + "\n" for e in entries))
    return path


def command(tmp, *more):
    environment = {**os.environ, "FD_LOG_DIR": str(tmp / "log")}
    line = [TERN, "run-batch", "--model", str(MODEL), "--max-num-seqs", "8", "--max-model-len", "1024", *map(str, more)]
    return {"args": line, "env": environment, "text": True, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}


def run(tmp, *more, status=0):
    done = subprocess.run(**command(tmp, *more), timeout=120, check=False)
    assert done.returncode == status, done.stderr
    return done.stderr


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_answers_stand_in_the_order_of_the_input(tmp_path):
    entries = [entry(f"id-{i}", f"{i} + {i} =", url=("/v1/chat/completions", "/v1/completions")[i % 2]) for i in range(20)]
    entries[5]["body"]["stream"] = True
    entries[6]["url"] = "/v1/nothing"
    entries[7]["body"]["temperature"] = -1
    said = run(tmp_path, "-i", write(tmp_path / "in.jsonl", entries), "-o", tmp_path / "out.jsonl")
    assert "20 requests, 20 answered now, 3 with an error" in said
    got = lines(tmp_path / "out.jsonl")
    assert [g["custom_id"] for g in got] == [e["custom_id"] for e in entries]
    assert len({g["id"] for g in got}) == 20 and all(g["id"].startswith("fastdeploy-") for g in got)
    for i, answer in enumerate(got):
        response = answer["response"]
        assert response["request_id"].startswith("fastdeploy-batch-")
        if i in (5, 6, 7):
            assert response["status_code"] == 400 and response["body"] is None
            assert ("stream mode", "/v1/nothing", "greater than or equal to 0")[i - 5] in answer["error"]["error"]["message"]
        else:
            assert response["status_code"] == 200 and answer["error"] is None
            assert response["body"]["object"] == ("chat.completion", "text_completion")[i % 2]
            assert response["body"]["usage"]["completion_tokens"] > 0
    assert {p.name for p in tmp_path.iterdir()} - {"log"} == {"in.jsonl", "out.jsonl"}


def test_it_goes_on_where_it_was_interrupted(tmp_path):
    entries = [entry(str(i), f"Count from {i}.", max_tokens=200, min_tokens=200) for i in range(60)]
    source, part = write(tmp_path / "in.jsonl", entries), tmp_path / "out.jsonl.part"
    arguments = command(tmp_path, "-i", source, "-o", tmp_path / "out.jsonl")
    process = subprocess.Popen(**arguments)
    try:
        wait_for(lambda: part.exists() and len(part.read_text().splitlines()) > 5, seconds=60)
        process.send_signal(signal.SIGINT)
        assert "the same command goes on" in process.communicate(timeout=30)[1] and process.returncode == 130
    finally:
        process.kill()
    kept = len(part.read_text().splitlines()) - 1
    said = run(tmp_path, "-i", source, "-o", tmp_path / "out.jsonl")
    assert "of 60 answers are there from an earlier run" in said and 5 <= kept < 60
    assert f"60 requests, {60 - kept} answered now, 0 with an error" in said
    assert [g["custom_id"] for g in lines(tmp_path / "out.jsonl")] == [str(i) for i in range(60)]


def test_no_more_are_open_than_max_concurrency(tmp_path):
    source = write(tmp_path / "in.jsonl", [entry(str(i), "Hi") for i in range(12)])
    said = run(tmp_path, "-i", source, "-o", tmp_path / "out.jsonl", "--max-concurrency", 1, "--max-in-flight", 6)
    assert "12 requests, 12 answered now, 0 with an error" in said


def test_mistakes_are_found_before_the_model_is_loaded(tmp_path):
    good = entry("a", "x")
    for text, words in (
        (json.dumps(good) + "\n{\n", "line 2: no JSON"),
        ("", "holds no request"),
        (json.dumps({**good, "method": "GET"}), "method must be"),
    ):
        (tmp_path / "in.jsonl").write_text(text)
        began = time.monotonic()
        assert words in run(tmp_path, "-i", tmp_path / "in.jsonl", "-o", tmp_path / "out", status=2)
        assert time.monotonic() - began < 20
    assert "cannot open" in run(tmp_path, "-i", tmp_path / "none", "-o", tmp_path / "out", status=1)
    source = write(tmp_path / "in.jsonl", [good])
    assert "-o names" in run(tmp_path, "-i", source, status=2)
    assert "cannot open" in run(tmp_path, "-i", source, "-o", tmp_path / "none" / "out", status=1)
    assert "--port has no meaning here" in run(tmp_path, "-i", source, "-o", tmp_path / "out", "--port", "1", status=2)
    assert "--max-in-flight 0" in run(tmp_path, "-i", source, "-o", tmp_path / "out", "--max-in-flight=0", status=2)


@pytest.fixture
def store():
    """A server of files: GET gives what lies in it, PUT takes."""
    kept = {}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            found = kept.get(self.path)
            self.send_response(200 if found is not None else 404)
            self.send_header("Content-Length", str(len(found or b"")))
            self.end_headers()
            self.wfile.write(found or b"")

        def do_PUT(self):
            kept[self.path] = self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(403 if "refused" in self.path else 201)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield kept, f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()


def test_files_may_be_urls(tmp_path, store):
    kept, url = store
    kept["/in"] = "".join(json.dumps(entry(str(i), "Hi")) + "\n" for i in range(3)).encode()
    run(tmp_path, "-i", url + "/in", "-o", url + "/out?sign=1", "--output-tmp-dir", tmp_path)
    assert [json.loads(line)["custom_id"] for line in kept["/out?sign=1"].splitlines()] == ["0", "1", "2"]
    assert {p.name for p in tmp_path.iterdir()} <= {"log"}
    said = run(tmp_path, "-i", url + "/in", "-o", url + "/refused", "--output-tmp-dir", tmp_path, status=1)
    assert "status 403; they are kept in" in said and len(list(tmp_path.glob("tern-batch-*.jsonl"))) == 1
    assert "cannot fetch" in run(tmp_path, "-i", url + "/none", "-o", tmp_path / "out", status=1)
