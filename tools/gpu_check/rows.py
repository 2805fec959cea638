#!/usr/bin/env python3
"""Result rows of benchmarks: one JSON object a line. tools/performance.py makes the pages of docs/performance of them.

  rows.py env                        prints the variables that the writers read, as a shell takes them
  rows.py tern COMMAND... < JSON     a row of what `tern bench decode --json` or `tern bench prefill --json` printed
  rows.py google FILE PROGRAM        rows of a --benchmark_out file, one per benchmark
  rows.py median FILE                of rows in FILE with the same name, the one in the middle of what they measured
  rows.py masks COMMAND... < TEXT    rows of what rust/textkit/tests/masks.rs printed

Rows go to the file that TERN_RESULTS names; without it none is written. bench/results.h is the writer of programs in C++.
"""

import datetime
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys

NUMBER = (int, float)
NEEDED = {"machine": str, "commit": str, "date": str, "what": str, "command": str, "measured": NUMBER, "unit": str}
# reference: what stands beside it in the same run, a ceiling or a peer. ratio: of the ceiling, or times as fast as the peer.
MORE = {"reference": str, "reference_value": NUMBER, "reference_unit": str, "ratio": NUMBER, "note": str}


def faults(row):
    """What is wrong with a row, in words; nothing: it is well formed."""
    if not isinstance(row, dict):
        return ["not an object"]
    found = [f"{key} is missing" for key in NEEDED if key not in row]
    for key, value in row.items():
        kind = NEEDED.get(key) or MORE.get(key)
        if kind is None:
            found.append(f"{key} is no field of a row")
        elif not isinstance(value, kind) or isinstance(value, bool):
            found.append(f"{key} is {json.dumps(value)}")
        elif kind is str and (not value.strip() or "\n" in value or "|" in value):
            found.append(f"{key} is no line of text for a table")
        elif kind is NUMBER and not abs(value) < 1e15:
            found.append(f"{key} is {value}")
    if not found and not re.fullmatch(r"\d{4}-\d\d-\d\d", row["date"]):
        found.append(f"date is {row['date']}, not YYYY-MM-DD")
    if not found and not re.fullmatch(r"[0-9a-f]{7,40}", row["commit"]):
        found.append(f"commit is {row['commit']}")
    return found + [
        f"{a} without {b}" for a, b in (("reference_value", "reference"), ("ratio", "reference")) if a in row and b not in row
    ]


def generation(cpuinfo):
    """Zen of an AMD processor, whose name may not tell: by family and model of /proc/cpuinfo. None: not known."""
    numbers = [re.search(rf"^{key}\s*:\s*(\d+)$", cpuinfo, re.M) for key in ("cpu family", "model")]
    if "AuthenticAMD" not in cpuinfo or None in numbers:
        return None
    family, model = (int(found.group(1)) for found in numbers)
    zen4 = 0x10 <= model < 0x20 or 0x60 <= model < 0xB0
    return {25: "Zen 4" if zen4 else "Zen 3", 26: "Zen 5"}.get(family)


def machine():
    if "TERN_RESULTS_MACHINE" in os.environ:
        return os.environ["TERN_RESULTS_MACHINE"]
    path = pathlib.Path("/proc/cpuinfo")
    cpuinfo = path.read_text() if path.exists() else ""
    found = re.search(r"^model name\s*:\s*(.+)$", cpuinfo, re.M)
    name = found.group(1).strip() if found else "CPU"
    zen = generation(cpuinfo)
    return f"{name}{f' ({zen})' if zen else ''}, {os.cpu_count()} virtual cores"


def gpu():
    """The first GPU's name; that of the CPU without one."""
    if shutil.which("nvidia-smi") is None or "TERN_RESULTS_MACHINE" in os.environ:
        return machine()
    done = subprocess.run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], capture_output=True, text=True)
    return (done.stdout.strip().splitlines() or [machine()])[0]


def commit():
    if "TERN_RESULTS_COMMIT" in os.environ:
        return os.environ["TERN_RESULTS_COMMIT"]
    here = pathlib.Path(__file__).resolve().parent
    done = subprocess.run(["git", "-C", str(here), "rev-parse", "--short=7", "HEAD"], capture_output=True, text=True)
    return done.stdout.strip() or "0000000"


def today():
    return os.environ.get("TERN_RESULTS_DATE", datetime.date.today().isoformat())


def add(what, command, measured, unit, path=None, **more):
    """Appends a row to `path`, or to the file of TERN_RESULTS. Fields of `more` that are None are left out."""
    path = os.environ.get("TERN_RESULTS") or path
    if not path:
        return None
    row = dict(machine=machine(), commit=commit(), date=today(), what=what, command=command, measured=measured, unit=unit)
    row.update({key: value for key, value in more.items() if value is not None})
    if wrong := faults(row):
        raise ValueError(f"{what}: {'; '.join(wrong)}")
    with open(path, "a") as out:
        out.write(json.dumps(row) + "\n")
    return row


def add_tern(f, command):
    """Of an object that `tern bench` printed."""
    name = pathlib.Path(re.search(r"--model (\S+)", command).group(1)).name
    if "ms_per_step" in f:
        what = f"{name}, decode, batch {f['batch']}, context {f['context']}"
        ceiling = ("reading memory", f["read_ceiling_gb_per_second"], "GB/s", f["ratio_with_cache"])
        note = f"{f['weight_gb_per_second']:.1f} GB/s of weights"
    else:
        what = f"{name}, a prompt of {f['tokens']} tokens"
        ceiling = ("products", f["dot_ceiling_gflops"], "GFLOP/s", f.get("ratio"))
        note = f"{f['gflops']:.0f} GFLOP/s of the linear layers alone"
    reference, value, unit, ratio = ceiling
    rounded = None if ratio is None else round(ratio, 3)
    return add(
        what, command, round(f["tokens_per_second"], 1), "tokens/s",
        reference=reference, reference_value=round(value, 1), reference_unit=unit, ratio=rounded, note=note,
    )  # fmt: skip


# Benchmarks of Google Benchmark under the names of docs/performance: what, and a counter in place of the time.
NAMES = {
    "BM_EngineStep/256/0/iterations:10": ("planning and batch building per step, 256 running", "plan_and_build_us"),
    **{f"BM_TopP/{s}": (f"top-p 0.8 of 151,936 logits of sigma {s}", None) for s in (1, 2, 4)},
    "BM_TopP/0": ("top-p 0.8 of 151,936 logits, all equal", None),
    "BM_Greedy": ("greedy choice of 151,936 logits", None),
    "BM_Logprobs/20": ("log-probs of 20 alternatives", None),
}


def add_google(report, program):
    """Rows of all benchmarks; those that NAMES leaves out keep their own name."""
    made = []
    for b in report["benchmarks"]:
        if b.get("run_type") == "aggregate" or "error_message" in b:
            continue
        what, counter = NAMES.get(b["name"], (b["name"], None))
        if counter:
            measured, unit = b[counter], counter.rpartition("_")[2]
        elif b["name"].endswith("/real_time"):
            measured, unit = b["real_time"], b["time_unit"]
        else:
            measured, unit = b["cpu_time"], f"{b['time_unit']} of one core"
        made.append(add(what, program, float(f"{measured:.4g}"), unit))
    return made


def add_masks(text, command):
    """Masks and compile times beside those of llguidance as it is, per vocabulary; the ratio says how many times as fast."""
    line = re.compile(r"  (plain|ours ): \d+ masks, mean ([\d.]+) us.* p99 ([\d.]+), most .*; compile p50 ([\d.]+) us")
    made, folder, plain = [], None, None
    for printed in text.splitlines():
        if named := re.match(r"(\S+): vocabulary in", printed):
            folder = named.group(1)
        if not (found := line.match(printed)):
            continue
        figures = [float(figure) for figure in found.groups()[1:]]
        if found.group(1) == "plain":
            plain = figures
            continue
        for what, ours, theirs in zip(("a mask, mean", "a mask, p99", "compiling a schema, p50"), figures, plain, strict=True):
            made.append(add(
                f"guided decoding, vocabulary of {folder}, MaskBench sample: {what}", command, ours, "us of one core",
                reference="llguidance as it is", reference_value=theirs, reference_unit="us", ratio=round(theirs / ours, 3),
            ))  # fmt: skip
    return made


def add_medians(found):
    """Of rows that turns of one benchmark left: the one of the median (of an even count the lower of the two), per name."""
    for what in dict.fromkeys(row["what"] for row in found):
        turns = [row for row in found if row["what"] == what]
        middle = statistics.median_low(row["measured"] for row in turns)
        row = next(row for row in turns if row["measured"] == middle)
        note = f"median of {len(turns)}, {min(r['measured'] for r in turns):.3g} to {max(r['measured'] for r in turns):.3g}"
        named = {key: row[key] for key in row if key not in NEEDED}
        add(what, row["command"], middle, row["unit"], **{**named, "note": note})


def main(args):
    if args[:1] == ["env"]:
        print(f"export TERN_RESULTS_MACHINE='{machine()}' TERN_RESULTS_COMMIT={commit()} TERN_RESULTS_DATE={today()}")
    elif args[:1] == ["tern"] and len(args) > 1:
        print(json.dumps(add_tern(json.load(sys.stdin), " ".join(args[1:]))))
    elif args[:1] == ["google"] and len(args) == 3:
        add_google(json.loads(pathlib.Path(args[1]).read_text()), args[2])
    elif args[:1] == ["median"] and len(args) == 2:
        add_medians([json.loads(line) for line in pathlib.Path(args[1]).read_text().splitlines()])
    elif args[:1] == ["masks"] and len(args) > 1:
        if not add_masks(sys.stdin.read(), " ".join(args[1:])):
            print("rows.py: no line of masks.rs", file=sys.stderr)
            return 1
    else:
        print(__doc__, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
