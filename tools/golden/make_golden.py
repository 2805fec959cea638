#!/usr/bin/env python3
"""Reference cases for the engine: tiny random checkpoints and what Hugging Face transformers computes from them.

For every architecture it writes OUT/<case>/
  config.json, model.safetensors   a checkpoint as `save_pretrained` lays it out (bf16 weights)
  golden.safetensors               float32 reference tensors, computed in float32 from the bf16 weights
  golden.json                      what each tensor is, the prompts, greedy continuations and their top-2 margins

Usage: make_golden.py OUT [--seed N] [--variant a|b|w|s] [--only NAME,NAME] [--device cpu|cuda]

Variants: a, every architecture, small; b, other sizes; w, published widths of heads, experts and MLPs in few layers with
prompts of up to 3,000 tokens: hundreds of megabytes a case, to be made where they are used (a GPU machine); s, the smallest:
one case for every rope scaling and for structural options that the other variants leave at their defaults. These are in
tests/data/golden_s. Prompts come from one stream of random numbers: in variant s, and for pictures, --only gives other prompts
than a full run.

What the tensors mean: short.hidden.0 is the embedding output, short.hidden.i the residual stream after layer i, the last one
after the final norm; X.logits are all rows for "short", the last row (text) or the last 12 rows (vision) otherwise;
X.logprob_sum is the sum of log-probabilities of the prompt's own tokens 1..n-1. `greedy` was made by choosing the arg-max
again and again (ids of `greedy_banned_ids` never), `margins` are best minus second-best logit at each step.
`reference_options` names the rules followed where implementations differ. In variant s prompts are drawn again until the
greedy choice and the choice of experts are clear of rounding: a case should fail for a wrong rule, not for a near tie.
"""
import argparse, json, os, traceback
import numpy as np, torch
from safetensors.torch import save_file
import transformers
from transformers import AutoConfig, AutoModelForCausalLM
from PIL import Image, ImageDraw

ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
ap.add_argument("out", help="folder that receives one folder per case")
ap.add_argument("--seed", type=int, default=20251120, help="seed of weights and prompts (default %(default)s)")
ap.add_argument("--variant", default="a", choices="abws", help="which set of sizes and options (default %(default)s)")
ap.add_argument("--only", default="", help="comma-separated case names; all when absent")
ap.add_argument("--device", default="cpu", help="where the reference is computed: cpu or cuda")
A = ap.parse_args()
S = A.variant == "s"            # smallest cases, one per option
B = A.variant == "b"            # another set of sizes, so that nothing can be fitted to the first
W = A.variant == "w"            # published widths
torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
V = 512 if not B else 704
H, I, E = (128, 256, 64) if not B else (256, 384, 128)   # hidden, MLP and expert widths
if S: V, H, I, E = 160, 64, 64, 32
torch.manual_seed(A.seed); rng = np.random.default_rng(A.seed)
torch.set_float32_matmul_precision("highest")

def base(**kw):
    d = dict(vocab_size=V, hidden_size=H, intermediate_size=I,
             num_hidden_layers=2, num_attention_heads=2 if not B else 4, num_key_value_heads=1 if not B else 2,
             max_position_embeddings=4096, rms_norm_eps=1e-5, tie_word_embeddings=False,
             pad_token_id=0, bos_token_id=1, eos_token_id=2)
    d.update(kw); return d

HD = 64
CASES = {
 "ernie4_5":      dict(cls="Ernie4_5", cfg=base(head_dim=HD, tie_word_embeddings=True)),
 "ernie4_5_hd128":dict(cls="Ernie4_5", cfg=base(head_dim=128, num_attention_heads=3, num_key_value_heads=1, tie_word_embeddings=True)),
 "ernie4_5_moe":  dict(cls="Ernie4_5_Moe", cfg=base(num_attention_heads=2 if not B else 4, num_key_value_heads=1 if not B else 2, moe_intermediate_size=E, moe_num_experts=8, moe_k=3, moe_num_shared_experts=2, moe_layer_start_index=1, num_hidden_layers=3, tie_word_embeddings=True)),
 "llama3":        dict(cls="Llama", cfg=base(head_dim=HD, rope_parameters=dict(rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64))),
 "llama_tied":    dict(cls="Llama", cfg=base(head_dim=HD, tie_word_embeddings=True, rope_parameters=dict(rope_type="default", rope_theta=10000.0))),
 "qwen2":         dict(cls="Qwen2", cfg=base(num_attention_heads=2 if not B else 4, num_key_value_heads=1 if not B else 2, rope_parameters=dict(rope_type="default", rope_theta=1000000.0))),
 "qwen3":         dict(cls="Qwen3", cfg=base(head_dim=128, rope_parameters=dict(rope_type="default", rope_theta=1000000.0))),
 "qwen2_moe":     dict(cls="Qwen2Moe", cfg=base(num_attention_heads=2 if not B else 4, num_key_value_heads=1 if not B else 2, moe_intermediate_size=E, shared_expert_intermediate_size=2 * E, num_experts=8, num_experts_per_tok=3, norm_topk_prob=False, decoder_sparse_step=1)),
 "qwen3_moe":     dict(cls="Qwen3Moe", cfg=base(head_dim=HD, moe_intermediate_size=E, num_experts=12, num_experts_per_tok=4, norm_topk_prob=True, decoder_sparse_step=1)),
 "mixtral":       dict(cls="Mixtral", cfg=base(head_dim=HD, intermediate_size=E, num_local_experts=8, num_experts_per_tok=2)),
 "deepseek_v3":   dict(cls="DeepseekV3", cfg=base(num_key_value_heads=2 if not B else 4, q_lora_rank=96, kv_lora_rank=64, qk_nope_head_dim=64, qk_rope_head_dim=32, v_head_dim=64,
                        num_hidden_layers=3, moe_intermediate_size=E, n_routed_experts=12, num_experts_per_tok=4, n_shared_experts=1, n_group=4, topk_group=2, first_k_dense_replace=1, norm_topk_prob=True, routed_scaling_factor=2.5,
                        rope_parameters=dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=64, beta_fast=32, beta_slow=1, mscale=1.0, mscale_all_dim=1.0))),
 "glm4_moe":      dict(cls="Glm4Moe", cfg=base(head_dim=HD, moe_intermediate_size=E, n_routed_experts=8, num_experts_per_tok=2, n_shared_experts=1, n_group=1, topk_group=1, first_k_dense_replace=1, routed_scaling_factor=1.0, norm_topk_prob=True, use_qk_norm=True)),
}

WIDE = {  # published widths, few layers
 "ernie4_5":      dict(hidden_size=1024, intermediate_size=3072, num_attention_heads=16, num_key_value_heads=2, head_dim=128),
 "ernie4_5_moe":  dict(hidden_size=2560, intermediate_size=12288, num_attention_heads=20, num_key_value_heads=4, moe_intermediate_size=1536, moe_num_experts=64, moe_k=6, num_hidden_layers=2),
 "llama3":        dict(hidden_size=4096, intermediate_size=14336, num_attention_heads=32, num_key_value_heads=8, head_dim=128),
 "qwen2":         dict(hidden_size=3584, intermediate_size=18944, num_attention_heads=28, num_key_value_heads=4),
 "qwen3":         dict(hidden_size=5120, intermediate_size=17408, num_attention_heads=40, num_key_value_heads=8),
 "qwen3_moe":     dict(hidden_size=2048, intermediate_size=6144, num_attention_heads=32, num_key_value_heads=4, head_dim=128, moe_intermediate_size=768, num_experts=128, num_experts_per_tok=8),
 "mixtral":       dict(hidden_size=4096, intermediate_size=14336, num_attention_heads=32, num_key_value_heads=8, head_dim=128),
 "deepseek_v3":   dict(hidden_size=7168, intermediate_size=18432, num_attention_heads=128, num_key_value_heads=128, q_lora_rank=1536, kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128, moe_intermediate_size=2048, n_routed_experts=32, num_experts_per_tok=8, n_group=8, topk_group=4, num_hidden_layers=2),
 "glm4_moe":      dict(hidden_size=4096, intermediate_size=10944, num_attention_heads=96, num_key_value_heads=8, head_dim=128, moe_intermediate_size=1408, n_routed_experts=32, num_experts_per_tok=8, num_hidden_layers=2),
}
if W:
    CASES = {n: dict(cls=CASES[n]["cls"], cfg={**CASES[n]["cfg"], **d, "max_position_embeddings": 8192}) for n, d in WIDE.items()}

def small(cls, rope=None, **kw):
    d = base(head_dim=32, rope_parameters=dict(dict(rope_type="default", rope_theta=10000.0), **(rope or {}))); d.update(kw)
    return dict(cls=cls, cfg=d)
ONE = dict(num_hidden_layers=1)
# Original length 64 with beta_fast 4: the blended band then lies inside the 16 pairs of a 32-wide head, whole or truncated.
# factor is not max_position_embeddings / original_max_position_embeddings here: factor is the one that counts.
YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=64, beta_fast=4.0, beta_slow=1.0)
MOE = dict(moe_intermediate_size=E, norm_topk_prob=True, tie_word_embeddings=True)
MLA = dict(num_key_value_heads=2, q_lora_rank=32, kv_lora_rank=32, qk_nope_head_dim=32, qk_rope_head_dim=16, v_head_dim=32, n_routed_experts=8, num_experts_per_tok=3,
           n_shared_experts=1, n_group=4, topk_group=2, first_k_dense_replace=1, routed_scaling_factor=2.5, head_dim=16)
GLM = dict(n_routed_experts=4, num_experts_per_tok=2, n_shared_experts=1, n_group=1, topk_group=1, first_k_dense_replace=1, routed_scaling_factor=1.5)
QMOE = dict(num_experts=4, num_experts_per_tok=2, shared_expert_intermediate_size=E)
if S: CASES = {
 "llama_rope_linear":           small("Llama", dict(rope_type="linear", factor=4.0), **ONE),
 "llama_rope_dynamic":          small("Llama", dict(rope_type="dynamic", factor=4.0), max_position_embeddings=64, **ONE),
 "llama_rope_llama3":           small("Llama", dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64), **ONE),
 "llama_rope_yarn_untruncated": small("Llama", dict(YARN, truncate=False), **ONE),
 "qwen2_rope_yarn":             small("Qwen2", dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=64), **ONE),
 "qwen3_rope_yarn_factor":      small("Qwen3", dict(YARN, attention_factor=1.3), **ONE),
 "deepseek_v3_rope_yarn_mscale":small("DeepseekV3", dict(YARN, mscale=1.0, mscale_all_dim=0.7), **{**MOE, **MLA, "moe_intermediate_size": 16}),
 "glm4_moe_rope_partial":       small("Glm4Moe", dict(partial_rotary_factor=0.25), partial_rotary_factor=0.25, use_qk_norm=True, **MOE, **GLM),
 "deepseek_v3_no_q_lora":       small("DeepseekV3", **{**MOE, **MLA, "moe_intermediate_size": 16, "q_lora_rank": None}),
 "glm4_moe_no_qk_norm":         small("Glm4Moe", dict(partial_rotary_factor=0.5), use_qk_norm=False, attention_bias=True, **MOE, **GLM),
 "qwen2_moe_sparse_step":       small("Qwen2Moe", **{**MOE, **QMOE, "norm_topk_prob": False, "decoder_sparse_step": 2}),
 "qwen2_moe_mlp_only":          small("Qwen2Moe", **{**MOE, **QMOE, "mlp_only_layers": [1]}),
 "qwen3_moe_unnormalized":      small("Qwen3Moe", **{**MOE, "norm_topk_prob": False, "num_experts": 6, "num_experts_per_tok": 3}),
 "qwen3_tied":                  small("Qwen3", tie_word_embeddings=True, num_attention_heads=4, num_key_value_heads=2),
 "llama_bias":                  small("Llama", attention_bias=True, mlp_bias=True, num_attention_heads=4, num_key_value_heads=2, **ONE),
 "ernie4_5_bias":               small("Ernie4_5", use_bias=True, tie_word_embeddings=True),
 "ernie4_5_moe_no_shared":      small("Ernie4_5_Moe", moe_intermediate_size=E, moe_num_experts=6, moe_k=3, moe_num_shared_experts=0, moe_layer_start_index=1, tie_word_embeddings=True),
}

def init(model):
    """Random weights wide enough that logits differ clearly; norms near 1; every buffer that routing uses is non-zero."""
    g = torch.Generator().manual_seed(A.seed + 1)
    model.to("cpu")
    with torch.no_grad():
        named = dict(model.named_parameters()); named.update({k: b for k, b in model.named_buffers() if "correction_bias" in k})
        for n, p in sorted(named.items()):
            if "correction_bias" in n: p.copy_(torch.randn(p.shape, generator=g) * 0.05)
            elif "norm" in n and p.ndim == 1 and n.endswith("weight"): p.copy_(1 + 0.1 * torch.randn(p.shape, generator=g))
            elif n.endswith("bias"): p.copy_(0.1 * torch.randn(p.shape, generator=g))
            elif "sinks" in n: p.copy_(torch.randn(p.shape, generator=g))
            elif "embed" in n and "position" not in n and "patch" not in n: p.copy_(torch.randn(p.shape, generator=g) * (0.2 if getattr(model.config.get_text_config(), "tie_word_embeddings", False) else 1.0))
            elif p.ndim == 1: p.copy_(1 + 0.1 * torch.randn(p.shape, generator=g))
            else:
                fan = p.shape[-1] if p.ndim <= 3 else int(np.prod(p.shape[1:]))
                p.copy_(torch.randn(p.shape, generator=g) * (1.4 / fan ** 0.5))
            p.copy_(p.to(torch.bfloat16).to(p.dtype))
    model.to(A.device)

def greedy(step, ids, n, banned=()):
    """Greedy continuation; `banned` ids (the vision placeholders) are never chosen."""
    banned = list(banned)
    out, margins = [], []
    for _ in range(n):
        lg = step(ids + out).clone(); lg[banned] = float("-inf")
        v, i = torch.topk(lg, 2); out.append(int(i[0])); margins.append(float(v[0] - v[1]))
    return out, margins

class RoutingGap:
    """Records how far the last chosen expert was ahead of the first one left out, over all tokens, while it is active."""
    def __enter__(self):
        self.least, self.topk = float("inf"), torch.topk
        def topk(x, k, *a, **kw):
            if x.ndim > 1 and k < x.shape[-1]:
                v = self.topk(x, k + 1, dim=-1).values
                self.least = min(self.least, float((v[..., k - 1] - v[..., k]).min()))
            return self.topk(x, k, *a, **kw)
        torch.topk = topk; return self
    def __exit__(self, *_): torch.topk = self.topk

def clear_prompt(step, n, least_margin=0.02, least_gap=3e-4, tries=40):
    """The first of up to `tries` random prompts whose greedy margins and routing gaps are all clear, else the best of them."""
    best = None
    for _ in range(tries):
        ids = rng.integers(3, V, n).tolist()
        with RoutingGap() as gap: cont, mar = greedy(step, ids, 20)
        score = min(min(mar) / least_margin, gap.least / least_gap)
        if best is None or score > best[0]: best = (score, ids, cont, mar)
        if score >= 1: break
    return best[1:]

def finish(case, model, tensors, meta):
    d = os.path.join(A.out, case); os.makedirs(d, exist_ok=True)
    model.to(torch.bfloat16).save_pretrained(d, safe_serialization=True)
    save_file({k: v.detach().cpu().contiguous().float() if v.is_floating_point() else v.detach().cpu().contiguous() for k, v in tensors.items()}, os.path.join(d, "golden.safetensors"))
    meta.update(transformers=transformers.__version__, torch=torch.__version__, seed=A.seed, weights="bfloat16", compute="float32")
    json.dump(meta, open(os.path.join(d, "golden.json"), "w"), indent=1)

def tt(ids): return torch.tensor([ids], device=A.device)

LENGTHS = (("short", 7), ("block_edge", 64), ("long", 197)) + ((("very_long", 3000),) if W else ())

def text_case(name, spec):
    Config = getattr(transformers, spec["cls"] + "Config"); Model = getattr(transformers, spec["cls"] + "ForCausalLM")
    cfg = Config(**spec["cfg"]); cfg._attn_implementation = "eager"
    if S: cfg._experts_implementation = "eager"
    model = Model(cfg).float().eval(); init(model)
    T, M = {}, {"kind": "text", "prompts": {}}
    dynamic = (getattr(cfg, "rope_parameters", None) or {}).get("rope_type") == "dynamic"
    if dynamic: M["reference_options"] = dict(dynamic_rope="base from max(length, max_position_embeddings) of the whole sequence of each forward, for all its positions; no key cache, so every greedy step rotates all keys anew")
    def forward(s, **kw):
        if dynamic: model.model.rotary_emb.max_seq_len_cached = 0   # else frequencies of a longer earlier sequence would stay
        return model(tt(s), use_cache=False, **kw)
    step = lambda s: forward(s).logits[0, -1]
    for key, n in LENGTHS:
        with torch.no_grad():
            if S: ids, cont, mar = clear_prompt(step, n)
            else:
                ids = rng.integers(3, V, n).tolist()
                cont, mar = greedy(step, ids, 20 if n < 1000 else 4)
            r = forward(ids, output_hidden_states=(key == "short"))
            lg = r.logits[0]
        T[f"{key}.logits"] = lg if key == "short" else lg[-1:]
        if key == "short":
            for i, h in enumerate(r.hidden_states): T[f"short.hidden.{i}"] = h[0]
        T[f"{key}.logprob_sum"] = torch.log_softmax(lg[:-1].double(), -1).gather(1, tt(ids[1:])[0][:, None]).sum().float()[None]
        M["prompts"][key] = dict(input_ids=ids, greedy=cont, margins=mar)
    finish(name, model, T, M)
    return float(np.median([m for p in M["prompts"].values() for m in p["margins"]]))

def picture(w, h, seed, mode="RGB"):
    r = np.random.default_rng(seed); y, x = np.mgrid[0:h, 0:w]
    a = np.stack([(x * 255 // max(w - 1, 1)), (y * 255 // max(h - 1, 1)), ((x // 8 + y // 8) % 2) * 200 + r.integers(0, 55, (h, w))], -1).astype(np.uint8)
    im = Image.fromarray(a); ImageDraw.Draw(im).text((4, 4), f"case {seed} {w}x{h}", fill=(255, 255, 255))
    return im.convert(mode)

def vl_case(name, kind):
    d = os.path.join(A.out, name); os.makedirs(d, exist_ok=True)
    qwen = kind == "qwen"
    rope = dict(rope_type="default", rope_theta=500000.0, mrope_section=[16, 24, 24] if kind == "paddleocr" else [22, 22, 20])
    if qwen: rope = dict(rope_type="default", rope_theta=1000000.0, mrope_section=[8, 12, 12] if not W else [16, 24, 24])
    if kind == "paddleocr":
        from transformers import PaddleOCRVLConfig as C, PaddleOCRVLForConditionalGeneration as Mdl
        cfg = C(text_config=base(head_dim=128, num_attention_heads=2 if not B else 4, num_key_value_heads=1 if not B else 2, rope_parameters=rope) if not W else base(hidden_size=1024, intermediate_size=3072, head_dim=128, num_attention_heads=16, num_key_value_heads=2, rope_parameters=rope),
                vision_config=dict(hidden_size=144, intermediate_size=304, num_hidden_layers=2 if not B else 3, num_attention_heads=2, image_size=126, patch_size=14) if not W else dict(hidden_size=1152, intermediate_size=4304, num_hidden_layers=3, num_attention_heads=16, image_size=384, patch_size=14),
                image_token_id=5, video_token_id=6, vision_start_token_id=7, vision_end_token_id=8, tie_word_embeddings=False)
    elif qwen:  # small patches keep the case small; windows of 4 x 4 merged cells as published, an MLP width that is no multiple of 8 too
        from transformers import Qwen2_5_VLConfig as C, Qwen2_5_VLForConditionalGeneration as Mdl
        cfg = C(text_config=base(rope_parameters=rope) if not W else base(hidden_size=2048, intermediate_size=11008, num_attention_heads=16, num_key_value_heads=2, rope_parameters=rope),
                vision_config=dict(depth=3, hidden_size=64 if not B else 96, num_heads=2, intermediate_size=172, patch_size=8, window_size=64, fullatt_block_indexes=[1], out_hidden_size=H, tokens_per_second=2) if not W else dict(depth=4, hidden_size=1280, num_heads=16, intermediate_size=3420, patch_size=14, window_size=112, fullatt_block_indexes=[1, 3], out_hidden_size=2048, tokens_per_second=2),
                image_token_id=5, video_token_id=6, vision_start_token_id=7, vision_end_token_id=8, tie_word_embeddings=False)
    else:
        from transformers import Ernie4_5_VLMoeConfig as C, Ernie4_5_VLMoeForConditionalGeneration as Mdl
        cfg = C(text_config=base(hidden_size=256 if not B else 384, num_attention_heads=2 if not B else 3, num_key_value_heads=1, moe_intermediate_size=[E, E // 2], moe_k=3, moe_num_experts=8, moe_num_shared_experts=2, rope_parameters=rope, tie_word_embeddings=True) if not W else base(hidden_size=2560, intermediate_size=12288, num_attention_heads=20, num_key_value_heads=4, moe_intermediate_size=[1536, 512], moe_k=6, moe_num_experts=64, moe_num_shared_experts=2, rope_parameters=rope, tie_word_embeddings=True),
                vision_config=dict(depth=2, hidden_size=64 if not B else 96, num_heads=2, intermediate_size=256) if not W else dict(depth=2, hidden_size=1280, num_heads=16, intermediate_size=5120),
                image_start_token_id=7, image_end_token_id=8, image_token_id=5, video_start_token_id=9, video_end_token_id=10, video_token_id=6, tie_word_embeddings=True)
    cfg._attn_implementation = "eager"
    model = Mdl(cfg).float().eval(); init(model)
    options = dict(video_advance="max(h,w)", expert_predicate="by_type") if kind != "paddleocr" else dict(position_interpolation="align_corners_false")
    if qwen: options = dict(video_advance="max(h,w)", video_t_step=2.0)  # a second per row of frames, two positions per second
    for m in model.modules():
        if hasattr(m, "interpolation_align_corners"): m.interpolation_align_corners = False  # as the original and FastDeploy do
    mod = {"paddleocr": "paddleocr_vl", "ernie": "ernie4_5_vl_moe", "qwen": "qwen2_vl"}[kind]
    import importlib
    pil = importlib.import_module(f"transformers.models.{mod}.image_processing_pil_{mod}")
    Proc = next(getattr(pil, n) for n in dir(pil) if n.endswith("ImageProcessorPil"))
    proc = Proc(size={"shortest_edge": 56 * 56, "longest_edge": 28 * 28 * 48})
    if qwen:
        patch = cfg.vision_config.patch_size
        proc = Proc(size={"shortest_edge": 4 * (2 * patch) ** 2, "longest_edge": 60 * (2 * patch) ** 2}, patch_size=patch)
    T, M = {}, {"kind": "vision", "processor": json.loads(proc.to_json_string()), "greedy_banned_ids": list(range(5, 11)), "reference_options": options, "prompts": {}}
    tn = lambda v: torch.tensor([v], device=A.device)
    def one(key, ims):
        names = []
        for i, im in enumerate(ims):
            fn = f"{key}.{i}.png"; im.save(os.path.join(d, fn)); names.append(fn)
        px = proc(images=ims, return_tensors="pt")
        pv, grid = px["pixel_values"].float().to(A.device), px["image_grid_thw"].to(A.device)
        ids, ty, mt = [1, 20, 21, 22], [0] * 4, [0] * 4
        for g in grid.tolist():
            n = g[0] * g[1] * g[2] // 4
            s, e = (7, 8)
            ids += [s] + [5] * n + [e, 30]; ty += [0] + [1] * n + [0, 0]; mt += [1] + [1] * n + [1, 0]
        tail = rng.integers(40, V, 9).tolist(); ids += tail; ty += [0] * 9; mt += [0] * 9
        def kw(s):
            k = dict(input_ids=tn(s), pixel_values=pv, image_grid_thw=grid, mm_token_type_ids=tn(ty + [0] * (len(s) - len(ty))))
            if kind == "ernie": k["moe_mm_token_type_ids"] = tn(mt + [0] * (len(s) - len(mt)))
            return k
        with torch.no_grad():
            inner = model.model; inner.rope_deltas = None
            feats = inner.get_image_features(pv, grid, return_dict=True)
            T[f"{key}.vision_last_hidden"] = feats.last_hidden_state.reshape(-1, feats.last_hidden_state.shape[-1])
            po = feats.pooler_output; T[f"{key}.image_embeds"] = torch.cat(list(po), 0) if isinstance(po, (list, tuple)) else po
            pos, delta = inner.get_rope_index(tn(ids), mm_token_type_ids=tn(ty), image_grid_thw=grid)
            T[f"{key}.position_ids"] = pos[:, 0].to(torch.int64)
            def step(s):
                inner.rope_deltas = None
                return model(**kw(s), use_cache=False).logits[0, -1]
            inner.rope_deltas = None
            lg = model(**kw(ids), use_cache=False).logits[0]
            cont, mar = greedy(step, ids, 12, banned=range(5, 11))
        T[f"{key}.pixel_values"] = pv; T[f"{key}.image_grid_thw"] = grid; T[f"{key}.logits"] = lg[-12:]
        M["prompts"][key] = dict(images=names, input_ids=ids, mm_token_type_ids=ty, moe_mm_token_type_ids=mt, rope_delta=int(delta.reshape(-1)[0]), greedy=cont, margins=mar)
    one("one", [picture(150, 90, 1 + A.seed % 97)])
    one("two", [picture(64, 64, 2), picture(200, 60, 3)])
    one("tall", [picture(45, 210, 4)])
    if kind != "paddleocr":
        fr = [picture(112, 84, 10 + i) for i in range(4)]
        for i, im in enumerate(fr): im.save(os.path.join(d, f"video.{i}.png"))
        px = [proc(images=[f], return_tensors="pt") for f in fr]
        pv = torch.cat([p["pixel_values"].float() for p in px]).to(A.device); g0 = px[0]["image_grid_thw"][0].tolist(); grid = tn([4, g0[1], g0[2]])
        if qwen:  # two frames lie in one row, one behind the other within a channel
            still = [p["pixel_values"].float().reshape(g0[1] * g0[2], 3, 2, -1)[:, :, 0] for p in px]
            pv = torch.cat([torch.stack(pair, 2).flatten(1) for pair in zip(still[::2], still[1::2])]).to(A.device); grid = tn([2, g0[1], g0[2]])
        n = 4 * g0[1] * g0[2] // 8
        ids = [1, 20, 7 if qwen else 9] + [6] * n + [8 if qwen else 10] + rng.integers(40, V, 6).tolist()
        ty = [0, 0, 0] + [2] * n + [0] * 7; mt = [0, 0, 2] + [2] * n + [2] + [0] * 6
        with torch.no_grad():
            inner = model.model; inner.rope_deltas = None
            f = inner.get_video_features(pv, grid, return_dict=True)
            more = dict(second_per_grid_ts=torch.tensor([1.0])) if qwen else {}
            pos, delta = inner.get_rope_index(tn(ids), mm_token_type_ids=tn(ty), video_grid_thw=grid, **more)
            inner.rope_deltas = None
            if not qwen: more["moe_mm_token_type_ids"] = tn(mt)
            lg = model(input_ids=tn(ids), pixel_values_videos=pv, video_grid_thw=grid, mm_token_type_ids=tn(ty), use_cache=False, **more).logits[0]
        T["video.pixel_values"] = pv; T["video.grid_thw"] = grid; T["video.embeds"] = torch.cat(list(f.pooler_output), 0); T["video.position_ids"] = pos[:, 0].to(torch.int64); T["video.logits"] = lg[-12:]
        M["prompts"]["video"] = dict(frames=[f"video.{i}.png" for i in range(4)], input_ids=ids, mm_token_type_ids=ty, moe_mm_token_type_ids=mt, rope_delta=int(delta.reshape(-1)[0]))
    finish(name, model, T, M)
    return float(np.median([m for p in M["prompts"].values() for m in p.get("margins", [])]))

only = set(filter(None, A.only.split(",")))
for name, spec in CASES.items():
    if only and name not in only:
        if not S: [rng.integers(3, V, n) for _, n in LENGTHS]  # as if it were made
        continue
    try: print("ok  ", name, "median greedy margin %.3f" % text_case(name, spec), flush=True)
    except Exception: print("FAIL", name); traceback.print_exc()
for name, kind in (("paddleocr_vl", "paddleocr"), ("ernie4_5_vl_moe", "ernie"), ("qwen2_5_vl", "qwen")):
    if S or (only and name not in only): continue
    try: print("ok  ", name, "median greedy margin %.3f" % vl_case(name, kind), flush=True)
    except Exception: print("FAIL", name); traceback.print_exc()
