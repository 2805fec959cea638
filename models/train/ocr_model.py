"""PaddleOCR-VL in PyTorch, as far as training and scoring the demonstration model need it.

Names and shapes of the parameters are those of the checkpoint layout, so a state dict is a checkpoint. Everything is packed:
documents and pictures lie end to end, `cu` arrays say where each begins, and nothing looks across.
"""

import json, math, os
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import nn
from model import Decoder, Layer

CONFIG = dict(
    architectures=["PaddleOCRVLForConditionalGeneration"],
    model_type="paddleocr_vl",
    hidden_size=256,
    intermediate_size=768,
    num_hidden_layers=8,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=64,
    vocab_size=2176,
    max_position_embeddings=131072,
    rms_norm_eps=1e-5,
    rope_theta=10000.0,
    rope_scaling=dict(mrope_section=[2, 6, 24], rope_type="default", type="default"),
    hidden_act="silu",
    use_bias=False,
    tie_word_embeddings=True,
    use_cache=True,
    bos_token_id=1,
    eos_token_id=2,
    pad_token_id=0,
    vision_start_token_id=2048,
    image_token_id=2049,
    vision_end_token_id=2050,
    video_token_id=2051,
    compression_ratio=1.0,
    torch_dtype="bfloat16",
    vision_config=dict(
        model_type="paddleocr_vl",
        hidden_size=256,
        intermediate_size=640,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_channels=3,
        image_size=378,
        patch_size=14,
        hidden_act="gelu_pytorch_tanh",
        layer_norm_eps=1e-6,
        spatial_merge_size=2,
        temporal_patch_size=1,
        tokens_per_second=2,
        attention_dropout=0.0,
    ),
)
GENERATION = dict(bos_token_id=1, eos_token_id=2, pad_token_id=0, do_sample=False)
PREPROCESSOR = dict(
    image_processor_type="PaddleOCRVLImageProcessor",
    processor_class="PaddleOCRVLProcessor",
    do_convert_rgb=True,
    do_resize=True,
    do_rescale=True,
    do_normalize=True,
    rescale_factor=1 / 255,
    image_mean=[0.5, 0.5, 0.5],
    image_std=[0.5, 0.5, 0.5],
    min_pixels=4 * 784,
    max_pixels=1280 * 784,
    patch_size=14,
    merge_size=2,
    temporal_patch_size=1,
    resample=3,
)


def attention(q, k, v, cu, longest, causal):
    """q [T, heads, d], k, v [T, kv heads, d]; softmax in float32 inside. On the CPU one document after another."""
    if k.shape[1] != q.shape[1]:
        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    if q.is_cuda and q.dtype == torch.bfloat16:
        from torch.nn.attention.varlen import varlen_attn

        return varlen_attn(q, k, v, cu, cu, longest, longest, window_size=(-1, 0) if causal else (-1, -1))
    out, edges = torch.zeros_like(q), cu.tolist()
    parts = [
        F.scaled_dot_product_attention(*(x[a:b].transpose(0, 1)[None] for x in (q, k, v)), is_causal=causal)[0].transpose(0, 1)
        for a, b in zip(edges, edges[1:])
        if b > a
    ]
    done = torch.cat(parts)
    return done if len(done) == len(q) else torch.cat((done, out[len(done) :]))


def rotate(x, cos, sin):
    """Half-split rotary embedding: pairs (j, j + d/2). x [..., heads, d]; cos, sin [..., 1, d/2], float32."""
    a, b = x.float().chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype)


def layer_norm(m, x):
    return F.layer_norm(x.float(), m.normalized_shape, m.weight.float(), m.bias.float(), m.eps).to(x.dtype)


class TowerAttention(nn.Module):
    def __init__(self, h, heads):
        super().__init__()
        self.heads = heads
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (nn.Linear(h, h) for _ in range(4))

    def forward(self, x, cos, sin, cu, longest):
        q, k, v = (p(x).unflatten(-1, (self.heads, -1)) for p in (self.q_proj, self.k_proj, self.v_proj))
        return self.out_proj(attention(rotate(q, cos, sin), rotate(k, cos, sin), v, cu, longest, False).flatten(-2))


class TowerMLP(nn.Module):
    def __init__(self, h, m):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(h, m), nn.Linear(m, h)

    def forward(self, x):
        return self.fc2(F.gelu(self.fc1(x), approximate="tanh"))


class TowerLayer(nn.Module):
    def __init__(self, c):
        super().__init__()
        h, eps = c["hidden_size"], c["layer_norm_eps"]
        self.layer_norm1, self.self_attn = nn.LayerNorm(h, eps), TowerAttention(h, c["num_attention_heads"])
        self.layer_norm2, self.mlp = nn.LayerNorm(h, eps), TowerMLP(h, c["intermediate_size"])

    def forward(self, x, cos, sin, cu, longest):
        x = x + self.self_attn(layer_norm(self.layer_norm1, x), cos, sin, cu, longest)
        return x + self.mlp(layer_norm(self.layer_norm2, x))


class Embeddings(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.patch_embedding = nn.Conv2d(c["num_channels"], c["hidden_size"], c["patch_size"], c["patch_size"])
        self.side = c["image_size"] // c["patch_size"]
        self.position_embedding = nn.Embedding(self.side**2, c["hidden_size"])

    def forward(self, patches, y, x, rows, columns):
        """patches [P, 3*14*14]; y, x, rows, columns [P]: place of the patch and size of its picture, in patches."""
        e = self.patch_embedding
        out = F.linear(patches, e.weight.flatten(1), e.bias)
        # Bilinear, align_corners = false, of the side x side table at the picture's size, as a matrix product.
        cell = torch.arange(self.side, device=y.device, dtype=torch.float32)
        hat = lambda i, n: (
            1 - (((i.float() + 0.5) * self.side / n.float() - 0.5).clamp(0, self.side - 1)[:, None] - cell).abs()
        ).clamp(min=0)
        both = (hat(y, rows)[:, :, None] * hat(x, columns)[:, None, :]).flatten(1).to(out.dtype)
        return out + both @ self.position_embedding.weight.to(out.dtype)


class Encoder(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.layers = nn.ModuleList(TowerLayer(c) for _ in range(c["num_hidden_layers"]))


class VisionModel(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.config, self.embeddings, self.encoder, self.post_layernorm = (
            c,
            Embeddings(c),
            Encoder(c),
            nn.LayerNorm(c["hidden_size"], c["layer_norm_eps"]),
        )

    def forward(self, patches, y, x, rows, columns, cu, longest):
        d = self.config["hidden_size"] // self.config["num_attention_heads"]
        f = 10000.0 ** (-torch.arange(0, d // 2, 2, device=y.device, dtype=torch.float32) / (d // 2))
        angle = torch.cat((y.float()[:, None] * f, x.float()[:, None] * f), -1)[:, None]
        h, cos, sin = self.embeddings(patches, y, x, rows, columns), angle.cos(), angle.sin()
        for layer in self.encoder.layers:
            h = layer(h, cos, sin, cu, longest)
        return layer_norm(self.post_layernorm, h)


class Visual(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.vision_model = VisionModel(c)


class Projector(nn.Module):
    """Patches in 2x2-block order to one token for each block."""

    def __init__(self, v, h):
        super().__init__()
        self.pre_norm, self.linear_1, self.linear_2 = nn.LayerNorm(v, 1e-5), nn.Linear(4 * v, 4 * v), nn.Linear(4 * v, h)

    def forward(self, x):
        return self.linear_2(F.gelu(self.linear_1(layer_norm(self.pre_norm, x).reshape(-1, self.linear_1.in_features))))


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.dim, heads, kv = c["head_dim"], c["num_attention_heads"], c["num_key_value_heads"]
        self.q_proj, self.o_proj = (
            nn.Linear(c["hidden_size"], heads * self.dim, bias=False),
            nn.Linear(heads * self.dim, c["hidden_size"], bias=False),
        )
        self.k_proj, self.v_proj = (nn.Linear(c["hidden_size"], kv * self.dim, bias=False) for _ in range(2))

    def qkv(self, x, cos, sin):
        q, k, v = (p(x).unflatten(-1, (-1, self.dim)) for p in (self.q_proj, self.k_proj, self.v_proj))
        return rotate(q, cos, sin), rotate(k, cos, sin), v

    def forward(self, x, cos, sin, cu, longest):
        return self.o_proj(attention(*self.qkv(x, cos, sin), cu, longest, True).flatten(-2))


class PackedLayer(Layer):
    attention = Attention


class PackedDecoder(Decoder):
    layer = PackedLayer


class PaddleOCRVL(nn.Module):
    def __init__(self, c=CONFIG):
        super().__init__()
        self.config, self.model, self.visual = c, PackedDecoder(c), Visual(c["vision_config"])
        self.mlp_AR = Projector(c["vision_config"]["hidden_size"], c["hidden_size"])
        deep = {
            "o_proj": c["num_hidden_layers"],
            "down_proj": c["num_hidden_layers"],
            "out_proj": c["vision_config"]["num_hidden_layers"],
            "fc2": c["vision_config"]["num_hidden_layers"],
        }
        for name, p in self.named_parameters():
            leaf = name.split(".")[-2]
            if p.ndim >= 2:
                nn.init.normal_(
                    p, std=0.04 / math.sqrt(2 * deep.get(leaf, 0.5))
                )  # branches into the residual stream start smaller
            elif name.endswith("bias"):
                nn.init.zeros_(p)
        nn.init.normal_(self.mlp_AR.linear_2.weight, std=0.03)

    def see(self, patches, y, x, rows, columns, cu, longest):
        """Pictures to embeddings of their tokens [P/4, hidden]; patches [P, 588] in 2x2-block order."""
        return self.mlp_AR(self.visual.vision_model(patches, y, x, rows, columns, cu, longest))

    def rope(self, pos):
        """cos and sin [..., 1, d/2] of positions [3, ...] (t, h, w)."""
        d = self.config["head_dim"]
        axis = torch.repeat_interleave(torch.arange(3), torch.tensor(self.config["rope_scaling"]["mrope_section"])).to(pos.device)
        f = self.config["rope_theta"] ** (-torch.arange(0, d, 2, device=pos.device, dtype=torch.float32) / d)
        angle = (pos.float().movedim(0, -1)[..., axis] * f)[..., None, :]
        return angle.cos(), angle.sin()

    def decode(self, x, pos, cu, longest):
        cos, sin = self.rope(pos)
        for layer in self.model.layers:
            x = layer(x, cos, sin, cu, longest)
        return self.model.norm(x)

    def logits(self, x):
        return F.linear(x, self.model.embed_tokens.weight.to(x.dtype))

    def forward(self, ids, pos, cu_doc, longest_doc, images=None, slots=None):
        """ids [T], pos [3, T]; images are the arguments of `see`, slots [P/4] the places of their tokens (T and more: none)."""
        x = self.model.embed_tokens(ids)
        if torch.is_autocast_enabled("cuda"):
            x = x.to(torch.bfloat16)
        if images is not None:
            seen = self.see(*images).to(x.dtype)
            x = torch.cat((x, x.new_zeros(len(slots), x.shape[1]))).index_copy(0, slots.long(), seen)[: len(ids)]
        return self.logits(self.decode(x, pos, cu_doc, longest_doc))


def start_from_text(model, file):
    """Takes the decoder of the text model (interleaved rotary pairs) over; the tower keeps its fresh weights."""
    old, own = load_file(file), model.state_dict()
    c = model.config
    for name, w in old.items():
        w = w.float()
        if name.endswith(("q_proj.weight", "k_proj.weight")):
            w = w.view(-1, c["head_dim"] // 2, 2, w.shape[1]).transpose(1, 2).reshape(-1, w.shape[1])
        if name == "model.embed_tokens.weight":
            own[name][: len(w)] = w
        else:
            own[name].copy_(w)
    model.load_state_dict(own)


def save_checkpoint(model, folder, shards=2):
    """The folder as it ships: config files and weights rounded to bfloat16 in shards, decoder and rest apart."""
    os.makedirs(folder, exist_ok=True)
    for name, value in (
        ("config.json", model.config),
        ("generation_config.json", GENERATION),
        ("preprocessor_config.json", PREPROCESSOR),
    ):
        with open(os.path.join(folder, name), "w") as f:
            json.dump(value, f, indent=2)
            f.write("\n")
    weights = {k: v.detach().to("cpu", torch.bfloat16).contiguous() for k, v in model.state_dict().items()}
    total, index, part, used = sum(v.nbytes for v in weights.values()), {}, 0, 0
    groups = [{} for _ in range(shards)]
    for k, v in weights.items():
        if used > total * (part + 1) / shards:
            part += 1
        groups[part][k] = v
        used += v.nbytes
    for i, g in enumerate(groups):
        file = f"model-{i + 1:05}-of-{shards:05}.safetensors"
        save_file(g, os.path.join(folder, file), metadata={"format": "pt"})
        index.update({k: file for k in g})
    with open(os.path.join(folder, "model.safetensors.index.json"), "w") as f:
        json.dump(dict(metadata=dict(total_size=total), weight_map=dict(sorted(index.items()))), f, indent=2)
        f.write("\n")


def load_weights(folder):
    with open(os.path.join(folder, "model.safetensors.index.json")) as f:
        files = sorted(set(json.load(f)["weight_map"].values()))
    return {k: v.float() for file in files for k, v in load_file(os.path.join(folder, file)).items()}


def load_checkpoint(folder, device, dtype=torch.float32):
    with open(os.path.join(folder, "config.json")) as f:
        model = PaddleOCRVL(json.load(f))
    model.load_state_dict(load_weights(folder))
    return model.to(device, dtype).eval()
