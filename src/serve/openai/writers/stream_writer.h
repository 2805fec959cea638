// Streams: chunks as server-sent events (fastdeploy.md 3.5, 3.6). Bytes around the text are made once per request, a
// token only appends.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "serve/core/generation.h"
#include "serve/openai/json/writers.h"

namespace tern::serve::openai {

class StreamWriter : public Writer {
 public:
  StreamWriter(const Generation& generation, std::string_view object);

  void take(const Choice& choice, TokenNews& news, std::string& out) final;
  void end(std::string& out) override;
  void fail(const Error& error, std::string& out) final;
  std::string body() const final { return {}; }
  size_t weight() const final { return 0; }

 protected:
  // An entry of `choices` without a token, in front of the first; the latter appends one for a token.
  virtual bool has_first() const = 0;
  virtual void append_first(const Choice& choice, std::string& out) = 0;
  virtual void append_entry(const Choice& choice, const TokenNews& news, std::string& out) = 0;

  void append_ids_and_texts(const Choice& choice, const TokenNews& news, std::string& out);
  void append_prompt_facts(const Choice& choice, std::string& out) const;
  void append_finish(const Choice& choice, const TokenNews& news, std::string& out) const;
  void append_scores(const Choice& choice, std::string& out);
  void append_masks(const Choice& choice, const TokenNews& news, std::string& out);
  void append_usage_chunk(const UsageCounts& usage, std::string& out) const;
  TokenNames names(bool spaceless = false) const { return {g_.tokenizer(), spaceless, ask_.return_token_ids}; }

  struct Held {
    engine::TokenOutput token;
    bool spaceless = false;
  };
  struct Told {
    bool started = false;  // the first chunk
    bool scored = false;   // log-probs of the prompt
    bool echoed = false;   // the text of the prompt
    // Tokens that a parser holds back or drops: they go with the next entry.
    std::vector<Held> held;
    std::string held_raw;
  };
  Told& told(const Choice& choice) { return told_[static_cast<size_t>(choice.index)]; }

  const Generation& g_;
  const Ask& ask_;

 private:
  bool hold(Told& so_far, const TokenNews& news) const;
  void append_chunk_end(const Choice& choice, bool first, std::string& out) const;

  std::string head_;     // up to and with "choices":[
  std::string entries_;  // that wait for their chunk
  int waiting_ = 0;
  std::vector<Told> told_;  // by choice
};

class ChatStream final : public StreamWriter {
 public:
  explicit ChatStream(const Generation& generation) : StreamWriter(generation, "chat.completion.chunk") {}
  void end(std::string& out) override;

 private:
  bool has_first() const override { return true; }
  void append_first(const Choice& choice, std::string& out) override;
  void append_entry(const Choice& choice, const TokenNews& news, std::string& out) override;
  void append_delta(const TokenNews& news, std::string& out);
  void append_logprobs(const Choice& choice, const TokenNews& news, std::string& out);

  std::string content_, reasoning_;  // of the entry at hand
};

class CompletionStream final : public StreamWriter {
 public:
  explicit CompletionStream(const Generation& generation) : StreamWriter(generation, "text_completion") {}

 private:
  void append_logprobs(const Choice& choice, const TokenNews& news, bool echoes, std::string& out) const;
  bool has_first() const override { return ask_.return_token_ids; }
  void append_first(const Choice& choice, std::string& out) override;
  void append_entry(const Choice& choice, const TokenNews& news, std::string& out) override;
};

}  // namespace tern::serve::openai
