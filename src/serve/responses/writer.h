// Responses, whole and streamed: thoughts, texts and calls are items; a stream is events that are numbered and ends
// with the response itself.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "serve/core/block_writer.h"

namespace tern::serve::responses {

class ResponseWriter final : public BlockWriter {
 public:
  explicit ResponseWriter(const Generation& generation);

  std::string body() const override;

 private:
  void begin(const Choice& choice, std::string& out) override;
  void opened(size_t index, std::string& out) override;
  void grew(size_t index, std::string_view piece, size_t first, std::string& out) override;
  void closed(size_t index, std::string& out) override;
  void complete(std::string& out) override;
  void failed(const Error& error, std::string& out) override;

  // `event: NAME` and the beginning of its object; end_event() closes both.
  void begin_event(std::string_view name, std::string& out);
  void begin_item_event(std::string_view name, size_t index, std::string& out);
  static void end_event(std::string& out) { out += "}\n\n"; }

  std::string item_id(size_t index) const;
  void append_item(size_t index, bool done, std::string& out) const;
  void append_part(size_t index, std::string& out) const;
  void append_logprobs(const Block& block, size_t first, std::string& out) const;
  void append_response(std::string_view status, const Error* error, std::string& out) const;
  std::string_view status() const;

  std::string shown_;  // what the response says again of its request
  int64_t number_ = 0;
};

std::unique_ptr<Writer> make_writer(const Generation& generation);

}  // namespace tern::serve::responses
