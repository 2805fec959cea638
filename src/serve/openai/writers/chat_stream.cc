#include "json/json.h"
#include "serve/openai/writers/calls.h"
#include "serve/openai/writers/content.h"
#include "serve/openai/writers/stream_writer.h"

namespace tern::serve::openai {

void ChatStream::append_first(const Choice& choice, std::string& out) {
  out += "{\"index\":";
  append_int(out, choice.index);
  out += ",\"delta\":{\"role\":\"assistant\",";
  append_content("", g_.mm_output(), out);
  out += ",\"reasoning_content\":\"\",\"tool_calls\":null";
  append_prompt_facts(choice, out);
  out += '}';
  append_scores(choice, out);
  out += '}';
}

void ChatStream::append_entry(const Choice& choice, const TokenNews& news, std::string& out) {
  out += "{\"index\":";
  append_int(out, choice.index);
  out += ",\"delta\":{";
  if (g_.parses()) {
    append_delta(news, out);
  } else {
    append_content(news.events.empty() ? std::string_view() : news.events[0].text, g_.mm_output(), out);
    out += ",\"reasoning_content\":\"\",\"tool_calls\":null";
  }
  append_ids_and_texts(choice, news, out);
  out += "},\"logprobs\":";
  if (ask_.logprobs)
    append_logprobs(choice, news, out);
  else
    out += "null";
  append_masks(choice, news, out);
  append_finish(choice, news, out);
  out += ",\"arrival_time\":";
  append_seconds(out, news.arrival_ns);
  out += '}';
}

void ChatStream::append_delta(const TokenNews& news, std::string& out) {
  content_.clear();
  reasoning_.clear();
  for (const answer::Event& event : news.events) {
    if (event.kind == answer::EventKind::kContent) content_ += event.text;
    if (event.kind == answer::EventKind::kReasoning) reasoning_ += event.text;
  }
  append_content(content_, g_.mm_output(), out);
  out += ",\"reasoning_content\":";
  json::append_quoted(out, reasoning_);
  out += ",\"tool_calls\":";
  append_call_pieces(news.events, out);
}

void ChatStream::append_logprobs(const Choice& choice, const TokenNews& news, std::string& out) {
  const ChatLogprobForm form{.top = ask_.top_logprobs, .nulls = false, .decode = ask_.decode_logprob_tokens};
  const auto& held = told(choice).held;
  if (held.empty() && news.token == nullptr) {
    out += "null";
    return;
  }
  out += "{\"content\":[";
  for (const Held& entry : held) {
    append_chat_logprob(out, names(entry.spaceless), entry.token, form);
    out += ',';
  }
  if (news.token != nullptr)
    append_chat_logprob(out, names(news.spaceless), *news.token, form);
  else
    out.pop_back();
  out += "],\"refusal\":null}";
}

void ChatStream::end(std::string& out) {
  if (ask_.include_usage) append_usage_chunk(g_.usage(), out);
  StreamWriter::end(out);
}

}  // namespace tern::serve::openai
