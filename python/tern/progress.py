"""A progress bar: tqdm's where it is installed, else a line of our own on a terminal."""

from __future__ import annotations

import sys
import time


class _Line:
    def __init__(self, total):
        self._total, self._done, self._start = total, 0, time.monotonic()
        self._shown = sys.stderr.isatty()

    def update(self, count):
        self._done += count
        if self._shown:
            rate = self._done / max(1e-9, time.monotonic() - self._start)
            sys.stderr.write(f"\rProcessed prompts: {self._done}/{self._total}, {rate:.1f}/s")
            sys.stderr.flush()

    def close(self):
        if self._shown:
            sys.stderr.write("\n")


class _None:
    def update(self, count):
        pass

    def close(self):
        pass


def bar(total, wanted):
    if not wanted:
        return _None()
    try:
        from tqdm import tqdm
    except ImportError:
        return _Line(total)
    return tqdm(total=total, desc="Processed prompts", dynamic_ncols=True)
