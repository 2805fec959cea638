#!/usr/bin/env python3
"""Condenses ninja's output to a line every PERIOD seconds; what is no progress (errors, warnings) passes as it is.

  NINJA_STATUS='[%f/%t %e] ' ninja | build_progress.py [PERIOD]

Steps that come from the compiler cache take no time, so what is left is judged by the steps of the last minute.
"""

import collections
import re
import sys
import time

STEP = re.compile(r"\[(\d+)/(\d+) ([\d.]+)\] ")
PERIOD = 20.0


class Progress:
    """Tells the lines that a reader wants, given ninja's lines and the time."""

    def __init__(self, period, now):
        self.period, self.said = period, now
        self.recent = collections.deque([(now, 0)])

    def line(self, done, total, now):
        """The line to print now; None while it is not time for one."""
        self.recent.append((now, done))
        while len(self.recent) > 2 and self.recent[0][0] < now - 60:
            self.recent.popleft()
        if now - self.said < self.period:
            return None
        self.said = now
        (before, first), seconds = self.recent[0], ""
        if done > first:
            left = (total - done) * (now - before) / (done - first)
            seconds = f", about {left / 60:.0f} min left" if left >= 90 else f", about {max(left, 1):.0f} s left"
        return f"building: {done} of {total} steps{seconds}"


def main():
    begin = time.monotonic()
    progress = Progress(float(sys.argv[1]) if len(sys.argv) > 1 else PERIOD, begin)
    total = failed = 0
    for text in sys.stdin:
        step = STEP.match(text)
        if step is None:
            failed += text.startswith("FAILED: ")
            if text.strip() != "ninja: no work to do.":
                print(text, end="", flush=True)
            continue
        done, total = int(step[1]), int(step[2])
        if line := progress.line(done, total, time.monotonic()):
            print(line, flush=True)
    if total and not failed:
        print(f"built: {total} steps in {time.monotonic() - begin:.0f} s", flush=True)


if __name__ == "__main__":
    main()
