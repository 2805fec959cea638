// Keys as FastDeploy's RequestMetrics has them, since its benchmark computes with them. Times are seconds since 1970,
// durations are seconds; null: this request has not reached that stage.
#include "serve/openai/writers/metrics.h"

#include "serve/openai/json/writers.h"

namespace tern::serve::openai {

void append_metrics(const Generation& generation, const Choice& choice, std::string& out) {
  const auto& t = choice.times;
  const auto append_key = [&](const char* key) {
    out += out.back() == '{' ? "\"" : ",\"";
    out += key;
    out += "\":";
  };
  const auto append_time = [&](const char* key, int64_t at) {
    append_key(key);
    at > 0 ? append_seconds(out, at + generation.wall_offset_ns()) : void(out += "null");
  };
  const auto append_duration = [&](const char* key, int64_t from, int64_t to) {
    append_key(key);
    from > 0 && to > 0 ? append_seconds(out, to - from) : void(out += "null");
  };
  out += ",\"metrics\":{";
  // Stages that Tern does not have get the time of the nearest one it has.
  append_time("arrival_time", t.arrival);
  append_time("preprocess_start_time", t.arrival);
  append_time("preprocess_end_time", generation.prepared_ns());
  append_time("scheduler_recv_req_time", generation.prepared_ns());
  append_time("engine_get_req_time", choice.submitted_ns);
  append_time("add_req_to_resource_manager_time", choice.submitted_ns);
  append_time("inference_start_time", t.scheduled);
  append_time("engine_recv_latest_token_time", choice.received_ns);
  append_time("engine_recv_first_token_time", t.first_token);
  // These stages exist only between a prefill server and a decode server; here they are always null.
  for (const char* key :
       {"ask_decode_resource_start_time", "ask_decode_resource_finish_time", "wait_for_sending_cache_time",
        "send_request_output_to_decode_time", "decode_recv_req_time", "decode_preallocate_req_time",
        "decode_recv_first_token_time", "decode_inference_start_time", "decode_recv_second_token_time"}) {
    append_time(key, 0);
  }
  append_duration("first_token_time", t.scheduled, t.first_token);
  append_duration("time_in_queue", generation.prepared_ns(), t.scheduled);
  append_duration("preprocess_cost_time", t.arrival, generation.prepared_ns());
  append_duration("model_forward_time", t.scheduled, choice.received_ns);
  append_duration("model_execute_time", t.arrival, choice.received_ns);
  append_time("request_start_time", t.arrival);
  append_time("llm_engine_recv_req_timestamp", choice.submitted_ns);
  append_time("llm_engine_send_req_to_engine_timestamp", t.scheduled);
  append_time("llm_engine_recv_latest_token_timestamp", choice.received_ns);
  out += '}';
}

}  // namespace tern::serve::openai
