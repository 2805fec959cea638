"""Routes beside the protocols of answers: each has a case (tests of the server look). "port": another than the main one."""

from .shapes import case, error

MODEL = {
    "id": "models/tiny",
    "object": "model",
    "created": "$int",
    "owned_by": "FastDeploy",
    "root": "models/tiny",
    "parent": None,
    "max_model_len": 512,
    "permission": "$any",
}
FIGURES = [
    "# TYPE fastdeploy:num_requests_running gauge",
    "# TYPE fastdeploy:request_success_total counter",
    "# TYPE fastdeploy:time_to_first_token_seconds histogram",
]


def route_cases():
    def get(name, path, status=200, **want):
        case("endpoints", name, path, None, status, want.pop("server", None), "GET", **want)

    get("the routes under /v1", "/load", json={"routes": "$any"})
    get("a model", "/v1/models/models/tiny", json=MODEL)
    get("a model, its slash quoted", "/v1/models/models%2Ftiny", json=MODEL)
    get("no such model", "/v1/models/other", 404, json=error("The model `other` does not exist.", "model", "model_not_found"))
    get(
        "a description of the routes",
        "/openapi.json",
        json={"openapi": "3.1.0", "info": {"title": "Tern", "version": "$string"}, "paths": "$any", "components": "$any"},
    )
    get("figures", "/metrics", lines=FIGURES)

    def refused(names, method, status, **want):
        for name in names.split():
            case("endpoints", f"not available: {name}", name, None, status, method=method, **want)

    refused("/v1/reward /v1/chat/reward", "POST", 400, json=error("$string"))
    refused(
        "/rearrange_experts /get_per_expert_tokens_stats /check_redundant",
        "POST",
        400,
        json={"code": 1, "msg": "redundant expert is disabled"},
    )
    done = {"request_id": "$id:control-", "status": "success", "error_message": None, "result": None}
    case("endpoints", "pause", "/v1/pause", None, 200, json=done)
    case("endpoints", "nothing to resume", "/v1/resume", None, 200, json=done)
    case("endpoints", "sleep", "/v1/sleep", None, 200, json=done)
    get("asleep", "/v1/models", 304, text="")
    get("asleep: health", "/health", 304, text="")
    case("endpoints", "asleep: a request", "/v1/completions", {"prompt": "hi"}, 304, text="")
    failed = done | {"status": "error", "error_message": "$string"}
    case("endpoints", "asleep: resume", "/v1/resume", None, 500, json=failed)
    case("endpoints", "wakeup", "/v1/wakeup", None, 200, json=done)
    case("endpoints", "sleep, a tag", "/v1/sleep?tags=kv_cache", None, 200, json=done)
    case("endpoints", "wakeup, its tag", "/v1/wakeup?tags=kv_cache%2Cweight", None, 200, json=done)
    case("endpoints", "sleep, no such tag", "/v1/sleep?tags=all", None, 400, json=failed)
    case("endpoints", "other weights, not paused", "/v1/update_weights", {"version": "2"}, 500, json=failed)
    case("endpoints", "other weights, not a version", "/v1/update_weights", {"version": 2}, 400, json=failed)
    refused("/update_model_weight", "GET", 404, text="Dynamic Load Weight Disabled.")
    dynamic = {"dynamic_weights": True}
    for name, path, said in (
        ("clear", "/clear_load_weight", "clear"),
        ("clear again", "/clear_load_weight", "clear"),
        ("load", "/update_model_weight", "update"),
        ("load again", "/update_model_weight", "update"),
    ):
        said = f"{said} model weight successfully"
        get(name, path, server=dynamic, json={"code": 200, "message": said, "msg": said, "dp_rank": 0, "local_dp_rank": 0})

    def control(name, path, body, status=200, **want):
        case("endpoints", name, path, body, status, port="controller", **want)

    def said(message, code):
        return {"error": {"message": message, "type": None, "param": None, "code": code}}

    control(
        "the scheduler's controller", "/controller/scheduler", {"reset": False}, json=said("Scheduler updated successfully", "0")
    )
    control(
        "an update of the scheduler",
        "/controller/scheduler",
        {"load_shards_num": 2},
        400,
        json=said("This scheduler doesn't support the `update_config()` method.", "400"),
    )
    control("a reset", "/controller/reset_scheduler", {}, text="Scheduler Reset Successfully")
    control("only of the scheduler", "/v1/completions", {"prompt": "hi"}, 404, json={"detail": "Not Found"})
