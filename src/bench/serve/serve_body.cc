#include <fmt/format.h>

#include <cmath>

#include "bench/serve/serve_bench.h"

namespace tern::bench {
namespace {

// The messages up to this turn, with the model's own answers in place of the file's.
json::Array history(ServeBench& o, int index) {
  const ServeBench::Turn& turn = o.turns[static_cast<size_t>(index)];
  const json::Array& messages = o.samples[turn.sample].messages;
  json::Array& said = o.histories[turn.sample];
  for (size_t i = turn.begin; i < turn.end; ++i) {
    const json::Object* message = messages[i].if_object();
    const json::Value* role = message != nullptr ? json::find(*message, "role") : nullptr;
    const bool answer = turn.begin > 0 && role != nullptr && *role == "assistant";
    if (!answer) said.push_back(messages[i]);
  }
  return said;
}

void add_prompt(const ServeBench& o, const Sample& sample, json::Object& body) {
  json::Array ids(sample.ids.begin(), sample.ids.end());
  if (o.chats()) {
    json::Array messages = sample.messages;
    if (o.random())
      body["prompt_token_ids"] = std::move(ids);
    else if (messages.empty())
      messages.push_back(json::Object{{"role", "user"}, {"content", sample.text}});
    body["messages"] = std::move(messages);
  } else if (o.random()) {
    body["prompt"] = std::move(ids);
  } else {
    body["prompt"] = last_text(sample);
  }
}

void add_sampling(const ServeBench& o, json::Object& body) {
  if (o.temperature >= 0)
    body["temperature"] = o.temperature;
  else if (!o.random() && !body.contains("temperature"))
    body["temperature"] = 0;
  if (o.top_p >= 0) body["top_p"] = o.top_p;
  if (o.top_k >= -1) body["top_k"] = o.top_k;
  if (o.min_p >= 0) body["min_p"] = o.min_p;
  if (o.repetition_penalty >= 0) body["repetition_penalty"] = o.repetition_penalty;
  if (o.logprobs >= 0 && o.chats()) body["logprobs"] = true, body["top_logprobs"] = o.logprobs;
  if (o.logprobs >= 0 && !o.chats()) body["logprobs"] = o.logprobs;
  if (o.ignore_eos || (o.random() && !o.keep_eos)) body["ignore_eos"] = true;
  if (o.token_ids) body["return_token_ids"] = true;
  if (o.metrics) body["collect_metrics"] = true;
}

}  // namespace

bool sends_extra(const ServeBench& o, int index) {
  return !o.extra.empty() && std::floor((index + 1) * o.extra_share) > std::floor(index * o.extra_share);
}

std::string serve_body(ServeBench& o, int index) {
  constexpr int kLeastId = 5;  // below are the ids of special tokens in many vocabularies
  Sample made;
  if (o.random()) {
    made = random_sample({.input_len = o.input_len,
                          .output_len = o.output_len,
                          .prefix_len = o.prefix_len,
                          .range_ratio = o.range_ratio,
                          .least_id = kLeastId,
                          .vocab = o.vocab,
                          .seed = o.plan.seed},
                         index);
  }
  const Sample& sample = o.random() ? made : o.sample_of(index);
  json::Object body = sample.fields;
  body["model"] = o.served_name.empty() ? o.model : o.served_name;
  body["stream"] = true;
  body["stream_options"] = json::Object{{"include_usage", true}};
  add_prompt(o, sample, body);
  if (o.multi_turn) body["messages"] = history(o, index);
  if (sample.output_len > 0) body["max_tokens"] = sample.output_len;
  add_sampling(o, body);
  for (const auto& [key, value] : o.hyper) body[key] = value;
  if (sends_extra(o, index)) {
    for (const auto& [key, value] : o.extra) {
      if (value.is_null())
        body.erase(key);
      else
        body[key] = value;
    }
  }
  std::string text = json::dump(body);
  if (o.debug) fmt::print(stderr, "{}\n", text);
  return text;
}

}  // namespace tern::bench
