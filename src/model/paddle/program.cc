#include "model/paddle/program.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace tern::model {
namespace {

constexpr size_t kMaxParameters = 2'000'000, kMaxName = 4096;
constexpr int64_t kFirstArch = 70;
constexpr std::array<std::string_view, 4> kLookups = {"embedding", "c_embedding", "lookup_table_v2", "lookup_table"};
constexpr std::array<std::string_view, 2> kProducts = {"matmul", "matmul_v2"};

}  // namespace

Status ProgramBuilder::add(ProgramParameter parameter) {
  if (parameter.name.empty() || parameter.name.size() > kMaxName)
    return make_error(ErrorCode::kCorrupt, fmt::format("a parameter has a name of {} bytes", parameter.name.size()));
  if (program_.parameters.size() == kMaxParameters)
    return make_error(ErrorCode::kTooLarge, fmt::format("there are more than {} parameters", kMaxParameters));
  program_.parameters.push_back(std::move(parameter));
  return {};
}

void ProgramBuilder::use(std::string_view type, const std::vector<std::string>& inputs, std::string_view matrix,
                         bool transposed) {
  if (std::ranges::find(kLookups, type) != kLookups.end())
    for (const std::string& name : inputs) uses_.push_back({name, true, false});
  if (std::ranges::find(kProducts, type) != kProducts.end() && !matrix.empty())
    uses_.push_back({std::string(matrix), false, transposed});
}

Status ProgramBuilder::arch(int64_t value) {
  if (value < kFirstArch)
    return make_error(ErrorCode::kUnsupported,
                      fmt::format("weights are laid out for architecture {}, which is not known", value));
  if (program_.arch && *program_.arch != value)
    return make_error(ErrorCode::kUnsupported,
                      fmt::format("weights are laid out for two architectures, {} and {}", *program_.arch, value));
  program_.arch = value;
  return {};
}

Expected<StaticProgram> ProgramBuilder::finish() {
  std::vector<ProgramParameter>& all = program_.parameters;
  std::ranges::sort(all, {}, &ProgramParameter::name);
  const auto twice = std::ranges::adjacent_find(all, {}, &ProgramParameter::name);
  if (twice != all.end())
    return make_error(ErrorCode::kCorrupt, fmt::format("the parameter {} is there twice", twice->name));
  if (all.empty()) return make_error(ErrorCode::kCorrupt, "there are no parameters");
  for (const Use& u : uses_) {
    const auto found = std::ranges::lower_bound(all, u.name, {}, &ProgramParameter::name);
    if (found == all.end() || found->name != u.name) continue;
    found->looked_up = found->looked_up || u.looked_up;
    found->multiplied = found->multiplied || !u.looked_up;
    found->transposed = found->transposed || u.transposed;
  }
  return std::move(program_);
}

}  // namespace tern::model
