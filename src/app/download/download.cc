#include "app/download/download.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>

#include <fmt/format.h>

#include "app/download/file_list.h"
#include "app/download/md5.h"
#include "app/download/transfer.h"
#include "app/folder_lock.h"

namespace tern::app {
namespace {

namespace fs = std::filesystem;
constexpr std::string_view kRelease = "3.0.0.b4";
constexpr size_t kMostListBytes = 16u << 20;

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

Expected<std::string> sum_of(const std::string& path) {
  const std::unique_ptr<std::FILE, CloseFile> file(std::fopen(path.c_str(), "rbe"));
  if (file == nullptr) return make_error(ErrorCode::kIo, fmt::format("{}: {}", path, std::strerror(errno)));
  Md5 md5;
  std::string buffer(1u << 20, '\0');
  while (const size_t size = std::fread(buffer.data(), 1, buffer.size(), file.get())) md5.add(buffer.data(), size);
  if (std::ferror(file.get()) != 0) return make_error(ErrorCode::kIo, path + ": cannot be read");
  return md5.hex();
}

// The folder of a listed file, made once it is clear that no link on the way leads out of the model's folder.
Status make_parent(const fs::path& root, const fs::path& target) {
  std::error_code error, root_error;
  const fs::path real = fs::weakly_canonical(target.parent_path(), error), real_root = fs::canonical(root, root_error);
  const auto [end, rest] = std::mismatch(real_root.begin(), real_root.end(), real.begin(), real.end());
  if (error || root_error || end != real_root.end()) {
    return make_error(ErrorCode::kInvalidArgument, fmt::format("{} leads out of {}", target.string(), root.string()));
  }
  fs::create_directories(target.parent_path(), error);
  if (error) return make_error(ErrorCode::kIo, fmt::format("{}: {}", target.parent_path().string(), error.message()));
  return {};
}

// Leaves the file under its name, or says why not.
Status fetch_one(const DownloadPlan& plan, const ListedFile& file, const std::string& url) {
  const fs::path target = fs::path(plan.folder) / file.path;
  TERN_RETURN_IF_ERROR(make_parent(plan.folder, target));
  std::error_code error;
  if (fs::is_regular_file(target, error)) {
    if (!plan.check_present) return {};
    TERN_ASSIGN_OR_RETURN(const std::string sum, sum_of(target));
    if (sum == file.md5) return {};
    fmt::print("{}: its MD5 sum differs, it is fetched again\n", target.string());
  }
  const std::string part = target.string() + ".part";
  const bool resumed = fs::exists(part, error);
  TERN_RETURN_IF_ERROR(fetch_file(url, part));
  TERN_ASSIGN_OR_RETURN(std::string sum, sum_of(part));
  if (sum != file.md5 && resumed) {  // what was left may have been of another file
    fs::remove(part, error);
    TERN_RETURN_IF_ERROR(fetch_file(url, part));
    TERN_ASSIGN_OR_RETURN(sum, sum_of(part));
  }
  if (sum != file.md5) {
    fs::remove(part, error);
    return make_error(ErrorCode::kCorrupt, fmt::format("its MD5 sum is {}, the list says {}", sum, file.md5));
  }
  fs::rename(part, target, error);
  if (error) return make_error(ErrorCode::kIo, fmt::format("{}: {}", target.string(), error.message()));
  fmt::print("{}\n", target.string());
  std::fflush(stdout);
  return {};
}

}  // namespace

DownloadPlan download_plan(const Environment& environment, const std::string& model_name) {
  DownloadPlan plan;
  plan.base_url = environment.text("PADDLENLP_STATIC_MODEL_URL");
  while (plan.base_url.ends_with('/')) plan.base_url.pop_back();
  plan.tag = environment.text("tag").empty() ? std::string(kRelease) : environment.text("tag");
  plan.model_name = model_name;
  plan.check_present = environment.boolean("MD5_CHECK");
  return plan;
}

std::string download_part(int64_t nodes, bool master) {
  if (nodes == 1) return "model";
  return master ? "node1" : "node2";
}

Status download(const DownloadPlan& plan) {
  TERN_RETURN_IF_ERROR(check_model_name(plan.model_name));
  std::error_code error;
  fs::create_directories(plan.folder, error);
  if (error) return make_error(ErrorCode::kIo, fmt::format("{}: {}", plan.folder, error.message()));
  FolderLock lock;
  TERN_RETURN_IF_ERROR(lock.take(plan.folder + "/.download.lock", [&] {
    fmt::print("another download into {} is running; this one waits for it\n", plan.folder);
    std::fflush(stdout);
  }));
  const std::string base =
      fmt::format("{}/{}/{}/{}", plan.base_url, escape_path(plan.tag), escape_path(plan.model_name), plan.part);
  const std::string list_url = base + "/file_list.txt";
  auto text = fetch_text(list_url, kMostListBytes);
  if (!text.ok()) {
    return make_error(ErrorCode::kUnavailable,
                      fmt::format("Failed to download file list from URL: {} ({})", list_url, text.error().message));
  }
  TERN_ASSIGN_OR_RETURN(const auto files, parse_file_list(*text));
  Status first;
  for (const ListedFile& file : files) {
    const std::string url = base + "/" + escape_path(file.path);
    const Status status = fetch_one(plan, file, url);
    if (status.ok()) continue;
    fmt::print("[×] Failed: {} ({})\n", url, status.error().message);
    std::fflush(stdout);
    if (first.ok()) first = make_error(status.error().code, fmt::format("{}: {}", url, status.error().message));
  }
  return first;
}

}  // namespace tern::app
