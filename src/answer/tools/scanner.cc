#include "answer/tools/scanner.h"

namespace tern::answer {

void ToolScanner::feed(std::string_view text, Events& out) {
  out_ = &out;
  for (const char c : text) step(c);
}

void ToolScanner::finish(Events& out) {
  out_ = &out;
  end();
  const size_t newlines = newlines_;
  newlines_ = 0;
  if (calls_ == 0 || !policy_.drop_text_after_first_call) say(std::string(newlines, '\n'));
}

void ToolScanner::say(std::string_view text) { append_text(*out_, EventKind::kContent, 0, text.data(), text.size()); }

void ToolScanner::content(std::string_view text) {
  if (text.empty() || (calls_ > 0 && policy_.drop_text_after_first_call)) return;
  if (after_call_) {
    while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
    if (text.empty()) return;
    after_call_ = false;
  }
  if (!policy_.drop_newlines) return say(text);
  for (const char c : text) {
    if (c == '\n') {
      ++newlines_;
      continue;
    }
    for (; newlines_ > 0; --newlines_) say("\n");
    said_ = true;
    say({&c, 1});
  }
}

bool ToolScanner::hold(char c) {
  if (held_.size() >= kMaxHeld) return false;
  held_ += c;
  return true;
}

void ToolScanner::release() {
  std::string text;
  text.swap(held_);
  content(text);
}

void ToolScanner::begin_call(const std::string& name) {
  held_.clear();
  newlines_ = 0;
  out_->push_back({.kind = EventKind::kCallBegun, .index = calls_, .text = {}, .id = ids_(), .name = name});
  ++calls_;
}

void ToolScanner::arguments(std::string_view text) {
  append_text(*out_, EventKind::kArguments, calls_ - 1, text.data(), text.size());
}

void ToolScanner::end_call(bool complete) {
  out_->push_back(
      {.kind = EventKind::kCallEnded, .index = calls_ - 1, .complete = complete, .text = {}, .id = {}, .name = {}});
  ++ended_;
  if (complete) {
    ++complete_;
  } else {
    broken_ = true;
  }
  after_call_ = true;
}

}  // namespace tern::answer
