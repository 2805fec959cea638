#!/usr/bin/env python3
"""Trains the OCR model on one or more GPUs (torchrun) and saves float32 weights (export_ocr.py makes the checkpoint of them).

Pictures and conversations come from ocr_data.py. Matrices inside the layers are updated by Muon (momentum made orthogonal),
all else by AdamW. Weights are float32, arithmetic is bfloat16. The rates rise, stay, and fall along a line to zero over the
last part of the progress; progress is time, so that a run ends when it should. --from and --to let a run do a part of it.
"""

import argparse, glob, json, os, sys, threading, time


def muon_groups(model):
    groups = {}
    for name, p in model.named_parameters():
        if p.ndim == 2 and "embed" not in name:
            groups.setdefault(tuple(p.shape), []).append(p)
    return groups


def orthogonal(g, torch):
    """Newton-Schulz iteration towards the nearest orthogonal matrix, for a stack of matrices."""
    x = g.bfloat16()
    tall = x.shape[-2] > x.shape[-1]
    if tall:
        x = x.mT
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        a = x @ x.mT
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * (a @ a)) @ x
    return x.mT if tall else x


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--faces", default="build/fonts/faces", help="folder that fonts.py made (default %(default)s)")
    ap.add_argument(
        "--text-model", default="build/text-model", help="text model that the decoder starts from (default %(default)s)"
    )
    ap.add_argument("--tokenizer", default="build/text-model/tokenizer.json", help="default %(default)s")
    ap.add_argument("--out", required=True, help="folder for the float32 weights, in four parts")
    ap.add_argument("--resume", help="folder of an earlier run: float32 copies, or a checkpoint")
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--seconds", type=float, default=600, help="time of this run, compilation not counted (default %(default)s)")
    ap.add_argument(
        "--until",
        type=float,
        help="end this many seconds after the start of the program, compilation counted; instead of --seconds",
    )
    ap.add_argument("--from", dest="start", type=float, default=0.0, help="progress at the start (default %(default)s)")
    ap.add_argument("--to", dest="end", type=float, default=1.0, help="progress at the end (default %(default)s)")
    ap.add_argument(
        "--decay", type=float, default=0.5, help="the rates fall over this last part of the progress (default %(default)s)"
    )
    ap.add_argument("--tokens", type=int, default=32768, help="tokens of a chunk, one a GPU and step (default %(default)s)")
    ap.add_argument("--patches", type=int, default=61440, help="patches of a chunk (default %(default)s)")
    ap.add_argument("--lr", type=float, default=1.5e-3, help="AdamW rate (default %(default)s)")
    ap.add_argument("--muon-lr", type=float, default=0.012, help="Muon rate, 0: AdamW for all (default %(default)s)")
    ap.add_argument("--warmup", type=int, default=150)
    ap.add_argument("--workers", type=int, default=0, help="data processes for each GPU (default: all cores but two)")
    ap.add_argument("--save-seconds", type=float, default=150)
    a = ap.parse_args()
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    import numpy as np
    import ocr_data

    rank, world = int(os.environ.get("LOCAL_RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    say = (lambda *x: print(*x, flush=True)) if rank == 0 else (lambda *x: None)
    begin = time.time()
    shapes = ocr_data.Shapes(a.tokens, a.patches)
    workers = a.workers or max(1, (os.cpu_count() - 2) // world)
    stream = ocr_data.Stream(shapes, a.faces, a.tokenizer, f"{a.seed}-{rank}-{a.start}", workers)
    say(f"{workers} workers, glyphs ready after {time.time() - begin:.1f} s")

    import torch
    import torch.distributed as dist
    import torch.nn.functional as F
    from safetensors.torch import load_file, save_file
    import augment
    from ocr_model import PaddleOCRVL, load_weights, start_from_text

    torch.cuda.set_device(rank)
    device = torch.device("cuda", rank)
    if world > 1:
        dist.init_process_group("nccl", device_id=device)
    torch.manual_seed(a.seed)
    model = PaddleOCRVL()
    if a.resume:
        files = sorted(glob.glob(os.path.join(a.resume, "master.*.safetensors")))
        state = {k: v for f in files for k, v in load_file(f).items()} if files else load_weights(a.resume)
        model.load_state_dict(state)
    elif a.text_model:
        start_from_text(model, os.path.join(a.text_model, "model.safetensors"))
    model.to(device)
    torch.manual_seed(a.seed * 1000 + rank)
    torch._inductor.config.fallback_random = False
    torch.backends.cuda.matmul.allow_tf32 = True
    parameters = list(model.parameters())
    say(f"{sum(p.numel() for p in parameters):,} parameters")
    groups = muon_groups(model) if a.muon_lr else {}
    taken = {id(p) for g in groups.values() for p in g}
    rest = [p for p in parameters if id(p) not in taken]
    adam = torch.optim.AdamW(
        [
            dict(params=[p for p in rest if p.ndim > 1], weight_decay=0.02),
            dict(params=[p for p in rest if p.ndim == 1], weight_decay=0.0),
        ],
        lr=a.lr,
        betas=(0.9, 0.98),
        fused=True,
    )
    momentum = {k: torch.zeros(len(g), *k, device=device) for k, g in groups.items()}

    def muon_update(m, g, beta):
        m.lerp_(g, 1 - beta)
        return orthogonal(torch.lerp(g, m, beta), torch).float()

    @torch.no_grad()
    def muon_step(lr):
        for shape, g in groups.items():
            u = muon_update(momentum[shape], torch.stack([p.grad for p in g]), 0.95)
            scale = lr * max(1, shape[0] / shape[1]) ** 0.5
            torch._foreach_mul_(g, 1 - lr * 0.02)
            torch._foreach_add_(g, list(u.unbind(0)), alpha=-scale)

    dct, luma = augment.dct_matrix(device), torch.tensor(augment.LUMA, device=device, dtype=torch.float32)
    LONGEST_DOC, LONGEST_IMAGE = 4096, 5376

    def losses(patches, imgi, patch, ids, pos, weight, slots, cu_doc, cu_img):
        n = patch[0].int()
        y, x, rows, columns = patch[1].int(), patch[2].int(), imgi[n, 3], imgi[n, 4]
        ids = ids.long()
        with torch.autocast("cuda", torch.bfloat16):
            logits = model(
                ids[:-1], pos[:, :-1].int(), cu_doc, LONGEST_DOC, (patches, y, x, rows, columns, cu_img, LONGEST_IMAGE), slots
            )
            return sums_of(logits, ids[1:], weight[1:])

    @torch.compile
    def sums_of(logits, target, w):
        nll = F.cross_entropy(logits.float(), target, reduction="none")
        total = (w >= 2).float() + 0.1 * (w == 1).float()
        ocr, text = (w == 3).float(), (w == 2).float()
        right = (logits.argmax(-1) == target).float()
        return (nll * total).sum() / total.sum(), torch.stack(
            ((nll * ocr).sum(), ocr.sum(), (nll * text).sum(), text.sum(), (right * ocr).sum())
        ).detach()

    # The layers of a kind share one compiled function: seconds to compile instead of minutes.
    for m in (model.visual.vision_model.embeddings, *model.visual.vision_model.encoder.layers, model.mlp_AR, *model.model.layers):
        m.compile()
    types = {np.uint8: torch.uint8, np.int16: torch.int16, np.int32: torch.int32, np.float32: torch.float32}
    pinned = [torch.empty(shapes.bytes, dtype=torch.uint8).pin_memory() for _ in range(3)]
    on_gpu = [torch.empty(shapes.bytes, dtype=torch.uint8, device=device) for _ in range(3)]
    side, ready, done = torch.cuda.Stream(), [], [None] * 3
    filled, taken_slots = threading.Semaphore(0), threading.Semaphore(3)
    waiting = [0]

    def feed():
        torch.cuda.set_device(rank)
        i = 0
        while True:
            taken_slots.acquire()
            if done[i] is not None:
                done[i].synchronize()
            waiting[0] = stream.read(pinned[i].numpy())
            with torch.cuda.stream(side):
                on_gpu[i].copy_(pinned[i], non_blocking=True)
                e = torch.cuda.Event()
                e.record(side)
            e.synchronize()
            ready.append(i)
            filled.release()
            i = (i + 1) % 3

    threading.Thread(target=feed, daemon=True).start()

    def next_batch():
        filled.acquire()
        i = ready.pop(0)
        # Sequences that do not exist still cost attention blocks: the ends are cut to those in use.
        ends = {
            k: int(np.searchsorted(v, v[-1])) + 1
            for k, v in shapes.views(memoryview(pinned[i].numpy())).items()
            if k in ("cu_doc", "cu_img")
        }
        views = {k: on_gpu[i][at : at + n].view(types[dtype]).view(shape) for k, (at, n, dtype, shape) in shapes.arrays.items()}
        for k, n in ends.items():
            views[k] = views[k][:n]
            torch._dynamo.maybe_mark_dynamic(views[k], 0)
        return i, views

    def save(last=False):
        if rank:
            return
        os.makedirs(a.out, exist_ok=True)
        state = {k: v.detach().cpu() for k, v in model.state_dict().items()}
        parts, used, total = [{} for _ in range(4)], 0, sum(v.nbytes for v in state.values())
        for k, v in state.items():
            parts[min(3, used * 4 // total)][k] = v
            used += v.nbytes
        for i, part in enumerate(parts):
            save_file(part, os.path.join(a.out, f"master.{i}.safetensors"))

    def check_pictures(b, ink):
        """A picture that nothing befalls must come out of stage 1 as it went in."""
        f = b["imgf"]
        plain = ((f[:, 1] == 0) & (f[:, 2] == 1) & (f[:, 3] == 1) & (f[:, 4] == 0) & (f[:, 5] == 0) & (f[:, 6] == 0))[
            b["block"][0].int()
        ]
        worst = (ink - b["src"].view(-1, 64) / 255)[plain].abs().max()
        say(f"plain blocks {int(plain.sum())}, largest difference {float(worst):.2e}")
        if not worst < 1e-5:
            raise RuntimeError("stage 1 is broken")

    start = saved = shown = time.time()
    sums, steps, progress, clock = torch.zeros(5, device=device), 0, a.start, torch.zeros((), device=device, dtype=torch.float64)
    while True:
        i, b = next_batch()
        if steps == 0:
            say(f"first chunk after {time.time() - begin:.1f} s")
        with torch.no_grad():
            ink = augment.stage1(b["src"], b["imgi"], b["imgf"], b["block"], dct, luma)
            patches = augment.stage2(ink, b["imgi"], b["imgf"], b["patch"])
        if steps == 0 and rank == 0:
            check_pictures(b, ink)
        if steps == 0:
            torch.cuda.synchronize()
            say(f"pictures after {time.time() - begin:.1f} s")
        loss, parts = losses(
            patches, b["imgi"], b["patch"], b["ids"], b["pos"], b["weight"], b["slots"], b["cu_doc"], b["cu_img"]
        )
        loss.backward()
        done[i] = torch.cuda.Event()
        done[i].record()
        taken_slots.release()
        if world > 1:
            flat = torch.cat([p.grad.flatten() for p in parameters])
            dist.all_reduce(flat, op=dist.ReduceOp.AVG)
            torch._foreach_copy_(
                [p.grad for p in parameters],
                [g.view_as(p) for p, g in zip(parameters, flat.split([p.numel() for p in parameters]))],
            )
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        rate = min(1, (steps + 1) / a.warmup, max(0.0, (1 - progress) / a.decay))
        for g in adam.param_groups:
            g["lr"] = a.lr * rate
        adam.step()
        if groups:
            muon_step(a.muon_lr * rate)
        model.zero_grad(set_to_none=True)
        sums += parts
        steps += 1
        if steps < 5:
            torch.cuda.synchronize()
            say(f"step {steps} after {time.time() - begin:.1f} s")
        if steps == 5:
            torch.cuda.synchronize()
            if a.until:
                a.seconds = a.until - (time.time() - begin)
            start = time.time()  # compilation is not counted
            say(f"compiled after {start - begin:.1f} s")
        if steps > 5 and steps % 5 == 0:
            clock.fill_(time.time() - start)
            if world > 1:
                dist.broadcast(clock, 0)
            progress = a.start + (a.end - a.start) * min(1.0, float(clock) / a.seconds)
            stream.progress.value = progress
        if steps % 200 == 0 or progress >= a.end:
            if world > 1:
                dist.all_reduce(sums)
            s, now = sums.tolist(), time.time()
            say(
                f"step {steps} progress {progress:.3f} ocr {s[0] / max(s[1], 1):.4f} right {s[4] / max(s[1], 1):.4f} text {s[2] / max(s[3], 1):.4f} rate {rate:.3f} seconds {now - start:.0f} "
                f"steps/s {200 / (now - shown):.1f} chars/s {s[1] / (now - shown):,.0f} waiting {waiting[0]}"
            )
            shown = now
            sums.zero_()
            if rank == 0 and now - saved > a.save_seconds:
                save()
                saved = now
        if progress >= a.end:
            break
    save(True)
    say(f"done: {steps} steps, {time.time() - start:.0f} s, memory {torch.cuda.max_memory_allocated() / 1e9:.1f} GB")
    if world > 1:
        dist.barrier()
    os._exit(0)


if __name__ == "__main__":
    try:
        main()
    except BaseException:  # the data processes would keep a failed run alive
        import traceback

        traceback.print_exc()
        os._exit(1)
