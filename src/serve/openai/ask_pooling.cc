// What requests to pooling models have of their own (fastdeploy.md 3.13).
#include <fmt/format.h>

#include <limits>

#include "serve/openai/ask_parts.h"

namespace tern::serve::openai {
namespace {

// As OpenAI's clients send them in one request.
constexpr int32_t kMostInputs = 2048;

void read_encoding(Fields& f, PoolingAsk& pooling) {
  std::string encoding = "float";
  f.string("encoding_format", encoding, 64);
  if (encoding != "float" && encoding != "base64") f.fail("Input should be 'float' or 'base64'", "encoding_format");
  pooling.base64 = encoding == "base64";
}

// Vectors come whole, when they are done.
void refuse_streams(Fields& f) {
  bool stream = false;
  f.boolean("stream", stream);
  if (stream) f.fail("embeddings and rewards are not streamed", "stream");
  std::optional<int32_t> n, priority;
  f.integer("n", n, std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max());
  if (n && *n != 1) f.fail("a prompt has one vector", "n");
  f.integer("priority", priority, std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max());
  if (priority.value_or(0) != 0) {
    f.fail("priority needs scheduling by priority, which this server does not have", "priority");
  }
}

}  // namespace

void read_pooling(Fields& f, Ask& ask, const ServeConfig& config, bool reward) {
  const PoolingConfig& model = *config.pooling;
  PoolingAsk& pooling = *ask.pooling;
  if (reward != model.rewards) {
    return f.fail(model.rewards ? "this model gives rewards (/v1/reward), no embeddings"
                                : "this model gives embeddings (/v1/embeddings), no rewards",
                  "model");
  }
  refuse_streams(f);
  f.integer("truncate_prompt_tokens", pooling.truncate_prompt_tokens, -1, config.max_model_len);
  if (reward) {
    for (const char* key : {"dimensions", "normalize", "encoding_format"}) {
      if (f.find(key) != nullptr)
        f.fail(fmt::format("{} belongs to embeddings: scores are given as they are", key), key);
    }
    return;
  }
  pooling.normalize = model.normalize;
  pooling.dimensions = model.dimensions;
  f.boolean("normalize", pooling.normalize);
  f.integer("dimensions", pooling.dimensions, 1, model.width);
  read_encoding(f, pooling);
}

void read_embedding_input(Fields& f, Ask& ask, const ServeConfig& config) {
  const json::Value* input = f.find("input");
  if (input == nullptr) return f.fail("Field required", "input");
  auto prompts = read_prompts(*input, config, "input", kMostInputs);
  if (!prompts.ok()) return f.fail(prompts.error().message, prompts.error().param);
  ask.prompts = *std::move(prompts);
}

}  // namespace tern::serve::openai
