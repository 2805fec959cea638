// Messages of PaddleNLP's native protocol (paddlenlp-server.md 2.5, 2.6): one JSON object per line, or one whole
// answer. Over gRPC: a list of one object per line.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "serve/core/generation.h"

namespace tern::serve::native {

class NativeWriter final : public Writer {
 public:
  explicit NativeWriter(const Generation& generation);

  void take(const Choice& choice, TokenNews& news, std::string& out) override;
  void end(std::string&) override {}
  void fail(const Error& error, std::string& out) override;
  std::string body() const override;
  size_t weight() const override { return text_.size(); }
  std::string failure_body(const Error& error) const override;

 private:
  struct Message {
    std::span<const int32_t> ids;
    std::string_view text;
    bool last = false;
  };
  void append_message(const Choice& choice, const Message& message, std::string& out) const;
  void append_times(const Choice& choice, std::string& out) const;

  const Generation& g_;
  std::vector<int32_t> ids_;  // of the answer, without its end
  std::string text_;
  std::string head_;  // of every message: req_id
};

std::unique_ptr<Writer> make_writer(const Generation& generation);

}  // namespace tern::serve::native
