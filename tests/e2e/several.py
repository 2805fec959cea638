"""What the tests of several ranks and several engines share: a server on a CPU, and mixed requests that have one answer."""

import json
import pathlib
import random
import urllib.error
import urllib.request

import tern_server

# A test may ask for more ranks or engines than there are cores.
FORCED = {"TERN_TEST_RANKS": "1"}
FLAGS = ["--device", "cpu", "--dtype", "float32", "--max-model-len", "512", "--max-num-seqs", "8"]


class Servers:
    """launch(*flags, env=None) -> a Server that is ready."""

    def __init__(self, folder):
        self.folder, self.all = folder, []

    def launch(self, *flags, env=None, model=tern_server.MODEL):
        self.all.append(tern_server.Server(self.folder, *FLAGS, *flags, model=model, env={**FORCED, **(env or {})}))
        return self.all[-1].wait_ready()

    def end(self):
        for server in self.all:
            server.end()


def thread_names(pid, begin=""):
    names = (p.read_text().strip() for p in pathlib.Path(f"/proc/{pid}/task").glob("*/comm"))
    return sorted(n for n in names if n.startswith(begin))


def post(server, path, **body):
    """Status, and the answer or the text of the refusal."""
    request = urllib.request.Request(server.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as r:
            return r.status, json.load(r)
    except urllib.error.HTTPError as e:
        return e.code, e.read().decode()


def mixed_requests(count, seed, beginnings):
    """Completions whose prompts share `beginnings` beginnings, every second one greedy."""
    dice = random.Random(seed)
    out = []
    for n in range(count):
        begin = [7 + (n % beginnings)] * dice.randrange(1, 150)
        out.append(
            {
                "prompt": begin + [dice.randrange(5, 90) for _ in range(dice.randrange(1, 60))],
                "max_tokens": dice.randrange(1, 40),
                "temperature": 0 if n % 2 else 0.8,
                "seed": n,
                "ignore_eos": True,
                "return_token_ids": True,
            }
        )
    return out
