#!/usr/bin/env python3
"""Draws the held-out pictures with Pillow: the same on every machine given the same fonts and versions of Pillow and NumPy.

Layouts and texts come from the generators of the training, with other seeds and only texts on the held-out side of the split;
the drawing is Pillow's own (kerning, turning, blur, JPEG), not that of the training. Sizes are those after the resize rule.
"""

import argparse, base64, hashlib, io, json, math, os, random
import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont
import layout as L
import ocr_text
from ocr_data import degrade

SEED = 20251121
# kinds with weights, sizes after the resize rule, highest number of characters, fonts
ROWS = {
    "lines": ({"line": 1}, (14, 40), 64, "train"),
    "receipts": ({"receipt": 1}, (14, 40), 330, "train"),
    "blocks": ({"block": 1}, (14, 40), 300, "train"),
    "pages": ({"page": 1}, (14, 30), 900, "train"),
    "tables": ({"table": 1}, (14, 40), 320, "train"),
    "fonts": ({"line": 5, "receipt": 2, "block": 2, "page": 0.4, "table": 1.5}, (14, 40), 300, "held_out"),
    "small": ({"line": 5, "receipt": 2, "block": 2, "table": 1.5}, (10, 13), 300, "train"),
    "otsl": ({"table": 1}, (14, 40), 320, "train"),
}


class Fonts:
    def __init__(self, folder):
        self.folder, self.cache, self.families = folder, {}, {"train": {}, "held_out": {}}
        with open(os.path.join(folder, "faces.json")) as f:
            for x in json.load(f)["faces"]:
                self.families[x["split"]].setdefault(x["family"], {})[x["style"]] = x["file"]
        self.families = {k: [L.Family(n, f) for n, f in sorted(v.items())] for k, v in self.families.items()}

    def get(self, face, size):
        if (face, size) not in self.cache:
            if len(self.cache) > 2000:
                self.cache.clear()
            self.cache[face, size] = ImageFont.truetype(
                os.path.join(self.folder, face), size, layout_engine=ImageFont.Layout.BASIC
            )
        return self.cache[face, size]

    def metrics(self, face, size):
        f = self.get(face, size)
        return (f.getlength, *f.getmetrics())


def draw(lay, fonts, look, r):
    """The picture as the bytes of a PNG or JPEG file. look: what ocr_data.degrade gives."""
    _, _, sx, sy, blur, noise, _, *rest = look
    fg, bg, shade = tuple(rest[0:3]), tuple(rest[3:6]), rest[6:8]
    image = Image.new("RGB", (lay.width, lay.height), bg)
    d = ImageDraw.Draw(image)
    mix = lambda ink: tuple(round(b + (f - b) * ink / 255) for f, b in zip(fg, bg))
    for x0, y0, x1, y1, ink in lay.boxes:
        if round(x1) > round(x0) and round(y1) > round(y0):
            d.rectangle((round(x0), round(y0), round(x1) - 1, round(y1) - 1), fill=mix(ink))
    for text, x, y, face, size, inverted, tracking in lay.texts:
        font, color = fonts.get(face, size), bg if inverted else fg
        if not tracking:
            d.text((x, round(y)), text, font=font, fill=color, anchor="ls")
        else:
            for c in text:
                d.text((x, round(y)), c, font=font, fill=color, anchor="ls")
                x += font.getlength(c) + tracking
    if lay.angle:
        image = image.rotate(lay.angle, Image.Resampling.BICUBIC, fillcolor=bg)
    if blur:
        image = image.filter(ImageFilter.GaussianBlur(blur * 0.75))
    if noise or any(shade):
        a = np.asarray(image, np.float32)
        h, w = a.shape[:2]
        rng = np.random.default_rng(r.getrandbits(64))
        a = a + (rng.standard_normal((h, w, 1), np.float32) * noise if noise else 0)
        a = a + (shade[0] * (np.arange(h) / h - 0.5)[:, None, None] + shade[1] * (np.arange(w) / w - 0.5)[None, :, None]) * 120
        image = Image.fromarray(a.round().clip(0, 255).astype(np.uint8))
    out = io.BytesIO()
    quality = 0 if look[6] == 0 else round(50 / look[6] if look[6] > 1 else (2 - look[6]) * 50)
    if quality:
        image.save(out, "JPEG", quality=max(quality, 30))
    else:
        image.save(out, "PNG")
    return out.getvalue()


def pictures(row, fonts, least=400, characters=40000, seed=SEED):
    """Pictures of a row until there are at least `least` with `characters` characters: dicts with id, row, prompt, answer, image."""
    kinds, (low, high), limit, split = ROWS[row]
    n = total = 0
    r = random.Random(f"held-out-{seed}-{row}")
    while n < least or total < characters:
        kind = r.choices(list(kinds), list(kinds.values()))[0]
        top = min(high, 30) if kind == "page" else high
        most = limit if kind != "line" else 64
        if kind == "page" and limit < 900:
            most = 600
        lay = L.make(
            r,
            kind,
            r.choice(fonts.families[split]),
            fonts.metrics,
            (low, top),
            most if kind in ("receipt", "table") else r.randint(1 if kind == "line" else 60 if kind == "block" else 300, most),
        )
        if not L.good(lay, low, high) or not ocr_text.held_out(lay.answer):
            continue
        hb, wb = L.smart_resize(lay.height, lay.width)
        size = lay.size * min(hb / lay.height, wb / lay.width)
        answer, prompt = lay.answer, "OCR:"
        if row == "otsl":
            answer, prompt = "".join("<fcel>" + "<fcel>".join(x) + "<nl>" for x in lay.cells), "Table Recognition:"
        yield dict(
            id=f"{row}-{n}",
            row=row,
            kind=kind,
            prompt=prompt,
            answer=answer,
            size=round(size, 1),
            image=draw(lay, fonts, degrade(r, size, lay.angle), r),
        )
        n, total = n + 1, total + len(answer)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--faces", default="build/fonts/faces", help="folder that fonts.py made (default %(default)s)")
    ap.add_argument(
        "--out", default="build/heldout", help="folder for ROW.jsonl, pictures inside as base64 (default %(default)s)"
    )
    ap.add_argument("--rows", default="lines,receipts,blocks,pages,tables,fonts,small,otsl")
    ap.add_argument("--least", type=int, default=400, help="pictures of a row, at least (default %(default)s)")
    ap.add_argument("--characters", type=int, default=40000, help="characters of a row, at least (default %(default)s)")
    a = ap.parse_args()
    os.makedirs(a.out, exist_ok=True)
    fonts = Fonts(a.faces)
    for row in a.rows.split(","):
        digest, n, c = hashlib.sha256(), 0, 0
        with open(os.path.join(a.out, row + ".jsonl"), "w") as f:
            for p in pictures(row, fonts, a.least, a.characters):
                text = json.dumps(dict(p, image=base64.b64encode(p["image"]).decode()))
                digest.update(text.encode())
                f.write(text + "\n")
                n, c = n + 1, c + len(p["answer"])
        print(f"{row:10} {n:5} pictures {c:7} characters  sha256 {digest.hexdigest()[:16]}", flush=True)


if __name__ == "__main__":
    main()
