"""Model folders that a server can open: reference cases with a tokenizer whose word <i> is token i, dummy shapes."""

import base64
import json
import os
import pathlib

CASE_FILES = ("config.json", "generation_config.json")
# Names that servers know for ids 5 to 10, per family of architectures.
ERNIE_NAMES = {
    5: "<|IMAGE_PLACEHOLDER|>",
    6: "<|VIDEO_PLACEHOLDER|>",
    7: "<|IMAGE_START|>",
    8: "<|IMAGE_END|>",
    9: "<|VIDEO_START|>",
    10: "<|VIDEO_END|>",
}
QWEN_NAMES = {5: "<|image_pad|>", 6: "<|video_pad|>", 7: "<|vision_start|>", 8: "<|vision_end|>"}
TEMPLATE = (
    "{%- for message in messages -%}{%- for part in message['content'] -%}"
    "{%- if part['type'] == 'text' -%}{{ part['text'] }}{%- else -%}{{ '@START@@IMAGE@@END@' }}{%- endif -%}"
    "{%- endfor -%}{%- endfor -%}"
)


# --quantization for a cache of codes.
CACHES = {name: f'{{"quantization":"kvcache","kv_cache_quant_type":"{name}"}}' for name in ("int8", "float8_e4m3fn")}


def golden(case):
    return json.loads((case / "golden.json").read_text())


def is_vision(data):
    return data["kind"] == "vision"


def names_of(config):
    return QWEN_NAMES if config["architectures"][0].startswith("Qwen") else ERNIE_NAMES


def names_for(config):
    """The same names at the ids that a published configuration gives them."""
    keys = {5: "image_token_id", 6: "video_token_id", 7: "vision_start_token_id", 8: "vision_end_token_id"}
    return {config[key]: names_of(config)[i] for i, key in keys.items() if key in config}


def byte_letters():
    """The letter for each byte in byte-level vocabularies."""
    keep = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in keep]
    return [chr(b) if b in keep else chr(256 + others.index(b)) for b in range(256)]


def write_words(folder, vocab, names):
    """tokenizer.json in which the text <i> is token i (bytes lie above the model's ids), and a template that puts parts one
    behind another."""
    tokens = [
        {
            "id": i,
            "content": names.get(i, f"<{i}>"),
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": i in names,
        }
        for i in range(vocab)
    ]
    step = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    model = {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
        "vocab": {letter: vocab + b for b, letter in enumerate(byte_letters())},
        "merges": [],
    }
    (folder / "tokenizer.json").write_text(
        json.dumps(
            {
                "version": "1.0",
                "truncation": None,
                "padding": None,
                "added_tokens": tokens,
                "normalizer": None,
                "pre_tokenizer": step,
                "post_processor": None,
                "decoder": step,
                "model": model,
            }
        )
    )
    texts = {5: "@IMAGE@", 7: "@START@", 8: "@END@"}
    template = TEMPLATE
    for family in (ERNIE_NAMES, QWEN_NAMES):
        for i, place in texts.items():
            if family[i] in names.values():
                template = template.replace(place, family[i])
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))


def from_case(case, folder):
    """A folder to serve: the case itself by links; one with pictures also gets words and its processor."""
    data = golden(case)
    for path in case.iterdir():
        if (
            path.name in CASE_FILES
            or path.suffix == ".safetensors"
            and path.name != "golden.safetensors"
            or path.name.endswith(".index.json")
        ):
            os.symlink(path.resolve(), folder / path.name)
    if is_vision(data):
        config = json.loads((case / "config.json").read_text())
        text = config.get("text_config", config)
        write_words(folder, text["vocab_size"], names_of(config))
        (folder / "preprocessor_config.json").write_text(json.dumps(data["processor"]))
    return folder


# Published widths: what replaces the values of a reference case's configuration. Servers fill such a folder by
# --load-choices dummy.
WIDTHS = {
    "qwen3-8b": (
        "qwen3",
        dict(
            hidden_size=4096,
            intermediate_size=12288,
            num_attention_heads=32,
            num_key_value_heads=8,
            head_dim=128,
            num_hidden_layers=36,
            vocab_size=151936,
            max_position_embeddings=40960,
        ),
    ),
    "qwen3-30b-a3b": (
        "qwen3_moe",
        dict(
            hidden_size=2048,
            intermediate_size=6144,
            num_attention_heads=32,
            num_key_value_heads=4,
            head_dim=128,
            moe_intermediate_size=768,
            num_experts=128,
            num_experts_per_tok=8,
            num_hidden_layers=48,
            vocab_size=151936,
            max_position_embeddings=40960,
        ),
    ),
    "deepseek-v3": (
        "deepseek_v3",
        dict(
            hidden_size=7168,
            intermediate_size=18432,
            num_attention_heads=128,
            num_key_value_heads=128,
            q_lora_rank=1536,
            kv_lora_rank=512,
            qk_nope_head_dim=128,
            qk_rope_head_dim=64,
            qk_head_dim=192,
            v_head_dim=128,
            moe_intermediate_size=2048,
            n_routed_experts=32,
            num_experts_per_tok=8,
            n_group=8,
            topk_group=4,
            num_hidden_layers=2,
            vocab_size=129280,
        ),
    ),
    "paddleocr-vl-0.9b": (
        "paddleocr_vl",
        dict(
            text_config=dict(
                hidden_size=1024,
                intermediate_size=3072,
                head_dim=128,
                num_attention_heads=16,
                num_key_value_heads=2,
                num_hidden_layers=18,
                vocab_size=103424,
                max_position_embeddings=131072,
            ),
            vision_config=dict(
                hidden_size=1152, intermediate_size=4304, num_hidden_layers=27, num_attention_heads=16, image_size=384
            ),
        ),
    ),
}


def published(places, name, folder, **more):
    """A folder with nothing but a configuration of published widths. Returns it and the text model's vocabulary."""
    case, widths = WIDTHS[name]
    config = json.loads((places.case(case) / "config.json").read_text())
    for key, value in {**widths, **more}.items():
        if isinstance(value, dict) and key in config:
            config[key].update(value)
        else:
            config[key] = value
    if "layer_types" in config:
        config["layer_types"] = ["full_attention"] * config["num_hidden_layers"]
    (folder / "config.json").write_text(json.dumps(config))
    return folder, config


def picture_folder(folder, config):
    """Words and a processor for a published shape: the sizes that the family's own processor allows."""
    write_words(folder, 4096, names_for(config))
    (folder / "preprocessor_config.json").write_text(
        json.dumps(
            dict(
                min_pixels=28 * 28 * 130,
                max_pixels=28 * 28 * 3600,
                image_mean=[0.5] * 3,
                image_std=[0.5] * 3,
                patch_size=14,
                merge_size=2,
                temporal_patch_size=1,
                resample=3,
                rescale_factor=1 / 255,
            )
        )
    )


def small_budget(run, blocks=6000):
    """Flags for servers that share a GPU with others."""
    return ["--num-gpu-blocks-override", blocks] if run.places.on_gpu else []


def case_flags(data):
    if not is_vision(data):
        return []
    flags = ["--limit-mm-per-prompt", '{"image": 100, "video": 100}']
    if "expert_predicate" in data.get("reference_options", {}):
        flags += ["--model-override", json.dumps({"expert_predicate": data["reference_options"]["expert_predicate"]})]
    return flags


def picture(data, kind="png"):
    return {"type": "image_url", "image_url": {"url": f"data:image/{kind};base64,{base64.b64encode(data).decode()}"}}


def words(ids):
    return {"type": "text", "text": "".join(f"<{i}>" for i in ids)}


def case_content(case, prompt):
    """The parts of a chat message whose prompt is exactly prompt["input_ids"]."""
    parts, run, images = [], [], list(prompt["images"])
    ids = prompt["input_ids"]
    for i, token in enumerate(ids):
        if token in (5, 7, 8):  # the server writes these around a picture
            if token == 7:
                if run:
                    parts.append(words(run))
                run = []
                parts.append(picture((pathlib.Path(case) / images.pop(0)).read_bytes()))
        else:
            run.append(token)
    if run:
        parts.append(words(run))
    return parts


def ask_case(server, case, data, prompt):
    """Greedy ids of a prompt of a reference case."""
    n = len(prompt["greedy"])
    if not is_vision(data):
        return server.ids(prompt["input_ids"], n)
    banned = data.get("greedy_banned_ids", [])
    reply = server.chat(case_content(case, prompt), n, ignore_eos=True, return_token_ids=True, bad_words_token_ids=banned)
    message = reply["choices"][0]["message"]
    if message.get("prompt_token_ids") not in (None, prompt["input_ids"]):
        raise ValueError(f"prompt ids {message['prompt_token_ids']}, not {prompt['input_ids']}")
    return message["completion_token_ids"]
