#include "serve/openai/writers/stream_writer.h"

#include "json/json.h"
#include "serve/openai/json/error.h"
#include "serve/openai/writers/make_writer.h"
#include "serve/openai/writers/metrics.h"

namespace tern::serve::openai {

StreamWriter::StreamWriter(const Generation& generation, std::string_view object)
    : g_(generation), ask_(generation.ask()), told_(generation.choices().size()) {
  head_ = "data: {\"id\":";
  json::append_quoted(head_, g_.id());
  head_ += ",\"object\":\"";
  head_ += object;
  head_ += "\",\"created\":";
  append_int(head_, g_.created());
  head_ += ",\"model\":";
  json::append_quoted(head_, g_.model());
  head_ += ",\"choices\":[";
}

void StreamWriter::take(const Choice& choice, TokenNews& news, std::string& out) {
  Told& so_far = told(choice);
  if (!so_far.started) {
    so_far.started = true;
    if (has_first()) {
      out += head_;
      append_first(choice, out);
      append_chunk_end(choice, true, out);
    }
  }
  if (g_.parses() && hold(so_far, news)) return;
  if (ask_.stream_group == 1) {
    out += head_;
    append_entry(choice, news, out);
    append_chunk_end(choice, false, out);
  } else {
    if (waiting_ > 0) entries_ += ',';
    append_entry(choice, news, entries_);
    if (++waiting_ >= ask_.stream_group || news.last) {
      out += head_;
      out += entries_;
      append_chunk_end(choice, false, out);
      entries_.clear();
      waiting_ = 0;
    }
  }
  so_far.held.clear();
  so_far.held_raw.clear();
  if (news.last && !ask_.chat && ask_.include_usage) append_usage_chunk(g_.usage(choice), out);  // as the original
}

// A token of which the client sees nothing makes no chunk of its own (fastdeploy.md 3.5), unless it is the last.
bool StreamWriter::hold(Told& so_far, const TokenNews& news) const {
  if (news.last) return false;
  for (const answer::Event& event : news.events) {
    if (event.kind != answer::EventKind::kCallEnded) return false;
  }
  if (news.token != nullptr && (ask_.return_token_ids || ask_.logprobs || g_.sampling_mask())) {
    so_far.held.push_back({*news.token, news.spaceless});
    if (ask_.return_token_ids) so_far.held_raw += news.raw;
  }
  return true;
}

void StreamWriter::append_chunk_end(const Choice& choice, bool first, std::string& out) const {
  out += ']';
  if (ask_.continuous_usage) {
    UsageCounts usage = g_.usage(choice);
    if (first) usage.completion = 0;
    out += ",\"usage\":";
    append_usage(out, usage);
  }
  if (ask_.collect_metrics) append_metrics(g_, choice, out);
  out += "}\n\n";
}

void StreamWriter::append_usage_chunk(const UsageCounts& usage, std::string& out) const {
  out += head_;
  out += "],\"usage\":";
  append_usage(out, usage);
  out += "}\n\n";
}

// Prompts' log-probs, in the first entry of a choice only.
void StreamWriter::append_scores(const Choice& choice, std::string& out) {
  if (!ask_.prompt_logprobs || told(choice).scored) return;
  told(choice).scored = true;
  out += ",\"prompt_logprobs\":";
  append_prompt_logprobs(out, names(), ask_.decode_logprob_tokens, choice.prompt_logprobs);
}

// As the ids of this entry.
void StreamWriter::append_masks(const Choice& choice, const TokenNews& news, std::string& out) {
  if (!g_.sampling_mask()) return;
  std::vector<std::vector<int32_t>> masks;
  for (Held& held : told(choice).held) masks.push_back(std::move(held.token.kept));
  if (news.token != nullptr) masks.push_back(news.token->kept);
  out += ",\"sampling_mask\":";
  append_sampling_mask(out, masks);
}

void StreamWriter::append_prompt_facts(const Choice& choice, std::string& out) const {
  if (!ask_.return_token_ids) {
    out += ",\"prompt_token_ids\":null,\"completion_token_ids\":null";
    return;
  }
  out += ",\"prompt_token_ids\":";
  append_ids(out, g_.prompt(choice).ids);
  out += ",\"text_after_process\":";
  json::append_quoted(out, g_.prompt(choice).text);
  out += ",\"prompt_tokens\":";
  json::append_quoted(out, g_.prompt(choice).text);
  out += ",\"completion_token_ids\":null";
}

void StreamWriter::append_ids_and_texts(const Choice& choice, const TokenNews& news, std::string& out) {
  out += ",\"prompt_token_ids\":null,\"completion_token_ids\":";
  if (!ask_.return_token_ids) {
    out += "null";
    return;
  }
  Told& so_far = told(choice);
  out += '[';
  for (const Held& held : so_far.held) {
    append_int(out, held.token.id);
    out += ',';
  }
  if (news.token != nullptr)
    append_int(out, news.token->id);
  else if (out.back() == ',')
    out.pop_back();
  so_far.held_raw += news.raw;
  for (const char* key : {"],\"raw_prediction\":", ",\"completion_tokens\":"}) {
    out += key;
    json::append_quoted(out, so_far.held_raw);
  }
}

void StreamWriter::append_finish(const Choice& choice, const TokenNews& news, std::string& out) const {
  if (!news.last) return;
  out += ",\"finish_reason\":\"";
  out += finish_name(choice);
  out += '"';
}

void StreamWriter::end(std::string& out) { out += "data: [DONE]\n\n"; }

void StreamWriter::fail(const Error& error, std::string& out) {
  Error shown = error;
  shown.message = "request[" + g_.id() + "] generate stream error: " + error.message;
  out += "data: ";
  out += error_json(shown);
  out += "\n\ndata: [DONE]\n\n";
}

}  // namespace tern::serve::openai
