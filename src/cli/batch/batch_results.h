// The output of `tern run-batch`: answers are kept as they come, and stand in the order of the input at the end.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/hash.h"

namespace tern::cli {

// A line of the output, as FastDeploy's run-batch writes it. `body`: the server's answer, JSON. With status 200 it is
// the response's body, else the error.
std::string batch_output_line(std::string_view custom_id, std::string_view id, int status, std::string_view body);

// Answers so far lie in OUTPUT.part, a line each as one write. A run that was cut goes on from there.
class BatchResults {
 public:
  // `of`: fingerprint of the input, `count` its requests. A torn last line of an earlier run is dropped; its answers
  // with a status of 500 and above are asked for again. Errors: kIo; kInvalidArgument when OUTPUT.part belongs to
  // another input.
  static Expected<BatchResults> open(const std::string& output, const Hash128& of, size_t count);
  ~BatchResults();
  BatchResults(BatchResults&& other) noexcept;
  BatchResults& operator=(BatchResults&&) = delete;

  bool done(size_t index) const { return places_[index].size != 0; }
  size_t earlier() const { return earlier_; }  // answers that an earlier run left
  // Keeps the answer of one request; any thread, once per index. Errors: kIo (a full disk).
  Status put(size_t index, int status, std::string_view line);
  // Writes OUTPUT in the order of the input, in place of what was there, and removes OUTPUT.part. All are done.
  Status finish();
  const std::string& part() const { return part_; }

 private:
  struct Place {
    uint64_t offset = 0;  // of the answer's line in the file
    uint64_t size = 0;    // without the line's end; 0: not there
  };
  BatchResults() = default;
  Status read_earlier(const std::string& header);
  void take_line(std::string_view line, uint64_t offset);

  std::string output_, part_;
  int file_ = -1;
  uint64_t end_ = 0;
  size_t earlier_ = 0;
  std::vector<Place> places_;
  std::mutex mutex_;
};

}  // namespace tern::cli
