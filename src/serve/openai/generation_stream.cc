// Stream chunks (fastdeploy.md 3.5, 3.6): bytes around the text are made once per request, a token only appends.
#include "json/json.h"
#include "serve/openai/generation.h"
#include "serve/openai/json/error.h"

namespace tern::serve::openai {

void Generation::build_templates() {
  chunk_head_ = "data: {\"id\":";
  json::append_quoted(chunk_head_, id_);
  chunk_head_ +=
      ask_.chat ? ",\"object\":\"chat.completion.chunk\",\"created\":" : ",\"object\":\"text_completion\",\"created\":";
  append_int(chunk_head_, created_);
  chunk_head_ += ",\"model\":";
  json::append_quoted(chunk_head_, model_);
  chunk_head_ += ",\"choices\":[";
}

void Generation::append_content(std::string_view text, std::string& out) const {
  if (mm_output_) {
    out += "\"multimodal_content\":[{\"type\":\"text\",\"text\":";
    json::append_quoted(out, text);
    out += "}]";
  } else {
    out += "\"content\":";
    json::append_quoted(out, text);
  }
}

void Generation::append_chunk_end(const Choice& choice, std::string& out) const {
  out += ']';
  if (ask_.continuous_usage) {
    out += ",\"usage\":";
    append_usage(out, usage(choice));
  }
  if (ask_.collect_metrics) append_metrics(choice, out);
  out += "}\n\n";
}

// Prompts' log-probs, in the first entry of a choice only.
void Generation::append_stream_prompt_logprobs(Choice& choice, std::string& out) const {
  if (!ask_.prompt_logprobs || choice.scored) return;
  choice.scored = true;
  out += ",\"prompt_logprobs\":";
  append_prompt_logprobs(out, names(), ask_.decode_logprob_tokens, choice.prompt_logprobs);
  choice.prompt_logprobs = {};
}

void Generation::append_first_chunk(Choice& choice, std::string& out) {
  if (!ask_.chat && !ask_.return_token_ids) return;
  out += chunk_head_;
  out += "{\"index\":";
  append_int(out, choice.index);
  if (ask_.chat) {
    out += ",\"delta\":{\"role\":\"assistant\",";
    append_content("", out);
    out += ",\"reasoning_content\":\"\",\"tool_calls\":null";
  } else {
    out += ",\"text\":\"\"";
  }
  if (ask_.return_token_ids) {
    out += ",\"prompt_token_ids\":";
    append_ids(out, prompts_[static_cast<size_t>(choice.prompt)].ids);
    out += ",\"text_after_process\":";
    json::append_quoted(out, prompt_text(choice));
    out += ",\"prompt_tokens\":";
    json::append_quoted(out, prompt_text(choice));
    out += ",\"completion_token_ids\":null";
  } else {
    out += ",\"prompt_token_ids\":null,\"completion_token_ids\":null";
  }
  if (ask_.chat) out += '}';
  append_stream_prompt_logprobs(choice, out);
  out += '}';
  append_chunk_end(choice, out);
}

void Generation::append_token_ids(const engine::TokenOutput* token, std::string& out) const {
  if (!ask_.return_token_ids) {
    out += "null";
    return;
  }
  out += '[';
  if (token != nullptr) append_int(out, token->id);
  out += ']';
}

void Generation::append_entry(Choice& choice, const Piece& piece, std::string& out) {
  const bool direct = ask_.stream_group == 1;
  if (direct) out += chunk_head_;
  std::string& to = direct ? out : entries_;
  if (!direct && waiting_entries_ > 0) to += ',';
  if (ask_.chat)
    append_chat_entry(choice, piece, to);
  else
    append_completion_entry(choice, piece, to);
  if (direct) {
    append_chunk_end(choice, out);
  } else if (++waiting_entries_ >= ask_.stream_group || piece.last) {
    out += chunk_head_;
    out += entries_;
    append_chunk_end(choice, out);
    entries_.clear();
    waiting_entries_ = 0;
  }
  if (piece.last && !ask_.chat && ask_.include_usage) {  // once per choice, as the original
    out += chunk_head_;
    out += "],\"usage\":";
    append_usage(out, usage(choice));
    out += "}\n\n";
  }
}

void Generation::append_chat_entry(Choice& choice, const Piece& piece, std::string& out) {
  out += "{\"index\":";
  append_int(out, choice.index);
  out += ",\"delta\":{";
  append_content(piece.text, out);
  out += ",\"reasoning_content\":\"\",\"tool_calls\":null,\"prompt_token_ids\":null,\"completion_token_ids\":";
  append_token_ids(piece.token, out);
  if (ask_.return_token_ids) {
    out += ",\"raw_prediction\":";
    json::append_quoted(out, piece.raw);
    out += ",\"completion_tokens\":";
    json::append_quoted(out, piece.raw);
  }
  if (ask_.logprobs && piece.token != nullptr) {
    out += "},\"logprobs\":{\"content\":[";
    append_chat_logprob(out, names(piece.spaceless), *piece.token,
                        {.top = ask_.top_logprobs, .nulls = false, .decode = ask_.decode_logprob_tokens});
    out += "],\"refusal\":null}";
  } else {
    out += "},\"logprobs\":null";
  }
  if (piece.last) {
    out += ",\"finish_reason\":\"";
    out += finish_name(choice.reason);
    out += '"';
  }
  out += ",\"arrival_time\":";
  append_seconds(out, piece.arrival_ns);
  out += '}';
}

void Generation::append_completion_entry(Choice& choice, const Piece& piece, std::string& out) {
  out += "{\"index\":";
  append_int(out, choice.index);
  out += ",\"text\":";
  if (ask_.echo && !choice.echoed) {
    choice.echoed = true;
    std::string text(echoed_text(choice));
    json::append_quoted(out, text += piece.text);
  } else {
    json::append_quoted(out, piece.text);
  }
  out += ",\"prompt_token_ids\":null,\"completion_token_ids\":";
  append_token_ids(piece.token, out);
  if (ask_.return_token_ids) {
    out += ",\"raw_prediction\":";
    json::append_quoted(out, piece.raw);
    out += ",\"completion_tokens\":";
    json::append_quoted(out, piece.raw);
  }
  out += ",\"reasoning_content\":\"\",\"tool_calls\":null,\"arrival_time\":";
  append_seconds(out, piece.arrival_ns);
  if (ask_.logprobs && piece.token != nullptr) {
    out += ",\"logprobs\":";
    append_completion_logprobs(out, names(), {piece.token, 1}, {&piece.offset, 1}, ask_.top_logprobs);
  } else {
    out += ",\"logprobs\":null";
  }
  append_stream_prompt_logprobs(choice, out);
  if (piece.last) {
    out += ",\"finish_reason\":\"";
    out += finish_name(choice.reason);
    out += '"';
  }
  out += '}';
}

void Generation::append_stream_end(std::string& out) const {
  if (ask_.chat && ask_.include_usage) {
    out += chunk_head_;
    out += "],\"usage\":";
    append_usage(out, usage());
    out += "}\n\n";
  }
  out += "data: [DONE]\n\n";
}

void Generation::append_stream_error(const Error& error, std::string& out) const {
  Error shown = error;
  shown.message = "request[" + id_ + "] generate stream error: " + error.message;
  out += "data: ";
  out += error_json(shown);
  out += "\n\ndata: [DONE]\n\n";
}

}  // namespace tern::serve::openai
