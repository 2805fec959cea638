// What a folder of a download says of itself: .tern-hub/record.json, which the last step of a download writes, and
// .tern-hub/unfinished.json, the same of a download that was begun and has not ended.
#pragma once

#include <optional>
#include <string>

#include "app/hub/hub_files.h"
#include "app/hub/hub_plan.h"
#include "base/error.h"

namespace tern::app {

struct HubRecord {
  std::string hub, repo, revision;
  HubListing listing;
};

// .tern-hub below a model's folder.
std::string hub_folder(const std::string& folder);
// Nothing where the folder has none, or one that this program did not write.
std::optional<HubRecord> read_record(const std::string& folder);
std::optional<HubRecord> read_unfinished(const std::string& folder);
// The part of it that reads bytes. Errors: kCorrupt.
Expected<HubRecord> parse_record(std::string_view text);
bool is_unfinished(const std::string& folder);
Status mark_unfinished(const std::string& folder, const HubRecord& record);
// Writes the record and takes the mark away.
Status write_record(const std::string& folder, const HubRecord& record);

}  // namespace tern::app
