#!/usr/bin/env python3
"""Which kernels a step launches on an H100, in what order and with what grids, without a GPU: starts `tern bench decode`
with a CUDA library that only notes launches (cudart.cc) and compares what the captured graphs hold with launches.txt.

  launches.py [--write] [--full DIR] [--tern PROGRAM] [--library FOLDER]

--write replaces launches.txt; --full writes every case as text, to be compared with those of another commit. Models are
those of bench/shapes with random weights and at most four layers; each in both modes (FD_DETERMINISTIC_MODE)."""

import argparse
import hashlib
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[3]
MODELS = ["ernie-4.5-0.3b", "qwen3-8b", "qwen3-30b-a3b", "paddleocr-vl-0.9b", "deepseek-v3"]
ROWS = [1, 2, 4, 8, 16, 32, 64, 100, 256]
PROMPTS = [1024, 8192]
LAYERS = 4
IN_FULL = {"qwen3-8b fast decode 8", "qwen3-30b-a3b deterministic decode 1"}
# Over two ranks, of which the first one's launches are noted; what shares the model.
SHARED = [("qwen3-8b", "--tensor-parallel-size 2"), ("qwen3-30b-a3b", "--tensor-parallel-size 2 --enable-expert-parallel")]


def graphs(text):
    """Lists of launches, one per captured graph; benchmarks of single kernels have one kernel each."""
    found = [part.strip("\n").split("\n") for part in text.split("graph\n")]
    return [lines for lines in found if len({line.split("  ")[0] for line in lines}) > 1]


def record(args, model, deterministic, sequences, more=""):
    """The graphs of one start: decode steps of ROWS up to `sequences`, then prompts, then sampling."""
    shapes = '{"cudagraph_capture_sizes":[%s],"cudagraph_capture_sizes_prefill":[%s],"max_capture_shape_prefill":%d}' % (
        ",".join(str(n) for n in ROWS if n <= sequences),
        ",".join(map(str, PROMPTS)),
        max(PROMPTS),
    )
    with tempfile.TemporaryDirectory() as tmp:
        notes = pathlib.Path(tmp) / "launches"
        environment = dict(
            os.environ,
            TERN_RECORD=str(notes),
            TERN_CUDA_LIBRARY=str(args.library),
            LD_LIBRARY_PATH=str(args.library),
            FD_DETERMINISTIC_MODE="1" if deterministic else "0",
            XDG_CACHE_HOME=tmp,
        )
        command = [args.tern, "bench", "decode", "--model", ROOT / "bench/shapes" / model, "--load-choices", "dummy"]
        command += ["--model-override", '{"num_hidden_layers":%d}' % LAYERS, "--device", "cuda", "--repeats", "1"]
        command += ["--batch", str(sequences), "--context", "8", "--tokens", "2", "--serve-flags"]
        command += [f"--graph-optimization-config {shapes} --max-num-batched-tokens {max(PROMPTS)} --max-model-len 8448 {more}"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
        if not notes.exists():
            raise SystemExit(f"{model}: nothing was recorded\n{done.stdout}{done.stderr}")
        return graphs(notes.read_text())


def names(sequences):
    """Of the graphs of one start, in the order in which they are captured."""
    rows = [n for n in ROWS if n <= sequences]
    few = [n for n in (4, 16, 64) if n < sequences] + [sequences]
    return [f"decode {n}" for n in rows] + [f"prompts {tokens} of {n}" for tokens in PROMPTS for n in few]


def cases(args):
    for model in MODELS:
        for deterministic in (False, True):
            mode = "deterministic" if deterministic else "fast"
            for sequences in (max(ROWS), 1):
                found = record(args, model, deterministic, sequences)
                known = names(sequences)
                for i, launches in enumerate(found):
                    if sequences == 1 and i == 0:
                        continue  # the decode step of one row is the larger start's, too
                    if i < len(known):
                        yield f"{model} {mode} {known[i]}" + (" alone" if sequences == 1 else ""), launches
                    elif model == MODELS[0] and sequences > 1:
                        yield f"sampling {mode} {i - len(known)}", launches
    for model, more in SHARED:
        found = record(args, model, False, max(ROWS), more)
        for name, launches in zip(names(max(ROWS)), found):
            yield f"{model} of 2 ranks {name}", launches


def sheet(found):
    lines = ["# Launches of a step: case, how many, hash of kernels with grids in their order; two cases in full."]
    for name, launches in found:
        lines.append(f"{name}: {len(launches)} {hashlib.sha256(chr(10).join(launches).encode()).hexdigest()[:16]}")
        if name in IN_FULL:
            lines += ["  " + line for line in launches]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--full", type=pathlib.Path)
    parser.add_argument("--tern", type=pathlib.Path, default=ROOT / "build/release/tern")
    parser.add_argument("--library", type=pathlib.Path, default=ROOT / "build/cuda/recorded")
    args = parser.parse_args()
    found = list(cases(args))
    if args.full:
        args.full.mkdir(parents=True, exist_ok=True)
        for name, launches in found:
            (args.full / name.replace(" ", "_")).write_text("\n".join(launches) + "\n")
    text, kept = sheet(found), HERE / "launches.txt"
    if args.write:
        kept.write_text(text)
    was, now = (set(t.splitlines()) for t in (kept.read_text(), text))
    for line in sorted(was ^ now):
        print(("-" if line in was else "+") + line)
    print(f"{len(found)} cases, {len(was ^ now)} lines differ")
    return 1 if was != now or len(found) < 100 else 0


if __name__ == "__main__":
    sys.exit(main())
