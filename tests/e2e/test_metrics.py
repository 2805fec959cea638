"""Every figure of fastdeploy.md 10.1, read by Prometheus' own client: its name, its type, its buckets, and its value after
work that is known, under every setting that could change it."""

import base64
import json
import urllib.error
import urllib.request

import pytest
import tern_server
from prometheus_client.parser import text_string_to_metric_families
from several import FORCED

TOKENS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000)
REQUEST = (0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680)
FIRST = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1)
TOKEN = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1)
HTTP = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5, 7.5, 10, 30, 60)
GAUGES = """num_requests_running num_requests_waiting num_requests_enqueued num_requests_preempted first_token_latency
infer_latency gpu_cache_usage_perc available_gpu_block_num free_gpu_block_num max_gpu_block_num max_cpu_block_num
available_gpu_resource batch_size max_batch_size available_batch_size cache_config_info hit_req_rate hit_token_rate
gpu_hit_token_rate cpu_hit_token_rate""".split()
COUNTERS = """request_preempted requests_number request_success prompt_tokens generation_tokens prefix_cache_token_num
prefix_gpu_cache_token_num prefix_cpu_cache_token_num prefix_storage_cache_token_num""".split()
# None: the original's table names no buckets.
HISTOGRAMS = {
    "request_prompt_tokens": TOKENS,
    "request_generation_tokens": TOKENS,
    "request_params_max_tokens": TOKENS,
    "request_token_ratio": None,
    "time_to_first_token_seconds": FIRST,
    "time_per_output_token_seconds": TOKEN,
    "e2e_request_latency_seconds": REQUEST,
    "request_inference_time_seconds": REQUEST,
    "request_queue_time_seconds": REQUEST,
    "request_prefill_time_seconds": REQUEST,
    "request_decode_time_seconds": REQUEST,
}
# Figures of what this server does not do yet, or does not have: each appears with its feature, and then belongs above.
LATER = {
    "speculative decoding": """spec_decode_draft_acceptance_rate spec_decode_num_accepted_tokens spec_decode_num_emitted_tokens
    spec_decode_efficiency spec_decode_num_draft_tokens spec_decode_draft_single_head_acceptance_rate_0""".split(),
    "prefill and decode apart": ["send_cache_failed_num"],
    "processes that talk over ZeroMQ": [
        f"zmq:{name}" for name in ("msg_send", "msg_send_failed", "msg_bytes_send", "msg_recv", "msg_bytes_recv", "latency")
    ],
}
LONG = [7 + i % 60 for i in range(130)]  # two full blocks of 64, and two tokens


class Figures:
    def __init__(self, server):
        request = urllib.request.Request(
            server.url + "/metrics", headers={"Accept": "application/openmetrics-text;version=1.0.0"}
        )
        with urllib.request.urlopen(request, timeout=20) as reply:
            # As FastDeploy's: the text form, whatever is asked for.
            assert reply.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
            text = reply.read().decode()
        assert text.count("# TYPE") == len({line for line in text.splitlines() if line.startswith("# TYPE")})
        self.families = {family.name: family for family in text_string_to_metric_families(text)}

    def value(self, name, **labels):
        """Of fastdeploy:NAME, or of a name without a prefix that has labels."""
        family, _, suffix = name.partition("|")
        for sample in self.families[family].samples:
            if sample.name == family + suffix and labels.items() <= sample.labels.items():
                return sample.value
        raise KeyError(name, labels)

    def gauge(self, name):
        return self.value(f"fastdeploy:{name}")

    def counter(self, name):
        return self.value(f"fastdeploy:{name}|_total")

    def count(self, name):
        return self.value(f"fastdeploy:{name}|_count")

    def sum(self, name):
        return self.value(f"fastdeploy:{name}|_sum")


def bounds(family):
    return tuple(float(s.labels["le"]) for s in family.samples if s.name.endswith("_bucket"))[:-1]


def check_table(figures):
    kinds = {name: family.type for name, family in figures.families.items()}
    assert {name: kinds.get(f"fastdeploy:{name}") for name in GAUGES} == dict.fromkeys(GAUGES, "gauge")
    assert {name: kinds.get(f"fastdeploy:{name}") for name in COUNTERS} == dict.fromkeys(COUNTERS, "counter")
    assert {name: kinds.get(f"fastdeploy:{name}") for name in HISTOGRAMS} == dict.fromkeys(HISTOGRAMS, "histogram")
    for name, want in HISTOGRAMS.items():
        assert want is None or bounds(figures.families[f"fastdeploy:{name}"]) == want, name
    assert kinds["http_requests"] == "counter"
    assert kinds["http_request_duration_seconds"] == "histogram"
    for name in COUNTERS + list(HISTOGRAMS):  # as Python's client has them
        assert kinds[f"fastdeploy:{name}_created"] == "gauge"
    for feature, names in LATER.items():
        for name in names:
            assert f"fastdeploy:{name}" not in kinds and name not in kinds, feature
    others = {name for name in kinds if name.startswith("fastdeploy:") and not name.endswith("_created")}
    assert others == {f"fastdeploy:{name}" for name in [*GAUGES, *COUNTERS, *HISTOGRAMS]}, "no more than the table has"


def post(server, path, **body):
    request = urllib.request.Request(server.url + path, json.dumps(body).encode(), {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as reply:
            return json.load(reply)
    except urllib.error.HTTPError as e:
        return e.code


class Work:
    """What a server has been asked, one thing after the other."""

    def __init__(self, server):
        self.server = server
        self.prompts, self.answers, self.limits = [], [], []  # of each sequence
        self.aborted = 0
        for _ in range(2):
            self.ask(LONG, 7)
        self.ask([9, 8, 7, 6], 5, n=2)
        self.see()
        self.refused = [
            post(server, "/v1/completions", prompt=LONG, max_tokens=-1),
            post(server, "/v1/completions", prompt=[7] * 5000),
            post(server, "/v1/chat/completions", messages="x"),
        ]
        assert self.refused == [400, 400, 400]
        self.leave()

    def note(self, reply, limit, samples=1):
        usage = reply["usage"]
        self.prompts += [usage["prompt_tokens"]] * samples
        self.answers += [usage["completion_tokens"] // samples] * samples
        self.limits += [limit] * samples

    def ask(self, ids, tokens, n=1):
        body = dict(prompt=ids, max_tokens=tokens, n=n, ignore_eos=True, temperature=0)
        self.note(post(self.server, "/v1/completions", **body), tokens, n)

    def see(self):
        url = "data:image/png;base64," + base64.b64encode((tern_server.MODEL.parent / "demo.png").read_bytes()).decode()
        content = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": "OCR:"}]
        reply = post(
            self.server, "/v1/chat/completions", messages=[{"role": "user", "content": content}], max_tokens=4, ignore_eos=True
        )
        assert reply["usage"]["prompt_tokens_details"]["image_tokens"] > 0
        self.note(reply, 4)

    def leave(self):
        """A request that is aborted while it runs."""
        body = dict(prompt=[4, 5], max_tokens=1500, ignore_eos=True, stream=True, request_id="left", stream_options={})
        request = urllib.request.Request(
            self.server.url + "/v1/completions", json.dumps(body).encode(), {"content-type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as stream:
            assert stream.readline().startswith(b"data: ")
            done = post(self.server, "/v1/abort_requests", req_ids=["cmpl-left"])
            assert [r["request_id"] for r in done["result"]["aborted"]], done
            events = [json.loads(line[6:]) for line in stream if line.startswith(b"data: {")]
        self.note(events[-1], 1500)
        self.aborted = 1


SETTINGS = {
    "as it comes": ([], {}),
    "no prefix cache": (["--no-enable-prefix-caching"], {}),
    "small chunks": (["--max-num-batched-tokens", 64], {}),
    "two engines": (["--data-parallel-size", 2], FORCED),
    "two ranks": (["--tensor-parallel-size", 2], FORCED),
    "labels": (["--served-model-name", "pages"], {"FD_ENABLE_METRIC_LABELS": "1"}),
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_figures_of_known_work(start, setting):
    flags, env = SETTINGS[setting]
    # Steps of 5 ms: the request that is aborted is aborted while it runs.
    server = start("--max-model-len", 2048, *flags, env={**env, "TERN_TEST_PLAN_DELAY_MS": "5"}).wait_ready()
    cold = Figures(server)
    check_table(cold)
    for name in COUNTERS:
        assert cold.counter(name) == 0, name
    for name in HISTOGRAMS:
        assert cold.count(name) == cold.sum(name) == 0, name
    work = Work(server)
    # The blocks of what was aborted are free when its last step has ended.
    tern_server.wait_for(lambda: server.metric("fastdeploy:available_gpu_resource") == 1)
    f = Figures(server)
    check_table(f)
    check_counts(f, work)
    check_times(f)
    check_cache(f, work, "--no-enable-prefix-caching" not in flags)
    check_idle(f, 16 if setting == "two engines" else 8)
    check_http(f, work)
    info = next(s for s in f.families["fastdeploy:cache_config_info"].samples)
    assert info.value == 1 and info.labels["block_size"] == "64"
    assert info.labels["enable_prefix_caching"] == str(setting != "no prefix cache").lower()
    labelled = {s.labels.get("model_id") for name, family in f.families.items() if ":" in name for s in family.samples}
    assert labelled == ({"pages"} if setting == "labels" else {None})


def check_counts(f, work):
    sequences = len(work.prompts)
    assert f.counter("requests_number") == 5 + len(work.refused)
    assert f.counter("request_success") == sequences - work.aborted
    assert f.counter("request_preempted") == 0
    assert f.counter("prompt_tokens") == f.sum("request_prompt_tokens") == sum(work.prompts)
    assert f.counter("generation_tokens") == f.sum("request_generation_tokens") == sum(work.answers)
    assert f.sum("request_params_max_tokens") == sum(work.limits)
    assert f.sum("request_token_ratio") == pytest.approx(sum(p / a for p, a in zip(work.prompts, work.answers)))
    for name in HISTOGRAMS:
        want = sum(work.answers) - sequences if name == "time_per_output_token_seconds" else sequences
        assert f.count(name) == want, name
    for name, values in (
        ("request_prompt_tokens", work.prompts),
        ("request_generation_tokens", work.answers),
        ("request_params_max_tokens", work.limits),
    ):
        for bound in TOKENS:
            assert f.value(f"fastdeploy:{name}|_bucket", le=f"{float(bound)}") == sum(v <= bound for v in values), (name, bound)


def check_times(f):
    parts = f.sum("request_prefill_time_seconds") + f.sum("request_decode_time_seconds")
    assert f.sum("request_inference_time_seconds") == pytest.approx(parts)
    assert f.sum("e2e_request_latency_seconds") == pytest.approx(parts + f.sum("request_queue_time_seconds"))
    first = f.sum("request_prefill_time_seconds") + f.sum("request_queue_time_seconds")
    assert f.sum("time_to_first_token_seconds") == pytest.approx(first)
    assert 0 < f.gauge("first_token_latency") <= f.sum("time_to_first_token_seconds")
    assert 0 < f.gauge("infer_latency") <= f.sum("request_decode_time_seconds")


def check_cache(f, work, cached):
    hit = 128 if cached else 0  # of the second long prompt
    assert f.counter("prefix_cache_token_num") == f.counter("prefix_gpu_cache_token_num") == hit
    assert f.counter("prefix_cpu_cache_token_num") == f.counter("prefix_storage_cache_token_num") == 0
    assert f.gauge("hit_req_rate") == pytest.approx(1 / len(work.prompts) if cached else 0)
    assert f.gauge("hit_token_rate") == f.gauge("gpu_hit_token_rate") == pytest.approx(hit / sum(work.prompts))
    assert f.gauge("cpu_hit_token_rate") == 0
    blocks = f.gauge("max_gpu_block_num")
    assert f.gauge("available_gpu_block_num") == blocks > 0
    assert f.gauge("available_gpu_resource") == 1 and f.gauge("gpu_cache_usage_perc") == 0
    full = f.gauge("free_gpu_block_num")
    assert (full < blocks) == cached and blocks - full < 40
    assert f.gauge("max_cpu_block_num") == 0


def check_idle(f, places):
    for name in ("running", "waiting", "enqueued", "preempted"):
        assert f.gauge(f"num_requests_{name}") == 0
    assert f.gauge("batch_size") == 0
    assert f.gauge("max_batch_size") == f.gauge("available_batch_size") == places


def check_http(f, work):
    def requests(path, status):
        return f.value("http_requests|_total", method="POST", path=path, status_code=str(status))

    assert requests("/v1/completions", 200) == 4
    assert requests("/v1/completions", 400) == 2
    assert requests("/v1/chat/completions", 200) == requests("/v1/chat/completions", 400) == 1
    assert requests("/v1/abort_requests", 200) == 1
    family = f.families["http_request_duration_seconds"]
    assert {s.labels["method"] for s in family.samples} == {"GET", "POST"}
    timed = f.value("http_request_duration_seconds|_count", method="POST", path="/v1/completions")
    assert timed == 4 + len(work.refused) - 1
    assert bounds_of(family, path="/v1/completions") == HTTP


def bounds_of(family, **labels):
    mine = [s for s in family.samples if s.name.endswith("_bucket") and labels.items() <= s.labels.items()]
    return tuple(float(s.labels["le"]) for s in mine)[:-1]


def test_waiting_and_running(start):
    """Gauges of the moment: eight requests where two have places."""
    server = start("--max-model-len", 2048, "--max-num-seqs", 2, env={"TERN_TEST_PLAN_DELAY_MS": "20"}).wait_ready()
    body = dict(prompt=[5, 6, 7], max_tokens=40, ignore_eos=True, stream=True, n=4)
    streams = []
    for _ in range(2):
        request = urllib.request.Request(
            server.url + "/v1/completions", json.dumps(body).encode(), {"content-type": "application/json"}
        )
        streams.append(urllib.request.urlopen(request, timeout=60))
    tern_server.wait_for(lambda: server.metric("fastdeploy:num_requests_running") == 2)
    f = Figures(server)
    assert f.gauge("num_requests_running") == f.gauge("batch_size") == f.gauge("max_batch_size") == 2
    assert f.gauge("available_batch_size") == 0
    assert f.gauge("num_requests_waiting") + f.gauge("num_requests_enqueued") > 0
    for stream in streams:
        assert b"[DONE]" in stream.read()
    f = Figures(server)
    assert f.counter("request_success") == 8 and f.gauge("num_requests_waiting") == f.gauge("num_requests_enqueued") == 0
