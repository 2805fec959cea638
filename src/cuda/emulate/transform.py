# Turns CUDA sources into C++ for emulate.h: transform.py SOURCES OUT. Launches become calls of emu::launch, dynamic
# shared memory a pointer; a few headers have twins here.
import os
import pathlib
import re
import sys


def split_arguments(text):
    parts, depth, current = [], 0, ""
    for c in text:
        depth += (c in "([{") - (c in ")]}")
        if c == "," and depth == 0:
            parts.append(current)
            current = ""
        else:
            current += c
    return parts + [current]


def closing(text, at):
    """Index of the parenthesis that closes the one at `at`."""
    depth = 0
    for i in range(at, len(text)):
        depth += (text[i] == "(") - (text[i] == ")")
        if depth == 0:
            return i
    raise ValueError("a launch is not closed")


def replace_launch(text):
    at = text.index("<<<")
    kernel = re.search(r"([A-Za-z_]\w*(?:<[^<>;]*>)?)\s*$", text[:at])
    end = text.index(">>>", at)
    grid, block, shared = split_arguments(text[at + 3 : end])[:3]
    begin = text.index("(", end)
    last = closing(text, begin)
    call = f"emu::launch(dim3({grid}), dim3({block}), {shared}, [&] {{ {kernel.group(1)}({text[begin + 1 : last]}); }})"
    return text[: kernel.start()] + call + text[last + 1 :]


def transform(text):
    text = re.sub(r"extern __shared__ (?:__align__\(16\) )?(\w+) (\w+)\[\];", r"\1* \2 = static_cast<\1*>(emu::dynamic());", text)
    text = re.sub(r"cudaFuncSetAttribute\([^;]*\);", "cudaSuccess;", text)
    while "<<<" in text:
        text = replace_launch(text)
    return '#include "cuda/emulate/emulate.h"\n' + text


def main():
    source, out = (pathlib.Path(folder) for folder in sys.argv[1:3])
    for path in sorted(source.rglob("*.cu")) + sorted(source.rglob("*.cuh")):
        if path.parent.name == "emulate":
            continue
        name = path.name
        if name.endswith("_sm90.cu"):
            text = ""  # chosen on Hopper only, and written in its instructions: hopper_absent.cc stands for it
        elif name in ("mma.cuh", "launch.cuh", "cluster_count.cuh", "peer_access.cuh"):
            twin = name.replace(".cuh", "_emulated.cuh")
            text = f'#pragma once\n#include "cuda/emulate/{twin}"\n'
        else:
            text = transform(path.read_text())
        to = out / path.relative_to(source)
        os.makedirs(to.parent, exist_ok=True)
        to.with_name(name if name.endswith(".cuh") else name + ".cc").write_text(text)


main()
