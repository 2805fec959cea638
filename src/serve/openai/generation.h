// One request while it is answered: its samples, their text so far, and the bytes the client gets (fastdeploy.md 3.4 to
// 3.9). Belongs to one I/O thread from the moment it starts.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "content/text/detokenizer.h"
#include "content/text/stop_text.h"
#include "engine/request.h"
#include "serve/config.h"
#include "serve/openai/ask.h"
#include "serve/openai/json/writers.h"

namespace tern::serve::openai {

struct PromptFacts {
  std::vector<int32_t> ids;
  std::string text;  // filled when the answer shows it (return_token_ids, echo)
  // Prompts with pictures only; the first two go into the engine's requests and are released then.
  std::vector<engine::MediaItem> media;
  std::vector<int32_t> positions;  // [3, ids]
  int32_t rope_delta = 0;
  int32_t image_tokens = 0, video_tokens = 0;  // placeholders among ids
};

// One sample of one prompt: one row of the engine.
struct Choice {
  engine::RequestId request_id = 0;  // given when submitted
  int32_t index = 0, prompt = 0;
  uint64_t seed = 0;
  std::optional<content::StreamDetokenizer> detokenizer;
  std::unique_ptr<content::StopMatcher> stop;  // only with stop strings

  bool started = false;   // its first chunk is written
  bool scored = false;    // its prompt's log-probs went out
  bool echoed = false;    // the prompt's text went out in front of the first text
  bool finished = false;  // nothing more will be shown
  engine::FinishReason reason = engine::FinishReason::kNone;
  int64_t completion_tokens = 0, cached_tokens = 0;
  int64_t characters = 0;  // of the text so far, stop strings included: where the next token's text begins
  int64_t last_token_ns = 0;
  int64_t submitted_ns = 0, received_ns = 0;  // handed to the engine; its newest delta came
  engine::RequestTimes times;

  // Whole answers only.
  std::string text, raw_text;
  std::vector<int32_t> ids;
  std::vector<engine::TokenOutput> tokens;  // with their log-probs
  std::vector<int64_t> offsets;             // characters before each token
  size_t spaceless = SIZE_MAX;              // index in `tokens` of the one whose first space was dropped
  std::vector<std::vector<engine::TokenLogprob>> prompt_logprobs;
};

class Generation {
 public:
  // `prototype` is what the samples' engine requests share; its max_tokens is the context length.
  Generation(Ask ask, std::string id, std::string model, std::vector<PromptFacts> prompts, engine::Request prototype,
             const content::Tokenizer* tokenizer, const ServeConfig& config);

  const Ask& ask() const { return ask_; }
  const std::string& id() const { return id_; }
  std::string choice_id(const Choice& choice) const { return id_ + "_" + std::to_string(choice.index); }
  const std::vector<PromptFacts>& prompts() const { return prompts_; }
  std::vector<Choice>& choices() { return choices_; }
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
  // Takes one delta of a choice. Streams append events to `out`; whole answers wait for body().
  Outcome consume(Choice& choice, engine::Delta&& delta, int64_t now_ns, std::string& out);
  bool finished() const { return open_choices_ == 0; }
  const Error& error() const { return error_; }

  // End of a stream: usage where asked, then [DONE].
  void append_stream_end(std::string& out) const;
  // An error inside a stream, then [DONE].
  void append_stream_error(const Error& error, std::string& out) const;
  // The whole answer; all choices have finished.
  std::string body() const;
  UsageCounts usage() const;  // of all choices
  UsageCounts usage(const Choice& choice) const;
  int64_t prompt_tokens(const Choice& choice) const;

 private:
  struct Piece {
    std::string text;  // for the client
    std::string raw;   // before stop strings cut it
    const engine::TokenOutput* token = nullptr;
    bool last = false;
    bool spaceless = false;  // the text's first space, which the token begins with, is not shown
    int64_t offset = 0;      // of the token in the text, in characters
    int64_t arrival_ns = 0;
  };

  void start_text(Choice& choice) const;
  TokenNames names(bool spaceless = false) const { return {tokenizer_, spaceless}; }
  bool skips_special() const { return skip_special_ || ask_.skip_special_tokens; }
  void build_templates();
  void take_text(Choice& choice, const engine::Delta& delta, bool last_token, Piece& piece, bool& stopped);
  void show(Choice& choice, Piece& piece, std::string& out);
  void append_first_chunk(Choice& choice, std::string& out);
  void append_stream_prompt_logprobs(Choice& choice, std::string& out) const;
  void append_entry(Choice& choice, const Piece& piece, std::string& out);
  void append_chat_entry(Choice& choice, const Piece& piece, std::string& out);
  void append_completion_entry(Choice& choice, const Piece& piece, std::string& out);
  void append_chunk_end(const Choice& choice, std::string& out) const;
  void append_metrics(const Choice& choice, std::string& out) const;
  void append_chat_choice(const Choice& choice, std::string& out) const;
  void append_completion_choice(const Choice& choice, std::string& out) const;
  void append_content(std::string_view text, std::string& out) const;
  void append_token_ids(const engine::TokenOutput* token, std::string& out) const;
  std::string_view prompt_text(const Choice& choice) const { return prompts_[static_cast<size_t>(choice.prompt)].text; }
  std::string_view echoed_text(const Choice& choice) const;

  Ask ask_;
  std::string id_, model_;
  int64_t created_;
  int64_t prepared_ns_;     // when the prompt was ready
  int64_t wall_offset_ns_;  // from the monotonic clock to the time since 1970
  std::vector<PromptFacts> prompts_;
  engine::Request prototype_;
  const content::Tokenizer* tokenizer_;
  bool mm_output_, skip_special_;
  std::vector<Choice> choices_;
  int open_choices_;
  Error error_;

  std::string chunk_head_;  // up to and with "choices":[
  std::string entries_;     // choice entries that wait for their chunk
  int waiting_entries_ = 0;
};

std::string_view finish_name(engine::FinishReason reason);

}  // namespace tern::serve::openai
