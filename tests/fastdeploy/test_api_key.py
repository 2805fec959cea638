"""tests/e2e/test_api_key.py: where keys come from."""

from fd_requests import post, user

BODY = {"messages": user("hello"), "temperature": 0.9, "max_tokens": 5}


def ask(server, key=None):
    return post(server.url + "/v1/chat/completions", BODY, {"Authorization": f"Bearer {key}"} if key else None)


def test_api_key_cli_only(start):
    server = start("--api-key", "cli_test_key_123", "--api-key", "cli_test_key_456")
    status, body = ask(server)
    assert status == 401 and "unauthorized" in body["error"].lower()
    assert ask(server, "wrong_key")[0] == 401
    assert ask(server, "cli_test_key_123")[0] == 200
    assert ask(server, "cli_test_key_456")[0] == 200


def test_api_key_env_only(start):
    server = start(env={"FD_API_KEY": "env_test_key_456,env_test_key_789"})
    assert ask(server)[0] == 401
    assert ask(server, "env_test_key_456")[0] == 200
    assert ask(server, "env_test_key_789")[0] == 200


def test_api_key_cli_priority_over_env(start):
    server = start("--api-key", "cli_priority_key_789", env={"FD_API_KEY": "env_low_priority_key_000"})
    assert ask(server, "env_low_priority_key_000")[0] == 401
    assert ask(server, "cli_priority_key_789")[0] == 200


def test_api_key_not_set(start):
    server = start()
    assert ask(server)[0] == 200
    assert ask(server, "some_api_key")[0] == 200
