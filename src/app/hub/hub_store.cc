#include "app/hub/hub_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "app/folder_lock.h"
#include "app/hub/find_folder.h"
#include "app/hub/hub_record.h"

namespace tern::app {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> folders_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    std::error_code none;
    if (at->is_directory(none)) names.push_back(at->path().filename().string());
  }
  return names;
}

int64_t bytes_of(const std::string& folder) {
  int64_t bytes = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    std::error_code none;
    const auto size = at->is_regular_file(none) ? fs::file_size(at->path(), none) : 0;  // a link's: of what it names
    if (!none) bytes += static_cast<int64_t>(size);
  }
  return bytes;
}

void add_below_root(const std::string& root, std::vector<StoredModel>& models) {
  for (const std::string& owner : folders_in(root)) {
    if (owner.starts_with('.')) continue;
    for (const std::string& name : folders_in(root + "/" + owner)) {
      StoredModel model{.name = owner + "/" + name, .where = "folder", .revision = {}, .state = "whole"};
      model.folder = root + "/" + model.name;
      if (!is_repo_name(model.name)) continue;
      const auto record = read_record(model.folder);
      const bool unfinished = is_unfinished(model.folder);
      if (!record && !unfinished && !holds_model(model.folder)) continue;
      if (record) model.where = record->hub, model.revision = record->revision;
      if (unfinished) model.state = "unfinished";
      model.bytes = bytes_of(model.folder);
      models.push_back(std::move(model));
    }
  }
}

// Folders named OWNER--NAME behind `prefix`, with snapshots/ in them.
void add_cache(const std::string& cache, const std::string& prefix, const char* where,
               std::vector<StoredModel>& models) {
  for (const std::string& folder : folders_in(cache)) {
    if (!folder.starts_with(prefix)) continue;
    std::string name = folder.substr(prefix.size());
    const size_t dashes = name.find("--");
    if (dashes == std::string::npos) continue;
    name.replace(dashes, 2, "/");
    if (!is_repo_name(name)) continue;
    const std::string snapshots = fmt::format("{}/{}/snapshots", cache, folder);
    for (const std::string& revision : folders_in(snapshots)) {
      const std::string path = snapshots + "/" + revision;
      if (holds_model(path)) models.push_back({name, where, revision, "whole", bytes_of(path), path});
    }
  }
}

}  // namespace

std::vector<StoredModel> list_models(const Environment& environment) {
  std::vector<StoredModel> models;
  if (const std::string root = hub_root(environment); !root.empty()) add_below_root(root, models);
  add_cache(hugging_face_cache(environment), "models--", "Hugging Face's cache", models);
  add_cache(model_scope_cache(environment) + "/models", "", "ModelScope's cache", models);
  std::stable_sort(models.begin(), models.end(),
                   [](const StoredModel& a, const StoredModel& b) { return a.name < b.name; });
  return models;
}

Expected<int64_t> remove_model(const std::string& name, const Environment& environment) {
  std::string folder;
  bool foreign = false;
  for (const StoredModel& model : list_models(environment)) {
    if (model.name != name && model.name != swapped_owner(name)) continue;
    std::error_code error;
    const bool ours = fs::is_directory(hub_folder(model.folder), error);
    foreign = foreign || !ours;
    if (ours && folder.empty()) folder = model.folder;
  }
  if (folder.empty()) {
    return foreign ? make_error(ErrorCode::kInvalidArgument,
                                fmt::format("{} was not fetched by tern: what put it there removes it", name), "NAME")
                   : make_error(ErrorCode::kNotFound, fmt::format("there is no model {} here", name), "NAME");
  }
  FolderLock lock;
  TERN_RETURN_IF_ERROR(lock.take(hub_folder(folder) + "/lock", [&] {
    fmt::print(stderr, "another process fetches {}; this one waits for it\n", name);
  }));
  const int64_t before = bytes_of(folder);
  std::error_code error;
  const auto record = read_record(folder), begun = read_unfinished(folder);
  // The mark first: what is left of a removal that was cut is no model.
  if (record && !begun) TERN_RETURN_IF_ERROR(mark_unfinished(folder, *record));
  for (const auto& known : {record, begun}) {
    if (!known) continue;
    for (const HubFile& file : known->listing.files) fs::remove(folder + "/" + file.path, error);
  }
  fs::remove_all(hub_folder(folder), error);
  const int64_t after = bytes_of(folder);
  fs::remove(folder, error);                          // if nothing else is in it
  fs::remove(fs::path(folder).parent_path(), error);  // the owner's, the same
  return before - after;
}

}  // namespace tern::app
