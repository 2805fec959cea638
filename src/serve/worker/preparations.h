// Requests whose pictures are being prepared. They belong to no I/O thread and to no pool meanwhile: the media service
// works, and what is here waits for it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "content/media/media.h"
#include "serve/prepare/prepare.h"
#include "serve/worker/shared.h"

namespace tern::serve {

// What a request that only counts tokens answers.
using CountAnswer = http::Response (*)(const std::vector<int32_t>& ids, const prepare::PrepareInput& input);

// What is left of a job once its body is read.
struct Preparation {
  ReplyTo to;
  CountAnswer counted = nullptr;  // tokens are only counted: the answer then
  int key_index = 0;              // of the API key that asked
  prepare::PendingRequest pending;
  Ticket ticket;
  IdLease id;
  MemoryBudget::Lease memory;
  std::string logged;                            // beginning of the body, where requests are logged whole
  std::shared_ptr<std::atomic<bool>> cancelled;  // set by the connection when its client leaves
  int64_t deadline_ns = 0;
};

class Preparations : public std::enable_shared_from_this<Preparations> {
 public:
  explicit Preparations(Shared& shared) : shared_(shared) {}

  // Hands the media of the pending to the service; the rest follows on the CPU pool. Answers what is refused at once.
  void start(Preparation preparation);
  // Ends what is past its deadline, with status 408.
  void sweep(int64_t now_ns);
  // Ends the requests that the sweep names and notes them in it.
  void abort_matching(AbortSweep& sweep);
  // Nothing of this touches the server afterwards.
  void close();

 private:
  using Media = std::vector<content::PreparedMediaPtr>;
  void on_done(uint64_t key, Expected<Media> media);
  void hand_over(uint64_t key, Expected<Media> media);
  void answer(Preparation& preparation, const Error& error);

  Shared& shared_;
  mutable std::mutex mutex_;
  bool closed_ = false;
  uint64_t next_key_ = 1;
  std::unordered_map<uint64_t, Preparation> waiting_;
};

// The second half, on the CPU pool: the prompt's layout, then a Ready (or the answer of /tokenize).
void finish_preparation(Shared& shared, Preparation preparation, std::vector<content::PreparedMediaPtr> media);

}  // namespace tern::serve
