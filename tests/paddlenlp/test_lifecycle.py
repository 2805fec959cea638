"""Health, figures, start, stop and download of the PaddleNLP front (docs/spec/paddlenlp-server.md 4, 5)."""

import contextlib
import hashlib
import http.client
import json
import os
import pathlib
import signal
import subprocess
import threading
import time

import pytest
from grpc_client import Client
from pn_server import LIMITS, exported_model, free_ports
from tern_server import MODEL, TERN, wait_for


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
         "all ranks of this build are on one node"),
        ({"MP_NUM": "16"}, 2, "MP_NUM 16 is more than the 8 ranks of a node"),
    ],
)  # fmt: skip
def test_a_start_that_cannot_be_says_why(tmp_path, variables, status, text):
    started = Background(tmp_path, **variables).run("start_server")
    assert started.returncode == status and text in started.stderr and len(started.stderr.splitlines()) == 1


def ranks_of(server):
    names = (task / "comm" for task in pathlib.Path(f"/proc/{server.process.pid}/task").iterdir())
    return sorted(name for name in (path.read_text().strip() for path in names) if name.startswith("rank-"))


def test_mp_num_is_the_number_of_ranks(start):
    two = start(MP_NUM="2", TERN_TEST_RANKS="1").wait_ready()
    assert ranks_of(two) == ["rank-0", "rank-1"]
    assert len(two.stream(text="Hello", max_dec_len=16, min_dec_len=16)) == 17
    two.end()
    if len(os.sched_getaffinity(0)) < 8:
        fewer = start(MP_NUM="8").wait_ready()
        assert ranks_of(fewer) == ["rank-0"]
        assert "MP_NUM=8 on " in fewer.text() and "one rank runs, with all of them" in fewer.text()


NAME = "Qwen/tiny/weight_only_int8"


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
