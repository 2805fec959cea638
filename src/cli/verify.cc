#include <fmt/format.h>

#include <cstdio>

#include "app/config/device_settings.h"
#include "app/config/quantization_flag.h"
#include "app/flags/environment.h"
#include "app/options.h"
#include "app/report.h"
#include "cli/commands.h"
#include "engine/verify/replay_check.h"
#include "model/arch/registry.h"
#include "vision/verify/verify_case.h"

namespace tern::cli {
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
Expected<app::DeviceSettings> device_of(const std::string& device, int threads) {
  TERN_ASSIGN_OR_RETURN(const app::Environment environment, app::Environment::from(app::Environment::of_process()));
  return device_settings(device, {.threads = threads}, environment);
}
Expected<app::OpenedDevice> open(const std::string& device, int threads) {
  TERN_ASSIGN_OR_RETURN(const app::DeviceSettings settings, device_of(device, threads));
  return app::open_device(settings);
}

// Replays with and without programmatic dependent launch, which must not change a bit either.
Status replay_case(const std::string& folder, DType type, const json::Value& asked, app::DeviceSettings settings,
                   uint64_t replays, bool* passed) {
  std::vector<std::vector<float>> first;
  TERN_ASSIGN_OR_RETURN(const std::string architecture, model::read_architecture(folder, "config.json", {}));
  TERN_ASSIGN_OR_RETURN(const model::Quantization quantization, model::read_quantization(asked, architecture));
  *passed = true;
  for (const bool overlapped : {true, false}) {
    settings.cuda.pdl = overlapped;
    TERN_ASSIGN_OR_RETURN(const app::OpenedDevice opened, app::open_device(settings));
    TERN_ASSIGN_OR_RETURN(const engine::ReplayReport r,
                          engine::check_replays(folder, type, quantization, *opened.device, replays));
    const bool same = first.empty() || first == r.logits;
    fmt::print(
        "  replays, dependent launch {:<3}  {} of {} different; {} steps, {} of them alike unpadded; {} graphs; "
        "start {:.2f} s; logits {}  {}\n",
        overlapped ? "on" : "off", r.different, r.replays, r.steps, r.unpadded, r.shapes, r.seconds,
        first.empty() ? "kept"
        : same        ? "the same"
                      : "DIFFERENT",
        r.different == 0 && same ? "yes" : "NO");
    *passed = *passed && r.different == 0 && same && r.replays == replays;
    first = r.logits;
  }
  return {};
}

int replay_cases(const std::vector<std::string>& folders, DType type, const json::Value& asked,
                 const std::string& device, uint64_t replays) {
  const auto settings = device_of(device, 0);
  if (!settings.ok()) return app::report(settings.error());
  int passed = 0, failed = 0;
  for (const std::string& folder : folders) {
    bool good = false;
    fmt::print("{} ({})\n", folder, type == DType::kF32 ? "float32" : "bfloat16");
    const Status status = replay_case(folder, type, asked, *settings, replays, &good);
    if (!status.ok()) fmt::print("  {}  NO\n", status.error().message);
    (status.ok() && good ? passed : failed) += 1;
    std::fflush(stdout);
  }
  fmt::print("{} passed, {} failed\n", passed, failed);
  return failed == 0 ? 0 : app::kFailureExit;
}

}  // namespace

int run_verify(const std::vector<std::string>& args) {
  app::Options parser("Runs reference cases through the model code and compares", "tern verify");
  std::vector<std::string> folders;
  std::string dtype = "float32", device_name = "cpu", quantization;
  int threads = 0;
  uint64_t replays = 0;
  parser.add_option("case", folders, "Folders with config.json, weights, golden.json and golden.safetensors")
      .required();
  parser.add_option("--dtype", dtype, "float32 or bfloat16").capture_default_str().one_of({"float32", "bfloat16"});
  parser.add_option("--cpu-threads", threads, "Threads that compute; 0: physical cores")
      .capture_default_str()
      .range(0, 4096);
  parser.add_option("--device", device_name, "cpu, cuda, cuda:N or auto").capture_default_str();
  parser
      .add_option("--replays", replays,
                  "On a GPU, instead: so many steps as graphs against the same steps run as they are, bit by bit")
      .range(uint64_t{1}, uint64_t{1} << 30);
  parser.add_option("--quantization", quantization,
                    "As serve has it; the reference of weights is then what the same codes compute as float32");
  if (const auto status = app::parse_options(parser, args)) return *status;
  auto asked = app::quantization_value(quantization);
  if (!asked.ok()) return app::report(asked.error());
  const DType type = dtype == "float32" ? DType::kF32 : DType::kBF16;
  if (replays > 0) return replay_cases(folders, type, *asked, device_name, replays);

  auto opened = open(device_name, threads);
  if (!opened.ok()) return app::report(opened.error());
  device::Device& device = *opened->device;
  if (opened->library != nullptr) fmt::print("{}\n", device.info().name);
  model::VerifyOptions options{
      .activation = type, .tolerance = model::VerifyTolerance::of(type), .exact = opened->deterministic};
  options.quantization = std::move(*asked);
  int passed = 0, failed = 0;
  for (const std::string& folder : folders) {
    const auto result = vision::verify_case(folder, options, device);
    if (!result.ok()) {
      fmt::print("{}: {}  NO\n", folder, result.error().message);
      ++failed;
      continue;
    }
    fmt::print("{} ({}, {}{}{})\n", folder, result->architecture, dtype, quantization.empty() ? "" : ", ",
               quantization);
    print_report(*result);
    passed += result->passed();
    failed += result->failed();
  }
  fmt::print("{} passed, {} failed\n", passed, failed);
  std::fflush(stdout);
  return failed == 0 ? 0 : app::kFailureExit;
}

}  // namespace tern::cli
