#!/usr/bin/env python3
"""What quantized weights and caches cost in accuracy: scores of tools/bench_accuracy.sh beside those of bfloat16.

  accuracy_rows.py FOLDER     with bf16.json and a file per format; writes rows where TERN_RESULTS asks for them

A picture score is the mean of the error rates of all rows that have a bar. Ends with status 1 where a format is more points
worse than bfloat16 than its bar allows.
"""

import argparse
import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools" / "gpu_check"))
import rows  # noqa: E402

# Points that the characters' error rate and the text tasks' exact matches may be worse by.
BARS = {
    "wint8": (0.1, 0.3),
    "block_wise_fp8": (0.2, 0.3),
    "wint4-64": (0.5, 1.0),
    "wint4-128": (0.6, 1.0),
    "wint4": (1.0, 1.0),
    "kv-int8": (0.1, 0.3),
    "kv-fp8": (0.1, 0.3),
}


def score(path):
    """(mean error rate of characters, exact matches of text tasks), in percent."""
    result = json.loads(path.read_text())
    rates = [row["error_rate"] for row in result["pictures"].values() if row["bar"] is not None]
    return 100 * sum(rates) / len(rates), 100 * result["text"]["exact_match"]


def worse(plain, scores):
    """(points that characters, that text tasks are worse by) than bfloat16."""
    return scores[0] - plain[0], plain[1] - scores[1]


def add_row(name, scores, plain):
    return rows.add(
        f"accuracy of the shipped model, {name}: wrong characters",
        "make bench-accuracy",
        round(scores[0], 3),
        "%",
        reference="bfloat16",
        reference_value=round(plain[0], 3),
        reference_unit="%",
        note=f"text tasks {scores[1]:.1f} % exact, bfloat16 {plain[1]:.1f} %",
    )


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("folder", type=pathlib.Path)
    a = ap.parse_args()
    if not (a.folder / "bf16.json").exists():
        return 0  # nothing to compare with
    plain, met = score(a.folder / "bf16.json"), True
    print(f"{'format':16} {'characters':>10} {'worse by':>9} {'bar':>5} {'text tasks':>11} {'worse by':>9} {'bar':>5}")
    print(f"{'bf16':16} {plain[0]:9.2f}% {'':>15} {plain[1]:10.1f}%")
    for name, bars in BARS.items():
        path = a.folder / f"{name}.json"
        if not path.exists():
            continue
        scores = score(path)
        by = worse(plain, scores)
        fine = all(points <= bar + 1e-9 for points, bar in zip(by, bars))
        met &= fine
        print(
            f"{name:16} {scores[0]:9.2f}% {by[0]:9.2f} {bars[0]:5.1f} {scores[1]:10.1f}% {by[1]:9.2f} {bars[1]:5.1f}"
            f"   {'met' if fine else 'MISSED'}"
        )
        add_row(name, scores, plain)
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
