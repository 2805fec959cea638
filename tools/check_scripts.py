#!/usr/bin/env python3
"""Finds commands of a pipeline that may end before they have read all of it, in scripts under `set -o pipefail`.

The writer then gets SIGPIPE when it is the slower one, and the script ends with status 141: by chance. Exit 1 and a line
per breach. Known readers: head, `grep` with -q, -m or -l, `sed` with a command q or Q, `awk` with an exit outside of END,
read, true. Readers that take all: `sed -n 1p`, `awk '... {x = $1} END {print x}'`, a variable that holds the output.

  check_scripts.py [ROOT]
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ("tools", "bench", "models", "tests", "docs")
PIPEFAIL = re.compile(r"^\s*set\s+-[a-z]*o\s+pipefail\b", re.M)
READERS = (
    ("head", re.compile(r"head\b")),
    (
        "grep that stops at the first match",
        re.compile(r"[ef]?grep\b(?=[^|]*\s(?:-[a-zA-Z]*[qml]|--quiet|--silent|--max-count|--files-with-matches))"),
    ),
    (
        "sed that quits",
        re.compile(
            r"sed\b(?:\s+-[a-zA-Z-]+)*\s+(?:\d*[qQ]\b|(['\"])(?:(?!\1).)*?(?:^|[;{}/$\d\s]|(?<=['\"]))[qQ]\d*\s*(?:[;}]|\1))"
        ),
    ),
    ("read", re.compile(r"read\b")),
    ("true", re.compile(r"(?:true|:)(?=\s|;|\)|$)")),
)


def without_heredocs_and_comments(text):
    """The script with here-documents and comments blanked, lines kept."""
    lines, end = [], None
    for line in text.splitlines():
        if end is not None:
            if line.strip() == end:
                end = None
            lines.append("")
            continue
        start = re.search(r"<<-?\s*(['\"]?)(\w+)\1", line)
        if start and "<<<" not in line:
            end = start.group(2)
        lines.append("" if line.lstrip().startswith("#") else line)
    return "\n".join(lines)


def awk_exits(command):
    program = re.match(r"[mg]?awk\b[^']*'([^']*)'", command)
    if not program:
        return False
    body = re.sub(r"\bEND\s*\{.*", "", program.group(1), flags=re.S)
    return re.search(r"\bexit\b", body) is not None


def breaches(root):
    found, scripts = [], 0
    for path in sorted(p for folder in FOLDERS for p in (root / folder).rglob("*.sh")):
        text = path.read_text()
        if not PIPEFAIL.search(text):
            continue
        scripts += 1
        text = without_heredocs_and_comments(text)
        for pipe in re.finditer(r"(?<!\|)\|&?(?!\|)\s*(?:\\\n\s*)?", text):
            # `|` inside [[ =~ ]], a case pattern or a quoted regular expression is followed by none of these words.
            rest = re.sub(r"^(?:(?:env|command|nice|LC_ALL=\S+)\s+)*", "", text[pipe.end() :])
            kind = next((name for name, pattern in READERS if pattern.match(rest)), None) or (
                "awk that exits" if awk_exits(rest) else None
            )
            if kind:
                line = text.count("\n", 0, pipe.start()) + 1
                found.append(f"{path.relative_to(root)}:{line}: {kind} ends before its pipe does")
    return found, scripts


def main():
    found, scripts = breaches(pathlib.Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT)
    for line in found:
        print(line)
    print(f"{scripts} scripts under pipefail, {len(found)} early readers")
    return 1 if found or scripts == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
