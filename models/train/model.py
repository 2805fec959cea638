"""The ERNIE-4.5 dense text decoder in PyTorch, as far as training and scoring the demonstration model need it.

Parameter names and shapes are those of the Hugging Face checkpoint layout, so a state dict is a checkpoint.
"""

import json, os
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import nn

CONFIG = dict(
    architectures=["Ernie4_5ForCausalLM"],
    model_type="ernie4_5",
    hidden_size=256,
    intermediate_size=768,
    num_hidden_layers=8,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=64,
    vocab_size=2048,
    max_position_embeddings=4096,
    rms_norm_eps=1e-5,
    rope_theta=500000.0,
    hidden_act="silu",
    use_bias=False,
    tie_word_embeddings=True,
    use_cache=True,
    bos_token_id=1,
    eos_token_id=2,
    pad_token_id=0,
    torch_dtype="bfloat16",
)
GENERATION = dict(bos_token_id=1, eos_token_id=2, pad_token_id=0, do_sample=True, temperature=0.3, top_p=0.8)


class RMSNorm(nn.Module):
    def __init__(self, width, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x):
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.eps)
        return y.to(x.dtype) * self.weight.to(x.dtype)


def rotate(x, cos, sin):
    """Interleaved rotary embedding: neighbours (2i, 2i + 1) are a pair. x [B, heads, T, head_dim]; cos, sin [T, head_dim / 2]."""
    a, b = x.float().unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack((a * cos - b * sin, b * cos + a * sin), -1).flatten(-2).to(x.dtype)


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.heads, self.kv, self.dim = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
        self.q_proj = nn.Linear(c["hidden_size"], self.heads * self.dim, bias=False)
        self.k_proj = nn.Linear(c["hidden_size"], self.kv * self.dim, bias=False)
        self.v_proj = nn.Linear(c["hidden_size"], self.kv * self.dim, bias=False)
        self.o_proj = nn.Linear(self.heads * self.dim, c["hidden_size"], bias=False)

    def forward(self, x, cos, sin, mask):
        B, T, _ = x.shape
        split = lambda y, n: y.view(B, T, n, self.dim).transpose(1, 2)
        q, k, v = (
            rotate(split(self.q_proj(x), self.heads), cos, sin),
            rotate(split(self.k_proj(x), self.kv), cos, sin),
            split(self.v_proj(x), self.kv),
        )
        k, v = (y.repeat_interleave(self.heads // self.kv, 1) for y in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
        return self.o_proj(y.transpose(1, 2).reshape(B, T, -1))


class MLP(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.gate_proj = nn.Linear(c["hidden_size"], c["intermediate_size"], bias=False)
        self.up_proj = nn.Linear(c["hidden_size"], c["intermediate_size"], bias=False)
        self.down_proj = nn.Linear(c["intermediate_size"], c["hidden_size"], bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    """`where`: what the attention takes besides the rows."""

    attention = Attention

    def __init__(self, c):
        super().__init__()
        self.input_layernorm = RMSNorm(c["hidden_size"], c["rms_norm_eps"])
        self.self_attn = self.attention(c)
        self.post_attention_layernorm = RMSNorm(c["hidden_size"], c["rms_norm_eps"])
        self.mlp = MLP(c)

    def forward(self, x, *where):
        x = x + self.self_attn(self.input_layernorm(x), *where)
        return x + self.mlp(self.post_attention_layernorm(x))


class Decoder(nn.Module):
    layer = Layer

    def __init__(self, c):
        super().__init__()
        self.embed_tokens = nn.Embedding(c["vocab_size"], c["hidden_size"])
        self.layers = nn.ModuleList(self.layer(c) for _ in range(c["num_hidden_layers"]))
        self.norm = RMSNorm(c["hidden_size"], c["rms_norm_eps"])


class Ernie(nn.Module):
    def __init__(self, c=CONFIG):
        super().__init__()
        self.config, self.model = c, Decoder(c)
        for name, p in self.named_parameters():
            if p.ndim == 2:  # the branches that write into the residual stream start smaller
                nn.init.normal_(
                    p, std=0.04 / ((2 * c["num_hidden_layers"]) ** 0.5 if "o_proj" in name or "down_proj" in name else 1)
                )

    def forward(self, ids, mask=None):
        """ids [B, T] to logits [B, T, vocabulary]; mask [B, 1, T, T] is added to the attention scores, causal when absent."""
        d = self.config["head_dim"]
        freq = self.config["rope_theta"] ** (-torch.arange(0, d, 2, device=ids.device, dtype=torch.float32) / d)
        angle = torch.arange(ids.shape[1], device=ids.device, dtype=torch.float32)[:, None] * freq
        x = self.model.embed_tokens(ids)
        if torch.is_autocast_enabled("cuda"):
            x = x.to(torch.bfloat16)  # the residual stream as the served model keeps it
        cos, sin = angle.cos(), angle.sin()
        for layer in self.model.layers:
            x = layer(x, cos, sin, mask)
        return F.linear(self.model.norm(x), self.model.embed_tokens.weight)


def save_checkpoint(model, folder):
    """config.json, generation_config.json and model.safetensors with the weights rounded to bfloat16."""
    os.makedirs(folder, exist_ok=True)
    for name, value in (("config.json", model.config), ("generation_config.json", GENERATION)):
        with open(os.path.join(folder, name), "w") as f:
            json.dump(value, f, indent=2)
            f.write("\n")
    weights = {k: v.detach().to("cpu", torch.bfloat16).contiguous() for k, v in model.state_dict().items()}
    save_file(weights, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})


def load_checkpoint(folder, device, dtype=torch.float32):
    with open(os.path.join(folder, "config.json")) as f:
        model = Ernie(json.load(f))
    model.load_state_dict(load_file(os.path.join(folder, "model.safetensors")))
    return model.to(device, dtype).eval()


@torch.no_grad()
def greedy(model, prompts, max_new, device, batch=512):
    """Greedy continuations (without the end token) of lists of ids. No key cache: the answers are short and the model small."""
    eos, out = model.config["eos_token_id"], [None] * len(prompts)
    order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
    for start in range(0, len(order), batch):
        part = order[start : start + batch]
        n = torch.tensor([len(prompts[i]) for i in part], device=device)
        ids = torch.zeros(len(part), int(n.max()) + max_new, dtype=torch.long)
        for row, i in enumerate(part):
            ids[row, : len(prompts[i])] = torch.tensor(prompts[i])
        ids, live, rows = (
            ids.to(device),
            torch.ones(len(part), dtype=torch.bool, device=device),
            torch.arange(len(part), device=device),
        )
        end = n.clone()
        for _ in range(max_new):
            # Padding stands to the right, where causal attention cannot see it.
            logits = model(ids[:, : int(end.max())])[rows, end - 1]
            token = logits.argmax(-1)
            live = live & (token != eos)
            if not live.any():
                break
            ids[rows[live], end[live]] = token[live]
            end = end + live.long()
        for row, i in enumerate(part):
            out[i] = ids[row, n[row] : end[row]].tolist()
    return out
