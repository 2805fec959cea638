"""Routes beside the protocols of answers: each has a case (tests of the server look). "port": another than the main one."""

# fmt: off
from .shapes import case, error

MODEL = {"id": "models/tiny", "object": "model", "created": "$int", "owned_by": "FastDeploy", "root": "models/tiny",
         "parent": None, "max_model_len": 512, "permission": "$any"}
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
    get("no such model", "/v1/models/other", 404,
        json=error("The model `other` does not exist.", "model", "model_not_found"))
    get("a description of the routes", "/openapi.json",
        json={"openapi": "3.1.0", "info": {"title": "Tern", "version": "$string"}, "paths": "$any", "components": "$any"})
    get("figures", "/metrics", lines=FIGURES)

    def refused(names, method, status, **want):
        for name in names.split():
            case("endpoints", f"not available: {name}", name, None, status, method=method, **want)

    refused("/v1/reward /v1/chat/reward", "POST", 400, json=error("$string"))
    refused("/rearrange_experts /get_per_expert_tokens_stats /check_redundant", "POST", 400,
            json={"code": 1, "msg": "redundant expert is disabled"})
    refused("/update_model_weight", "GET", 404, text="Dynamic Load Weight Disabled.")

    def control(name, path, body, status=200, **want):
        case("endpoints", name, path, body, status, port="controller", **want)

    def said(message, code):
        return {"error": {"message": message, "type": None, "param": None, "code": code}}

    control("the scheduler's controller", "/controller/scheduler", {"reset": False},
            json=said("Scheduler updated successfully", "0"))
    control("an update of the scheduler", "/controller/scheduler", {"load_shards_num": 2}, 400,
            json=said("This scheduler doesn't support the `update_config()` method.", "400"))
    control("a reset", "/controller/reset_scheduler", {}, text="Scheduler Reset Successfully")
    control("only of the scheduler", "/v1/completions", {"prompt": "hi"}, 404, json={"detail": "Not Found"})
