"""What /metrics and the console say of the KV cache, against blocks counted by hand: an autoscaler acts on them."""

import json
import urllib.request

import pytest

BLOCKS, BLOCK = 40, 64
# Prompts one token into their last block: the 60 tokens that follow stay inside it, so that a request holds the same
# number of blocks from its first token to its last.
FLAGS = (
    "--num-gpu-blocks-override",
    BLOCKS,
    "--block-size",
    BLOCK,
    "--max-model-len",
    2048,
    "--max-num-seqs",
    8,
    "--max-num-batched-tokens",
    2048,
)
# Steps of 20 ms: a request of 60 tokens is seen running. No blocks kept back for decoding, so that the cache can fill.
ENV = {
    "TERN_TEST_PLAN_DELAY_MS": "20",
    "FD_RESERVE_OUTPUT_BLOCK_NUM_FOR_DECODE_WHEN_SCHEDULE_NEW_PREFILL": "0",
    "FD_CONSOLE_DECODE_LOG_INTERVAL": "0.1",
}


def prompt(blocks, first):
    """Token ids that hold `blocks` blocks; different `first` share no prefix."""
    return [first] + [5 + i % 50 for i in range((blocks - 1) * BLOCK)]


def figures(server):
    text = server.get("/metrics")
    values = {}
    for line in text.splitlines():
        if line.startswith("fastdeploy:") and "{" not in line:
            name, value = line.removeprefix("fastdeploy:").split(" ")
            values[name] = float(value)
    return values


def check(values, held, empty):
    """`held`: blocks of requests. `empty`: blocks that hold nothing, not even cached tokens."""
    assert values["max_gpu_block_num"] == BLOCKS
    assert values["available_gpu_block_num"] == BLOCKS - held
    assert values["free_gpu_block_num"] == empty
    assert values["available_gpu_resource"] == pytest.approx((BLOCKS - held) / BLOCKS)
    assert values["gpu_cache_usage_perc"] == pytest.approx(held / BLOCKS)


class Stream:
    """A request for 60 tokens, read up to its first token; end() reads the rest."""

    def __init__(self, server, ids):
        body = dict(prompt=ids, max_tokens=60, ignore_eos=True, stream=True, temperature=0)
        request = urllib.request.Request(
            server.url + "/v1/completions", json.dumps(body).encode(), {"content-type": "application/json"}
        )
        self.reply = urllib.request.urlopen(request, timeout=60)
        assert self.reply.readline().startswith(b"data: {")

    def end(self):
        assert b"[DONE]" in self.reply.read()
        self.reply.close()


@pytest.mark.parametrize("cached", [True, False])
def test_blocks_of_requests_are_used_and_cached_ones_are_not(start, cached):
    s = start(*FLAGS, *([] if cached else ["--no-enable-prefix-caching"]), env=ENV)
    s.wait_ready()
    check(figures(s), 0, BLOCKS)  # idle, cold

    first = Stream(s, prompt(25, 1))
    values = figures(s)
    assert values["num_requests_running"] == 1
    check(values, 25, BLOCKS - 25)
    second = Stream(s, prompt(15, 2))
    values = figures(s)
    assert values["num_requests_running"] == 2
    check(values, 40, 0)  # full: nothing is left for a third
    first.end()
    second.end()

    # Idle and warm: 24 and 14 full blocks stay cached, the last of each was never full; all can be taken.
    values = figures(s)
    assert values["num_requests_running"] == 0
    check(values, 0, BLOCKS - (24 + 14 if cached else 0))

    # The same prompt again holds its cached blocks once more, and one new block.
    again = Stream(s, prompt(25, 1))
    check(figures(s), 25, BLOCKS - 25 - (14 if cached else 0))
    again.end()
    check(figures(s), 0, BLOCKS - (24 + 14 if cached else 0))

    # A stranger that needs the whole cache gets it.
    whole = [Stream(s, prompt(25, 3)), Stream(s, prompt(15, 4))]
    check(figures(s), 40, 0)
    for stream in whole:
        stream.end()
    assert s.stop() == 0
    # The console says the same of these moments: 25 of 40 blocks, all, and none of a cache that is warm only.
    usage = {
        line.rsplit("token usage ", 1)[1].split(",")[0] for line in s.output.read_text().splitlines() if "token usage " in line
    }
    assert {"0.62", "1.00"} <= usage <= {"0.00", "0.38", "0.62", "1.00"}


def test_token_histograms_end_at_twenty_thousand(server):
    text = server.get("/metrics")
    for name in ("request_prompt_tokens", "request_generation_tokens", "request_params_max_tokens"):
        bounds = [
            line.split('le="')[1].split('"')[0] for line in text.splitlines() if line.startswith(f"fastdeploy:{name}_bucket")
        ]
        assert bounds == [
            "1.0",
            "2.0",
            "5.0",
            "10.0",
            "20.0",
            "50.0",
            "100.0",
            "200.0",
            "500.0",
            "1000.0",
            "2000.0",
            "5000.0",
            "10000.0",
            "20000.0",
            "+Inf",
        ], name
