#include "app/hub/hub_json.h"

#include <fmt/format.h>

#include "base/sha256.h"
#include "json/json.h"

namespace tern::app {
namespace {

constexpr int64_t kMostBytes = int64_t{1} << 50;

Error wrong(std::string_view what) { return make_error(ErrorCode::kCorrupt, fmt::format("the hub's answer {}", what)); }

Expected<json::Value> parse_object(std::string_view text) {
  auto value = json::parse(text, {.max_bytes = kMostHubJson, .max_depth = 32, .max_memory_ratio = 32});
  if (!value.ok()) return wrong("is no JSON: " + value.error().message);
  if (!value->is_object()) return wrong("is no JSON object");
  return value;
}

Expected<std::string> text_of(const json::Object& object, std::string_view key) {
  TERN_ASSIGN_OR_RETURN(const auto text, json::get_string(object, key));
  if (!text) return wrong(fmt::format("has no {}", key));
  return *text;
}

Expected<int64_t> size_of(const json::Object& object, std::string_view key) {
  TERN_ASSIGN_OR_RETURN(const auto size, json::get_int(object, key));
  if (!size || *size < 0 || *size > kMostBytes) return wrong("tells no size of a file");
  return *size;
}

Expected<const json::Array*> list_of(const json::Object& object, std::string_view key) {
  const json::Value* const value = json::find(object, key);
  if (value == nullptr || !value->is_array()) return wrong(fmt::format("has no list {}", key));
  return &value->get_array();
}

Expected<const json::Object*> object_of(const json::Value* value) {
  if (value == nullptr || !value->is_object()) return wrong("has another form");
  return &value->get_object();
}

}  // namespace

Expected<HubListing> parse_hugging_face(std::string_view text) {
  TERN_ASSIGN_OR_RETURN(const json::Value root, parse_object(text));
  HubListing listing;
  TERN_ASSIGN_OR_RETURN(listing.commit, text_of(root.get_object(), "sha"));
  if (!is_hex(listing.commit, 40)) return wrong("names no commit");
  TERN_ASSIGN_OR_RETURN(const json::Array* const files, list_of(root.get_object(), "siblings"));
  for (const json::Value& item : *files) {
    TERN_ASSIGN_OR_RETURN(const json::Object* const file, object_of(&item));
    TERN_ASSIGN_OR_RETURN(std::string path, text_of(*file, "rfilename"));
    TERN_RETURN_IF_ERROR(add_file(listing, {.path = std::move(path)}));
  }
  return listing;
}

Expected<HubListing> parse_model_scope(std::string_view text) {
  TERN_ASSIGN_OR_RETURN(const json::Value root, parse_object(text));
  TERN_ASSIGN_OR_RETURN(const json::Object* const data, object_of(json::find(root.get_object(), "Data")));
  TERN_ASSIGN_OR_RETURN(const json::Array* const files, list_of(*data, "Files"));
  HubListing listing;
  std::string all;
  for (const json::Value& item : *files) {
    TERN_ASSIGN_OR_RETURN(const json::Object* const file, object_of(&item));
    TERN_ASSIGN_OR_RETURN(const auto type, json::get_string(*file, "Type"));
    HubFile out;
    TERN_ASSIGN_OR_RETURN(out.path, text_of(*file, "Path"));
    if (type && *type == "tree") continue;
    TERN_ASSIGN_OR_RETURN(out.size, size_of(*file, "Size"));
    TERN_ASSIGN_OR_RETURN(out.digest, text_of(*file, "Sha256"));
    if (!is_hex(out.digest, 64)) return wrong("has no SHA-256 of a file");
    out.hash = HubHash::kSha256;
    all += out.path + '\n' + out.digest + '\n';
    TERN_RETURN_IF_ERROR(add_file(listing, std::move(out)));
  }
  listing.commit = sha256_hex(all.data(), all.size()).substr(0, 40);
  return listing;
}

Expected<std::string> parse_tag(std::string_view text) {
  TERN_ASSIGN_OR_RETURN(const json::Value root, parse_object(text));
  TERN_ASSIGN_OR_RETURN(const json::Object* const commit, object_of(json::find(root.get_object(), "commit")));
  TERN_ASSIGN_OR_RETURN(std::string sha, text_of(*commit, "sha"));
  if (!is_hex(sha, 40)) return wrong("names no commit");
  return sha;
}

Expected<bool> parse_tree(std::string_view text, HubListing& listing) {
  TERN_ASSIGN_OR_RETURN(const json::Value root, parse_object(text));
  const json::Object& page = root.get_object();
  TERN_ASSIGN_OR_RETURN(const std::string commit, text_of(page, "sha"));
  if (!is_hex(commit, 40)) return wrong("names no commit");
  if (listing.commit.empty()) listing.commit = commit;
  TERN_ASSIGN_OR_RETURN(const json::Array* const files, list_of(page, "tree"));
  for (const json::Value& item : *files) {
    TERN_ASSIGN_OR_RETURN(const json::Object* const file, object_of(&item));
    TERN_ASSIGN_OR_RETURN(const auto type, json::get_string(*file, "type"));
    if (type && *type != "blob") continue;
    HubFile out;
    TERN_ASSIGN_OR_RETURN(out.path, text_of(*file, "path"));
    TERN_ASSIGN_OR_RETURN(out.size, size_of(*file, "size"));
    TERN_ASSIGN_OR_RETURN(out.digest, text_of(*file, "sha"));
    if (!is_hex(out.digest, 40)) return wrong("has no digest of a file");
    out.hash = HubHash::kGitBlobOrPointer;
    out.blob_size = out.size;
    TERN_RETURN_IF_ERROR(add_file(listing, std::move(out)));
  }
  TERN_ASSIGN_OR_RETURN(const auto truncated, json::get_bool(page, "truncated"));
  if (truncated && *truncated && files->empty()) return wrong("has an empty page that is not the last");
  return truncated.value_or(false);
}

}  // namespace tern::app
