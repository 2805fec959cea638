"""The documentation site: it builds without a warning, asks no other host, and every page is there in every language."""

import importlib.util
import json
import os
import re
import subprocess
import sys

import pytest
from site_pages import LANGUAGES, ROOT, SITE, differences, missing_lines, read_blocks

NAMES = sorted(p.name for p in (SITE / "en").glob("*.md"))
# What makes a browser fetch: sources, style sheets and icons, and addresses in styles.
FETCHED = re.compile(
    r"<(?:script|img|iframe|source|video)[^>]*\ssrc=\"?((?:https?:)?//[^\" >]*)|<link[^>]*>|@import[^;]*//|url\(\s*['\"]?(?:https?:)?//"
)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    needed = ("mkdocs", "material", "mkdocs_static_i18n", "rjieba")
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"skip: {', '.join(missing)} not installed; tools/setup.sh installs what the site needs")
    out = tmp_path_factory.mktemp("site") / "site"
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", ROOT / "docs" / "mkdocs.yml", "--site-dir", out],
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        check=False,
        text=True,
    )
    assert done.returncode == 0, "\n".join(line for line in done.stderr.splitlines() if not line.startswith("INFO"))
    return out


def test_every_page_is_there_in_every_language(site):
    for name in NAMES:
        for language in LANGUAGES:
            place = site / ("" if language == "en" else language) / name.replace(".md", ".html")
            text = place.read_text()
            assert f'lang="{language}"' in text, place
            # The name of the page in the other languages, to change over.
            assert all(f'hreflang="{other}"' in text for other in LANGUAGES), place


def test_nothing_is_fetched_from_elsewhere(site):
    count = 0
    for file in [*site.rglob("*.html"), *site.rglob("*.css")]:
        for match in FETCHED.finditer(file.read_text()):
            link = match[0]
            outside = "//" in link and not re.search(r'rel="?(canonical|alternate|next|prev)', link)
            assert not outside, f"{file.relative_to(site)}: {link}"
            count += 1
    assert count > len(NAMES)  # style sheets were seen


def test_flags_are_those_of_the_table(site):
    rows = [row[0].split("`")[1] for row in table_rows()]
    assert len(rows) > 100
    for place in ("flags.html", "zh/flags.html"):
        text = (site / place).read_text()
        assert [row for row in rows if f"<code>{row}</code>" not in text] == []
        assert "<code>bfloat16|float32</code>" in text.replace("&#124;", "|") and "\\|" not in text


def table_rows():
    """Cells of the tables of docs/flags.md."""
    lines = (ROOT / "docs" / "flags.md").read_text().splitlines()
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines if line.startswith("| `")]


def test_chinese_texts_of_flags_name_what_the_english_ones_name():
    pairs = [line.split("\t") for line in (ROOT / "docs" / "flags.zh.tsv").read_text().splitlines()]
    names = re.compile(r"--[a-z-]+|[A-Z][A-Z0-9_]{3,}|\b\d+(?:\.\d+)?\b|\w+\.\w+|\w+_\w+", re.ASCII)
    assert [english for english, chinese in pairs if any(name not in chinese for name in names.findall(english))] == []
    words = dict(pairs)
    assert len(words) == len(pairs)
    # Some may wait for their translation, and the texts that they replaced for their end.
    texts = {row[3] for row in table_rows()}
    assert len(texts - set(words)) <= len(texts) // 5, sorted(texts - set(words))


def test_flags_in_chinese(site):
    text = (site / "zh" / "flags.html").read_text()
    assert "OpenAI 协议的端口" in text and "Port of the OpenAI protocol" not in text
    assert "harmless：" in text and "harmless: " not in text


def test_the_search_knows_chinese_words(site):
    found = json.loads((site / "search" / "search_index.json").read_text())
    titles = [entry["title"].split("\u200b") for entry in found["docs"] if entry["location"].startswith("zh/quantization")]
    assert ["量化"] in [[word for word in title if word] for title in titles]
    assert any({"加载", "量化"} <= set(title) for title in titles)


def test_links_to_what_is_not_on_the_site_name_the_file(site):
    text = (site / "reference" / "security.html").read_text()
    assert 'href="paddlenlp.html"' in text
    for page in site.rglob("*.html"):
        assert '.md"' not in page.read_text(), page


def test_pages_of_all_languages_say_the_same():
    assert NAMES and list(differences(SITE)) == []


PAGE = "# Page\n\n<!-- run -->\n```sh\ntrue\n```\n"


@pytest.mark.parametrize(
    "other,word",
    [
        (PAGE, ""),
        (None, "zh/a.md: no such page"),
        (PAGE.replace("true", "false"), "zh/a.md: block 1"),
        (PAGE.replace("<!-- run -->\n", ""), "zh/a.md: block 1"),
        (PAGE + "\n## More\n", "zh/a.md: other headings"),
        (PAGE + "\n```sh\nmore\n```\n", "zh/a.md: block 2"),
    ],
)
def test_what_one_language_lacks_is_found(tmp_path, other, word):
    for language, text in (("en", PAGE), ("zh", other)):
        (tmp_path / language).mkdir()
        if text:
            (tmp_path / language / "a.md").write_text(text)
    found = list(differences(tmp_path))
    assert [word in line for line in found] == ([True] if word else []), found


@pytest.mark.parametrize("text", ["<!-- walk -->\n```sh\n```\n", "<!-- run -->\n\n```sh\n```\n", "<!-- run -->\n", "```sh\n"])
def test_marks_that_mark_nothing_are_found(text):
    with pytest.raises(ValueError):
        read_blocks(text)


def test_lines_are_looked_for_in_order():
    output = "one 1 two\nthree\n"
    assert missing_lines("one … two\nthree", output) == []
    assert missing_lines("three\none", output) == ["one"]
    assert missing_lines("four", output) == ["four"]
