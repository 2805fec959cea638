// Sends the requests of a batch to a server, many at a time.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/hash.h"
#include "cli/batch/batch_input.h"
#include "cli/batch/batch_results.h"
#include "client/http_client.h"

namespace tern::cli {

class BatchRun {
 public:
  // `url`: the server, without a path; `key`: what it asks for.
  BatchRun(const BatchInput& input, BatchResults& results, client::Url url, std::string key);

  // Answers what is not done yet with `in_flight` requests at a time, and says on stderr how far it is. Errors: no
  // answer from the server, the input or the results cannot be read or written; what came before is kept.
  Status run(int in_flight);
  size_t refused() const { return refused_; }  // answers that are no success

 private:
  void work();
  Status one(size_t index);
  void report_progress();

  const BatchInput& input_;
  BatchResults& results_;
  const client::Url url_;
  const std::string key_;
  const HashKey random_ = random_hash_key();
  std::atomic<size_t> next_{0}, done_, refused_{0};
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
  int working_ = 0;               // threads
  std::optional<Error> failure_;  // the first
};

}  // namespace tern::cli
