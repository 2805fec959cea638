// Answers as lists of blocks: thoughts, texts and calls in the order in which they begin. The Responses and the
// Messages protocol show an answer so, streamed and whole; their writers say what a block's bytes are.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "serve/core/generation.h"
#include "serve/core/writer.h"

namespace tern::serve {

struct Block {
  enum class Kind : uint8_t { kReasoning, kText, kCall };
  Kind kind = Kind::kText;
  std::string text;                         // of a call: its arguments
  std::string id, name;                     // of a call
  std::vector<engine::TokenOutput> tokens;  // of a text, where log-probs are asked for
  bool closed = false;
  bool whole = false;  // closed, and nothing cut it off
};

class BlockWriter : public Writer {
 public:
  explicit BlockWriter(const Generation& generation) : g_(generation), ask_(generation.ask()) {}

  void take(const Choice& choice, TokenNews& news, std::string& out) final;
  void end(std::string& out) final;
  void fail(const Error& error, std::string& out) final;
  size_t weight() const final;

 protected:
  // Bytes of a stream. `begin` comes first and once, `complete` or `failed` last.
  virtual void begin(const Choice& choice, std::string& out) = 0;
  virtual void opened(size_t index, std::string& out) = 0;
  // `first`: of the block's tokens that came with the piece.
  virtual void grew(size_t index, std::string_view piece, size_t first, std::string& out) = 0;
  virtual void closed(size_t index, std::string& out) = 0;
  virtual void complete(std::string& out) = 0;
  virtual void failed(const Error& error, std::string& out) = 0;

  const Choice& choice() const { return g_.choices()[0]; }
  const std::vector<Block>& blocks() const { return blocks_; }

  const Generation& g_;
  const Ask& ask_;

 private:
  void say(const answer::Event& event, std::string& out);
  void add_text(Block::Kind kind, std::string_view piece, std::string& out);
  void open(Block block, std::string& out);
  void close(bool whole, std::string& out);
  bool is_open(Block::Kind kind) const {
    return !blocks_.empty() && !blocks_.back().closed && blocks_.back().kind == kind;
  }

  std::vector<Block> blocks_;
  std::string space_;                      // white space before a text, which a call or the end may follow instead
  std::vector<engine::TokenOutput> held_;  // tokens of texts that wait for their block or their piece
  bool begun_ = false;
};

}  // namespace tern::serve
