"""Pause, sleep, wake and other weights, in the real server and under load: no answer of two versions, memory that goes
and comes. TERN_TEST_CONTROL_ROUNDS: rounds under load (default 6; 100 by hand)."""

import base64
import hashlib
import json
import os
import pathlib
import shutil
import struct
import subprocess
import threading
import urllib.error
import urllib.request

import pytest

from tern_server import MODEL, TERN, wait_for

ROUNDS = int(os.environ.get("TERN_TEST_CONTROL_ROUNDS", "6"))
NORM = "model.norm.weight"
PROMPT = {"prompt": [5, 6, 7, 8, 9, 10], "max_tokens": 24, "temperature": 0, "ignore_eos": True, "return_token_ids": True}


def call(server, path, body=None, method="POST"):
    data = json.dumps(body).encode() if body is not None else b"" if method == "POST" else None
    request = urllib.request.Request(server.url + path, data, {"content-type": "application/json"}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as reply:
            return reply.status, json.loads(reply.read() or b"null")
    except urllib.error.HTTPError as e:
        text = e.read()
        return e.code, json.loads(text) if text.startswith(b"{") else None


def done(server, path, body=None):
    status, reply = call(server, path, body)
    assert status == 200 and reply["status"] == "success", reply
    return reply["result"]


def refused(server, body):
    status, reply = call(server, "/v1/update_weights", body)
    assert status == 500 and reply["status"] == "error", reply
    return reply["error_message"]


def ids(server):
    status, reply = call(server, "/v1/completions", PROMPT)
    assert status == 200, reply
    return reply["choices"][0]["completion_token_ids"]


def other_weights(folder, *names):
    """The model with the signs of these tensors turned round."""
    shutil.copytree(MODEL, folder)
    for name in names:
        turn_round(folder, name)


def turn_round(folder, name):
    index = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
    path = folder / index[name]
    data = bytearray(path.read_bytes())
    head = struct.unpack("<Q", data[:8])[0]
    entry = json.loads(data[8 : 8 + head])[name]
    size = {"BF16": 2, "F32": 4, "F16": 2}[entry["dtype"]]
    begin, end = (8 + head + at for at in entry["data_offsets"])
    for at in range(begin + size - 1, end, size):
        data[at] ^= 0x80
    path.write_bytes(data)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("weights")
    shutil.copytree(MODEL, root / "a")
    other_weights(root / "b", NORM)  # every logit is negative then
    other_weights(root / "keys", "model.layers.0.input_layernorm.weight")
    other_weights(root / "tower", "visual.vision_model.post_layernorm.weight")
    return root


@pytest.fixture
def serve(start, folders):
    def launch(*flags):
        return start("--weights-root", folders, "--max-model-len", 512, "--dtype", "float32", *flags)

    return launch


def memory(server):
    """Bytes of the process that are in memory and of no file."""
    for line in pathlib.Path(f"/proc/{server.process.pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise KeyError("RssAnon")


class Load:
    """Clients that ask without end; every answer must be that of one version, or its beginning."""

    def __init__(self, server, versions, clients=3):
        self.server, self.versions, self.wrong = server, versions, []
        self.seen = {name: 0 for name in (*versions, "aborted", "shut")}
        self.stop = threading.Event()
        self.threads = [threading.Thread(target=self.run) for _ in range(clients)]
        for t in self.threads:
            t.start()

    def run(self):
        while not self.stop.is_set():
            status, reply = call(self.server, "/v1/completions", PROMPT | {"n": 2})
            if status == 304:
                self.seen["shut"] += 1
                continue
            if status != 200:
                self.wrong.append((status, reply))
                return
            self.judge([(c["completion_token_ids"], c["finish_reason"]) for c in reply["choices"]])

    def judge(self, choices):
        fits = set(self.versions)
        for got, reason in choices:
            if reason == "abort":
                self.seen["aborted"] += 1
            elif len(got) != PROMPT["max_tokens"]:
                self.wrong.append((reason, got))
            fits &= {name for name, want in self.versions.items() if want[: len(got)] == got}
        if not fits:
            self.wrong.append(choices)
        for name in fits if len(fits) == 1 else ():
            self.seen[name] += 1

    def end(self):
        self.stop.set()
        for t in self.threads:
            t.join()


def test_sleep_wake_and_other_weights_under_load(serve):
    s = serve().wait_ready()
    versions = {"a": ids(s)}
    done(s, "/v1/pause")
    assert done(s, "/v1/update_weights", {"version": "b", "model_path": "b"}) == {"version": "b"}
    done(s, "/v1/resume")
    versions["b"] = ids(s)
    assert versions["a"][0] != versions["b"][0]
    load = Load(s, versions)
    memories = []
    for i in range(ROUNDS):
        name = "ab"[i % 2]
        before = sum(load.seen.values())
        wait_for(lambda before=before: sum(load.seen.values()) > before or load.wrong)
        done(s, "/v1/pause")
        done(s, "/v1/update_weights", {"version": name, "model_path": name})
        done(s, "/v1/resume")
        wait_for(lambda name=name, n=load.seen[name]: load.seen[name] > n or load.wrong)
        done(s, "/v1/sleep?tags=" + ("weight", "kv_cache", "weight,kv_cache")[i % 3])
        memories.append(memory(s))
        done(s, "/v1/wakeup")
        assert json.loads(s.get("/version"))["weights"] == name
        wait_for(lambda name=name, n=load.seen[name]: load.seen[name] > n or load.wrong)
    load.end()
    assert not load.wrong
    assert all(load.seen[name] for name in ("a", "b", "aborted")), load.seen
    assert ids(s) == versions["ab"[(ROUNDS - 1) % 2]]
    asleep = [m for i, m in enumerate(memories) if i % 3 == 2]  # all tags
    assert max(asleep) <= 1.01 * min(asleep) + (2 << 20), asleep


def test_memory_goes_and_comes(serve):
    s = serve().wait_ready()
    want = ids(s)
    weights = 2 * sum(p.stat().st_size for p in MODEL.glob("*.safetensors"))  # float32 of bfloat16
    awake = None  # after the first round: the heap of the first answers is no weight's
    for _ in range(4):
        before = memory(s)
        done(s, "/v1/sleep?tags=weight")
        assert before - memory(s) > 0.95 * weights
        done(s, "/v1/wakeup")
        assert ids(s) == want
        awake = awake or memory(s)
        assert abs(memory(s) - awake) < 0.01 * awake + (2 << 20)


def test_weights_that_do_not_fit_change_nothing(serve, folders):
    s = serve().wait_ready()
    want = ids(s)
    assert "pause" in refused(s, {"model_path": "b"})
    done(s, "/v1/pause")
    assert "no such folder" in refused(s, {"model_path": "none"})
    assert "below --weights-root" in refused(s, {"model_path": str(MODEL)})
    assert "below --weights-root" in refused(s, {"model_path": ".."})
    assert "SHA256SUMS" in refused(s, {"model_path": "b", "verify_checksum": True})
    bad = folders / "bad"
    shutil.copytree(MODEL, bad, dirs_exist_ok=True)
    config = json.loads((bad / "config.json").read_text())
    (bad / "config.json").write_text(json.dumps(config | {"rms_norm_eps": 0.5}))
    assert "rms_norm_eps" in refused(s, {"model_path": "bad"})
    (bad / "config.json").write_text(json.dumps(config))
    shard = min(bad.glob("*.safetensors"))
    shard.write_bytes(shard.read_bytes()[:-64])
    assert refused(s, {"model_path": "bad"})
    done(s, "/v1/resume")
    assert ids(s) == want
    done(s, "/v1/pause")
    sums = [f"{hashlib.sha256(p.read_bytes()).hexdigest()}  {p.name}\n" for p in (folders / "b").glob("*.safetensors")]
    (folders / "b" / "SHA256SUMS").write_text("".join(sums))
    done(s, "/v1/update_weights", {"model_path": "b", "verify_checksum": True})
    done(s, "/v1/resume")
    assert ids(s)[0] != want[0]


def test_start_asleep_and_the_old_routes(serve):
    s = serve("--load-strategy", "meta", "--dynamic-load-weight")
    wait_for(lambda: s.find_port(), 60)
    assert call(s, "/v1/completions", PROMPT)[0] == 304
    assert call(s, "/health", method="GET")[0] == 304
    done(s, "/v1/wakeup")
    want = ids(s)
    assert call(s, "/clear_load_weight", method="GET")[0] == 200
    assert call(s, "/v1/completions", PROMPT)[0] == 304
    assert call(s, "/update_model_weight", method="GET")[0] == 200
    assert ids(s) == want


LONG = {"prompt": [5 + i % 90 for i in range(140)], "max_tokens": 3}  # two blocks of 64 that the prefix cache keeps
SEEN = "data:image/png;base64," + base64.b64encode((MODEL.parent / "demo.png").read_bytes()).decode()
LOOK = {
    "messages": [
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": SEEN}}, {"type": "text", "text": "OCR:"}]}
    ],
    "max_tokens": 3,
}


def says(server, path, body):
    """Log-probs of an answer, and how many tokens of its prompt were in the cache."""
    status, reply = call(server, path, body | {"temperature": 0, "ignore_eos": True, "logprobs": 1 if "prompt" in body else True})
    assert status == 200, reply
    logprobs = reply["choices"][0]["logprobs"]
    values = logprobs["token_logprobs"] if "prompt" in body else [token["logprob"] for token in logprobs["content"]]
    return values, reply["usage"]["prompt_tokens_details"]["cached_tokens"]


@pytest.mark.parametrize(
    ("version", "path", "body"),
    [("keys", "/v1/completions", LONG), ("tower", "/v1/chat/completions", LOOK)],
    ids=["prefixes", "pictures"],
)
def test_what_the_caches_hold_is_of_the_weights(serve, start, folders, version, path, body):
    """A prefix, and a picture that has been encoded, were made by other weights: neither counts any more."""
    s = serve("--enable-logprob").wait_ready()
    old = says(s, path, body)[0]
    again, hit = says(s, path, body)
    assert again == old and hit >= 64
    done(s, "/v1/pause")
    done(s, "/v1/update_weights", {"model_path": version})
    done(s, "/v1/resume")
    new, hit = says(s, path, body)
    assert hit == 0 and new != old
    fresh = start("--max-model-len", 512, "--dtype", "float32", "--enable-logprob", model=folders / version).wait_ready()
    assert new == says(fresh, path, body)[0]


@pytest.mark.parametrize("strategy", ["ipc", "ipc_snapshot", "rsync"])
def test_weights_come_from_folders_alone(strategy):
    command = [TERN, "serve", "--model", str(MODEL), "--dry-run", "--load-strategy", strategy]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    assert "no process hands them over" in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr
