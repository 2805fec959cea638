#include "serve/anthropic/writer.h"

#include "json/json.h"
#include "serve/anthropic/protocol.h"
#include "serve/openai/json/writers.h"

namespace tern::serve::anthropic {
namespace {

using openai::append_int;

void begin_event(std::string_view name, std::string& out) {
  out += "event: ";
  out += name;
  out += "\ndata: {\"type\":\"";
  out += name;
  out += '"';
}

void begin_block_event(std::string_view name, size_t index, std::string& out) {
  begin_event(name, out);
  out += ",\"index\":";
  append_int(out, static_cast<int64_t>(index));
}

// Arguments that are no object, of a call that a limit cut, are shown under a key of their own.
void append_input(std::string_view arguments, std::string& out) {
  const auto value = json::parse(arguments);
  if (value.ok() && value->is_object()) {
    out += arguments;
    return;
  }
  out += "{";
  if (!arguments.empty()) {
    out += "\"arguments\":";
    json::append_quoted(out, arguments);
  }
  out += '}';
}

}  // namespace

void MessageWriter::append_block(const Block& block, std::string& out) const {
  switch (block.kind) {
    case Block::Kind::kReasoning:
      out += "{\"type\":\"thinking\",\"thinking\":";
      json::append_quoted(out, block.text);
      out += ",\"signature\":\"\"}";
      return;
    case Block::Kind::kText:
      out += "{\"type\":\"text\",\"text\":";
      json::append_quoted(out, block.text);
      out += '}';
      return;
    case Block::Kind::kCall:
      break;
  }
  out += "{\"type\":\"tool_use\",\"id\":";
  json::append_quoted(out, block.id);
  out += ",\"name\":";
  json::append_quoted(out, block.name);
  out += ",\"input\":";
  append_input(block.text, out);
  out += '}';
}

// An aborted message is a turn that may go on: its client can send back what there is.
void MessageWriter::append_stop(std::string& out) const {
  const Choice& choice = this->choice();
  const bool by_text = choice.reason == engine::FinishReason::kStop && choice.stop_string >= 0;
  out += "\"stop_reason\":\"";
  if (choice.reason == engine::FinishReason::kLength)
    out += "max_tokens";
  else if (choice.reason == engine::FinishReason::kAbort)
    out += "pause_turn";
  else
    out += choice.called ? "tool_use" : by_text ? "stop_sequence" : "end_turn";
  out += "\",\"stop_sequence\":";
  if (by_text && !choice.called)
    json::append_quoted(out, ask_.stop[static_cast<size_t>(choice.stop_string)]);
  else
    out += "null";
}

void MessageWriter::append_usage(std::string& out) const {
  const UsageCounts usage = g_.usage();
  out += "{\"input_tokens\":";
  append_int(out, usage.prompt - usage.cached);
  out += ",\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":";
  append_int(out, usage.cached);
  out += ",\"output_tokens\":";
  append_int(out, usage.completion);
  out += '}';
}

void MessageWriter::append_message(bool done, std::string& out) const {
  out += "{\"id\":";
  json::append_quoted(out, g_.id());
  out += ",\"type\":\"message\",\"role\":\"assistant\",\"model\":";
  json::append_quoted(out, g_.model());
  out += ",\"content\":[";
  for (size_t i = 0; done && i < blocks().size(); ++i) {
    if (i > 0) out += ',';
    append_block(blocks()[i], out);
  }
  out += "],";
  if (done)
    append_stop(out);
  else
    out += "\"stop_reason\":null,\"stop_sequence\":null";
  out += ",\"usage\":";
  append_usage(out);
  out += '}';
}

std::string MessageWriter::body() const {
  std::string out;
  append_message(true, out);
  return out;
}

void MessageWriter::begin(const Choice&, std::string& out) {
  begin_event("message_start", out);
  out += ",\"message\":";
  append_message(false, out);
  out += "}\n\n";
}

void MessageWriter::opened(size_t index, std::string& out) {
  begin_block_event("content_block_start", index, out);
  out += ",\"content_block\":";
  append_block(blocks()[index], out);
  out += "}\n\n";
}

void MessageWriter::grew(size_t index, std::string_view piece, size_t, std::string& out) {
  begin_block_event("content_block_delta", index, out);
  const Block::Kind kind = blocks()[index].kind;
  out += kind == Block::Kind::kText        ? ",\"delta\":{\"type\":\"text_delta\",\"text\":"
         : kind == Block::Kind::kReasoning ? ",\"delta\":{\"type\":\"thinking_delta\",\"thinking\":"
                                           : ",\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":";
  json::append_quoted(out, piece);
  out += "}}\n\n";
}

void MessageWriter::closed(size_t index, std::string& out) {
  begin_block_event("content_block_stop", index, out);
  out += "}\n\n";
}

void MessageWriter::complete(std::string& out) {
  begin_event("message_delta", out);
  out += ",\"delta\":{";
  append_stop(out);
  out += "},\"usage\":";
  append_usage(out);
  out += "}\n\n";
  begin_event("message_stop", out);
  out += "}\n\n";
}

void MessageWriter::failed(const Error& error, std::string& out) {
  out += "event: error\ndata: ";
  out += error_body(500, error.message);
  out += "\n\n";
}

std::unique_ptr<Writer> make_writer(const Generation& generation) {
  return std::make_unique<MessageWriter>(generation);
}

}  // namespace tern::serve::anthropic
