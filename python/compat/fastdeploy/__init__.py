"""FastDeploy's names over Tern, so that scripts and command lines written for FastDeploy run unchanged.

It is a package of its own and refuses to stand beside the real one: both could not be told apart.
"""

import importlib.metadata
import os
import sys

for _other in ("fastdeploy", "fastdeploy-gpu", "fastdeploy-cpu", "fastdeploy-python", "fastdeploy-gpu-python"):
    try:
        importlib.metadata.distribution(_other)
    except importlib.metadata.PackageNotFoundError:
        continue
    raise ImportError(f"{_other} is installed: uninstall it or tern-fastdeploy, both are called `fastdeploy`")


def __getattr__(name):
    import tern

    if name not in tern.__all__:
        raise AttributeError(f"module 'fastdeploy' has no attribute '{name}'")
    return getattr(tern, name)


def run_program(*words):
    """Becomes the program `tern` with these words in front of this process's arguments."""
    from tern.process import find_program

    program = find_program()
    os.execv(program, ["fastdeploy", *words, *sys.argv[1:]])


def main():
    run_program()
