#include "bench/step_log.h"

#include <map>

#include "client/load_client.h"

namespace tern::bench {
namespace {

using engine::StepPhase;
using engine::StepSpan;

struct OneStep {
  int64_t begin = 0;
  double device = 0, idle = -1, plan = 0, launch = 0, collect = 0;
  bool replayed = false, full = false, seen = false;
};

}  // namespace

StepLog::StepLog(size_t most, engine::StepTrace* next) : next_(next) { spans_.reserve(most); }

void StepLog::add(const StepSpan& span) {
  if (next_ != nullptr) next_->add(span);
  std::lock_guard lock(mutex_);
  if (spans_.size() < spans_.capacity()) spans_.push_back(span);
}

void StepLog::clear() {
  std::lock_guard lock(mutex_);
  spans_.clear();
}

StepFigures StepLog::figures(int rows) const {
  std::map<uint64_t, OneStep> steps;
  {
    std::lock_guard lock(mutex_);
    for (const StepSpan& s : spans_) {
      OneStep& one = steps[s.step];
      const double seconds = static_cast<double>(s.end_ns - s.begin_ns) / 1e9;
      if (s.phase == StepPhase::kPlan) one.plan += seconds;
      if (s.phase == StepPhase::kLaunch) one.launch += seconds;
      if (s.phase == StepPhase::kCollect) one.collect += seconds;
      if (s.phase != StepPhase::kDevice) continue;
      one.begin = s.begin_ns, one.device = seconds, one.idle = static_cast<double>(s.idle_ns) / 1e9;
      one.replayed = s.replayed, one.full = s.rows == rows && s.tokens == rows, one.seen = true;
    }
  }
  std::vector<double> times, device, idle, plan, launch, collect;
  double sum = 0, replayed = 0;
  const OneStep* before = nullptr;
  uint64_t number = 0;
  for (const auto& [n, one] : steps) {
    if (before != nullptr && n == number + 1 && one.seen && one.full && before->seen && before->full) {
      times.push_back(before->device + one.idle);
      sum += times.back();
      device.push_back(one.device), idle.push_back(one.idle);
      plan.push_back(one.plan), launch.push_back(one.launch), collect.push_back(one.collect);
      replayed += one.replayed ? 1 : 0;
    }
    before = &one, number = n;
  }
  StepFigures f;
  f.steps = static_cast<int>(times.size());
  if (f.steps == 0) return f;
  f.mean = sum / f.steps, f.replayed = replayed / f.steps;
  f.p50 = client::quantile(times, 0.5), f.p99 = client::quantile(times, 0.99), f.device = client::quantile(device, 0.5);
  f.idle_p50 = client::quantile(idle, 0.5), f.idle_p99 = client::quantile(idle, 0.99);
  f.plan = client::quantile(plan, 0.5), f.launch = client::quantile(launch, 0.5),
  f.collect = client::quantile(collect, 0.5);
  return f;
}

}  // namespace tern::bench
