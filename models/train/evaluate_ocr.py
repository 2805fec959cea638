#!/usr/bin/env python3
"""Scores a checkpoint in PyTorch on the held-out pictures (render_heldout.py) and on the text tasks, greedy decoding."""

import argparse, base64, collections, concurrent.futures, io, json, os, time
import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from tokenizers import Tokenizer
import layout as L
from ocr_data import BOS, EOS, IMAGE, IMAGE_END, IMAGE_START, patch_order
from ocr_model import load_checkpoint
from ocr_score import Table


def pixels(data):
    """File bytes to patches [P, 588] float32 in 2x2-block order, rows, columns."""
    image = Image.open(io.BytesIO(data)).convert("RGB")
    h, w = L.smart_resize(image.height, image.width)
    a = np.asarray(image.resize((w, h), Image.Resampling.BICUBIC), np.float32) * np.float32(1 / 255)
    a = ((a - 0.5) / 0.5).reshape(h // 14, 14, w // 14, 14, 3).transpose(0, 2, 4, 1, 3).reshape(h // 14, w // 14, 588)
    y, x = patch_order(h // 14, w // 14)
    return torch.from_numpy(a[y, x]), h // 14, w // 14


class Reader:
    def __init__(self, folder, device, dtype=torch.bfloat16):
        self.model, self.device, self.dtype = load_checkpoint(folder, device, dtype), device, dtype
        self.tok = Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))

    def encode(self, text):
        return self.tok.encode(text, add_special_tokens=False).ids

    def prompt(self, text, grid):
        """ids and positions [3, n] of a question about a picture of `grid` (rows, columns) patches, or of a plain text when None."""
        if grid is None:
            ids = self.encode(text)
            return ids, np.tile(np.arange(len(ids)), (3, 1))
        before, after = [BOS] + self.encode("User: ") + [IMAGE_START], [IMAGE_END] + self.encode(text + "\nAssistant:\n")
        gh, gw = grid[0] // 2, grid[1] // 2
        n, cur = gh * gw, len(before)
        i = np.arange(n)
        pos = np.concatenate(
            (
                np.tile(np.arange(cur), (3, 1)),
                np.stack((i * 0 + cur, cur + i // gw, cur + i % gw)),
                np.tile(np.arange(len(after)) + cur + max(gh, gw), (3, 1)),
            ),
            1,
        )
        return before + [IMAGE] * n + after, pos

    @torch.no_grad()
    def embed(self, images):
        """Tokens of the pictures, one after another."""
        y, x, rows, columns = ([], [], [], [])
        for _, h, w in images:
            a, b = patch_order(h, w)
            y.append(a)
            x.append(b)
            rows.append(np.full(len(a), h))
            columns.append(np.full(len(a), w))
        to = lambda v: torch.from_numpy(np.concatenate(v).astype(np.int32)).to(self.device)
        cu = torch.tensor(np.cumsum([0] + [h * w for _, h, w in images]), dtype=torch.int32, device=self.device)
        patches = torch.cat([p for p, _, _ in images]).to(self.device, self.dtype)
        return self.model.see(patches, to(y), to(x), to(rows), to(columns), cu, max(h * w for _, h, w in images)).to(self.dtype)

    @torch.no_grad()
    def answer(self, prompts, images, most):
        """Greedy ids for a batch; prompts as of `prompt`, images with their patches (None for text)."""
        m, B, d = self.model, len(prompts), self.device
        lengths = torch.tensor([len(p[0]) for p in prompts], device=d)
        width = int(lengths.max())
        ids, pos = torch.zeros(B, width, dtype=torch.long), torch.zeros(3, B, width, dtype=torch.long)
        for i, (a, p) in enumerate(prompts):
            ids[i, : len(a)], pos[:, i, : len(a)] = torch.tensor(a), torch.from_numpy(p)
        ids, pos = ids.to(d), pos.to(d)
        following = torch.tensor([int(p.max()) + 1 for _, p in prompts], device=d)
        x = m.model.embed_tokens(ids)
        seen = [im for im in images if im is not None]
        if seen:
            x[ids == IMAGE] = self.embed(seen)
        heads, kv = m.config["num_attention_heads"], m.config["num_key_value_heads"]
        cache = [torch.zeros(2, B, kv, width + most, m.config["head_dim"], dtype=self.dtype, device=d) for _ in m.model.layers]

        def run(x, pos, at, mask):
            cos, sin = m.rope(pos)
            for layer, c in zip(m.model.layers, cache):
                q, k, v = layer.self_attn.qkv(layer.input_layernorm(x), cos, sin)
                n = x.shape[1]
                c[0][:, :, at : at + n], c[1][:, :, at : at + n] = k.transpose(1, 2), v.transpose(1, 2)
                kk, vv = (t[:, :, : at + n].repeat_interleave(heads // kv, 1) for t in c)
                o = F.scaled_dot_product_attention(q.transpose(1, 2), kk, vv, attn_mask=mask, is_causal=mask is None)
                x = x + layer.self_attn.o_proj(o.transpose(1, 2).flatten(-2))
                x = x + layer.mlp(layer.post_attention_layernorm(x))
            return m.model.norm(x)

        x = run(x, pos, 0, None)[torch.arange(B, device=d), lengths - 1]
        live, out = torch.ones(B, dtype=torch.bool, device=d), torch.full((B, most), EOS, device=d)
        column = torch.arange(width + most, device=d)
        for step in range(most):
            token = m.logits(x).argmax(-1)
            token = torch.where(live, token, EOS)
            out[:, step] = token
            live &= token != EOS
            if step % 16 == 15 and not live.any():
                break
            if step + 1 == most:
                break
            mask = ((column[None] < lengths[:, None]) | (column[None] >= width))[:, None, None, : width + step + 1]
            x = run(
                m.model.embed_tokens(token)[:, None], (following + step)[None, :, None].expand(3, -1, -1), width + step, mask
            )[:, 0]
        return [r[: r.index(EOS)] if EOS in r else r for r in out.tolist()]

    def many(self, questions, most, tokens=500000):
        """questions: (text, image bytes or None) in any order; texts of the answers, batches by length."""
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            images = list(pool.map(lambda q: pixels(q[1]) if q[1] else None, questions))
        prompts = [self.prompt(t, im and im[1:]) for (t, _), im in zip(questions, images)]
        order, out, at = sorted(range(len(prompts)), key=lambda i: -len(prompts[i][0])), [None] * len(prompts), 0
        while at < len(order):
            n = max(1, min(512, tokens // (len(prompts[order[at]][0]) + most)))
            part = order[at : at + n]
            for i, ids in zip(part, self.answer([prompts[i] for i in part], [images[i] for i in part], most)):
                out[i] = self.tok.decode(ids, skip_special_tokens=False)
            at += n
        return out


def text_tasks(reader, count):
    """The text tasks of the language model, which pictures must not have spoilt."""
    from tasks import test_set
    from tokenizer import prompt_text

    rows = test_set("held_out", count)
    got = reader.many([(prompt_text(r["messages"]), None) for r in rows], 128)
    right = collections.defaultdict(list)
    for r, g in zip(rows, got):
        right[r["task"]].append(g == r["answer"])
    print("text tasks", f"{sum(map(sum, right.values())) / len(rows):.4f}", {k: f"{sum(v)}/{len(v)}" for k, v in right.items()})
    return dict(exact_match=sum(map(sum, right.values())) / len(rows), per_task={k: [sum(v), len(v)] for k, v in right.items()})


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("model", help="checkpoint folder")
    ap.add_argument("--heldout", default="build/heldout", help="folder that render_heldout.py wrote (default %(default)s)")
    ap.add_argument("--rows", default="lines,receipts,blocks,pages,tables,fonts,small,otsl")
    ap.add_argument("--count", type=int, default=0, help="only the first so many pictures of a row")
    ap.add_argument("--text", type=int, default=2000, help="held-out prompts of the text tasks (default %(default)s)")
    ap.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    ap.add_argument("--float32", action="store_true", help="float32 arithmetic instead of bfloat16")
    ap.add_argument("--show-errors", type=int, default=3, help="wrong readings to print for each row (default %(default)s)")
    ap.add_argument("--out", help="file for the scores as JSON")
    a = ap.parse_args()
    reader, table, results = (
        Reader(a.model, a.device, torch.float32 if a.float32 or a.device == "cpu" else torch.bfloat16),
        Table(),
        {},
    )
    for row in filter(None, a.rows.split(",")):
        start = time.time()
        with open(os.path.join(a.heldout, row + ".jsonl")) as f:
            cases = [json.loads(x) for x in f]
        cases = cases[: a.count] if a.count else cases
        got = reader.many(
            [(c["prompt"], base64.b64decode(c["image"])) for c in cases], max(len(c["answer"]) for c in cases) + 100
        )
        wrong, kinds = 0, Table()
        for c, g in zip(cases, got):
            if row == "otsl":
                c["answer"], g = (t.replace("<nl>", "\n").replace("<fcel>", "|") for t in (c["answer"], g))
            table.add(row, c["answer"], g)
            kinds.add(c["kind"], c["answer"], g)
            if c["answer"] != g and wrong < a.show_errors:
                wrong += 1
                print("wrong:", c["id"], c["size"], "\n  ", repr(c["answer"]), "\n  ", repr(g))
        print(
            row,
            f"{time.time() - start:.1f} s",
            {k: s["error_rate"] for k, s in kinds.scores().items()} if len(kinds.rows) > 1 else "",
            flush=True,
        )
    table.print()
    results["pictures"] = table.scores()
    if a.text:
        results["text"] = text_tasks(reader, a.text)
    if a.out:
        with open(a.out, "w") as f:
            json.dump(results, f, indent=1)
            f.write("\n")


if __name__ == "__main__":
    main()
