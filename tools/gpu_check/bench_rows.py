"""Rows of docs/performance (rows.py) out of what `tern bench` printed."""

# Rows of `tern bench kernels` that docs/performance shows, beside the longer one of moving their bytes and computing them.
KERNELS = (
    {("products", f"reference 14336x4096 rows {rows}") for rows in (1, 16, 32, 128)}
    | {("experts", f"layer 2048/768, 128 top-8, {tokens} tokens") for tokens in (1, 32, 1024, 4096)}
    | {("decode attention", f"64/8 heads {keys}") for keys in ("64 x 4k", "64 ragged 512 to 16k", "1 x 128k")}
    | {("decode attention", "mla 128 heads 576/512 64 x 4k")}
    | {("segment attention", "paddleocr-vl 16 heads of 72, 1 x 5184")}
    | {("sampler", "penalties and top-p 0.8, 100 x 103424, sigma 2")}
)


def steps(run, what, f):
    run.row(
        what,
        f["step_us_mean"],
        "us",
        reference="reading memory",
        reference_value=round(f["read_ceiling_gb_per_second"]),
        reference_unit="GB/s",
        ratio=round(f["ratio_with_cache"], 3),
        note=f"host {f['host_us_p50']:.0f} us",
    )


def prompt(run, what, f):
    ratio = f.get("ratio_with_attention")
    ceiling = {}
    if ratio is not None:
        value = round(f["dot_ceiling_gflops"] / 1e3)
        ceiling = dict(reference="products", reference_value=value, reference_unit="TFLOP/s", ratio=round(ratio, 3))
    run.row(what, f["milliseconds"], "ms", **ceiling)


def kernels(run, f):
    run.row("reading memory, best of four kernels", f["read_gb_per_second"], "GB/s")
    run.row("products, cuBLASLt, 8,192 cubed", f["product_tflops"], "TFLOP/s")
    for r in f["rows"]:
        if (r["group"], r["shape"]) in KERNELS:
            kernel(run, r)


def kernel(run, r):
    peer = dict(note=f"cuBLASLt {r['peer_us']:.1f} us") if "peer_us" in r else {}
    ceiling = dict(
        reference="its ceiling", reference_value=round(r["ideal_us"], 1), reference_unit="us", ratio=round(r["ratio"], 3)
    )
    run.row(f"{r['group']}: {r['shape']}", r["us"], "us", **ceiling, **peer)
