#include "serve/tests/vision_support.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>

#include "base/check.h"
#include "content/text/files.h"

namespace tern::serve::testing {

using namespace std::chrono_literals;

namespace {

std::unique_ptr<content::Tokenizer> make_tokenizer() {
  namespace fs = std::filesystem;
  const std::string from = std::string(TERN_SOURCE_DIR) + "/tests/protocol/tokenizer";
  const fs::path to = fs::temp_directory_path() / fmt::format("tern-vision-tokenizer-{}", ::getpid());
  fs::create_directories(to);
  fs::copy_file(from + "/tokenizer_config.json", to / "tokenizer_config.json", fs::copy_options::overwrite_existing);
  auto file = json::parse_file(from + "/tokenizer.json");
  TERN_CHECK(file.ok());
  auto& added = file->get_object().at("added_tokens").get_array();
  int32_t id = kImageStart;
  for (const char* text : {"<|IMAGE_START|>", "<|IMAGE_PLACEHOLDER|>", "<|IMAGE_END|>", "<|VIDEO_START|>",
                           "<|VIDEO_PLACEHOLDER|>", "<|VIDEO_END|>"}) {
    added.push_back(json::Object{{"id", id++},
                                 {"content", text},
                                 {"single_word", false},
                                 {"lstrip", false},
                                 {"rstrip", false},
                                 {"normalized", false},
                                 {"special", true}});
  }
  std::ofstream(to / "tokenizer.json") << json::dump(*file);
  auto tokenizer = content::Tokenizer::load(to.string());
  fs::remove_all(to);
  TERN_CHECK_MSG(tokenizer.ok(), tokenizer.error().message);
  return *std::move(tokenizer);
}

std::unique_ptr<content::ChatTemplate> template_file(const char* name) {
  auto source =
      content::read_file(fmt::format("{}/tests/protocol/templates/{}.jinja", TERN_SOURCE_DIR, name), 1u << 20);
  TERN_CHECK(source.ok());
  auto compiled = content::ChatTemplate::compile(*source);
  TERN_CHECK_MSG(compiled.ok(), compiled.error().message);
  return *std::move(compiled);
}

}  // namespace

const VisionText& vision_text() {
  static const VisionText text{make_tokenizer(), template_file("picture_first"), template_file("numbered")};
  return text;
}

content::VisionProfile test_profile(bool videos) {
  content::VisionProfile p;
  p.architecture = "Test";
  p.takes_video = videos;
  p.image = {{"<|image@placeholder|>", "<|IMAGE_PLACEHOLDER|>"}, kImageId, kImageStart, kImageEnd};
  p.video = {{"<|video@placeholder|>", "<|VIDEO_PLACEHOLDER|>"}, kVideoId, kVideoStart, kVideoEnd};
  return p;
}

content::PreparedMediaPtr prepared(content::MediaKind kind, int32_t h, int32_t w, uint64_t seed, int units) {
  auto media = std::make_shared<content::PreparedMedia>();
  media->kind = kind;
  const int32_t tokens = h * w / 4;
  for (int i = 0; i < units; ++i) {
    content::MediaUnit unit;
    unit.t = kind == content::MediaKind::kImage ? 1 : 2;
    unit.h = h;
    unit.w = w;
    unit.tokens = tokens;
    unit.bytes = static_cast<size_t>(unit.t) * static_cast<size_t>(h) * static_cast<size_t>(w) * 8;
    unit.offset = static_cast<size_t>(i) * unit.bytes;
    unit.key[0] = seed;
    unit.key[1] = static_cast<uint64_t>(i);
    media->units.push_back(unit);
  }
  media->t = units;
  media->h = h / 2;
  media->w = w / 2;
  media->tokens = tokens * units;
  media->bytes = media->units[0].bytes * static_cast<size_t>(units);
  media->patches = std::make_shared<const RawBytes>(media->bytes, std::byte{});
  return media;
}

FakeMedia::~FakeMedia() {
  for (auto& thread : threads_) thread.join();
}

Status FakeMedia::prepare(std::vector<content::MediaPart> parts, uint64_t owner, Done done, Cancelled cancelled) {
  if (!refuse.ok()) return refuse;
  std::vector<content::PreparedMediaPtr> ready;
  std::lock_guard lock(mutex_);
  images_ += parts.size();
  for (size_t i = 0; i < parts.size(); ++i) {
    const bool image = parts[i].kind == content::MediaKind::kImage;
    ready.push_back(prepared(parts[i].kind, 2, 4, 100 + i, image ? 1 : 2));
  }
  calls_.push_back(std::make_unique<Call>(Call{std::move(parts), owner, std::move(done), std::move(cancelled)}));
  if (automatic) threads_.emplace_back([call = calls_.back().get(), ready] { call->done(ready); });
  changed_.notify_all();
  return {};
}

content::MediaStats FakeMedia::stats() const {
  std::lock_guard lock(mutex_);
  content::MediaStats stats;
  stats.images = images_;
  stats.prepare_ns = 2'500'000;
  stats.cache_lookups = 7;
  stats.cache_hits = 3;
  return stats;
}

FakeMedia::Call& FakeMedia::wait_call(size_t number) {
  std::unique_lock lock(mutex_);
  const bool there = changed_.wait_for(lock, 5s, [&] { return calls_.size() > number; });
  TERN_CHECK_MSG(there, "the media were never asked for");
  return *calls_[number];
}

size_t FakeMedia::calls() const {
  std::lock_guard lock(mutex_);
  return calls_.size();
}

ServeConfig VisionRig::vision_config() {
  ServeConfig config = test_config();
  config.vocab_size = kVisionVocab;
  config.media.max_images = 3;
  config.media.max_videos = 2;
  return config;
}

VisionRig::VisionRig(ServeConfig config, bool numbered, bool videos) : profile(test_profile(videos)) {
  const auto& text = vision_text();
  const Content content{text.tokenizer.get(), numbered ? text.numbered.get() : text.picture_first.get(), nullptr,
                        &profile, &media};
  auto started = Server::start(config, engine, content);
  TERN_CHECK_MSG(started.ok(), started.error().message);
  server = *std::move(started);
}

std::unique_ptr<Client> VisionRig::ask(std::string_view path, std::string_view body, std::string_view headers) const {
  auto c = std::make_unique<Client>(server->port());
  c->send(
      fmt::format("POST {} HTTP/1.1\r\nHost: t\r\n{}Content-Length: {}\r\n\r\n{}", path, headers, body.size(), body));
  return c;
}

Reply VisionRig::chat(std::string_view content, std::string_view more) const {
  return ask("/v1/chat/completions", fmt::format(R"({{"messages":[{{"role":"user","content":{}}}]{}}})", content, more))
      ->receive();
}

std::string url_part(std::string_view url, std::string_view more) {
  return fmt::format(R"({{"type":"image_url","image_url":{{"url":"{}"}}{}}})", url, more);
}

}  // namespace tern::serve::testing
