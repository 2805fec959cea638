#include "app/config/pooling_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>

namespace tern::app {
namespace {

using engine::PooledRows;

constexpr const char* kPooler = "override-pooler-config";

Error wrong(const char* flag, const std::string& message) {
  return make_error(ErrorCode::kInvalidArgument, fmt::format("--{} {}", flag, message), flag);
}

// The end of its name says what a model is for; of those that are known only reward models do not generate.
bool gives_rewards(const std::string& architecture) { return architecture.ends_with("RewardModel"); }

// Nothing: the model generates. Else whether it is converted to embeddings.
Expected<std::optional<bool>> choose(const FlagSet& flags, const std::string& architecture) {
  const std::string runner = flags.text("runner"), convert = flags.text("convert"), task = flags.text("task");
  const bool asks_embedding = convert == "embed" || task == "embed" || task == "embedding";
  if (gives_rewards(architecture)) {
    if (runner == "generate") return wrong("runner", fmt::format("generate: {} is a pooling model", architecture));
    if (asks_embedding) {
      return wrong(
          convert == "embed" ? "convert" : "task",
          fmt::format("{}: {} gives rewards, no embeddings", convert == "embed" ? convert : task, architecture));
    }
    return std::optional(false);
  }
  if (runner == "generate" && asks_embedding) {
    return wrong("runner",
                 fmt::format("generate contradicts --{}", convert == "embed" ? "convert embed" : "task " + task));
  }
  if (convert == "none" && (runner == "pooling" || asks_embedding)) {
    return wrong("convert", fmt::format("none: {} generates; --runner pooling needs --convert embed or auto",
                                        architecture.empty() ? "this model" : architecture));
  }
  if (runner == "pooling" || asks_embedding) return std::optional(true);
  return std::optional<bool>();
}

// What was given and would change nothing.
Status check_generating_flags(const Settings& s) {
  const FlagSet& f = s.flags;
  const auto refuse = [](const char* flag, const char* why) { return wrong(flag, why); };
  if (!f.text("scripted").empty()) return refuse("scripted", "answers in text; a pooling model gives vectors");
  if (s.paddlenlp) {
    return make_error(ErrorCode::kInvalidArgument,
                      "PaddleNLP's protocol has no embeddings and no rewards: serve a pooling model with `tern serve`",
                      "runner");
  }
  constexpr std::array kOfAnswers = {"reasoning-parser",  "tool-call-parser",         "logits-processors",
                                     "early-stop-config", "speculative-config",       "guided-decoding-backend",
                                     "enable-logprob",    "enable-early-stop",        "enable-entropy",
                                     "enable-mm-output",  "enable-keep-sampling-mask"};
  for (const char* flag : kOfAnswers) {
    if (!f.given(flag) || f.text(flag) == "off" || f.text(flag) == "false") continue;
    return refuse(flag, "has no effect with a pooling model, which draws no tokens");
  }
  return {};
}

Status read_ids(const json::Value& value, int32_t most, std::vector<int32_t>& out) {
  const json::Array* list = value.if_array();
  if (list == nullptr) return wrong(kPooler, "returned_token_ids is no list");
  for (const json::Value& v : *list) {
    const int64_t* id = v.if_int64();
    if (id == nullptr || *id < 0 || *id >= most) {
      return wrong(kPooler, fmt::format("returned_token_ids must name labels of the model, 0 to {}", most - 1));
    }
    out.push_back(static_cast<int32_t>(*id));
  }
  return {};
}

Status read_type(const std::string& type, serve::PoolingConfig& c) {
  if (type == "LAST") return c.rows = PooledRows::kLast, Status();
  if (c.rewards && (type == "STEP" || type == "ALL")) return c.rows = PooledRows::kAll, Status();
  if (!c.rewards && type == "CLS") return c.rows = PooledRows::kFirst, Status();
  if (!c.rewards && type == "MEAN") return c.rows = PooledRows::kMean, Status();
  return wrong(kPooler, fmt::format("pooling_type {} is not available: {}", type,
                                    c.rewards ? "LAST, STEP and ALL are" : "LAST, CLS and MEAN are"));
}

constexpr json::Limits kModuleLimits{.max_bytes = 1 << 20};

Error unfit(const std::string& what) {
  return make_error(ErrorCode::kUnsupported, "modules.json of sentence-transformers: " + what, kPooler);
}

// What the folder of a module that pools says: one key for each way (pooling_mode_mean_tokens), or one for all.
Status read_pooling_module(const std::string& folder, const std::string& module, serve::PoolingConfig& c) {
  if (module.empty() || module.front() == '.' || module.find('/') != std::string::npos) {
    return unfit(fmt::format("\"{}\" is no folder beside it", module));
  }
  const std::string path = fmt::format("{}/{}/config.json", folder, module);
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    return unfit(
        fmt::format("there is no {}/config.json, which says how prompts are pooled: --{} "
                    "'{{\"pooling_type\": \"LAST\"}}' says it as well",
                    module, kPooler));
  }
  TERN_ASSIGN_OR_RETURN(const json::Value value, json::parse_file(path, kModuleLimits));
  if (!value.is_object()) return unfit(fmt::format("{}/config.json is no object", module));
  std::vector<std::string> modes;
  TERN_ASSIGN_OR_RETURN(const auto one, json::get_string(value.get_object(), "pooling_mode"));
  if (one) modes.push_back(*one);
  for (const auto& [name, on] : value.get_object()) {
    const std::string key(name);
    if (key.starts_with("pooling_mode_") && on.is_bool() && on.get_bool()) modes.push_back(key.substr(13));
  }
  const std::string mode = modes.size() == 1 ? modes[0] : fmt::format("{}", fmt::join(modes, ", "));
  if (mode == "lasttoken") return c.rows = PooledRows::kLast, Status();
  if (mode == "cls_token" || mode == "cls") return c.rows = PooledRows::kFirst, Status();
  if (mode == "mean_tokens" || mode == "mean") return c.rows = PooledRows::kMean, Status();
  return unfit(fmt::format("the pooling \"{}\" is not available: lasttoken, cls_token and mean_tokens are", mode));
}

// Embedding models are often kept with the modules that sentence-transformers runs: the model, what pools, what
// normalizes. `pooled`: --override-pooler-config says how, so that the folder need not.
Status read_modules(const std::string& folder, bool pooled, serve::PoolingConfig& c) {
  const std::string path = folder + "/modules.json";
  std::error_code error;
  if (folder.empty() || !std::filesystem::exists(path, error)) return {};
  TERN_ASSIGN_OR_RETURN(const json::Value modules, json::parse_file(path, kModuleLimits));
  if (!modules.is_array()) return unfit("it is no list");
  c.normalize = false;
  for (const json::Value& module : modules.get_array()) {
    if (!module.is_object()) return unfit("one of its modules is no object");
    TERN_ASSIGN_OR_RETURN(const auto type, json::get_string(module.get_object(), "type"));
    TERN_ASSIGN_OR_RETURN(const auto at, json::get_string(module.get_object(), "path"));
    const std::string name = type ? type->substr(type->rfind('.') + 1) : "";
    if (name == "Normalize") {
      c.normalize = true;
    } else if (name == "Pooling") {
      if (!pooled) TERN_RETURN_IF_ERROR(read_pooling_module(folder, at.value_or(""), c));
    } else if (name != "Transformer") {
      return unfit(fmt::format("a module of type \"{}\" is not available", name));
    }
  }
  return {};
}

Expected<int32_t> in_range(const json::Object& config, const char* key, int64_t least) {
  TERN_ASSIGN_OR_RETURN(const auto value, json::get_int(config, key));
  if (!value || *value < least || *value > (1 << 24)) return wrong(kPooler, fmt::format("{} is out of range", key));
  return static_cast<int32_t>(*value);
}

Status read_pooler(const json::Object& config, int32_t labels, serve::PoolingConfig& c) {
  for (const auto& [name, value] : config) {
    const std::string_view key = name;
    if (value.is_null()) continue;
    const bool of_embeddings = key == "normalize" || key == "dimensions";
    const bool of_rewards = key == "softmax" || key == "step_tag_id" || key == "returned_token_ids";
    if (key != "pooling_type" && (c.rewards ? !of_rewards : !of_embeddings)) {
      return wrong(kPooler,
                   fmt::format("has no key \"{}\" for this model; its keys are pooling_type, {}", key,
                               c.rewards ? "softmax, step_tag_id, returned_token_ids" : "normalize, dimensions"));
    }
    if (key == "pooling_type") {
      TERN_ASSIGN_OR_RETURN(const auto type, json::get_string(config, key));
      TERN_RETURN_IF_ERROR(read_type(type.value_or(""), c));
    } else if (key == "dimensions") {
      TERN_ASSIGN_OR_RETURN(c.dimensions, in_range(config, "dimensions", 1));
    } else if (key == "step_tag_id") {
      TERN_ASSIGN_OR_RETURN(c.step_tag_id, in_range(config, "step_tag_id", 0));
    } else if (key == "returned_token_ids") {
      TERN_RETURN_IF_ERROR(read_ids(value, labels, c.labels));
    } else {
      TERN_ASSIGN_OR_RETURN(const auto on, json::get_bool(config, key));
      (key == "softmax" ? c.softmax : c.normalize) = on.value_or(true);
    }
  }
  if (c.step_tag_id && c.rows != PooledRows::kAll) return wrong(kPooler, "step_tag_id needs pooling_type STEP");
  return {};
}

}  // namespace

Status read_pooling_settings(Settings& s) {
  TERN_ASSIGN_OR_RETURN(const std::optional<bool> embed, choose(s.flags, s.model.architecture));
  const json::Object* pooler = s.flags.get(kPooler).if_object();
  if (!embed) {
    return pooler == nullptr ? Status() : wrong(kPooler, "needs a pooling model (--runner pooling)");
  }
  TERN_RETURN_IF_ERROR(check_generating_flags(s));
  s.load.embed = *embed;
  serve::PoolingConfig& c = s.serve.pooling.emplace();
  c.rewards = !*embed;
  // models-newer.md 3: Qwen2's score every token, and the one that judges steps gives probabilities.
  const bool judges_steps = s.model.architecture == "Qwen2ForProcessRewardModel";
  const bool judges_tokens = judges_steps || s.model.architecture == "Qwen2ForRewardModel";
  c.rows = judges_tokens ? PooledRows::kAll : PooledRows::kLast;
  c.softmax = judges_steps;
  if (*embed) {
    const bool pooled = pooler != nullptr && json::find(*pooler, "pooling_type") != nullptr;
    TERN_RETURN_IF_ERROR(read_modules(s.model.folder, pooled, c));
  }
  if (pooler != nullptr) TERN_RETURN_IF_ERROR(read_pooler(*pooler, judges_steps ? 2 : 1, c));
  // Rows are narrower than logits: a step may have one of each of its tokens.
  if (c.rows != PooledRows::kLast) s.engine.prompt_logit_rows = s.engine.scheduler.max_num_batched_tokens;
  return {};
}

}  // namespace tern::app
