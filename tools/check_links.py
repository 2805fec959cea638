#!/usr/bin/env python3
"""Holds the repository's *.md files to what is there: relative links, their anchors, and names of files.

  check_links.py [ROOT]

A link must lead to a file or folder of the repository, its anchor to a heading of that page. A path that begins with one of
FOLDERS must exist wherever it stands, and so must a file's name in backticks that ends like one of SUFFIXES: as it is, beside
the page, below src/, or as the end of some file's path. A word in capitals (src/ROOM/tests) and an asterisk stand for anything,
{a,b} for each. `Class::function` and function() must be words of the sources; in CODE_PAGES every word in backticks must.
Each room's README (cmake/rooms.txt) has ROOM_LINES lines, says what the room may include, as the table does, and where to begin.
Names in docs/spec are the specified program's own; only links are checked there.
"""

import fnmatch
import itertools
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ("src", "docs", "tools", "bench", "tests", "models", "cmake", "rust")
SUFFIXES = (".h", ".cc", ".cu", ".cuh", ".inc", ".py", ".sh", ".md", ".cmake")
CODE_PAGES = ("docs/a-requests-way.md",)
ROOM_LINES = (10, 40)
LONG_ROOMS = ("cuda",)  # has a table of its kernels
SOURCES = (".h", ".cc", ".cu", ".cuh", ".inc", ".rs", ".py")

FENCE = re.compile(r"^(```|~~~).*?^\1", re.M | re.S)
CODE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\[[^\]]*\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)|^\[[^\]^]+\]:\s+(\S+)", re.M)
PATH = re.compile(r"(?<![\w./~$}-])(?:\./)?((?:" + "|".join(FOLDERS) + r")/[\w.*{},+/-]*)")
NAME = re.compile(r"[\w*{},+./-]+(?:" + "|".join(re.escape(s) for s in SUFFIXES) + ")")
FUNCTION = re.compile(r"(?:\w+::)+~?\w+|\w+(?=\(\))")
PLACEHOLDER = re.compile(r"(?<![a-z])[A-Z]{2,}(?![a-z])|<\w+>")


def files_of(root):
    """Paths of all files that git keeps or would keep; outside of git, of all files."""
    done = subprocess.run(["git", "-C", root, "ls-files", "-co", "--exclude-standard"], capture_output=True, text=True)
    if done.returncode == 0 and (root / ".git").exists():
        return sorted(line for line in done.stdout.splitlines() if (root / line).exists())
    return sorted(str(p.relative_to(root)) for p in root.rglob("*") if p.is_file())


def anchors(text):
    """What a heading is called in a link, as GitHub makes it."""
    found, seen = set(re.findall(r"<a (?:name|id)=\"([^\"]+)\"", text)), {}
    for title in re.findall(r"^#+\s+(.*?)\s*#*$", FENCE.sub("", text), re.M):
        title = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).replace("`", "")
        slug = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
        found.add(slug if slug not in seen else f"{slug}-{seen[slug]}")
        seen[slug] = seen.get(slug, 0) + 1
    return found


def spelled(path):
    """All paths that `a/{b,c}.h` stands for."""
    parts = re.split(r"\{([^{}]*)\}", path)
    choices = [p.split(",") if i % 2 else [p] for i, p in enumerate(parts)]
    return ["".join(c) for c in itertools.product(*choices)]


class Tree:
    def __init__(self, root):
        self.root, self.files = root, files_of(root)
        self.paths = set(self.files)
        self.words_ = None
        for f in self.files:
            self.paths.update(str(p) for p in pathlib.PurePosixPath(f).parents)

    def words(self):
        """Of all sources."""
        if self.words_ is None:
            self.words_ = set()
            for f in self.files:
                if f.endswith(SOURCES) and not f.startswith("tests/data/"):
                    self.words_.update(re.findall(r"\w+", (self.root / f).read_text(errors="replace")))
        return self.words_

    def has(self, path):
        """Whether `path`, from the root, is there; with `*` or a word in capitals, whether anything fits."""
        path = path.rstrip("/")
        pattern = PLACEHOLDER.sub("*", path)
        return path in self.paths or ("*" in pattern and any(fnmatch.fnmatchcase(p, pattern) for p in self.paths))

    def has_name(self, name, folder):
        name = name.removeprefix("./")
        places = [name, os.path.normpath(os.path.join(folder, name)), "src/" + name, "*/" + name]
        return any(self.has(p) for p in places)


def broken_links(tree, page, text):
    text = CODE.sub("", FENCE.sub("", text))
    for match in LINK.finditer(text):
        target = match.group(1) or match.group(2)
        if re.match(r"[a-z][a-z0-9+.-]*:", target):
            continue
        path, _, anchor = target.partition("#")
        to = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
        if to not in tree.paths:
            yield f"{page}: link to {target}: no such file"
        elif anchor and (not to.endswith(".md") or anchor not in anchors((tree.root / to).read_text())):
            yield f"{page}: link to {target}: no such heading"


def missing_files(tree, page, text):
    folder = os.path.dirname(page)
    named = {m.group(1).rstrip(".,") for m in PATH.finditer(text)}
    # In a room's README `tests/` and `bench/` may be the room's own.
    missing = {
        p for p in named for one in spelled(p) if not tree.has(one) and not tree.has(os.path.join(folder, one).rstrip("/"))
    }
    for code in CODE.findall(FENCE.sub("", text)):
        for word in re.split(r"[\s,:()]+", code) if "{" not in code else code.split():
            if NAME.fullmatch(word) and not all(tree.has_name(one, folder) for one in spelled(word)):
                missing.add(word)
    return [f"{page}: {name}: no such file" for name in sorted(missing)]


def missing_names(tree, page, text):
    found = set()
    for code in CODE.findall(FENCE.sub("", text)):
        names = FUNCTION.findall(code)
        if page in CODE_PAGES and re.fullmatch(r"[\w:()]+", code):
            names = [code]
        for name in names:
            if not name.startswith("std::") and any(w not in tree.words() for w in re.findall(r"\w+", name)):
                found.add(f"{page}: {name}: no such name in the sources")
    return sorted(found)


def bad_rooms(tree):
    """READMEs of rooms that do not say what a newcomer asks."""
    table = tree.root / "cmake" / "rooms.txt"
    lines = [line.partition("#")[0] for line in table.read_text().splitlines()] if table.exists() else []
    for room, allowed in (line.split(":", 1) for line in lines if ":" in line):
        page = f"src/{room}/README.md"
        if "/" in room:
            continue
        if page not in tree.paths:
            yield f"{page}: no such file"
            continue
        text = (tree.root / page).read_text()
        count = len(text.splitlines())
        if not ROOM_LINES[0] <= count <= ROOM_LINES[1] and room not in LONG_ROOMS:
            yield f"{page}: {count} lines, not {ROOM_LINES[0]} to {ROOM_LINES[1]}"
        if not re.search(r"\bBegin with `", text):
            yield f"{page}: does not say where to begin reading (Begin with `...`)"
        said = re.search(r"\b[Mm]ay\s+include\s+(.*?)[.;]|\b([Ii]ncludes no other room)", text, re.S)
        rooms = set(re.findall(r"`(\w+)`", said.group(1) or "")) if said else set()
        # In words only ("every room below") where the list would be long.
        if not said or rooms and rooms != {a for a in allowed.split() if "/" not in a}:
            yield f"{page}: does not say what the room may include: {allowed.strip() or 'no other room'}"


def breaches(root):
    tree = Tree(root)
    pages = [f for f in tree.files if f.endswith(".md") and not f.startswith("tests/data/")]
    found = list(bad_rooms(tree))
    for page in pages:
        text = (root / page).read_text()
        found += broken_links(tree, page, text)
        if not page.startswith("docs/spec/"):
            found += missing_files(tree, page, text)
            found += missing_names(tree, page, text)
    return found, len(pages)


def main():
    found, pages = breaches(pathlib.Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT)
    for line in found:
        print(line)
    print(f"links: {pages} pages, {len(found)} breaches")
    return 1 if found or pages == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
