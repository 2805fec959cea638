// Where a model's name leads: which hub, which repository there, which folder here (fastdeploy.md 12.3).
#pragma once

#include <string>
#include <string_view>

#include "app/flags/environment.h"
#include "base/error.h"
#include "json/json.h"

namespace tern::app {

enum class HubKind { kHuggingFace, kModelScope, kAiStudio };
std::string_view hub_name(HubKind kind);  // as FD_MODEL_SOURCE spells it

struct HubPlan {
  HubKind kind = HubKind::kAiStudio;
  std::string repo;          // owner/name as this hub spells it
  std::string revision;      // a branch, tag or commit
  std::string endpoint;      // http[s]://host[:port][/path], no slash at the end
  std::string token;         // "": none
  std::string folder;        // ${FD_MODEL_CACHE:-$HOME}/<repo>; "" without both
  std::string forbidden_by;  // the variable that forbids to ask the hub; "": none
};

// Whether a name can be one of a hub: owner/name of letters, digits, '.', '_' and '-'.
bool is_repo_name(std::string_view name);
// "baidu/X" for "PaddlePaddle/X" and the other way round; the name itself otherwise.
std::string swapped_owner(const std::string& name);
// The folder below which names of hubs are kept: FD_MODEL_CACHE, else HOME; "" without both.
std::string hub_root(const Environment& environment);

// `revision`: "" for the hub's usual one. Errors: kInvalidArgument for a name or revision that no hub has, and for an
// address of a hub that is none.
Expected<HubPlan> hub_plan(const std::string& name, const std::string& revision, const Environment& environment);
// For --dry-run; the token is not in it, only whether there is one.
json::Object describe_plan(const HubPlan& plan);

}  // namespace tern::app
