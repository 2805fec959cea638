#include "app/ranks/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <future>
#include <system_error>

#include "base/log.h"
#include "model/files/check_sums.h"
#include "vision/reload.h"

namespace tern::app {
namespace {

using serve::control::WeightsFrom;

Error refused(std::string message) { return make_error(ErrorCode::kInvalidArgument, std::move(message), "model_path"); }

// A folder below `root`, links resolved; a relative name is taken from there.
Expected<std::string> folder_below(const std::string& root, const std::string& name) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path base = fs::canonical(root, error);
  if (error) return refused(fmt::format("--weights-root {}: {}", root, error.message()));
  const fs::path folder = fs::canonical(base / name, error);  // an absolute name takes the place of all
  if (error || !fs::is_directory(folder, error)) return refused(fmt::format("model_path {}: no such folder", name));
  const auto [end, rest] = std::mismatch(base.begin(), base.end(), folder.begin(), folder.end());
  if (end != base.end()) return refused("model_path does not lie below --weights-root");
  return folder.string();
}

}  // namespace

Expected<std::string> LoadedWeights::find_folder(const WeightsFrom& from) const {
  switch (from.folder) {
    case WeightsFrom::Folder::kLast:
      return folder_;
    case WeightsFrom::Folder::kOwn:
      return load_.path;
    case WeightsFrom::Folder::kNamed:
      break;
  }
  if (root_.empty()) return refused("model_path needs --weights-root, below which it must lie");
  return folder_below(root_, from.path);
}

Expected<LoadedWeights::Reloads> LoadedWeights::open(const std::string& folder) const {
  model::LoadOptions options = load_;
  options.path = folder;
  Reloads reloads;
  for (const LoadedEngines::Copy& copy : engines_.copies()) {
    options.shard = copy.shard;
    TERN_ASSIGN_OR_RETURN(auto reload, model::open_reload(options, *copy.model, *copy.device));
    reloads.push_back(std::move(reload));
    if (copy.tower == nullptr) continue;
    TERN_ASSIGN_OR_RETURN(auto tower, vision::open_tower_reload(options, *copy.tower, *copy.device));
    reloads.push_back(std::move(tower));
  }
  return reloads;
}

// On a thread of its own: the one that packs may be bound to a device and its cores.
Status LoadedWeights::fill(const Reloads& reloads) {
  whole_ = false;
  const Status filled = std::async(std::launch::async, [&]() -> Status {
                          for (const auto& reload : reloads) TERN_RETURN_IF_ERROR(reload->fill());
                          return {};
                        }).get();
  if (filled.ok()) {
    whole_ = true;
    return {};
  }
  TERN_RETURN_IF_ERROR(give_back());
  return filled;
}

Status LoadedWeights::give_back() {
  whole_ = false;
  for (const LoadedEngines::Copy& copy : engines_.copies()) {
    if (copy.device->own_memory()) TERN_RETURN_IF_ERROR(copy.device->bind_thread());
    if (model::WeightMemory* memory = copy.model->weight_memory()) TERN_RETURN_IF_ERROR(memory->give_back());
    if (copy.tower == nullptr) continue;
    if (model::WeightMemory* memory = copy.tower->weight_memory()) TERN_RETURN_IF_ERROR(memory->give_back());
  }
  return {};
}

Status LoadedWeights::read(const WeightsFrom& from) {
  TERN_ASSIGN_OR_RETURN(const std::string folder, find_folder(from));
  if (load_.dummy && from.folder == WeightsFrom::Folder::kNamed) {
    return refused("the weights are made from a seed (--load-choices dummy): model_path has no meaning");
  }
  if (from.verify) TERN_RETURN_IF_ERROR(model::verify_sums(folder));
  TERN_ASSIGN_OR_RETURN(const Reloads reloads, open(folder));
  const bool had = whole_;
  Status filled = fill(reloads);
  if (filled.ok()) {
    folder_ = folder;
    TERN_INFO("weights were read from {}", folder);
    return {};
  }
  if (!had || folder == folder_) return filled;
  // What was there before is there again, where its folder still has it.
  Expected<Reloads> before = open(folder_);
  if (before.ok() && fill(*before).ok()) filled.error().message += "; the weights of before are back";
  return filled;
}

}  // namespace tern::app
