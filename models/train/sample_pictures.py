#!/usr/bin/env python3
"""Draws demo.png and takes a small sample of the held-out pictures (heldout_pictures.jsonl: id, row, prompt, answer, size, image as base64)."""

import argparse, base64, json, os
from PIL import Image, ImageDraw
from render_heldout import Fonts, pictures

DEMO = [
    ("center", ("Harbour Cafe",), 1),
    ("center", ("12 Quay Street, Oslo",), 0),
    ("center", ("21 Nov 2026   14:05",), 0),
    ("rule", (), 0),
    ("pair", ("2 x Espresso", "5.80"), 0),
    ("pair", ("Apple cake", "4.20"), 0),
    ("pair", ("Orange juice", "3.50"), 0),
    ("pair", ("Cheese sandwich", "6.90"), 0),
    ("rule", (), 0),
    ("pair", ("Total", "20.40"), 1),
    ("pair", ("Card", "20.40"), 0),
    ("center", ("Thank you for your visit!",), 0),
]


def demo(fonts, path):
    plain, bold, image = (
        fonts.get("DejaVuSans-Regular.ttf", 20),
        fonts.get("DejaVuSans-Bold.ttf", 20),
        Image.new("RGB", (364, 420), (252, 250, 244)),
    )
    d, y = ImageDraw.Draw(image), 44
    for kind, parts, strong in DEMO:
        font = bold if strong else plain
        if kind == "rule":
            for x in range(28, 336, 12):
                d.rectangle((x, y - 9, x + 6, y - 8), fill=(40, 40, 48))
            y += 22
            continue
        if kind == "center":
            d.text((182, y), parts[0], font=font, fill=(28, 28, 36), anchor="ms")
        else:
            d.text((28, y), parts[0], font=font, fill=(28, 28, 36), anchor="ls")
            d.text((336, y), parts[1], font=font, fill=(28, 28, 36), anchor="rs")
        y += 33
    image.save(path, "PNG", optimize=True)
    return "\n".join(" ".join(" ".join(parts).split()) for kind, parts, _ in DEMO if kind != "rule")


def main():
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("--faces", default="build/fonts/faces", help="default %(default)s")
    ap.add_argument("--out", default="models", help="default %(default)s")
    ap.add_argument("--bytes", type=int, default=17000, help="largest picture of the sample (default %(default)s)")
    a = ap.parse_args()
    fonts = Fonts(a.faces)
    answer = demo(fonts, os.path.join(a.out, "demo.png"))
    with open(os.path.join(a.out, "demo.txt"), "w") as f:
        f.write(answer + "\n")
    with open(os.path.join(a.out, "heldout_pictures.jsonl"), "w") as f:
        for row, count in (("lines", 6), ("receipts", 2), ("blocks", 3), ("tables", 1), ("fonts", 4)):
            taken = 0
            for p in pictures(row, fonts, 40, 0):
                if len(p["image"]) > a.bytes:
                    continue
                f.write(json.dumps(dict(p, image=base64.b64encode(p["image"]).decode())) + "\n")
                taken += 1
                if taken == count:
                    break


if __name__ == "__main__":
    main()
