#include "json/json.h"
#include "serve/core/scored_text.h"
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

// `echoes`: those of the prompt come first.
void CompletionStream::append_logprobs(const Choice& choice, const TokenNews& news, bool echoes,
                                       std::string& out) const {
  if (!ask_.logprobs || (news.token == nullptr && !echoes)) {
    out += "null";
    return;
  }
  ScoredText all;
  if (echoes) all = score_prompt(g_, choice);
  if (news.token != nullptr) {
    all.tokens.push_back(*news.token);
    all.offsets.push_back(news.offset);
  }
  append_completion_logprobs(out, names(), all.tokens, all.offsets, ask_.top_logprobs);
}

void CompletionStream::append_entry(const Choice& choice, const TokenNews& news, std::string& out) {
  const std::string_view said = news.events.empty() ? std::string_view() : news.events[0].text;
  out += "{\"index\":";
  append_int(out, choice.index);
  out += ",\"text\":";
  const bool echoes = ask_.echo && !told(choice).echoed;
  if (echoes) {
    told(choice).echoed = true;
    std::string text(g_.echoed_text(choice));
    json::append_quoted(out, text += said);
  } else {
    json::append_quoted(out, said);
  }
  append_ids_and_texts(choice, news, out);
  out += ",\"reasoning_content\":\"\",\"tool_calls\":null,\"arrival_time\":";
  append_seconds(out, news.arrival_ns);
  out += ",\"logprobs\":";
  append_logprobs(choice, news, echoes, out);
  append_scores(choice, out);
  append_masks(choice, news, out);
  append_finish(choice, news, out);
  out += '}';
}

}  // namespace tern::serve::openai
