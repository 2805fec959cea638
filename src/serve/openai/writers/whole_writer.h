// Whole answers (fastdeploy.md 3.4, 3.6): nulls are present, not left out.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "serve/core/generation.h"
#include "serve/openai/json/writers.h"
#include "serve/openai/writers/calls.h"

namespace tern::serve::openai {

class WholeWriter : public Writer {
 public:
  WholeWriter(const Generation& generation, std::string_view object);

  void take(const Choice& choice, TokenNews& news, std::string& out) final;
  void end(std::string&) final {}
  void fail(const Error&, std::string&) final {}
  std::string body() const final;
  size_t weight() const final;

 protected:
  // Of one choice.
  struct Kept {
    std::string text, reasoning, raw_text;
    std::vector<WholeCall> calls;
    std::vector<int32_t> ids;
    std::vector<engine::TokenOutput> tokens;  // with their log-probs
    std::vector<int64_t> offsets;             // characters before each token
    std::vector<std::vector<int32_t>> masks;  // the ids that truncation left for each token
    size_t mask_ids = 0;
    size_t spaceless = SIZE_MAX;  // index in `tokens` of the one whose first space was dropped
  };
  // `index`: among those that are shown.
  virtual void append_choice(size_t index, const Choice& choice, const Kept& kept, std::string& out) const = 0;

  void append_ids_and_texts(const Choice& choice, const Kept& kept, std::string& out) const;
  void append_scores(const Choice& choice, std::string& out) const;
  void append_masks(const Kept& kept, std::string& out) const;
  TokenNames names(bool spaceless = false) const { return {g_.tokenizer(), spaceless, ask_.return_token_ids}; }

  const Generation& g_;
  const Ask& ask_;

 private:
  static void keep(answer::Event& event, Kept& kept);

  std::string_view object_;
  std::vector<Kept> kept_;  // by choice
};

class ChatWhole final : public WholeWriter {
 public:
  explicit ChatWhole(const Generation& generation) : WholeWriter(generation, "chat.completion") {}

 private:
  void append_message_text(const Kept& kept, std::string& out) const;
  void append_choice(size_t index, const Choice& choice, const Kept& kept, std::string& out) const override;
};

class CompletionWhole final : public WholeWriter {
 public:
  explicit CompletionWhole(const Generation& generation) : WholeWriter(generation, "text_completion") {}

 private:
  void append_logprobs(const Choice& choice, const Kept& kept, std::string& out) const;
  void append_choice(size_t index, const Choice& choice, const Kept& kept, std::string& out) const override;
};

}  // namespace tern::serve::openai
