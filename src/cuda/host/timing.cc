#include "cuda/host/timing.h"

#include <nvtx3/nvToolsExt.h>

#include <cmath>

#include "cuda/runtime/context.h"

namespace tern::cuda {
namespace {

Status check(cudaError_t e) { return e == cudaSuccess ? Status() : cuda_error("timed event", e); }

class TimedEvent final : public device::Event {
 public:
  explicit TimedEvent(cudaEvent_t event) : event_(event) {}
  ~TimedEvent() override { (void)cudaEventDestroy(event_); }
  Status record(device::Stream s) override { return check(cudaEventRecord(event_, raw(s))); }
  Status wait_on(device::Stream s) override { return check(cudaStreamWaitEvent(raw(s), event_, 0)); }
  Status synchronize() override { return check(cudaEventSynchronize(event_)); }
  bool done() override { return cudaEventQuery(event_) != cudaErrorNotReady; }
  Expected<int64_t> nanoseconds_since(const device::Event& earlier) const override {
    float ms = 0;
    if (Status s = check(cudaEventElapsedTime(&ms, static_cast<const TimedEvent&>(earlier).event_, event_)); !s.ok()) {
      return std::move(s).error();
    }
    return static_cast<int64_t>(std::llround(static_cast<double>(ms) * 1e6));
  }

 private:
  cudaEvent_t event_;
};

}  // namespace

Expected<std::unique_ptr<device::Event>> make_timed_event() {
  cudaEvent_t event = nullptr;
  if (const cudaError_t e = cudaEventCreateWithFlags(&event, cudaEventDefault); e != cudaSuccess) {
    return cuda_error("a timed event", e);
  }
  return std::unique_ptr<device::Event>(std::make_unique<TimedEvent>(event));
}

void range_push(const char* name) { (void)nvtxRangePushA(name); }
void range_pop() { (void)nvtxRangePop(); }

}  // namespace tern::cuda
