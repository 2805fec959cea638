#include "serve/openai/json/writers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <unordered_set>

#include "content/text/token_table.h"
#include "json/json.h"

namespace tern::serve::openai {
namespace {

// JSON has no infinities: a token that cannot be drawn gets the value other servers use for it.
void append_logprob(std::string& out, float value) {
  json::append_double(out, std::isfinite(value) ? static_cast<double>(value) : -9999.0);
}

void append_entry(std::string& out, const TokenNames& names, const engine::TokenLogprob& entry, bool decode) {
  out += "{\"token\":";
  if (decode)
    json::append_quoted(out, names.name(entry.id));
  else
    out += "null";
  out += ",\"logprob\":";
  append_logprob(out, entry.logprob);
  out += ",\"bytes\":";
  if (decode)
    names.append_bytes(out, entry.id);
  else
    out += "null";
  if (!names.with_ids) return;
  out += ",\"token_id\":";
  append_int(out, entry.id);
}

// The first of a list is the sampled token. Different ids may have one text (a byte token and the letter): the likelier
// one has the key.
std::vector<const engine::TokenLogprob*> top_of(const TokenNames& names, std::span<const engine::TokenLogprob> list,
                                                size_t top) {
  std::unordered_set<std::string> seen;
  std::vector<const engine::TokenLogprob*> kept;
  for (size_t i = 1; i < list.size() && kept.size() < top; ++i) {
    if (seen.insert(names.name(list[i].id)).second) kept.push_back(&list[i]);
  }
  return kept;
}

void append_top_logprobs(std::string& out, const TokenNames& names,
                         const std::vector<const engine::TokenLogprob*>& list) {
  out += '{';
  for (const engine::TokenLogprob* entry : list) {
    if (entry != list.front()) out += ',';
    json::append_quoted(out, names.name(entry->id));
    out += ':';
    append_logprob(out, entry->logprob);
  }
  out += '}';
}

void append_top_ids(std::string& out, const TokenNames& names, std::span<const engine::TokenOutput> tokens,
                    size_t top) {
  out += ",\"top_token_ids\":[";
  for (const engine::TokenOutput& token : tokens) {
    if (&token != &tokens.front()) out += ',';
    if (token.logprobs.empty()) {
      out += "null";
      continue;
    }
    std::vector<int32_t> ids;
    for (const engine::TokenLogprob* entry : top_of(names, token.logprobs, top)) ids.push_back(entry->id);
    append_ids(out, ids);
  }
  out += ']';
}

}  // namespace

void append_int(std::string& out, int64_t value) {
  const fmt::format_int text(value);
  out.append(text.data(), text.size());
}

void append_ids(std::string& out, std::span<const int32_t> ids) {
  out += '[';
  for (size_t i = 0; i < ids.size(); ++i) {
    if (i > 0) out += ',';
    append_int(out, ids[i]);
  }
  out += ']';
}

void append_sampling_mask(std::string& out, std::span<const std::vector<int32_t>> tokens) {
  if (std::ranges::all_of(tokens, [](const auto& kept) { return kept.empty(); })) {
    out += "null";
    return;
  }
  for (size_t i = 0; i < tokens.size(); ++i) {
    out += i == 0 ? '[' : ',';
    append_ids(out, tokens[i]);
  }
  out += ']';
}

void append_seconds(std::string& out, int64_t ns) {
  const int64_t us = std::max<int64_t>(ns, 0) / 1000;
  append_int(out, us / 1'000'000);
  const fmt::format_int digits(1'000'000 + us % 1'000'000);
  out += '.';
  out.append(digits.data() + 1, digits.size() - 1);
}

void append_usage(std::string& out, const UsageCounts& usage) {
  out += "{\"prompt_tokens\":";
  append_int(out, usage.prompt);
  out += ",\"total_tokens\":";
  append_int(out, usage.prompt + usage.completion);
  out += ",\"completion_tokens\":";
  append_int(out, usage.completion);
  out += ",\"prompt_tokens_details\":{\"cached_tokens\":";
  append_int(out, usage.cached);
  out += ",\"image_tokens\":";
  append_int(out, usage.image);
  out += ",\"video_tokens\":";
  append_int(out, usage.video);
  out += "},\"completion_tokens_details\":{\"reasoning_tokens\":";
  append_int(out, usage.reasoning);
  out += ",\"image_tokens\":0}}";
}

std::string TokenNames::name(int32_t id) const {
  if (tokenizer == nullptr) return std::to_string(id);
  std::string text = tokenizer->token_text(id);
  if (drops_space(id)) text.erase(0, 1);
  return text;
}

bool TokenNames::drops_space(int32_t id) const {
  return spaceless && tokenizer->id_to_bytes(id).starts_with(' ') &&
         !(tokenizer->table().flags(id) & (content::kTokenAdded | content::kTokenByte));
}

void TokenNames::append_bytes(std::string& out, int32_t id) const {
  if (tokenizer == nullptr) {
    out += "[]";
    return;
  }
  out += '[';
  bool first = true;
  for (const char c : tokenizer->id_to_bytes(id).substr(drops_space(id) ? 1 : 0)) {
    if (!first) out += ',';
    append_int(out, static_cast<unsigned char>(c));
    first = false;
  }
  out += ']';
}

void append_chat_logprob(std::string& out, const TokenNames& names, const engine::TokenOutput& token,
                         ChatLogprobForm form) {
  const engine::TokenLogprob sampled =
      token.logprobs.empty() ? engine::TokenLogprob{token.id, 0, 0} : token.logprobs[0];
  append_entry(out, names, sampled, form.decode);
  out += ",\"top_logprobs\":[";
  const size_t end = std::min(token.logprobs.size(), static_cast<size_t>(form.top) + 1);
  for (size_t i = 1; i < end; ++i) {
    if (i > 1) out += ',';
    append_entry(out, names, token.logprobs[i], form.decode);
    out += form.nulls ? ",\"top_logprobs\":null}" : "}";
  }
  out += "]}";
}

void append_completion_logprobs(std::string& out, const TokenNames& names, std::span<const engine::TokenOutput> tokens,
                                std::span<const int64_t> offsets, int32_t top) {
  out += "{\"tokens\":[";
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0) out += ',';
    json::append_quoted(out, names.name(tokens[i].id));
  }
  out += "],\"token_logprobs\":[";
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0) out += ',';
    if (tokens[i].logprobs.empty())
      out += "null";
    else
      append_logprob(out, tokens[i].logprobs[0].logprob);
  }
  out += "],\"top_logprobs\":[";
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0) out += ',';
    if (tokens[i].logprobs.empty())
      out += "null";
    else
      append_top_logprobs(out, names, top_of(names, tokens[i].logprobs, static_cast<size_t>(top)));
  }
  out += "],\"text_offset\":[";
  for (size_t i = 0; i < offsets.size(); ++i) {
    if (i > 0) out += ',';
    append_int(out, offsets[i]);
  }
  out += ']';
  if (names.with_ids) append_top_ids(out, names, tokens, static_cast<size_t>(top));
  out += '}';
}

void append_prompt_logprobs(std::string& out, const TokenNames& names, bool decode,
                            const std::vector<std::vector<engine::TokenLogprob>>& positions) {
  out += "[null";
  for (const auto& position : positions) {
    out += ",{";
    std::vector<int32_t> seen;
    for (const auto& entry : position) {
      if (std::find(seen.begin(), seen.end(), entry.id) != seen.end()) continue;
      if (!seen.empty()) out += ',';
      if (seen.size() < 64) seen.push_back(entry.id);
      fmt::format_to(std::back_inserter(out), "\"{}\":{{\"logprob\":", entry.id);
      append_logprob(out, entry.logprob);
      out += ",\"rank\":";
      append_int(out, entry.rank);
      out += ",\"decoded_token\":";
      if (decode)
        json::append_quoted(out, names.name(entry.id));
      else
        out += "null";
      out += '}';
    }
    out += '}';
  }
  out += ']';
}

}  // namespace tern::serve::openai
