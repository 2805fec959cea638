#include "serve/core/answer_text.h"

namespace tern::serve {

void AnswerText::feed(std::optional<int32_t> id, std::string_view text, answer::Events& out) {
  if (id)
    parser_.push(*id, text, out);
  else
    parser_.push_rest(text, out);
}

void AnswerText::push(std::optional<int32_t> id, size_t bytes, std::string_view passed, answer::Events& out) {
  if (waiting_.empty() && passed.size() == bytes) return feed(id, passed, out);
  waiting_.push_back({id, bytes});
  passed_ += passed;
  size_t at = 0;
  while (!waiting_.empty() && waiting_.front().bytes <= passed_.size() - at) {
    const Waiting token = waiting_.front();
    waiting_.pop_front();
    feed(token.id, std::string_view(passed_).substr(at, token.bytes), out);
    at += token.bytes;
  }
  passed_.erase(0, at);
}

void AnswerText::finish(bool natural, answer::Events& out) {
  if (!passed_.empty() && !waiting_.empty()) feed(waiting_.front().id, passed_, out);
  waiting_.clear();
  parser_.finish(natural, out);
}

}  // namespace tern::serve
