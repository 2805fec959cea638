#include "serve/openai/paddlenlp_protocols.h"

#include "serve/openai/protocols.h"

namespace tern::serve::openai {
namespace {

// What a body that leaves it open gets from this server (paddlenlp-server.md 2.2); zero is a value.
Expected<Ask> with_defaults(Expected<Ask> ask, const ServeConfig& config) {
  if (!ask.ok()) return ask;
  if (!ask->temperature) ask->temperature = 0.95;
  if (!ask->top_p) ask->top_p = 0.7;
  if (!ask->top_k) ask->top_k = 0;
  if (!ask->repetition_penalty) ask->repetition_penalty = 1.0;
  if (!ask->frequency_penalty) ask->frequency_penalty = 0.0;
  if (!ask->presence_penalty) ask->presence_penalty = 0.0;
  if (!ask->max_tokens) ask->max_tokens = config.paddlenlp->dec_len_limit;
  if (!config.served_model_name.empty()) ask->model = config.served_model_name;  // the name is ignored
  return ask;
}

}  // namespace

const Protocol kPaddleNlpChat{
    .read = [](json::Value body,
               const ServeConfig& config) { return with_defaults(kChat.read(std::move(body), config), config); },
    .make_writer = kChat.make_writer,
    .native_too = true};
const Protocol kPaddleNlpCompletions{
    .read = [](json::Value body,
               const ServeConfig& config) { return with_defaults(kCompletions.read(std::move(body), config), config); },
    .make_writer = kCompletions.make_writer,
    .native_too = true};

}  // namespace tern::serve::openai
