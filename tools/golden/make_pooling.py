#!/usr/bin/env python3
"""Reference cases of pooling models: tiny random checkpoints and what transformers' decoders, with the heads that
docs/spec/models-newer.md 3 describes, compute from them.

Writes OUT/<case>/ as make_golden.py does, with X.logits the rows of a pooling model: hidden states of an embedding model
(before they are normalised; all rows of "short", the last one of the others), labels of a reward model (before the softmax).
No greedy continuations: there is nothing to draw. Needs PyTorch and transformers. Usage: make_pooling.py OUT [--seed N]
"""

import argparse
import json
import pathlib

import torch
import transformers
from safetensors.torch import save_file

HIDDEN, VOCAB = 64, 160
LENGTHS = (("short", 7), ("block_edge", 64), ("long", 197))


def sizes(**more):
    return {
        "vocab_size": VOCAB,
        "hidden_size": HIDDEN,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
        **more,
    }


def relu_head(labels):
    layers = torch.nn.Sequential(torch.nn.Linear(HIDDEN, HIDDEN), torch.nn.ReLU(), torch.nn.Linear(HIDDEN, labels))
    return torch.nn.ModuleDict({"score": layers})


class Gated(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up_gate_proj = torch.nn.Linear(HIDDEN, 2 * HIDDEN, bias=False)
        self.down_proj = torch.nn.Linear(HIDDEN, 1, bias=False)

    def forward(self, x):
        gate, up = self.up_gate_proj(x).chunk(2, -1)
        return self.down_proj(torch.nn.functional.silu(gate) * up)


def qwen3():
    return transformers.Qwen3Model(transformers.Qwen3Config(**sizes(head_dim=16))), None


def qwen2(labels):
    return transformers.Qwen2Model(transformers.Qwen2Config(**sizes())), relu_head(labels)


def ernie_vl():
    rope = {"rope_type": "default", "rope_theta": 500000.0, "mrope_section": [3, 3, 2]}
    text = sizes(
        moe_intermediate_size=[32, 16],
        moe_k=2,
        moe_num_experts=4,
        moe_num_shared_experts=2,
        mlp_layer_types=["dense", "sparse"],
        rope_parameters=rope,
        head_dim=16,
    )
    text.pop("head_dim")
    config = transformers.Ernie4_5_VLMoeConfig(text_config=text, image_token_id=150, image_start_token_id=151)
    return transformers.Ernie4_5_VLMoeTextModel(config.text_config), torch.nn.ModuleDict({"rm_head": Gated()})


CASES = {
    # name: (decoder and head, architecture, prefix of the decoder's tensors, what config.json has besides)
    "qwen3_embedding": (qwen3, "Qwen3ForCausalLM", "", {}),
    "qwen2_process_reward": (lambda: qwen2(2), "Qwen2ForProcessRewardModel", "model.", {}),
    "qwen2_reward": (lambda: qwen2(1), "Qwen2ForRewardModel", "model.", {}),
    "ernie4_5_vl_reward": (
        ernie_vl,
        "Ernie4_5_VLMoeForProcessRewardModel",
        "model.",
        {"im_patch_id": 150, "expert_predicate": "by_type", "image_start_token_id": 151, "image_end_token_id": 152},
    ),
}


def fill(module, generator):
    """Weights wide enough that rows differ clearly; norms near 1."""
    with torch.no_grad():
        for name, p in sorted(module.named_parameters()) + sorted(
            (n, b) for n, b in module.named_buffers() if "correction_bias" in n
        ):
            noise = torch.randn(p.shape, generator=generator)
            if "norm" in name and p.ndim == 1:
                noise = 1 + 0.1 * noise
            elif "correction_bias" in name:
                noise = 0.05 * noise
            elif p.ndim == 1:
                noise = 0.1 * noise
            elif "embed" not in name:
                noise = noise * 1.4 / p.shape[-1] ** 0.5
            p.copy_(noise.to(torch.bfloat16))


def make(out, name, seed):
    build, architecture, prefix, more = CASES[name]
    torch.manual_seed(seed)
    decoder, head = build()
    decoder.config._attn_implementation = decoder.config._experts_implementation = "eager"
    generator = torch.Generator().manual_seed(seed + 1)
    for module in (decoder.float().eval(), head):
        if module is not None:
            fill(module, generator)
    tensors, prompts = {}, {}
    for key, length in LENGTHS:
        ids = torch.randint(3, 150, (length,), generator=generator)
        with torch.no_grad():
            states = decoder(ids[None], use_cache=False, output_hidden_states=True)
            rows = states.last_hidden_state[0]
            if head is not None:
                rows = next(iter(head.values()))(rows)
        tensors[f"{key}.logits"] = rows if key == "short" or head is not None else rows[-1:]
        if key == "short":
            for i, h in enumerate(states.hidden_states):
                tensors[f"short.hidden.{i}"] = h[0]
        prompts[key] = {"input_ids": ids.tolist()}
    folder = pathlib.Path(out) / name
    folder.mkdir(parents=True, exist_ok=True)
    weights = {prefix + n: t for n, t in decoder.state_dict().items()}
    weights.update(head.state_dict() if head is not None else {})
    save_file({n: t.to(torch.bfloat16).contiguous() for n, t in weights.items()}, folder / "model.safetensors")
    save_file({n: t.float().clone().contiguous() for n, t in tensors.items()}, folder / "golden.safetensors")
    config = decoder.config.to_dict() | {"architectures": [architecture], "dtype": "bfloat16"} | more
    (folder / "config.json").write_text(json.dumps(config, indent=1, default=str) + "\n")
    about = {
        "kind": "text",
        "prompts": prompts,
        "reference_options": {"embed": "as --convert embed"} if head is None else {},
        "transformers": transformers.__version__,
        "torch": torch.__version__,
        "seed": seed,
        "weights": "bfloat16",
        "compute": "float32",
    }
    (folder / "golden.json").write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", help="folder that receives one folder per case")
    parser.add_argument("--seed", type=int, default=20251128)
    options = parser.parse_args()
    for case in CASES:
        make(options.out, case, options.seed)
        print(case)
