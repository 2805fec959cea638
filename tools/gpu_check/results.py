"""Checks of one stage, and the table of all stages of a commit."""

import json
import time


class Stage:
    def __init__(self, name):
        self.name, self.checks, self.figures, self.rows = name, [], {}, []
        self.began = time.monotonic()

    def check(self, ok, name, detail=""):
        self.checks.append(dict(ok=bool(ok), name=name, detail=str(detail)[:2000]))
        if not ok:
            print(f"  FAIL {name}: {detail}", flush=True)
        return bool(ok)

    def say(self, text):
        print(f"  {text}", flush=True)

    def figure(self, name, value):
        self.figures[name] = value
        self.say(f"{name}: {value}")

    def row(self, what, measured, unit, **more):
        """A figure of docs/performance (rows.py)."""
        self.rows.append(dict(what=what, measured=float(f"{measured:.5g}"), unit=unit, **more))

    def record(self):
        if not self.checks:
            self.check(False, "empty", "the stage checked nothing")
        passed = sum(c["ok"] for c in self.checks)
        return dict(
            passed=passed,
            failed=len(self.checks) - passed,
            seconds=round(time.monotonic() - self.began, 1),
            failures=[c for c in self.checks if not c["ok"]][:50],
            figures=self.figures,
        )


class Table:
    """OUT/COMMIT.json: {"commit", "machine", "stages": {name: record}}. A later run of a stage replaces the earlier."""

    def __init__(self, folder, commit, machine):
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"{commit}.json"
        self.data = dict(commit=commit, machine=machine, stages={})
        if self.path.exists():
            self.data["stages"] = json.loads(self.path.read_text())["stages"]

    def put(self, name, record):
        self.data["stages"][name] = record
        part = self.path.with_suffix(".part")
        part.write_text(json.dumps(self.data, indent=1))
        part.replace(self.path)

    def show(self, wanted):
        """Prints the stages of this commit; a wanted one that never ran counts as failed. Returns (passed, failed)."""
        print(f"\ncommit {self.data['commit'][:12]}  {self.data['machine']}")
        print(f"{'stage':16} {'passed':>7} {'failed':>7} {'seconds':>8}")
        passed = failed = 0
        stages = self.data["stages"]
        for name in [*wanted, *[n for n in stages if n not in wanted]]:
            record = stages.get(name)
            if name in wanted:
                passed += record["passed"] if record else 0
                failed += record["failed"] if record else 1
            if record is None:
                print(f"{name:16} {'not run':>15}")
                continue
            print(
                f"{name:16} {record['passed']:7} {record['failed']:7} {record['seconds']:8.1f}"
                f"{'' if name in wanted else '  (of an earlier call)'}"
            )
            for c in record["failures"][:5]:
                print(f"    {c['name']}: {c['detail'].splitlines()[0][:150] if c['detail'] else ''}")
            for key, value in record.get("figures", {}).items():
                print(f"    {key}: {value}")
        print(f"{passed} passed, {failed} failed")
        return passed, failed
