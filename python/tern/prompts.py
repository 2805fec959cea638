"""The forms of a prompt that generate() takes."""

from __future__ import annotations

_KEYS = ("prompt", "prompt_token_ids", "multimodal_data", "request_id")


def listed(prompts):
    """One prompt or many, as a list."""
    if isinstance(prompts, (str, dict)) or (prompts and isinstance(prompts[0], int)):
        return [prompts]
    return list(prompts)


def prompt_parts(prompt):
    """The fields of a request, "prompt" a text or token ids, and what stands beside it: {"image": [...], "video": [...]}."""
    fields, media = {}, None
    if isinstance(prompt, dict):
        if unknown := sorted(set(prompt) - set(_KEYS)):
            raise ValueError(f"a prompt that is a dict has {', '.join(_KEYS)}, not {', '.join(map(str, unknown))}")
        if prompt.get("request_id") is not None:
            fields["request_id"] = prompt["request_id"]
        media = _given(prompt.get("multimodal_data"))
        text = prompt["prompt"] if prompt.get("prompt") is not None else prompt.get("prompt_token_ids")
        if text is None:
            raise ValueError('a prompt that is a dict has "prompt" or "prompt_token_ids"')
        prompt = text
    if isinstance(prompt, (list, tuple)) and all(isinstance(x, int) for x in prompt):
        prompt = list(prompt)
    elif not isinstance(prompt, str):
        raise TypeError(f"a prompt is a text, a list of token ids or a dict, not {type(prompt).__name__}")
    return {**fields, "prompt": prompt}, media


def _given(media):
    """None where there is no picture and no video."""
    if media is None:
        return None
    if not isinstance(media, dict):
        raise TypeError('multimodal_data is a dict of "image" and "video"')
    found = {kind: things for kind, things in media.items() if not (isinstance(things, (list, tuple)) and not things)}
    return {kind: things for kind, things in found.items() if things is not None} or None
