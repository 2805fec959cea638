#include "app/hub/hub_pull.h"

#include <fmt/format.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <map>
#include <memory>
#include <vector>

#include "app/folder_lock.h"
#include "app/hub/hub_digest.h"
#include "app/hub/hub_listing.h"
#include "app/hub/hub_progress.h"
#include "app/hub/hub_record.h"
#include "app/hub/hub_transfer.h"
#include "base/sha256.h"

namespace tern::app {
namespace {

namespace fs = std::filesystem;

// What has come of a file, under a name that holds its path and its digest: bytes of another digest are never its
// start.
std::string incomplete_path(const std::string& folder, const HubFile& file) {
  const std::string key = file.path + '\n' + file.digest;
  return fmt::format("{}/{}.incomplete", hub_folder(folder), sha256_hex(key.data(), key.size()).substr(0, 32));
}

int64_t size_at(const std::string& path) {
  std::error_code error;
  const auto size = fs::file_size(path, error);
  return error ? 0 : static_cast<int64_t>(size);
}

struct Missing {
  const HubFile* file;
  int64_t have;  // bytes of it that an earlier run left
};

// The files that the folder lacks. Those that the record names with the same digest are there if their size is right;
// others are read.
Expected<std::vector<Missing>> find_missing(const std::string& folder, const HubListing& listing) {
  std::map<std::string, std::string> known;
  if (const auto record = read_record(folder)) {
    for (const HubFile& file : record->listing.files) known[file.path] = file.digest;
  }
  std::vector<const HubFile*> here(listing.files.size(), nullptr);
  TERN_RETURN_IF_ERROR(four_at_a_time(listing.files.size(), [&](size_t i, size_t) -> Status {
    const HubFile& file = listing.files[i];
    const std::string path = folder + "/" + file.path;
    std::error_code error;
    if (!fs::is_regular_file(path, error)) return {};
    const auto at = known.find(file.path);
    const bool told = at != known.end() && at->second == file.digest;
    bool same = told && (file.size < 0 || size_at(path) == file.size);
    if (!told) {
      TERN_ASSIGN_OR_RETURN(same, is_file_of(path, file));
    }
    if (same) here[i] = &file;
    return {};
  }));
  std::vector<Missing> missing;
  for (size_t i = 0; i < here.size(); ++i) {
    const HubFile& file = listing.files[i];
    if (here[i] == nullptr) missing.push_back({&file, size_at(incomplete_path(folder, file))});
  }
  return missing;
}

// What was begun of files that are no longer asked for.
void remove_strangers(const std::string& folder, const std::vector<Missing>& missing) {
  std::error_code error;
  std::vector<fs::path> strangers;
  for (const auto& entry : fs::directory_iterator(hub_folder(folder), error)) {
    if (entry.path().extension() != ".incomplete") continue;
    const bool wanted = std::any_of(missing.begin(), missing.end(), [&](const Missing& m) {
      return fs::path(incomplete_path(folder, *m.file)).filename() == entry.path().filename();
    });
    if (!wanted) strangers.push_back(entry.path());
  }
  for (const fs::path& path : strangers) fs::remove(path, error);
}

// Files of the revision before that this one does not have: without an index the loader takes every safetensors file.
void remove_outdated(const std::string& folder, const HubListing& listing, const std::optional<HubRecord>& record) {
  if (!record) return;
  std::error_code error;
  for (const HubFile& old : record->listing.files) {
    const bool still =
        std::any_of(listing.files.begin(), listing.files.end(), [&](const HubFile& f) { return f.path == old.path; });
    if (!still) fs::remove(folder + "/" + old.path, error);
  }
}

Status check_space(const std::string& folder, int64_t bytes) {
  struct statvfs disk {};
  if (::statvfs(folder.c_str(), &disk) != 0) return {};  // writing will tell
  const double free = static_cast<double>(disk.f_bavail) * static_cast<double>(disk.f_frsize);
  if (static_cast<double>(bytes) <= free) return {};
  return make_error(ErrorCode::kResourceExhausted,
                    fmt::format("{} needs {} more, and the disk has {}", folder, bytes_text(static_cast<double>(bytes)),
                                bytes_text(free)));
}

Status fetch_missing(const HubPlan& plan, const HubListing& listing, const std::vector<Missing>& missing,
                     HubProgress& progress) {
  std::vector<std::unique_ptr<HubHttp>> connections(4);
  std::atomic<bool> stop{false};
  return four_at_a_time(missing.size(), [&](size_t index, size_t thread) -> Status {
    if (connections[thread] == nullptr) connections[thread] = std::make_unique<HubHttp>(plan);
    const HubFile& file = *missing[index].file;
    const HubTransfer transfer{plan,
                               file,
                               listing.commit,
                               file_address(plan, listing, file),
                               incomplete_path(plan.folder, file),
                               plan.folder + "/" + file.path,
                               progress,
                               stop};
    std::error_code error;  // shows where the file gets its name
    fs::create_directories(fs::path(transfer.target).parent_path(), error);
    Status status = run_transfer(*connections[thread], transfer);
    if (!status.ok()) stop = true;
    return status;
  });
}

}  // namespace

Expected<HubPull> pull_model(const HubPlan& plan) {
  if (plan.folder.empty()) {
    return make_error(ErrorCode::kInvalidArgument, "neither FD_MODEL_CACHE nor HOME says where models are kept");
  }
  std::signal(SIGXFSZ, SIG_IGN);  // a limit of file sizes is an error like a full disk
  TERN_ASSIGN_OR_RETURN(const HubListing listing, list_files(plan));
  std::error_code error;
  fs::create_directories(hub_folder(plan.folder), error);
  if (error) return make_error(ErrorCode::kIo, fmt::format("{}: {}", hub_folder(plan.folder), error.message()));
  FolderLock lock;
  TERN_RETURN_IF_ERROR(lock.take(hub_folder(plan.folder) + "/lock", [&] {
    fmt::print(stderr, "another process fetches {}; this one waits for it\n", plan.repo);
  }));
  HubPull pull{.folder = plan.folder, .commit = listing.commit, .files = listing.files.size()};
  const HubRecord record{std::string(hub_name(plan.kind)), plan.repo, plan.revision, listing};
  int64_t have = 0;
  const auto begun = read_unfinished(plan.folder);  // perhaps of another commit
  TERN_ASSIGN_OR_RETURN(const auto missing, find_missing(plan.folder, listing));
  remove_strangers(plan.folder, missing);
  for (const HubFile& file : listing.files) pull.all += std::max<int64_t>(file.size, 0);
  for (const Missing& m : missing) pull.bytes += std::max<int64_t>(m.file->size, 0), have += m.have;
  if (!missing.empty()) {
    TERN_RETURN_IF_ERROR(check_space(plan.folder, pull.bytes - have));
    TERN_RETURN_IF_ERROR(mark_unfinished(plan.folder, record));
    HubProgress progress(plan.repo, pull.bytes, have);
    TERN_RETURN_IF_ERROR(fetch_missing(plan, listing, missing, progress));
  }
  remove_outdated(plan.folder, listing, read_record(plan.folder));
  remove_outdated(plan.folder, listing, begun);
  TERN_RETURN_IF_ERROR(write_record(plan.folder, record));
  return pull;
}

}  // namespace tern::app
