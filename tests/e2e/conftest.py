"""Starts the built server with the shipped model. TERN names the program (default build/release/tern)."""

import contextlib
import os
import pathlib
import signal
import socket
import subprocess
import time
import urllib.request

import openai
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TERN = os.environ.get("TERN", str(ROOT / "build" / "release" / "tern"))
MODEL = ROOT / "models" / "tern-demo-ocr"


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    def __init__(self, tmp, *flags, model=MODEL, env=None, port=None):
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.output = tmp / f"server-{self.port}.txt"
        environment = {**os.environ, "FD_LOG_DIR": str(tmp / f"log-{self.port}"), **(env or {})}
        with open(self.output, "wb") as out:
            self.process = subprocess.Popen(
                [TERN, "serve", "--model", str(model), "--host", "127.0.0.1", "--port", str(self.port), *map(str, flags)],
                stdout=out,
                stderr=out,
                env=environment,
            )

    def wait_ready(self, seconds=60):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise RuntimeError(f"server ended with {self.process.returncode}:\n{self.output.read_text(errors='replace')}")
            with contextlib.suppress(OSError):
                with urllib.request.urlopen(self.url + "/health", timeout=2) as r:
                    if r.status == 200:
                        return self
            time.sleep(0.02)
        raise RuntimeError("server was not ready in time:\n" + self.output.read_text(errors="replace"))

    def client(self, **kw):
        kw = {"api_key": "none", "max_retries": 0, "timeout": 60, **kw}
        return openai.OpenAI(base_url=self.url + "/v1", **kw)

    def get(self, path):
        with urllib.request.urlopen(self.url + path, timeout=10) as r:
            return r.read().decode()

    def metric(self, name):
        for line in self.get("/metrics").splitlines():
            if line.startswith(name + " ") or line.startswith(name + "{"):
                return float(line.rsplit(" ", 1)[1])
        raise KeyError(name)

    def stop(self, sig=signal.SIGTERM, seconds=20):
        if self.process.poll() is None:
            self.process.send_signal(sig)
        return self.process.wait(seconds)


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    s = Server(tmp_path_factory.mktemp("server"), "--max-num-seqs", 64, "--enable-logprob", "--max-model-len", 2048)
    s.wait_ready()
    yield s
    s.stop()


@pytest.fixture
def start(tmp_path):
    """start(*flags) -> a Server of its own that is stopped at the end of the test."""
    servers = []

    def launch(*flags, **kw):
        servers.append(Server(tmp_path, *flags, **kw))
        return servers[-1]

    yield launch
    for s in servers:
        if s.process.poll() is None:
            s.process.kill()
            s.process.wait(10)


@pytest.fixture
def client(server):
    return server.client()
