#include "content/media/profile/prompt_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tern::content {
namespace {

constexpr size_t kMostTokens = size_t{1} << 27;  // of a prompt with everything expanded

Error bad(std::string text) { return make_error(ErrorCode::kInvalidArgument, std::move(text)); }

Error wrong_count(const char* kind, size_t placeholders, size_t media) {
  return bad(fmt::format("The prompt has {} {} placeholders for {} {} items; {}", placeholders, kind, media, kind,
                         placeholders > media ? "texts of a request must not contain them"
                                              : "it must have one for each, as the chat template writes it"));
}

// Hands out the media of a request: pictures for placeholders of pictures, videos for those of videos, each in order.
class MediaQueue {
 public:
  explicit MediaQueue(std::span<const PreparedMediaPtr> media) {
    for (size_t i = 0; i < media.size(); i++) (media[i]->kind == MediaKind::kImage ? images_ : videos_).push_back(i);
  }
  // The next item's index; false when there is none left.
  bool next(MediaKind kind, size_t* index) {
    const bool image = kind == MediaKind::kImage;
    const auto& list = image ? images_ : videos_;
    size_t& used = image ? images_used_ : videos_used_;
    if (used++ >= list.size()) return false;
    *index = list[used - 1];
    return true;
  }
  // All placeholders have been counted: were they as many as the media?
  Status check() const {
    if (images_used_ != images_.size()) return wrong_count("image", images_used_, images_.size());
    if (videos_used_ != videos_.size()) return wrong_count("video", videos_used_, videos_.size());
    return {};
  }

 private:
  std::vector<size_t> images_, videos_;
  size_t images_used_ = 0, videos_used_ = 0;
};

class Builder {
 public:
  Builder(const VisionProfile& profile, std::span<const PreparedMediaPtr> media) : profile_(profile), media_(media) {}

  const std::vector<int32_t>& ids() const { return out_.ids; }
  void add_ids(std::span<const int32_t> ids) { out_.ids.insert(out_.ids.end(), ids.begin(), ids.end()); }
  void add_id(int32_t id) { out_.ids.push_back(id); }

  // The placeholders of one item, without markers.
  Status add_item(size_t index) {
    const PreparedMedia& item = *media_[index];
    const bool image = item.kind == MediaKind::kImage;
    if (out_.ids.size() + static_cast<size_t>(item.tokens) > kMostTokens) return bad("The prompt is too long");
    auto begin = static_cast<int32_t>(out_.ids.size());
    spans_.push_back({.begin = begin, .t = item.t, .h = item.h, .w = item.w, .t_step = item.t_step});
    for (size_t u = 0; u < item.units.size(); u++) {
      out_.units.push_back({index, u, begin, begin + item.units[u].tokens});
      begin += item.units[u].tokens;
    }
    out_.ids.insert(out_.ids.end(), item.tokens, image ? profile_.image.id : profile_.video.id);
    (image ? out_.image_tokens : out_.video_tokens) += item.tokens;
    return {};
  }

  Expected<PromptLayout> finish() {
    if (out_.ids.size() > kMostTokens) return bad("The prompt is too long");
    image::Positions positions = image::make_positions(static_cast<int32_t>(out_.ids.size()), spans_, profile_.advance);
    out_.positions = std::move(positions.values);
    out_.rope_delta = positions.delta;
    return std::move(out_);
  }

 private:
  const VisionProfile& profile_;
  std::span<const PreparedMediaPtr> media_;
  std::vector<image::PositionSpan> spans_;
  PromptLayout out_;
};

struct Found {
  size_t at = std::string_view::npos, size = 0;
  MediaKind kind = MediaKind::kImage;
};

// Placeholders of a text from the left; of two that begin at one place the longer one. Every byte is looked at a fixed
// number of times: where a spelling comes next is remembered.
class PlaceholderScanner {
 public:
  PlaceholderScanner(const VisionProfile& profile, std::string_view text) : text_(text) {
    for (const std::string& s : profile.image.texts) add(s, MediaKind::kImage);
    if (profile.takes_video) {
      for (const std::string& s : profile.video.texts) add(s, MediaKind::kVideo);
    }
  }

  // The first at or after `from`.
  Found next(size_t from) {
    Found best;
    for (Spelling& s : spellings_) {
      if (s.at != std::string_view::npos && s.at < from) s.at = text_.find(s.text, from);
      if (s.at == std::string_view::npos) continue;
      if (best.size == 0 || s.at < best.at || (s.at == best.at && s.text.size() > best.size)) {
        best = {s.at, s.text.size(), s.kind};
      }
    }
    return best;
  }

 private:
  struct Spelling {
    std::string_view text;
    MediaKind kind;
    size_t at;
  };
  void add(const std::string& text, MediaKind kind) {
    if (!text.empty()) spellings_.push_back({text, kind, text_.find(text)});
  }
  std::string_view text_;
  std::vector<Spelling> spellings_;
};

const Placeholder& placeholder_of(const VisionProfile& profile, MediaKind kind) {
  return kind == MediaKind::kImage ? profile.image : profile.video;
}

bool is_placeholder(const VisionProfile& profile, int32_t id) {
  return id == profile.image.id || (profile.takes_video && id == profile.video.id);
}

// A text between placeholders. It must not turn into placeholders by itself.
Expected<std::vector<int32_t>> encode_piece(const VisionProfile& profile, const Tokenizer& tokenizer,
                                            std::string_view text, const EncodeBounds& bounds) {
  TERN_ASSIGN_OR_RETURN(std::vector<int32_t> ids, tokenizer.encode(text, false, bounds));
  if (std::any_of(ids.begin(), ids.end(), [&](int32_t id) { return is_placeholder(profile, id); })) {
    return bad("The texts of a request must not contain placeholders of pictures");
  }
  return ids;
}

// How many ids of a run of equal placeholders, from the first on, stand for the item: all of its tokens, where the run
// is made of whole items; else one, which is expanded.
bool run_is_expanded(std::span<const PreparedMediaPtr> media, const std::vector<size_t>& order, size_t next,
                     size_t run) {
  size_t sum = 0;
  for (; next < order.size() && sum < run; next++) sum += static_cast<size_t>(media[order[next]]->tokens);
  return sum == run;
}

}  // namespace

Expected<PromptLayout> layout_prompt(const VisionProfile& profile, std::string_view rendered,
                                     const Tokenizer& tokenizer, std::span<const PreparedMediaPtr> media,
                                     const EncodeBounds& bounds) {
  MediaQueue queue(media);
  Builder builder(profile, media);
  PlaceholderScanner scanner(profile, rendered);
  // Counted before anything is tokenized.
  std::vector<std::pair<Found, size_t>> places;
  for (size_t at = 0;;) {
    const Found found = scanner.next(at);
    if (found.size == 0) break;
    size_t index = 0;
    if (queue.next(found.kind, &index)) places.emplace_back(found, index);
    at = found.at + found.size;
  }
  TERN_RETURN_IF_ERROR(queue.check());
  size_t at = 0;
  TERN_ASSIGN_OR_RETURN(
      std::vector<int32_t> piece,
      encode_piece(profile, tokenizer, rendered.substr(0, places.empty() ? rendered.size() : places[0].first.at),
                   bounds));
  builder.add_ids(piece);
  for (size_t i = 0; i < places.size(); i++) {
    const auto& [found, index] = places[i];
    const Placeholder& rule = placeholder_of(profile, found.kind);
    at = found.at + found.size;
    const size_t end = i + 1 < places.size() ? places[i + 1].first.at : rendered.size();
    TERN_ASSIGN_OR_RETURN(piece, encode_piece(profile, tokenizer, rendered.substr(at, end - at), bounds));
    const bool marked =
        (!builder.ids().empty() && builder.ids().back() == rule.start) || (!piece.empty() && piece.front() == rule.end);
    if (!marked && rule.start >= 0) builder.add_id(rule.start);
    TERN_RETURN_IF_ERROR(builder.add_item(index));
    if (!marked && rule.end >= 0) builder.add_id(rule.end);
    builder.add_ids(piece);
  }
  return builder.finish();
}

Expected<PromptLayout> layout_ids(const VisionProfile& profile, std::span<const int32_t> ids,
                                  std::span<const PreparedMediaPtr> media) {
  // Where both kinds have one id, placeholders take the media in the order of the request.
  const bool shared_id = profile.takes_video && profile.image.id == profile.video.id;
  std::vector<size_t> images, videos;
  for (size_t i = 0; i < media.size(); i++) {
    (shared_id || media[i]->kind == MediaKind::kImage ? images : videos).push_back(i);
  }
  size_t next_image = 0, next_video = 0;
  Builder builder(profile, media);
  for (size_t at = 0; at < ids.size();) {
    if (!is_placeholder(profile, ids[at])) {
      builder.add_id(ids[at++]);
      continue;
    }
    size_t run = 1;
    while (at + run < ids.size() && ids[at + run] == ids[at]) run++;
    const bool image = ids[at] == profile.image.id;
    const std::vector<size_t>& order = image ? images : videos;
    size_t& next = image ? next_image : next_video;
    const bool expanded = run_is_expanded(media, order, next, run);
    for (size_t used = 0; used < run;) {
      if (next >= order.size()) return bad("prompt token ids has more multimodal placeholder than in messages");
      const size_t index = order[next++];
      TERN_RETURN_IF_ERROR(builder.add_item(index));
      used += expanded ? static_cast<size_t>(media[index]->tokens) : 1;
    }
    at += run;
  }
  if (next_image != images.size()) return wrong_count("image", next_image, images.size());
  if (next_video != videos.size()) return wrong_count("video", next_video, videos.size());
  return builder.finish();
}

}  // namespace tern::content
