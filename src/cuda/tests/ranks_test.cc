// Collectives over several GPUs: random lists of them against sums made here, in the order of ranks, bit by bit; as
// graphs that are replayed; and, emulated, that a wait left out is found. Ranks are threads, emulated ones processes
// that share memory.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <span>
#include <thread>

#include "cuda/tests/harness.h"
#include "ops/collective.h"
#include "ops/norm.h"

namespace tern::cuda_test {
namespace {

using device::Communicator;
using Floats = std::vector<float>;

bool emulated(const Context& c) { return c.device->info().name.starts_with("emulated"); }

class Ranks {
 public:
  Ranks(Context& c, int n) : c_(c), emulated_(emulated(c)) {
    device::CudaOptions options;
    options.cublaslt = false;
    for (int r = 0; r < n; ++r) {
      options.ordinal = emulated_ ? 2 + r : r;
      auto made = c.cuda->make_device(options);
      if (!made.ok()) {
        c.report(false, "ranks", made.error().message);
        return;
      }
      devices_.push_back(std::move(made).value());
    }
    std::vector<device::Device*> all;
    for (const auto& d : devices_) all.push_back(d.get());
    auto group = c.cuda->make_communicators(all);
    if (!group.ok()) {
      c.report(false, "ranks", group.error().message);
      return;
    }
    group_ = std::move(group).value();
  }
  bool ready() const { return group_ != nullptr; }
  int count() const { return static_cast<int>(devices_.size()); }
  device::Device& device(int r) { return *devices_[static_cast<size_t>(r)]; }
  Communicator of(int r) const { return group_->of(r); }

  // All ranks at once; true when all came to their end without an error. `leave_out`: emulated, every so many waits.
  template <class F>
  bool run(const F& work, int leave_out = 0) {
    return emulated_ ? run_processes(work, leave_out) : run_threads(work);
  }

 private:
  template <class F>
  Status one(const F& work, int r) {
    device::Device& d = device(r);
    TERN_RETURN_IF_ERROR(d.bind_thread());
    TERN_RETURN_IF_ERROR(work(r, d, of(r)));
    return d.synchronize(d.stream());
  }
  template <class F>
  bool run_threads(const F& work) {
    std::vector<Status> statuses(devices_.size());
    std::vector<std::thread> threads;
    for (int r = 0; r < count(); ++r) {
      threads.emplace_back([&, r] {
        statuses[static_cast<size_t>(r)] = one(work, r);
        if (!statuses[static_cast<size_t>(r)].ok()) group_->fail();
      });
    }
    for (std::thread& t : threads) t.join();
    for (const Status& s : statuses) {
      if (!s.ok()) c_.report(false, "ranks", s.error().message);
    }
    return std::all_of(statuses.begin(), statuses.end(), [](const Status& s) { return s.ok(); });
  }
  template <class F>
  bool run_processes(const F& work, int leave_out) {
    std::fflush(stdout);
    std::vector<pid_t> children;
    for (int r = 0; r < count(); ++r) {
      const pid_t child = ::fork();
      if (child == 0) {
        if (leave_out > 0) ::setenv("TERN_EMULATE_LEAVE_OUT", std::to_string(leave_out).c_str(), 1);
        ::_exit(one(work, r).ok() ? 0 : 1);
      }
      children.push_back(child);
    }
    bool ok = true;
    const auto begin = std::chrono::steady_clock::now();
    for (const pid_t child : children) {
      int status = 0;
      while (::waitpid(child, &status, WNOHANG) == 0) {
        // Whoever waits for what never comes is let go; that it waited is an error.
        if (std::chrono::steady_clock::now() - begin > std::chrono::seconds(leave_out > 0 ? 2 : 120)) {
          group_->fail(), ok = false;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      ok = ok && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    }
    return ok;
  }

  Context& c_;
  const bool emulated_;
  std::vector<std::unique_ptr<device::Device>> devices_;
  std::unique_ptr<device::CommunicatorGroup> group_;
};

enum class Kind { kSum, kSumNorm, kDeal, kGather };

// One collective: what each rank brings and what it should have then.
struct Call {
  Kind kind = Kind::kSum;
  int64_t rows = 1, width = 1;
  std::vector<Floats> in, want;  // by rank
  Floats residual, weight, sum;  // of a norm; sum: residual afterwards
  std::vector<int32_t> owner;
};

Floats random_floats(std::mt19937& random, int64_t n) {
  std::normal_distribution<float> normal;
  Floats v(static_cast<size_t>(n));
  for (float& x : v) x = normal(random) * std::exp(2.0f * normal(random));
  return v;
}

int64_t part_of(int64_t all, int rank, int ranks) { return (all + ranks - 1) / ranks * rank; }
int64_t columns(const Call& call, int rank, int ranks) {
  return std::min(call.width, part_of(call.width, rank + 1, ranks)) -
         std::min(call.width, part_of(call.width, rank, ranks));
}

Floats sum_of(const std::vector<Floats>& in) {
  Floats sum = in[0];
  for (size_t r = 1; r < in.size(); ++r) {
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += in[r][i];
  }
  return sum;
}

void want_norm(Call& call) {
  const Floats sum = sum_of(call.in);
  call.sum = call.residual;
  Floats out(sum.size());
  for (int64_t t = 0; t < call.rows; ++t) {
    const auto at = static_cast<size_t>(t * call.width);
    double squares = 0;
    for (size_t i = 0; i < static_cast<size_t>(call.width); ++i) {
      call.sum[at + i] += sum[at + i];
      squares += static_cast<double>(call.sum[at + i]) * static_cast<double>(call.sum[at + i]);
    }
    const double scale = 1.0 / std::sqrt(squares / static_cast<double>(call.width) + 1e-6);
    for (size_t i = 0; i < static_cast<size_t>(call.width); ++i) {
      out[at + i] = static_cast<float>(static_cast<double>(call.sum[at + i]) * scale) * call.weight[i];
    }
  }
  call.want.assign(call.in.size(), out);
}

Call draw(std::mt19937& random, int ranks, Kind kind, bool small) {
  const auto pick = [&](std::vector<int64_t> of) { return of[random() % of.size()]; };
  Call call;
  call.kind = kind;
  call.rows = kind == Kind::kSumNorm ? pick({1, 2, 3, 5}) : pick({1, 2, 3, 7});
  call.width = kind == Kind::kSumNorm ? pick({64, 512, 1000}) : pick({8, 63, 512, 1021});
  if (kind == Kind::kSum && random() % 3 == 0) call.rows = small ? 9 : 700, call.width = small ? 1023 : 4099;
  if (kind == Kind::kGather) call.rows = pick({1, 2, 7, 100}), call.width = 1;
  for (int64_t l = 0; l < call.rows; ++l)
    call.owner.push_back(static_cast<int32_t>(random() % static_cast<unsigned>(ranks)));
  for (int r = 0; r < ranks; ++r) {
    call.in.push_back(random_floats(random, call.rows * (kind == Kind::kDeal ? columns(call, r, ranks) : call.width)));
  }
  if (kind == Kind::kSum) call.want.assign(static_cast<size_t>(ranks), sum_of(call.in));
  if (kind == Kind::kSumNorm) {
    call.residual = random_floats(random, call.rows * call.width), call.weight = random_floats(random, call.width);
    want_norm(call);
  }
  if (kind == Kind::kGather) {
    Floats all;
    for (size_t l = 0; l < call.owner.size(); ++l) all.push_back(call.in[static_cast<size_t>(call.owner[l])][l]);
    call.want.assign(static_cast<size_t>(ranks), all);
  }
  for (int r = 0; kind == Kind::kDeal && r < ranks; ++r) {
    Floats out(static_cast<size_t>(call.rows * call.width), -1.0f);
    for (int64_t l = 0; l < call.rows; ++l) {
      if (call.owner[static_cast<size_t>(l)] != r) continue;
      for (int from = 0; from < ranks; ++from) {
        const int64_t n = columns(call, from, ranks);
        std::copy_n(call.in[static_cast<size_t>(from)].begin() + l * n, n,
                    out.begin() + l * call.width + std::min(call.width, part_of(call.width, from, ranks)));
      }
    }
    call.want.push_back(std::move(out));
  }
  return call;
}

// A rank's memory for a call: what it starts from, on the host, and where ops work.
struct Memory {
  device::Buffer host, memory, results;
  size_t in = 0, out = 0, residual = 0, weight = 0, owner = 0, bytes = 0;  // offsets
  char* at(size_t offset) const { return memory.data() + offset; }
};

bool make_memory(const Call& call, int rank, device::Device& device, Memory& m) {
  const auto place = [&](size_t n) { return std::exchange(m.bytes, m.bytes + (n * sizeof(float) + 255) / 256 * 256); };
  const auto r = static_cast<size_t>(rank);
  m.in = place(call.in[r].size()), m.out = place(call.want[r].size());
  m.residual = place(call.residual.size()), m.weight = place(call.weight.size()), m.owner = place(call.owner.size());
  auto host = device.allocate_host(m.bytes), memory = device.allocate(m.bytes), results = device.allocate_host(m.bytes);
  if (!host.ok() || !memory.ok() || !results.ok()) return false;
  m.host = std::move(host).value(), m.memory = std::move(memory).value(), m.results = std::move(results).value();
  const auto put = [&](size_t offset, const auto& v) {
    std::memcpy(m.host.data() + offset, v.data(), v.size() * sizeof(v[0]));
  };
  put(m.in, call.in[r]), put(m.residual, call.residual), put(m.weight, call.weight), put(m.owner, call.owner);
  if (call.kind == Kind::kDeal) put(m.out, Floats(call.want[r].size(), -1.0f));
  return true;
}

Status give(const Call& call, const Memory& m, device::Device& device, const Communicator& c) {
  const device::Stream s = device.stream();
  const device::CopySpan all{m.memory.data(), m.host.data(), m.bytes, 1, 0, 0};
  TERN_RETURN_IF_ERROR(device.copy_many({&all, 1}, s));
  const auto* owner = reinterpret_cast<const int32_t*>(m.at(m.owner));
  const TensorView x = tensor2(m.at(m.in), DType::kF32, call.rows, call.width);
  switch (call.kind) {
    case Kind::kSum:
      return ops::all_reduce({c, x}, s);
    case Kind::kSumNorm: {
      ops::RmsNormParams norm;
      norm.x = x, norm.out = tensor2(m.at(m.out), DType::kF32, call.rows, call.width);
      norm.residual = tensor2(m.at(m.residual), DType::kF32, call.rows, call.width);
      norm.weight = tensor1(m.at(m.weight), DType::kF32, call.width), norm.eps = 1e-6f;
      return ops::all_reduce_norm({{c, x}, norm}, s);
    }
    case Kind::kDeal:
      return ops::all_to_all({c, tensor2(m.at(m.in), DType::kF32, call.rows, columns(call, c.rank, c.ranks)),
                              std::min(call.width, part_of(call.width, c.rank, c.ranks)), owner,
                              tensor2(m.at(m.out), DType::kF32, call.rows, call.width)},
                             s);
    case Kind::kGather:
      return ops::all_gather({c, owner, tensor1(m.at(m.in), DType::kF32, call.rows)}, s);
  }
  return {};
}

bool near(const float* got, const Floats& want, float tolerance) {
  float top = 0;
  for (const float v : want) top = std::max(top, std::abs(v));
  for (size_t i = 0; i < want.size(); ++i) {
    if (!(std::abs(got[i] - want[i]) <= tolerance * top)) return false;
  }
  return true;
}

bool right(const Call& call, int rank, const Memory& m) {
  const auto at = [&](size_t offset) { return reinterpret_cast<const float*>(m.results.data() + offset); };
  const Floats& want = call.want[static_cast<size_t>(rank)];
  const bool in_place = call.kind == Kind::kSum || call.kind == Kind::kGather;
  if (call.kind != Kind::kSumNorm) {
    return std::memcmp(at(in_place ? m.in : m.out), want.data(), want.size() * sizeof(float)) == 0;
  }
  return std::memcmp(at(m.residual), call.sum.data(), call.sum.size() * sizeof(float)) == 0 &&
         near(at(m.out), want, 2e-5f);
}

// Random collectives in one order on all ranks, `turns` times; with graphs, captured once and replayed. How many
// results were wrong on any rank, or -1 when ranks did not end.
int wrong(Context& c, Ranks& ranks, uint32_t seed, int turns, bool graph, int leave_out = 0) {
  std::mt19937 random(seed);
  std::vector<Call> calls;
  const bool small = emulated(c);
  for (int i = 0; i < (small ? 6 : 24); ++i) {
    calls.push_back(draw(random, ranks.count(), i < 4 ? static_cast<Kind>(i) : static_cast<Kind>(random() % 4), small));
  }
  std::shuffle(calls.begin(), calls.end(), random);
  std::vector<std::vector<Memory>> memory(static_cast<size_t>(ranks.count()));
  for (int r = 0; r < ranks.count(); ++r) {
    for (const Call& call : calls) {
      if (!make_memory(call, r, ranks.device(r), memory[static_cast<size_t>(r)].emplace_back())) return -1;
    }
  }
  const auto work = [&](int r, device::Device& d, const Communicator& communicator) -> Status {
    const device::Stream s = d.stream();
    std::mt19937 delays(seed + static_cast<uint32_t>(r));
    const auto once = [&](bool late) -> Status {
      for (size_t i = 0; i < calls.size(); ++i) {
        if (late) std::this_thread::sleep_for(std::chrono::microseconds(delays() % 300));
        TERN_RETURN_IF_ERROR(give(calls[i], memory[static_cast<size_t>(r)][i], d, communicator));
      }
      return {};
    };
    TERN_RETURN_IF_ERROR(once(true));
    if (graph) {
      TERN_RETURN_IF_ERROR(d.begin_capture(s));
      const Status given = once(false);
      TERN_ASSIGN_OR_RETURN(const auto captured, d.end_capture(s));
      TERN_RETURN_IF_ERROR(given);
      for (int turn = 0; turn < turns; ++turn) TERN_RETURN_IF_ERROR(captured->launch(s));
      return d.synchronize(s);
    }
    for (int turn = 1; turn < turns; ++turn) TERN_RETURN_IF_ERROR(once(true));
    return {};
  };
  if (!ranks.run(work, leave_out)) return -1;
  int count = 0;
  for (int r = 0; r < ranks.count(); ++r) {
    device::Device& d = ranks.device(r);
    if (!d.bind_thread().ok()) return -1;
    for (size_t i = 0; i < calls.size(); ++i) {
      Memory& m = memory[static_cast<size_t>(r)][i];
      d.copy_to_host(m.results.data(), m.memory.data(), m.bytes, d.stream());
      if (!d.synchronize(d.stream()).ok()) return -1;
      count += !right(calls[i], r, m);
    }
  }
  return count;
}

void report(Context& c, const std::string& name, int wrong_results) {
  c.report(wrong_results == 0, name,
           wrong_results < 0 ? "the ranks did not end" : std::to_string(wrong_results) + " results differ");
}

}  // namespace

void test_ranks(Context& c) {
  const bool small = emulated(c);
  const Expected<int> visible = c.cuda->device_count();
  const uint32_t seeds = c.smallest ? 2 : 20;
  for (const int n : {2, 4, 8}) {
    if (!visible.ok() || n > *visible - (small ? 2 : 0)) continue;
    Ranks ranks(c, n);
    if (!ranks.ready()) continue;
    const std::string of = std::to_string(n) + " ranks, seed ";
    for (uint32_t seed = 1; seed <= seeds; ++seed) {
      report(c, of + std::to_string(seed), wrong(c, ranks, seed, small ? 2 : 50, false));
      if (!small)
        report(c, of + std::to_string(seed) + ", replayed",
               wrong(c, ranks, seed, 10'000 / static_cast<int>(seeds), true));
    }
  }
  for (int every = 3; small && every <= 24; every += 7) {
    Ranks ranks(c, 4);  // each time: what a rank that ran ahead leaves behind says nothing about the next
    const int found = ranks.ready() ? wrong(c, ranks, 1, 2, false, every) : 0;
    c.report(found != 0, "every wait number " + std::to_string(every) + " left out", "nobody noticed");
  }
  if (c.device->bind_thread().ok()) return;
  c.report(false, "ranks", "the device of the other tests is gone");
}

}  // namespace tern::cuda_test
