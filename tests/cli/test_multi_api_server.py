"""tern multi-api-server: a server and a port for each engine; checks before anything starts; one end is the end of all."""

import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import urllib.request

import pytest

import tern_server
from tern_server import MODEL, TERN, wait_for

SERVERS = ["--model", str(MODEL), "--host", "127.0.0.1", "--device", "cpu", "--max-model-len", "256"]


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def refused(*args):
    done = subprocess.run([TERN, "multi-api-server", *map(str, args)], capture_output=True, text=True, timeout=60)
    assert done.returncode in (1, 2) and done.stdout == "", done
    (line,) = done.stderr.splitlines()
    return line


def answers(port, path="/health"):
    with contextlib.suppress(OSError):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as r:
            return r.read().decode() or "up"
    return None


def children(pid):
    return [int(p) for p in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def gone(pid):
    """Ended; a zombie that nobody has taken in counts."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


class Group:
    def __init__(self, tmp, *flags, command=(TERN, "multi-api-server"), env=None):
        self.ports, self.metrics = free_ports(2), free_ports(2)
        self.output, self.folder = tmp / "output.txt", tmp
        words = [*command, "--ports", ",".join(map(str, self.ports)), "--num-servers", "2"]
        words += ["--metrics-ports", ",".join(map(str, self.metrics)), "--args", *SERVERS, *flags]
        environment = {k: v for k, v in os.environ.items() if k != "FD_LOG_DIR"} | (env or {})
        with open(self.output, "wb") as out:
            self.process = subprocess.Popen(words, stdout=out, stderr=out, cwd=tmp, env=environment)

    def ready(self):
        def up():
            assert self.process.poll() is None, self.text()
            return all(answers(port) for port in self.ports)

        wait_for(up, 60)
        self.pids = children(self.process.pid)
        assert len(self.pids) == 2
        return self

    def text(self):
        return self.output.read_text(errors="replace")


@pytest.fixture
def start(tmp_path):
    groups = []

    def launch(*flags, **more):
        groups.append(Group(tmp_path, *flags, **more))
        return groups[-1].ready()

    yield launch
    for g in groups:
        if g.process.poll() is None:
            g.process.kill()
        g.process.wait(10)
        wait_for(lambda g=g: all(gone(pid) for pid in g.pids))


def test_each_port_has_an_engine_and_an_interrupt_stops_all(start):
    group = start()
    for number, (port, metrics) in enumerate(zip(group.ports, group.metrics)):
        config = json.loads(answers(metrics, "/config-info"))
        assert config["data_parallel"] == {"size": 2, "first": number, "count": 1}
        assert config["flags"]["max_concurrency"] == 512
        assert "fastdeploy:num_requests_running" in answers(metrics, "/metrics")
        assert (group.folder / f"log_{number}").is_dir()
        body = json.dumps({"prompt": [5, 6, 7], "max_tokens": 4}).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/completions", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=30) as r:
            assert json.load(r)["usage"]["completion_tokens"] >= 1
    group.process.send_signal(signal.SIGINT)
    assert group.process.wait(20) == 0, group.text()
    assert all(gone(pid) for pid in group.pids)


def test_one_that_ends_ends_the_others_with_a_line(start):
    group = start()
    os.kill(group.pids[1], signal.SIGKILL)
    assert group.process.wait(20) == 1
    assert f"tern: server 1 (port {group.ports[1]}) was ended by signal 9: the others are stopped" in group.text()
    assert gone(group.pids[0])


def test_one_that_cannot_start_ends_the_others(tmp_path):
    group = Group(tmp_path, "--model", str(tmp_path / "nowhere"))
    assert group.process.wait(60) != 0
    assert "ended with status" in group.text() and "the others are stopped" in group.text()


def test_servers_end_with_the_one_that_started_them(start):
    group = start(env={"FD_LOG_DIR": "logs"})
    assert (group.folder / "logs" / "log_1").is_dir()
    group.process.kill()
    group.process.wait(10)
    wait_for(lambda: all(gone(pid) for pid in group.pids))


def test_fastdeploys_command_line(start):
    python = {"PYTHONPATH": f"{tern_server.ROOT / 'python'}:{tern_server.ROOT / 'python' / 'compat'}", "TERN": TERN}
    module = ("python3", "-m", "fastdeploy.entrypoints.openai.multi_api_server")
    group = start("--data-parallel-size", "2", "--engine-worker-queue-port", "25611,25621", command=module, env=python)
    group.process.terminate()
    assert group.process.wait(20) == 0


def test_mistakes_are_one_line_before_anything_starts():
    a, b, c, d = free_ports(4)
    both = ["--ports", f"{a},{b}", "--metrics-ports", f"{c},{d}"]
    assert refused("--ports", a) == f"tern: --ports {a}: 1 port for --num-servers 2"
    assert f"--metrics-ports {c}: 1 port for --num-servers 2" in refused("--ports", f"{a},{b}", "--metrics-ports", c)
    assert "--controller-ports 7: 1 port" in refused(*both, "--controller-ports", "7")
    assert 'tern: --ports "x,1": "x" is no port' in refused("--ports", "x,1")
    assert f"port {a} is named twice" in refused("--ports", f"{a},{a}")
    assert f"port {a} is named twice" in refused("--ports", f"{a},{b}", "--metrics-ports", f"{c},{a}")
    with socket.create_server(("0.0.0.0", a)):
        assert f"port {a} is taken" in refused(*both, "--args", *SERVERS)
    for flag, value in (("port", 1), ("metrics-port", 1), ("controller-port", 1), ("local-data-parallel-id", 0)):
        assert f"--{flag} cannot stand behind --args" in refused(*both, "--args", *SERVERS, f"--{flag}", value)
    assert "--uds cannot stand behind" in refused(*both, "--args", *SERVERS, "--uds", "s")
    assert "--data-parallel-size 4 is not --num-servers 2" in refused(*both, "--args", "--data-parallel-size", 4)
    assert "--engine-worker-queue-port names 1" in refused(*both, "--args", "--engine-worker-queue-port", 4)
    assert "unknown flag --modle; the nearest is --model" in refused(*both, "--args", "--modle", "x")
    assert "tern serve --dry-run" in refused(*both, "--args", *SERVERS, "--dry-run")
