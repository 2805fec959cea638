#!/usr/bin/env python3
"""Trains the demonstration model on one GPU and saves it as a bfloat16 checkpoint.

Conversations come from tasks.py, made by worker processes while the GPU trains and packed into rows whose documents do not
see one another. The loss counts the model's own text fully and the prompt lightly. Weights and optimizer state are float32,
the arithmetic bfloat16. The learning rate falls along a cosine to zero at the last step, or at the time limit if it comes first.
"""

import argparse, glob, math, multiprocessing as mp, os, random, time
import numpy as np


def produce(tokenizer_file, seed, index, rows, length, queue):
    """Endless packed chunks [rows, length + 1]: ids, document number, and weight class (0 none, 1 prompt, 2 answer)."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    from tokenizers import Tokenizer
    from tasks import conversation
    from tokenizer import render

    tok, rng, pending, cache = Tokenizer.from_file(tokenizer_file), random.Random(f"train-{seed}-{index}"), None, {}

    def encode(text):
        if text not in cache:
            if len(cache) > 200000:
                cache.clear()
            cache[text] = tok.encode(text, add_special_tokens=False).ids
        return cache[text]

    def document():
        ids, weight = [], []
        for text, own in render(conversation(rng)):
            part = encode(text)
            ids += part
            weight += [2 if own else 1] * len(part)
        weight[0] = 0
        return ids[: length + 1], weight[: length + 1]

    while True:
        ids, doc, weight = (
            np.zeros((rows, length + 1), np.int16),
            np.zeros((rows, length + 1), np.uint8),
            np.zeros((rows, length + 1), np.uint8),
        )
        for r in range(rows):
            at, number = 0, 1
            while True:
                pending = pending or document()
                n = len(pending[0])
                if at + n > length + 1:
                    break
                ids[r, at : at + n], doc[r, at : at + n], weight[r, at : at + n] = pending[0], number, pending[1]
                at, number, pending = at + n, number + 1, None
        queue.put((ids, doc, weight))


def batches(tokenizer_file, seed, workers, chunks, rows, length):
    """Batches of chunks * rows rows, the workers in turn, so that the order does not depend on their speed."""
    ctx = mp.get_context("fork")
    queues = [ctx.Queue(4) for _ in range(workers)]
    processes = [
        ctx.Process(target=produce, args=(tokenizer_file, seed, i, rows, length, q), daemon=True) for i, q in enumerate(queues)
    ]
    for p in processes:
        p.start()
    turn = 0
    try:
        while True:
            parts = [queues[(turn + i) % workers].get() for i in range(chunks)]
            turn += chunks
            yield [np.concatenate(x) for x in zip(*parts)]
    finally:
        for p in processes:
            p.terminate()


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("model", help="folder with tokenizer.json; the checkpoint is written there")
    ap.add_argument("--seed", type=int, default=1, help="seed of data and weights (default %(default)s)")
    ap.add_argument("--steps", type=int, default=6000, help="optimizer steps (default %(default)s)")
    ap.add_argument("--max-seconds", type=float, default=1e9, help="end early, with the learning rate at zero, after this time")
    ap.add_argument("--rows", type=int, default=256, help="rows in a batch (default %(default)s)")
    ap.add_argument("--length", type=int, default=512, help="tokens in a row (default %(default)s)")
    ap.add_argument("--lr", type=float, default=2e-3, help="highest learning rate (default %(default)s)")
    ap.add_argument("--warmup", type=int, default=200, help="steps of rising learning rate (default %(default)s)")
    ap.add_argument("--prompt-weight", type=float, default=0.1, help="weight of prompt tokens in the loss (default %(default)s)")
    ap.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 2), help="data processes (default %(default)s)")
    ap.add_argument(
        "--resume", help="folder of an earlier run to start from: its float32 master.*.safetensors, else its model.safetensors"
    )
    ap.add_argument("--save-seconds", type=float, default=120, help="time between checkpoints (default %(default)s)")
    a = ap.parse_args()
    chunks = 16
    stream = batches(os.path.join(a.model, "tokenizer.json"), a.seed, a.workers, chunks, a.rows // chunks, a.length)
    first = next(stream)  # the workers are forked before the GPU is touched

    import torch
    import torch.nn.functional as F
    from safetensors.torch import load_file, save_file
    from model import Ernie, save_checkpoint

    torch.manual_seed(a.seed)
    model = Ernie()
    if a.resume:
        files = sorted(glob.glob(os.path.join(a.resume, "master.*.safetensors"))) or [os.path.join(a.resume, "model.safetensors")]
        for f in files:
            model.load_state_dict(load_file(f), strict=False)
    model.cuda()
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters", flush=True)
    matrices = [p for n, p in model.named_parameters() if p.ndim == 2 and "embed" not in n]
    others = [p for n, p in model.named_parameters() if p.ndim != 2 or "embed" in n]
    opt = torch.optim.AdamW(
        [dict(params=matrices, weight_decay=0.1), dict(params=others, weight_decay=0.0)], lr=a.lr, betas=(0.9, 0.95), fused=True
    )
    causal = torch.ones(a.length, a.length, dtype=torch.bool, device="cuda").tril()

    def loss_of(ids, doc, weight):
        ids = ids.long()
        d = doc[:, :-1]
        mask = torch.where((d[:, None, :, None] == d[:, None, None, :]) & causal, 0.0, float("-inf")).to(torch.bfloat16)
        with torch.autocast("cuda", torch.bfloat16):
            logits = model(ids[:, :-1], mask)
        nll = F.cross_entropy(logits.float().flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
        w = weight[:, 1:].flatten()
        own = (w == 2).float()
        total = own + a.prompt_weight * (w == 1).float()
        return (nll * total).sum() / total.sum(), (nll * own).sum().detach() / own.sum()

    compiled = torch.compile(loss_of)

    def save():
        save_checkpoint(model, a.model)
        state = {k: v.detach().cpu() for k, v in model.state_dict().items()}
        names = sorted(state)
        for i, part in enumerate((names[: len(names) // 2], names[len(names) // 2 :])):
            save_file({k: state[k] for k in part}, os.path.join(a.model, f"master.{i}.safetensors"))

    start = saved = shown = time.time()
    average, tokens = torch.zeros((), device="cuda"), 0
    for step in range(a.steps):
        data, first = (first or next(stream)), None
        batch = [torch.from_numpy(x).pin_memory().cuda(non_blocking=True) for x in data]
        done = max(step / a.steps, (time.time() - start) / a.max_seconds)
        if done >= 1:
            break
        for g in opt.param_groups:
            g["lr"] = a.lr * min(1, (step + 1) / a.warmup) * 0.5 * (1 + math.cos(math.pi * done))
        loss, own = compiled(*batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        opt.zero_grad(set_to_none=True)
        average, tokens = average.lerp(own, 1 / min(step + 1, 100)), tokens + data[0].size
        if step % 100 == 99 or step == 0:
            loss_now, now = float(average), time.time()
            print(
                f"step {step + 1} loss {loss_now:.5f} lr {opt.param_groups[0]['lr']:.2e} seconds {now - start:.0f} tokens/s {tokens / (now - shown):,.0f}",
                flush=True,
            )
            shown, tokens = now, 0
            if step == 0:
                start = shown = time.time()  # compilation is not counted
            if now - saved > a.save_seconds:
                save()
                saved = now
    save()
    print(f"done after {time.time() - start:.0f} s, {step + 1} steps", flush=True)
    stream.close()


if __name__ == "__main__":
    main()
