#include "app/flags/flags.h"

// fastdeploy.md 1.8 and 1.9.
namespace tern::app {
namespace {
using enum ValueType;
using enum FlagGroup;
constexpr std::string_view kNoSplit = "this build runs prefill and decode in one place";
constexpr std::string_view kLocal = "requests are queued in this process";

// Details of a queue in Redis, which --scheduler-name would have to ask for.
constexpr FlagSpec shared_queue(std::string_view name, ValueType type, std::string_view fallback,
                                std::string_view meaning) {
  return {.name = name,
          .group = kScheduler,
          .type = type,
          .fallback = fallback,
          .support = Support::kHarmless,
          .meaning = meaning,
          .reason = kLocal};
}

constexpr FlagSpec kFlags[] = {
    {.name = "splitwise-role",
     .group = kDisaggregation,
     .type = kEnum,
     .fallback = "mixed",
     .choices = "mixed|prefill|decode",
     .support = Support::kInert,
     .meaning = "Which half of a request this server does.",
     .reason = kNoSplit},
    {.name = "innode-prefill-ports",
     .group = kDisaggregation,
     .type = kIntList,
     .support = Support::kRefused,
     .meaning = "Ports of prefill servers on this node.",
     .reason = kNoSplit},
    {.name = "cache-transfer-protocol",
     .group = kDisaggregation,
     .type = kList,
     .fallback = "ipc,rdma",
     .support = Support::kHarmless,
     .meaning = "Transports between the halves.",
     .reason = kNoSplit},
    {.name = "pd-comm-port",
     .group = kDisaggregation,
     .type = kIntList,
     .derived = "none",
     .support = Support::kHarmless,
     .meaning = "Control port between the halves.",
     .reason = kNoSplit},
    {.name = "rdma-comm-ports",
     .group = kDisaggregation,
     .type = kIntList,
     .derived = "none",
     .support = Support::kHarmless,
     .meaning = "Transfer ports, one per rank.",
     .reason = kNoSplit},
    {.name = "router",
     .group = kDisaggregation,
     .support = Support::kInert,
     .meaning = "host:port of the router.",
     .reason = "this build registers with no router"},

    {.name = "scheduler-name",
     .group = kScheduler,
     .type = kEnum,
     .fallback = "local",
     .choices = "local|global|splitwise|dp",
     .support = Support::kInert,
     .meaning = "Where requests are queued.",
     .reason = kLocal},
    {.name = "scheduler-max-size",
     .group = kScheduler,
     .type = kInt,
     .fallback = "-1",
     .min = -1,
     .max = 1 << 30,
     .support = Support::kInert,
     .meaning = "Most requests that wait; 0 or less: any number.",
     .reason = "--max-concurrency and FD_SUPPORT_MAX_CONNECTIONS bound the queue",
     .neutral = "0"},
    shared_queue("scheduler-ttl", kInt, "900", "Seconds after which a queue over its bound drops requests."),
    shared_queue("scheduler-host", kString, "127.0.0.1", "Address of the shared queue."),
    shared_queue("scheduler-port", kInt, "6379", "Port of the shared queue."),
    shared_queue("scheduler-db", kInt, "0", "Number of its database."),
    shared_queue("scheduler-password", kString, "", "Its password."),
    shared_queue("scheduler-topic", kString, "default", "Its topic."),
    shared_queue("scheduler-min-load-score", kFloat, "3", "Load from which others take requests."),
    shared_queue("scheduler-load-shards-num", kInt, "1", "Parts of the load table."),
    shared_queue("scheduler-sync-period", kInt, "5", "Milliseconds between exchanges."),
    shared_queue("scheduler-expire-period", kInt, "3000", "Milliseconds after which a node is gone."),
    shared_queue("scheduler-release-load-expire-period", kInt, "600", "Seconds after which a load entry is gone."),
    shared_queue("scheduler-reader-parallel", kInt, "4", "Readers of the shared queue."),
    shared_queue("scheduler-writer-parallel", kInt, "4", "Writers of the shared queue."),
    shared_queue("scheduler-reader-batch-size", kInt, "200", "Requests read at a time."),
    shared_queue("scheduler-writer-batch-size", kInt, "200", "Results written at a time."),
};
}  // namespace

std::span<const FlagSpec> cluster_flags() { return kFlags; }
}  // namespace tern::app
