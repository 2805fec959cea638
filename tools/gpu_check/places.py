"""Where the programs, the data and the results lie: in a checkout, or in an unpacked gpu-pack."""

import fcntl
import os
import pathlib
import shutil
import site
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent


class Places:
    """TERN_CHECK_BIN: folder of the programs. TERN_CHECK_DATA: folder with models/ and tests/data/.
    TERN_CHECK_OUT: folder of the results. TERN_CHECK_CASES: folder of the shared reference cases.
    TERN_CHECK_DEVICE: value of --device (default cuda)."""

    def __init__(self):
        checkout = HERE.parent.parent
        pack = HERE.parent
        in_pack = (pack / "cuda_ops_test").exists()
        self.root = pathlib.Path(os.environ.get("TERN_CHECK_DATA", pack if in_pack else checkout))
        folders = (
            [pathlib.Path(os.environ["TERN_CHECK_BIN"])]
            if "TERN_CHECK_BIN" in os.environ
            else [pack]
            if in_pack
            else [checkout / "build" / "release", checkout / "build" / "cuda"]
        )
        self.folders = [f.resolve() for f in folders if f.is_dir()]
        self.out = pathlib.Path(os.environ.get("TERN_CHECK_OUT", (pack if in_pack else checkout / "build") / "gpu_check"))
        if in_pack and "TERN_CHECK_OUT" not in os.environ:
            self.out = pack / "results"
        self.device = os.environ.get("TERN_CHECK_DEVICE", "cuda")
        self.commit = self.find_commit(pack, checkout)
        self.scratch = self.out / "scratch"

    def find_commit(self, pack, checkout):
        if "TERN_CHECK_COMMIT" in os.environ:
            return os.environ["TERN_CHECK_COMMIT"]
        if (pack / "COMMIT").exists():
            return (pack / "COMMIT").read_text().split()[0]
        done = subprocess.run(["git", "-C", str(checkout), "rev-parse", "HEAD"], capture_output=True, text=True)
        return done.stdout.strip() or "unknown"

    @property
    def on_gpu(self):
        return self.device != "cpu"

    def program(self, name):
        for folder in self.folders:
            if os.access(folder / name, os.X_OK):
                return str(folder / name)
        raise FileNotFoundError(f"no {name} in " + ", ".join(map(str, self.folders)))

    @property
    def tern(self):
        return self.program("tern")

    def libraries(self):
        """Folders for cuda_ops_test: its own, and where Python keeps NVIDIA's wheels."""
        flags = []
        for folder in [*self.folders, *site.getsitepackages()]:
            flags += ["--library", str(folder)]
        return flags

    def golden_small(self):
        """One tiny case for every option: tests/data/golden_s."""
        base = self.root / "tests" / "data" / "golden_s"
        return sorted(p.parent for p in base.glob("*/golden.json"))

    def golden(self):
        """Folders of reference cases: the shared ones and those of the repository, each name once."""
        found = {}
        shared = os.environ.get("TERN_CHECK_CASES")
        for base in [pathlib.Path(shared)] if shared else []:
            found.update({p.name: p for p in sorted(base.iterdir()) if (p / "golden.json").exists()})
        base = self.root / "tests" / "data" / "golden"
        if base.is_dir():
            for p in sorted(base.iterdir()):
                if (p / "golden.json").exists():
                    found.setdefault(p.name, p)
        return [found[k] for k in sorted(found)] or self.make_golden()

    def case(self, name):
        return next(c for c in self.golden() if c.name == name)

    def maker(self):
        for path in (
            self.root / "tools" / "golden" / "make_golden.py",
            HERE.parent / "make_golden.py",
            HERE.parent / "golden" / "make_golden.py",
        ):
            if path.exists():
                return path
        raise FileNotFoundError("no make_golden.py")

    def make_golden(self):
        """A pack carries no cases: they are made once (needs PyTorch and transformers)."""
        folder = self.out / "cases"
        self.out.mkdir(parents=True, exist_ok=True)
        with open(self.out / "cases.lock", "w") as lock:  # stages ask from several threads and processes
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not folder.is_dir():
                print("making the reference cases", flush=True)
                part = self.fresh("cases")
                subprocess.run([sys.executable, str(self.maker()), str(part)], check=True, stdout=subprocess.DEVNULL, timeout=400)
                part.rename(folder)
        return sorted(p.parent for p in folder.glob("*/golden.json"))

    def model(self):
        return self.root / "models" / "tern-demo-ocr"

    def fresh(self, name):
        folder = self.scratch / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return folder
