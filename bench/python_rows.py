#!/usr/bin/env python3
"""What the Python package costs beside the program: importing it, starting an LLM, prompts of text, pictures.

  python_rows.py [--tern build/release/tern] [--model models/tern-demo-ocr] [--prompts 2000] [--input 200] [--output 100]
                 [--max-num-seqs 64] [--flags '{"load_choices": "dummy"}'] [--pictures 1000] [--turns 5]
                 [--only import,start,prompts,pictures]

Start: LLM() in a fresh process against `tern serve` on a Unix socket until it answers, in turns. Prompts: LLM.generate() of
random ids, each with a full answer, against `tern bench throughput` with the same flags (--flags: more of them), in turns.
Pictures: of 1000 x 1000 pixels, as arrays and as PIL pictures where Pillow is installed, answered from a script without a
model; the time is what this process used of a core, from the call to its end.
"""

import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tools" / "gpu_check"), str(ROOT / "python")]
import rows  # noqa: E402

COMMAND = "bench/python_rows.py"
IMPORT = "import time; a = time.perf_counter(); import tern; print(time.perf_counter() - a)"
START = """
import sys, time
import tern
a = time.perf_counter()
llm = tern.LLM(sys.argv[1], max_num_seqs=8, max_model_len=1024)
print(time.perf_counter() - a)
llm.close()
"""
SERVE = """
import http.client, socket, subprocess, sys, time
a = time.perf_counter()
flags = ["--max-num-seqs", "8", "--max-model-len", "1024", "--exit-with-stdin", "true"]
child = subprocess.Popen([sys.argv[2], "serve", "--model", sys.argv[1], "--uds", sys.argv[3], *flags],
                         stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
while True:
    s = socket.socket(socket.AF_UNIX)
    try:
        s.connect(sys.argv[3])
        s.sendall(b"GET /health HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n")
        if s.recv(4096).startswith(b"HTTP/1.1 200"):
            break
    except OSError:
        time.sleep(0.002)
    s.close()
print(time.perf_counter() - a)
child.stdin.close()
child.wait()
"""


def seconds(script, *args):
    done = subprocess.run([sys.executable, "-c", script, *map(str, args)], stdout=subprocess.PIPE, check=True, text=True)
    return float(done.stdout)


def said(figures, unit):
    """The median, and for a row's note the others."""
    return statistics.median(figures), f"median of {len(figures)}, {min(figures):.3g} to {max(figures):.3g} {unit}"


def imports(args):
    took, note = said([seconds(IMPORT) * 1e3 for _ in range(args.turns)], "ms")
    print(f"import tern: {took:.2f} ms ({note})", flush=True)
    rows.add("Python: import tern", COMMAND, round(took, 2), "ms", note=note)


def starts(args):
    llm, serve = [], []
    for _ in range(args.turns):
        llm.append(seconds(START, args.model) * 1e3)
        with tempfile.TemporaryDirectory() as folder:
            serve.append(seconds(SERVE, args.model, args.tern, f"{folder}/socket") * 1e3)
    (took, note), (base, _) = said(llm, "ms"), said(serve, "ms")
    print(f"LLM(): {took:.1f} ms ({note}); tern serve: {base:.1f} ms; beyond it {took - base:.1f} ms", flush=True)
    rows.add("Python: LLM() until it takes prompts", COMMAND, round(took, 1), "ms", reference="tern serve on a Unix socket",
             reference_value=round(base, 1), reference_unit="ms", note=f"{took - base:.1f} ms beyond it; {note}")  # fmt: skip


def prompts(args):
    from tern import LLM, SamplingParams
    from tern.process import flags_of

    flags = {"max_num_seqs": args.max_num_seqs, "max_model_len": args.input + args.output + 64, "enable_prefix_caching": False}
    flags.update(json.loads(args.flags))
    size = json.loads((pathlib.Path(args.model) / "config.json").read_text())["vocab_size"]
    draw = random.Random(1)
    asked = [[draw.randrange(100, min(size, 2000)) for _ in range(args.input)] for _ in range(args.prompts)]
    params = SamplingParams(max_tokens=args.output, min_tokens=args.output, ignore_eos=True)
    ours, theirs, own = [], [], []
    for _ in range(args.turns):
        with LLM(args.model, **flags) as llm:
            llm.generate(asked[:8], params, use_tqdm=False)
            begun, used = time.perf_counter(), time.process_time()
            outputs = llm.generate(asked, params, use_tqdm=False)
            took = time.perf_counter() - begun
            own.append((time.process_time() - used) / args.prompts * 1e6)
        tokens = sum(len(x.outputs.token_ids) for x in outputs)
        if tokens != args.prompts * args.output:
            sys.exit(f"{tokens} tokens came, not {args.prompts * args.output}")
        ours.append(args.prompts / took)
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "result.json"
            command = [args.tern, "bench", "throughput", "--model", args.model, "--input-len", args.input, "--output-len"]
            command += [args.output, "--num-prompts", args.prompts, "--output-json", file, *flags_of(flags)]
            subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL)
            theirs.append(json.loads(file.read_text())["requests_per_second"])
    (rate, note), (base, _), (spent, _) = said(ours, "prompts/s"), said(theirs, ""), said(own, "us")
    print(f"generate(): {rate:.2f} prompts/s ({note}), {spent:.0f} us of a core each; bench throughput: {base:.2f}; "
          f"{rate / base:.1%}", flush=True)  # fmt: skip
    what = f"Python: generate(), {args.prompts} prompts of {args.input} in, {args.output} out, {pathlib.Path(args.model).name}"
    rows.add(what, COMMAND, round(rate, 2), "prompts/s", reference="tern bench throughput", reference_value=round(base, 2),
             reference_unit="prompts/s", ratio=round(rate / base, 3), note=f"{spent:.0f} us of a core each in Python; {note}")  # fmt: skip


def pictures(args):
    import numpy
    from tern import LLM, SamplingParams

    arrays = [numpy.random.default_rng(i).integers(0, 256, (1000, 1000, 3), numpy.uint8) for i in range(8)]
    kinds = {"arrays": arrays}
    try:
        from PIL import Image
    except ImportError:
        print("no Pillow: PIL pictures are left out")
    else:
        kinds["PIL pictures"] = [Image.fromarray(array) for array in arrays]
    with tempfile.TemporaryDirectory() as folder:
        script = pathlib.Path(folder) / "script.jsonl"
        script.write_text(json.dumps({"match": "", "text": "a word or two"}))
        for name, made in kinds.items():
            contents = [
                [{"type": "image", "image": made[i % len(made)]}, {"type": "text", "text": "OCR:"}] for i in range(args.pictures)
            ]
            chats = [[{"role": "user", "content": content}] for content in contents]
            with LLM(args.model, scripted=str(script), max_num_seqs=64, max_model_len=8192) as llm:
                llm.chat(chats[:8], SamplingParams(max_tokens=4), use_tqdm=False)
                used = time.process_time()
                outputs = llm.chat(chats, SamplingParams(max_tokens=4), use_tqdm=False)
                spent = (time.process_time() - used) / args.pictures * 1e3
            if bad := [x.error_msg for x in outputs if x.error_code != 200]:
                sys.exit(bad[0])
            print(f"{args.pictures} {name} of 1 Mpx: {spent:.2f} ms of Python's own time each", flush=True)
            rows.add(f"Python: {args.pictures} {name} of 1 Mpx, its own time each", COMMAND, round(spent, 2), "ms of one core")


def main():
    parts = {"import": imports, "start": starts, "prompts": prompts, "pictures": pictures}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tern", default=str(ROOT / "build" / "release" / "tern"))
    parser.add_argument("--model", default=str(ROOT / "models" / "tern-demo-ocr"))
    for name, value in (
        ("prompts", 2000),
        ("input", 200),
        ("output", 100),
        ("max-num-seqs", 64),
        ("pictures", 1000),
        ("turns", 5),
    ):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--flags", default="{}", help="of LLM() and tern bench throughput, JSON")
    parser.add_argument("--only", default=",".join(parts), help="parts of it, by comma")
    args = parser.parse_args()
    os.environ.update(TERN=args.tern, PYTHONPATH=str(ROOT / "python"))
    for name in args.only.split(","):
        parts[name](args)


if __name__ == "__main__":
    main()
