"""Every other route."""

# fmt: off
from .shapes import ASK, BEGIN, CHAT_HI, HI, case, chat, chat_choice, error, usage


def other_cases():
    def get(name, path, status=200, method="GET", server=None, **want):
        case("endpoints", name, path, None, status, server, method, **want)
    get("health", "/health", text="")
    get("ping", "/ping", text="")
    get("ping by POST", "/ping", method="POST", text="")
    get("version", "/version", json={"version": "$string"})
    get("models", "/v1/models", json={"object": "list", "data": [{
        "id": "models/tiny", "object": "model", "created": "$int", "owned_by": "FastDeploy", "root": "models/tiny", "parent": None,
        "max_model_len": 512, "permission": [{
            "id": "$id:modelperm-", "object": "model_permission", "created": "$int", "allow_create_engine": False,
            "allow_sampling": True, "allow_logprobs": True, "allow_search_indices": False, "allow_view": True,
            "allow_fine_tuning": False, "organization": "*", "group": None, "is_blocking": False}]}]})
    get("unknown path", "/v1/nothing", 404, json={"detail": "Not Found"})
    get("unknown path by POST", "/", 404, method="POST", json={"detail": "Not Found"})
    get("wrong method", "/v1/chat/completions", 405, json={"detail": "Method Not Allowed"})
    get("wrong method", "/health", 405, method="POST", json={"detail": "Method Not Allowed"})
    get("wrong method", "/v1/models", 405, method="DELETE", json={"detail": "Method Not Allowed"})
    get("config", "/config-info", server={"config_info": '{"max_num_seqs":8}'}, json={"max_num_seqs": 8})
    get("not paused", "/v1/is_paused", json={"request_id": "$id:control-", "status": "success", "error_message": None, "result": {"is_paused": False}})
    get("weights", "/clear_load_weight", 404, text="Dynamic Load Weight Disabled.")
    get("embeddings", "/v1/embeddings", 400, method="POST", json=error("$string"))
    case("endpoints", "tokenize", "/tokenize", {"prompt": "hi there"},
         json={"count": 6, "max_model_len": 512, "tokens": [BEGIN] + HI, "token_strs": None})
    case("endpoints", "tokenize without special tokens", "/tokenize", {"prompt": "hi there", "add_special_tokens": False},
         json={"count": 5, "max_model_len": 512, "tokens": HI, "token_strs": None})
    case("endpoints", "tokenize a chat", "/tokenize", {"messages": ASK},
         json={"count": 9, "max_model_len": 512, "tokens": CHAT_HI, "token_strs": None})
    case("endpoints", "detokenize", "/detokenize", {"tokens": HI}, json={"prompt": "hi there"})
    case("endpoints", "detokenize needs tokens", "/detokenize", {}, 400, json=error("Field required", "tokens"))
    case("endpoints", "detokenize range", "/detokenize", {"tokens": [906]}, 400,
         json=error("Token id 906 is out of range: the vocabulary has 906 tokens", "tokens"))
    case("endpoints", "abort: nothing runs", "/v1/abort_requests", {"abort_all": True},
         json={"request_id": "$id:control-", "status": "success", "error_message": None, "result": {"aborted": [], "not_found": []}})
    case("endpoints", "abort: not found", "/v1/abort_requests", {"req_ids": ["x"]},
         json={"request_id": "$id:control-", "status": "success", "error_message": None, "result": {"aborted": [], "not_found": ["x"]}})
    case("endpoints", "abort: nothing named", "/v1/abort_requests", {}, 400, json=error("abort_all or req_ids is needed", "req_ids"))
    case("endpoints", "tools reach the template, text stays in content", "/v1/chat/completions",
         {"messages": ASK, "tools": [{"type": "function", "function": {"name": "f"}}], "disable_chat_template": False, "max_tokens": 2},
         json=chat([chat_choice("TO", "length")], {**usage(0, 2), "prompt_tokens": "$int", "total_tokens": "$int"}))
