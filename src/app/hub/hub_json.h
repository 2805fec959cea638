// What the hubs answer, in JSON. Bytes from outside.
#pragma once

#include <string>
#include <string_view>

#include "app/hub/hub_files.h"
#include "base/error.h"

namespace tern::app {

inline constexpr size_t kMostHubJson = 64u << 20;

// Hugging Face, /api/models/R/revision/V: {"sha", "siblings": [{"rfilename"}]}. Neither sizes nor digests.
Expected<HubListing> parse_hugging_face(std::string_view text);
// ModelScope, /api/v1/models/R/repo/files: {"Data": {"Files": [{"Type", "Path", "Size", "Sha256"}]}}. The commit is a
// digest of the list.
Expected<HubListing> parse_model_scope(std::string_view text);
// AI Studio, /api/v1/repos/R/tags/V: {"commit": {"sha"}}.
Expected<std::string> parse_tag(std::string_view text);
// AI Studio, one page of /api/v1/repos/R/git/trees/V: {"sha", "truncated", "tree": [{"type", "path", "size", "sha"}]}.
// Adds to the listing; true when another page follows.
Expected<bool> parse_tree(std::string_view text, HubListing& listing);

}  // namespace tern::app
