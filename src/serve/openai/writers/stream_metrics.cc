// `metrics` of a chunk, for collect_metrics: keys as FastDeploy's RequestMetrics has them, since its benchmark computes
// with them. Points in time are seconds since 1970, spans are seconds, null is what was not reached.
#include "serve/openai/writers/stream_writer.h"

namespace tern::serve::openai {

void StreamWriter::append_metrics(const Choice& choice, std::string& out) const {
  const auto& t = choice.times;
  const auto name = [&](const char* key) {
    out += out.back() == '{' ? "\"" : ",\"";
    out += key;
    out += "\":";
  };
  const auto point = [&](const char* key, int64_t at) {
    name(key);
    at > 0 ? append_seconds(out, at + g_.wall_offset_ns()) : void(out += "null");
  };
  const auto span = [&](const char* key, int64_t from, int64_t to) {
    name(key);
    from > 0 && to > 0 ? append_seconds(out, to - from) : void(out += "null");
  };
  out += ",\"metrics\":{";
  point("arrival_time", t.arrival);
  point("preprocess_start_time", t.arrival);
  point("preprocess_end_time", g_.prepared_ns());
  point("scheduler_recv_req_time", g_.prepared_ns());
  point("engine_get_req_time", choice.submitted_ns);
  point("add_req_to_resource_manager_time", choice.submitted_ns);
  point("inference_start_time", t.scheduled);
  point("engine_recv_latest_token_time", choice.received_ns);
  point("engine_recv_first_token_time", t.first_token);
  // Prefill and decode run in one server: what only lies between two of them is never reached.
  for (const char* key :
       {"ask_decode_resource_start_time", "ask_decode_resource_finish_time", "wait_for_sending_cache_time",
        "send_request_output_to_decode_time", "decode_recv_req_time", "decode_preallocate_req_time",
        "decode_recv_first_token_time", "decode_inference_start_time", "decode_recv_second_token_time"}) {
    point(key, 0);
  }
  span("first_token_time", t.scheduled, t.first_token);
  span("time_in_queue", g_.prepared_ns(), t.scheduled);
  span("preprocess_cost_time", t.arrival, g_.prepared_ns());
  span("model_forward_time", t.scheduled, choice.received_ns);
  span("model_execute_time", t.arrival, choice.received_ns);
  point("request_start_time", t.arrival);
  point("llm_engine_recv_req_timestamp", choice.submitted_ns);
  point("llm_engine_send_req_to_engine_timestamp", t.scheduled);
  point("llm_engine_recv_latest_token_timestamp", choice.received_ns);
  out += '}';
}

}  // namespace tern::serve::openai
