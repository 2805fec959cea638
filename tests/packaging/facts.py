"""What tests of packaged files need to know: the flags there are, and their defaults."""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]


def flags():
    """{name without dashes: default} of `tern serve`, from docs/flags.md."""
    rows = re.findall(r"^\| (`--.*?) \| .*? \| (.*?) \|", (ROOT / "docs/flags.md").read_text(), re.MULTILINE)
    return {name: default for names, default in rows for name in re.findall(r"`--([a-z0-9-]+)`", names)}


def variables():
    """Names of the environment's variables that are read."""
    return set(re.findall(r"^\| `([A-Z][A-Za-z0-9_]+)`", (ROOT / "docs/flags.md").read_text(), re.MULTILINE))
