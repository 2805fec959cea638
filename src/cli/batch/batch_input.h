// The input of `tern run-batch`: one request per line, as OpenAI's batch files and FastDeploy's run-batch have it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/hash.h"

namespace tern::cli {

struct BatchRequest {
  std::string custom_id;
  std::string url;      // a route of the server, such as /v1/chat/completions
  std::string body;     // JSON
  bool stream = false;  // the body asks for a stream, which a batch cannot take
};

// A file of lines {"custom_id":…, "method":"POST", "url":…, "body":{…}}. Only the places of the lines are kept in
// memory; empty lines are skipped.
class BatchInput {
 public:
  // Reads the file once and checks every line, so that a mistake in the last one costs no hours. Errors: kNotFound,
  // kIo, kInvalidArgument with the number of the line (also for an empty file), kTooLarge (a line over 256 MiB).
  static Expected<BatchInput> open(const std::string& path);
  ~BatchInput();
  BatchInput(BatchInput&& other) noexcept;
  BatchInput& operator=(BatchInput&&) = delete;

  size_t size() const { return lines_.size(); }
  // May be called from any thread. Errors: the file changed or cannot be read any more.
  Expected<BatchRequest> at(size_t index) const;
  // Of the file's bytes: results of another input are told by it.
  Hash128 fingerprint() const { return fingerprint_; }

 private:
  struct Line {
    uint64_t offset = 0;
    uint64_t size = 0;
  };
  BatchInput() = default;
  int file_ = -1;
  std::vector<Line> lines_;
  Hash128 fingerprint_;
};

}  // namespace tern::cli
