"""Where the text of a picture stands. Both renderers (the fast one for training, Pillow for the held-out pictures) follow it.

A layout is a canvas in pixels, texts with their left end on the baseline, and filled boxes; grey values are ink, 0 background
to 255 foreground. `answer` is what an exact reader writes: lines in reading order, columns joined by one space.
"""

import dataclasses, math, random
import ocr_text

FACTOR, MIN_PIXELS, MAX_PIXELS = 28, 4 * 28 * 28, 1280 * 28 * 28
KINDS = ("line", "receipt", "block", "page", "table")


def smart_resize(h, w, min_pixels=MIN_PIXELS, max_pixels=MAX_PIXELS):
    """Size after the resize rule of PaddleOCR-VL; rounding is half to even."""
    if h < FACTOR:
        w, h = round(w * FACTOR / h), FACTOR
    if w < FACTOR:
        h, w = round(h * FACTOR / w), FACTOR
    if max(h, w) / min(h, w) > 200:
        raise ValueError("aspect ratio over 200")
    hb, wb = round(h / FACTOR) * FACTOR, round(w / FACTOR) * FACTOR
    if hb * wb > max_pixels:
        b = math.sqrt(h * w / max_pixels)
        hb, wb = max(FACTOR, math.floor(h / b / FACTOR) * FACTOR), max(FACTOR, math.floor(w / b / FACTOR) * FACTOR)
    elif hb * wb < min_pixels:
        b = math.sqrt(min_pixels / (h * w))
        hb, wb = math.ceil(h * b / FACTOR) * FACTOR, math.ceil(w * b / FACTOR) * FACTOR
    return hb, wb


@dataclasses.dataclass
class Layout:
    kind: str
    width: int
    height: int
    texts: list  # (text, x, baseline, face, size, inverted, tracking)
    boxes: list  # (x0, y0, x1, y1, ink), drawn before the texts
    answer: str
    size: int  # smallest font size on it, px
    cells: list = None  # rows of cells of a table
    angle: float = 0.0  # degrees that the renderer shall turn it by


class Family:
    """The faces of one font family at the styles it has."""

    def __init__(self, name, faces):
        self.name, self.faces = name, faces

    def pick(self, r, bold=False):
        wanted = ("Bold", "Regular") if bold else ("Regular", "Regular", "Regular", "Bold", "Italic", "BoldItalic")
        return self.faces.get(r.choice(wanted) if not bold else wanted[0], self.faces["Regular"])


def wrap(text, width_of, limit):
    """Greedy line breaking; a word wider than the limit is cut."""
    lines, now, used, space = [], [], 0.0, width_of(" ")
    for w in text.split():
        n = width_of(w)
        while n > limit and len(w) > 1:
            k = max(1, int(len(w) * limit / n) - 1)
            if now:
                lines.append(" ".join(now))
                now, used = [], 0.0
            lines.append(w[:k])
            w = w[k:]
            n = width_of(w)
        if now and used + space + n > limit:
            lines.append(" ".join(now))
            now, used = [], 0.0
        used += n + (space if now else 0)
        now.append(w)
    if now:
        lines.append(" ".join(now))
    return lines


def make(r, kind, family, metrics, sizes, limit):
    """A layout of the kind. metrics(face, size) gives (width_of(text), ascent, descent); sizes (low, high) px; limit characters."""
    low, high = sizes
    size = round(math.exp(r.uniform(math.log(low), math.log(high + 0.49))))
    face, bold = family.pick(r), family.pick(r, True)
    tracking = 0 if r.random() < 0.85 else r.choice((1, 1, -1)) * max(1, round(size * 0.04)) if size > 12 else r.choice((0, 1))
    width_of0, ascent, descent = metrics(face, size)
    width_of = (lambda t: width_of0(t) + tracking * len(t)) if tracking else width_of0
    height = ascent + descent
    angle = 0.0 if r.random() < 0.55 else max(-3.0, min(3.0, r.gauss(0, 1.1)))
    texts, boxes, lines, cells = [], [], [], None
    tight = r.random()
    margin = lambda: (
        round(r.uniform(0.15, 0.6) * size)
        if tight < 0.55
        else round(r.uniform(0.3, 1.6) * size)
        if tight < 0.93
        else round(r.uniform(1.0, 4.0) * size)
    )
    left, top, right, bottom = margin(), margin(), margin(), margin()
    put = lambda t, x, y, f=face, s=size, inv=False, tr=tracking: texts.append((t, x, y, f, s, inv, tr))
    y = top + ascent
    inner = 0
    if kind == "line":
        text = ocr_text.line(r, limit)
        put(text, left, y)
        lines, inner = [text], width_of(text)
        if r.random() < 0.06:
            boxes.append((left, y + max(1, size // 10), left + inner, y + max(1, size // 10) + max(1, size // 16), 255))
    elif kind in ("block", "page"):
        count = limit if kind == "page" else r.randint(max(20, limit // 6), limit)
        per_line = r.randint(12, 60) if kind == "block" else r.randint(35, 80)
        area = max(size * 6, min(per_line * width_of("aeonst") / 6, 1900 if kind == "block" else 1150))
        gap = round(height * r.uniform(0.0, 0.5))
        align = r.random()
        paragraphs, left_over = [], count
        if kind == "page" and r.random() < 0.8:
            paragraphs.append(("title", ocr_text.line(r, 30).title() if r.random() < 0.7 else ocr_text.line(r, 30)))
        while left_over > 15:
            n = min(left_over, r.randint(60, 400) if kind == "page" else left_over)
            t = ocr_text.paragraph(r, n)
            if kind == "page" and r.random() < 0.12:
                t = r.choice(("- ", "* ", "1. ", "2. ", "(a) ")) + t
            paragraphs.append(("body", t))
            left_over -= len(t) + 1
        for i, (what, text) in enumerate(paragraphs):
            if what == "title":
                big = round(size * r.uniform(1.2, 1.8))
                w, a, d = metrics(bold, big)
                for t in wrap(text, w, area):
                    y += a - ascent
                    put(t, left, y, bold, big, False, 0)
                    lines.append(t)
                    inner = max(inner, w(t))
                    y += d + ascent + gap
                y += r.randint(0, size)
                continue
            parts = wrap(text, width_of, area)
            indent = (
                round(size * r.uniform(1, 2.5))
                if kind == "page" and r.random() < 0.2 and len(parts) > 1 and width_of(parts[0]) + 2.5 * size < area
                else 0
            )
            for j, t in enumerate(parts):
                n = width_of(t)
                x = (
                    left + (indent if j == 0 else 0)
                    if align < 0.8 or kind == "page"
                    else left + (area - n) / 2
                    if align < 0.92
                    else left + area - n
                )
                put(t, x, y)
                lines.append(t)
                inner = max(inner, x - left + n)
                y += height + gap
            if kind == "page":
                y += r.choice((0, gap, size // 2, size))
        y -= height + gap
    elif kind == "receipt":
        rows = ocr_text.receipt(r, limit)
        gap = round(height * r.uniform(0.0, 0.45))
        wide = metrics(bold, size)[0]
        measured = [
            (what, parts, emphasis, [(wide if emphasis else width_of)(p) for p in parts]) for what, parts, emphasis in rows
        ]
        inner = max((sum(n) + (2 * size if what == "pair" else 0) for what, _, _, n in measured), default=size)
        inner *= r.uniform(1.0, 1.35)
        thick, dashed = max(1, size // r.randint(10, 20)), r.random() < 0.5
        for what, parts, emphasis, n in measured:
            if what == "rule":
                at = round(y - ascent * 0.3)
                if dashed:
                    for k in range(0, int(inner), size):
                        boxes.append((left + k, at, left + min(k + size * 0.6, inner), at + thick, 255))
                else:
                    boxes.append((left, at, left + inner, at + thick, 255))
                y += round(height * 0.7) + gap
                continue
            f, tr = (bold, 0) if emphasis else (face, tracking)
            xs = [left + (inner - n[0]) / 2] if what == "center" else [left] if what == "left" else [left, left + inner - n[1]]
            for p, x in zip(parts, xs):
                put(p, x, y, f, size, False, tr)
            lines.append(" ".join(parts))
            y += height + gap
        y -= height + gap
    else:
        cells, head = ocr_text.table(r, limit)
        lines = [" ".join(row) for row in cells]
        wide, columns = metrics(bold, size)[0], len(cells[0])
        pad_x, pad_y = round(size * r.uniform(0.3, 1.2)), round(size * r.uniform(0.05, 0.6))
        measure = lambda i, t: (wide if head and i == 0 else width_of)(t)
        widths = [max(measure(i, row[c]) for i, row in enumerate(cells)) + 2 * pad_x for c in range(columns)]
        numeric = [r.random() < 0.5 for _ in range(columns)]
        style, thick, step = r.random(), max(1, size // r.randint(10, 24)), height + 2 * pad_y
        inner = sum(widths)
        ink, band = r.choice((255, 255, 180, 120)), r.random()
        inverted = head and band < 0.12
        if head and band < 0.35:
            boxes.append((left, top, left + inner, top + step, 255 if inverted else r.randint(15, 60)))
        if band > 0.85:
            shade = r.randint(10, 40)
            for i in range(1, len(cells), 2):
                boxes.append((left, top + i * step, left + inner, top + (i + 1) * step, shade))
        for i in range(len(cells) + 1):
            if style < 0.45 or (style < 0.75 and i in (0, int(head), len(cells))):
                boxes.append((left, top + i * step, left + inner + thick, top + i * step + thick, ink))
        if style < 0.4:
            x = left
            for w in [0] + widths:
                x += w
                boxes.append((x, top, x + thick, top + len(cells) * step + thick, ink))
        for i, row in enumerate(cells):
            x, y = left, top + i * step + pad_y + ascent
            for c, t in enumerate(row):
                b = head and i == 0
                put(
                    t,
                    x + (widths[c] - pad_x - measure(i, t) if numeric[c] else pad_x),
                    y,
                    bold if b else face,
                    size,
                    inverted and i == 0,
                    0 if b else tracking,
                )
                x += widths[c]
        y += pad_y
    w, h = left + inner + right, y + descent + bottom
    s = abs(math.sin(math.radians(angle)))
    dx, dy = s * h / 2, s * w / 2
    texts = [(t, x + dx, b + dy, *rest) for t, x, b, *rest in texts]
    boxes = [(a + dx, b + dy, c + dx, d + dy, ink) for a, b, c, d, ink in boxes]
    return Layout(kind, math.ceil(w + 2 * dx), math.ceil(h + 2 * dy), texts, boxes, "\n".join(lines), size, cells, angle)


def good(layout, low=0, high=10**9):
    """Whether it fits the model: not over the pixel limit, aspect ratio allowed, and the smallest text within low..high px after the resize rule."""
    w, h = layout.width, layout.height
    if max(w, h) > 100 * min(w, h) or not layout.answer:
        return False
    hb, wb = smart_resize(h, w)
    if h * w > MAX_PIXELS:
        return False
    return low <= layout.size * min(hb / h, wb / w) and layout.size * max(hb / h, wb / w) <= high
