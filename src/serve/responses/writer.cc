#include "serve/responses/writer.h"

#include "json/json.h"
#include "serve/openai/json/writers.h"

namespace tern::serve::responses {

using openai::append_int;

ResponseWriter::ResponseWriter(const Generation& generation) : BlockWriter(generation) {
  shown_ = json::dump(ask_.shown);
  shown_.front() = ',';
  shown_.pop_back();
}

void ResponseWriter::begin_event(std::string_view name, std::string& out) {
  out += "event: ";
  out += name;
  out += "\ndata: {\"type\":\"";
  out += name;
  out += "\",\"sequence_number\":";
  append_int(out, number_++);
}

void ResponseWriter::begin_item_event(std::string_view name, size_t index, std::string& out) {
  begin_event(name, out);
  out += ",\"output_index\":";
  append_int(out, static_cast<int64_t>(index));
  if (name.starts_with("response.output_item.")) return;
  out += ",\"item_id\":";
  json::append_quoted(out, item_id(index));
  if (blocks()[index].kind != Block::Kind::kCall) out += ",\"content_index\":0";
}

std::string ResponseWriter::item_id(size_t index) const {
  std::string id = blocks()[index].kind == Block::Kind::kReasoning ? "rs_"
                   : blocks()[index].kind == Block::Kind::kText    ? "msg_"
                                                                   : "fc_";
  id += std::string_view(g_.id()).substr(ask_.id_prefix.size());
  id += '_';
  append_int(id, static_cast<int64_t>(index));
  return id;
}

void ResponseWriter::append_logprobs(const Block& block, size_t first, std::string& out) const {
  out += '[';
  for (size_t i = first; i < block.tokens.size(); ++i) {
    if (i > first) out += ',';
    openai::append_chat_logprob(out, {g_.tokenizer(), false, false}, block.tokens[i], {.top = ask_.top_logprobs});
  }
  out += ']';
}

void ResponseWriter::append_part(size_t index, std::string& out) const {
  const Block& block = blocks()[index];
  const bool text = block.kind == Block::Kind::kText;
  out += text ? "{\"type\":\"output_text\",\"text\":" : "{\"type\":\"reasoning_text\",\"text\":";
  json::append_quoted(out, block.text);
  if (text) {
    out += ",\"annotations\":[],\"logprobs\":";
    append_logprobs(block, 0, out);
  }
  out += '}';
}

void ResponseWriter::append_item(size_t index, bool done, std::string& out) const {
  const Block& block = blocks()[index];
  out += "{\"id\":";
  json::append_quoted(out, item_id(index));
  out += ",\"status\":\"";
  out += !done ? "in_progress" : block.whole ? "completed" : "incomplete";
  out += '"';
  if (block.kind == Block::Kind::kCall) {
    out += ",\"type\":\"function_call\",\"call_id\":";
    json::append_quoted(out, block.id);
    out += ",\"name\":";
    json::append_quoted(out, block.name);
    out += ",\"arguments\":";
    json::append_quoted(out, block.text);
    out += '}';
    return;
  }
  out += block.kind == Block::Kind::kText ? ",\"type\":\"message\",\"role\":\"assistant\",\"content\":["
                                          : ",\"type\":\"reasoning\",\"summary\":[],\"content\":[";
  if (done) append_part(index, out);
  out += "]}";
}

std::string_view ResponseWriter::status() const {
  if (choice().reason == engine::FinishReason::kLength) return "incomplete";
  return choice().reason == engine::FinishReason::kStop ? "completed" : "failed";
}

// Without a status of its own end, the response is in progress: nothing is said of its output.
void ResponseWriter::append_response(std::string_view status, const Error* error, std::string& out) const {
  const bool done = status != "in_progress";
  out += "{\"id\":";
  json::append_quoted(out, g_.id());
  out += ",\"object\":\"response\",\"created_at\":";
  append_int(out, g_.created());
  out += ",\"status\":\"";
  out += status;
  out += "\",\"model\":";
  json::append_quoted(out, g_.model());
  out += ",\"background\":false,\"error\":";
  if (status == "failed") {
    out += "{\"code\":\"server_error\",\"message\":";
    json::append_quoted(out, error != nullptr ? std::string_view(error->message) : "the request was aborted");
    out += '}';
  } else {
    out += "null";
  }
  out += ",\"incomplete_details\":";
  out += status == "incomplete" ? "{\"reason\":\"max_output_tokens\"}" : "null";
  out += ",\"previous_response_id\":null,\"service_tier\":\"default\",\"store\":false,\"truncation\":\"disabled\"";
  out += shown_;
  out += ",\"output\":[";
  for (size_t i = 0; done && i < blocks().size(); ++i) {
    if (i > 0) out += ',';
    append_item(i, true, out);
  }
  out += "],\"usage\":";
  if (!done) {
    out += "null}";
    return;
  }
  const UsageCounts usage = g_.usage();
  out += "{\"input_tokens\":";
  append_int(out, usage.prompt);
  out += ",\"input_tokens_details\":{\"cached_tokens\":";
  append_int(out, usage.cached);
  out += ",\"cache_write_tokens\":0},\"output_tokens\":";
  append_int(out, usage.completion);
  out += ",\"output_tokens_details\":{\"reasoning_tokens\":";
  append_int(out, usage.reasoning);
  out += "},\"total_tokens\":";
  append_int(out, usage.prompt + usage.completion);
  out += "}}";
}

std::string ResponseWriter::body() const {
  std::string out;
  append_response(status(), nullptr, out);
  return out;
}

void ResponseWriter::begin(const Choice&, std::string& out) {
  for (const std::string_view name : {"response.created", "response.in_progress"}) {
    begin_event(name, out);
    out += ",\"response\":";
    append_response("in_progress", nullptr, out);
    end_event(out);
  }
}

void ResponseWriter::opened(size_t index, std::string& out) {
  begin_item_event("response.output_item.added", index, out);
  out += ",\"item\":";
  append_item(index, false, out);
  end_event(out);
  if (blocks()[index].kind == Block::Kind::kCall) return;
  begin_item_event("response.content_part.added", index, out);
  out += ",\"part\":";
  append_part(index, out);
  end_event(out);
}

void ResponseWriter::grew(size_t index, std::string_view piece, size_t first, std::string& out) {
  const Block& block = blocks()[index];
  const bool text = block.kind == Block::Kind::kText;
  begin_item_event(text                                    ? "response.output_text.delta"
                   : block.kind == Block::Kind::kReasoning ? "response.reasoning_text.delta"
                                                           : "response.function_call_arguments.delta",
                   index, out);
  out += ",\"delta\":";
  json::append_quoted(out, piece);
  if (text) {
    out += ",\"logprobs\":";
    append_logprobs(block, first, out);
  }
  end_event(out);
}

void ResponseWriter::closed(size_t index, std::string& out) {
  const Block& block = blocks()[index];
  if (block.kind == Block::Kind::kCall) {
    begin_item_event("response.function_call_arguments.done", index, out);
    out += ",\"name\":";
    json::append_quoted(out, block.name);
    out += ",\"arguments\":";
    json::append_quoted(out, block.text);
    end_event(out);
  } else {
    const bool text = block.kind == Block::Kind::kText;
    begin_item_event(text ? "response.output_text.done" : "response.reasoning_text.done", index, out);
    out += ",\"text\":";
    json::append_quoted(out, block.text);
    if (text) {
      out += ",\"logprobs\":";
      append_logprobs(block, 0, out);
    }
    end_event(out);
    begin_item_event("response.content_part.done", index, out);
    out += ",\"part\":";
    append_part(index, out);
    end_event(out);
  }
  begin_item_event("response.output_item.done", index, out);
  out += ",\"item\":";
  append_item(index, true, out);
  end_event(out);
}

void ResponseWriter::complete(std::string& out) {
  begin_event("response." + std::string(status()), out);
  out += ",\"response\":";
  append_response(status(), nullptr, out);
  end_event(out);
}

void ResponseWriter::failed(const Error& error, std::string& out) {
  begin_event("response.failed", out);
  out += ",\"response\":";
  append_response("failed", &error, out);
  end_event(out);
}

std::unique_ptr<Writer> make_writer(const Generation& generation) {
  return std::make_unique<ResponseWriter>(generation);
}

}  // namespace tern::serve::responses
