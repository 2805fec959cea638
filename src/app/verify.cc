#include <fmt/format.h>

#include <cstdio>

#include "app/commands.h"
#include "app/device_settings.h"
#include "app/environment.h"
#include "app/options.h"
#include "vision/verify/verify_case.h"

namespace tern::app {
namespace {

void print_report(const model::CaseReport& report) {
  fmt::print("  {:<28} {:>11} {:>11} {:>11} {:>11}  ok\n", "tensor", "max error", "relative", "rms ratio", "tolerance");
  for (const auto& c : report.tensors) {
    fmt::print("  {:<28} {:>11.3e} {:>11.3e} {:>11.3e} {:>11.3e}  {}\n", c.name, c.max_abs, c.relative, c.rms,
               c.tolerance, c.ok ? "yes" : "NO");
  }
  for (const auto& c : report.prompts) {
    fmt::print("  prompt {:<21} {} greedy steps, {} clear of the tolerance, {} matched  {}\n", c.name, c.steps,
               c.checked, c.matched, c.ok() ? "yes" : "NO");
  }
  for (const auto& c : report.statements) fmt::print("  {:<28} {}  {}\n", c.name, c.detail, c.ok ? "yes" : "NO");
}

// The device as serve opens it: the environment chooses kernels, so that every one of them can be checked.
Expected<OpenDevice> open(const std::string& device, int threads) {
  TERN_ASSIGN_OR_RETURN(const Environment environment, Environment::from(Environment::of_process()));
  TERN_ASSIGN_OR_RETURN(const DeviceSettings settings, device_settings(device, {.threads = threads}, environment));
  return open_device(settings);
}

}  // namespace

int run_verify(const std::vector<std::string>& args) {
  CLI::App parser("Runs reference cases through the model code and compares", "tern verify");
  std::vector<std::string> folders;
  std::string dtype = "float32", device_name = "cpu";
  int threads = 0;
  parser.add_option("case", folders, "Folders with config.json, weights, golden.json and golden.safetensors")
      ->required();
  parser.add_option("--dtype", dtype, "float32 or bfloat16")
      ->capture_default_str()
      ->check(CLI::IsMember({"float32", "bfloat16"}));
  parser.add_option("--cpu-threads", threads, "Threads that compute; 0: physical cores")
      ->capture_default_str()
      ->check(CLI::Range(0, 4096));
  parser.add_option("--device", device_name, "cpu, cuda, cuda:N or auto")->capture_default_str();
  if (const auto status = parse_options(parser, args)) return *status;

  auto opened = open(device_name, threads);
  if (!opened.ok()) return report(opened.error());
  device::Device& device = *opened->device;
  if (opened->cuda != nullptr) fmt::print("{}\n", device.info().name);
  const DType type = dtype == "float32" ? DType::kF32 : DType::kBF16;
  const model::VerifyOptions options{
      .activation = type, .tolerance = model::VerifyTolerance::of(type), .exact = opened->deterministic};
  int passed = 0, failed = 0;
  for (const std::string& folder : folders) {
    const auto result = vision::verify_case(folder, options, device);
    if (!result.ok()) {
      fmt::print("{}: {}  NO\n", folder, result.error().message);
      ++failed;
      continue;
    }
    fmt::print("{} ({}, {})\n", folder, result->architecture, dtype);
    print_report(*result);
    passed += result->passed();
    failed += result->failed();
  }
  fmt::print("{} passed, {} failed\n", passed, failed);
  std::fflush(stdout);
  return failed == 0 ? 0 : kFailureExit;
}

}  // namespace tern::app
