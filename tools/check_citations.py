#!/usr/bin/env python3
"""Checks that every section which a comment cites exists in docs/spec. Exit 1 and a line per breach.

A citation is the name of a page and sections: `fastdeploy.md 3.1`, `models-other.md 7.3, 7.4`, `fastdeploy.md 1.2 to 1.9`,
`models-ernie-paddleocr.md, trap 3`. Sections without their page (`spec 5.1`, `FastDeploy 3.8`) are breaches: a reader
would not know where to look.

Comments of sources name only files that exist: with folders, from the root, from src/ or from a folder above the comment;
without, any file of that name.

  check_citations.py [ROOT]
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SUFFIXES = {".h", ".cc", ".cu", ".cuh", ".inc", ".rs", ".py", ".sh", ".md", ".txt"}
FOLDERS = ("src", "rust", "tools", "bench", "cmake", "models", "tests", "docs")
NUMBER = r"\d+(?:\.\d+)?"
# A comment may break in the middle of a citation.
WRAP = re.compile(r"\n[ \t]*(?://|#|\*)?[ \t]*")
NO_PAGE = re.compile(
    rf"\bspec ({NUMBER})\b|\bmodels-[a-z-]+ ({NUMBER})\b|\bFD (\d+\.\d+)\b|\bFastDeploy (?!2\.(?:[0-6]\b|x))(\d+\.\d+)\b", re.I
)


def sections(page):
    """The numbers of a page's headings, and of the items of its list of traps."""
    text = page.read_text()
    numbers = set(re.findall(rf"^#+ ({NUMBER})\.? ", text, re.M))
    traps = re.search(r"^## 0\. Traps.*?(?=^## )", text, re.M | re.S)
    return numbers, set(re.findall(r"^(?:\| )?(\d+)[.| ]", traps.group(0), re.M)) if traps else set()


def between(first, last):
    """Every section from `first` to `last`, whose numbers differ in their last part."""
    head, _, low = first.rpartition(".")
    other, _, high = last.rpartition(".")
    return [f"{head}.{i}".lstrip(".") for i in range(int(low), int(high) + 1)] if head == other else [first, last]


def cited(text):
    """Sections and traps that stand behind a page's name."""
    trap = re.match(r",? trap (\d+)", text)
    if trap:
        return [], [trap.group(1)]
    found = []
    rest = re.match(rf" (?:section )?({NUMBER})", text)
    while rest:
        number = rest.group(1)
        if "to" in rest.group(0) and found:
            found += between(found[-1], number)[1:]
        else:
            found.append(number)
        text = text[rest.end() :]
        rest = re.match(rf"(?:,| and| to) ({NUMBER})(?![\w/])", text)
    return found, []


def breaches(root):
    pages = {page.name: sections(page) for page in sorted((root / "docs" / "spec").glob("*.md")) if page.name != "README.md"}
    found, citations = [], 0
    names = re.compile(r"(?<![\w-])(" + "|".join(re.escape(name) for name in pages) + r")(?!\))")
    files = [path for folder in FOLDERS for path in sorted((root / folder).rglob("*")) if path.suffix in SUFFIXES]
    for path in files:
        rel = path.relative_to(root)
        if (
            rel.parts[:2] == ("docs", "spec")
            or rel.parts[:2] == ("tests", "data")
            or rel.name in (pathlib.Path(__file__).name, "test_citations.py")
        ):
            continue
        text = WRAP.sub(" ", path.read_text(errors="replace"))
        for match in names.finditer(text) if pages else ():
            numbers, traps = cited(text[match.end() : match.end() + 80])
            citations += bool(numbers or traps)
            known, known_traps = pages[match.group(1)]
            found += [f"{rel}: {match.group(1)} has no section {n}" for n in numbers if n not in known]
            found += [f"{rel}: {match.group(1)} has no trap {n}" for n in traps if n not in known_traps]
        if path.suffix != ".md":
            found += [f'{rel}: "{m.group(0)}" names no page of docs/spec' for m in NO_PAGE.finditer(text)]
    return found, citations


SOURCES = {".h", ".cc", ".cu", ".cuh", ".inc", ".rs"}
COMMENT = re.compile(r"//(.*)$", re.M)
FILE = re.compile(r"(?<![\w./$<:-])((?:[\w-]+/)*[\w-]+\.(?:h|cc|cuh?|inc|rs|py|sh|md))(?![\w*]|\.\w)")
# Names of files that are not ours: of libraries, and patterns that stand for many files.
FOREIGN = re.compile(r"^(jpeglib\.h|engine\.cc|_\w+\.\w+|NAME\S*)$")


def missing_files(root):
    """Files that comments of sources name and that do not exist."""
    paths = [path.relative_to(root) for folder in FOLDERS for path in (root / folder).rglob("*") if path.is_file()]
    known, names = {path.as_posix() for path in paths}, {path.name for path in paths}
    known |= {path.name for path in root.iterdir()}
    found = []
    for path in sorted(paths):
        if path.suffix not in SOURCES:
            continue
        above = ["src/", *(parent.as_posix() + "/" for parent in path.parents)]
        for comment in COMMENT.finditer((root / path).read_text(errors="replace")):
            for match in FILE.finditer(comment.group(1)):
                name = match.group(1)
                there = any(prefix.removeprefix("./") + name in known for prefix in above) if "/" in name else name in names
                if not there and name not in known and not FOREIGN.match(name) and not name.startswith("build/"):
                    found.append(f"{path}: there is no {name}")
    return found


def main():
    root = pathlib.Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT
    found, citations = breaches(root)
    found += missing_files(root)
    for line in found:
        print(line)
    print(f"citations: {citations} of docs/spec, {len(found)} breaches")
    return 1 if found or citations == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
