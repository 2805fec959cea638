"""tests/ce/server/test_evil_cases.py: inputs that must end in a clear error, or must not disturb."""

import pytest
from fd_requests import content, user

AFRICA = user("非洲的首都是？")


def answered(body):
    assert body["object"] == "chat.completion"
    assert len(content(body)) > 0
    return content(body)


def test_missing_messages_field(api):
    error = api.fault(max_tokens=10)
    assert "Field required" in error["message"]
    assert error["code"] == "missing_required_parameter"


def test_malformed_messages_format(api):
    error = api.fault(messages="no list of messages", max_tokens=10)
    assert error["message"] == "Input should be a valid list"
    assert error["param"] == "list[any]"


def test_extremely_large_max_tokens(api):
    status, body = api.chat(messages=user("1+1=?"), max_tokens=10_000_000)
    assert "error" in body or body["usage"]["completion_tokens"] < 10_000_000


def test_null_metadata(api):
    answered(api.chat_ok(messages=user("Who are you?"), max_tokens=10, metadata=None))


def test_top_p_exceed_1(api):
    error = api.fault(messages=AFRICA, top_p=1.5, max_tokens=10)
    assert error["param"] == "top_p"
    assert error["message"] == "Input should be less than or equal to 1"


def test_mixed_valid_invalid_fields(api):
    answered(api.chat_ok(messages=AFRICA, max_tokens=10, invalid_field="this_should_be_ignored_or_warned"))


def test_stop_seq_exceed_num(api):
    error = api.fault(messages=AFRICA, stop=["11", "22", "33", "44", "55", "66", "77"])
    assert error["type"] == "invalid_request_error"
    assert "exceeds the limit max_stop_seqs_num" in error["message"]
    assert error["param"] == "stop"


def test_stop_seq_exceed_length(api):
    error = api.fault(messages=AFRICA, stop=["11", "今天天气比明天好多了，请问你会出门还是和我一起玩"])
    assert error["type"] == "invalid_request_error"
    assert "exceeds the limit stop_seqs_max_len" in error["message"]


def test_multilingual_input(api):
    words = "这是一个包含多种语言的输入：Hello, 世界！Bonjour, le monde! Hola, el mundo! こんにちは、世界！"
    assert answered(api.chat_ok(messages=user(words))).strip()


def test_too_long_input(api):
    assert "Input text is too long" in api.fault(messages=user("a，" * 200000))["message"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "    ",
        "非洲的首都是？：\x00\x01\x02",
        "SELECT * FROM users WHERE username = 'admin' OR '1'='1';",
        "<script>alert('XSS');</script>",
    ],
    ids=["empty_input", "prompt_only_spaces", "illegal_characters", "sql_injection", "xss_attack"],
)
def test_odd_texts(api, text):
    answered(api.chat_ok(messages=user(text), max_tokens=50))


def test_stop_empty_string(api):
    answered(api.chat_ok(messages=AFRICA, max_tokens=10, stop=""))


def test_stop_multiple_strings(api):
    # The original wants the stop in the text; what is sent ends before it unless include_stop_str_in_output is set.
    stops = [",", "!", "?"]
    body = api.chat_ok(messages=user("Who are you?"), max_tokens=50, stop=stops, include_stop_str_in_output=True)
    assert any(stop in content(body) for stop in stops)
    assert body["choices"][0]["finish_reason"] == "stop"


@pytest.mark.skip(reason="hangs on a released model's text: it must hold one of !@#$%^&*()")
def test_stop_with_special_characters():
    pass


def test_stop_with_newlines(api):
    # The shipped model does not write empty lines; the field must be taken all the same.
    answered(api.chat_ok(messages=AFRICA, max_tokens=50, stop="\n\n"))


@pytest.mark.parametrize("model", ["", "non-existent-model", "!@#"], ids=["empty", "invalid", "special_characters"])
def test_model(api, model):
    """Without --served-model-name every name is taken."""
    answered(api.chat_ok(messages=AFRICA, max_tokens=10, model=model))


@pytest.mark.parametrize("tokens", [-10, 0], ids=["negative", "min"])
def test_max_tokens(api, tokens):
    error = api.fault(messages=AFRICA, max_tokens=tokens)
    assert "max_tokens can be defined [1," in error["message"]
    assert f"it's {tokens}." in error["message"]
    assert error["param"] == "max_tokens"


def test_max_tokens_non_integer(api):
    error = api.fault(messages=AFRICA, max_tokens=10.5)
    assert error["message"] == "Input should be a valid integer, got a number with a fractional part"


def test_error_structure(api):
    error = api.fault(messages="no list of messages", max_tokens=10)  # fault() checks the keys
    assert error["message"] is not None
