// From a validated request to token ids and a Generation: templates, tokenization, limits that need the tokenizer.
// Runs on the CPU pool. A request with media goes in two halves: what needs no picture comes first, so that a mistake
// is found before any work, and the layout of the prompt when its pictures are ready.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "base/error.h"
#include "base/hash.h"
#include "serve/core/ask.h"
#include "serve/core/generation.h"
#include "serve/prepare/constrain.h"
#include "serve/prepare/template_form.h"
#include "serve/server.h"

namespace tern::serve::prepare {

struct PrepareInput {
  const ServeConfig* config = nullptr;
  Content content;
  // Of the content's templates; null: found out for each request.
  const TemplateForm* chat_form = nullptr;
  const TemplateForm* tool_form = nullptr;
  MakeWriter make_writer = nullptr;         // of the protocol; not needed where only tokens are counted
  std::function<std::string()> random_hex;  // AnswerParts::random_hex; not needed without parsers
  int64_t arrival_ns = 0;
  int64_t contexts = 1;                                // longer texts are refused unread; /tokenize counts some
  uint64_t owner = 0;                                  // engine::Request::owner
  std::shared_ptr<const std::atomic<bool>> cancelled;  // set when the client leaves; may be null
  uint64_t random = 0;                                 // the seed of a request that brings none; also part of the id
  std::string id_hex;                                  // 32 hexadecimal digits: the id of a request that brings none
  bool salted = false;                                 // prefix cache entries are shared within `salt` only
  uint64_t salt[2] = {0, 0};
};

// Everything about a request but its prompts' ids.
struct PendingRequest {
  Ask ask;
  PrepareInput input;
  std::string id;
  std::string rendered;   // the chat prompt as text; "" when the prompt came as ids
  std::string last_said;  // with ServeConfig::scripted: of the messages
  engine::Request prototype;
  std::vector<NeededGrammar> grammars;  // to be compiled between begin() and finish()
};
Expected<PendingRequest> begin(Ask ask, const PrepareInput& input);
// `media`: in the order of ask.media; empty for a request without.
Expected<std::unique_ptr<Generation>> finish(PendingRequest pending, std::span<const content::PreparedMediaPtr> media);

// The prompt of a chat request as text: template, or the first message as it is. Shared with /tokenize.
// Uses up ask.messages.
Expected<std::string> render_chat(Ask& ask, const PrepareInput& input);

}  // namespace tern::serve::prepare
