"""FD_DETERMINISTIC_MODE=1: ids and log-probabilities are the same bits in any company and any way of computing."""

import concurrent.futures
import json
import multiprocessing
import random
import threading
import traceback

import models
from server import Server, together

TEXT = ["qwen3", "qwen3_moe", "ernie4_5_hd128", "deepseek_v3"]
VISION = ["paddleocr_vl"]
# Dummy weights, published widths, few layers: other kernels than the small cases take.
WIDE = ["qwen3-8b", "qwen3-30b-a3b", "deepseek-v3"]
# Models of the lists above over a cache of codes.
CODES = [("qwen3", "int8"), ("ernie4_5_hd128", "float8_e4m3fn")]


class Probe:
    """One request whose answer must never change."""

    def __init__(self, name, ask):
        self.name, self.ask = name, ask


def bits(choice, message):
    """What must stay the same of an answer: ids, and every log-probability as it was printed."""
    logprobs = choice.get("logprobs") or {}
    values = logprobs.get("token_logprobs") or [c["logprob"] for c in logprobs.get("content") or []]
    ids = message["completion_token_ids"]
    if len(values) != len(ids) or not ids:
        raise ValueError(f"{len(ids)} ids with {len(values)} log-probabilities")
    return json.dumps([ids, values])


def text_probes(vocab):
    chosen = random.Random(5)
    probes = []
    for i, length in enumerate([1, 7, 63, 64, 65, 150, 333, 700, 900]):
        prompt = [chosen.randrange(11, vocab) for _ in range(length)]
        more = dict(temperature=0) if i % 3 else dict(temperature=0.9, top_p=0.9, seed=77 + i, repetition_penalty=1.05)

        def ask(server, prompt=prompt, more=more):
            choice = server.complete(prompt, 24, logprobs=3, **more)[0]
            return bits(choice, choice)

        probes.append(Probe(f"{length} tokens", ask))
    return probes


def picture_probes(case, data):
    probes = []
    for key, prompt in data["prompts"].items():
        if "images" not in prompt:
            continue

        def ask(server, prompt=prompt):
            choice = server.chat(
                models.case_content(case, prompt),
                16,
                ignore_eos=True,
                return_token_ids=True,
                bad_words_token_ids=data["greedy_banned_ids"],
                logprobs=True,
                top_logprobs=2,
            )["choices"][0]
            return bits(choice, choice["message"])

        probes.append(Probe(f"pictures {key}", ask))
    return probes


class Company:
    """Other requests, so many at a time, of every length and kind, until the end of the block."""

    def __init__(self, server, vocab, count):
        self.server, self.vocab, self.count, self.over = server, vocab, count, threading.Event()
        self.faults, self.done = [], 0

    def one(self, number):
        chosen = random.Random(number)
        while not self.over.is_set():
            try:
                self.server.complete(
                    [chosen.randrange(11, self.vocab) for _ in range(chosen.choice([1, 5, 40, 130, 400]))],
                    chosen.randrange(2, 60),
                    temperature=chosen.choice([0, 0.7, 1.2]),
                    top_p=0.9,
                    logprobs=chosen.choice([None, 2]),
                    n=chosen.choice([1, 1, 2]),
                )
                self.done += 1
            except Exception as e:
                self.faults.append(e)
                return

    def __enter__(self):
        self.threads = [threading.Thread(target=self.one, args=(i,)) for i in range(self.count)]
        for t in self.threads:
            t.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        for t in self.threads:
            t.join()


class Case:
    def __init__(self, run, name, folder, flags, probes, vocab):
        self.run, self.name, self.folder, self.flags, self.probes, self.vocab = run, name, folder, flags, probes, vocab
        self.want = None

    def server(self, label, *flags, seqs=256, env=None):
        return Server(
            self.run,
            self.folder,
            "--dtype",
            "bfloat16",
            "--max-model-len",
            1024,
            "--max-num-seqs",
            seqs,
            "--enable-logprob",
            *models.small_budget(self.run),
            *self.flags,
            *flags,
            env={"FD_DETERMINISTIC_MODE": "1", **(env or {})},
            name=f"{self.name}-{label.replace(' ', '-')}",
        )

    def compare(self, label, server, threads=1):
        got = together(lambda p: p.ask(server), self.probes, threads)
        if self.want is None:
            self.want = got
        for probe, mine, want in zip(self.probes, got, self.want):
            fault = isinstance(mine, Exception)
            ok = not fault and mine == want
            self.run.check(ok, f"{self.name} {label}, {probe.name}", mine if fault else "" if ok else parting(mine, want))

    def all_ways(self):
        crowd = 250 if self.run.places.on_gpu else 12
        off = "--no-enable-prefix-caching"
        with self.server("alone", off) as s:
            s.ready()
            self.compare("alone", s)
            self.compare("again", s)
            for round_ in range(1 if self.run.args.quick else 3):
                with Company(s, self.vocab, crowd) as company:
                    while company.done < crowd // 2 and not company.faults:
                        threading.Event().wait(0.02)
                    self.compare("among others", s, len(self.probes))
                self.run.check(not company.faults and company.done > 0, f"{self.name}: the company is served", company.faults[:1])
        with self.server("restart", off) as s:
            self.compare("after a restart", s.ready())
        with self.server("prefix") as s:
            s.ready()
            self.compare("first of a prefix", s)
            self.compare("prefix hit", s)
            hits = s.metric("fastdeploy:hit_token_rate")
            self.run.check(hits and hits > 0.1, f"{self.name}: prefixes are hit", hits)
        with self.server("eager", "--graph-optimization-config", '{"use_cudagraph": false}') as s:
            s.ready()
            self.compare("eager", s)
            with Company(s, self.vocab, crowd // 4):
                self.compare("eager among others", s, len(self.probes))
        for tokens in (64, 192, 1024):
            with self.server(f"chunk {tokens}", off, "--max-num-batched-tokens", tokens, seqs=min(tokens, 256)) as s:
                s.ready()
                self.compare(f"chunks of {tokens}", s, 3)
        if self.run.places.on_gpu:
            with self.server("no pdl", off, env={"FD_ENABLE_PDL": "0"}) as s:
                self.compare("without dependent launches", s.ready(), 4)


def parting(mine, want):
    if isinstance(want, Exception):
        return f"the first answer failed: {want}"
    (a, x), (b, y) = json.loads(mine), json.loads(want)
    for i, (p, q) in enumerate(zip(zip(a, x), zip(b, y))):
        if p != q:
            return f"token {i}: {p} for {q}"
    return "other lengths"


def one_case(run, name):
    more = []
    if " over " in name:
        name, kind = name.split(" over ")
        more = ["--quantization", models.CACHES[kind]]
    if name in WIDE:
        folder, config = models.published(run.places, name, run.places.fresh(f"det-{name}"), num_hidden_layers=2)
        vocab = config["vocab_size"]
        return Case(run, name, folder, ["--load-choices", "dummy"], text_probes(vocab), vocab).all_ways()
    case = run.places.case(name)
    data = models.golden(case)
    config = json.loads((case / "config.json").read_text())
    vocab = config.get("text_config", config)["vocab_size"]
    folder = models.from_case(case, run.places.fresh(f"det-{name}{len(more)}"))
    probes = text_probes(vocab)
    if models.is_vision(data):
        probes = picture_probes(case, data) + probes[::2]
    label = f"{name}-{kind}" if more else name
    return Case(run, label, folder, [*models.case_flags(data), *more], probes, vocab).all_ways()


def apart(run, name):
    """In a process of its own: what it found."""
    try:
        one_case(run, name)
    except Exception as e:
        traceback.print_exc()
        run.check(False, f"{name} ended early", f"{type(e).__name__}: {e}")
    return run.stage.checks


def determinism(run):
    codes = [f"{name} over {kind}" for name, kind in CODES]
    names = [n for n in [*TEXT, *codes, *VISION, *(WIDE if run.places.on_gpu else [])] if run.args.only in ("", n)]
    # A server needs little of a GPU here; several at a time bring more company, too.
    with concurrent.futures.ProcessPoolExecutor(4 if run.places.on_gpu else 1, multiprocessing.get_context("fork")) as pool:
        for name, checks in zip(names, pool.map(apart, [run] * len(names), names)):
            run.stage.checks += checks
            run.say(f"{name}: {sum(c['ok'] for c in checks)} of {len(checks)} hold")
