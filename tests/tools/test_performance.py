"""tools/performance.py: the pages of docs/performance are what the result files make, and malformed rows are errors."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "gpu_check"))
import rows  # noqa: E402

ROW = dict(
    machine="A", commit="0123abc", date="2026-01-02", what="one", command="tern bench", measured=1234.5, unit="us",
    reference="reading memory", reference_value=800, reference_unit="GB/s", ratio=0.5, note="host 3 us",
)  # fmt: skip


def run(tmp_path, *args):
    command = [sys.executable, ROOT / "tools" / "performance.py", "--results", tmp_path, "--page", tmp_path / "page.md", *args]
    return subprocess.run(command, capture_output=True, text=True)


def results(tmp_path, *found):
    lines = [dict(machine="A", about="A machine."), *found]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_the_pages_are_what_the_results_make():
    done = subprocess.run([sys.executable, ROOT / "tools" / "performance.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_row_becomes_a_line_of_its_machines_table(tmp_path):
    results(tmp_path, ROW, {**ROW, "what": "two", "ratio": 12.3})
    assert run(tmp_path).returncode == 0
    page = (tmp_path / "page" / "a.md").read_text()
    assert "| one | `tern bench` | 1,234 us (host 3 us) | reading memory, 800 GB/s | 0.50 |" in page
    assert "| 12 |" in page and page.startswith("# Performance: A\n\nA machine.") and "0123abc of 2026-01-02 (2)" in page
    assert "| [A](page/a.md) | A machine. | 2, 2026-01-02 |" in (tmp_path / "page.md").read_text()
    assert run(tmp_path, "--check").returncode == 0
    (tmp_path / "page" / "a.md").write_text(page.replace("0.50", "0.90"))
    done = run(tmp_path, "--check")
    assert done.returncode == 1 and "a.md is not what" in done.stderr


def test_a_page_without_a_file_is_an_error_and_is_removed(tmp_path):
    results(tmp_path, ROW)
    assert run(tmp_path).returncode == 0
    left = tmp_path / "page" / "gone.md"
    left.write_text("# Performance: gone\n")
    done = run(tmp_path, "--check")
    assert done.returncode == 1 and "gone.md is not what" in done.stderr
    assert run(tmp_path).returncode == 0 and not left.exists()


@pytest.mark.parametrize(
    "change,word",
    [
        (dict(measured="fast"), 'measured is "fast"'),
        (dict(measured=None), "measured is null"),
        (dict(measured=True), "measured is true"),
        (dict(unit=None), "unit is null"),
        (dict(date="yesterday"), "not YYYY-MM-DD"),
        (dict(commit="HEAD"), "commit is HEAD"),
        (dict(colour="red"), "colour is no field"),
        (dict(what="a | b"), "no line of text"),
        (dict(note=""), "no line of text"),
        (dict(machine="B"), "of another machine"),
        (dict(what="one"), "a second row of"),
    ],
)
def test_a_malformed_row_is_an_error(tmp_path, change, word):
    results(tmp_path, ROW, {**ROW, "what": "two", **change})
    done = run(tmp_path)
    assert done.returncode == 1 and "a.jsonl:3:" in done.stderr and word in done.stderr
    assert not (tmp_path / "page.md").exists()


@pytest.mark.parametrize("key", [*rows.NEEDED, "reference"])
def test_a_missing_field_is_an_error(tmp_path, key):
    results(tmp_path, {k: v for k, v in ROW.items() if k != key})
    done = run(tmp_path)
    assert done.returncode == 1 and key in done.stderr


def test_other_malformed_files_are_errors(tmp_path):
    assert "has no results" in run(tmp_path).stderr
    (tmp_path / "a.jsonl").write_text("{\n")
    assert "a.jsonl:1: no JSON" in run(tmp_path).stderr
    (tmp_path / "a.jsonl").write_text(json.dumps(ROW) + "\n")
    assert "a.jsonl:1: not" in run(tmp_path).stderr
    results(tmp_path, *({**ROW, "what": str(i)} for i in range(150)))
    assert "150 at most" in run(tmp_path).stderr


def test_rows_of_a_run_take_the_places_of_older_ones(tmp_path):
    results(tmp_path, ROW, {**ROW, "what": "two"})
    new = tmp_path / "run"
    more = [{**ROW, "measured": 7}, {**ROW, "what": "three"}, {**ROW, "machine": "B b", "what": "four"}]
    new.write_text("".join(json.dumps(row) + "\n" for row in more))
    assert "1 rows in the place of older ones, 0 new, 2 left out" in run(tmp_path, "--merge", new).stdout
    assert "| 7 us" in (tmp_path / "page" / "a.md").read_text()
    assert "1 rows in the place of older ones, 2 new, 0 left out" in run(tmp_path, "--merge", new, "--new").stdout
    assert (tmp_path / "b-b.jsonl").exists() and "# Performance: B b" in (tmp_path / "page" / "b-b.md").read_text()


def test_benchmarks_leave_rows(tmp_path, monkeypatch):
    path = tmp_path / "rows"
    monkeypatch.setenv("TERN_RESULTS", str(path))
    step = dict(ms_per_step=1.0, batch=1, context=128, read_ceiling_gb_per_second=46.8, ratio_with_cache=0.84)
    rows.add_tern({**step, "weight_gb_per_second": 39.2, "tokens_per_second": 32.9}, "tern bench decode --model bench/shapes/x")
    prompt = dict(tokens=1024, dot_ceiling_gflops=976.0, ratio=0.68, gflops=667.0, tokens_per_second=756.0)
    rows.add_tern(prompt, "tern bench prefill --model bench/shapes/x")
    report = [dict(name="BM_Greedy", cpu_time=4.4, time_unit="us"), dict(name="x/real_time", real_time=2.0, time_unit="ms")]
    rows.add_google(dict(benchmarks=report), "bench_engine")
    figures = "{} masks, mean {:.1f} us, p50 1.0, p90 2.0, p99 {:.1f}, most 9.0; compile p50 {:.0f} us, p99 900"
    masks = [
        "qwen3: vocabulary in 0.12 s",
        "  plain: " + figures.format(9, 40.0, 400.0, 1000),
        "  ours : " + figures.format(9, 20.0, 300.0, 800),
    ]
    rows.add_masks("\n".join(masks), "make bench SECTION=masks")
    made = [json.loads(line) for line in path.read_text().splitlines()]
    assert not [wrong for row in made for wrong in rows.faults(row)]
    assert [row["what"].rpartition(": ")[2] for row in made] == [
        "x, decode, batch 1, context 128",
        "x, a prompt of 1024 tokens",
        "greedy choice of 151,936 logits",
        "x/real_time",
        "a mask, mean",
        "a mask, p99",
        "compiling a schema, p50",
    ]
    assert [row["ratio"] for row in made[-3:]] == [2.0, 1.333, 1.25]
    with pytest.raises(ValueError, match="no line of text"):
        rows.add("a\nb", "c", 1.0, "us")
    monkeypatch.delenv("TERN_RESULTS")
    assert rows.add("a", "c", 1.0, "us") is None


def test_the_writer_of_programs_in_cpp(tmp_path):
    """bench_http appends a well-formed row, where it is built."""
    program = ROOT / "build" / "release" / "bench" / "bench_http"
    if not program.exists():
        pytest.skip("bench_http is not built (make bench)")
    env = dict(os.environ, TERN_RESULTS=str(tmp_path / "rows"), FD_LOG_DIR=str(tmp_path))
    args = [program, "--seconds", "0.2", "--streams", "4"]
    assert subprocess.run(args, env=env, capture_output=True).returncode == 2  # nothing says which machine this is
    shell = subprocess.run([sys.executable, ROOT / "tools/gpu_check/rows.py", "env"], capture_output=True, text=True).stdout
    assert subprocess.run(["bash", "-c", shell + '"$@"', "-", *args], env=env, capture_output=True).returncode == 0
    (row,) = [json.loads(line) for line in (tmp_path / "rows").read_text().splitlines()]
    assert not rows.faults(row) and "streamed token" in row["what"]
