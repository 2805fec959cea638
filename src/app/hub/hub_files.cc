#include "app/hub/hub_files.h"

#include <fmt/format.h>

#include <algorithm>

#include "app/plain_path.h"

namespace tern::app {
namespace {

constexpr size_t kMostFiles = 100'000;
// Where sentence-transformers says how an embedding model pools: the one file in a folder that is used.
constexpr std::string_view kPooling = "1_Pooling/config.json";

bool is_weights(std::string_view path) { return path.ends_with(".safetensors"); }

bool is_small_file(std::string_view path) {
  constexpr std::string_view kEnds[] = {".json", ".jinja", ".model", ".tiktoken"};
  constexpr std::string_view kNames[] = {"merges.txt", "vocab.txt"};
  return std::any_of(std::begin(kEnds), std::end(kEnds), [&](auto end) { return path.ends_with(end); }) ||
         std::find(std::begin(kNames), std::end(kNames), path) != std::end(kNames);
}

bool has(const HubListing& listing, std::string_view path) {
  return std::any_of(listing.files.begin(), listing.files.end(), [&](const HubFile& f) { return f.path == path; });
}

}  // namespace

bool is_hex(std::string_view text, size_t digits) {
  return text.size() == digits &&
         std::all_of(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

std::string lfs_pointer(std::string_view sha256, int64_t size) {
  return fmt::format("version https://git-lfs.github.com/spec/v1\noid sha256:{}\nsize {}\n", sha256, size);
}

Status add_file(HubListing& listing, HubFile file) {
  if (!is_plain_path(file.path)) {
    return make_error(ErrorCode::kCorrupt, "the hub names a file that is not below the model's folder");
  }
  const bool nested = file.path.find('/') != std::string::npos && file.path != kPooling;
  if (nested || file.path.front() == '.') return {};
  if (listing.files.size() >= kMostFiles) {
    return make_error(ErrorCode::kTooLarge, fmt::format("the hub names more than {} files", kMostFiles));
  }
  listing.files.push_back(std::move(file));
  return {};
}

Status keep_used_files(HubListing& listing) {
  auto& files = listing.files;
  std::sort(files.begin(), files.end(), [](const HubFile& a, const HubFile& b) { return a.path < b.path; });
  const auto twice = std::adjacent_find(files.begin(), files.end(),
                                        [](const HubFile& a, const HubFile& b) { return a.path == b.path; });
  if (twice != files.end()) {
    return make_error(ErrorCode::kCorrupt, fmt::format("the hub names {} twice", twice->path));
  }
  // As the loader chooses: one file, else shards with an index. Beside an index, consolidated*.safetensors are the same
  // weights once more.
  const bool whole = has(listing, "model.safetensors"), index = has(listing, "model.safetensors.index.json");
  std::erase_if(files, [&](const HubFile& file) {
    if (!is_weights(file.path)) return !is_small_file(file.path);
    if (whole) return file.path != "model.safetensors";
    return index && file.path.starts_with("consolidated");
  });
  if (!has(listing, "config.json")) {
    return make_error(ErrorCode::kUnsupported, "the repository has no config.json");
  }
  if (std::none_of(files.begin(), files.end(), [](const HubFile& f) { return is_weights(f.path); })) {
    return make_error(ErrorCode::kUnsupported,
                      "the repository has no weights in safetensors, and pickled ones are not read");
  }
  return {};
}

}  // namespace tern::app
