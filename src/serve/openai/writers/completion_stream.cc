#include "json/json.h"
#include "serve/openai/writers/stream_writer.h"

namespace tern::serve::openai {

void CompletionStream::append_first(const Choice& choice, std::string& out) {
  out += "{\"index\":";
  append_int(out, choice.index);
  out += ",\"text\":\"\"";
  append_prompt_facts(choice, out);
  append_scores(choice, out);
  out += '}';
}

void CompletionStream::append_entry(const Choice& choice, const TokenNews& news, std::string& out) {
  const std::string_view said = news.events.empty() ? std::string_view() : news.events[0].text;
  out += "{\"index\":";
  append_int(out, choice.index);
  out += ",\"text\":";
  if (ask_.echo && !told(choice).echoed) {
    told(choice).echoed = true;
    std::string text(g_.echoed_text(choice));
    json::append_quoted(out, text += said);
  } else {
    json::append_quoted(out, said);
  }
  append_ids_and_texts(choice, news, out);
  out += ",\"reasoning_content\":\"\",\"tool_calls\":null,\"arrival_time\":";
  append_seconds(out, news.arrival_ns);
  if (ask_.logprobs && news.token != nullptr) {
    out += ",\"logprobs\":";
    append_completion_logprobs(out, names(), {news.token, 1}, {&news.offset, 1}, ask_.top_logprobs);
  } else {
    out += ",\"logprobs\":null";
  }
  append_scores(choice, out);
  append_finish(choice, news, out);
  out += '}';
}

}  // namespace tern::serve::openai
