// Whole answers (fastdeploy.md 3.4, 3.6): nulls are present, not left out.
#include "json/json.h"
#include "serve/openai/generation.h"

namespace tern::serve::openai {

void Generation::append_chat_choice(const Choice& choice, std::string& out) const {
  out += "{\"index\":";
  append_int(out, choice.index);
  out += ",\"message\":{\"role\":\"assistant\",";
  if (mm_output_) {
    out += "\"content\":null,";
    append_content(choice.text, out);
  } else {
    append_content(choice.text, out);
    out += ",\"multimodal_content\":null";
  }
  out += ",\"reasoning_content\":null,\"audio_content\":null,\"tool_calls\":null";
  if (ask_.return_token_ids) {
    out += ",\"prompt_token_ids\":";
    append_ids(out, prompts_[static_cast<size_t>(choice.prompt)].ids);
    out += ",\"completion_token_ids\":";
    append_ids(out, choice.ids);
    for (const char* key : {",\"prompt_tokens\":", ",\"text_after_process\":"}) {
      out += key;
      json::append_quoted(out, prompt_text(choice));
    }
    for (const char* key : {",\"completion_tokens\":", ",\"raw_prediction\":"}) {
      out += key;
      json::append_quoted(out, choice.raw_text);
    }
  } else {
    out += ",\"prompt_token_ids\":null,\"completion_token_ids\":null,\"prompt_tokens\":null,\"completion_tokens\":null";
  }
  out += "},\"logprobs\":";
  if (ask_.logprobs) {
    out += "{\"content\":[";
    for (size_t i = 0; i < choice.tokens.size(); ++i) {
      if (i > 0) out += ',';
      append_chat_logprob(out, names(i == choice.spaceless), choice.tokens[i],
                          {.top = ask_.top_logprobs, .nulls = true, .decode = ask_.decode_logprob_tokens});
    }
    out += "],\"refusal\":null}";
  } else {
    out += "null";
  }
  out += ",\"draft_logprobs\":null,\"prompt_logprobs\":";
  if (ask_.prompt_logprobs)
    append_prompt_logprobs(out, names(), ask_.decode_logprob_tokens, choice.prompt_logprobs);
  else
    out += "null";
  out += ",\"finish_reason\":\"";
  out += finish_name(choice.reason);
  out += "\",\"speculate_metrics\":null}";
}

void Generation::append_completion_choice(const Choice& choice, std::string& out) const {
  out += "{\"index\":";
  append_int(out, choice.index);
  out += ",\"text\":";
  if (ask_.echo) {
    std::string text(echoed_text(choice));
    json::append_quoted(out, text += choice.text);
  } else {
    json::append_quoted(out, choice.text);
  }
  if (ask_.return_token_ids) {
    out += ",\"prompt_token_ids\":";
    append_ids(out, prompts_[static_cast<size_t>(choice.prompt)].ids);
    out += ",\"completion_token_ids\":";
    append_ids(out, choice.ids);
    for (const char* key : {",\"prompt_tokens\":", ",\"text_after_process\":"}) {
      out += key;
      json::append_quoted(out, prompt_text(choice));
    }
    for (const char* key : {",\"completion_tokens\":", ",\"raw_prediction\":"}) {
      out += key;
      json::append_quoted(out, choice.raw_text);
    }
  } else {
    out += ",\"prompt_token_ids\":null,\"completion_token_ids\":null,\"prompt_tokens\":null,\"completion_tokens\":null";
  }
  out += ",\"arrival_time\":null,\"logprobs\":";
  if (ask_.logprobs)
    append_completion_logprobs(out, names(), choice.tokens, choice.offsets, ask_.top_logprobs);
  else
    out += "null";
  out += ",\"draft_logprobs\":null,\"prompt_logprobs\":";
  if (ask_.prompt_logprobs)
    append_prompt_logprobs(out, names(), ask_.decode_logprob_tokens, choice.prompt_logprobs);
  else
    out += "null";
  out += ",\"reasoning_content\":null,\"finish_reason\":\"";
  out += finish_name(choice.reason);
  out += "\",\"tool_calls\":null,\"speculate_metrics\":null}";
}

std::string Generation::body() const {
  std::string out = "{\"id\":";
  json::append_quoted(out, id_);
  out += ask_.chat ? ",\"object\":\"chat.completion\",\"created\":" : ",\"object\":\"text_completion\",\"created\":";
  append_int(out, created_);
  out += ",\"model\":";
  json::append_quoted(out, model_);
  out += ",\"choices\":[";
  for (size_t i = 0; i < choices_.size(); ++i) {
    if (i > 0) out += ',';
    if (ask_.chat)
      append_chat_choice(choices_[i], out);
    else
      append_completion_choice(choices_[i], out);
  }
  out += "],\"usage\":";
  append_usage(out, usage());
  out += '}';
  return out;
}

}  // namespace tern::serve::openai
