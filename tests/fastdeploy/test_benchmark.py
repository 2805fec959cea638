"""What FastDeploy's benchmark reads from the chunks of a stream with collect_metrics (benchmarks/backend_request_func.py)."""

import time

from fd_requests import user


def test_figures_of_the_benchmark(api):
    before = time.time()
    chunks = api.chat_chunks(
        messages=user("Who are you?"),
        max_tokens=20,
        ignore_eos=True,
        collect_metrics=True,
        stream_options={"include_usage": True, "continuous_usage_stats": True},
    )
    after = time.time()
    metrics = [c["metrics"] for c in chunks if "metrics" in c]
    assert len(metrics) == len(chunks) - 1, "every chunk but that of the usage"
    first, last = metrics[0], metrics[-1]
    order = [
        "arrival_time",
        "preprocess_end_time",
        "scheduler_recv_req_time",
        "engine_get_req_time",
        "inference_start_time",
        "engine_recv_first_token_time",
    ]
    points = [first[key] for key in order]
    assert points == sorted(points)
    assert before - 1 < points[0] and points[-1] < after + 1, "seconds since 1970"
    # The spans that it prints for a server that is not split.
    assert first["inference_start_time"] - first["arrival_time"] >= 0
    assert first["scheduler_recv_req_time"] - first["arrival_time"] >= 0
    assert first["engine_get_req_time"] - first["scheduler_recv_req_time"] >= 0
    assert first["engine_recv_first_token_time"] - first["inference_start_time"] >= 0
    assert last["engine_recv_latest_token_time"] >= first["engine_recv_latest_token_time"]
    assert last["model_execute_time"] >= last["model_forward_time"] > 0
    assert first["decode_recv_req_time"] is None, "between servers of a split deployment only"
    assert {"arrival_time", "delta"} <= set(chunks[1]["choices"][0])
    assert chunks[1]["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
