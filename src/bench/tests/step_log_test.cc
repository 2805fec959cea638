// Spans of steps: what they add up to, and how they are written down.
#include "bench/step_log.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "app/start/trace_file.h"
#include "json/json.h"

namespace tern::bench {
namespace {

using engine::StepPhase;
using engine::StepSpan;

StepSpan span(StepPhase phase, uint64_t step, int64_t begin_us, int64_t end_us, int32_t tokens = 4) {
  StepSpan s;
  s.phase = phase, s.step = step, s.begin_ns = begin_us * 1000, s.end_ns = end_us * 1000;
  s.tokens = tokens, s.rows = 4;
  return s;
}

// Steps of 100 us with `idle_us` between them.
void add_steps(engine::StepTrace& trace, int count, int64_t idle_us, int32_t tokens = 4, uint64_t first = 0) {
  for (int i = 0; i < count; ++i) {
    const uint64_t n = first + static_cast<uint64_t>(i);
    const int64_t begin = static_cast<int64_t>(n) * (100 + idle_us);
    trace.add(span(StepPhase::kPlan, n, begin - 150, begin - 130, tokens));
    trace.add(span(StepPhase::kLaunch, n, begin - 120, begin - 115, tokens));
    trace.add(span(StepPhase::kLaunch, n, begin - 115, begin - 112, tokens));
    StepSpan device = span(StepPhase::kDevice, n, begin, begin + 100, tokens);
    device.idle_ns = n == 0 ? -1 : idle_us * 1000, device.replayed = true;
    trace.add(device);
    trace.add(span(StepPhase::kCollect, n, begin + 101, begin + 131, tokens));
  }
}

TEST(StepLog, FiguresOfSteadyDecoding) {
  StepLog log(1000);
  add_steps(log, 11, 7);
  const StepFigures f = log.figures(4);
  EXPECT_EQ(f.steps, 10);
  EXPECT_NEAR(f.mean, 107e-6, 1e-9);
  EXPECT_NEAR(f.p99, 107e-6, 1e-9);
  EXPECT_NEAR(f.device, 100e-6, 1e-9);
  EXPECT_NEAR(f.idle_p50, 7e-6, 1e-9);
  EXPECT_NEAR(f.plan, 20e-6, 1e-9);
  EXPECT_NEAR(f.launch, 8e-6, 1e-9);
  EXPECT_NEAR(f.collect, 30e-6, 1e-9);
  EXPECT_EQ(f.replayed, 1);
}

TEST(StepLog, OnlyFullDecodeStepsInARowCount) {
  StepLog log(1000);
  add_steps(log, 3, 5, 260);    // prompts among them
  add_steps(log, 4, 5, 4, 3);   // 3 .. 6
  add_steps(log, 2, 5, 4, 20);  // 20, 21
  EXPECT_EQ(log.figures(4).steps, 4);
  EXPECT_EQ(log.figures(8).steps, 0);
  log.clear();
  EXPECT_EQ(log.figures(4).steps, 0);
}

TEST(StepLog, KeepsNoMoreThanItMay) {
  StepLog log(10);
  add_steps(log, 11, 7);
  EXPECT_EQ(log.figures(4).steps, 1);  // ten spans are two steps
}

std::string read(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string temporary(const char* name) { return (std::filesystem::temp_directory_path() / name).string(); }

TEST(TraceFile, IsAnArrayOfChromeEvents) {
  const std::string path = temporary("tern_trace_test.json");
  {
    auto file = app::TraceFile::open(path);
    ASSERT_TRUE(file.ok()) << file.error().message;
    add_steps(**file, 3, 7);
  }
  const auto events = json::parse(read(path));
  ASSERT_TRUE(events.ok()) << events.error().message;
  int steps = 0, plans = 0, named = 0;
  for (const json::Value& e : events->as_array()) {
    if (e.at("ph").as_string() == "M") {
      ++named;
      continue;
    }
    EXPECT_EQ(e.at("ph").as_string(), "X");
    EXPECT_EQ(e.at("args").at("rows").as_int64(), 4);
    plans += e.at("name").as_string() == "plan" ? 1 : 0;
    if (e.at("name").as_string() != "step") continue;
    ++steps;
    EXPECT_EQ(e.at("args").at("how").as_string(), "graph");
    EXPECT_NEAR(e.at("dur").as_double(), 100, 1e-6);
  }
  EXPECT_EQ(steps, 3);
  EXPECT_EQ(plans, 3);
  EXPECT_EQ(named, 4);
  std::remove(path.c_str());
}

TEST(TraceFile, EndsAtItsLimitAndStaysReadable) {
  const std::string path = temporary("tern_trace_limit.json");
  {
    auto file = app::TraceFile::open(path, 1, 2000);
    ASSERT_TRUE(file.ok());
    add_steps(**file, 1000, 7);
  }
  EXPECT_LT(std::filesystem::file_size(path), 2400u);
  EXPECT_TRUE(json::parse(read(path)).ok());
  std::remove(path.c_str());
}

TEST(TraceFile, DropsWhatNobodyCouldWrite) {
  const std::string path = temporary("tern_trace_drop.json");
  constexpr size_t kGiven = 40 * app::TraceFile::kWaiting;
  uint64_t dropped = 0;
  {
    auto file = app::TraceFile::open(path);
    ASSERT_TRUE(file.ok());
    for (size_t i = 0; i < kGiven; ++i) (*file)->add(span(StepPhase::kPlan, i, 0, 1));
    dropped = (*file)->dropped();
  }
  EXPECT_GT(dropped, 0u);
  const std::string text = read(path);
  size_t written = 0;
  for (size_t at = text.find("\"plan\""); at != std::string::npos; at = text.find("\"plan\"", at + 1)) ++written;
  EXPECT_EQ(written + dropped, kGiven);
  EXPECT_EQ(text.substr(text.size() - 3), "\n]\n");
  std::remove(path.c_str());
}

TEST(TraceFile, SaysWhyItCannotBeWritten) {
  const auto file = app::TraceFile::open("/nonexistent/trace.json");
  ASSERT_FALSE(file.ok());
  EXPECT_NE(file.error().message.find("/nonexistent/trace.json"), std::string::npos);
}

}  // namespace
}  // namespace tern::bench
