#!/usr/bin/env python3
"""Makes the wheels of python/ out of a folder that tools/dist_tree.sh made.

  wheels.py TREE FOLDER      writes tern-VERSION-py3-none-manylinux_2_28_x86_64.whl,
                             tern_fastdeploy-VERSION-py3-none-any.whl and, where the tree has the CUDA side,
                             tern_cuda-VERSION-py3-none-manylinux_2_28_x86_64.whl into FOLDER

The first holds the program with its libraries and the model that ships in tern/bin; the third puts the CUDA side beside the
program, which looks for it there, and brings cuBLAS along as a dependency. All serve every Python from 3.9. Names, versions and
commands come from the pyproject.toml files. The same input makes the same bytes.
"""

import argparse
import base64
import hashlib
import pathlib
import subprocess
import sys
import tomllib
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PLATFORM = "manylinux_2_28_x86_64"
CUDA = "libtern_cuda.so"
# Of the tree, but not of the program's wheel (nor are links, which a zip file has not): what a package index shows by itself,
# and the side for GPUs, which has a wheel of its own.
LEFT_OUT = {"README.md", "install", "share", CUDA}
MOMENT = (2020, 1, 1, 0, 0, 0)


class Wheel:
    def __init__(self, folder, project, tag):
        self.project, self.tag = project, tag
        name = project["name"].replace("-", "_")
        self.path = folder / f"{name}-{project['version']}-{tag}.whl"
        self.info = f"{name}-{project['version']}.dist-info"
        self.records = []
        self.zip = zipfile.ZipFile(self.path, "w", zipfile.ZIP_DEFLATED, compresslevel=9)

    def add(self, name, data, executable=False):
        entry = zipfile.ZipInfo(name, MOMENT)
        entry.external_attr = (0o100755 if executable else 0o100644) << 16
        entry.compress_type = zipfile.ZIP_DEFLATED
        self.zip.writestr(entry, data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        self.records.append(f"{name},sha256={digest},{len(data)}")

    def add_folder(self, folder, prefix, suffix=""):
        for path in sorted(folder.rglob("*")):
            inside = path.relative_to(folder)
            if path.is_symlink() or not path.is_file() or inside.parts[0] in LEFT_OUT or "__pycache__" in inside.parts:
                continue
            if path.name.endswith(suffix):
                self.add(f"{prefix}/{inside.as_posix()}", path.read_bytes(), path.stat().st_mode & 0o100 != 0)

    def close(self):
        self.add(f"{self.info}/METADATA", metadata(self.project).encode())
        pure = "true" if self.tag.endswith("-any") else "false"
        lines = ["Wheel-Version: 1.0", "Generator: tools/wheels.py", f"Root-Is-Purelib: {pure}", f"Tag: {self.tag}"]
        self.add(f"{self.info}/WHEEL", ("\n".join(lines) + "\n").encode())
        scripts = self.project.get("scripts", {})
        text = "[console_scripts]\n" + "".join(f"{name} = {place}\n" for name, place in scripts.items())
        self.add(f"{self.info}/entry_points.txt", text.encode())
        self.add(f"{self.info}/licenses/LICENSE", (ROOT / "LICENSE").read_bytes())
        self.records.append(f"{self.info}/RECORD,,")
        entry = zipfile.ZipInfo(f"{self.info}/RECORD", MOMENT)
        entry.external_attr = 0o100644 << 16
        entry.compress_type = zipfile.ZIP_DEFLATED
        self.zip.writestr(entry, "\n".join(self.records) + "\n")
        self.zip.close()


def metadata(project):
    lines = ["Metadata-Version: 2.1", f"Name: {project['name']}", f"Version: {project['version']}"]
    lines += [f"Summary: {project['description']}", "License: Apache-2.0", f"Requires-Python: {project['requires-python']}"]
    lines += [f"Requires-Dist: {name}" for name in project.get("dependencies", [])]
    for extra, names in project.get("optional-dependencies", {}).items():
        lines.append(f"Provides-Extra: {extra}")
        lines += [f'Requires-Dist: {name}; extra == "{extra}"' for name in names]
    text = "\n".join(lines) + "\n"
    if "readme" in project:
        text += "Description-Content-Type: text/markdown\n\n" + (ROOT / "python" / project["readme"]).read_text()
    return text


def project_of(folder):
    return tomllib.loads((folder / "pyproject.toml").read_text())["project"]


def make(tree, folder):
    """Gives the paths of the wheels; a string where they cannot be made."""
    main, compat, cuda = (project_of(ROOT / "python" / place) for place in (".", "compat", "cuda"))
    version = subprocess.run([tree / "tern", "version"], capture_output=True, text=True, check=True).stdout.split()[1]
    for project in (main, compat, cuda):
        if project["version"] != version:
            return f"the program is version {version}, pyproject.toml of {project['name']} says {project['version']}"
    folder.mkdir(parents=True, exist_ok=True)
    program = Wheel(folder, main, f"py3-none-{PLATFORM}")
    program.add_folder(ROOT / "python/tern", "tern", ".py")
    program.add_folder(tree, "tern/bin")
    program.close()
    names = Wheel(folder, compat, "py3-none-any")
    names.add_folder(ROOT / "python/compat/fastdeploy", "fastdeploy", ".py")
    names.close()
    made = [program.path, names.path]
    if (tree / CUDA).is_file():
        side = Wheel(folder, cuda, f"py3-none-{PLATFORM}")
        side.add(f"tern/bin/{CUDA}", (tree / CUDA).read_bytes(), executable=True)
        side.close()
        made.append(side.path)
    for old in folder.glob("tern_cuda-*.whl"):  # of an earlier build
        if old not in made:
            old.unlink()
    return made


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tree", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    options = parser.parse_args()
    if not (options.tree / "tern").is_file():
        print(f"wheels: {options.tree} holds no program; tools/dist_tree.sh makes such a folder", file=sys.stderr)
        return 1
    made = make(options.tree, options.folder)
    if isinstance(made, str):
        print(f"wheels: {made}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
