from tern.tokenizer import Tokenizer


class Ernie4_5Tokenizer(Tokenizer):
    """FastDeploy's tokenizer of ERNIE 4.5 by name; it is the program's own, and reads any model's files."""

    adds_special_tokens = False  # FastDeploy's never does


__all__ = ["Ernie4_5Tokenizer"]
