"""Counters of kernels (Nsight Compute) for the rows of `tern bench kernels` that miss their target: where their time goes."""

import csv
import io
import re

from stage_ops import cuda_tool, execute

# What it is a profile of: (group, shape) as `tern bench kernels --list` names them.
ROWS = [
    ("products", "reference 14336x4096 rows 1"),
    ("products", "reference 14336x4096 rows 16"),
    ("layers", "ernie-0.3b without attention, rows 1"),
    ("layers", "ernie-0.3b without attention, rows 32"),
    ("layers", "ernie-0.3b without attention, rows 100"),
    ("layers", "qwen3-8b without attention, rows 8"),
    ("layers", "qwen3-8b without attention, rows 32"),
    ("layers", "qwen3-8b without attention, rows 100"),
    ("decode attention", "ernie-0.3b 16/2 heads 32 x 1k"),
    ("decode attention", "ernie-0.3b 16/2 heads 256 x 1k"),
    ("experts", "layer 2048/768, 128 top-8, 1 tokens"),
    ("experts", "layer 2048/768, 128 top-8, 8 tokens"),
    ("experts", "layer 2048/768, 128 top-8, 100 tokens"),
    ("experts", "layer 2048/768, 128 top-8, 1024 tokens"),
]
# Of ours, as functions are called: neither those that find the ceilings nor the vendor's.
KERNELS = (
    "regex:(wgmma|streamk|splitk|resident|single_wave|large_tile|chain|decode|grouped|few|wide|gate|norm|silu_mul|qkv|router|"
    "mixed|route|dispatch|sort|combine)"
)
SKIP, COUNT = 4, 24  # launches: ops that take long are not launched more often
METRICS = {
    "us": "gpu__time_duration.sum",
    "memory %": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "L2 hits %": "lts__t_sector_hit_rate.pct",
    "tensor %": "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    "warps": "sm__warps_active.avg.per_cycle_active",
    "registers": "launch__registers_per_thread",
    "shared KiB": "launch__shared_mem_per_block",
    "waits for memory": "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio",
    "for barriers": "smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio",
    "for shared memory": "smsp__average_warps_issue_stalled_short_scoreboard_per_issue_active.ratio",
}
SCALES = {
    "nsecond": 1e-3,
    "ns": 1e-3,
    "usecond": 1.0,
    "us": 1.0,
    "msecond": 1e3,
    "ms": 1e3,
    "byte/block": 1 / 1024,
    "Kbyte/block": 1000 / 1024,
    "byte": 1 / 1024,
    "Kbyte": 1000 / 1024,
}


def short(name):
    """The name of a kernel with the numbers of its template, which say the tile."""
    for noise in ("(anonymous namespace)::", "<unnamed>::", "(int)", "(bool)", "void "):
        name = name.replace(noise, "")
    return re.sub(r"\w+::", "", name).split("(")[0][:70]


def table(text):
    """[{"kernel", "times", label: mean}] of ncu's CSV, one row per kernel, the one that takes longest first. Lines before
    the head are what the program said."""
    lines = text.splitlines()
    head = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if head is None:
        return []
    labels = {metric: label for label, metric in METRICS.items()}
    sums = {}
    for row in csv.DictReader(io.StringIO("\n".join(lines[head:]))):
        label = labels.get(row.get("Metric Name"))
        try:
            value = float(row["Metric Value"].replace(",", "")) * SCALES.get(row["Metric Unit"], 1.0)
        except (KeyError, ValueError, AttributeError):
            continue
        if label is not None:
            total, count = sums.setdefault(short(row["Kernel Name"]), {}).get(label, (0.0, 0))
            sums[short(row["Kernel Name"])][label] = (total + value, count + 1)
    rows = [
        dict(kernel=name, times=max(n for _, n in found.values()), **{k: s / n for k, (s, n) in found.items()})
        for name, found in sums.items()
    ]
    return sorted(rows, key=lambda r: -r.get("us", 0) * r["times"])


def profile(run):
    tool = cuda_tool("ncu")
    for group, shape in ROWS:
        if run.args.only not in ("", group):
            continue
        log = run.places.out / ("profile-" + re.sub(r"\W+", "-", f"{group} {shape}") + ".csv")
        lab = [
            run.places.tern,
            "bench",
            "kernels",
            "--device",
            run.places.device,
            "--only",
            group,
            "--shape",
            shape,
            "--milliseconds",
            "0.05",
            "--ceiling-gib",
            "0.25",
            "--no-peers",
        ]
        status, said = execute(
            [
                tool,
                "--clock-control",
                "none",
                "--kernel-name-base",
                "demangled",
                "--kernel-name",
                KERNELS,
                "--launch-skip",
                str(SKIP),
                "--launch-count",
                str(COUNT),
                "--csv",
                "--log-file",
                str(log),
                "--metrics",
                ",".join(METRICS.values()),
                *lab,
            ],
            log.with_suffix(".txt"),
            120,
        )
        rows = table(log.read_text(errors="replace")) if log.exists() else []
        run.check(status == 0 and rows, f"{group}: {shape}", f"status {status}, {len(rows)} kernels: {said[-300:]}")
        for r in rows[:8]:
            run.figure(f"{shape}: {r['kernel']}", ", ".join(f"{label} {r[label]:.3g}" for label in METRICS if label in r))
