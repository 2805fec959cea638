#!/usr/bin/env python3
"""Makes docs/performance.md and the pages below docs/performance/ of bench/results/*.jsonl: one table per machine, no figure
of which was typed.

  performance.py                    writes them: the page of a file has its name; pages without one are removed
  performance.py --check            fails where they are not what the files make
  performance.py --merge FILE...    takes rows of a run into bench/results first: those whose `what` is there take the old
                                    ones' places. --new: rows of a `what` that is not there come in, too

A file begins with {"machine", "about"}; every other line is a row (tools/gpu_check/rows.py has the fields and what writes
them). A malformed row, or a page of more than LINES lines, is an error.
"""

import argparse
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools" / "gpu_check"))
import rows  # noqa: E402

LINES = 150
HEAD = """# Performance

Written by `tools/performance.py` from `bench/results/`, whose rows the benchmarks leave: `RESULTS=FILE make bench` on a CPU,
`tools/gpu_check.sh bench` on a GPU ([gpu-checks.md](gpu-checks.md)), which leaves `rows.jsonl` among its results. After a run:
`tools/performance.py --merge FILE`. Every machine has a page with one table:

{machines}
The ratio is of a ceiling or a peer of the same run: the share of what the machine can do at most, or how many times as fast as
the peer. Ceilings are the fastest of several read-only kernels and of dot products or cuBLASLt (`tern bench --help`). Weights
are bfloat16, of published shapes (`bench/shapes`), random. Single figures differ by a few percent between cards and by
tens of percent between minutes on a small shared machine: compare within one run. How well the shipped model reads stands in
[models/README.md](../models/README.md).
"""


class Malformed(Exception):
    pass


def read(path):
    """(machine, about, rows) of a file."""
    lines = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        try:
            lines.append(json.loads(line))
        except json.JSONDecodeError as e:
            raise Malformed(f"{path.name}:{number}: no JSON: {e}") from None
    head = lines[0] if lines else None
    if not isinstance(head, dict) or set(head) != {"machine", "about"} or not all(isinstance(v, str) for v in head.values()):
        raise Malformed(f'{path.name}:1: not {{"machine", "about"}}')
    seen = set()
    for number, row in enumerate(lines[1:], 2):
        wrong = rows.faults(row)
        if not wrong and row["machine"] != head["machine"]:
            wrong = [f"of another machine, {row['machine']}"]
        if not wrong and row["what"] in seen:
            wrong = [f"a second row of {row['what']!r}"]
        if wrong:
            raise Malformed(f"{path.name}:{number}: {'; '.join(wrong)}")
        seen.add(row["what"])
    return head["machine"], head["about"], lines[1:]


def write(path, machine, about, found):
    lines = [json.dumps(dict(machine=machine, about=about)), *(json.dumps(row) for row in found)]
    path.write_text("\n".join(lines) + "\n")


def number(value):
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def line(row):
    beside = row.get("reference", "")
    if "reference_value" in row:
        beside += f", {number(row['reference_value'])} {row.get('reference_unit', row['unit'])}"
    measured = f"{number(row['measured'])} {row['unit']}" + (f" ({row['note']})" if "note" in row else "")
    ratio = f"{row['ratio']:.2f}" if row.get("ratio", 10) < 10 else f"{row['ratio']:.0f}" if "ratio" in row else ""
    return f"| {row['what']} | `{row['command']}` | {measured} | {beside} | {ratio} |"


def dated(found):
    """The commits at which the rows were recorded, newest first."""
    commits = {}
    for row in found:
        commits.setdefault((row["date"], row["commit"][:7]), []).append(row)
    return ", ".join(f"{commit} of {date} ({len(of)})" for (date, commit), of in sorted(commits.items(), reverse=True))


def machine_page(machine, about, found, index):
    """The rows in their order."""
    head = (
        f"# Performance: {machine}\n\n{about} Rows recorded at {dated(found)}. What the columns mean: [{index}](../{index}).\n\n"
    )
    return (
        head
        + "| What | Command | Measured | Beside it | Ratio |\n|---|---|---|---|---|\n"
        + "".join(line(row) + "\n" for row in found)
    )


def pages(folder, index):
    """Texts by path: the index, and a page per machine in a folder of its name."""
    files = sorted(folder.glob("*.jsonl"))
    if not files:
        raise Malformed(f"{folder} has no results")
    made, machines = {}, "| Machine | What it is | Rows, latest |\n|---|---|---|\n"
    for path in files:
        machine, about, found = read(path)
        page = index.with_suffix("") / f"{path.stem}.md"
        made[page] = machine_page(machine, about, found, index.name)
        latest = max((row["date"] for row in found), default="none")
        machines += f"| [{machine}]({page.relative_to(index.parent)}) | {about} | {len(found)}, {latest} |\n"
    made[index] = HEAD.format(machines=machines)
    for path, text in made.items():
        if (count := len(text.splitlines())) > LINES:
            raise Malformed(f"{path.name}: {count} lines of page, {LINES} at most: leave rows out")
    return made


def stale(index, made):
    """Pages of machines whose files are gone."""
    return [path for path in index.with_suffix("").glob("*.md") if path not in made]


def merge(folder, path, new):
    """(rows that took an old one's place, that came in, that were left out)"""
    counts = [0, 0, 0]
    files = {machine: (file, about, found) for file in sorted(folder.glob("*.jsonl")) for machine, about, found in [read(file)]}
    for number_, text in enumerate(path.read_text().splitlines(), 1):
        row = json.loads(text)
        if wrong := rows.faults(row):
            raise Malformed(f"{path}:{number_}: {'; '.join(wrong)}")
        if row["machine"] not in files and new:
            name = re.sub(r"[^a-z0-9]+", "-", row["machine"].lower()).strip("-")
            files[row["machine"]] = (folder / f"{name}.jsonl", "", [])
        _, _, found = files.get(row["machine"], (None, None, []))
        at = next((i for i, old in enumerate(found) if old["what"] == row["what"]), None)
        if at is not None:
            found[at] = row
        elif new:
            found.append(row)
        counts[0 if at is not None else 1 if new else 2] += 1
    for machine, (file, about, found) in files.items():
        write(file, machine, about, found)
    return counts


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--merge", nargs="+", type=pathlib.Path, default=[], metavar="FILE")
    parser.add_argument("--new", action="store_true")
    parser.add_argument("--results", type=pathlib.Path, default=ROOT / "bench" / "results")
    parser.add_argument("--page", type=pathlib.Path, default=ROOT / "docs" / "performance.md")
    args = parser.parse_args()
    try:
        for path in args.merge:
            replaced, added, left = merge(args.results, path, args.new)
            print(f"{path}: {replaced} rows in the place of older ones, {added} new, {left} left out")
        made = pages(args.results, args.page)
    except (Malformed, json.JSONDecodeError) as e:
        print(e, file=sys.stderr)
        return 1
    if not args.check:
        args.page.with_suffix("").mkdir(parents=True, exist_ok=True)
        for path, text in made.items():
            path.write_text(text)
        for path in stale(args.page, made):
            path.unlink()
        return 0
    wrong = [path for path, text in made.items() if not path.exists() or path.read_text() != text] + stale(args.page, made)
    for path in wrong:
        print(f"{path} is not what {args.results} makes: run tools/performance.py", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
