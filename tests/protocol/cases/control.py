"""Pause, sleep and other weights; one server goes through all of them."""

from .shapes import case


def control_cases():
    def post(name, path, body=None, status=200, **want):
        case("endpoints", name, path, body, status, **want)

    def get(name, path, status=200, server=None, **want):
        case("endpoints", name, path, None, status, server, "GET", **want)

    done = {"request_id": "$id:control-", "status": "success", "error_message": None, "result": None}
    failed = done | {"status": "error", "error_message": "$string"}
    post("pause", "/v1/pause", json=done)
    get("paused", "/v1/is_paused", json=done | {"result": {"is_paused": True}})
    post("resume", "/v1/resume", json=done)
    post("sleep", "/v1/sleep", json=done)
    get("asleep", "/v1/models", 304, text="")
    get("asleep: health", "/health", 304, text="")
    post("asleep: a request", "/v1/completions", {"prompt": "hi"}, 304, text="")
    post("asleep: resume", "/v1/resume", status=500, json=failed)
    post("wakeup", "/v1/wakeup", json=done)
    post("sleep, a tag", "/v1/sleep?tags=kv_cache", json=done)
    post("wakeup, its tag", "/v1/wakeup?tags=kv_cache%2Cweight", json=done)
    post("sleep, no such tag", "/v1/sleep?tags=all", status=400, json=failed)
    post("other weights, not paused", "/v1/update_weights", {"version": "2"}, 500, json=failed)
    post("other weights, not a version", "/v1/update_weights", {"version": 2}, 400, json=failed)
    for name, path, what in (
        ("clear", "/clear_load_weight", "clear"),
        ("clear again", "/clear_load_weight", "clear"),
        ("load", "/update_model_weight", "update"),
        ("load again", "/update_model_weight", "update"),
    ):
        said = f"{what} model weight successfully"
        want = {"code": 200, "message": said, "msg": said, "dp_rank": 0, "local_dp_rank": 0}
        get(name, path, server={"dynamic_weights": True}, json=want)
