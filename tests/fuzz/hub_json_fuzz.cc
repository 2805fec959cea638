// What hubs answer and what a folder of a download says of itself: refused, or every file stays in its folder and has
// the digest that its kind needs.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "app/hub/hub_json.h"
#include "app/hub/hub_record.h"

namespace {

void check(const tern::app::HubListing& listing) {
  for (const auto& file : listing.files) {
    if (file.path.empty() || file.path.front() == '.' || file.path.find('/') != std::string::npos) std::abort();
    if (file.size < -1) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tern::app;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (auto listing = parse_hugging_face(text); listing.ok()) {
    if (!is_hex(listing->commit, 40)) std::abort();
    check(*listing);
    (void)keep_used_files(*listing).ok();
  }
  if (auto listing = parse_model_scope(text); listing.ok()) {
    check(*listing);
    for (const auto& file : listing->files) {
      if (!is_hex(file.digest, 64)) std::abort();
    }
  }
  HubListing tree;
  if (parse_tree(text, tree).ok()) {
    check(tree);
    for (const auto& file : tree.files) {
      if (!is_hex(file.digest, 40)) std::abort();
    }
  }
  if (const auto tag = parse_tag(text); tag.ok() && !is_hex(*tag, 40)) std::abort();
  if (const auto record = parse_record(text); record.ok()) check(record->listing);
  return 0;
}
