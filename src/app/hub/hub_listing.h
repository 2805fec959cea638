// What a hub has of a repository at a revision, and where its files lie.
#pragma once

#include <functional>
#include <string>

#include "app/hub/hub_files.h"
#include "app/hub/hub_plan.h"
#include "base/error.h"

namespace tern::app {

// Asks for the commit once; everything after is of that commit. Only files that this program uses, each with its size
// and digest. Errors: kNotFound with FastDeploy's text, when there is no such model or revision; kUnavailable;
// kCorrupt.
Expected<HubListing> list_files(const HubPlan& plan);
// The address of a file of the listing.
std::string file_address(const HubPlan& plan, const HubListing& listing, const HubFile& file);
// Runs work(i) for every i below `count`, four at a time, until one fails; the first error.
Status four_at_a_time(size_t count, const std::function<Status(size_t index, size_t thread)>& work);

}  // namespace tern::app
