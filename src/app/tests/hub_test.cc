#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "app/hub/find_folder.h"
#include "app/hub/hub_digest.h"
#include "app/hub/hub_files.h"
#include "app/hub/hub_http.h"
#include "app/hub/hub_json.h"
#include "app/hub/hub_plan.h"
#include "app/hub/hub_progress.h"
#include "app/hub/hub_record.h"
#include "base/sha256.h"
#include "tls/stream_digest.h"

namespace tern::app {
namespace {

namespace fs = std::filesystem;
const std::string kSha1(40, 'a'), kSha256(64, 'b');

Environment environment_of(Environment::Pairs pairs) {
  auto environment = Environment::from(pairs);
  EXPECT_TRUE(environment.ok());
  return std::move(environment).value();
}

Expected<HubPlan> plan_of(const std::string& name, Environment::Pairs pairs, const std::string& revision = "") {
  return hub_plan(name, revision, environment_of(std::move(pairs)));
}

TEST(HubPlan, OwnersAndRevisionsAreThoseOfTheHub) {
  const auto hugging_face = plan_of("PaddlePaddle/X", {{"FD_MODEL_SOURCE", "HUGGINGFACE"}, {"HOME", "/h"}}, "master");
  ASSERT_TRUE(hugging_face.ok());
  EXPECT_EQ(hugging_face->repo, "baidu/X");
  EXPECT_EQ(hugging_face->revision, "main");
  EXPECT_EQ(hugging_face->folder, "/h/baidu/X");
  EXPECT_EQ(hugging_face->endpoint, "https://huggingface.co");
  const auto studio = plan_of("baidu/X", {{"HOME", "/h"}, {"FD_MODEL_CACHE", "/m"}});
  ASSERT_TRUE(studio.ok());
  EXPECT_EQ(studio->kind, HubKind::kAiStudio);
  EXPECT_EQ(studio->repo, "PaddlePaddle/X");
  EXPECT_EQ(studio->revision, "master");
  EXPECT_EQ(studio->folder, "/m/PaddlePaddle/X");
  EXPECT_EQ(plan_of("a/b", {{"DOWNLOAD_SOURCE", "modelscope"}})->kind, HubKind::kModelScope);
}

TEST(HubPlan, AddressesAndWords) {
  EXPECT_EQ(plan_of("a/b", {{"DOWNLOAD_SOURCE", "huggingface"}, {"HF_ENDPOINT", "http://x:1/p/"}})->endpoint,
            "http://x:1/p");
  for (const char* bad : {"ftp://x", "http://a b", "http://me@x", "http://x?y", "http://x\\y"}) {
    EXPECT_FALSE(plan_of("a/b", {{"AISTUDIO_ENDPOINT", bad}}).ok()) << bad;
  }
  for (const char* bad : {"a", "a/", "/a", "a/b/c", "../b", "a/..", "a/.", "-a/b", "a/b?", "a b/c", "a/b%2e"}) {
    EXPECT_FALSE(is_repo_name(bad)) << bad;
  }
  EXPECT_TRUE(is_repo_name("Qwen/Qwen3-0.6B_x"));
  EXPECT_FALSE(is_repo_name("a/" + std::string(97, 'x')));
  for (const char* bad : {"..", "a/../b", "/a", "-a", "a b", "a?b", "a//b"})
    EXPECT_FALSE(plan_of("a/b", {}, bad).ok()) << bad;
  EXPECT_TRUE(plan_of("a/b", {}, "refs/pr/1").ok());
  EXPECT_FALSE(plan_of("a/b", {{"AISTUDIO_ACCESS_TOKEN", "a\r\nHost: x"}}).ok());
  EXPECT_EQ(plan_of("a/b", {{"MODELSCOPE_OFFLINE", "1"}})->forbidden_by, "MODELSCOPE_OFFLINE");
}

TEST(HubHttp, OnlyTheHubsOwnAddressIsItsOrigin) {
  EXPECT_TRUE(same_origin("https://h/a", "https://h"));
  EXPECT_TRUE(same_origin("http://h:1/", "http://h:1/b"));
  for (const char* other : {"http://h/", "https://h:444/", "https://h.evil/", "https://h@evil/", "https://h?@evil/",
                            "https://h#@evil/", "https://h\\@evil/", "https://H/", "//h/", ""}) {
    EXPECT_FALSE(same_origin(other, "https://h")) << other;
  }
  EXPECT_FALSE(same_origin("", ""));
}

TEST(HubHttp, WaitsGrowAndAreBounded) {
  EXPECT_LT(retry_delay(0, -1), 0.4);
  EXPECT_GT(retry_delay(3, -1), 1.4);
  EXPECT_LE(retry_delay(60, -1), 20);
  EXPECT_EQ(retry_delay(0, 7), 7);
  EXPECT_EQ(retry_delay(0, int64_t{1} << 60), 60);
  for (const long status : {429, 408, 500, 503}) EXPECT_TRUE(may_pass(status));
  for (const long status : {0, 200, 302, 401, 404, 416}) EXPECT_FALSE(may_pass(status));
  EXPECT_EQ(escaped_text("a b/\u00e9?"), "a%20b%2F%C3%A9%3F");
}

TEST(HubJson, HuggingFace) {
  const auto listing =
      parse_hugging_face(R"({"sha": ")" + kSha1 +
                         R"(", "siblings": [{"rfilename": "a.json"}, {"rfilename": "b/c"}, {"rfilename": ".x"}]})");
  ASSERT_TRUE(listing.ok()) << listing.error().message;
  EXPECT_EQ(listing->commit, kSha1);
  ASSERT_EQ(listing->files.size(), 1u);  // not of folders, nothing hidden
  EXPECT_EQ(listing->files[0].path, "a.json");
  for (const std::string& text :
       {std::string("{}"), std::string("[]"), std::string("{"), R"({"sha": "main", "siblings": []})" + std::string(),
        R"({"sha": ")" + kSha1 + R"(", "siblings": [1]})",
        R"({"sha": ")" + kSha1 + R"(", "siblings": [{"rfilename": "../x"}]})"}) {
    EXPECT_FALSE(parse_hugging_face(text).ok()) << text;
  }
}

TEST(HubJson, ModelScope) {
  const auto file = [](const std::string& path, const std::string& size, const std::string& sha) {
    return R"({"Data": {"Files": [{"Type": "tree", "Path": "d"}, {"Type": "blob", "Path": ")" + path +
           R"(", "Size": )" + size + R"(, "Sha256": ")" + sha + R"("}]}})";
  };
  const auto listing = parse_model_scope(file("a.json", "7", kSha256));
  ASSERT_TRUE(listing.ok()) << listing.error().message;
  ASSERT_EQ(listing->files.size(), 1u);
  EXPECT_EQ(listing->files[0].size, 7);
  EXPECT_EQ(listing->files[0].hash, HubHash::kSha256);
  EXPECT_EQ(listing->commit.size(), 40u);
  EXPECT_NE(listing->commit, parse_model_scope(file("a.json", "7", std::string(64, 'c')))->commit);
  EXPECT_FALSE(parse_model_scope(file("/a", "7", kSha256)).ok());
  EXPECT_FALSE(parse_model_scope(file("a", "-1", kSha256)).ok());
  EXPECT_FALSE(parse_model_scope(file("a", "1e30", kSha256)).ok());
  EXPECT_FALSE(parse_model_scope(file("a", "7", kSha1)).ok());
  EXPECT_FALSE(parse_model_scope(R"({"Data": null})").ok());
}

TEST(HubJson, AiStudio) {
  EXPECT_EQ(*parse_tag(R"({"commit": {"sha": ")" + kSha1 + R"("}})"), kSha1);
  EXPECT_FALSE(parse_tag(R"({"commit": {"sha": "x"}})").ok());
  HubListing listing;
  const std::string entry = R"({"type": "blob", "path": "a", "size": 1, "sha": ")" + kSha1 + R"("})";
  const std::string head = R"({"sha": ")" + kSha1 + R"(", "tree": [)";
  const auto more = parse_tree(head + entry + R"(], "truncated": true})", listing);
  ASSERT_TRUE(more.ok()) << more.error().message;
  EXPECT_TRUE(*more);
  EXPECT_EQ(listing.files[0].hash, HubHash::kGitBlobOrPointer);
  EXPECT_FALSE(parse_tree(head + R"(], "truncated": true})", listing).ok());  // it would never end
  EXPECT_FALSE(*parse_tree(head + R"(]})", listing));
  EXPECT_FALSE(parse_tree(R"({"tree": []})", listing).ok());
}

TEST(HubFiles, WhatIsUsed) {
  HubListing listing;
  for (const char* path :
       {"config.json", "a.py", "pytorch_model.bin", "model-1.safetensors", "consolidated.safetensors", "README.md",
        "model.safetensors.index.json", "tokenizer.model", "merges.txt", "chat_template.jinja", "x.pdparams",
        "1_Pooling/config.json", "2_Dense/config.json"}) {
    ASSERT_TRUE(add_file(listing, {.path = path}).ok());
  }
  ASSERT_TRUE(keep_used_files(listing).ok());
  std::vector<std::string> kept;
  for (const HubFile& file : listing.files) kept.push_back(file.path);
  EXPECT_EQ(kept, (std::vector<std::string>{"1_Pooling/config.json", "chat_template.jinja", "config.json", "merges.txt",
                                            "model-1.safetensors", "model.safetensors.index.json", "tokenizer.model"}));
  ASSERT_TRUE(add_file(listing, {.path = "config.json"}).ok());
  EXPECT_FALSE(keep_used_files(listing).ok());
  EXPECT_EQ(lfs_pointer(kSha256, 5),
            "version https://git-lfs.github.com/spec/v1\noid sha256:" + kSha256 + "\nsize 5\n");
}

TEST(HubRecord, ReadsWhatItWrote) {
  const std::string folder = ::testing::TempDir() + "hub_record";
  fs::create_directories(hub_folder(folder));
  HubRecord record{"AISTUDIO", "a/b", "v1", {.commit = kSha1, .files = {}}};
  record.listing.files = {{"config.json", 2, HubHash::kGitBlobOrPointer, kSha1, 3}};
  ASSERT_TRUE(mark_unfinished(folder, record).ok());
  EXPECT_TRUE(is_unfinished(folder));
  ASSERT_TRUE(write_record(folder, record).ok());
  EXPECT_FALSE(is_unfinished(folder));
  const auto read = read_record(folder);
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->listing.commit, kSha1);
  ASSERT_EQ(read->listing.files.size(), 1u);
  EXPECT_EQ(read->listing.files[0].blob_size, 3);
  EXPECT_FALSE(parse_record("{}").ok());
  EXPECT_FALSE(parse_record("null").ok());
  EXPECT_FALSE(read_record(folder + "/none").has_value());
  fs::remove_all(folder);
}

TEST(HubTransfer, DigestsOfStreams) {
  using tls::StreamDigest;
  const auto of = [](StreamDigest::Kind kind) {
    auto digest = StreamDigest::begin(kind);
    if (!digest.ok()) return digest.error().message;
    digest->add("ab", 2);
    digest->add("c", 1);
    return digest->hex();
  };
  EXPECT_EQ(of(StreamDigest::Kind::kSha1), "a9993e364706816aba3e25717850c26c9cd0d89d");
  EXPECT_EQ(of(StreamDigest::Kind::kSha256), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

// A file that grows piece by piece, and begins anew once.
TEST(HubTransfer, ADigestFollowsTheFile) {
  const std::string path = testing::TempDir() + "following_digest";
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  ASSERT_GE(fd, 0);
  const std::string piece(700'000, 'x'), whole = piece + piece + piece;
  HubFile file{.path = "f", .size = static_cast<int64_t>(whole.size()), .hash = HubHash::kSha256};
  file.digest = sha256_hex(whole.data(), whole.size());
  const auto write_all = [&](FollowingDigest& digest, char letter) {
    for (int64_t i = 0; i < 3; ++i) {
      const std::string part(piece.size(), letter);
      const auto size = static_cast<int64_t>(part.size());
      EXPECT_EQ(::pwrite(fd, part.data(), part.size(), i * size), static_cast<ssize_t>(size));
      EXPECT_TRUE(digest.wrote((i + 1) * size).ok());
    }
    const auto same = digest.matches(file.size);
    return same.ok() && *same;
  };
  {
    auto digest = FollowingDigest::begin(fd, path, file);
    ASSERT_TRUE(digest.ok());
    EXPECT_FALSE(write_all(**digest, 'y'));
    ASSERT_TRUE((*digest)->restart().ok());
    EXPECT_TRUE(write_all(**digest, 'x'));
    ASSERT_TRUE((*digest)->restart().ok());
    EXPECT_EQ(::ftruncate(fd, 100), 0);
    EXPECT_FALSE((*digest)->matches(101).ok());  // fewer bytes than were said to be there
  }
  ::close(fd);
  const auto there = is_file_of(path, file);
  EXPECT_TRUE(there.ok() && !*there);
  fs::remove(path);
}

TEST(HubFiles, BlobsAndPointers) {
  const auto is = [](const std::string& content, int64_t blob_size, const std::string& digest) {
    const HubFile file{.path = "f", .hash = HubHash::kGitBlobOrPointer, .digest = digest, .blob_size = blob_size};
    auto taken = FileDigest::begin(file);
    if (!taken.ok()) return false;
    for (const char& c : content) taken->add(&c, 1);
    return taken->matches();
  };
  const auto git = [](const std::string& content) {
    auto digest = tls::StreamDigest::begin(tls::StreamDigest::Kind::kSha1);
    const std::string head = fmt::format("blob {}", content.size()) + '\0';
    digest->add(head.data(), head.size());
    digest->add(content.data(), content.size());
    return digest->hex();
  };
  for (const size_t size : {size_t{50}, size_t{150}, size_t{5000}}) {
    const std::string content(size, 'c');
    const std::string pointer = lfs_pointer(sha256_hex(content.data(), size), static_cast<int64_t>(size));
    EXPECT_TRUE(is(content, static_cast<int64_t>(size), git(content))) << size;
    EXPECT_TRUE(is(content, static_cast<int64_t>(pointer.size()), git(pointer))) << size;
    EXPECT_FALSE(is(content + "d", static_cast<int64_t>(size), git(content))) << size;
    EXPECT_FALSE(is(content + "d", static_cast<int64_t>(pointer.size()), git(pointer))) << size;
  }
}

TEST(HubProgress, Texts) {
  EXPECT_EQ(bytes_text(999), "999 B");
  EXPECT_EQ(bytes_text(1.5e9), "1.50 GB");
  EXPECT_EQ(progress_text(1'200'000'000, 3'000'000'000, 1e8), "1.20 GB of 3.00 GB, 40 %, 100.00 MB/s, 18 s left");
  EXPECT_EQ(progress_text(0, 0, 0), "0 B of 0 B, 100 %, 0 B/s");
  EXPECT_NE(progress_text(0, int64_t{1} << 50, 1).find(" h "), std::string::npos);
}

TEST(FindFolder, WholeModelsOnly) {
  const std::string folder = ::testing::TempDir() + "holds_model";
  fs::create_directories(folder);
  EXPECT_FALSE(holds_model(folder));
  std::ofstream(folder + "/config.json") << "{}";
  EXPECT_FALSE(holds_model(folder));
  std::ofstream(folder + "/model.safetensors.index.json")
      << R"({"weight_map": {"a": "1.safetensors", "b": "2.safetensors"}})";
  std::ofstream(folder + "/1.safetensors") << "x";
  EXPECT_FALSE(holds_model(folder));
  std::ofstream(folder + "/2.safetensors") << "x";
  EXPECT_TRUE(holds_model(folder));
  std::ofstream(folder + "/model.safetensors.index.json") << R"({"weight_map": {"a": "../../etc/passwd"}})";
  EXPECT_FALSE(holds_model(folder));
  fs::remove_all(folder);
}

}  // namespace
}  // namespace tern::app
