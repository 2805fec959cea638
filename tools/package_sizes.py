#!/usr/bin/env python3
"""Weighs what make dist, make image and make cuda-image left, says it, and fails where a bar is passed.

  package_sizes.py [--unpacked FOLDER] FILE...     wheels, archives, Debian packages, images

--unpacked names the folder that became the image: then both sizes count. With RESULTS=FILE every size is a row for
docs/performance: tools/performance.py --merge FILE. MB are of 1,000,000 bytes.
"""

import argparse
import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools" / "gpu_check"))
import rows  # noqa: E402

# How a file's name begins: what it is, how it is made, the most it may weigh (MB; None: no bar).
KINDS = (
    ("tern_fastdeploy-", "wheel of FastDeploy's package name", "make dist", None),
    ("tern_cuda-", "wheel of the CUDA side, without NVIDIA's", "make dist", None),
    ("tern-cuda-image", "image for GPUs, with cuBLASLt", "make cuda-image", 1500),
    ("tern-image", "image for CPUs", "make image", 200),
    ("tern_", "Debian package", "make dist", None),
    ("tern-", "wheel for CPUs", "make dist", 60),
)
ARCHIVE = ("archive", "make dist", None)


def kind(name):
    """(what, command, bar) of a file; None where it is none of ours."""
    if name.endswith(".tar.gz"):
        return ARCHIVE
    return next((found[1:] for found in KINDS if name.startswith(found[0])), None)


def unpacked_bytes(folder):
    """Of all regular files, those with several names once."""
    files = (path.lstat() for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return sum({(found.st_dev, found.st_ino): found.st_size for found in files}.values())


def weigh(path, unpacked=None):
    """Says the size and leaves the row; gives what is wrong with it, None: nothing."""
    found = kind(path.name)
    if found is None:
        return f"{path.name} is nothing that make dist, make image or make cuda-image makes"
    what, command, bar = found
    packed = path.stat().st_size / 1e6
    size = packed if unpacked is None else unpacked_bytes(unpacked) / 1e6
    note = None if unpacked is None else f"{packed:.1f} MB packed"
    print(f"{path}  {size:.1f} MB{f' unpacked, {note}' if note else ''}")
    beside = {} if bar is None else {"reference": "most it may weigh", "reference_value": bar}
    rows.add(f"size: {what}", command, round(size, 1 if size >= 1 else 3), "MB", os.environ.get("RESULTS"), note=note, **beside)
    return None if bar is None or size <= bar else f"{path.name} is {size:.1f} MB, {bar} MB at most"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--unpacked", type=pathlib.Path, metavar="FOLDER")
    parser.add_argument("files", nargs="+", type=pathlib.Path, metavar="FILE")
    options = parser.parse_args()
    # In the place of a machine's name: sizes are the same everywhere.
    os.environ.setdefault("TERN_RESULTS_MACHINE", "Packages for x86-64 Linux")
    wrong = [said for path in options.files if (said := weigh(path, options.unpacked)) is not None]
    for said in wrong:
        print(f"package_sizes: {said}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
