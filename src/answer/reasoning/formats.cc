// The reasoning parsers by name, and where an answer begins.
#include <algorithm>
#include <array>

#include "answer/reasoning/reasoning.h"

namespace tern::answer {
namespace {

constexpr ReasoningFormat kFormats[] = {
    {.name = "ernie-45-vl", .most_percent = 80},
    {.name = "ernie-x1", .unmarked = ReasoningStart::kThinking, .after_end = Strip::kNewlines, .response_tags = true},
    {.name = "ernie-45-vl-thinking", .unmarked = ReasoningStart::kThinking, .after_end = Strip::kNewlines},
    {.name = "ernie-test", .unmarked = ReasoningStart::kThinking, .after_end = Strip::kNewlines},
    {.name = "qwen3"},
    {.name = "qwen2_5_vl"},
    {.name = "deepseek", .after_end = Strip::kSpace},
    {.name = "deepseek_r1", .unmarked = ReasoningStart::kThinking},
    {.name = "glm45"},
};

struct TailMark {
  std::string_view text;
  ReasoningStart start;
};

// The mark that ends last in `text` (of one that ends another, the longer).
ReasoningStart last_mark(std::string_view text, std::span<const TailMark> marks, ReasoningStart none) {
  ReasoningStart start = none;
  size_t last = 0;
  for (const TailMark& mark : marks) {
    const size_t at = text.rfind(mark.text);
    if (at == std::string_view::npos || at + mark.text.size() <= last) continue;
    last = at + mark.text.size();
    start = mark.start;
  }
  return start;
}

}  // namespace

std::span<const ReasoningFormat> reasoning_formats() { return kFormats; }

const ReasoningFormat* find_reasoning_format(std::string_view name) {
  if (name == "ernie_x1") name = "ernie-x1";
  const auto* found = std::ranges::find(kFormats, name, &ReasoningFormat::name);
  return found == std::end(kFormats) ? nullptr : found;
}

ReasoningMarks reasoning_marks(const ReasoningFormat& format, const Vocabulary& vocabulary) {
  return {.format = &format, .begin = vocabulary.mark_id(format.begin), .end = vocabulary.mark_id(format.end)};
}

ReasoningStart reasoning_start(const ReasoningMarks& marks, const Vocabulary& vocabulary,
                               std::span<const int32_t> prompt) {
  const ReasoningFormat& format = *marks.format;
  std::array<TailMark, 6> all = {TailMark{format.begin, ReasoningStart::kThinking},
                                 TailMark{format.end, ReasoningStart::kAnswer}};
  size_t count = 2;
  if (format.response_tags) {
    all[count++] = {"<response>", ReasoningStart::kResponse};
    all[count++] = {"</response>", ReasoningStart::kAnswer};
    all[count++] = {"<tool_call>", ReasoningStart::kCall};
    all[count++] = {"</tool_call>", ReasoningStart::kAnswer};
  }
  const auto tail_marks = std::span(all).first(count);
  const auto is_mark = [&](std::string_view bytes) {
    return std::ranges::find(tail_marks, bytes, &TailMark::text) != tail_marks.end();
  };
  constexpr size_t kMaxTail = 1u << 20;  // bytes of a turn that the server's caller has begun
  size_t first = prompt.size(), bytes = 0;
  while (first > 0 && bytes < kMaxTail) {
    const int32_t id = prompt[first - 1];
    if (vocabulary.special(id) && !is_mark(vocabulary.bytes(id))) break;
    bytes += vocabulary.bytes(id).size();
    --first;
  }
  std::string tail;
  for (const int32_t id : prompt.subspan(first)) tail += vocabulary.bytes(id);
  return last_mark(tail, tail_marks, format.unmarked);
}

}  // namespace tern::answer
