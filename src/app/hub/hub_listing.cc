#include "app/hub/hub_listing.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <thread>

#include "app/hub/hub_http.h"
#include "app/hub/hub_json.h"

namespace tern::app {
namespace {

constexpr size_t kThreads = 4;
constexpr int kPageSize = 1000, kMostPages = 200;

std::string in_path(const std::string& text) { return escaped_text(text, "/"); }

// The digest and the size that Hugging Face tells in a file's headers.
Status take_headers(const HubListing& listing, const HubReply& reply, HubFile& file) {
  const auto wrong = [&](std::string_view what) {
    return make_error(ErrorCode::kCorrupt, fmt::format("{}: {}", file.path, what));
  };
  if (!reply.commit.empty() && reply.commit != listing.commit) return wrong("the hub answers with another commit");
  const bool linked = !reply.linked_etag.empty();
  file.digest = linked ? reply.linked_etag : reply.etag;
  file.size = reply.linked_size >= 0 ? reply.linked_size : reply.status == 200 ? reply.length : -1;
  if (file.size < 0) return wrong("the hub tells no size");
  if (is_hex(file.digest, 64)) {
    file.hash = HubHash::kSha256;
  } else if (is_hex(file.digest, 40)) {
    file.hash = HubHash::kGitBlob;
  } else {
    return wrong("the hub tells no digest");
  }
  return {};
}

Status ask_headers(const HubPlan& plan, HubListing& listing) {
  std::vector<std::unique_ptr<HubHttp>> connections(kThreads);
  return four_at_a_time(listing.files.size(), [&](size_t index, size_t thread) -> Status {
    HubFile& file = listing.files[index];
    const bool maybe_pointer = file.hash == HubHash::kGitBlobOrPointer && file.size >= kLeastPointerBytes &&
                               file.size <= kMostPointerBytes && file.path.ends_with(".safetensors");
    if (file.hash != HubHash::kNone && !maybe_pointer) return {};
    if (connections[thread] == nullptr) connections[thread] = std::make_unique<HubHttp>(plan);
    const auto reply = ask_head(plan, *connections[thread], file_address(plan, listing, file));
    if (maybe_pointer) {  // its real size, where the hub tells it: for the bar and for the check of the disk
      file.size = reply.ok() && reply->status == 200 ? reply->length : -1;
      return {};
    }
    if (!reply.ok()) return reply.error();
    return take_headers(listing, *reply, file);
  });
}

Expected<HubListing> list_ai_studio(const HubPlan& plan, HubHttp& http) {
  const std::string base = fmt::format("{}/api/v1/repos/{}", plan.endpoint, plan.repo);
  std::string revision = plan.revision;
  const auto tag = ask_text(plan, http, fmt::format("{}/tags/{}", base, escaped_text(revision)), kMostHubJson);
  if (tag.ok()) {
    TERN_ASSIGN_OR_RETURN(revision, parse_tag(*tag));
  } else if (tag.error().code != ErrorCode::kNotFound) {
    return tag.error();
  }
  HubListing listing;
  for (int page = 1; page <= kMostPages; ++page) {
    const std::string url = fmt::format("{}/git/trees/{}?recursive=true&page={}&per_page={}", base,
                                        escaped_text(revision), page, kPageSize);
    TERN_ASSIGN_OR_RETURN(const std::string text, ask_text(plan, http, url, kMostHubJson));
    TERN_ASSIGN_OR_RETURN(const bool more, parse_tree(text, listing));
    revision = listing.commit;  // further pages are of the same commit
    if (!more) return listing;
  }
  return make_error(ErrorCode::kTooLarge, fmt::format("{}: the hub's list does not end", base));
}

Expected<HubListing> list_all(const HubPlan& plan) {
  HubHttp http(plan);
  if (plan.kind == HubKind::kAiStudio) return list_ai_studio(plan, http);
  if (plan.kind == HubKind::kModelScope) {
    const std::string url = fmt::format("{}/api/v1/models/{}/repo/files?Revision={}&Recursive=true", plan.endpoint,
                                        plan.repo, escaped_text(plan.revision));
    TERN_ASSIGN_OR_RETURN(const std::string text, ask_text(plan, http, url, kMostHubJson));
    return parse_model_scope(text);
  }
  const std::string url =
      fmt::format("{}/api/models/{}/revision/{}", plan.endpoint, plan.repo, escaped_text(plan.revision));
  TERN_ASSIGN_OR_RETURN(const std::string text, ask_text(plan, http, url, kMostHubJson));
  return parse_hugging_face(text);
}

}  // namespace

Status four_at_a_time(size_t count, const std::function<Status(size_t, size_t)>& work) {
  std::atomic<size_t> next{0};
  std::atomic<bool> stop{false};
  std::mutex mutex;
  Status first;
  const auto run = [&](size_t thread) {
    for (size_t index = next++; index < count && !stop; index = next++) {
      Status status = work(index, thread);
      if (status.ok()) continue;
      const std::lock_guard lock(mutex);
      if (first.ok()) first = std::move(status);
      stop = true;
    }
  };
  std::vector<std::jthread> threads;
  for (size_t i = 1; i < std::min(kThreads, count); ++i) threads.emplace_back(run, i);
  run(0);
  threads.clear();
  return first;
}

std::string file_address(const HubPlan& plan, const HubListing& listing, const HubFile& file) {
  switch (plan.kind) {
    case HubKind::kHuggingFace:
      return fmt::format("{}/{}/resolve/{}/{}", plan.endpoint, plan.repo, listing.commit, in_path(file.path));
    case HubKind::kModelScope:  // its commits are not told: the digests of the list pin the content
      return fmt::format("{}/api/v1/models/{}/repo?Revision={}&FilePath={}", plan.endpoint, plan.repo,
                         escaped_text(plan.revision), escaped_text(file.path));
    case HubKind::kAiStudio:
      break;
  }
  return fmt::format("{}/api/v1/repos/{}/media/{}?ref={}", plan.endpoint, plan.repo, in_path(file.path),
                     listing.commit);
}

Expected<HubListing> list_files(const HubPlan& plan) {
  auto listing = list_all(plan);
  if (!listing.ok() && listing.error().code == ErrorCode::kNotFound) {
    return make_error(ErrorCode::kNotFound,
                      fmt::format("The {} of {} is not exist. Please check the model name or revision. ({})",
                                  plan.revision, plan.repo, listing.error().message),
                      "model");
  }
  if (!listing.ok()) return listing.error();
  TERN_RETURN_IF_ERROR(keep_used_files(*listing));
  TERN_RETURN_IF_ERROR(ask_headers(plan, *listing));
  return listing;
}

}  // namespace tern::app
