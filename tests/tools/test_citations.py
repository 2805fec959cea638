"""tools/check_citations.py: sections that comments cite exist in docs/spec."""

import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = "# Page\n\n## 0. Traps first\n\n| # | Trap |\n|---|---|\n| 1 | one |\n\n## 1. A\n\n### 1.1 B\n\n### 1.2 C\n\n### 1.3 D\n"


def check(root):
    return subprocess.run([sys.executable, ROOT / "tools" / "check_citations.py", root], capture_output=True, text=True)


def tree(tmp_path, comment):
    (tmp_path / "docs" / "spec").mkdir(parents=True)
    (tmp_path / "docs" / "spec" / "page.md").write_text(PAGE)
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.h").write_text("// right: page.md 1.1\n" + comment + "\n")
    return check(tmp_path)


def test_every_citation_of_this_repository_holds():
    done = check(ROOT)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    "comment",
    ["// page.md 1", "// page.md 1.1 to 1.3, 1", "// (page.md, trap 1)", "// see (page.md\n// 1.2)", "// page.md has 7 sections"],
)
def test_sections_that_exist_pass(tmp_path, comment):
    done = tree(tmp_path, comment)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    "comment,word",
    [
        ("// page.md 1.4", "no section 1.4"),
        ("// page.md 1.1, 2", "no section 2"),
        ("// page.md 1.2 to 1.4", "no section 1.4"),
        ("// (page.md, trap 2)", "no trap 2"),
        ("// see (page.md\n// 3.1)", "no section 3.1"),
        ("// spec 1.1", "names no page"),
        ("// (models-ernie 7.1)", "names no page"),
        ("// FD 6.1", "names no page"),
        ("// FastDeploy 3.1", "names no page"),
    ],
)
def test_sections_that_do_not_exist_are_found(tmp_path, comment, word):
    done = tree(tmp_path, comment)
    assert done.returncode == 1 and word in done.stdout and "src/a.h" in done.stdout


@pytest.mark.parametrize("name", ["a.h", "src/a.h", "tools/b.py", "docs/spec/page.md", "build/x.h"])
def test_files_that_exist_may_be_named(tmp_path, name):
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "b.py").write_text("")
    done = tree(tmp_path, f"// See {name}.")
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", ["b.h", "src/b.cc", "other/a.h", "tools/c.py"])
def test_files_that_do_not_exist_are_found(tmp_path, name):
    done = tree(tmp_path, f"// See {name}.")
    assert done.returncode == 1 and f"there is no {name}" in done.stdout
