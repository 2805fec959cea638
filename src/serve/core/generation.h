// One request while it is answered: its choices, what they say, and the writer that gives the client its bytes. Belongs
// to one I/O thread from the moment it starts.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "answer/answer_parser.h"
#include "engine/request.h"
#include "serve/config.h"
#include "serve/core/ask.h"
#include "serve/core/choice.h"
#include "serve/core/usage.h"
#include "serve/core/writer.h"

namespace tern::serve {

// What a generation takes from its server and its protocol; all of it outlives the generation.
struct AnswerParts {
  const content::Tokenizer* tokenizer = nullptr;  // null: answers have no text
  const answer::AnswerFormat* format = nullptr;   // null: all text is content
  std::function<std::string()> random_hex;        // 32 digits, never the same twice: ids of tool calls
  MakeWriter make_writer = nullptr;
};

class Generation {
 public:
  // `prototype` is what the choices' engine requests share; its max_tokens is the context length.
  Generation(Ask ask, std::string id, std::vector<PromptFacts> prompts, engine::Request prototype,
             const ServeConfig& config, AnswerParts parts);
  Generation(const Generation&) = delete;  // the writer knows where it lies
  Generation& operator=(const Generation&) = delete;

  const Ask& ask() const { return ask_; }
  const std::string& id() const { return id_; }
  const std::string& model() const { return ask_.model; }
  std::string choice_id(const Choice& choice) const { return id_ + "_" + std::to_string(choice.index); }
  const std::vector<PromptFacts>& prompts() const { return prompts_; }
  const PromptFacts& prompt(const Choice& choice) const { return prompts_[static_cast<size_t>(choice.prompt)]; }
  std::vector<Choice>& choices() { return choices_; }
  const std::vector<Choice>& choices() const { return choices_; }
  const content::Tokenizer* tokenizer() const { return parts_.tokenizer; }
  // Thoughts, and calls, are told from the content.
  bool parts_reasoning() const {
    return ask_.chat && parts_.format != nullptr && parts_.format->reasoning() != nullptr;
  }
  bool parses() const { return ask_.chat && parts_.format != nullptr; }
  bool mm_output() const { return mm_output_; }
  const PoolingConfig& pooling() const { return *pooling_; }  // of a server of a pooling model
  // Choices show the ids that truncation left for each token.
  bool sampling_mask() const { return sampling_mask_; }
  int64_t created() const { return created_; }          // seconds since 1970
  int64_t prepared_ns() const { return prepared_ns_; }  // when the prompt was ready
  int64_t arrival_ns() const { return prototype_.arrival_ns; }
  // From the monotonic clock to the time since 1970.
  int64_t wall_offset_ns() const { return wall_offset_ns_; }

  // The engine's request of a choice; `request_id` must be set.
  engine::Request engine_request(const Choice& choice) const;
  // Once every choice's request is made: patches are the engine's alone from then on.
  void release_media();

  struct Outcome {
    int32_t tokens = 0;  // counted of this delta
    bool choice_finished = false;
    bool abort = false;   // the engine still works on a choice that is finished here (a stop string was met)
    bool failed = false;  // error() says why; nothing more comes
  };
  // Takes one delta of a choice. Streams append their bytes to `out`; whole answers wait for writer().body().
  Outcome consume(Choice& choice, engine::Delta&& delta, int64_t now_ns, std::string& out);
  bool finished() const { return open_choices_ == 0; }
  const Error& error() const { return error_; }
  Writer& writer() const { return *writer_; }

  // The choices that the answer shows: all, or of each prompt the best of its samples, which come best first.
  std::vector<size_t> shown() const;

  UsageCounts usage() const;  // of all choices
  UsageCounts usage(const Choice& choice) const;
  int64_t prompt_tokens(const Choice& choice) const { return static_cast<int64_t>(prompt(choice).ids.size()); }
  // The prompt's text in front of the answer, where it is echoed.
  std::string_view echoed_text(const Choice& choice) const;

 private:
  TokenText::Rules text_rules(const ServeConfig& config) const;
  void start_text(Choice& choice) const;
  void take_token(Choice& choice, const engine::Delta& delta, size_t number, int64_t arrival_ns, Outcome& outcome,
                  std::string& out);
  void start_parser(Choice& choice, answer::ReasoningStart start) const;
  void tell(Choice& choice, TokenText::Piece& piece, TokenNews& news, std::string& out);
  void parse(Choice& choice, const TokenText::Piece& piece, TokenNews& news);

  Ask ask_;
  std::string id_;
  int64_t created_, prepared_ns_, wall_offset_ns_;
  std::vector<PromptFacts> prompts_;
  engine::Request prototype_;
  AnswerParts parts_;
  bool mm_output_, sampling_mask_;
  const PoolingConfig* pooling_;
  std::vector<Choice> choices_;
  int open_choices_;
  Error error_;
  answer::Event said_;     // by the token that is being taken, where nothing is parsed
  answer::Events events_;  // the same, parsed
  std::unique_ptr<Writer> writer_;
};

}  // namespace tern::serve
