#!/usr/bin/env python3
"""Makes the folder that ships of the float32 weights of a training run and the text model's tokenizer."""

import argparse, glob, json, os
from safetensors.torch import load_file
from ocr_model import PaddleOCRVL, save_checkpoint

IMAGE = "<|IMAGE_START|><|IMAGE_PLACEHOLDER|><|IMAGE_END|>"
SPECIAL = ["<|IMAGE_START|>", "<|IMAGE_PLACEHOLDER|>", "<|IMAGE_END|>", "<|VIDEO_PLACEHOLDER|>"]
PLAIN = ["<fcel>", "<ecel>", "<nl>"]
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{% if message['content'] is string %}{% set text = message['content'] %}{% set images = '' %}"
    "{% else %}{% set parts = namespace(text='', images='') %}"
    "{% for part in message['content'] %}"
    "{% if part['type'] == 'text' %}{% set parts.text = parts.text + part['text'] %}"
    "{% elif part['type'] in ['image', 'image_url'] %}{% set parts.images = parts.images + '" + IMAGE + "' %}{% endif %}"
    "{% endfor %}{% set text = parts.text %}{% set images = parts.images %}{% endif %}"
    "{% if message['role'] == 'assistant' %}{{ 'Assistant:\\n' + text + eos_token }}"
    "{% elif message['role'] == 'user' %}{{ 'User: ' + images + text + '\\n' }}"
    "{% else %}{{ text + '\\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'Assistant:\\n' }}{% endif %}"
)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("weights", help="folder with master.*.safetensors")
    ap.add_argument("out", help="folder to write")
    ap.add_argument("--text-model", default="build/text-model", help="whose tokenizer is extended (default %(default)s)")
    a = ap.parse_args()
    model = PaddleOCRVL()
    model.load_state_dict(
        {k: v for f in sorted(glob.glob(os.path.join(a.weights, "master.*.safetensors"))) for k, v in load_file(f).items()}
    )
    save_checkpoint(model, a.out)
    with open(os.path.join(a.text_model, "tokenizer.json"), encoding="utf-8") as f:
        spec = json.load(f)
    at = len(spec["model"]["vocab"])
    assert at == 2048
    for i, t in enumerate(SPECIAL + PLAIN):
        spec["added_tokens"].append(
            dict(id=at + i, content=t, single_word=False, lstrip=False, rstrip=False, normalized=False, special=t in SPECIAL)
        )
    with open(os.path.join(a.out, "tokenizer.json"), "w", encoding="utf-8") as f:
        json.dump(spec, f, ensure_ascii=False, indent=1)
    with open(os.path.join(a.text_model, "tokenizer_config.json")) as f:
        config = json.load(f)
    config.update(
        model_max_length=model.config["max_position_embeddings"],
        chat_template=CHAT_TEMPLATE,
        additional_special_tokens=SPECIAL,
        image_token="<|IMAGE_PLACEHOLDER|>",
    )
    with open(os.path.join(a.out, "tokenizer_config.json"), "w", encoding="utf-8") as f:
        json.dump(config, f, indent=1)
        f.write("\n")
    print(sum(p.numel() for p in model.parameters()), "parameters")


if __name__ == "__main__":
    main()
