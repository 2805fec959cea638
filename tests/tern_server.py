"""Starts the built program with the shipped model, for every suite. TERN names it (default build/release/tern)."""

import contextlib
import itertools
import os
import pathlib
import re
import signal
import ssl
import subprocess
import time
import urllib.request

import openai

ROOT = pathlib.Path(__file__).resolve().parents[1]
TERN = os.environ.get("TERN", str(ROOT / "build" / "release" / "tern"))
MODEL = ROOT / "models" / "tern-demo-ocr"
RUNNING = re.compile(rb"Uvicorn running on https?://\S+:(\d+) ")


def wait_for(what, seconds=30, every=0.01):
    """Waits until what() is true and returns its value. For what other processes do; threads of ours have conditions."""
    deadline = time.monotonic() + seconds
    while not (value := what()):
        assert time.monotonic() < deadline, f"{seconds} s have passed"
        time.sleep(every)
    return value


def listening_port(pid):
    """The TCP port that a process listens on, from the kernel's tables; None before it does."""
    sockets = set()
    for file in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            sockets.add(os.readlink(file))
    for line in pathlib.Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == "0A" and f"socket:[{fields[9]}]" in sockets:
            return int(fields[1].rsplit(":", 1)[1], 16)
    return None


class Server:
    """`tern serve` on a port that the system chooses, or on `port`. `output` is what it prints, a file; or `stdout` a
    descriptor that the caller reads. `trust`: a file of certificates, for a server that speaks TLS."""

    numbers = itertools.count(1)

    def __init__(self, tmp, *flags, model=MODEL, env=None, port=0, stdout=None, preexec=None, trust=None):
        number = next(self.numbers)
        self.output, self.logs = tmp / f"server-{number}.txt", tmp / f"log-{number}"
        self.known_port, self.reads_output = port, stdout is None
        self.tls = ssl.create_default_context(cafile=str(trust)) if trust else None
        environment = {**os.environ, "FD_LOG_DIR": str(self.logs), **(env or {})}
        with open(self.output, "wb") as out:
            self.process = subprocess.Popen(
                [TERN, "serve", "--model", str(model), "--host", "127.0.0.1", "--port", str(port), *map(str, flags)],
                stdout=out if stdout is None else stdout,
                stderr=out if stdout is None else stdout,
                env=environment,
                preexec_fn=preexec,
            )

    def text(self):
        return self.output.read_text(errors="replace")

    def find_port(self):
        if not self.reads_output:
            return listening_port(self.process.pid)
        said = RUNNING.search(self.output.read_bytes())
        return int(said[1]) if said else None

    def wait_port(self, deadline):
        while not self.known_port:
            if self.process.poll() is not None:
                raise RuntimeError(f"server ended with {self.process.returncode}:\n{self.text()}")
            self.known_port = self.find_port()
            if not self.known_port:
                if time.monotonic() > deadline:
                    raise RuntimeError("server does not listen:\n" + self.text())
                time.sleep(0.01)
        return self.known_port

    @property
    def port(self):
        return self.wait_port(time.monotonic() + 60)

    @property
    def url(self):
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"

    def wait_ready(self, seconds=60):
        deadline = time.monotonic() + seconds
        self.wait_port(deadline)
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise RuntimeError(f"server ended with {self.process.returncode}:\n{self.text()}")
            with contextlib.suppress(OSError):
                with urllib.request.urlopen(self.url + "/health", timeout=2, context=self.tls) as r:
                    if r.status == 200:
                        return self
            time.sleep(0.01)
        raise RuntimeError("server was not ready in time:\n" + self.text())

    def client(self, **kw):
        kw = {"api_key": "none", "max_retries": 0, "timeout": 60, **kw}
        return openai.OpenAI(base_url=self.url + "/v1", **kw)

    def get(self, path):
        with urllib.request.urlopen(self.url + path, timeout=10, context=self.tls) as r:
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

    def end(self):
        """For the end of a test, whatever became of it."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(10)
