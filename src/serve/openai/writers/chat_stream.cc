#include "json/json.h"
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
  append_content(news.events.empty() ? std::string_view() : news.events[0].text, g_.mm_output(), out);
  out += ",\"reasoning_content\":\"\",\"tool_calls\":null";
  append_ids_and_texts(news, out);
  if (ask_.logprobs && news.token != nullptr) {
    out += "},\"logprobs\":{\"content\":[";
    append_chat_logprob(out, names(news.spaceless), *news.token,
                        {.top = ask_.top_logprobs, .nulls = false, .decode = ask_.decode_logprob_tokens});
    out += "],\"refusal\":null}";
  } else {
    out += "},\"logprobs\":null";
  }
  append_finish(choice, news, out);
  out += ",\"arrival_time\":";
  append_seconds(out, news.arrival_ns);
  out += '}';
}

void ChatStream::end(std::string& out) {
  if (ask_.include_usage) append_usage_chunk(g_.usage(), out);
  StreamWriter::end(out);
}

}  // namespace tern::serve::openai
