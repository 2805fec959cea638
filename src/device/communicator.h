// Ranks that run one model together, and what they exchange through. A collective is an op like others
// (ops/collective.h): given to a rank's stream, in the same order by all ranks, one at a time for each communicator; it
// reads and writes the addresses it was given, so that it can be captured. What takes a while or may fail to come
// about, such as finding the others, happens when a group is made, and has its deadline there; a collective has none.
#pragma once

#include <memory>

#include "base/error.h"

namespace tern::device {

class CpuExchange;

// A rank's place in its group, as ops take it. The default is a model on one rank, which has nothing to exchange.
struct Communicator {
  int rank = 0, ranks = 1;
  CpuExchange* cpu = nullptr;  // ranks of a CPU
  void* native = nullptr;      // of another device: its own
  bool alone() const { return ranks == 1; }
};

// Outlives the work of its ranks.
class CommunicatorGroup {
 public:
  virtual ~CommunicatorGroup() = default;
  virtual Communicator of(int rank) const = 0;
  // Any thread: a rank has failed and will not come. Who waits for it, or does from now on, gets an error.
  virtual void fail() = 0;
};

// Ranks that are threads of this process. `spin`: there is a core for each of them, so that a short wait is worth it.
std::unique_ptr<CommunicatorGroup> make_cpu_communicators(int ranks, bool spin);

}  // namespace tern::device
