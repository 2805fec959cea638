// Static models of PaddleNLP, fetched file by file (paddlenlp-server.md 5.4).
#pragma once

#include <string>

#include "app/flags/environment.h"
#include "base/error.h"

namespace tern::app {

struct DownloadPlan {
  std::string base_url;        // .../static, http, https or file
  std::string tag;             // the release
  std::string model_name;      // checked here
  std::string part;            // model, node1, node2 or mtp
  std::string folder;          // where the files go
  bool check_present = false;  // MD5_CHECK: files in place are compared too; else they are left unread
};

// Base URL, release and MD5_CHECK of an environment (paddlenlp_environment()); part and folder are the caller's.
DownloadPlan download_plan(const Environment& environment, const std::string& model_name);

// Fetches the list and every file that is missing. A fetched file is compared with its sum before it gets its name;
// what a broken run has left is continued. One run per folder: others wait. Prints a line per file. Errors: the first
// file that could not be had, after all others were tried.
Status download(const DownloadPlan& plan);

// The part of a model that a node needs.
std::string download_part(int64_t nodes, bool master);

}  // namespace tern::app
