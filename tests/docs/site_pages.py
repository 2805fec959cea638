"""Pages of docs/site: their blocks, and what differs between languages. CONTRIBUTING.md says what the marks mean."""

import pathlib
import re
from dataclasses import dataclass

ROOT = pathlib.Path(__file__).resolve().parents[2]
SITE = ROOT / "docs" / "site"
LANGUAGES = ("en", "zh")
MARKS = ("serve", "run", "check", "prints", "flags")
MARK = re.compile(r"<!--\s*(.*?)\s*-->")
FENCE = re.compile(r"```(\w*)$")


@dataclass
class Block:
    mark: str
    language: str
    text: str
    line: int


def read_blocks(text):
    """All fenced blocks of a page. A mark that is not known, or stands before no block, is a ValueError."""
    blocks, mark, open_block = [], "", None
    for number, line in enumerate(text.splitlines(), 1):
        if open_block:
            if line == "```":
                blocks.append(open_block)
                open_block = None
            else:
                open_block.text += line + "\n"
            continue
        fence, found = FENCE.match(line), MARK.fullmatch(line.strip())
        if mark and not fence:
            raise ValueError(f"line {number}: no block follows <!-- {mark} -->")
        if found and found[1] not in MARKS:
            raise ValueError(f"line {number}: {line.strip()} is no mark; marks are {', '.join(MARKS)}")
        if fence:
            open_block = Block(mark, fence[1], "", number)
        mark = found[1] if found and found[1] != "flags" else ""
    if open_block or mark:
        raise ValueError("the last block does not end")
    return blocks


def headings(text):
    return [len(m) for m in re.findall(r"^(#+) ", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)]


def differences(site):
    """A line for everything that one language has and another has not: pages, headings, blocks."""
    pages = {language: {p.name: p.read_text() for p in (site / language).glob("*.md")} for language in LANGUAGES}
    names = sorted(set().union(*pages.values()))
    for language in LANGUAGES:
        yield from (f"{language}/{name}: no such page" for name in names if name not in pages[language])
    first = LANGUAGES[0]
    for other in LANGUAGES[1:]:
        for name in sorted(set(pages[first]) & set(pages[other])):
            one, two = pages[first][name], pages[other][name]
            if headings(one) != headings(two):
                yield f"{other}/{name}: other headings than {first}/{name}"
            what = [[(b.mark, b.language, b.text) for b in read_blocks(text)] for text in (one, two)]
            if what[0] != what[1]:
                differing = next((i for i, (a, b) in enumerate(zip(*what)) if a != b), min(map(len, what)))
                yield f"{other}/{name}: block {differing + 1} is not that of {first}/{name}"


def missing_lines(expected, output):
    """Lines of `expected` that `output` does not hold in that order; an ellipsis in a line stands for anything."""
    place, missing = 0, []
    for line in filter(str.strip, expected.splitlines()):
        pattern = ".*".join(re.escape(part) for part in line.strip().split("…"))
        found = re.compile(pattern).search(output, place)
        if found:
            place = found.end()
        else:
            missing.append(line)
    return missing
