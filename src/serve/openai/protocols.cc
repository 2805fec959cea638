#include "serve/openai/protocols.h"

#include "serve/openai/ask.h"
#include "serve/openai/writers/make_writer.h"

namespace tern::serve::openai {

const Protocol kChat{
    .read = [](json::Value body, const ServeConfig& config) { return parse_chat(std::move(body), config); },
    .make_writer = make_writer};
const Protocol kCompletions{.read = parse_completion, .make_writer = make_writer};
const Protocol kEmbeddings{.read = parse_embedding, .make_writer = make_pooling_writer, .pools = true};
const Protocol kRewards{.read = parse_reward, .make_writer = make_pooling_writer, .pools = true};

}  // namespace tern::serve::openai
