#include "serve/prepare/messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "serve/core/invalid.h"

namespace tern::serve::prepare {
namespace {

using content::MediaKind;
using content::MediaPart;

// Settings of one medium: they stand in its part, beside its url, or in the request's mm_processor_kwargs.
constexpr std::string_view kMediaKwargs[] = {"fps",           "min_frames", "max_frames", "target_frames",
                                             "frames_sample", "min_pixels", "max_pixels"};

std::string_view kind_name(MediaKind kind) { return kind == MediaKind::kImage ? "image" : "video"; }

std::string_view type_of(const json::Object& part) {
  const json::Value* type = json::find(part, "type");
  return type != nullptr && type->is_string() ? std::string_view(type->get_string()) : std::string_view();
}

void copy_kwargs(const json::Object& from, json::Object& to) {
  for (const auto key : kMediaKwargs) {
    if (const json::Value* value = json::find(from, key)) to[key] = *value;
  }
}

// The request's kwargs go by the names of the server's flag too: "video_fps" is "fps" of every video.
void copy_shared_kwargs(const json::Object& from, MediaKind kind, json::Object& to) {
  for (const auto key : kMediaKwargs) {
    const json::Value* value = json::find(from, fmt::format("{}_{}", kind_name(kind), key));
    if (value == nullptr) value = json::find(from, key);
    if (value != nullptr) to[key] = *value;
  }
}

// Takes the strings out of the part: a data: URL may be most of the body.
Expected<MediaPart> take_media(json::Object& part, MediaKind kind, const json::Object* shared, std::string where,
                               size_t max_uuid) {
  MediaPart media;
  media.kind = kind;
  const std::string key = fmt::format("{}_url", kind_name(kind));
  if (shared != nullptr) copy_shared_kwargs(*shared, kind, media.kwargs);
  copy_kwargs(part, media.kwargs);
  json::Value* url = part.if_contains(key);
  if (url != nullptr && url->is_object()) {
    copy_kwargs(url->get_object(), media.kwargs);
    url = url->get_object().if_contains("url");
  }
  if (url != nullptr && !url->is_null()) {
    if (!url->is_string()) return invalid_value("Input should be a valid string", std::move(where));
    media.url.assign(url->get_string().data(), url->get_string().size());
    *url = nullptr;
  }
  if (const json::Value* uuid = json::find(part, "uuid")) {
    if (!uuid->is_string()) return invalid_value("Input should be a valid string", std::move(where));
    if (uuid->get_string().size() > max_uuid) {
      return invalid_value(fmt::format("uuid should have at most {} bytes", max_uuid), std::move(where));
    }
    media.uuid = std::string(uuid->get_string());
  }
  if (media.url.empty() && media.uuid.empty()) {
    return invalid_value(fmt::format("Both {} and uuid are missing", key), std::move(where));
  }
  media.where = std::move(where);
  return media;
}

// One content list at a time; counts go over all messages.
class Contents {
 public:
  Contents(const ServeConfig& config, const json::Object* shared, Ask& ask)
      : config_(config), shared_(shared), ask_(ask) {}

  // The list becomes what a template may see; for a model of text a string.
  Status take(json::Value& content, size_t message) {
    json::Array& parts = content.get_array();
    json::Array seen;
    std::string text;
    for (size_t i = 0; i < parts.size(); ++i) {
      const std::string where = fmt::format("messages[{}].content[{}]", message, i);
      if (!parts[i].is_object()) return invalid_value("Input should be a valid dictionary", param(where));
      json::Object& part = parts[i].get_object();
      const std::string_view type = type_of(part);
      if (type == "text") {
        json::Value* piece = part.if_contains("text");
        if (piece == nullptr || !piece->is_string()) return invalid_value("Input should be a valid string", "text");
        if (config_.media.images) {
          seen.push_back(json::Object{{"type", "text"}, {"text", std::move(*piece)}});
        } else {
          if (i > 0) text += '\n';
          text += std::string_view(piece->get_string());
        }
        continue;
      }
      TERN_RETURN_IF_ERROR(take_other(part, type, where, seen));
    }
    if (config_.media.images)
      content = std::move(seen);
    else
      content = text;
    return {};
  }

  Status check_counts() const {
    const auto check = [](std::string_view name, size_t count, int32_t limit) -> Status {
      if (count <= static_cast<size_t>(limit)) return {};
      return invalid_value(fmt::format("Too many {} items in prompt, got {} but limit is {}", name, count, limit),
                           "messages");
    };
    TERN_RETURN_IF_ERROR(check("image", images_, config_.media.max_images));
    return check("video", videos_, config_.media.max_videos);
  }

 private:
  std::string param(const std::string& where) const { return config_.media.images ? where : "content"; }

  Status take_other(json::Object& part, std::string_view type, const std::string& where, json::Array& seen) {
    const bool picture = type == "image_url", video = type == "video_url";
    const bool medium =
        picture || video || type == "audio_url" || type == "input_audio" || type == "image" || type == "video";
    if (!config_.media.images && medium) {
      return invalid_value(fmt::format("this model takes text only: a content part of type {} cannot be used", type),
                           "content");
    }
    if (!picture && !video) {
      return invalid_value(fmt::format("Unknown content part type: {}", type.substr(0, 64)), param(where));
    }
    if (video && !config_.media.videos) {
      return invalid_value("this model takes pictures only: a content part of type video_url cannot be used", where);
    }
    size_t& count = picture ? images_ : videos_;
    ++count;
    if (count > static_cast<size_t>(picture ? config_.media.max_images : config_.media.max_videos)) return {};
    const MediaKind kind = picture ? MediaKind::kImage : MediaKind::kVideo;
    TERN_ASSIGN_OR_RETURN(auto media, take_media(part, kind, shared_, where, config_.limits.id_bytes));
    ask_.media.push_back(std::move(media));
    seen.push_back(json::Object{{"type", kind_name(kind)}});
    return {};
  }

  const ServeConfig& config_;
  const json::Object* shared_;
  Ask& ask_;
  size_t images_ = 0, videos_ = 0;
};

void drop_nulls(json::Object& object, std::string_view kept) {
  for (auto it = object.begin(); it != object.end();) {
    it = it->value().is_null() && it->key() != kept ? object.stable_erase(it) : it + 1;
  }
}

// Client libraries write every field of an answer that they send back, and null for none; templates ask whether a key
// is there. What an absent content is differs from template to template (shape_messages).
void drop_absent(json::Object& message) {
  drop_nulls(message, "content");
  json::Value* calls = message.if_contains("tool_calls");
  if (calls == nullptr || !calls->is_array()) return;
  if (calls->get_array().empty()) {
    message.stable_erase(message.find("tool_calls"));
    return;
  }
  for (auto& call : calls->get_array()) {
    if (call.is_object()) drop_nulls(call.get_object(), {});
  }
}

}  // namespace

bool is_shared_media_kwarg(std::string_view key) {
  for (const MediaKind kind : {MediaKind::kImage, MediaKind::kVideo}) {
    const std::string_view name = kind_name(kind);
    if (key.size() > name.size() && key.starts_with(name) && key[name.size()] == '_') {
      key.remove_prefix(name.size() + 1);
      break;
    }
  }
  return std::find(std::begin(kMediaKwargs), std::end(kMediaKwargs), key) != std::end(kMediaKwargs);
}

Status take_messages(json::Array& messages, const json::Object* shared, const ServeConfig& config, Ask& ask) {
  if (messages.empty()) return invalid_value("List should have at least 1 item", "messages");
  if (messages.size() > static_cast<size_t>(config.limits.messages)) {
    return invalid_value(
        fmt::format("List should have at most {} items, not {}", config.limits.messages, messages.size()), "messages");
  }
  Contents contents(config, shared, ask);
  for (size_t i = 0; i < messages.size(); ++i) {
    if (!messages[i].is_object()) return invalid_value("Input should be a valid dictionary", "messages");
    json::Object& message = messages[i].get_object();
    const json::Value* role = json::find(message, "role");
    if (role == nullptr) return invalid_value("Field required", "role");
    if (!role->is_string()) return invalid_value("Input should be a valid string", "role");
    json::Value* content = message.if_contains("content");
    if (content != nullptr && content->is_array()) {
      TERN_RETURN_IF_ERROR(contents.take(*content, i));
    } else if (content != nullptr && !content->is_string() && !content->is_null()) {
      return invalid_value("Input should be a valid string", "content");
    }
    drop_absent(message);
  }
  TERN_RETURN_IF_ERROR(contents.check_counts());
  ask.messages = std::move(messages);
  return {};
}

}  // namespace tern::serve::prepare
