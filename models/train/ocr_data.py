"""Training batches of pictures and text, made by worker processes: drawn from cached glyphs and packed into one flat buffer.

A chunk holds T tokens and P patches of documents that do not see one another. The pictures travel as the ink of the canvas;
turning, blur, noise, JPEG, resizing and colours are the GPU's work (augment.py).
"""
import json, math, multiprocessing as mp, mmap, os, random
import numpy as np
import layout as L
import ocr_text

IMAGE_START, IMAGE, IMAGE_END, VIDEO, FCEL, ECEL, NL = range(2048, 2055)
BOS, EOS = 1, 2
INTS, FLOATS = 6, 16  # columns of the picture tables


class Shapes:
    """Sizes of a chunk and where its arrays lie in the buffer."""
    def __init__(self, tokens, patches, images=2048, documents=3072):
        self.T, self.P, self.N, self.D = tokens, patches, images, documents
        self.S = patches * 196 * 5 // 4 // 64 * 64
        self.arrays, at = {}, 0
        for name, dtype, shape in (("src", np.uint8, (self.S,)), ("imgi", np.int32, (self.N, INTS)), ("imgf", np.float32, (self.N, FLOATS)),
                                   ("patch", np.int16, (3, self.P)), ("block", np.int16, (3, self.S // 64)), ("ids", np.int16, (self.T + 1,)),
                                   ("pos", np.int16, (3, self.T + 1)), ("weight", np.uint8, (self.T + 1,)), ("slots", np.int32, (self.P // 4,)),
                                   ("cu_doc", np.int32, (self.D + 1,)), ("cu_img", np.int32, (self.N + 1,))):
            n = int(np.prod(shape)) * np.dtype(dtype).itemsize
            self.arrays[name] = (at, n, dtype, shape)
            at = (at + n + 255) // 256 * 256
        self.bytes = at

    def views(self, buffer):
        return {k: np.frombuffer(buffer, dtype, int(np.prod(shape)), at).reshape(shape) for k, (at, n, dtype, shape) in self.arrays.items()}


ASCII = [chr(c) for c in range(32, 127)]


def rasterise(folder, face, size):
    """All glyphs of a face at a size: bitmaps end to end, per glyph (offset, dx, dy, height, width), advances, ascent, descent."""
    from PIL import ImageFont
    font = ImageFont.truetype(os.path.join(folder, face), size, layout_engine=0)
    blob, table, at = [], np.zeros((95, 5), np.int32), 0
    for i, c in enumerate(ASCII):
        mask, (dx, dy) = font.getmask2(c, "L", anchor="ls")
        w, h = mask.size
        if not (w and h): w = h = 0
        else: blob.append(np.array(mask, np.uint8))
        table[i] = at, dx, dy, h, w
        at += w * h
    advance = np.array([font.getlength(c) for c in ASCII], np.float32)
    return (np.concatenate(blob), table, advance, *font.getmetrics())


def rasterise_face(job):
    folder, face, sizes = job
    return {(face, size): rasterise(folder, face, size) for size in sizes}


class Glyphs:
    """Glyph bitmaps of (face, size). `prepare` makes the usual sizes at once in many processes; others are made when asked for."""
    def __init__(self, folder, split="train"):
        self.folder, self.cache, self.ready = folder, {}, {}
        families = {}
        with open(os.path.join(folder, "faces.json")) as f:
            for x in json.load(f)["faces"]:
                if x["split"] == split: families.setdefault(x["family"], {})[x["style"]] = x["file"]
        self.families = [L.Family(k, v) for k, v in sorted(families.items())]

    def prepare(self, processes, sizes=range(9, 45)):
        with mp.get_context("fork").Pool(processes) as pool:
            for part in pool.imap_unordered(rasterise_face, [(self.folder, face, sizes) for f in self.families for face in f.faces.values()]): self.ready.update(part)

    def get(self, face, size):
        key = (face, size)
        if key not in self.cache:
            blob, table, advances, ascent, descent = self.ready.get(key) or rasterise(self.folder, face, size)
            if len(self.cache) > 3000: del self.cache[next(iter(self.cache))]
            advance = dict(zip(ASCII, advances.tolist()))
            glyphs = {c: (blob[o:o + h * w].reshape(h, w) if h else None, dx, dy, h, w, advance[c]) for c, (o, dx, dy, h, w) in zip(ASCII, table.tolist())}
            self.cache[key] = (glyphs, advance, ascent, descent)
        return self.cache[key]

    def metrics(self, face, size):
        _, advance, ascent, descent = self.get(face, size)
        return (lambda t: sum(map(advance.__getitem__, t))), ascent, descent

    def draw(self, layout):
        """The ink of the layout, uint8 [height, width], both rounded up to multiples of 8."""
        h, w = (layout.height + 7) // 8 * 8, (layout.width + 7) // 8 * 8
        out = np.zeros((h, w), np.uint8)
        for x0, y0, x1, y1, ink in layout.boxes: out[max(0, round(y0)):max(0, round(y1)), max(0, round(x0)):max(0, round(x1))] = ink
        for text, x, baseline, face, size, inverted, tracking in layout.texts:
            glyphs, y = self.get(face, size)[0], round(baseline)
            for c in text:
                bitmap, dx, dy, gh, gw, advance = glyphs[c]
                if bitmap is not None:
                    x0, y0 = round(x) + dx, y + dy
                    region = out[y0:y0 + gh, x0:x0 + gw] if x0 >= 0 and y0 >= 0 else out[:0]
                    if region.shape != bitmap.shape:
                        y1, x1 = max(y0, 0), max(x0, 0)
                        region = out[y1:y0 + gh, x1:x0 + gw]
                        bitmap = bitmap[y1 - y0:, x1 - x0:][:region.shape[0], :region.shape[1]]
                    if inverted: np.minimum(region, 255 - bitmap, out=region)
                    else: np.maximum(region, bitmap, out=region)
                x += advance + tracking
        return out


def degrade(r, size, angle):
    """The row of floats of a picture: cos, sin, scale x, scale y, blur px, noise, JPEG quantiser scale, fg rgb, bg rgb, shading x, y, -."""
    u = r.random()
    dark, light = r.randint(0, 70), r.randint(185, 255)
    if u < 0.4: fg, bg = (r.choice((0, 0, dark)),) * 3, (r.choice((255, 255, light)),) * 3
    elif u < 0.55: fg, bg = (r.choice((255, light)),) * 3, (r.choice((0, dark)),) * 3
    else:
        while True:
            fg, bg = [r.randint(0, 255) for _ in range(3)], [r.randint(0, 255) for _ in range(3)]
            if u < 0.85: bg = [255 - x // r.choice((3, 5, 9)) for x in bg]
            if r.random() < 0.25: fg, bg = bg, fg
            if abs(sum(a * (b - c) for a, b, c in zip((0.3, 0.59, 0.11), fg, bg))) > 70: break
    scale = (1.0, 1.0) if r.random() < 0.7 else (r.uniform(0.94, 1.06), r.uniform(0.94, 1.06))
    blur = 0.0 if r.random() < 0.5 else r.uniform(0.1, 1.0) * min(1.3, 0.055 * size)
    noise = 0.0 if r.random() < 0.4 else r.uniform(1, 18)
    quality = 0 if r.random() < 0.45 else r.randint(25, 95)
    jpeg = 0.0 if not quality else 50 / quality if quality < 50 else 2 - quality / 50
    shade = (0.0, 0.0) if r.random() < 0.6 else (r.uniform(-0.2, 0.2), r.uniform(-0.2, 0.2))
    a = math.radians(angle)
    return (math.cos(a), math.sin(a), *scale, blur, noise, jpeg, *fg, *bg, *shade, 0.0)


_orders, _blocks = {}, {}

def patch_order(rows, columns):
    """Row and column of each patch, 2x2 blocks together (raster order of blocks)."""
    if (rows, columns) not in _orders:
        y, x = np.mgrid[:rows, :columns].astype(np.int16)
        f = lambda a: a.reshape(rows // 2, 2, columns // 2, 2).transpose(0, 2, 1, 3).ravel()
        if len(_orders) > 3000: _orders.clear()
        _orders[rows, columns] = f(y), f(x)
    return _orders[rows, columns]


def mixture(p):
    """Weights of KINDS and limits of characters at the progress p of the training, 0 to 1."""
    if p < 0.03: return (1, 0, 0, 0, 0), (14, 0, 0, 0, 0)
    if p < 0.08: return (0.7, 0.1, 0.15, 0, 0.05), (40, 60, 60, 0, 50)
    if p < 0.16: return (0.45, 0.18, 0.22, 0.02, 0.13), (60, 160, 200, 250, 140)
    if p < 0.3: return (0.38, 0.19, 0.22, 0.06, 0.15), (60, 320, 310, 500, 250)
    return (0.34, 0.18, 0.21, 0.11, 0.16), (64, 340, 310, 1000, 330)


class Producer:
    def __init__(self, shapes, glyphs, tokenizer_file, seed, index):
        from tokenizers import Tokenizer
        from tasks import conversation
        from tokenizer import render
        self.s, self.rng = shapes, random.Random(f"ocr-{seed}-{index}")
        self.tok, self.conversation, self.render, self.cache = Tokenizer.from_file(tokenizer_file), conversation, render, {}
        self.glyphs = glyphs
        self.char = {c: self.tok.token_to_id(c) for c in ["\n"] + [chr(c) for c in range(32, 127)]}
        assert None not in self.char.values()
        self.before = [BOS] + self.encode("User: ") + [IMAGE_START]
        self.after = {t: [IMAGE_END] + self.encode(t + "\nAssistant:\n") for t in ("OCR:", "Table Recognition:")}
        self.pending = self.pending_text = None
        random.seed(f"{seed}-{index}")

    def encode(self, text):
        if text not in self.cache:
            if len(self.cache) > 200000: self.cache.clear()
            self.cache[text] = self.tok.encode(text, add_special_tokens=False).ids
        return self.cache[text]

    def picture(self, p):
        r = self.rng
        weights, limits = mixture(p)
        while True:
            k = r.choices(range(5), weights)[0]
            limit = limits[k] if L.KINDS[k] in ("receipt", "table") else r.randint(1 if k == 0 else 40, limits[k])
            top = r.choice((24, 44)) if L.KINDS[k] != "page" else r.choice((20, 30))
            lay = L.make(r, L.KINDS[k], r.choice(self.glyphs.families), self.glyphs.metrics, (9 if r.random() < 0.4 else 13, top), limit)
            if not L.good(lay, 8.5, 52) or ocr_text.held_out(lay.answer): continue
            ink = self.glyphs.draw(lay)
            h, w = ink.shape
            hb, wb = L.smart_resize(h, w)
            n = hb * wb // 784
            if h * w > L.MAX_PIXELS * 1.05 or hb * wb > L.MAX_PIXELS: continue
            task = "OCR:"
            if lay.cells and r.random() < 0.25:
                task = "Table Recognition:"
                answer = []
                for row in lay.cells:
                    for c in row: answer += [FCEL] + [self.char[x] for x in c]
                    answer.append(NL)
            else: answer = [self.char[x] for x in lay.answer]
            size = lay.size * min(hb / h, wb / w)
            return ink, hb // 14, wb // 14, degrade(r, size, lay.angle), self.before, self.after[task], answer + [EOS], len(self.before) + n + len(self.after[task]) + len(answer) + 1

    def text(self):
        ids, weight = [], []
        for text, own in self.render(self.conversation(self.rng)):
            part = self.encode(text)
            ids += part; weight += [2 if own else 1] * len(part)
        weight[0] = 0
        return ids[:1024], weight[:1024]

    def fill(self, v, p, text_share=0.1):
        """Writes one chunk into the views v; p is the progress of the training."""
        s = self.s
        T = s.T + 1
        at = patches = pixels = n = d = 0
        v["weight"][:] = 0
        v["ids"][:] = 0
        v["pos"][:] = 0
        stop = int(T * (1 - text_share * self.rng.uniform(0.7, 1.3)))
        free_rows = np.arange(s.P // 4, dtype=np.int32)
        while n < s.N - 1 and d < s.D - 200:
            self.pending = self.pending or self.picture(p)
            ink, rows, columns, floats, before, after, answer, length = self.pending
            if at + length > stop or patches + rows * columns > s.P or pixels + ink.size > s.S: break
            self.pending = None
            h, w = ink.shape
            v["src"][pixels:pixels + ink.size].reshape(h // 8, w // 8, 8, 8)[:] = ink.reshape(h // 8, 8, w // 8, 8).transpose(0, 2, 1, 3)
            by, bx = _blocks.setdefault((h // 8, w // 8), None) or tuple(a.ravel().astype(np.int16) for a in np.mgrid[:h // 8, :w // 8])
            b0, b1 = pixels // 64, (pixels + ink.size) // 64
            v["block"][0, b0:b1], v["block"][1, b0:b1], v["block"][2, b0:b1] = n, by, bx
            v["imgi"][n] = pixels, h, w, rows, columns, 0
            v["imgf"][n] = floats
            py, px = patch_order(rows, columns)
            k = rows * columns
            v["patch"][0, patches:patches + k], v["patch"][1, patches:patches + k], v["patch"][2, patches:patches + k] = n, py, px
            m, a = k // 4, at + len(before)
            v["slots"][patches // 4:patches // 4 + m] = np.arange(a, a + m)
            v["ids"][at:at + length] = before + [IMAGE] * m + after + answer
            cur = len(before)
            v["pos"][:, at:a] = np.arange(cur)
            v["pos"][0, a:a + m], v["pos"][1, a:a + m], v["pos"][2, a:a + m] = cur, cur + py[::4] // 2, cur + px[::4] // 2
            tail = length - cur - m
            cur += max(rows, columns) // 2
            v["pos"][:, a + m:at + length] = np.arange(cur, cur + tail)
            v["weight"][at + length - len(answer):at + length] = 3
            v["cu_doc"][d], v["cu_img"][n] = at, patches
            at, patches, pixels, n, d = at + length, patches + k, pixels + ink.size, n + 1, d + 1
        v["cu_img"][n:] = np.minimum(patches + 4096 * np.arange(s.N + 1 - n), s.P)  # padding is pictures of its own: attention must write every row
        v["imgi"][n:] = v["imgi"][0]
        v["imgf"][n:] = v["imgf"][0]
        v["patch"][:, patches:] = 0
        v["block"][:, pixels // 64:] = 0
        v["src"][pixels:] = 0
        v["slots"][patches // 4:] = s.T + free_rows[:s.P // 4 - patches // 4]
        while d < s.D - 1:
            self.pending_text = self.pending_text or self.text()
            ids, weight = self.pending_text
            if at + len(ids) > T: break
            self.pending_text = None
            v["ids"][at:at + len(ids)], v["weight"][at:at + len(ids)] = ids, weight
            v["pos"][:, at:at + len(ids)] = np.arange(len(ids))
            v["cu_doc"][d] = at
            at, d = at + len(ids), d + 1
        # What is left is documents of padding. The last token is a label only.
        v["cu_doc"][d:] = np.minimum(min(at, s.T) + 2048 * np.arange(s.D + 1 - d), s.T)
        return n, d, at, patches


def work(shapes, glyphs, tokenizer_file, seed, index, memory, free, full, progress):
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    os.nice(5)
    producer = Producer(shapes, glyphs, tokenizer_file, seed, index)
    while True:
        slot = free.get()
        if slot is None: return
        producer.fill(shapes.views(memoryview(memory)[slot * shapes.bytes:(slot + 1) * shapes.bytes]), progress.value)
        full.put(slot)


class Stream:
    """Chunks from `workers` processes through shared memory. Start it before the GPU is touched (it forks)."""
    def __init__(self, shapes, faces, tokenizer_file, seed, workers, slots=None):
        glyphs = Glyphs(faces)
        glyphs.prepare(workers)
        ctx = mp.get_context("fork")
        slots = slots or workers + 6
        self.shapes, self.memory = shapes, mmap.mmap(-1, shapes.bytes * slots)
        self.free, self.full, self.progress = ctx.Queue(), ctx.Queue(), ctx.Value("d", 0.0)
        for i in range(slots): self.free.put(i)
        self.processes = [ctx.Process(target=work, args=(shapes, glyphs, tokenizer_file, seed, i, self.memory, self.free, self.full, self.progress), daemon=True) for i in range(workers)]
        for p in self.processes: p.start()

    def read(self, out):
        """Copies the next chunk into `out`, a uint8 array of shapes.bytes; the number of finished chunks that still wait."""
        slot = self.full.get()
        np.copyto(out, np.frombuffer(self.memory, np.uint8, self.shapes.bytes, slot * self.shapes.bytes))
        self.free.put(slot)
        return self.full.qsize()

    def close(self):
        for p in self.processes: p.terminate()
