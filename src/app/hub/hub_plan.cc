#include "app/hub/hub_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <fstream>

namespace tern::app {
namespace {

struct HubTraits {
  std::string_view name, endpoint, revision;
};
// In the order of HubKind.
constexpr HubTraits kHubs[] = {{"HUGGINGFACE", "https://huggingface.co", "main"},
                               {"MODELSCOPE", "https://www.modelscope.cn", "master"},
                               {"AISTUDIO", "https://git.aistudio.baidu.com", "master"}};
const HubTraits& traits(HubKind kind) { return kHubs[static_cast<size_t>(kind)]; }

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

HubKind kind_of(const Environment& environment) {
  const bool own = environment.given("FD_MODEL_SOURCE") || !environment.given("DOWNLOAD_SOURCE");
  const std::string name = lower(environment.text(own ? "FD_MODEL_SOURCE" : "DOWNLOAD_SOURCE"));
  if (name == "huggingface") return HubKind::kHuggingFace;
  return name == "modelscope" ? HubKind::kModelScope : HubKind::kAiStudio;
}

bool is_word(std::string_view text, std::string_view also) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [&](unsigned char c) {
    return (c < 0x80 && std::isalnum(c)) || also.find(static_cast<char>(c)) != std::string_view::npos;
  });
}

bool is_part(std::string_view part) {
  return part.size() <= 96 && part.front() != '.' && part.front() != '-' && is_word(part, "._-");
}

// Names of git: no "..", nothing that is a path or an option.
bool is_revision(std::string_view text) {
  return text.size() <= 200 && is_word(text, "._-/+") && text.front() != '-' && text.front() != '/' &&
         text.find("..") == std::string_view::npos && text.find("//") == std::string_view::npos;
}

std::string first_given(const Environment& environment, std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) {
    if (environment.given(name)) return environment.text(name);
  }
  return {};
}

// The first word of a small file that a hub's own client keeps; "" when there is none.
std::string first_word(const std::string& path) {
  std::ifstream file(path);
  std::string word;
  file.width(4096);
  file >> word;
  return word;
}

std::string token_of(HubKind kind, const Environment& environment) {
  if (kind == HubKind::kModelScope) return environment.text("MODELSCOPE_API_TOKEN");
  if (kind == HubKind::kAiStudio) return environment.text("AISTUDIO_ACCESS_TOKEN");
  std::string token = first_given(environment, {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"});
  if (!token.empty()) return token;
  if (environment.given("HF_HOME")) return first_word(environment.text("HF_HOME") + "/token");
  return first_word(environment.text("HOME") + "/.cache/huggingface/token");
}

Expected<std::string> endpoint_of(HubKind kind, const Environment& environment) {
  std::string at;
  if (kind == HubKind::kHuggingFace) at = first_given(environment, {"HF_ENDPOINT"});
  if (kind == HubKind::kModelScope) at = first_given(environment, {"MODELSCOPE_ENDPOINT", "MODELSCOPE_DOMAIN"});
  if (kind == HubKind::kAiStudio) at = first_given(environment, {"AISTUDIO_ENDPOINT", "STUDIO_GIT_HOST"});
  if (at.empty()) return std::string(traits(kind).endpoint);
  if (at.find("://") == std::string::npos) at = "https://" + at;
  while (at.ends_with('/')) at.pop_back();
  const bool plain = std::all_of(at.begin(), at.end(), [](unsigned char c) { return c > 0x20 && c < 0x7f; });
  if ((!at.starts_with("http://") && !at.starts_with("https://")) || !plain ||
      at.find_first_of("@?#\\") != std::string::npos) {
    return make_error(ErrorCode::kInvalidArgument, fmt::format("{} is no address of a hub: http[s]://HOST[:PORT]", at));
  }
  return at;
}

}  // namespace

std::string_view hub_name(HubKind kind) { return traits(kind).name; }

bool is_repo_name(std::string_view name) {
  const size_t slash = name.find('/');
  if (slash == std::string_view::npos || slash == 0 || slash + 1 == name.size()) return false;
  return is_part(name.substr(0, slash)) && is_part(name.substr(slash + 1));
}

std::string swapped_owner(const std::string& name) {
  constexpr std::string_view kBaidu = "baidu/", kPaddle = "PaddlePaddle/";
  if (name.starts_with(kBaidu)) return std::string(kPaddle) + name.substr(kBaidu.size());
  if (name.starts_with(kPaddle)) return std::string(kBaidu) + name.substr(kPaddle.size());
  return name;
}

std::string hub_root(const Environment& environment) {
  return environment.given("FD_MODEL_CACHE") ? environment.text("FD_MODEL_CACHE") : environment.text("HOME");
}

Expected<HubPlan> hub_plan(const std::string& name, const std::string& revision, const Environment& environment) {
  if (!is_repo_name(name)) {
    return make_error(ErrorCode::kInvalidArgument, fmt::format("{} is no name of a hub (OWNER/NAME)", name), "model");
  }
  HubPlan plan;
  plan.kind = kind_of(environment);
  // Hugging Face has Baidu's models under baidu/, the others under PaddlePaddle/.
  const std::string_view foreign = plan.kind == HubKind::kHuggingFace ? "PaddlePaddle/" : "baidu/";
  plan.repo = name.starts_with(foreign) ? swapped_owner(name) : name;
  plan.revision = revision.empty() ? std::string(traits(plan.kind).revision) : revision;
  if (plan.kind == HubKind::kHuggingFace && plan.revision == "master") plan.revision = "main";
  if (!is_revision(plan.revision)) {
    return make_error(ErrorCode::kInvalidArgument, fmt::format("{} is no name of a revision", plan.revision),
                      "revision");
  }
  TERN_ASSIGN_OR_RETURN(plan.endpoint, endpoint_of(plan.kind, environment));
  plan.token = token_of(plan.kind, environment);
  if (!std::all_of(plan.token.begin(), plan.token.end(), [](unsigned char c) { return c > 0x20 && c < 0x7f; })) {
    return make_error(ErrorCode::kInvalidArgument, "the token for the hub has characters that no token has");
  }
  if (const std::string root = hub_root(environment); !root.empty()) plan.folder = root + "/" + plan.repo;
  for (const char* variable : {"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "MODELSCOPE_OFFLINE", "AISTUDIO_OFFLINE"}) {
    if (plan.forbidden_by.empty() && environment.boolean(variable)) plan.forbidden_by = variable;
  }
  return plan;
}

json::Object describe_plan(const HubPlan& plan) {
  return {{"hub", hub_name(plan.kind)},
          {"endpoint", plan.endpoint},
          {"repository", plan.repo},
          {"revision", plan.revision},
          {"folder", plan.folder},
          {"token", !plan.token.empty()},
          {"forbidden_by", plan.forbidden_by.empty() ? json::Value(nullptr) : json::Value(plan.forbidden_by)}};
}

}  // namespace tern::app
