// Device times on the host's clock, from events that only know differences.
#include "engine/step/step_clock.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/clock.h"
#include "device/device.h"
#include "engine/step/step.h"

namespace tern::engine {
namespace {

class Log final : public StepTrace {
 public:
  void add(const StepSpan& span) override { spans.push_back(span); }
  std::vector<StepSpan> spans;
};

void spin(int64_t ns) {
  for (const int64_t until = monotonic_ns() + ns; monotonic_ns() < until;) {
  }
}

TEST(StepClock, TellsEachStepOnceInOrder) {
  auto device = device::make_cpu_device({.threads = 1, .pin = false});
  ASSERT_TRUE(device.ok());
  Log log;
  auto clock = StepClock::create(**device, log);
  ASSERT_TRUE(clock.ok()) << clock.error().message;
  Step step;
  step.batch.tokens = 5, step.batch.rows = 3;
  const int64_t begin = monotonic_ns();
  for (int n = 0; n < 10; ++n) {
    (*clock)->forward_begins();
    spin(20'000);
    (*clock)->forward_ends(step);
    (*clock)->sample_begins();
    spin(5'000);
    (*clock)->sample_ends(step);
    (*clock)->done(step);
    spin(10'000);
  }
  const int64_t end = monotonic_ns();
  ASSERT_EQ(log.spans.size(), 30u);
  int64_t last_end = begin;
  for (size_t n = 0; n < 10; ++n) {
    const StepSpan& launch = log.spans[3 * n];
    const StepSpan& device_span = log.spans[3 * n + 2];
    EXPECT_EQ(launch.phase, StepPhase::kLaunch);
    EXPECT_EQ(device_span.phase, StepPhase::kDevice);
    EXPECT_EQ(device_span.step, n);
    EXPECT_EQ(device_span.tokens, 5);
    EXPECT_EQ(device_span.rows, 3);
    EXPECT_GE(device_span.end_ns - device_span.begin_ns, 25'000);
    EXPECT_GE(device_span.begin_ns, last_end);
    EXPECT_LE(device_span.end_ns, end);
    if (n == 0) {
      EXPECT_EQ(device_span.idle_ns, -1);
    } else {
      EXPECT_GE(device_span.idle_ns, 10'000);
    }
    last_end = device_span.end_ns;
  }
}

}  // namespace
}  // namespace tern::engine
