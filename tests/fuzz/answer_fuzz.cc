// Answers of every tool-call format and reasoning parser: the first byte picks the format, the second the parser and
// how the answer ends, the third the length of the pieces; the rest is the text. In other pieces the text means the
// same; what is held back is bounded; content and verbatim arguments come from the text, in its order; a complete call
// has arguments that are JSON.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "answer/answer_parser.h"
#include "json/json.h"

namespace {

using namespace tern::answer;

Vocabulary no_marks() {
  return {.mark_id = [](std::string_view) { return std::optional<int32_t>(); },
          .bytes = [](int32_t) { return std::string_view(); },
          .special = [](int32_t) { return false; }};
}

const std::vector<AnswerFormat>& formats() {
  static const auto all = [] {
    std::vector<AnswerFormat> out;
    for (const NamedToolFormat& tools : tool_formats()) {
      out.push_back(AnswerFormat::make("", tools.name, no_marks()).value());
      for (const ReasoningFormat& reasoning : reasoning_formats()) {
        out.push_back(AnswerFormat::make(reasoning.name, tools.name, no_marks()).value());
      }
    }
    return out;
  }();
  return all;
}

std::shared_ptr<const Tools> tools() {
  static const auto all = std::make_shared<const Tools>(Tools{
      {"f", tern::json::parse(R"({"type": "object", "properties": {"s": {"type": "string"}, "n": {"type": "integer"},
                                        "o": {"type": ["string", "null"]}, "r": {"$ref": "#/$defs/R"}, "e": {}},
                                        "$defs": {"R": {"anyOf": [{"$ref": "#/$defs/R"}, {"type": "array"}]}}})")
                .value()},
      {"g", {}}});
  return all;
}

constexpr size_t kMaxHeld = 32u << 10;

Events run(const AnswerFormat& format, std::string_view text, size_t piece, int flags) {
  AnswerParser parser(format, {.start = static_cast<ReasoningStart>(flags & 3),
                               .tools = tools(),
                               .parse_calls = true,
                               .parallel_calls = (flags & 4) == 0,
                               .random_hex = [] { return std::string(32, 'a'); }});
  Events events;
  for (size_t i = 0; i < text.size(); i += piece) {
    parser.push(-1, text.substr(i, piece), events);
    if (parser.held() > kMaxHeld) abort();
  }
  parser.finish((flags & 8) != 0, events);
  if (parser.held() != 0 && !parser.wants_end()) abort();
  return events;
}

// Pieces of one text become one event, wherever the pieces were cut.
Events merged(const Events& events) {
  Events out;
  for (const Event& event : events) {
    const bool text =
        event.kind == EventKind::kReasoning || event.kind == EventKind::kContent || event.kind == EventKind::kArguments;
    if (text && event.text.empty()) abort();
    if (text) {
      append_text(out, event.kind, event.index, event.text.data(), event.text.size());
    } else {
      out.push_back(event);
    }
  }
  return out;
}

bool verbatim(const AnswerFormat& format) { return format.tools() != &kQwen3Coder && format.tools() != &kGlm45; }

// Every piece stands in the text, each behind the one before.
void check_source(const Events& events, std::string_view text) {
  size_t at = 0;
  for (const Event& event : events) {
    for (const char c : event.text) {
      at = text.find(c, at);
      if (at == std::string_view::npos) abort();
      ++at;
    }
  }
}

void check_calls(const Events& events) {
  std::string arguments;
  int32_t calls = 0, ended = 0;
  bool all = true, finished = false;
  for (const Event& event : events) {
    if (finished) abort();
    switch (event.kind) {
      case EventKind::kCallBegun:
        if (calls != ended || event.index != calls++ || event.name.empty()) abort();
        arguments.clear();
        break;
      case EventKind::kArguments:
        if (calls == ended) abort();
        arguments += event.text;
        break;
      case EventKind::kCallEnded:
        if (++ended != calls) abort();
        all = all && event.complete;
        if (event.complete) {
          const auto value = tern::json::parse(arguments, {.max_depth = 300});
          // Strings that are no UTF-8 are the only thing that the scanners do not check.
          if (value.ok() ? !value->is_object()
                         : std::ranges::all_of(arguments, [](char c) { return (c & 0x80) == 0; })) {
            abort();
          }
        }
        break;
      case EventKind::kFinish:
        finished = true;
        if (event.complete && (calls == 0 || !all)) abort();
        break;
      default:
        if (calls != ended) abort();
    }
  }
  if (!finished || calls != ended) abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 3) return 0;
  const AnswerFormat& format = formats()[data[0] % formats().size()];
  const int flags = data[1];
  const size_t piece = 1 + data[2] % 64;
  const std::string_view text(reinterpret_cast<const char*>(data) + 3, size - 3);
  const Events whole = merged(run(format, text, std::max<size_t>(1, text.size()), flags));
  check_calls(whole);
  if (verbatim(format)) check_source(whole, text);
  if (merged(run(format, text, piece, flags)) != whole) abort();
  if (merged(run(format, text, 1, flags)) != whole) abort();
  return 0;
}
