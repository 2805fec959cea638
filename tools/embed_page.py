#!/usr/bin/env python3
"""Makes one HTML file of the page's parts and writes it as C++.

  embed_page.py FOLDER OUT.cc [--html OUT.html]

FOLDER/index.html names its parts by ordinary tags (`<link rel="stylesheet" href="x.css">`, `<script src="x.js">`), so that
it also works as it is behind any server of files; here the style sheets become one <style>, the scripts one <script>, in
their order. The result is compressed, and the SHA-256 of style and script are written down for the Content-Security-Policy.
The same parts give the same bytes. A part that is missing, or that no tag names, is an error.
"""

import argparse
import base64
import gzip
import hashlib
import pathlib
import re
import sys

STYLE = re.compile(r'[ \t]*<link rel="stylesheet" href="([\w.-]+)">\n')
SCRIPT = re.compile(r'[ \t]*<script src="([\w.-]+)"></script>\n')


def gather(html, pattern, tag, folder, used):
    """The page with the parts that `pattern` finds in the place of the first, and their text."""
    names = pattern.findall(html)
    if not names:
        raise SystemExit(f"{folder}/index.html names no {tag}")
    used.update(names)
    text = "\n" + "\n".join((folder / name).read_text(encoding="utf-8") for name in names)
    if f"</{tag}" in text.lower() or "<!--" in text:
        raise SystemExit(f"a {tag} of {folder} holds what would end it")
    first = pattern.search(html).start()
    rest = pattern.sub("", html)
    return f"{rest[:first]}<{tag}>{text}</{tag}>\n{rest[first:]}", text


def source_hash(text):
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


def array(name, data):
    lines = [",".join(map(str, data[i : i + 40])) for i in range(0, len(data), 40)]
    return f"constexpr unsigned char {name}[] = {{\n" + ",\n".join(lines) + "};\n"


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("folder", type=pathlib.Path)
    arguments.add_argument("out", type=pathlib.Path)
    arguments.add_argument("--html", type=pathlib.Path, help="also writes the page itself")
    given = arguments.parse_args()
    used = {"index.html"}
    html = (given.folder / "index.html").read_text(encoding="utf-8")
    html, style = gather(html, STYLE, "style", given.folder, used)
    html, script = gather(html, SCRIPT, "script", given.folder, used)
    unused = sorted({p.name for p in given.folder.iterdir()} - used)
    if unused:
        raise SystemExit(f"{given.folder}/index.html does not name {', '.join(unused)}")
    data = html.encode()
    packed = gzip.compress(data, 9, mtime=0)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(
        "// Made by tools/embed_page.py.\n"
        '#include "serve/page/page.h"\n\nnamespace tern::serve::page {\nnamespace {\n'
        + array("kHtml", data)
        + array("kGzip", packed)
        + "std::string_view view(const unsigned char* data, size_t size) {\n"
        "  return {reinterpret_cast<const char*>(data), size};\n}\n"
        "}  // namespace\n\nconst File& file() {\n"
        "  static const File kFile{view(kHtml, sizeof kHtml), view(kGzip, sizeof kGzip),\n"
        f'                          "{hashlib.sha256(data).hexdigest()[:32]}",\n'
        f'                          "{source_hash(script)}",\n'
        f'                          "{source_hash(style)}"}};\n'
        "  return kFile;\n}\n\n}  // namespace tern::serve::page\n"
    )
    if given.html:
        given.html.write_bytes(data)
    return 0


if __name__ == "__main__":
    sys.exit(main())
