#!/usr/bin/env python3
"""Reference cases of quantized checkpoints, written by the libraries that define the formats.

For every case it makes a tiny random model, lets a library turn its matrices into codes and write them, turns the codes back
into float32 values with the same library's code, and computes the logits of those with Hugging Face transformers. It writes
OUT/<case>/ as make_golden.py does; `reference_options.of_codes` says that the tensors were computed of the codes' values.

Usage: make_quantized.py OUT [--only NAME,NAME]

Wants torch, transformers and, for the cases of each, compressed-tensors, auto-gptq, autoawq. The latter two need not be
importable as a whole: their packages' own starting files want versions of transformers that are gone, so that only the file
that packs and unpacks is loaded.
"""

import argparse, importlib, importlib.util, json, os, sys, traceback, types
import torch, transformers
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM

ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
ap.add_argument("out", help="folder that receives one folder per case")
ap.add_argument("--only", default="", help="comma-separated case names; all when absent")
A = ap.parse_args()
SEED, V, H, I = 20251127, 160, 128, 192  # 192 columns: a group or block of 128 is ragged


def tiny(layers):
    """A random model of bfloat16 values in float32, whose logits differ clearly."""
    config = LlamaConfig(
        vocab_size=V,
        hidden_size=H,
        intermediate_size=I,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=512,
        rms_norm_eps=1e-5,
        tie_word_embeddings=False,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
    )
    config._attn_implementation = "eager"
    model = LlamaForCausalLM(config).float().eval()
    g = torch.Generator().manual_seed(SEED)
    with torch.no_grad():
        for name, p in sorted(model.named_parameters()):
            if p.ndim == 1:
                p.copy_(1 + 0.1 * torch.randn(p.shape, generator=g))
            else:
                p.copy_(torch.randn(p.shape, generator=g) * (1.0 if "embed" in name else 1.4 / p.shape[1] ** 0.5))
            p.copy_(p.bfloat16().float())
    return model


def matrices(model):
    return {n: m for n, m in model.named_modules() if isinstance(m, torch.nn.Linear) and n != "lm_head"}


def others(model):
    """What no library touches, as bfloat16."""
    coded = {n + ".weight" for n in matrices(model)}
    return {n: p.detach().bfloat16().clone() for n, p in model.named_parameters() if n not in coded}


def load_file_of(package, *path):
    """One module of a package without running the package's own __init__ files."""
    if package not in sys.modules:
        stub = types.ModuleType(package)
        stub.__path__ = [importlib.util.find_spec(package).submodule_search_locations[0]]
        sys.modules[package] = stub
    folder, name = sys.modules[package].__path__[0], package
    for part in path[:-1]:
        folder, name = os.path.join(folder, part), f"{name}.{part}"
        if name not in sys.modules:
            stub = types.ModuleType(name)
            stub.__path__ = [folder]
            sys.modules[name] = stub
    return importlib.import_module(f"{name}.{path[-1]}")


def least_and_most(w, group):
    """Smallest and largest value of every group of columns, zero among them: [rows, groups]."""
    w = w.reshape(w.shape[0], -1, group)
    return w.amin(-1).clamp(max=0), w.amax(-1).clamp(min=0)


# ---- each takes a model, fills its matrices with the values of the codes, and returns (tensors, quantization_config)


def compressed(model, weights, fmt, activations=None):
    from compressed_tensors.compressors import ModelCompressor
    from compressed_tensors.quantization import (
        QuantizationConfig,
        QuantizationScheme,
        QuantizationArgs,
        apply_quantization_config,
    )
    from compressed_tensors.quantization.utils import calculate_qparams

    args = QuantizationArgs(**weights)
    scheme = QuantizationScheme(
        targets=["Linear"], weights=args, input_activations=activations and QuantizationArgs(**activations), format=fmt
    )
    config = QuantizationConfig(config_groups={"group_0": scheme}, ignore=["lm_head"], format=fmt)
    keep = others(model)
    apply_quantization_config(model, config)
    for m in matrices(model).values():
        w = m.weight.detach()
        if args.strategy == "block":
            blocks = [[b.aminmax() for b in r.split(128, 1)] for r in w.split(128, 0)]
            low, high = (torch.stack([torch.stack([getattr(b, k) for b in r]) for r in blocks]) for k in ("min", "max"))
        elif args.strategy == "tensor":
            low, high = w.amin().reshape(1), w.amax().reshape(1)
        else:
            low, high = least_and_most(w, args.group_size or w.shape[1])
        scale, zero = calculate_qparams(low, high, args)
        m.weight_scale.data = scale.bfloat16() if weights["type"] == "int" else scale.float()
        if not args.symmetric:
            m.weight_zero_point.data = zero
        elif hasattr(m, "weight_zero_point"):
            del m.weight_zero_point
    library = ModelCompressor.from_pretrained_model(model, fmt)
    library.compress_model(model)
    tensors = {n: t.detach().clone() for n, t in model.state_dict().items()}
    os.makedirs(A.out, exist_ok=True)
    library.update_config(A.out)  # writes config.json there
    written = os.path.join(A.out, "config.json")
    said = json.load(open(written))["quantization_config"]
    os.remove(written)
    for m in matrices(model).values():  # so that values come out in float32
        if m.weight_scale.dtype == torch.bfloat16:
            m.weight_scale.data = m.weight_scale.data.float()
    library.decompress_model(model)
    tensors.update(keep)
    return tensors, said


def gptq(model, bits, group, symmetric):
    module = load_file_of("auto_gptq", "nn_modules", "qlinear", "qlinear_cuda_old")
    tensors, top = others(model), 2**bits - 1
    for name, m in matrices(model).items():
        w = m.weight.detach()
        size = group if group > 0 else w.shape[1]
        low, high = least_and_most(w, size)
        if symmetric:
            high = torch.maximum(-low, high)
            scale = (2 * high / top).half().float()
            zero = torch.full_like(scale, (top + 1) / 2)
        else:
            scale = ((high - low) / top).half().float()
            zero = torch.round(-low / scale).clamp(1, top)
        q = module.QuantLinear(bits, group, m.in_features, m.out_features, False)
        # pack() divides what it is given by the scales and rounds: it shall be given what the codes stand for.
        wide, z = scale.repeat_interleave(size, 1), zero.repeat_interleave(size, 1)
        values = (torch.clamp(torch.round(w / wide) + z, 0, top) - z) * wide
        half = torch.nn.Linear(m.in_features, m.out_features, False)
        half.weight.data = values
        q.pack(half, scale, zero, q.g_idx)
        for leaf in ("qweight", "qzeros", "scales", "g_idx"):
            tensors[f"{name}.{leaf}"] = getattr(q, leaf).clone()
        q.scales = q.scales.float()
        q.autogptq_cuda_available = False
        with torch.no_grad():
            m.weight.data = q(torch.eye(m.in_features)).T.float().contiguous()
    return tensors, dict(
        quant_method="gptq",
        bits=bits,
        group_size=group,
        desc_act=False,
        sym=symmetric,
        true_sequential=True,
        checkpoint_format="gptq",
        damp_percent=0.01,
        static_groups=False,
    )


def awq(model, group):
    module = load_file_of("awq", "modules", "linear", "gemm")
    unpack = load_file_of("awq", "utils", "packing_utils").dequantize_gemm
    tensors = others(model)
    for name, m in matrices(model).items():
        w = m.weight.detach()
        low, high = least_and_most(w, group)
        scale = ((high - low) / 15).half().float()
        zero = torch.round(-low / scale).clamp(0, 15)
        wide, z = scale.repeat_interleave(group, 1), zero.repeat_interleave(group, 1)
        m.weight.data = (torch.clamp(torch.round(w / wide) + z, 0, 15) - z) * wide
        q = module.WQLinear_GEMM.from_linear(m, 4, group, False, scale.T.contiguous(), zero.T.contiguous())
        for leaf in ("qweight", "qzeros", "scales"):
            tensors[f"{name}.{leaf}"] = getattr(q, leaf).clone()
        m.weight.data = unpack(q.qweight, q.qzeros, q.scales.float(), 4, group).T.float().contiguous()
    return tensors, dict(
        quant_method="awq", bits=4, group_size=group, zero_point=True, version="gemm", modules_to_not_convert=None
    )


def float8_blocks(model):
    from transformers.quantizers.quantizer_finegrained_fp8 import FineGrainedFP8HfQuantizer
    from transformers import FineGrainedFP8Config
    from transformers.integrations.finegrained_fp8 import FP8Linear

    quantizer = FineGrainedFP8HfQuantizer(FineGrainedFP8Config(modules_to_not_convert=["lm_head"]), pre_quantized=False)
    tensors = others(model)
    for name, m in matrices(model).items():
        # The library cuts whole blocks only, two each way at least: it is given zeros at the edges, which a file does not keep.
        n, k = m.weight.shape
        rows, cols = (max(-(-x // 128), 2) * 128 for x in (n, k))
        holder = torch.nn.Module()
        holder.inner = FP8Linear(cols, rows, False, dtype=torch.float8_e4m3fn, block_size=(128, 128), device="cpu")
        wide = torch.zeros(rows, cols)
        wide[:n, :k] = m.weight.detach()
        quantizer.create_quantized_param(holder, wide, "inner.weight", torch.device("cpu"))
        code, scale = holder.inner.weight.data, holder.inner.weight_scale_inv.data
        tensors[name + ".weight"] = code[:n, :k].contiguous()
        tensors[name + ".weight_scale_inv"] = scale[: -(-n // 128), : -(-k // 128)].float().contiguous()
        m.weight.data = (code.float() * scale.repeat_interleave(128, 0).repeat_interleave(128, 1))[:n, :k].contiguous()
    said = quantizer.quantization_config.to_dict()
    said["weight_block_size"] = list(said["weight_block_size"])
    return tensors, said


INT = dict(type="int", dynamic=False)
FLOAT = dict(type="float", num_bits=8, symmetric=True, dynamic=False)
TOKEN = dict(type="int", num_bits=8, symmetric=True, strategy="token", dynamic=True)
CASES = {
    "ct_pack4_groups_zp": (
        2,
        lambda m: compressed(m, dict(INT, num_bits=4, symmetric=False, strategy="group", group_size=32), "pack-quantized"),
    ),
    "ct_pack8_rows": (1, lambda m: compressed(m, dict(INT, num_bits=8, symmetric=True, strategy="channel"), "pack-quantized")),
    "ct_int8_rows": (
        1,
        lambda m: compressed(m, dict(INT, num_bits=8, symmetric=True, strategy="channel"), "int-quantized", TOKEN),
    ),
    "ct_float8_rows": (1, lambda m: compressed(m, dict(FLOAT, strategy="channel"), "float-quantized", dict(TOKEN, type="float"))),
    "ct_float8_tensor": (
        1,
        lambda m: compressed(m, dict(FLOAT, strategy="tensor"), "float-quantized", dict(FLOAT, strategy="tensor", dynamic=True)),
    ),
    "gptq4_groups_zp": (2, lambda m: gptq(m, 4, 32, False)),
    "gptq4_rows": (1, lambda m: gptq(m, 4, -1, True)),
    "gptq8_groups": (1, lambda m: gptq(m, 8, 64, True)),
    "awq4_groups": (2, lambda m: awq(m, 32)),
    "fp8_blocks": (1, float8_blocks),
}


def greedy(step, ids, n):
    out, margins = [], []
    for _ in range(n):
        v, i = torch.topk(step(ids + out), 2)
        out.append(int(i[0]))
        margins.append(float(v[0] - v[1]))
    return out, margins


def write(name, layers, quantize):
    model = tiny(layers)
    tensors, said = quantize(model)
    folder = os.path.join(A.out, name)
    os.makedirs(folder, exist_ok=True)
    values, model = {n: m.weight.detach().float() for n, m in matrices(model).items()}, tiny(layers)
    for n, m in matrices(model).items():
        m.weight.data = values[n]
    T, M, rng = {}, {"kind": "text", "reference_options": {"of_codes": True}, "prompts": {}}, torch.Generator().manual_seed(SEED)
    forward = lambda ids: model(torch.tensor([ids]), use_cache=False, output_hidden_states=True)
    with torch.no_grad():
        for key, n in (("short", 7), ("block_edge", 64), ("long", 97)):
            ids = torch.randint(3, V, (n,), generator=rng).tolist()
            r = forward(ids)
            lg = r.logits[0]
            T[f"{key}.logits"] = lg if key == "short" else lg[-1:]
            if key == "short":
                for i, h in enumerate(r.hidden_states):
                    T[f"short.hidden.{i}"] = h[0]
            T[f"{key}.logprob_sum"] = (
                torch.log_softmax(lg[:-1].double(), -1).gather(1, torch.tensor(ids[1:])[:, None]).sum().float()[None]
            )
            cont, margins = greedy(lambda s: forward(s).logits[0, -1], ids, 20)
            M["prompts"][key] = dict(input_ids=ids, greedy=cont, margins=margins)
    config = model.config.to_dict()
    config.update(dtype="bfloat16", architectures=["LlamaForCausalLM"], quantization_config=said)
    json.dump(config, open(os.path.join(folder, "config.json"), "w"), indent=1, default=str)
    save_file(
        {k: t.contiguous() for k, t in tensors.items()}, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"}
    )
    save_file({k: t.detach().contiguous().float() for k, t in T.items()}, os.path.join(folder, "golden.safetensors"))
    versions = {m: getattr(importlib.import_module(m), "__version__", "") for m in ("torch", "transformers")}
    json.dump({**M, **versions, "seed": SEED, "compute": "float32"}, open(os.path.join(folder, "golden.json"), "w"), indent=1)


only = set(filter(None, A.only.split(",")))
for name, (layers, quantize) in CASES.items():
    if only and name not in only:
        continue
    try:
        write(name, layers, quantize)
        print("ok  ", name, flush=True)
    except Exception:
        print("FAIL", name)
        traceback.print_exc()
