#include "model/files/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "json/json.h"

namespace tern::model {
namespace fs = std::filesystem;
namespace {

constexpr const char* kSingle = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

using WeightMap = std::map<std::string, std::string, std::less<>>;

// A shard's name as an index gives it: a relative path that stays below the folder.
Status check_shard_name(const std::string& name) {
  const fs::path path(name);
  bool inside = !name.empty() && path.is_relative() && name.find('\0') == std::string::npos;
  for (const auto& part : path) inside = inside && part != "..";
  if (!inside)
    return make_error(ErrorCode::kCorrupt, fmt::format("{}: \"{}\" points out of the model folder", kIndex, name));
  return {};
}

Expected<WeightMap> read_index(const std::string& path) {
  TERN_ASSIGN_OR_RETURN(const json::Value root, json::parse_file(path, {.max_bytes = 256u << 20}));
  const json::Value* map = root.is_object() ? json::find(root.get_object(), "weight_map") : nullptr;
  if (map == nullptr || !map->is_object())
    return make_error(ErrorCode::kCorrupt, fmt::format("{}: there is no weight_map object", path));
  WeightMap names;
  for (const auto& [name, file] : map->get_object()) {
    if (!file.is_string())
      return make_error(ErrorCode::kCorrupt, fmt::format("{}: {} names no file", path, std::string(name)));
    const std::string file_name(file.get_string());
    TERN_RETURN_IF_ERROR(check_shard_name(file_name));
    names.emplace(name, file_name);
  }
  return names;
}

std::vector<std::string> loose_files(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code ec;
  for (const auto& e : fs::directory_iterator(folder, ec))
    if (e.path().extension() == ".safetensors") names.push_back(e.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

bool has_weights(const std::string& folder) {
  std::error_code ec;
  return fs::exists(fs::path(folder) / kSingle, ec) || fs::exists(fs::path(folder) / kIndex, ec) ||
         !loose_files(folder).empty();
}

std::vector<std::string> Checkpoint::paths() const {
  std::vector<std::string> out;
  for (const auto& file : files_) out.push_back(file->path());
  return out;
}

const StoredTensor* Checkpoint::find(std::string_view name) const {
  const auto it = tensors_.find(name);
  return it == tensors_.end() ? nullptr : &it->second;
}

Status Checkpoint::check() const {
  for (const auto& file : files_) TERN_RETURN_IF_ERROR(file->check());
  return {};
}

Status Checkpoint::add_file(const std::string& path, const WeightMap* weight_map, const std::string& file_name) {
  TERN_ASSIGN_OR_RETURN(MappedFile mapped, MappedFile::open(path));
  auto file = std::make_unique<MappedFile>(std::move(mapped));
  auto header = parse_safetensors({file->data(), file->size()}, file->size());
  TERN_RETURN_IF_ERROR(file->check());
  if (!header.ok()) return make_error(header.error().code, fmt::format("{}: {}", path, header.error().message), path);
  for (auto& [name, entry] : header->tensors) {
    if (weight_map != nullptr) {
      // The index decides where a tensor is read; a copy elsewhere is ignored.
      const auto it = weight_map->find(name);
      if (it != weight_map->end() && it->second != file_name) continue;
    }
    const size_t bytes = entry.end - entry.begin;
    StoredTensor tensor{file.get(), file->data() + entry.begin, entry.dtype, std::move(entry.shape), bytes};
    if (!tensors_.emplace(name, std::move(tensor)).second)
      return make_error(ErrorCode::kCorrupt,
                        fmt::format("tensor {} is stored in more than one file (again in {})", name, path));
    bytes_ += bytes;
  }
  // The header has been read; its pages are not needed again.
  file->release(file->data(), file->size());
  files_.push_back(std::move(file));
  return {};
}

Expected<Checkpoint> Checkpoint::open(const std::string& folder) {
  Checkpoint checkpoint;
  std::error_code ec;
  if (!fs::is_directory(folder, ec))
    return make_error(ErrorCode::kNotFound, fmt::format("model folder {} is not there", folder));
  const fs::path base(folder);
  if (fs::exists(base / kSingle, ec)) {
    TERN_RETURN_IF_ERROR(checkpoint.add_file((base / kSingle).string(), nullptr, kSingle));
    return checkpoint;
  }
  if (fs::exists(base / kIndex, ec)) {
    TERN_ASSIGN_OR_RETURN(const WeightMap map, read_index((base / kIndex).string()));
    std::set<std::string> shards;
    for (const auto& [name, file] : map) shards.insert(file);
    for (const auto& shard : shards) TERN_RETURN_IF_ERROR(checkpoint.add_file((base / shard).string(), &map, shard));
    for (const auto& [name, file] : map)
      if (checkpoint.find(name) == nullptr)
        return make_error(ErrorCode::kCorrupt,
                          fmt::format("{} says that {} is in {}, but it is not", kIndex, name, file));
    return checkpoint;
  }
  const auto files = loose_files(folder);
  if (files.empty())
    return make_error(
        ErrorCode::kNotFound,
        fmt::format("{} holds no weights: neither {}, nor {}, nor any *.safetensors", folder, kSingle, kIndex));
  for (const auto& f : files) TERN_RETURN_IF_ERROR(checkpoint.add_file((base / f).string(), nullptr, f));
  return checkpoint;
}

}  // namespace tern::model
