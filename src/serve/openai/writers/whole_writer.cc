#include "serve/openai/writers/whole_writer.h"

#include "json/json.h"
#include "serve/core/scored_text.h"
#include "serve/openai/writers/content.h"
#include "serve/openai/writers/make_writer.h"
#include "serve/openai/writers/metrics.h"

namespace tern::serve::openai {

WholeWriter::WholeWriter(const Generation& generation, std::string_view object)
    : g_(generation), ask_(generation.ask()), object_(object), kept_(generation.choices().size()) {}

void WholeWriter::keep(answer::Event& event, Kept& kept) {
  switch (event.kind) {
    case answer::EventKind::kContent:
      kept.text += event.text;
      break;
    case answer::EventKind::kReasoning:
      kept.reasoning += event.text;
      break;
    case answer::EventKind::kCallBegun:
      kept.calls.push_back({std::move(event.id), std::move(event.name), {}});
      break;
    case answer::EventKind::kArguments:
      kept.calls.back().arguments += event.text;
      break;
    case answer::EventKind::kCallEnded:
    case answer::EventKind::kFinish:
      break;
  }
}

void WholeWriter::take(const Choice& choice, TokenNews& news, std::string&) {
  Kept& kept = kept_[static_cast<size_t>(choice.index)];
  for (answer::Event& event : news.events) keep(event, kept);
  if (news.token != nullptr) {
    if (ask_.return_token_ids) kept.ids.push_back(news.token->id);
    if (g_.sampling_mask()) {
      kept.masks.push_back(news.token->kept);
      kept.mask_ids += news.token->kept.size();
    }
    if (ask_.logprobs) {
      if (news.spaceless) kept.spaceless = kept.tokens.size();
      kept.tokens.push_back(*news.token);
      kept.offsets.push_back(news.offset);
    }
  }
  if (ask_.return_token_ids) kept.raw_text += news.raw;
}

size_t WholeWriter::weight() const {
  size_t bytes = 0;
  for (const Kept& kept : kept_) {
    bytes += kept.text.size() + kept.reasoning.size() + (kept.ids.size() + kept.mask_ids) * 8;
    for (const WholeCall& call : kept.calls) bytes += call.arguments.size() + call.name.size() + 128;
  }
  return bytes;
}

void WholeWriter::append_ids_and_texts(const Choice& choice, const Kept& kept, std::string& out) const {
  if (!ask_.return_token_ids) {
    out += ",\"prompt_token_ids\":null,\"completion_token_ids\":null,\"prompt_tokens\":null,\"completion_tokens\":null";
    return;
  }
  out += ",\"prompt_token_ids\":";
  append_ids(out, g_.prompt(choice).ids);
  out += ",\"completion_token_ids\":";
  append_ids(out, kept.ids);
  for (const char* key : {",\"prompt_tokens\":", ",\"text_after_process\":"}) {
    out += key;
    json::append_quoted(out, g_.prompt(choice).text);
  }
  for (const char* key : {",\"completion_tokens\":", ",\"raw_prediction\":"}) {
    out += key;
    json::append_quoted(out, kept.raw_text);
  }
}

void WholeWriter::append_scores(const Choice& choice, std::string& out) const {
  out += ",\"draft_logprobs\":null,\"prompt_logprobs\":";
  if (ask_.prompt_logprobs)
    append_prompt_logprobs(out, names(), ask_.decode_logprob_tokens, choice.prompt_logprobs);
  else
    out += "null";
  if (ask_.collect_metrics) append_metrics(g_, choice, out);  // FastDeploy has them in chunks only
}

void WholeWriter::append_masks(const Kept& kept, std::string& out) const {
  if (!g_.sampling_mask()) return;
  out += ",\"sampling_mask\":";
  append_sampling_mask(out, kept.masks);
}

// Beside calls an empty text is none (fastdeploy.md 3.11).
void ChatWhole::append_message_text(const Kept& kept, std::string& out) const {
  if (!kept.calls.empty() && kept.text.empty()) {
    out += "\"content\":null,\"multimodal_content\":null";
    return;
  }
  if (g_.mm_output()) out += "\"content\":null,";
  append_content(kept.text, g_.mm_output(), out);
  if (!g_.mm_output()) out += ",\"multimodal_content\":null";
}

void ChatWhole::append_choice(size_t index, const Choice& choice, const Kept& kept, std::string& out) const {
  out += "{\"index\":";
  append_int(out, static_cast<int64_t>(index));
  out += ",\"message\":{\"role\":\"assistant\",";
  append_message_text(kept, out);
  out += ",\"reasoning_content\":";
  if (g_.parts_reasoning() && ask_.include_reasoning)
    json::append_quoted(out, kept.reasoning);
  else
    out += "null";
  out += ",\"audio_content\":null,\"tool_calls\":";
  append_calls(kept.calls, out);
  append_ids_and_texts(choice, kept, out);
  out += "},\"logprobs\":";
  if (ask_.logprobs) {
    out += "{\"content\":[";
    for (size_t i = 0; i < kept.tokens.size(); ++i) {
      if (i > 0) out += ',';
      append_chat_logprob(out, names(i == kept.spaceless), kept.tokens[i],
                          {.top = ask_.top_logprobs, .nulls = true, .decode = ask_.decode_logprob_tokens});
    }
    out += "],\"refusal\":null}";
  } else {
    out += "null";
  }
  append_scores(choice, out);
  append_masks(kept, out);
  out += ",\"finish_reason\":\"";
  out += finish_name(choice);
  out += "\",\"speculate_metrics\":null}";
}

void CompletionWhole::append_logprobs(const Choice& choice, const Kept& kept, std::string& out) const {
  if (!ask_.logprobs) {
    out += "null";
  } else if (!ask_.echo) {
    append_completion_logprobs(out, names(), kept.tokens, kept.offsets, ask_.top_logprobs);
  } else {
    ScoredText all = score_prompt(g_, choice);
    all.tokens.insert(all.tokens.end(), kept.tokens.begin(), kept.tokens.end());
    all.offsets.insert(all.offsets.end(), kept.offsets.begin(), kept.offsets.end());
    append_completion_logprobs(out, names(), all.tokens, all.offsets, ask_.top_logprobs);
  }
}

void CompletionWhole::append_choice(size_t index, const Choice& choice, const Kept& kept, std::string& out) const {
  out += "{\"index\":";
  append_int(out, static_cast<int64_t>(index));
  out += ",\"text\":";
  if (ask_.echo) {
    std::string text(g_.echoed_text(choice));
    json::append_quoted(out, text += kept.text);
  } else {
    json::append_quoted(out, kept.text);
  }
  append_ids_and_texts(choice, kept, out);
  out += ",\"arrival_time\":null,\"logprobs\":";
  append_logprobs(choice, kept, out);
  append_scores(choice, out);
  append_masks(kept, out);
  out += ",\"reasoning_content\":null,\"finish_reason\":\"";
  out += finish_name(choice);
  out += "\",\"tool_calls\":null,\"speculate_metrics\":null}";
}

std::string WholeWriter::body() const {
  std::string out = "{\"id\":";
  json::append_quoted(out, g_.id());
  out += ",\"object\":\"";
  out += object_;
  out += "\",\"created\":";
  append_int(out, g_.created());
  out += ",\"model\":";
  json::append_quoted(out, g_.model());
  out += ",\"choices\":[";
  const std::vector<size_t> shown = g_.shown();
  for (size_t i = 0; i < shown.size(); ++i) {
    if (i > 0) out += ',';
    append_choice(i, g_.choices()[shown[i]], kept_[shown[i]], out);
  }
  out += "],\"usage\":";
  append_usage(out, g_.usage());
  out += '}';
  return out;
}

}  // namespace tern::serve::openai
