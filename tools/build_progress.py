#!/usr/bin/env python3
"""Runs a build by ninja and condenses its output to a line every PERIOD seconds; what is no progress (errors, warnings) passes
as it is. The last line says how the build ended, and the exit status is the build's.

  build_progress.py PERIOD COMMAND...

Steps that come from the compiler cache take no time, so what is left is judged by the steps of the last minute.
"""

import collections
import os
import re
import subprocess
import sys
import time

STEP = re.compile(r"\[(\d+)/(\d+) ([\d.]+)\] ")


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
    period, command = float(sys.argv[1]), sys.argv[2:]
    begin = time.monotonic()
    progress = Progress(period, begin)
    total = 0
    env = os.environ | {"NINJA_STATUS": "[%f/%t %e] "}
    build = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, errors="replace", env=env)
    for text in build.stdout:
        step = STEP.match(text)
        if step is None:
            if text.strip() != "ninja: no work to do.":
                print(text, end="", flush=True)
            continue
        done, total = int(step[1]), int(step[2])
        if line := progress.line(done, total, time.monotonic()):
            print(line, flush=True)
    status = build.wait()
    status = 128 - status if status < 0 else status  # ended by a signal: what a shell would say
    seconds = f"{time.monotonic() - begin:.0f} s"
    if status:
        print(f"the build failed after {seconds}: exit status {status}", flush=True)
    elif total:
        print(f"built: {total} steps in {seconds}", flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
