"""A model folder that sees, small enough for tests: the reference case paddleocr_vl with a tokenizer and a template.

Its weights are random, so its answers mean nothing; that they are the same every time is what the tests look at."""

import json
import pathlib
import shutil

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "data" / "golden"
CASE = GOLDEN / "paddleocr_vl"
SPECIAL = [
    "<pad>",
    "<s>",
    "</s>",
    "<unk>",
    "<|begin|>",
    "<|IMAGE_PLACEHOLDER|>",
    "<|VIDEO_PLACEHOLDER|>",
    "<|IMAGE_START|>",
    "<|IMAGE_END|>",
    "<|VIDEO_START|>",
    "<|VIDEO_END|>",
]
TEMPLATE = """{{- "<|begin|>" -}}
{%- for message in messages -%}
  {%- if message["role"] == "user" -%}
    {{- "User: " -}}
    {%- for part in message["content"] -%}
      {%- if part["type"] == "image" -%}{{ "<|IMAGE_START|><|IMAGE_PLACEHOLDER|><|IMAGE_END|>" }}{%- endif -%}
    {%- endfor -%}
    {%- for part in message["content"] -%}
      {%- if part["type"] == "text" -%}{{ part["text"] }}{%- endif -%}
    {%- endfor -%}
    {{- "\\n" -}}
  {%- endif -%}
{%- endfor -%}
{{- "Assistant: " -}}
"""

NUMBERED = (ROOT / "tests" / "protocol" / "templates" / "numbered.jinja").read_text()
PADDLE = dict(
    min_pixels=3136,
    max_pixels=100352,
    image_mean=[0.5] * 3,
    image_std=[0.5] * 3,
    patch_size=14,
    merge_size=2,
    temporal_patch_size=1,
    resample=3,
    rescale_factor=1 / 255,
)
ERNIE = dict(
    min_pixels=3136,
    max_pixels=100352,
    image_mean=[0.48145466, 0.4578275, 0.40821073],
    image_std=[0.26862954, 0.26130258, 0.27577711],
    patch_size=14,
    merge_size=2,
    temporal_conv_size=2,
    resample=3,
    rescale_factor=1 / 255,
)

QWEN = dict(
    min_pixels=1024,
    max_pixels=32768,
    image_mean=[0.48145466, 0.4578275, 0.40821073],
    image_std=[0.26862954, 0.26130258, 0.27577711],
    patch_size=8,
    merge_size=2,
    temporal_patch_size=2,
    resample=3,
    rescale_factor=1 / 255,
)
# The names of ids 5 to 8 in Qwen's vocabulary.
QWEN_NAMES = {
    "<|IMAGE_PLACEHOLDER|>": "<|image_pad|>",
    "<|VIDEO_PLACEHOLDER|>": "<|video_pad|>",
    "<|IMAGE_START|>": "<|vision_start|>",
    "<|IMAGE_END|>": "<|vision_end|>",
}
QWEN_TEMPLATE = """{%- for message in messages -%}
  {{- "<|begin|>" + message["role"] + "\\n" -}}
  {%- for part in ([{"type": "text", "text": message["content"]}] if message["content"] is string else message["content"]) -%}
    {%- if part["type"] == "image" or "image_url" in part -%}{{ "<|vision_start|><|image_pad|><|vision_end|>" }}
    {%- elif part["type"] == "video" or "video_url" in part -%}{{ "<|vision_start|><|video_pad|><|vision_end|>" }}
    {%- else -%}{{ part["text"] }}{%- endif -%}
  {%- endfor -%}
  {{- "\\n" -}}
{%- endfor -%}
{{- "<|begin|>assistant\\n" -}}
"""


def byte_letters():
    keep = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters, extra = {}, 0
    for b in range(256):
        letters[b] = chr(b) if b in keep else chr(256 + extra)
        extra += b not in keep
    return letters


def make_video_model(folder):
    """The same of the reference case ernie4_5_vl_moe, which takes videos too."""
    return make_vision_model(folder, GOLDEN / "ernie4_5_vl_moe", NUMBERED, ERNIE)


def make_qwen_model(folder):
    """The same of the reference case qwen2_5_vl."""
    return make_vision_model(folder, GOLDEN / "qwen2_5_vl", QWEN_TEMPLATE, QWEN, QWEN_NAMES)


def make_vision_model(folder, case=CASE, template=TEMPLATE, processor=PADDLE, names={}):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("config.json", "generation_config.json", "model.safetensors"):
        shutil.copy(case / name, folder)
    step = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    tokens = [
        {
            "id": i,
            "content": names.get(text, text),
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for i, text in enumerate(SPECIAL)
    ]
    model = {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
        "vocab": {letter: 16 + b for b, letter in byte_letters().items()},
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
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"bos_token": "<s>", "eos_token": "</s>", "chat_template": template})
    )
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    return folder
