"""The Grafana dashboard and the alert rules name only metrics and labels that a running server shows."""

import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import make_dashboard

# Labels and metrics that Prometheus makes itself.
OF_PROMETHEUS = {"up", "job", "instance"}
WORDS = {"sum", "avg", "max", "by", "rate", "histogram_quantile", "and", "__rate_interval"}


def shown(text):
    """Names of samples and of labels in Prometheus' text form."""
    names, labels = set(), set()
    for line in text.splitlines():
        if line.startswith("#") or not line:
            continue
        name, _, rest = line.partition("{")
        names.add(name.split(" ")[0])
        labels |= set(re.findall(r'(\w+)="', rest))
    return names, labels


def named(expression):
    """Names of metrics and of labels in an expression: what is no function, word, number or string."""
    bare = re.sub(r'"[^"]*"|\[[^]]*\]', "", expression)
    labels = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", re.sub(r"[<>=]=", " ", bare)))
    for group in re.findall(r"\bby\s*\(([^)]*)\)", bare):
        labels |= {x.strip() for x in group.split(",")}
    bare = re.sub(r"\{[^}]*\}|\bby\s*\([^)]*\)", "", bare)
    return set(re.findall(r"[A-Za-z_][\w:]*", bare)) - WORDS, labels


def expressions():
    for _, row in make_dashboard.panels():
        for title, _, targets in row:
            for expression, _ in targets:
                yield title, expression
    for name, expression, *_ in make_dashboard.alerts():
        yield name, expression


def test_the_reader_of_expressions():
    assert named('sum by (le) (rate(a:b_bucket{job=~"$job"}[5m])) >= 1') == ({"a:b_bucket"}, {"le", "job"})
    assert named("x > 0 and y == 0") == ({"x", "y"}, set())


def test_files_are_what_the_script_writes():
    subprocess.run([sys.executable, ROOT / "tools" / "make_dashboard.py", "--check"], check=True)
    assert json.loads((ROOT / "docs" / "grafana" / "tern.json").read_text())["panels"]


def test_every_name_is_shown_by_a_server(server):
    server.client().completions.create(model="default", prompt="1+1=", max_tokens=4)
    names, labels = shown(server.get("/metrics"))
    # Figures of media stand where a model sees; metrics_test.cc holds their names.
    names |= {f"tern:{x}" for x in ("images_total", "videos_total", "media_failed_total", "media_waiting")}
    for where, expression in expressions():
        metrics, used = named(expression)
        assert metrics, f"{where}: no metric in {expression}"
        assert metrics - names - OF_PROMETHEUS == set(), where
        assert used - labels - OF_PROMETHEUS == set(), where
