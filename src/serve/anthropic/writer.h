// Messages, whole and streamed: thoughts, texts and calls are content blocks.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "serve/core/block_writer.h"

namespace tern::serve::anthropic {

class MessageWriter final : public BlockWriter {
 public:
  explicit MessageWriter(const Generation& generation) : BlockWriter(generation) {}

  std::string body() const override;

 private:
  void begin(const Choice& choice, std::string& out) override;
  void opened(size_t index, std::string& out) override;
  void grew(size_t index, std::string_view piece, size_t first, std::string& out) override;
  void closed(size_t index, std::string& out) override;
  void complete(std::string& out) override;
  void failed(const Error& error, std::string& out) override;

  void append_block(const Block& block, std::string& out) const;
  void append_message(bool done, std::string& out) const;
  void append_stop(std::string& out) const;
  void append_usage(std::string& out) const;
};

std::unique_ptr<Writer> make_writer(const Generation& generation);

}  // namespace tern::serve::anthropic
