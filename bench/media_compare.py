"""An A4 page from JPEG bytes to patches, beside Pillow and NumPy doing the same, in the same run, on one core.

    python3 bench/media_compare.py build/release/bench/bench_media

Needs Pillow and NumPy. Each of the two takes turns; the best time of each stage counts, of the process's CPU, so that a
busy machine disturbs less. The patches' values are checked by tests, not here.
"""

import io
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tools" / "gpu_check"))
import numpy as np  # noqa: E402
import PIL  # noqa: E402
import rows  # noqa: E402
from PIL import Image  # noqa: E402

MEAN = np.array([0.48145466, 0.4578275, 0.40821073], np.float32)
STD = np.array([0.26862954, 0.26130258, 0.27577711], np.float32)
# name: lowest and highest number of pixels, 2 x 2 blocks or raster order, frames per patch
MODELS = {
    "ernie": (3136, 4842768, True, 1),
    "paddleocr": (147384, 2822400, False, 1),
    "paddleocr-1m": (112896, 1003520, False, 1),
    "qwen2.5-vl": (3136, 12845056, True, 2),
}


def size_of(w, h, low, high, f=28):
    hb, wb = max(f, round(h / f) * f), max(f, round(w / f) * f)
    if hb * wb > high:
        b = math.sqrt(h * w / high)
        hb, wb = math.floor(h / b / f) * f, math.floor(w / b / f) * f
    elif hb * wb < low:
        b = math.sqrt(low / (h * w))
        hb, wb = math.ceil(h * b / f) * f, math.ceil(w * b / f) * f
    return wb, hb


def prepare(image, low, high, blocks, frames):
    """What the processors of the original do between the decoded picture and the patches (float32)."""
    w, h = size_of(*image.size, low, high)
    pixels = np.asarray(image.resize((w, h), Image.BICUBIC))
    x = (pixels * (1 / 255)).astype(np.float32)
    x = ((x - MEAN) / STD).transpose(2, 0, 1)
    if frames > 1:
        x = np.repeat(x[None], frames, axis=0)
    else:
        x = x[None]
    gh, gw = h // 14, w // 14
    if blocks:
        x = x.reshape(1, frames, 3, gh // 2, 2, 14, gw // 2, 2, 14).transpose(0, 3, 6, 4, 7, 2, 1, 5, 8)
    else:
        x = x.reshape(1, frames, 3, gh, 14, gw, 14).transpose(0, 3, 5, 2, 1, 4, 6)
    return np.ascontiguousarray(x).reshape(gh * gw, -1)


def cpu(call):
    start = time.process_time()
    result = call()
    return (time.process_time() - start) * 1e3, result


def decode(data):
    image = Image.open(io.BytesIO(data))
    image.load()
    return image.convert("RGB")


def ours(bench):
    out = subprocess.run(
        [
            bench,
            "--benchmark_filter=(decode/tern|fingerprint|patches_f32/.*)$",
            "--benchmark_min_time=0.2",
            "--benchmark_format=json",
        ],
        capture_output=True,
        check=True,
    )
    return {b["name"]: b["cpu_time"] for b in json.loads(out.stdout)["benchmarks"]}


def main():
    bench = sys.argv[1] if len(sys.argv) > 1 else "build/release/bench_media"
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "page.jpg")
        subprocess.run([bench, f"--write-page={path}"], check=True)
        data = open(path, "rb").read()
    best = {}
    mine = {}
    for _ in range(3):
        for name, value in ours(bench).items():
            mine[name] = min(value, mine.get(name, math.inf))
        for _ in range(3):
            t, image = cpu(lambda: decode(data))
            best["decode"] = min(t, best.get("decode", math.inf))
            for name, rule in MODELS.items():
                t, _ = cpu(lambda: prepare(image, *rule))
                best[name] = min(t, best.get(name, math.inf))
    print(f"Pillow {PIL.__version__}, NumPy {np.__version__}; ms of one core, best of 9")
    print(f"{'':14}{'Pillow+NumPy':>14}{'Tern':>8}{'times':>7}{'whole':>7}   (Tern with the fingerprint)")
    peer = f"Pillow {PIL.__version__} and NumPy {np.__version__}"

    def add(what, own, other):
        rows.add(
            what, "bench/media_compare.py", round(own, 2), "ms",
            reference=peer, reference_value=round(other, 2), reference_unit="ms", ratio=round(other / own, 2),
        )  # fmt: skip

    add("an A4 page from JPEG to pixels", mine["decode/tern"], best["decode"])
    print(f"{'decode':14}{best['decode']:14.2f}{mine['decode/tern']:8.2f}{best['decode'] / mine['decode/tern']:7.1f}")
    for name in MODELS:
        stages = [v for k, v in mine.items() if k.startswith(f"patches_f32/{name}/")]
        rest = min(stages) + mine["fingerprint"]
        whole = (best["decode"] + best[name]) / (mine["decode/tern"] + rest)
        add(f"the same page from pixels to patches of {name}", rest, best[name])
        print(f"{name:14}{best[name]:14.2f}{rest:8.2f}{best[name] / rest:7.1f}{whole:7.1f}")


if __name__ == "__main__":
    main()
