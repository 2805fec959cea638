#!/usr/bin/env python3
"""Checks the sizes that the house holds itself to: sources of at most 400 lines, headers of 150, functions of 60, folders of
25 files of their own, and a class's functions in one or two files. A .cuh file holds kernels that several .cu files make from
it: it counts as a source. Exit 1 and a line per breach; also for an exception that is no longer needed.

  check_sizes.py [--folders] [ROOT]

--folders looks at the folders alone. tools/size_exceptions.txt names what may be larger, each with its reason:
`path: reason` or `path:function: reason` for one of them, `src/room:Class: reason` for a class, `folder/: reason` for all under
a folder.

A C++ function is what an unindented line that ends in `{` opens and a `}` in column 0 closes: clang-format lays out every
function outside classes so. A Rust or Python function ends where its indentation does.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCE, HEADER, FUNCTION, FOLDER, CLASS = 400, 150, 60, 25, 2
HEADERS, CXX = {".h"}, {".h", ".cuh", ".cc", ".cu", ".inc"}
SUFFIXES = CXX | {".rs", ".py", ".sh"}
FOLDERS = ("src", "rust", "tools", "bench", "tests", "models")
EXCEPTIONS = "tools/size_exceptions.txt"
MEMBER = re.compile(r"^(?:[A-Za-z][^()=]*?\b)?([A-Z]\w*)::~?\w+\(")  # how the definition of a class's function begins
NO_FUNCTION = re.compile(
    r"^(namespace|class|struct|enum|union|extern|template <[^>]*>$|#|//|constexpr|const |static const|inline constexpr)"
)


def cpp_functions(lines):
    """(name, lines) of the functions outside classes."""
    start, inside = None, False
    for n, line in enumerate(lines):
        if start is None and not inside:
            if line and not line[0].isspace() and line.rstrip().endswith("{"):
                inside = bool(NO_FUNCTION.match(line)) and not line.startswith("namespace")
                start = None if NO_FUNCTION.match(line) else n
        elif line.startswith("}"):
            if start is not None:
                yield lines[start].split("(")[0].split()[-1], n - start + 1
            start, inside = None, False


def indented_functions(lines, head):
    """(name, lines) of functions whose body is indented deeper than their first line."""
    for n, line in enumerate(lines):
        match = re.match(head, line)
        if not match:
            continue
        end = n + 1
        while end < len(lines) and (
            not lines[end].strip()
            or len(lines[end]) - len(lines[end].lstrip()) > len(match.group(1))
            or lines[end].lstrip()[:1] in ")}"
        ):
            if lines[end].rstrip() == match.group(1) + "}":
                end += 1
                break
            end += 1
        while end > n and not lines[end - 1].strip():
            end -= 1
        yield match.group(2), end - n


def functions(path, lines):
    if path.suffix in CXX:
        return cpp_functions(lines)
    if path.suffix == ".rs":
        return indented_functions(lines, r"^(\s*)(?:pub(?:\(\w+\))? )?(?:unsafe )?(?:extern \"C\" )?fn (\w+)")
    if path.suffix == ".py":
        return indented_functions(lines, r"^(\s*)(?:async )?def (\w+)")
    return ()


def read_exceptions(path):
    """What may be larger, and what is wrong with the list."""
    keys, wrong = [], []
    for n, line in enumerate(path.read_text().splitlines() if path.exists() else (), 1):
        if not line or line.startswith("#"):
            continue
        key, colon, reason = line.partition(": ")
        if not colon or not reason.strip():
            wrong.append(f"{EXCEPTIONS}:{n}: `{key}` has no reason")
        keys.append(key)
    return keys, wrong


def breaches(root, folders_alone=False):
    exceptions, found = read_exceptions(root / EXCEPTIONS)
    whole_folders = tuple(key for key in exceptions if key.endswith("/"))
    files, used = 0, set()

    def over(key, size, most, what):
        if size <= most:
            return
        folder = next((f for f in whole_folders if key.startswith(f)), key)
        if folder in exceptions:
            used.add(folder)
        else:
            found.append(f"{key}: {size} {what}, at most {most}")

    counts, classes = {}, {}
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            rel = path.relative_to(root).as_posix()
            if path.suffix not in SUFFIXES or not path.is_file():
                continue
            files += 1
            if "/tests/" not in rel and rel.startswith("src/"):
                counts[path.parent] = counts.get(path.parent, 0) + 1
            if folders_alone:
                continue
            lines = path.read_text(errors="replace").splitlines()
            over(rel, len(lines), HEADER if path.suffix in HEADERS else SOURCE, "lines")
            for name, size in functions(path, lines):
                over(f"{rel}:{name}", size, FUNCTION, "lines in a function")
            if path.suffix in {".cc", ".cu"} and "/tests/" not in rel and rel.startswith("src/"):
                room = "/".join(rel.split("/")[:2])
                for match in filter(None, map(MEMBER.match, lines)):
                    classes.setdefault(f"{room}:{match.group(1)}", set()).add(rel)
    for name, places in classes.items():
        over(name, len(places), CLASS, "files define functions of a class")
    for folder, count in counts.items():
        over(folder.relative_to(root).as_posix() + "/", count, FOLDER, "files in a folder")
    if not folders_alone:
        found += [f"{EXCEPTIONS}: {key} is not needed any more" for key in exceptions if key not in used]
    return found, files


def main():
    args = [a for a in sys.argv[1:] if a != "--folders"]
    found, files = breaches(pathlib.Path(args[0]).resolve() if args else ROOT, "--folders" in sys.argv[1:])
    for line in found:
        print(line)
    print(f"sizes: {files} files, {len(found)} breaches")
    return 1 if found or files == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
