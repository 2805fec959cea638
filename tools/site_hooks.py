"""What docs/mkdocs.yml does beyond MkDocs: pages of the repository that the site shows as they are, the page of flags, links.

Pages of the site lie in docs/site/LANGUAGE. PAGES are shown in English in every language, below reference/. The line
`<!-- flags -->` of a page becomes the tables of docs/flags.md, in Chinese where docs/flags.zh.tsv has the words. A link from any page to a file that is not on the site becomes
the file's path.
"""

import html
import pathlib
import posixpath
import re

import rjieba
from material.plugins.search import plugin as search
from mkdocs.structure.files import File

ROOT = pathlib.Path(__file__).resolve().parent.parent
SITE = "docs/site"
LANGUAGES = ("en", "zh")
PAGES = {
    f"reference/{posixpath.basename(path)}": path
    for path in (
        "docs/control.md",
        "docs/differences.md",
        "docs/gpu.md",
        "docs/install.md",
        "docs/models.md",
        "docs/page.md",
        "docs/paddlenlp.md",
        "docs/performance.md",
        "docs/requests.md",
        "docs/security.md",
        "docs/shell.md",
    )
}
FLAGS = "<!-- flags -->"
SKIPPED = re.compile(r"(^(?P<fence>```|~~~).*?^(?P=fence)|`[^`\n]*`)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[(?P<text>[^\]]*)\]\((?P<to>[^)\s]+)\)")


class Segmenter:
    """Words of Chinese text for the search, in the place of the package that Material looks for, which nobody keeps."""

    @staticmethod
    def cut(text):
        return rjieba.cut(text.decode())


search.jieba = Segmenter


def place_of(path):
    """Where the site shows a file of the repository, without its language; None where it does not."""
    shown = {source: name for name, source in PAGES.items()} | {"docs/flags.md": "flags.md"}
    parts = path.removeprefix(SITE + "/").split("/", 1)
    return parts[1] if path.startswith(SITE + "/") and len(parts) == 2 else shown.get(path)


def link(text, to, source, name):
    """A link of `source`, a file of the repository that the site shows as `name`."""
    target, anchor = (to.split("#", 1) + [""])[:2]
    path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
    place = place_of(path)
    if place and (place != name or anchor):
        return f"[{text}]({posixpath.relpath(place, posixpath.dirname(name) or '.')}{'#' if anchor else ''}{anchor})"
    plain = text.strip("`")
    return f"`{path}`" if plain == path or plain == posixpath.basename(path) else f"{text} (`{path}`)"


def with_links(text, source, name):
    """`text` with every link that leads to a file of the repository."""

    def changed(match):
        to = match["to"]
        return match[0] if re.match(r"[a-z][a-z0-9+.-]*:|#", to) else link(match["text"], to, source, name)

    # Links may hold code, so code is not cut out of the text: it is given back as it was where a link begins in it.
    kept = {m.start(): m.end() for m in SKIPPED.finditer(text)}
    parts, end = [], 0
    for match in LINK.finditer(text):
        inside = any(begin < match.start() < stop for begin, stop in kept.items())
        parts += [text[end : match.start()], match[0] if inside else changed(match)]
        end = match.end()
    return "".join(parts) + text[end:]


def with_bars(text):
    """`text` with code that has bars in a table as Python-Markdown shows it right; GitHub wants the backslash."""

    def code(match):
        return f"<code>{html.escape(match[1].replace(chr(92) + '|', '|')).replace('|', '&#124;')}</code>"

    return re.sub(r"`([^`\n]*\\\|[^`\n]*)`", code, text)


def in_chinese(line, words):
    """A heading or a row of docs/flags.md; texts that `words` does not have stay in English."""
    if line.startswith("#"):
        mark, _, title = line.partition(" ")
        return f"{mark} {words.get(title, title)}"
    cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)]
    status, colon, reason = cells[-2].partition(": ")
    cells[-2] = f"{status}：{words.get(reason, reason)}" if colon else words.get(status, status)
    return " | ".join([words.get(cell, cell) for cell in cells[:-2]] + cells[-2:]).strip()


def flag_tables(language):
    """docs/flags.md from its first table on."""
    text = (ROOT / "docs" / "flags.md").read_text()
    lines = text[text.index("\n## ") :].strip().splitlines()
    if language == "zh":
        words = dict(row.split("\t") for row in (ROOT / "docs" / "flags.zh.tsv").read_text().splitlines())
        lines = [in_chinese(line, words) if line.startswith(("#", "|")) else line for line in lines]
    return "\n".join(lines)


def on_files(files, config):
    for language in LANGUAGES:
        for name in PAGES:  # as if they lay in docs/site, where alone the plug-in of languages takes them
            files.append(File(f"{language}/{name}", config.docs_dir, config.site_dir, config.use_directory_urls))
    return files


def on_page_read_source(page, config):
    path = PAGES.get(page.file.src_uri.split("/", 1)[1])
    return (ROOT / path).read_text() if path else None


def on_page_markdown(markdown, page, config, files):
    language, name = page.file.src_uri.split("/", 1)
    text = with_links(markdown, PAGES.get(name, f"{SITE}/{page.file.src_uri}"), name)
    return with_bars(text.replace(FLAGS, with_links(flag_tables(language), "docs/flags.md", name)))
