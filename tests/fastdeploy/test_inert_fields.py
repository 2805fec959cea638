"""Fields that the original drops without a word: refused, or with --allow-inert-flags answered after one warning."""

import time

from fd_requests import Api, user

# One of each kind that is in no other test here.
FIELDS = {"verbosity": "low", "store": True, "priority": 2, "function_call": {"name": "f"}, "regex": "a+", "vllm_xargs": {"a": 1}}


def log_of(server, wanted, seconds=20):
    """The log, once it holds every wanted text: it is written behind the requests."""
    path = server.logs / "fastdeploy.log"
    deadline = time.monotonic() + seconds
    while True:
        text = path.read_text() if path.exists() else ""
        if all(w in text for w in wanted) or time.monotonic() > deadline:
            return text
        time.sleep(0.02)


def test_answered_after_one_warning(api, server):
    for _ in range(3):
        api.chat_ok(messages=user("Who are you?"), max_tokens=3, **FIELDS)
    lines = [f"is ignored (--allow-inert-flags): {field} " for field in FIELDS]
    log = log_of(server, lines)
    assert {line: log.count(line) for line in lines} == dict.fromkeys(lines, 1)


def test_refused(start):
    api = Api(start("--enable-logprob").url)
    for field, value in FIELDS.items():
        error = api.fault(messages=user("Who are you?"), max_tokens=3, **{field: value})
        assert error["param"] == field and error["message"].startswith(field + " ") and "--allow-inert-flags" in error["message"]
    error = api.fault(messages=user("Who are you?"), max_tokens=3, **FIELDS, top_p=7)
    assert error["param"] == "top_p", "ranges come first"
    api.chat_ok(messages=user("Who are you?"), max_tokens=3, verbosity="medium", store=False, priority=0, tool_choice="auto")
    api.completion_ok(prompt="a", echo=True, max_tokens=3)
    api.completion_ok(prompt="a", echo=True, logprobs=None, max_tokens=3)
