#include "app/hub/find_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <vector>

#include "app/hub/hub_plan.h"
#include "app/hub/hub_pull.h"
#include "app/hub/hub_record.h"
#include "app/plain_path.h"
#include "json/json.h"

namespace tern::app {
namespace {

namespace fs = std::filesystem;

bool is_folder(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

bool is_file(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

std::string replaced(std::string text, std::string_view what, std::string_view by) {
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size()) {
    text.replace(at, what.size(), by);
  }
  return text;
}

// A folder that FastDeploy or a person filled counts as it is; a download of ours when it has ended.
bool is_usable(const std::string& folder, const std::string& revision) {
  if (!is_file(folder + "/config.json") || is_unfinished(folder)) return false;
  if (revision.empty()) return true;
  const auto record = read_record(folder);
  const auto usual = [](const std::string& r) { return r == "master" ? std::string("main") : r; };
  return !record || usual(record->revision) == usual(revision) || record->listing.commit == revision;
}

// models--OWNER--NAME/refs/REVISION names the commit of snapshots/COMMIT.
std::string in_hugging_face(const std::string& cache, const std::string& name, const std::string& revision) {
  const std::string repo = cache + "/models--" + replaced(name, "/", "--");
  if (!is_folder(repo)) return "";
  const std::string wanted = revision.empty() || revision == "master" ? "main" : revision;
  std::string commit = wanted;
  if (!is_hex(wanted, 40)) {
    if (!is_plain_path(wanted)) return "";
    std::ifstream file(repo + "/refs/" + wanted);
    file.width(64);
    if (!(file >> commit) || !is_hex(commit, 40)) return "";
  }
  const std::string folder = repo + "/snapshots/" + commit;
  return holds_model(folder) ? folder : "";
}

// models/OWNER--NAME/snapshots/REVISION; clients of before 2026 kept OWNER/NAME, with ___ for dots, below several
// roots.
std::string in_model_scope(const std::string& cache, const std::string& name, const std::string& revision) {
  std::vector<std::string> folders;
  const std::string wanted = revision.empty() || revision == "main" ? "master" : revision;
  if (is_plain_path(wanted)) {
    folders.push_back(fmt::format("{}/models/{}/snapshots/{}", cache, replaced(name, "/", "--"), wanted));
  }
  if (wanted == "master") {  // the old layouts do not tell a revision
    for (const char* root : {"/models/", "/hub/models/", "/", "/hub/"}) {
      const size_t slash = name.find('/') + 1;
      folders.push_back(cache + root + name.substr(0, slash) + replaced(name.substr(slash), ".", "___"));
      folders.push_back(cache + root + name);
    }
  }
  const auto found = std::find_if(folders.begin(), folders.end(), holds_model);
  return found != folders.end() ? *found : "";
}

Error not_here(const std::string& name, std::string_view why) {
  return make_error(ErrorCode::kNotFound,
                    fmt::format("there is no model folder {}, no such model under FD_MODEL_CACHE nor in a cache of "
                                "Hugging Face or ModelScope, and {}",
                                name, why),
                    "model");
}

}  // namespace

bool holds_model(const std::string& folder) {
  if (!is_file(folder + "/config.json")) return false;
  std::error_code error;
  const std::string index = folder + "/model.safetensors.index.json";
  if (is_file(folder + "/model.safetensors")) return true;
  if (!is_file(index)) {
    const auto weights = [](const fs::directory_entry& e) { return e.path().extension() == ".safetensors"; };
    return std::any_of(fs::directory_iterator(folder, error), fs::directory_iterator(), weights);
  }
  const auto value = json::parse_file(index, {.max_bytes = 256u << 20, .max_depth = 8});
  const json::Value* const map =
      value.ok() && value->is_object() ? json::find(value->get_object(), "weight_map") : nullptr;
  if (map == nullptr || !map->is_object()) return false;
  std::string last;
  for (const auto& [tensor, file] : map->get_object()) {
    if (!file.is_string()) return false;
    const std::string shard(file.get_string());
    if (shard != last && (!is_plain_path(shard) || !is_file(folder + "/" + shard))) return false;
    last = shard;
  }
  return true;
}

std::string hugging_face_cache(const Environment& environment) {
  for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"}) {
    if (environment.given(name)) return environment.text(name);
  }
  if (environment.given("HF_HOME")) return environment.text("HF_HOME") + "/hub";
  if (environment.given("XDG_CACHE_HOME")) return environment.text("XDG_CACHE_HOME") + "/huggingface/hub";
  return environment.given("HOME") ? environment.text("HOME") + "/.cache/huggingface/hub" : "";
}

std::string model_scope_cache(const Environment& environment) {
  if (environment.given("MODELSCOPE_CACHE")) return environment.text("MODELSCOPE_CACHE");
  return environment.given("HOME") ? environment.text("HOME") + "/.cache/modelscope" : "";
}

std::string find_folder(const std::string& name, const Environment& environment, const std::string& revision) {
  if (is_folder(name)) return name;
  const std::string home = environment.text("HOME");
  if (name.starts_with("~/") && is_folder(home + name.substr(1))) return home + name.substr(1);
  if (name.empty() || name.front() == '/' || name.front() == '.') return "";
  const std::string spellings[] = {name, swapped_owner(name)};
  if (const std::string root = hub_root(environment); !root.empty()) {
    for (const std::string& spelled : spellings) {
      if (const std::string path = root + "/" + spelled; is_folder(path) && is_usable(path, revision)) return path;
    }
  }
  if (!is_repo_name(name)) return "";
  for (const std::string& spelled : spellings) {
    std::string found = in_hugging_face(hugging_face_cache(environment), spelled, revision);
    if (found.empty()) found = in_model_scope(model_scope_cache(environment), spelled, revision);
    if (!found.empty()) return found;
  }
  return "";
}

ModelWish wish_of(const FlagSet& flags) {
  return {.name = flags.text("model"),
          .revision = flags.given("revision") ? flags.text("revision") : "",
          .download = flags.boolean("download")};
}

Expected<std::string> obtain_folder(const ModelWish& wish, const Environment& environment) {
  std::string folder = find_folder(wish.name, environment, wish.revision);
  if (!folder.empty()) return folder;
  if (!is_repo_name(wish.name)) {
    return make_error(ErrorCode::kNotFound,
                      fmt::format("there is no model folder {}; --model names a folder with config.json, safetensors "
                                  "and tokenizer files, or a model of a hub (OWNER/NAME)",
                                  wish.name),
                      "model");
  }
  TERN_ASSIGN_OR_RETURN(const HubPlan plan, hub_plan(wish.name, wish.revision, environment));
  if (!wish.download) return not_here(wish.name, "--no-download forbids to fetch it");
  if (!plan.forbidden_by.empty()) return not_here(wish.name, plan.forbidden_by + " forbids to fetch it");
  fmt::print(stderr, "fetching {} ({}) from {} into {}\n", plan.repo, plan.revision, plan.endpoint, plan.folder);
  TERN_ASSIGN_OR_RETURN(const HubPull pull, pull_model(plan));
  return pull.folder;
}

}  // namespace tern::app
