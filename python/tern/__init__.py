"""Tern from Python: starts the program `tern` and speaks to it over a Unix socket; nothing is loaded into this process.

    from tern import LLM, SamplingParams
    llm = LLM("models/name", max_model_len=8192)
    for output in llm.generate(["1+1="], SamplingParams(max_tokens=8)):
        print(output.outputs.text)

The names are those of FastDeploy's offline API.
"""

import importlib

__version__ = "0.1.0"

# Imported at first use: `import tern` stays fast.
_HOME = {
    "LLM": "tern.llm",
    "EngineDied": "tern.process",
    "SamplingParams": "tern.sampling_params",
    "GuidedDecodingParams": "tern.sampling_params",
    "Tokenizer": "tern.tokenizer",
    "RequestOutput": "tern.outputs",
    "CompletionOutput": "tern.outputs",
    "RequestMetrics": "tern.outputs",
    "EmbeddingRequestOutput": "tern.outputs",
    "EmbeddingOutput": "tern.outputs",
    "RewardRequestOutput": "tern.outputs",
    "RewardOutput": "tern.outputs",
}
__all__ = list(_HOME)


def __getattr__(name):
    if name not in _HOME:
        raise AttributeError(f"module 'tern' has no attribute '{name}'")
    return getattr(importlib.import_module(_HOME[name]), name)
