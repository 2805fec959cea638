"""tools/gpu_check.sh without a GPU: its stages run on the CPU, and each can fail."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import types

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TERN = pathlib.Path(os.environ.get("TERN", str(ROOT / "build" / "release" / "tern")))
sys.path.insert(0, str(ROOT / "tools" / "gpu_check"))

import bench_attention  # noqa: E402
import bench_peers  # noqa: E402
import results  # noqa: E402
import rows  # noqa: E402
import spread  # noqa: E402
import stage_bench  # noqa: E402
import stage_determinism  # noqa: E402
import stage_memory  # noqa: E402
import stage_ops  # noqa: E402
import stage_profile  # noqa: E402
import stage_verify  # noqa: E402


class FakeRun:
    def __init__(self):
        self.stage = results.Stage("x")

    def check(self, ok, name, detail=""):
        return self.stage.check(ok, name, detail)

    def say(self, text):
        print(text)

    def row(self, what, measured, unit, **more):
        self.stage.row(what, measured, unit, **more)


def check(tmp_path, *args, data=ROOT):
    env = dict(
        os.environ,
        TERN_CHECK_BIN=str(TERN.parent),
        TERN_CHECK_OUT=str(tmp_path),
        TERN_CHECK_DEVICE="cpu",
        TERN_CHECK_DATA=str(data),
        TERN_CHECK_COMMIT="abcdef0",
    )
    return subprocess.run([str(ROOT / "tools" / "gpu_check.sh"), *args], env=env, capture_output=True, text=True, timeout=120)


def test_a_case_passes_through_model_code_and_http(tmp_path):
    done = check(tmp_path, "verify", "--only", "qwen3")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].endswith(" passed, 0 failed")
    table = json.loads(next(tmp_path.glob("*.json")).read_text())
    assert table["stages"]["verify"]["passed"] > 30


def test_two_engines_beside_one_on_a_cpu(tmp_path):
    done = check(tmp_path, "bench-dp")
    assert done.returncode == 0, done.stdout
    assert "ernie-4.5-0.3b over HTTP: DP2 / one" in done.stdout
    (row,) = map(json.loads, (tmp_path / "rows.jsonl").read_text().splitlines())
    assert row["reference"] == "one engine" and row["ratio"] == pytest.approx(row["measured"] / row["reference_value"], rel=0.02)


def test_a_wrong_reference_fails(tmp_path):
    case = tmp_path / "data" / "tests" / "data" / "golden" / "qwen3"
    shutil.copytree(ROOT / "tests" / "data" / "golden" / "qwen3", case)
    golden = json.loads((case / "golden.json").read_text())
    golden["prompts"]["long"]["greedy"][0] ^= 1
    (case / "golden.json").write_text(json.dumps(golden))
    done = check(tmp_path / "out", "verify", "--only", "qwen3", data=tmp_path / "data")
    assert done.returncode == 1
    assert "HTTP qwen3 float32 long alone" in done.stdout


def test_a_case_without_room_fails_only_where_it_is_alone(tmp_path):
    tern, case = tmp_path / "tern", tmp_path / "case"
    tern.write_text("#!/bin/sh\necho cannot allocate 8 bytes on the GPU: out of memory NO\necho 0 passed, 1 failed\nexit 1\n")
    tern.chmod(0o755)
    run = FakeRun()
    run.places = types.SimpleNamespace(tern=str(tern), on_gpu=False, out=tmp_path)
    crowded = []
    stage_verify.verify_cases(run, [case], 10, crowded=crowded)
    assert [dtype for _, _, dtype in crowded] == ["float32", "bfloat16"] and not run.stage.checks
    stage_verify.verify_cases(run, [case], 10, crowded[:1])
    assert run.stage.record()["failed"] == 3 and "out of memory" in run.stage.record()["failures"][0]["detail"]


def test_stages_that_cannot_run_fail(tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "tern").symlink_to(TERN)
    env = dict(os.environ, TERN_CHECK_BIN=str(tmp_path / "bin"), TERN_CHECK_OUT=str(tmp_path / "out"), TERN_CHECK_DEVICE="cpu")
    done = subprocess.run([str(ROOT / "tools" / "gpu_check.sh"), "ops", "sanitize"], env=env, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1] == "0 passed, 2 failed"
    assert check(tmp_path, "nonsense").returncode == 2


def test_table_counts_what_never_ran(tmp_path, capsys):
    stage = results.Stage("ops")
    stage.check(True, "one")
    table = results.Table(tmp_path, "c0ffee", "none")
    table.put("ops", stage.record())
    table.put("empty", results.Stage("empty").record())
    again = results.Table(tmp_path, "c0ffee", "none")
    assert again.show(["ops"]) == (1, 0)
    assert again.show(["ops", "empty", "faults"]) == (1, 2)
    assert "not run" in capsys.readouterr().out


# Says when it ran and where, and leaves the record of its stage; `faults` leaves none.
STAGE = """
import json, os, pathlib, sys, time
name, log, out = sys.argv[1], sys.argv[2], pathlib.Path(os.environ["TERN_CHECK_OUT"])
begin = time.time()
time.sleep(0.15)
if name == "ops":
    (out / "kernels.txt").write_text("one")
if name != "faults":
    record = dict(passed=1, failed=0, seconds=0.1, failures=[], figures={})
    (out / "c0ffee.json").write_text(json.dumps(dict(stages={name: record})))
with open(log, "a") as f:
    f.write(json.dumps([name, os.environ["CUDA_VISIBLE_DEVICES"], begin, time.time(),
                        os.environ.get("TERN_CHECK_KERNELS", "")]) + chr(10))
"""


def test_stages_on_several_gpus(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7,9")
    with pytest.raises(ValueError):
        spread.devices(4)
    names = ["ops", "verify", "faults", "serve", *spread.ALONE]
    table, log = results.Table(tmp_path, "c0ffee", "none"), tmp_path / "log"
    spread.Spread(names, spread.devices(2), tmp_path, table, lambda n: [sys.executable, "-c", STAGE, n, str(log)]).go()
    ran = {line[0]: line[1:] for line in map(json.loads, log.read_text().splitlines())}
    assert sorted(ran) == sorted(names) and {gpu for gpu, *_ in ran.values()} == {"4", "7"}
    assert {n for n, r in ran.items() if r[3]} == {"sanitize"}
    assert (tmp_path / "stages" / "ops" / "kernels.txt") == pathlib.Path(ran["sanitize"][3])
    for one in spread.ALONE:
        gpu, begin, end, _ = ran[one]
        others = [n for n, (g, b, e, _) in ran.items() if n != one and g == gpu and b < end and e > begin]
        assert not others, (one, others)
    assert table.show(names) == (len(names) - 1, 1)
    assert "faults" in [n for n, r in table.data["stages"].items() if r["failed"]]


@pytest.mark.parametrize(
    "text,count",
    [
        ("========= COMPUTE-SANITIZER\n12 passed, 0 failed\n========= ERROR SUMMARY: 0 errors\n", 0),
        ("========= Invalid __global__ read of size 4 bytes\n========= ERROR SUMMARY: 3 errors\n", 3),
        ("========= RACECHECK SUMMARY: 2 hazards displayed (1 error, 1 warning)\n", 2),
        ("========= LEAK SUMMARY: 10 bytes leaked in 1 allocations\n========= ERROR SUMMARY: 1 error\n", 1),
        ("12 passed, 0 failed\n", None),
    ],
)
def test_reports_of_sanitizers(text, count):
    assert stage_ops.faults_of(text)[0] == count


@pytest.mark.parametrize("right", [True, False])
def test_ops_beside_the_sanitizers_are_one_check(right, monkeypatch, tmp_path):
    def ops_of(run, variant):
        run.check(True, "op")
        run.check(right, "op", variant)
        return {"a kernel"}

    class Place:
        out = tmp_path

    run = FakeRun()
    run.places = Place
    monkeypatch.setattr(stage_ops, "ops_of", ops_of)
    stage_ops.list_kernels_apart(run)
    assert [c["ok"] for c in run.stage.checks] == [right]
    assert (tmp_path / "kernels.txt").read_text() == "a kernel\n"


def test_every_group_of_kernels_is_sanitized():
    main = (ROOT / "src/cuda/tests/main.cc").read_text()
    table = main[main.index("constexpr Group kGroups[]") : main.index("struct Variant")]
    groups = set(re.findall(r'\{"(\w+)", test_', table))
    assert groups - {"ranges", "ranks"} == set(stage_ops.GROUPS) and len(groups) > 20
    variants = set(re.findall(r'^    \{"([\w-]+)", ', main[main.index("kVariants[]") : main.index("kEmulated[]")], re.M))
    variants |= set(re.findall(r'kVariants\[\] = \{\s*\{"([\w-]+)"', main))
    assert set(stage_ops.OPS_VARIANTS) == variants and set(stage_ops.VARIANTS) <= variants
    assert set(stage_ops.DETERMINISTIC) <= groups and set(stage_ops.PARTS) <= groups
    checked = {g for g in stage_ops.GROUPS for v in stage_ops.VARIANTS if stage_ops.checked_in("memcheck", g, v)}
    assert checked == set(stage_ops.GROUPS)
    assert [g for g in stage_ops.GROUPS if stage_ops.checked_in("memcheck", g, "plain")] == stage_ops.WITH_CUBLASLT


def test_greedy_ids_may_part_only_where_the_reference_wavers():
    prompt = dict(greedy=[1, 2, 3], margins=[1.0, 0.0001, 1.0])
    for got, clear, fails in (([1, 2, 3], 3, 0), ([1, 9, 9], 1, 0), ([9, 2, 3], 0, 1), ([1, 2], 2, 1), ([1, 2, 9], 2, 1)):
        run = FakeRun()
        assert stage_verify.compare_greedy(run, "case", prompt, got, stage_verify.NARROW["float32"])[1] == clear
        assert run.stage.record()["failed"] == fails, got


def test_other_bits_are_seen():
    answers = iter(["[[1, 2], [0.5, 0.25]]", "[[1, 2], [0.5, 0.25]]", "[[1, 2], [0.5, 0.2500001]]"])
    run = FakeRun()
    case = stage_determinism.Case(run, "case", None, [], [stage_determinism.Probe("p", lambda server: next(answers))], 10)
    case.compare("first", None)
    case.compare("the same", None)
    assert run.stage.record()["failed"] == 0
    case.compare("another", None)
    assert run.stage.record()["failures"][0]["detail"] == "token 1: (2, 0.2500001) for (2, 0.25)"


def test_answers_without_log_probabilities_are_no_proof():
    with pytest.raises(ValueError):
        stage_determinism.bits({}, {"completion_token_ids": [1]})


def test_pressure_sees_failures_and_lost_memory():
    class Fake:
        child, process = True, type("P", (), {"poll": staticmethod(lambda: None)})
        left = 10 << 30

        def free(self):
            self.left -= 70 << 20
            return self.left, 80 << 30

        def metric(self, name):
            return None

        def text(self):
            return ""

    def fails(server, chosen):
        raise OSError("refused")

    run = FakeRun()
    run.figure = run.stage.figure
    stage_memory.Pressure(run, Fake(), Fake(), [("bad", fails)]).go(0.3, 2)
    names = {c["name"] for c in run.stage.record()["failures"]}
    assert names == {"no request fails", "bad served", "the driver's free memory stays within 64 MB", "no allocation after ready"}


def test_a_profile_is_read():
    name = "void tern::cuda::(anonymous namespace)::wgmma_kernel<tern::cuda::WgmmaTile<(int)8, (int)3>>(CUtensorMap, int)"
    rows = [
        ("0", name, stage_profile.METRICS["us"], "nsecond", "2,000"),
        ("0", name, stage_profile.METRICS["memory %"], "%", "80"),
        ("1", name, stage_profile.METRICS["us"], "usecond", "4"),
        ("1", name, "not asked for", "%", "7"),
        ("2", "smem_resident_kernel<128>", stage_profile.METRICS["us"], "usecond", "9"),
        ("2", "smem_resident_kernel<128>", stage_profile.METRICS["L2 hits %"], "%", "n/a"),
    ]
    head = '"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"'
    text = "\n".join(["==PROF== Connected", head, *(",".join(f'"{cell}"' for cell in row) for row in rows)])
    assert stage_profile.table(text) == [
        {"kernel": "smem_resident_kernel<128>", "times": 1, "us": 9.0},
        {"kernel": "wgmma_kernel<WgmmaTile<8, 3>>", "times": 2, "us": 3.0, "memory %": 80.0},
    ]
    assert stage_profile.table("==ERROR== no counters") == []


def test_a_profile_without_a_gpu_fails(tmp_path):
    done = check(tmp_path, "profile", "--only", "experts")
    assert done.returncode == 1 and "profile" in done.stdout


def test_a_copy_beside_the_probe_of_reading():
    run = FakeRun()
    run.figure = run.stage.figure
    for copied, failed in ((4200.0, 0), (4700.0, 1)):
        bench_peers.beside_the_probe(run, copied, 4600.0)
        assert run.stage.record()["failed"] == failed
    assert run.stage.figures["a PyTorch copy, read and written / the probe of reading"] == "4700 / 4600 GB/s (1.02)"


def test_a_token_over_http_beside_its_step():
    run = FakeRun()
    run.places, run.figure = types.SimpleNamespace(on_gpu=True), run.stage.figure
    for token, failed in ((1049, 0), (1051, 1)):
        stage_bench.beside_its_step(run, f"{token} us", "TPOT", token, 1000)
        assert run.stage.record()["failed"] == failed
    assert run.stage.figures["1051 us: TPOT p50 over HTTP / a step"] == "1051 / 1000 us (1.051)"


def beside_its_peer(own, microseconds):
    stage = results.Stage("bench")
    theirs = dict(seconds=[us / 1e6 for us in microseconds], repeated=False, versions="none")
    bench_attention.compare(stage, own, theirs)
    return stage, [c["name"] for c in stage.checks if not c["ok"]]


def test_attention_beside_its_peer():
    own = [{"shape": name, "us": 100.0, "tflops": 600.0} for name in bench_attention.SHAPES]
    stage, failures = beside_its_peer(own, [92.5, 93, 200])
    assert not failures and len(stage.figures) == 3
    row = dict(what="x", measured=1.0, machine="m", command="c", commit="abcdef0", date="2026-01-02")
    assert [r["ratio"] for r in stage.rows] == [0.925, 0.93, 2] and not rows.faults({**row, **stage.rows[0]})
    figure = stage.figures["prefill attention 32/8 heads 2k behind 14k: Tern over pages / cuDNN"]
    assert figure == "600 / 300 TFLOP/s (2.00; none)"
    assert beside_its_peer(own, [91, 93, 200])[1] == ["prefill attention 32/8 heads 4 x 4k: of cuDNN"]
    assert beside_its_peer(own[1:], [92.5, 93, 200])[1] == ["prefill attention 32/8 heads 4 x 4k"]


def test_the_peer_of_attention_runs():
    pytest.importorskip("torch")
    found, error = bench_attention.peer("cpu", [(2, 32, 32), (1, 16, 64)])
    assert found is not None, error
    assert len(found["seconds"]) == 2 and min(found["seconds"]) > 0 and not found["repeated"]


def test_a_stage_of_figures_leaves_result_rows(tmp_path):
    figures = dict(step_us_mean=397.123, ratio_with_cache=0.4, idle_us_p50=1.3, host_us_p50=7.0, graph_share=1.0)
    tern = tmp_path / "bin" / "tern"
    tern.parent.mkdir()
    tern.write_text(f"#!/bin/sh\necho '{json.dumps(dict(figures, read_ceiling_gb_per_second=4619.0))}'\n")
    tern.chmod(0o755)
    env = {k: v for k, v in os.environ.items() if not k.startswith("TERN_RESULTS")}
    env.update(TERN_CHECK_BIN=str(tern.parent), TERN_CHECK_OUT=str(tmp_path), TERN_CHECK_DEVICE="cpu", TERN_CHECK_BENCH="steps")
    env["TERN_CHECK_COMMIT"] = "0123abcd"
    done = subprocess.run([str(ROOT / "tools" / "gpu_check.sh"), "bench-steps"], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    made = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert len(made) == 13 and not [wrong for row in made for wrong in rows.faults(row)]
    assert made[0]["what"] == "ernie-4.5-0.3b, a step of 1, mean context 1024" and made[0]["measured"] == 397.12
    assert made[0]["commit"] == "0123abc" and made[0]["command"] == "tools/gpu_check.sh bench-steps"


def test_turns_of_a_benchmark_become_one_row_of_the_median(tmp_path, monkeypatch):
    out = tmp_path / "rows.jsonl"
    monkeypatch.setenv("TERN_RESULTS", str(out))
    base = dict(machine="m", commit="c", date="2026-01-01", command="x", unit="us")
    rows.add_medians([dict(base, what="a", measured=v, reference="peer", reference_value=v * 2) for v in (3.0, 1.0, 2.0)])
    (made,) = [json.loads(line) for line in out.read_text().splitlines()]
    assert (made["measured"], made["reference_value"], made["note"]) == (2.0, 4.0, "median of 3, 1 to 3")


def test_an_amd_processor_is_named_by_its_generation():
    text = "vendor_id\t: AuthenticAMD\ncpu family\t: {}\nmodel\t\t: {}\nmodel name\t: AMD EPYC\n"
    assert [rows.generation(text.format(*pair)) for pair in ((25, 1), (25, 17), (26, 2), (23, 49))] == [
        "Zen 3",
        "Zen 4",
        "Zen 5",
        None,
    ]
    assert rows.generation(text.replace("AuthenticAMD", "GenuineIntel").format(25, 17)) is None
