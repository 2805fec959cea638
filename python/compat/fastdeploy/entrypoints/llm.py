from tern.llm import LLM

__all__ = ["LLM"]
