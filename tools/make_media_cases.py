#!/usr/bin/env python3
"""Makes tests/data/media: small pictures in every mode, hostile files, and a table of what Pillow and NumPy make of them.

    python3 -m venv /tmp/v && /tmp/v/bin/pip install pillow==12.3.0 numpy
    /tmp/v/bin/python tools/make_media_cases.py [--shared DIR]

--shared DIR (a folder of real pictures) only rewrites shared.tsv, the table of those. The pictures themselves are
committed: encoders of another version may write other bytes."""

import argparse
import pathlib
import random
import sys

import PIL
from PIL import ImageOps

from media_cases import hostile, pictures, reference, tiffs, upright

PILLOW = "12.3.0"
OUT = pathlib.Path(__file__).resolve().parent.parent / "tests" / "data" / "media"
SIZES = [(1, 1), (1, 100), (100, 1), (28, 28), (500, 3), (3, 500), (130, 84), (56, 28), (61, 97), (2, 2), (777, 13), (98, 62)]
RESIZED = [
    "scene.png",
    "scene_420.jpg",
    "rgba8.png",
    "palette4.png",
    "cmyk.jpg",
    "size_1x1.jpg",
    "size_300x1.jpg",
    "size_1x300.jpg",
    "size_3x900.jpg",
    "size_7x5.jpg",
    "size_8x17.jpg",
] + [f"tiny_{w}x3.bmp" for w in range(1, 12)]
MODELS = [
    ("ernie", 3136, 4842768),
    ("ernie", 50176, 100352),
    ("paddleocr", 147384, 2822400),
    ("paddleocr", 3136, 12544),
    ("qwen", 3136, 12845056),
    ("folded", 3136, 37632),
]
SHARED_SIZES = [
    ("bicubic", 336, 252),
    ("bicubic", 1008, 756),
    ("bicubic", 28, 2800),
    ("lanczos", 123, 457),
    ("bilinear", 640, 96),
]


def write_table(path, rows):
    with open(path, "w") as out:
        out.write(f"# Made by tools/make_media_cases.py with Pillow {PIL.__version__}; hashes are SHA-256.\n")
        for row in rows:
            out.write("\t".join(str(v) for v in row) + "\n")
    print(f"{path.name}: {sum(1 for _ in open(path)) - 1} rows")


def smart_rows():
    """Sizes for the resize rules, around every edge: half factors, ratio 200, pixel limits."""
    draw = random.Random(7)
    sizes = [
        (42, 70),
        (14, 14),
        (27, 1),
        (1, 27),
        (28, 5600),
        (28, 5601),
        (5600, 28),
        (5601, 28),
        (1, 1),
        (1, 200),
        (1, 201),
        (10000, 49),
        (1240, 1754),
        (4000, 3000),
        (16384, 16384),
        (65535, 400),
        (13, 2600),
        (98, 126),
    ]
    sizes += [(draw.randint(1, 4000), draw.randint(1, 4000)) for _ in range(40)]
    sizes += [(28 * draw.randint(1, 60) + 14, 28 * draw.randint(1, 60) + 14) for _ in range(20)]
    for rule in ("ernie", "paddleocr", "qwen"):
        for low, high in ((3136, 4842768), (147384, 2822400), (3136, 12845056), (101920, 1003520), (1000, 2000)):
            for w, h in sizes:
                for keep in (0, 1) if high == 2000 else (0,):
                    got = reference.smart_resize(rule, w, h, low, high, keep=bool(keep)) or (0, 0)
                    yield ("smart", rule, w, h, low, high, keep, *got)


def hostile_rows(folder):
    folder.mkdir(parents=True, exist_ok=True)
    for name, data, outcome in hostile.all_cases():
        (folder / name).write_bytes(data)
        try:
            reference.opened(data).convert("RGB")
            pillow = "ok"
        except Exception:  # whatever it raises: the picture is refused
            pillow = "error"
        if (outcome == "ok") != (pillow == "ok"):
            print(f"  differs from Pillow: {name}: {outcome}, Pillow: {pillow}")
        yield ("hostile", name, outcome, pillow)


def own_rows():
    made = {**pictures.all_pictures(), **tiffs.all_tiffs(), **upright.all_upright()}
    for name, data in made.items():
        (OUT / name).write_bytes(data)
        sizes = [(kind, w, h) for kind in reference.FILTERS for w, h in SIZES] if name in RESIZED else []
        models = MODELS if name in ("scene.png", "scene_420.jpg", "size_300x1.jpg") else []
        yield from reference.rows_of(name, data, sizes, models)
    for turn in range(1, 9):
        im = ImageOps.exif_transpose(reference.opened(made[f"turn{turn}.jpg"]))
        yield ("upright", f"turn{turn}.jpg", *im.size, reference.sha(im.tobytes()))


def shared_rows(folder):
    for path in sorted(folder.iterdir()):
        if path.suffix not in (".png", ".jpg", ".gif", ".webp"):
            continue
        try:
            yield from reference.rows_of(path.name, path.read_bytes(), SHARED_SIZES, MODELS[:1] + MODELS[2:3] + MODELS[4:5])
        except OSError:
            yield ("refused", path.name)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=pathlib.Path)
    arguments = parser.parse_args()
    if PIL.__version__ != PILLOW:
        sys.exit(f"this table is pinned to Pillow {PILLOW}, not {PIL.__version__}")
    OUT.mkdir(parents=True, exist_ok=True)
    if arguments.shared:
        write_table(OUT / "shared.tsv", shared_rows(arguments.shared))
        return
    write_table(OUT / "cases.tsv", own_rows())
    write_table(OUT / "smart.tsv", smart_rows())
    write_table(OUT / "hostile.tsv", hostile_rows(OUT / "hostile"))
    total = sum(p.stat().st_size for p in OUT.rglob("*") if p.is_file())
    print(f"{total} bytes in all")


if __name__ == "__main__":
    main()
