"""tools/check_links.py: links, anchors and names of files in documents lead somewhere."""

import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def check(root):
    return subprocess.run([sys.executable, ROOT / "tools" / "check_links.py", root], capture_output=True, text=True)


def tree(tmp_path, line):
    (tmp_path / "src" / "room").mkdir(parents=True)
    (tmp_path / "docs").mkdir()
    (tmp_path / "src" / "room" / "a.h").write_text("// a\nstruct Struct { void call(); };\n")
    (tmp_path / "src" / "room" / "b_test.cc").write_text("// b\n")
    (tmp_path / "docs" / "page.md").write_text("# Page\n\n## Two words, `code`\n\n## Twice\n\n## Twice\n")
    (tmp_path / "src" / "room" / "README.md").write_text(f"# room\n\nRight: `a.h`, [page](../../docs/page.md).\n\n{line}\n")
    return check(tmp_path)


def test_everything_that_documents_of_this_repository_name_is_there():
    done = check(ROOT)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    "line",
    [
        "[a](../../docs/page.md#two-words-code)",
        "[a](../../docs/page.md#twice-1)",
        "[a](#room)",
        "[a](https://example.org/src/nothing.h)",
        "`src/room/a.h` and src/room/",
        "`room/a.h`, `src/*/a.h`, `src/ROOM/NAME_test.cc`",
        "`src/room/{a.h,b_test.cc}`",
        "```\n[a](nothing.md)\n```",
        "`Struct.member`, `a.b.c`, 1.5",
        "`Struct::call`, `call()`, `std::move(x)`",
    ],
)
def test_what_is_there_passes(tmp_path, line):
    done = tree(tmp_path, line)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    "line,word",
    [
        ("[a](nothing.md)", "link to nothing.md: no such file"),
        ("[a](../../../outside.md)", "no such file"),
        ("[a](../../docs/page.md#three)", "page.md#three: no such heading"),
        ("[a](#twice)", "no such heading"),
        ("[a]: nothing.md", "link to nothing.md"),
        ("`c.h`", "c.h: no such file"),
        ("`room/c.cc`", "room/c.cc: no such file"),
        ("see src/room/c.h.", "src/room/c.h: no such file"),
        ("    src/other/", "src/other/: no such file"),
        ("`src/ROOM/NAME_fuzz.cc`", "no such file"),
        ("`src/room/{a.h,c.h}`", "no such file"),
        ("`tools/*.py`", "no such file"),
        ("`Struct::fall`", "Struct::fall: no such name"),
        ("`fall()`", "fall: no such name"),
    ],
)
def test_what_is_not_there_is_found(tmp_path, line, word):
    done = tree(tmp_path, line)
    assert done.returncode == 1 and word in done.stdout and "src/room/README.md" in done.stdout, done.stdout


def test_names_of_the_specified_program_are_not_looked_for(tmp_path):
    (tmp_path / "docs" / "spec").mkdir(parents=True)
    (tmp_path / "docs" / "spec" / "page.md").write_text("# Page\n\n`tests/e2e/other.py`\n")
    assert check(tmp_path).returncode == 0
    (tmp_path / "docs" / "spec" / "page.md").write_text("# Page\n\n[a](other.md)\n")
    assert check(tmp_path).returncode == 1


@pytest.mark.parametrize(
    "text,word",
    [
        ("May include `b`. Begin with `a.h`.", ""),
        ("May include `c`. Begin with `a.h`.", "may include: b"),
        ("Begin with `a.h`.", "may include: b"),
        ("May include `b`.", "where to begin"),
        (None, "src/a/README.md: no such file"),
        ("short", "lines, not"),
        ("long", "lines, not"),
    ],
)
def test_rooms_say_what_a_newcomer_asks(tmp_path, text, word):
    (tmp_path / "cmake").mkdir()
    (tmp_path / "cmake" / "rooms.txt").write_text("a: b  # comment\na/inner:\n")
    (tmp_path / "src" / "a").mkdir(parents=True)
    (tmp_path / "src" / "a" / "a.h").write_text("")
    (tmp_path / "README.md").write_text("# all\n")
    if text is not None:
        lines = {"short": 1, "long": 41}.get(text, 12)
        (tmp_path / "src" / "a" / "README.md").write_text((text if lines == 12 else "line") + "\n" * lines)
    done = check(tmp_path)
    assert word in done.stdout and done.returncode == (1 if word else 0), done.stdout


def test_a_tree_without_documents_fails(tmp_path):
    assert check(tmp_path).returncode == 1
