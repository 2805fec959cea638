#include "answer/answer_parser.h"

#include <algorithm>

namespace tern::answer {
namespace {

template <class List, class Name>
Error unknown(std::string_view what, std::string_view name, const List& list, Name name_of, std::string param) {
  std::string message = "there is no " + std::string(what) + " '" + std::string(name) + "'; known are";
  const char* separator = " ";
  for (const auto& item : list) {
    message += separator;
    message += name_of(item);
    separator = ", ";
  }
  return make_error(ErrorCode::kInvalidArgument, std::move(message), std::move(param));
}

}  // namespace

Expected<AnswerFormat> AnswerFormat::make(std::string_view reasoning, std::string_view tools, Vocabulary vocabulary) {
  AnswerFormat out;
  if (!reasoning.empty()) {
    const ReasoningFormat* format = find_reasoning_format(reasoning);
    if (format == nullptr) {
      return unknown(
          "reasoning parser", reasoning, reasoning_formats(), [](const auto& f) { return f.name; }, "reasoning-parser");
    }
    out.reasoning_ = reasoning_marks(*format, vocabulary);
  }
  if (!tools.empty()) {
    out.tools_ = find_tool_format(tools);
    if (out.tools_ == nullptr) {
      return unknown(
          "tool-call parser", tools, tool_formats(), [](const auto& f) { return f.name; }, "tool-call-parser");
    }
  }
  const auto add = [&](std::string_view mark) {
    if (const auto id = vocabulary.mark_id(mark)) out.tool_marks_.emplace(*id, mark);
  };
  if (out.tools_ != nullptr) {
    for (const std::string_view mark : out.tools_->marks) add(mark);
  }
  if (out.reasoning_ && out.reasoning_->format->response_tags) {
    for (const std::string_view mark : {"<response>", "</response>", "<tool_call>"}) add(mark);
  }
  out.vocabulary_ = std::move(vocabulary);
  return out;
}

ReasoningStart AnswerFormat::start(std::span<const int32_t> prompt) const {
  return reasoning_ ? reasoning_start(*reasoning_, vocabulary_, prompt) : ReasoningStart::kOpenable;
}

std::vector<int32_t> AnswerFormat::call_tokens() const {
  std::vector<int32_t> out;
  if (tools_ == nullptr) return out;
  for (const std::string_view mark : tools_->start_marks) {
    if (const auto id = vocabulary_.mark_id(mark)) out.push_back(*id);
  }
  return out;
}

std::string_view AnswerFormat::tool_mark(int32_t id) const {
  const auto found = tool_marks_.find(id);
  return found == tool_marks_.end() ? std::string_view() : found->second;
}

AnswerParser::AnswerParser(const AnswerFormat& format, AnswerOptions options)
    : format_(&format),
      parallel_calls_(options.parallel_calls),
      parse_calls_(options.parse_calls && format.tools() != nullptr) {
  if (const ReasoningMarks* marks = format.reasoning()) {
    reasoning_.emplace(*marks, options.start);
    if (marks->format->response_tags && !options.untagged) response_.emplace(options.start, parse_calls_);
  }
  if (!parse_calls_) return;
  const ToolFormat& tools = *format.tools();
  auto hex = std::move(options.random_hex);
  ToolScanner::IdSource ids;
  if (tools.short_ids) {
    ids = [hex = std::move(hex)] { return hex().substr(0, 9); };
  } else {
    ids = [hex = std::move(hex)] { return "chatcmpl-tool-" + hex(); };
  }
  if (options.tools == nullptr) options.tools = std::make_shared<const Tools>();
  scanner_ = tools.scanner(std::move(options.tools), std::move(ids));
  if (options.start == ReasoningStart::kCall) {  // the prompt has begun the call
    Events none;
    scanner_->feed(tools.trigger, none);
  }
}

bool AnswerParser::wants_end() const { return scanner_ && !parallel_calls_ && scanner_->ended_calls() > 0; }

size_t AnswerParser::held() const {
  return (reasoning_ ? reasoning_->held() : 0) + (response_ ? response_->held() : 0) +
         (scanner_ ? scanner_->held() : 0);
}

void AnswerParser::scan(std::string_view text, Events& out) {
  if (!scanner_) return append_text(out, EventKind::kContent, 0, text.data(), text.size());
  if (parallel_calls_) return scanner_->feed(text, out);
  for (size_t i = 0; i < text.size() && !wants_end(); ++i) scanner_->feed(text.substr(i, 1), out);
}

void AnswerParser::answer(std::string_view text, Events& out) {
  if (!response_) return scan(text, out);
  text_.clear();
  response_->push(text, text_);
  scan(text_, out);
}

void AnswerParser::spread(Events& out) {
  for (const Segment& segment : segments_) {
    if (segment.reasoning) {
      append_text(out, EventKind::kReasoning, 0, segment.text.data(), segment.text.size());
    } else {
      answer(segment.text, out);
    }
  }
  segments_.clear();
}

void AnswerParser::push(int32_t id, std::string_view piece, Events& out) {
  if (wants_end()) return;
  std::string whole;  // with the mark that the detokenizer left out
  if (!thinking() && (parse_calls_ || response_)) {
    const std::string_view mark = format_->tool_mark(id);
    if (!mark.empty() && !piece.ends_with(mark)) {
      whole.append(piece).append(mark);
      piece = whole;
    }
  }
  if (!reasoning_) return scan(piece, out);
  reasoning_->push(id, piece, segments_);
  spread(out);
}

void AnswerParser::push_rest(std::string_view piece, Events& out) {
  if (wants_end() || piece.empty()) return;
  if (!reasoning_) return scan(piece, out);
  reasoning_->push_rest(piece, segments_);
  spread(out);
}

void AnswerParser::finish(bool natural, Events& out) {
  if (reasoning_) {
    reasoning_->finish(segments_);
    spread(out);
  }
  if (response_ && !wants_end()) {
    text_.clear();
    response_->finish(text_);
    scan(text_, out);
  }
  if (scanner_ && !wants_end()) scanner_->finish(out);
  out.push_back({.kind = EventKind::kFinish,
                 .complete = natural && scanner_ && scanner_->complete_calls(),
                 .text = {},
                 .id = {},
                 .name = {}});
}

}  // namespace tern::answer
