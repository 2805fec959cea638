// Bodies of every protocol over the same way (chat, completions, responses, messages, embeddings, rewards): whatever
// JSON says, the outcome is a request within its limits or an error.
#include <cstdlib>
#include <string_view>

#include "json/json.h"
#include "serve/anthropic/protocol.h"
#include "serve/openai/ask.h"
#include "serve/openai/json/error.h"
#include "serve/openai/protocols.h"
#include "serve/prepare/prepare.h"
#include "serve/responses/protocol.h"

namespace {

// The same body for a model that sees: media within their limits, and messages any template can be given.
void try_media(const tern::json::Value& body) {
  using namespace tern;
  static const serve::ServeConfig config = [] {
    serve::ServeConfig c;
    c.vocab_size = 1000;
    c.max_model_len = 256;
    c.media = {.images = true, .videos = true, .max_images = 3, .max_videos = 2, .timeout = 1};
    return c;
  }();
  auto ask = serve::openai::parse_chat(body, config);
  if (!ask.ok()) {
    if (!json::parse(serve::openai::error_json(ask.error())).ok()) std::abort();
    return;
  }
  size_t images = 0, videos = 0;
  for (const auto& part : ask->media) {
    if ((part.url.empty() && part.uuid.empty()) || part.where.empty()) std::abort();
    ++(part.kind == content::MediaKind::kImage ? images : videos);
  }
  if (images > 3 || videos > 2) std::abort();
  if (!ask->messages.is_array()) return;
  for (const bool lists : {false, true}) {
    const serve::prepare::TemplateForm form{lists, lists, lists, lists ? "image_url" : "image", ""};
    const json::Value shaped = serve::prepare::shape_messages(ask->messages.get_array(), form);
    if (shaped.get_array().size() != ask->messages.get_array().size()) std::abort();
  }
}

void check_ask(const tern::serve::Ask& ask, const tern::serve::ServeConfig& config) {
  if (ask.n < 1 || ask.n > config.limits.n || ask.stop.size() > 5 || ask.stream_group < 1) std::abort();
  if (ask.best < 0 || ask.best >= ask.n + (ask.best == 0)) std::abort();
  if (ask.top_logprobs < 0 || ask.top_logprobs > config.max_logprobs) std::abort();
}

// The way of a request to its answer, whatever protocol it speaks.
void try_protocol(const tern::serve::Protocol& protocol, const tern::json::Value& body,
                  const tern::serve::ServeConfig& config) {
  using namespace tern;
  auto ask = protocol.read(body, config);
  if (!ask.ok()) {
    if (!json::parse(serve::openai::error_json(ask.error())).ok()) std::abort();
    if (!json::parse(serve::anthropic::error_body(400, ask.error().message)).ok()) std::abort();
    return;
  }
  check_ask(*ask, config);
  serve::prepare::PrepareInput input;
  input.config = &config;
  input.id_hex = "0123456789abcdef0123456789abcdef";
  input.make_writer = protocol.make_writer;
  auto pending = serve::prepare::begin(*std::move(ask), input);
  if (!pending.ok()) return;
  auto generation = serve::prepare::finish(*std::move(pending), {});
  if (!generation.ok()) return;
  for (auto& choice : (*generation)->choices()) {
    const auto request = (*generation)->engine_request(choice);
    if (request.max_tokens < 1 || request.prompt.empty()) std::abort();
    if (static_cast<int>(request.prompt.size()) + request.max_tokens > config.max_model_len) std::abort();
    for (const int32_t id : request.prompt) {
      if (id < 0 || id >= config.vocab_size) std::abort();
    }
    engine::Delta delta;
    if (config.pooling) {
      const size_t rows = request.pooled == engine::PooledRows::kAll ? request.prompt.size() : 1;
      delta.pooled.assign(rows * static_cast<size_t>(config.pooling->width), 0.5f);
      delta.finish = engine::FinishReason::kStop;
    } else {
      delta.tokens.push_back({request.prompt[0], {{request.prompt[0], -1.0f, 1}}});
      delta.finish = engine::FinishReason::kLength;
    }
    std::string out;
    (*generation)->consume(choice, std::move(delta), 1, out);
  }
  if (!(*generation)->finished()) std::abort();
  if (!(*generation)->ask().stream && !json::parse((*generation)->writer().body()).ok()) std::abort();
}

}  // namespace

namespace {

// The same of a model of embeddings, and of one that scores every token.
void try_pooling(const tern::json::Value& body) {
  using namespace tern;
  static const auto of = [](bool rewards) {
    serve::ServeConfig c;
    c.vocab_size = 1000;
    c.max_model_len = 256;
    c.pooling = {.width = 2,
                 .rewards = rewards,
                 .rows = rewards ? engine::PooledRows::kAll : engine::PooledRows::kLast,
                 .softmax = rewards};
    return c;
  };
  static const serve::ServeConfig embeds = of(false), scores = of(true);
  try_protocol(serve::openai::kEmbeddings, body, embeds);
  try_protocol(serve::openai::kRewards, body, scores);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tern;
  static const serve::ServeConfig config = [] {
    serve::ServeConfig c;
    c.vocab_size = 1000;
    c.max_model_len = 256;
    c.enable_logprob = c.logit_bias_processor = true;
    return c;
  }();
  auto body = json::parse(std::string_view(reinterpret_cast<const char*>(data), size), {1u << 20, 64});
  if (!body.ok()) return 0;
  try_media(*body);
  try_pooling(*body);
  for (const serve::Protocol* protocol : {&serve::openai::kChat, &serve::openai::kCompletions,
                                          &serve::responses::kResponses, &serve::anthropic::kMessages}) {
    try_protocol(*protocol, *body, config);
  }
  return 0;
}
