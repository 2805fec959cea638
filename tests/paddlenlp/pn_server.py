"""`tern serve-paddlenlp` as its environment sets it up, with the shipped model under a configuration of a static export."""

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import time

from tern_server import MODEL, TERN, wait_for

LIMITS = {"MAX_SEQ_LEN": "256", "MAX_DEC_LEN": "64", "BATCH_SIZE": "2", "BLOCK_BS": "4", "MAX_CACHED_TASK_NUM": "2"}


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def exported_model(folder, **keys):
    """The shipped model with other keys in its config.json; weights are links."""
    folder.mkdir(exist_ok=True)
    for file in MODEL.iterdir():
        if file.name != "config.json":
            (folder / file.name).symlink_to(file)
    config = json.loads((MODEL / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **keys}))
    return folder


class PaddleNlpServer:
    def __init__(self, tmp, *flags, model=MODEL, command="serve-paddlenlp", **variables):
        self.port, self.health_port, self.metrics_port, self.grpc_port, inter = free_ports(5)
        self.output, self.logs = tmp / f"server-{self.port}.txt", tmp / f"log-{self.port}"
        self.env = {
            **os.environ,
            "FD_LOG_DIR": str(self.logs),
            "MODEL_DIR": str(model),
            "SERVICE_HTTP_PORT": str(self.port),
            "HEALTH_HTTP_PORT": str(self.health_port),
            "METRICS_HTTP_PORT": str(self.metrics_port),
            "SERVICE_GRPC_PORT": str(self.grpc_port),
            "INTER_PROC_PORT": str(inter),
            **LIMITS,
            **variables,
        }
        with open(self.output, "wb") as out:
            self.process = subprocess.Popen(
                [TERN, command, "--host", "127.0.0.1", "--device", "cpu", *map(str, flags)], stdout=out, stderr=out, env=self.env
            )

    def text(self):
        return self.output.read_text(errors="replace")

    def request(self, method, path, body=None, port=None, timeout=60):
        connection = http.client.HTTPConnection("127.0.0.1", port or self.port, timeout=timeout)
        if isinstance(body, dict):
            body = json.dumps(body)
        connection.request(method, path, body, {"Content-Type": "application/json"} if body else {})
        return connection.getresponse()

    def post(self, body, path="/v1/chat/completions"):
        answer = self.request("POST", path, body)
        return answer.status, json.loads(answer.read())

    def stream(self, path="/v1/chat/completions", **body):
        answer = self.request("POST", path, {"stream": True, **body})
        assert answer.status == 200 and answer.getheader("content-type").startswith("text/event-stream")
        return [json.loads(line) for line in answer.read().decode().split("\n") if line]

    def health(self, path="/v2/health/ready"):
        try:
            answer = self.request("GET", path, port=self.health_port, timeout=5)
        except OSError:
            return None
        return answer.status, answer.read().decode()

    def metrics(self):
        return self.request("GET", "/metrics", port=self.metrics_port).read().decode()

    def metric(self, name):
        return next(float(line.split()[-1]) for line in self.metrics().splitlines() if line.startswith(name))

    def wait_ready(self):
        def ready():
            assert self.process.poll() is None, self.text()
            return self.health() == (200, "")

        wait_for(ready, seconds=90)
        return self

    def end(self, seconds=30):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(5)
            if self.process.poll() is None:
                self.process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + seconds
        while self.process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        if self.process.poll() is None:
            self.process.kill()
        return self.process.wait()
