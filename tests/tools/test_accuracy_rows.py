"""tools/accuracy_rows.py: what quantized weights may cost beside bfloat16."""

import json
import os
import pathlib
import subprocess
import sys

TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools" / "accuracy_rows.py"


def scores(rates, exact):
    pictures = {name: {"error_rate": rate, "bar": bar} for name, (rate, bar) in rates.items()}
    return json.dumps({"pictures": pictures, "text": {"exact_match": exact}})


def run(folder, results):
    env = os.environ | {"TERN_RESULTS": str(results), "TERN_RESULTS_MACHINE": "m", "TERN_RESULTS_COMMIT": "abcdef0"}
    done = subprocess.run([sys.executable, TOOL, folder], capture_output=True, text=True, env=env)
    return done.returncode, done.stdout


def test_a_format_may_be_so_many_points_worse(tmp_path):
    results = tmp_path / "rows.jsonl"
    (tmp_path / "bf16.json").write_text(scores({"a": (0.004, 0.02), "b": (0.006, 0.02), "c": (0.9, None)}, 0.99))
    (tmp_path / "wint8.json").write_text(scores({"a": (0.005, 0.02), "b": (0.007, 0.02), "c": (0.1, None)}, 0.987))
    status, said = run(tmp_path, results)
    assert status == 0 and "met" in said and "MISSED" not in said, said
    (row,) = map(json.loads, results.read_text().splitlines())
    assert row["measured"] == 0.6 and row["reference_value"] == 0.5 and "98.7 % exact" in row["note"]
    # A tenth of a point more in characters, and a point of text tasks.
    (tmp_path / "wint8.json").write_text(scores({"a": (0.006, 0.02), "b": (0.0081, 0.02)}, 0.99))
    assert run(tmp_path, results)[0] == 1
    (tmp_path / "wint8.json").write_text(scores({"a": (0.004, 0.02), "b": (0.006, 0.02)}, 0.98))
    status, said = run(tmp_path, results)
    assert status == 1 and "MISSED" in said
    (tmp_path / "wint8.json").unlink()
    (tmp_path / "wint4-128.json").write_text(scores({"a": (0.009, 0.02), "b": (0.012, 0.02)}, 0.98))
    assert run(tmp_path, results)[0] == 0
