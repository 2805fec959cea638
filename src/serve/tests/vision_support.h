// A model that sees, without one: a tokenizer with picture tokens, two kinds of templates and a media service whose
// answers the test gives.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "content/media/media.h"
#include "content/media/profile/vision_profile.h"
#include "serve/tests/support.h"

namespace tern::serve::testing {

inline constexpr int32_t kImageStart = 906, kImageId = 907, kImageEnd = 908;
inline constexpr int32_t kVideoStart = 909, kVideoId = 910, kVideoEnd = 911;
inline constexpr int32_t kVisionVocab = 912;

// The tokenizer of tests/protocol with the six tokens above; templates of tests/protocol/templates.
struct VisionText {
  std::unique_ptr<content::Tokenizer> tokenizer;
  std::unique_ptr<content::ChatTemplate> picture_first, numbered;
};
const VisionText& vision_text();
content::VisionProfile test_profile(bool videos);

// One unit of t x h x w patches for a picture, `units` of 2 x h x w for a video; 2 x 2 patches are a token. The key
// tells `seed` and place.
content::PreparedMediaPtr prepared(content::MediaKind kind, int32_t h, int32_t w, uint64_t seed, int units = 1);

class FakeMedia final : public content::MediaService {
 public:
  using content::MediaService::prepare;
  struct Call {
    std::vector<content::MediaPart> parts;
    uint64_t owner = 0;
    Done done;
    Cancelled cancelled;
  };
  ~FakeMedia() override;
  Status prepare(std::vector<content::MediaPart> parts, uint64_t owner, Done done, Cancelled cancelled) override;
  content::MediaStats stats() const override;

  // Waits for the number-th (from 0) call that was taken.
  Call& wait_call(size_t number);
  size_t calls() const;
  bool automatic = true;  // a thread of its own answers every call at once: 2 x 4 patches (2 tokens) per unit
  Status refuse;          // what prepare() answers, when not ok

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::unique_ptr<Call>> calls_;
  std::vector<std::thread> threads_;
  uint64_t images_ = 0;
};

// Server over an engine whose answers the test writes, or over the echo engine.
struct VisionRig {
  explicit VisionRig(ServeConfig config = vision_config(), bool numbered = false, bool videos = true);
  ~VisionRig() {
    engine.ends_aborted = true;
    server->stop(0);
  }
  static ServeConfig vision_config();  // 3 pictures, 2 videos
  std::unique_ptr<Client> ask(std::string_view path, std::string_view body, std::string_view headers = {}) const;
  Reply chat(std::string_view content, std::string_view more = {}) const;  // one user message; waits for the answer

  content::VisionProfile profile;
  FakeMedia media;
  RecordingEngine engine;
  std::unique_ptr<Server> server;
};

std::string url_part(std::string_view url, std::string_view more = {});  // an image_url part

}  // namespace tern::serve::testing
