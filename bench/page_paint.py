#!/usr/bin/env python3
"""From opening the page (GET /) of an idle server to its first paint with content, as headless Chromium tells it: every time in
a tab with a storage and a cache of its own. The first tab, with which Chromium itself starts, is not counted.

  page_paint.py [--tern build/release/tern] [--runs 11]
"""

import argparse
import os
import pathlib
import statistics
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tools" / "gpu_check"), str(ROOT / "tests"), str(ROOT / "tests" / "page")]
import rows  # noqa: E402
from browser import Browser, find_chromium  # noqa: E402

PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"


def paint_of(browser, url):
    page = browser.page()
    try:
        page.open(url)
        seconds = page.wait(PAINT) / 1000
        page.wait("config !== null")  # what the server is asked for afterwards ends before the next tab
        return seconds
    finally:
        page.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tern", default=str(ROOT / "build" / "release" / "tern"))
    parser.add_argument("--runs", type=int, default=11)
    args = parser.parse_args()
    program = find_chromium()
    if program is None:
        sys.exit("no Chromium: apt-get install chromium-headless-shell (or chromium), or name one in CHROMIUM")
    os.environ["TERN"] = args.tern
    from tern_server import Server  # reads TERN

    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(made)
        server, browser = Server(folder, "--max-model-len", 4096).wait_ready(), Browser(program, folder)
        try:
            found = [paint_of(browser, server.url) for _ in range(args.runs + 1)][1:]
        finally:
            browser.end()
            server.end()
    middle = statistics.median(found)
    print(f"first paint with content: {middle * 1000:.0f} ms, median of {', '.join(f'{s * 1000:.0f}' for s in found)}")
    rows.add("the page to its first paint with content, server idle", "bench/page_paint.py", round(middle, 4), "s",
             note=f"headless Chromium; median of {len(found)}, best {min(found):.3f} s")  # fmt: skip


if __name__ == "__main__":
    main()
