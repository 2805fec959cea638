"""Traces of requests: trace.log, and spans that a collector of OTLP over HTTP takes."""

import http.server
import json
import threading
import urllib.request

import pytest
from tern_server import wait_for

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
STAGES = ["request", "receive", "queue", "prefill", "decode", "finish"]
EVENTS = [
    ("PREPROCESSING_START", "PREPROCESSING"),
    ("PREPROCESSING_END", "PREPROCESSING"),
    ("REQUEST_SCHEDULE_START", "SCHEDULE"),
    ("REQUEST_QUEUE_START", "SCHEDULE"),
    ("REQUEST_QUEUE_END", "SCHEDULE"),
    ("RESOURCE_ALLOCATE_START", "SCHEDULE"),
    ("PREPARE_PREFIX_CACHE_START", "SCHEDULE"),
    ("PREPARE_PREFIX_CACHE_END", "SCHEDULE"),
    ("RESOURCE_ALLOCATE_END", "SCHEDULE"),
    ("REQUEST_SCHEDULE_END", "SCHEDULE"),
    ("INFERENCE_START", "PREFILL"),
    ("FIRST_TOKEN_GENERATED", "PREFILL"),
    ("DECODE_START", "DECODE"),
    ("INFERENCE_END", "DECODE"),
    ("POSTPROCESSING_START", "POSTPROCESSING"),
    ("POSTPROCESSING_END", "POSTPROCESSING"),
]


class Collector(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.calls.append((self.path, dict(self.headers), body))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def collector():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    server.calls = []
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def post(server, path, body, headers=None):
    request = urllib.request.Request(
        server.url + path, json.dumps(body).encode(), {"content-type": "application/json", **(headers or {})}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read())


def ask(server, headers=None, **more):
    body = {"model": "default", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 3, **more}
    return post(server, "/v1/chat/completions", body, headers)


def spans_of(calls):
    return [
        span
        for _, _, body in list(calls)
        for resource in body["resourceSpans"]
        for scope in resource["scopeSpans"]
        for span in scope["spans"]
    ]


def test_spans_and_log(start, collector):
    server = start(
        env={
            "FD_TRACE": "all",
            "TRACES_EXPORTER": "otlp",
            "EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collector.server_port}",
            "EXPORTER_OTLP_HEADERS": "x-team=a, x-other=b=c",
            "FD_SERVICE_NAME": "pages",
            "FD_OTLP_EXPORTER_SCHEDULE_DELAY_MILLIS": "20",
        }
    ).wait_ready()
    first = ask(server, {"traceparent": PARENT})
    second = ask(server, trace_context=json.dumps({"traceparent": PARENT}), request_id="second")
    wait_for(lambda: len(spans_of(collector.calls)) >= 2 * len(STAGES))
    path, headers, body = collector.calls[0]
    assert path == "/v1/traces" and headers["x-team"] == "a" and headers["x-other"] == "b=c"
    attributes = {a["key"]: a["value"]["stringValue"] for a in body["resourceSpans"][0]["resource"]["attributes"]}
    assert attributes == {"service.name": "pages", "host.name": "localhost"}
    spans = spans_of(collector.calls)
    assert [s["name"] for s in spans] == 2 * STAGES
    assert {s["traceId"] for s in spans} == {PARENT[3:35]} and spans[0]["parentSpanId"] == PARENT[36:52]
    named = {a["key"]: next(iter(a["value"].values())) for a in spans[6]["attributes"]}
    assert named["request_id"] == second["id"] == "chatcmpl-second"
    assert int(named["completion_tokens"]) == second["usage"]["completion_tokens"]
    server.stop()
    mine = [line for line in trace_lines(server) if line[1] == first["id"]]
    assert [(event, stage) for _, _, event, stage in mine] == EVENTS
    assert [line[0] for line in mine] == sorted(line[0] for line in mine)


def trace_lines(server):
    """(milliseconds, id, event, stage) of trace.log."""
    lines = (line.split("] ", 1)[1].split() for line in (server.logs / "trace.log").read_text().splitlines())
    return [(int(at), request, event, stage) for at, request, event, stage in lines]


def test_preemptions_are_told(start, collector):
    """Samples that cannot all have the blocks they come to need: some lose their blocks and get others."""
    endpoint = f"http://127.0.0.1:{collector.server_port}"
    server = start(
        "--max-model-len",
        512,
        "--num-gpu-blocks-override",
        10,
        "--no-enable-prefix-caching",
        env={
            "FD_TRACE": "all",
            "TRACES_EXPORTER": "otlp",
            "EXPORTER_OTLP_ENDPOINT": endpoint,
            "FD_RESERVE_OUTPUT_BLOCK_NUM_FOR_DECODE_WHEN_SCHEDULE_NEW_PREFILL": "0",
        },
    ).wait_ready()
    body = {"prompt": [5] * 60, "max_tokens": 300, "ignore_eos": True, "n": 3, "temperature": 0}
    answer = post(server, "/v1/completions", body)
    assert answer["usage"]["completion_tokens"] == 900
    preempted = server.metric("fastdeploy:request_preempted_total")
    assert preempted > 0 and server.metric("fastdeploy:num_requests_preempted") == 0
    assert server.stop() == 0
    lines = trace_lines(server)
    assert {line[1] for line in lines} == {answer["id"]} and [line[0] for line in lines] == sorted(line[0] for line in lines)
    told = [(event, stage) for _, _, event, stage in lines]
    assert told.count(("PREEMPTED", "DECODE")) == told.count(("RESCHEDULED_INFERENCE_START", "DECODE")) == preempted
    assert not [event for event, _ in told if "PREFIX_CACHE" in event], "there is none"
    order = [
        event for event, _ in told if event in ("PREEMPTED", "RESCHEDULED_INFERENCE_START", "INFERENCE_START", "INFERENCE_END")
    ]
    assert order[0] == "INFERENCE_START" and order[1] == "PREEMPTED" and order[-1] == "INFERENCE_END"
    spans = spans_of(collector.calls)
    lost = [s for s in spans if s["name"] == "preempted"]
    root, decode = (next(s for s in spans if s["name"] == name) for name in ("request", "decode"))
    assert len(lost) == preempted and {s["parentSpanId"] for s in lost} == {root["spanId"]}
    for span in lost:
        assert int(root["startTimeUnixNano"]) <= int(span["startTimeUnixNano"]) < int(span["endTimeUnixNano"])
        assert int(span["endTimeUnixNano"]) <= int(decode["endTimeUnixNano"])


def test_what_waits_is_sent_at_the_end(start, collector):
    endpoint = f"http://127.0.0.1:{collector.server_port}/v1/traces"
    env = {"TRACES_ENABLE": "1", "TRACES_EXPORTER": "otlp", "EXPORTER_OTLP_ENDPOINT": endpoint}
    server = start(env={**env, "FD_OTLP_EXPORTER_SCHEDULE_DELAY_MILLIS": "600000"}).wait_ready()
    ask(server)
    assert not collector.calls
    assert server.stop() == 0
    assert collector.calls[0][0] == "/v1/traces" and [s["name"] for s in spans_of(collector.calls)] == STAGES
    assert not (server.logs / "trace.log").exists()


def test_a_collector_that_is_not_there_is_named_once(start):
    env = {"FD_TRACE": "otel", "TRACES_EXPORTER": "otlp", "EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}
    server = start(env={**env, "FD_OTLP_EXPORTER_SCHEDULE_DELAY_MILLIS": "5"}).wait_ready()
    log = server.logs / "fastdeploy.log"
    for _ in range(3):
        ask(server)
        wait_for(lambda: "spans do not reach http://127.0.0.1:9" in log.read_text())
    assert server.stop() == 0
    assert log.read_text().count("spans do not reach") == 1


def test_labels_of_figures(start):
    server = start("--served-model-name", "pages", env={"FD_ENABLE_METRIC_LABELS": "1"}).wait_ready()
    assert 'fastdeploy:num_requests_running{model_id="pages"} 0.0' in server.get("/metrics")


@pytest.mark.parametrize(
    "env",
    (
        {"FD_TRACE": "otel", "TRACES_EXPORTER": "otlp"},
        {"TRACES_EXPORTER": "otlp", "EXPORTER_OTLP_ENDPOINT": "grpc://x:4317"},
        {"EXPORTER_OTLP_HEADERS": "no pair"},
    ),
)
def test_mistakes_end_the_start(start, env):
    server = start(env=env)
    assert server.process.wait(30) != 0
    assert "EXPORTER_OTLP" in server.text()
