#include "serve/core/block_writer.h"

#include <iterator>
#include <utility>

namespace tern::serve {

using answer::Event;
using answer::EventKind;

void BlockWriter::open(Block block, std::string& out) {
  close(true, out);
  blocks_.push_back(std::move(block));
  if (ask_.stream) opened(blocks_.size() - 1, out);
}

void BlockWriter::close(bool whole, std::string& out) {
  if (blocks_.empty() || blocks_.back().closed) return;
  blocks_.back().closed = true;
  blocks_.back().whole = whole;
  if (ask_.stream) closed(blocks_.size() - 1, out);
}

void BlockWriter::add_text(Block::Kind kind, std::string_view piece, std::string& out) {
  std::string joined;
  if (kind == Block::Kind::kText && !is_open(kind)) {
    space_ += piece;
    if (space_.find_first_not_of(" \t\r\n") == std::string::npos) return;
    piece = joined = std::exchange(space_, {});
  }
  if (!is_open(kind)) open({.kind = kind, .text = {}, .id = {}, .name = {}, .tokens = {}}, out);
  Block& block = blocks_.back();
  block.text += piece;
  const size_t first = block.tokens.size();
  std::move(held_.begin(), held_.end(), std::back_inserter(block.tokens));
  held_.clear();
  if (ask_.stream) grew(blocks_.size() - 1, piece, first, out);
}

void BlockWriter::say(const Event& event, std::string& out) {
  switch (event.kind) {
    case EventKind::kContent:
      return add_text(Block::Kind::kText, event.text, out);
    case EventKind::kReasoning:
      held_.clear();
      space_.clear();
      return add_text(Block::Kind::kReasoning, event.text, out);
    case EventKind::kCallBegun:
      held_.clear();
      space_.clear();
      return open({.kind = Block::Kind::kCall, .text = {}, .id = event.id, .name = event.name, .tokens = {}}, out);
    case EventKind::kArguments:
      held_.clear();
      return add_text(Block::Kind::kCall, event.text, out);
    case EventKind::kCallEnded:
      return close(event.complete, out);
    case EventKind::kFinish:
      break;
  }
}

void BlockWriter::take(const Choice& choice, TokenNews& news, std::string& out) {
  if (!begun_ && ask_.stream) begin(choice, out);
  begun_ = true;
  if (ask_.logprobs && news.token != nullptr && !news.end_token) held_.push_back(*news.token);
  for (const Event& event : news.events) say(event, out);
  if (!news.last) return;
  if (!space_.empty() && blocks_.empty()) {  // the answer is nothing else
    open({.kind = Block::Kind::kText, .text = {}, .id = {}, .name = {}, .tokens = {}}, out);
    blocks_[0].text = space_;
    blocks_[0].tokens = std::move(held_);
    if (ask_.stream) grew(0, space_, 0, out);
  }
  close(choice.reason == engine::FinishReason::kStop, out);
}

void BlockWriter::end(std::string& out) { complete(out); }

void BlockWriter::fail(const Error& error, std::string& out) {
  if (!begun_) begin(choice(), out);
  begun_ = true;
  failed(error, out);
}

size_t BlockWriter::weight() const {
  size_t sum = 0;
  for (const Block& block : blocks_) sum += block.text.size();
  return sum;
}

}  // namespace tern::serve
