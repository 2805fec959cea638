"""Health, figures, start, stop and download of the PaddleNLP front (docs/spec/paddlenlp-server.md 4, 5)."""

import contextlib
import hashlib
import http.client
import http.server
import json
import os
import pathlib
import resource
import signal
import subprocess
import sys
import threading
import time
from typing import ClassVar

import pytest
from grpc_client import Client
from pn_server import LIMITS, exported_model, free_ports
from tern_server import MODEL, TERN, wait_for

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_health_from_the_first_moment(start):
    server = start(USE_WARMUP="1", MAX_SEQ_LEN="64", MAX_DEC_LEN="16")
    starting = wait_for(server.health)
    assert starting == (500, '{"error_code": 1, "error_msg": "server is not ready"}')
    server.wait_ready()
    assert server.health("/v2/health/live") == (200, "")
    assert server.request("POST", "/v2/health/live", "{}", port=server.health_port).status == 405
    assert server.request("GET", "/", port=server.health_port).status == 404
    assert "warm-up: 6 requests" in server.text() + "".join(p.read_text() for p in server.logs.glob("*.log"))


def test_a_failed_engine_is_down(start):
    server = start(TERN_FAULT="trap@3").wait_ready()
    lines = server.stream(text="Hello", max_dec_len=30, min_dec_len=30)
    assert lines[-1]["error_code"] == 500 and lines[-1]["error_msg"].startswith("status is StatusCode.UNAVAILABLE, msg is ")
    assert server.health() == (500, '{"error_code": 2, "error_msg": "infer engine is down"}')
    assert server.post({"text": "x"})[1]["error_code"] == 500
    assert server.process.wait(15) == 1


def test_an_engine_whose_loop_stands_still_hangs(start):
    server = start(TERN_TEST_PLAN_DELAY_MS="4000", CHECK_HEALTH_INTERVAL="1").wait_ready()

    def ask():
        with contextlib.suppress(OSError, http.client.HTTPException):
            server.post({"text": "x", "max_dec_len": 1})

    threading.Thread(target=ask, daemon=True).start()
    assert wait_for(lambda: (h := server.health()) and h[0] == 500 and h) == (
        500, '{"error_code": 3, "error_msg": "infer engine hangs"}',
    )  # fmt: skip
    wait_for(lambda: server.health() == (200, ""))


def test_a_step_that_hangs_is_seen(start):
    server = start(TERN_FAULT="hang@3", CHECK_HEALTH_INTERVAL="1").wait_ready()
    client = Client(server.grpc_port)
    client.send(text="x", max_dec_len=30, min_dec_len=30)
    assert wait_for(lambda: (h := server.health()) and h[0] == 500 and h) == (
        500, '{"error_code": 3, "error_msg": "infer engine hangs"}',
    )  # fmt: skip
    client.close(cancel=True)
    server.process.kill()  # it would wait for the step for ever


def test_triton_health(start):
    server = start(USE_CUSTOM_HEALTH_CHECKER="0")
    assert wait_for(server.health) in [(400, ""), (200, "")]
    server.wait_ready()


def test_figures(server):
    server.post({"text": "Hello", "max_dec_len": 3})
    text = server.metrics()
    assert "# HELP inference_server_metrics Metrics for monitoring inference server status\n" in text
    assert server.metric('inference_server_metrics{max_batch_size="max_batch_size"}') == 2
    assert server.metric('inference_server_metrics{max_block_num="max_block_num"}') == 32
    assert server.metric('inference_server_metrics{available_resource="available_resource"}') == 1
    before = server.metric('nv_inference_request_success{model="model",version="1"}')
    failed = server.metric('nv_inference_request_failure{model="model",version="1",reason="OTHER"}')
    server.post({"text": "Hello", "max_dec_len": 3})
    server.post({"text": ""})
    assert server.metric('nv_inference_request_success{model="model",version="1"}') == before + 1
    assert server.metric('nv_inference_request_failure{model="model",version="1",reason="OTHER"}') == failed + 1
    assert server.metric("nv_inference_request_duration_us") > 0


def test_a_key_guards_every_port_but_health(start):
    server = start("--api-key", "k").wait_ready()
    assert server.request("POST", "/v1/chat/completions", {"text": "x"}).status == 401
    assert server.request("GET", "/metrics", port=server.metrics_port).status == 401
    assert server.health() == (200, "")


def test_dry_run_shows_both_columns():
    env = {**os.environ, "MODEL_DIR": str(MODEL), "HTTP_PORT": "81", "SERVICE_HTTP_PORT": "82", "GRPC_PORT": "83"}
    out = json.loads(subprocess.run([TERN, "serve-paddlenlp", "--dry-run"], env=env, capture_output=True, check=True).stdout)
    code, script = out["paddlenlp_columns"]["serve-paddlenlp"], out["paddlenlp_columns"]["start_server"]
    assert (code["batch_size"], code["total_block_num"], code["max_dec_len"]) == (50, 6400, 1024)
    assert (script["batch_size"], script["total_block_num"], script["max_dec_len"]) == (20, 512, 8192)
    assert code["health_http_port"] == script["health_http_port"] == 81
    assert code["service_grpc_port"] == 83 and not any("GRPC" in warning for warning in out["warnings"])


class Background:
    """start_server and stop_server, called through links of those names."""

    def __init__(self, tmp, **variables):
        self.tmp = tmp
        for name in ("start_server", "stop_server"):
            (tmp / name).symlink_to(TERN)
        self.ports = free_ports(5)
        names = ("HEALTH_HTTP_PORT", "SERVICE_GRPC_PORT", "METRICS_HTTP_PORT", "INTER_PROC_PORT", "SERVICE_HTTP_PORT")
        self.env = {
            **os.environ,
            "FD_LOG_DIR": str(tmp / "log"),
            "MODEL_DIR": str(MODEL),
            **LIMITS,
            **{n: str(p) for n, p in zip(names, self.ports)},
            **variables,
        }

    def run(self, name, *arguments, **variables):
        return subprocess.run([str(self.tmp / name), *arguments], env={**self.env, **variables}, capture_output=True,
                              text=True, cwd=self.tmp, timeout=60, check=False)  # fmt: skip

    def ready(self):
        return self.get("/v2/health/ready", self.ports[0]) == 200

    def get(self, path, port):
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            connection.request("GET", path)
            return connection.getresponse().status
        except OSError:
            return None


def test_start_and_stop(tmp_path):
    server = Background(tmp_path)
    begun = time.monotonic()
    started = server.run("start_server")
    assert started.returncode == 0, started.stderr
    assert time.monotonic() - begun < 5
    assert "Master node, start serving ..." in started.stdout and str(tmp_path / "log") in started.stdout
    try:
        wait_for(server.ready, seconds=90)
        again = server.run("start_server")
        assert again.returncode == 1 and f"PORT: {server.ports[0]} occupied! Please change the port!\n" in again.stdout
        stopped = server.run("stop_server", "20")
        assert stopped.returncode == 0
        assert stopped.stdout.splitlines()[0] == "cleaning process, please wait ..."
        assert stopped.stdout.endswith("clean finished.\nall process terminated.\n")
        assert not server.ready()
        twice = server.run("stop_server")
        assert twice.returncode == 0 and twice.stdout.startswith("Can not find ")
    finally:
        server.run("stop_server", "0")


def test_stop_kills_what_does_not_end(tmp_path):
    server = Background(tmp_path, TERN_TEST_PLAN_DELAY_MS="3000")
    assert server.run("start_server").returncode == 0
    try:
        wait_for(server.ready, seconds=90)
        pid = int((tmp_path / "log" / "server.pid").read_text().split()[0])
        os.kill(pid, signal.SIGSTOP)
        stopped = server.run("stop_server", "1")
        assert "forcibly kill all process ...\nall process terminated.\n" in stopped.stdout
    finally:
        server.run("stop_server", "0")


def test_stop_never_touches_another_process(tmp_path):
    server = Background(tmp_path)
    (tmp_path / "log").mkdir()
    other = subprocess.Popen(["sleep", "60"])
    try:
        (tmp_path / "log" / "server.pid").write_text(f"{other.pid} 1\n")  # a process of that number, started at another time
        assert server.run("stop_server", "0").stdout.startswith("Can not find ")
        assert other.poll() is None
    finally:
        other.kill()


@pytest.mark.parametrize(
    "variables, status, text",
    [
        ({"BATCH_SIZE": "300"}, 2, "The parameter `max_batch_size` is not allowed to exceed 256, but now it's 300."),
        ({"MP_NNODE": "2", "MP_NUM": "3"}, 2, "mp_num: 3 should be divisible by nnode: 2"),
        ({"MP_NNODE": "2", "MP_NUM": "2", "POD_IPS": "1.1.1.1,1.1.1.2", "POD_0_IP": "1.1.1.1", "HOST_IP": "1.1.1.2"}, 2,
         "this front runs one rank on one node"),
    ],
)  # fmt: skip
def test_a_start_that_cannot_be_says_why(tmp_path, variables, status, text):
    started = Background(tmp_path, **variables).run("start_server")
    assert started.returncode == status and text in started.stderr and len(started.stderr.splitlines()) == 1


class Files(http.server.BaseHTTPRequestHandler):
    """A list of files on loopback; `cut` closes the connection in the middle of a body, once per path; `hold` stops there
    until the client is gone, once per path too."""

    content: ClassVar[dict] = {}
    cut: ClassVar[set] = set()
    hold: ClassVar[set] = set()
    asked: ClassVar[list] = []

    def do_GET(self):
        path = self.path.lstrip("/")
        Files.asked.append((path, self.headers.get("Range")))
        if path not in Files.content:
            return self.send_error(404)
        body, first = Files.content[path], 0
        if self.headers.get("Range"):
            first = int(self.headers["Range"].split("=")[1].rstrip("-"))
            if first >= len(body):
                return self.send_error(416)
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {first}-{len(body) - 1}/{len(body)}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(body) - first))
        self.end_headers()
        part = body[first:]
        if path in Files.cut:
            Files.cut.discard(path)
            part = part[: len(part) // 2]
        if path in Files.hold:
            Files.hold.discard(path)
            self.wfile.write(part[: len(part) // 2])
            self.connection.recv(1)
            return
        self.wfile.write(part)

    def log_message(self, *_):
        pass


NAME = "Qwen/tiny/weight_only_int8"


@pytest.fixture
def files(tmp_path):
    Files.content, Files.cut, Files.hold, Files.asked = {}, set(), set(), []
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Files) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def publish(part="model", tag="3.0.0.b4", wrong=(), **content):
    base = f"{tag}/{NAME}/{part}/"
    lines = []
    for name, body in content.items():
        path = name.replace("__", "/").replace("_dot_", ".")
        Files.content[base + path] = body
        lines.append(f"{path}:{hashlib.md5(body + (b'x' if name in wrong else b'')).hexdigest()}")
    Files.content[base + "file_list.txt"] = ("\n".join(lines) + "\n\n").encode()
    return base


def download(url, folder, *arguments, name=NAME, program=None, **variables):
    program = program or [TERN, "download_model"]
    return subprocess.run([*program, "-m", name, "-d", str(folder), *arguments], capture_output=True, text=True,
                          env={**os.environ, "PADDLENLP_STATIC_MODEL_URL": url, **variables}, timeout=60, check=False)  # fmt: skip


def test_a_download_as_the_page_writes_it(files, tmp_path):
    publish(config_dot_json=b"{}", rank_0__model_dot_pdiparams=os.urandom(200_000))
    tool = [sys.executable, str(ROOT / "tools" / "download_model.py")]
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "tern").symlink_to(TERN)
    done = download(files, tmp_path / "m", "--nnodes", "1", program=tool, PATH=f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "m" / NAME / "rank_0" / "model.pdiparams").stat().st_size == 200_000
    Files.asked.clear()
    assert download(files, tmp_path / "m").returncode == 0
    assert len(Files.asked) == 1  # the list; what is there is left unread
    (tmp_path / "m" / NAME / "config.json").write_text("other")
    assert download(files, tmp_path / "m", MD5_CHECK="1").returncode == 0
    assert (tmp_path / "m" / NAME / "config.json").read_text() == "{}"


def test_parts_of_several_nodes_and_the_draft(files, tmp_path):
    for part in ("node1", "node2", "mtp"):
        publish(part=part, what=part.encode())
    assert download(files, tmp_path / "a", "-n", "2").returncode == 0
    assert (tmp_path / "a" / NAME / "what").read_text() == "node1"
    assert download(files, tmp_path / "b", "-n", "2", "-M", "slave", "-s", str(tmp_path / "draft")).returncode == 0
    assert (tmp_path / "b" / NAME / "what").read_text() == "node2" and (tmp_path / "draft" / "what").read_text() == "mtp"


def test_a_cut_connection_goes_on_where_it_was(files, tmp_path):
    body = os.urandom(400_000)
    base = publish(big=body)
    Files.cut = {base + "big"}
    assert download(files, tmp_path / "m").returncode == 0
    assert (tmp_path / "m" / NAME / "big").read_bytes() == body
    assert (base + "big", "bytes=200000-") in Files.asked


def test_what_a_killed_run_left_is_continued(files, tmp_path):
    body = os.urandom(100_000)
    base = publish(big=body, bad=b"abc")
    folder = tmp_path / "m" / NAME
    folder.mkdir(parents=True)
    (folder / "big.part").write_bytes(body[:60_000])
    (folder / "bad.part").write_bytes(b"zz")  # of another file: fetched anew
    assert download(files, tmp_path / "m").returncode == 0
    assert (folder / "big").read_bytes() == body and (folder / "bad").read_bytes() == b"abc"
    assert (base + "big", "bytes=60000-") in Files.asked


def test_a_wrong_sum_fails_the_run_and_the_rest_goes_on(files, tmp_path):
    base = publish(wrong=("first",), first=b"1", second=b"2")
    done = download(files, tmp_path / "m")
    assert done.returncode == 1 and f"[×] Failed: {files}/{base}first" in done.stdout
    assert not (tmp_path / "m" / NAME / "first").exists() and not list((tmp_path / "m" / NAME).glob("*.part"))
    assert (tmp_path / "m" / NAME / "second").read_bytes() == b"2"


@pytest.mark.parametrize("path", ["../out", "/etc/x", "a/../../out", "./x", "a//b"])
def test_paths_that_lead_out_are_refused(files, tmp_path, path):
    base = f"3.0.0.b4/{NAME}/model/"
    Files.content[base + "file_list.txt"] = f"{path}:{'0' * 32}\n".encode()
    done = download(files, tmp_path / "m")
    assert done.returncode == 1 and "not below the model's folder" in done.stderr


def test_a_link_that_leads_out_is_refused(files, tmp_path):
    publish(sub__x=b"1")
    (tmp_path / "m" / NAME).mkdir(parents=True)
    (tmp_path / "m" / NAME / "sub").symlink_to(tmp_path)
    assert download(files, tmp_path / "m").returncode != 0 and not (tmp_path / "x").exists()
    publish(sub__deep__x=b"1")
    done = download(files, tmp_path / "m")
    assert done.returncode != 0 and "leads out of" in done.stderr and not (tmp_path / "deep").exists()


def popen(url, folder, **keys):
    return subprocess.Popen([TERN, "download_model", "-m", NAME, "-d", str(folder)], stdout=subprocess.PIPE, text=True,
                            env={**os.environ, "PADDLENLP_STATIC_MODEL_URL": url}, **keys)  # fmt: skip


def test_a_killed_download_lets_the_next_one_go_on(files, tmp_path):
    body = os.urandom(400_000)
    base = publish(big=body)
    Files.hold = {base + "big"}
    part = tmp_path / "m" / NAME / "big.part"
    first = popen(files, tmp_path / "m")
    wait_for(lambda: part.exists() and part.stat().st_size == 200_000)
    second = popen(files, tmp_path / "m")  # it waits for the lock of the first
    assert "this one waits for it" in second.stdout.readline()
    first.kill()
    first.wait()
    assert second.wait(60) == 0
    for run in (first, second):
        run.stdout.close()
    assert part.with_suffix("").read_bytes() == body and (base + "big", "bytes=200000-") in Files.asked


def test_a_disk_that_takes_no_more(files, tmp_path):
    body = os.urandom(300_000)
    base = publish(big=body, small=b"1")

    def limit():  # a write beyond it fails, as on a full disk
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    full = popen(files, tmp_path / "m", preexec_fn=limit, restore_signals=False)
    out, _ = full.communicate(timeout=60)
    folder = tmp_path / "m" / NAME
    assert full.returncode == 1 and f"[×] Failed: {files}/{base}big" in out
    assert not (folder / "big").exists() and (folder / "small").read_bytes() == b"1"
    assert download(files, tmp_path / "m").returncode == 0  # with room it goes on
    assert (folder / "big").read_bytes() == body and (base + "big", "bytes=100000-") in Files.asked


def test_two_at_once_take_turns(files, tmp_path):
    publish(big=os.urandom(3_000_000))
    runs = [popen(files, tmp_path / "m") for _ in range(2)]
    assert [run.wait(60) for run in runs] == [0, 0]
    for run in runs:
        run.stdout.close()
    assert sum(path.endswith("/big") for path, _ in Files.asked) == 1


def test_from_a_folder_and_what_is_not_there(files, tmp_path):
    place = tmp_path / "static" / "3.0.0.b4" / NAME / "model"
    place.mkdir(parents=True)
    (place / "a b").write_bytes(b"1")
    (place / "file_list.txt").write_text(f"a b:{hashlib.md5(b'1').hexdigest()}\n")
    assert download(f"file://{tmp_path}/static", tmp_path / "m").returncode == 0
    assert (tmp_path / "m" / NAME / "a b").read_bytes() == b"1"
    gone = download(files, tmp_path / "m")
    assert (
        gone.returncode == 1
        and f"Failed to download file list from URL: {files}/3.0.0.b4/{NAME}/model/file_list.txt" in gone.stderr
    )
    unknown = download(files, tmp_path / "m", name="gpt2")
    assert unknown.returncode == 2 and "gpt2 is not in the supported list" in unknown.stderr
    none = download(files, tmp_path / "m", "-n", "0")
    assert none.returncode == 2 and "Invalid nnodes: 0. nnodes must be >= 1." in none.stderr


def test_the_seeds_start_line(tmp_path):
    """`start_server $model_name` with the model published on this machine."""
    place = tmp_path / "static" / "3.0.0.b4" / NAME / "model"
    place.parent.mkdir(parents=True)
    source = exported_model(place, infer_model_max_seq_len=512)
    lines = [f"{f.name}:{hashlib.md5(f.read_bytes()).hexdigest()}" for f in sorted(source.iterdir())]
    (place / "file_list.txt").write_text("\n".join(lines))
    (tmp_path / "run").mkdir()
    server = Background(tmp_path / "run", MODEL_DIR=str(tmp_path / "models"),
                        PADDLENLP_STATIC_MODEL_URL=f"file://{tmp_path}/static")  # fmt: skip
    assert server.run("start_server", NAME).returncode == 0
    try:
        wait_for(server.ready, seconds=90)
        assert (tmp_path / "models" / NAME / "tokenizer.json").exists()
    finally:
        server.run("stop_server", "5")
