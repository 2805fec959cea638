#include "app/hub/hub_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "json/json.h"

namespace tern::app {
namespace {

namespace fs = std::filesystem;
constexpr json::Limits kRecordLimits{.max_bytes = 64u << 20, .max_depth = 8};
constexpr const char *kRecord = "/record.json", *kUnfinished = "/unfinished.json";
constexpr const char* kHashNames[] = {"none", "sha256", "git", "git or lfs"};

Error wrong(std::string_view what) { return make_error(ErrorCode::kCorrupt, fmt::format("record: {}", what)); }

Expected<std::string> text_of(const json::Object& object, std::string_view key) {
  TERN_ASSIGN_OR_RETURN(auto text, json::get_string(object, key));
  if (!text) return wrong(key);
  return *std::move(text);
}

Expected<int64_t> number_of(const json::Object& object, std::string_view key) {
  TERN_ASSIGN_OR_RETURN(const auto number, json::get_int(object, key));
  if (!number || *number < -1) return wrong(key);
  return *number;
}

Expected<HubFile> parse_file(const json::Value& value) {
  if (!value.is_object()) return wrong("files");
  HubFile file;
  TERN_ASSIGN_OR_RETURN(file.path, text_of(value.get_object(), "path"));
  TERN_ASSIGN_OR_RETURN(file.size, number_of(value.get_object(), "size"));
  TERN_ASSIGN_OR_RETURN(file.blob_size, number_of(value.get_object(), "blob_size"));
  TERN_ASSIGN_OR_RETURN(file.digest, text_of(value.get_object(), "digest"));
  TERN_ASSIGN_OR_RETURN(const std::string hash, text_of(value.get_object(), "hash"));
  const auto at = std::find(std::begin(kHashNames), std::end(kHashNames), hash);
  if (at == std::end(kHashNames)) return wrong("hash");
  file.hash = static_cast<HubHash>(at - std::begin(kHashNames));
  return file;
}

std::optional<HubRecord> read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  auto record = parse_record(text);
  if (!record.ok()) return std::nullopt;
  return std::move(record).value();
}

// Whole or not at all.
Status write(const std::string& path, const HubRecord& record) {
  json::Array files;
  for (const HubFile& file : record.listing.files) {
    files.push_back(json::Object{{"path", file.path},
                                 {"size", file.size},
                                 {"blob_size", file.blob_size},
                                 {"hash", kHashNames[static_cast<size_t>(file.hash)]},
                                 {"digest", file.digest}});
  }
  const json::Object object{{"hub", record.hub},
                            {"repository", record.repo},
                            {"revision", record.revision},
                            {"commit", record.listing.commit},
                            {"files", std::move(files)}};
  const std::string made = path + ".new";
  std::ofstream out(made, std::ios::binary);
  out << json::dump(object) << '\n';
  out.close();
  std::error_code error;
  if (out) fs::rename(made, path, error);
  if (!out || error) return make_error(ErrorCode::kIo, fmt::format("cannot write {}", path));
  return {};
}

}  // namespace

std::string hub_folder(const std::string& folder) { return folder + "/.tern-hub"; }

Expected<HubRecord> parse_record(std::string_view text) {
  TERN_ASSIGN_OR_RETURN(const json::Value root, json::parse(text, kRecordLimits));
  if (!root.is_object()) return wrong("no object");
  const json::Object& object = root.get_object();
  HubRecord record;
  TERN_ASSIGN_OR_RETURN(record.hub, text_of(object, "hub"));
  TERN_ASSIGN_OR_RETURN(record.repo, text_of(object, "repository"));
  TERN_ASSIGN_OR_RETURN(record.revision, text_of(object, "revision"));
  TERN_ASSIGN_OR_RETURN(record.listing.commit, text_of(object, "commit"));
  if (!is_repo_name(record.repo)) return wrong("repository");
  const json::Value* const files = json::find(object, "files");
  if (files == nullptr || !files->is_array()) return wrong("files");
  for (const json::Value& item : files->get_array()) {
    TERN_ASSIGN_OR_RETURN(HubFile file, parse_file(item));
    const size_t before = record.listing.files.size();
    TERN_RETURN_IF_ERROR(add_file(record.listing, std::move(file)));
    if (record.listing.files.size() == before) return wrong("path");
  }
  return record;
}

std::optional<HubRecord> read_record(const std::string& folder) { return read(hub_folder(folder) + kRecord); }
std::optional<HubRecord> read_unfinished(const std::string& folder) { return read(hub_folder(folder) + kUnfinished); }

bool is_unfinished(const std::string& folder) {
  std::error_code error;
  return fs::exists(hub_folder(folder) + kUnfinished, error);
}

Status mark_unfinished(const std::string& folder, const HubRecord& record) {
  return write(hub_folder(folder) + kUnfinished, record);
}

Status write_record(const std::string& folder, const HubRecord& record) {
  TERN_RETURN_IF_ERROR(write(hub_folder(folder) + kRecord, record));
  std::error_code error;
  fs::remove(hub_folder(folder) + kUnfinished, error);
  return error ? Status(make_error(ErrorCode::kIo, fmt::format("{}: {}", folder, error.message()))) : Status();
}

}  // namespace tern::app
