#!/usr/bin/env python3
"""Writes docs/grafana: the Grafana dashboard tern.json and Prometheus' alert rules alerts.yaml.

  tools/make_dashboard.py           writes both files
  tools/make_dashboard.py --check   exit status 1 when a file is not what this script writes

`panels()` and `alerts()` are the tables; tests/e2e/test_dashboard.py holds every metric and label they name against what
a running server shows at /metrics.
"""

import json
import pathlib
import sys

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "docs" / "grafana"
# `instance` and `job` are the labels Prometheus adds to what it scrapes; the dashboard's variables choose among them.
CHOSEN = '{job=~"$job",instance=~"$instance"}'
WIDTH, HEIGHT = 8, 7
F = "fastdeploy:"


def rate(name):
    return f"sum(rate({name}{CHOSEN}[$__rate_interval]))"


def total(name):
    return f"sum({name}{CHOSEN})"


def quantile(share, name):
    return f"histogram_quantile({share}, sum by (le) (rate({name}_bucket{CHOSEN}[$__rate_interval])))"


def quantiles(name):
    return [(quantile(q, name), f"p{100 * q:.0f}") for q in (0.5, 0.9, 0.99)]


def ratio(part, whole):
    return f"{rate(part)} / {rate(whole)}"


# Each function: a row of the dashboard, [(title, unit, [(expression, legend)])].
def load():
    return [
        (
            "Requests",
            "short",
            [
                (total(F + "num_requests_running"), "running"),
                (total(F + "num_requests_waiting"), "waiting"),
                (total(F + "num_requests_enqueued"), "in front of the engine"),
                (total(F + "num_requests_preempted"), "preempted"),
            ],
        ),
        (
            "Requests a second",
            "reqps",
            [
                (rate(F + "requests_number_total"), "received"),
                (rate(F + "request_success_total"), "finished"),
                (rate(F + "request_preempted_total"), "preemptions"),
            ],
        ),
        (
            "Tokens a second",
            "short",
            [
                (rate(F + "generation_tokens_total"), "generated"),
                (rate(F + "prompt_tokens_total"), "prompt"),
                (rate(F + "prefix_cache_token_num_total"), "prompt, from the prefix cache"),
            ],
        ),
    ]


def latency():
    return [
        ("Time to first token", "s", quantiles(F + "time_to_first_token_seconds")),
        ("Time per output token", "s", quantiles(F + "time_per_output_token_seconds")),
        ("Whole request", "s", quantiles(F + "e2e_request_latency_seconds")),
        ("Waiting for a place", "s", quantiles(F + "request_queue_time_seconds")),
        ("Prefill", "s", quantiles(F + "request_prefill_time_seconds")),
        ("Decode", "s", quantiles(F + "request_decode_time_seconds")),
    ]


def cache():
    return [
        (
            "Blocks of the KV cache",
            "short",
            [
                (total(F + "max_gpu_block_num"), "all"),
                (total(F + "available_gpu_block_num"), "available"),
                (total(F + "free_gpu_block_num"), "empty"),
            ],
        ),
        ("KV cache in use", "percentunit", [(f"max by (instance) ({F}gpu_cache_usage_perc{CHOSEN})", "{{instance}}")]),
        (
            "Hits of the prefix cache",
            "percentunit",
            [
                (f"avg({F}hit_req_rate{CHOSEN})", "requests, since the start"),
                (f"avg({F}hit_token_rate{CHOSEN})", "tokens, since the start"),
                (ratio(F + "prefix_cache_token_num_total", F + "prompt_tokens_total"), "tokens, now"),
            ],
        ),
    ]


def requests():
    return [
        ("Prompt length", "short", quantiles(F + "request_prompt_tokens")),
        ("Answer length", "short", quantiles(F + "request_generation_tokens")),
        (
            "HTTP answers a second",
            "reqps",
            [(f"sum by (status_code) (rate(http_requests_total{CHOSEN}[$__rate_interval]))", "{{status_code}}")],
        ),
    ]


def engine():
    return [
        ("Steps a second", "short", [(rate("tern:steps_total"), "steps"), (rate("tern:graph_steps_total"), "replayed graphs")]),
        (
            "Pictures and videos a second",
            "short",
            [
                (rate("tern:images_total"), "pictures"),
                (rate("tern:videos_total"), "videos"),
                (rate("tern:media_failed_total"), "failed"),
            ],
        ),
        ("Requests whose media wait", "short", [(total("tern:media_waiting"), "waiting")]),
    ]


def panels():
    """Rows of (title of the row, its panels)."""
    return [
        ("Load", load()),
        ("Latency", latency()),
        ("Cache", cache()),
        ("Requests", requests()),
        ("Engine and pictures", engine()),
    ]


def alerts():
    """(name, expression, how long it must hold, severity, summary)."""
    http = "http_requests_total"
    failed = f'sum by (instance) (rate({http}{{status_code=~"5.."}}[5m]))'
    return [
        ("TernDown", 'up{job="tern"} == 0', "1m", "critical", "{{ $labels.instance }} does not answer"),
        (
            "TernRequestsWait",
            f"{F}num_requests_waiting > 0 and {F}num_requests_waiting > {F}max_batch_size",
            "5m",
            "warning",
            "{{ $labels.instance }}: more requests wait than a batch holds, for 5 minutes",
        ),
        (
            "TernCacheFull",
            f"{F}gpu_cache_usage_perc > 0.95 and rate({F}request_preempted_total[5m]) > 0",
            "5m",
            "warning",
            "{{ $labels.instance }}: the KV cache is full and requests are preempted",
        ),
        (
            "TernFirstTokenSlow",
            f"histogram_quantile(0.9, sum by (le, instance) (rate({F}time_to_first_token_seconds_bucket[5m]))) >= 1",
            "10m",
            "warning",
            "{{ $labels.instance }}: one request in ten waits a second or longer for its first token",
        ),
        (
            "TernServerErrors",
            f"{failed} / sum by (instance) (rate({http}[5m])) > 0.01",
            "5m",
            "critical",
            "{{ $labels.instance }}: more than one answer in a hundred is a server error",
        ),
        (
            "TernStuck",
            f"{F}num_requests_running > 0 and rate(tern:steps_total[2m]) == 0",
            "2m",
            "critical",
            "{{ $labels.instance }}: requests run but the engine takes no steps",
        ),
    ]


def variable(name, query):
    return {
        "name": name,
        "label": name,
        "type": "query",
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "query": {"query": query, "refId": name},
        "includeAll": True,
        "multi": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
        "refresh": 2,
    }


def panel(number, title, unit, targets, x, y):
    return {
        "id": number,
        "type": "timeseries",
        "title": title,
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "gridPos": {"x": x, "y": y, "w": WIDTH, "h": HEIGHT},
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": [
            {"refId": chr(ord("A") + i), "expr": expression, "legendFormat": legend}
            for i, (expression, legend) in enumerate(targets)
        ],
    }


def dashboard():
    out, y, number = [], 0, 1
    for title, row in panels():
        out.append(
            {
                "id": number,
                "type": "row",
                "title": title,
                "collapsed": False,
                "gridPos": {"x": 0, "y": y, "w": 24, "h": 1},
                "panels": [],
            }
        )
        y, number = y + 1, number + 1
        for i, (name, unit, targets) in enumerate(row):
            out.append(panel(number, name, unit, targets, WIDTH * (i % 3), y + HEIGHT * (i // 3)))
            number += 1
        y += HEIGHT * ((len(row) + 2) // 3)
    first = "fastdeploy:num_requests_running"
    source = {"name": "datasource", "label": "data source", "type": "datasource", "query": "prometheus", "refresh": 1}
    return {
        "uid": "tern",
        "title": "Tern",
        "tags": ["tern"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {
            "list": [
                source,
                variable("job", f"label_values({first}, job)"),
                variable("instance", f'label_values({first}{{job=~"$job"}}, instance)'),
            ]
        },
        "panels": out,
    }


def rules():
    """YAML; every string is quoted as JSON, which YAML takes as it is."""
    lines = ["# Made by tools/make_dashboard.py. Scrape Tern under the job name `tern`.", "groups:", "  - name: tern"]
    lines.append("    rules:")
    for name, expression, held, severity, summary in alerts():
        lines += [
            f"      - alert: {name}",
            f"        expr: {json.dumps(expression)}",
            f"        for: {held}",
            f"        labels: {{severity: {severity}}}",
            f"        annotations: {{summary: {json.dumps(summary)}}}",
        ]
    return "\n".join(lines) + "\n"


def files():
    return {"tern.json": json.dumps(dashboard(), indent=1) + "\n", "alerts.yaml": rules()}


def main():
    stale = []
    for name, text in files().items():
        path = FOLDER / name
        if "--check" not in sys.argv[1:]:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        elif not path.is_file() or path.read_text() != text:
            stale.append(name)
    if stale:
        sys.exit(f"docs/grafana: {', '.join(stale)}: not what tools/make_dashboard.py writes; run it")


if __name__ == "__main__":
    main()
