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


class Maker:
    """A layout while it is made: `y` is the next baseline, `inner` the widest line so far."""

    def __init__(self, r, kind, family, metrics, sizes, limit):
        self.r, self.kind, self.metrics, self.limit = r, kind, metrics, limit
        low, high = sizes
        self.size = size = round(math.exp(r.uniform(math.log(low), math.log(high + 0.49))))
        self.face, self.bold = family.pick(r), family.pick(r, True)
        self.tracking = (
            0 if r.random() < 0.85 else r.choice((1, 1, -1)) * max(1, round(size * 0.04)) if size > 12 else r.choice((0, 1))
        )
        self.plain_width_of, self.ascent, self.descent = metrics(self.face, size)
        self.height = self.ascent + self.descent
        self.angle = 0.0 if r.random() < 0.55 else max(-3.0, min(3.0, r.gauss(0, 1.1)))
        self.texts, self.boxes, self.lines, self.cells = [], [], [], None
        tight = r.random()
        self.left, self.top, self.right, self.bottom = (self.margin(tight) for _ in range(4))
        self.y = self.top + self.ascent
        self.inner = 0

    def margin(self, tight):
        low, high = (0.15, 0.6) if tight < 0.55 else (0.3, 1.6) if tight < 0.93 else (1.0, 4.0)
        return round(self.r.uniform(low, high) * self.size)

    def width_of(self, text):
        return self.plain_width_of(text) + self.tracking * len(text) if self.tracking else self.plain_width_of(text)

    def put(self, text, x, y, face=None, size=None, inverted=False, tracking=None):
        tracking = self.tracking if tracking is None else tracking
        self.texts.append((text, x, y, face or self.face, size or self.size, inverted, tracking))

    def line(self):
        size, left, y = self.size, self.left, self.y
        text = ocr_text.line(self.r, self.limit)
        self.put(text, left, y)
        self.lines, self.inner = [text], self.width_of(text)
        if self.r.random() < 0.06:
            under = y + max(1, size // 10)
            self.boxes.append((left, under, left + self.inner, under + max(1, size // 16), 255))

    def paragraphs(self, count):
        """(title or body, text) of a block or a page."""
        r, kind = self.r, self.kind
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
        return paragraphs

    def title(self, text, area, gap):
        big = round(self.size * self.r.uniform(1.2, 1.8))
        w, a, d = self.metrics(self.bold, big)
        for t in wrap(text, w, area):
            self.y += a - self.ascent
            self.put(t, self.left, self.y, self.bold, big, False, 0)
            self.lines.append(t)
            self.inner = max(self.inner, w(t))
            self.y += d + self.ascent + gap
        self.y += self.r.randint(0, self.size)

    def body(self, text, area, gap, align):
        parts = wrap(text, self.width_of, area)
        indent = (
            round(self.size * self.r.uniform(1, 2.5))
            if self.kind == "page"
            and self.r.random() < 0.2
            and len(parts) > 1
            and self.width_of(parts[0]) + 2.5 * self.size < area
            else 0
        )
        for j, t in enumerate(parts):
            n = self.width_of(t)
            x = (
                self.left + (indent if j == 0 else 0)
                if align < 0.8 or self.kind == "page"
                else self.left + (area - n) / 2
                if align < 0.92
                else self.left + area - n
            )
            self.put(t, x, self.y)
            self.lines.append(t)
            self.inner = max(self.inner, x - self.left + n)
            self.y += self.height + gap
        if self.kind == "page":
            self.y += self.r.choice((0, gap, self.size // 2, self.size))

    def block(self):
        count = self.limit if self.kind == "page" else self.r.randint(max(20, self.limit // 6), self.limit)
        per_line = self.r.randint(12, 60) if self.kind == "block" else self.r.randint(35, 80)
        area = max(self.size * 6, min(per_line * self.width_of("aeonst") / 6, 1900 if self.kind == "block" else 1150))
        gap = round(self.height * self.r.uniform(0.0, 0.5))
        align = self.r.random()
        for what, text in self.paragraphs(count):
            if what == "title":
                self.title(text, area, gap)
            else:
                self.body(text, area, gap, align)
        self.y -= self.height + gap

    def receipt(self):
        rows = ocr_text.receipt(self.r, self.limit)
        gap = round(self.height * self.r.uniform(0.0, 0.45))
        wide = self.metrics(self.bold, self.size)[0]
        measured = [
            (what, parts, emphasis, [(wide if emphasis else self.width_of)(p) for p in parts]) for what, parts, emphasis in rows
        ]
        self.inner = max((sum(n) + (2 * self.size if what == "pair" else 0) for what, _, _, n in measured), default=self.size)
        self.inner *= self.r.uniform(1.0, 1.35)
        thick, dashed = max(1, self.size // self.r.randint(10, 20)), self.r.random() < 0.5
        for what, parts, emphasis, n in measured:
            if what == "rule":
                at = round(self.y - self.ascent * 0.3)
                if dashed:
                    for k in range(0, int(self.inner), self.size):
                        self.boxes.append((self.left + k, at, self.left + min(k + self.size * 0.6, self.inner), at + thick, 255))
                else:
                    self.boxes.append((self.left, at, self.left + self.inner, at + thick, 255))
                self.y += round(self.height * 0.7) + gap
                continue
            f, tr = (self.bold, 0) if emphasis else (self.face, self.tracking)
            xs = (
                [self.left + (self.inner - n[0]) / 2]
                if what == "center"
                else [self.left]
                if what == "left"
                else [self.left, self.left + self.inner - n[1]]
            )
            for p, x in zip(parts, xs):
                self.put(p, x, self.y, f, self.size, False, tr)
            self.lines.append(" ".join(parts))
            self.y += self.height + gap
        self.y -= self.height + gap

    def table(self):
        self.cells, head = ocr_text.table(self.r, self.limit)
        self.lines = [" ".join(row) for row in self.cells]
        wide, columns = self.metrics(self.bold, self.size)[0], len(self.cells[0])
        pad_x, pad_y = round(self.size * self.r.uniform(0.3, 1.2)), round(self.size * self.r.uniform(0.05, 0.6))
        measure = lambda i, t: (wide if head and i == 0 else self.width_of)(t)
        widths = [max(measure(i, row[c]) for i, row in enumerate(self.cells)) + 2 * pad_x for c in range(columns)]
        numeric = [self.r.random() < 0.5 for _ in range(columns)]
        style, thick, step = self.r.random(), max(1, self.size // self.r.randint(10, 24)), self.height + 2 * pad_y
        self.inner = sum(widths)
        ink, band = self.r.choice((255, 255, 180, 120)), self.r.random()
        inverted = head and band < 0.12
        if head and band < 0.35:
            self.boxes.append(
                (self.left, self.top, self.left + self.inner, self.top + step, 255 if inverted else self.r.randint(15, 60))
            )
        if band > 0.85:
            shade = self.r.randint(10, 40)
            for i in range(1, len(self.cells), 2):
                self.boxes.append((self.left, self.top + i * step, self.left + self.inner, self.top + (i + 1) * step, shade))
        for i in range(len(self.cells) + 1):
            if style < 0.45 or (style < 0.75 and i in (0, int(head), len(self.cells))):
                self.boxes.append(
                    (self.left, self.top + i * step, self.left + self.inner + thick, self.top + i * step + thick, ink)
                )
        if style < 0.4:
            x = self.left
            for w in [0] + widths:
                x += w
                self.boxes.append((x, self.top, x + thick, self.top + len(self.cells) * step + thick, ink))
        for i, row in enumerate(self.cells):
            x, self.y = self.left, self.top + i * step + pad_y + self.ascent
            for c, t in enumerate(row):
                b = head and i == 0
                self.put(
                    t,
                    x + (widths[c] - pad_x - measure(i, t) if numeric[c] else pad_x),
                    self.y,
                    self.bold if b else self.face,
                    self.size,
                    inverted and i == 0,
                    0 if b else self.tracking,
                )
                x += widths[c]
        self.y += pad_y

    def layout(self):
        w, h = self.left + self.inner + self.right, self.y + self.descent + self.bottom
        s = abs(math.sin(math.radians(self.angle)))
        dx, dy = s * h / 2, s * w / 2
        self.texts = [(t, x + dx, b + dy, *rest) for t, x, b, *rest in self.texts]
        self.boxes = [(a + dx, b + dy, c + dx, d + dy, ink) for a, b, c, d, ink in self.boxes]
        return Layout(
            self.kind,
            math.ceil(w + 2 * dx),
            math.ceil(h + 2 * dy),
            self.texts,
            self.boxes,
            "\n".join(self.lines),
            self.size,
            self.cells,
            self.angle,
        )


def make(r, kind, family, metrics, sizes, limit):
    """A layout of the kind. metrics(face, size) gives (width_of(text), ascent, descent); sizes (low, high) px; limit characters."""
    m = Maker(r, kind, family, metrics, sizes, limit)
    {"line": m.line, "block": m.block, "page": m.block, "receipt": m.receipt, "table": m.table}[kind]()
    return m.layout()


def good(layout, low=0, high=10**9):
    """Whether it fits the model: not over the pixel limit, aspect ratio allowed, and the smallest text within low..high px after the resize rule."""
    w, h = layout.width, layout.height
    if max(w, h) > 100 * min(w, h) or not layout.answer:
        return False
    hb, wb = smart_resize(h, w)
    if h * w > MAX_PIXELS:
        return False
    return low <= layout.size * min(hb / h, wb / w) and layout.size * max(hb / h, wb / w) <= high
